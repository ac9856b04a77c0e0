/* Tables that map architectures of transformers to models of weft, and functions that read them. */
#ifndef WEFT_MODELS_TABLES_H
#define WEFT_MODELS_TABLES_H

#include <weft/huggingface.h>

#include <cjson/cJSON.h>

/* ---- Configurations ---- */

typedef enum hf_kind {
    HF_NUMBER,      /* the option's number */
    HF_FLAG,        /* true or false */
    HF_ACTIVATION,  /* the name of an activation */
    HF_PAD,         /* an id; eos_token_id, or else 0, if it is null or outside the vocabulary */
    HF_FIXED,       /* no option: transformers can do more than weft, which needs `value` */
    HF_EACH,        /* the same for every element of an array */
    HF_NULLABLE,    /* the option's number; null is 0 */
    HF_HEAD_DIM,    /* the option's number, which is 0 for d_model / heads */
    HF_LAYERS,      /* the kinds of layers one by one, of which every n-th is global */
    HF_ROTARY_DIM,  /* the option as a fraction of the width of a head; 0 is 1 */
    HF_ROPE_TYPE,   /* the name of a rule that scales rotary positions; 0 is absent */
    HF_ROPE_NUMBER, /* a number of the rules in `times`, bits of ROPE; 0 is `of` or `plus` */
    HF_ROPE_FACTORS /* the factors of LongRoPE, one list of two (longrope.c) */
} hf_kind;

#define ROPE(rule) (1 << WEFT_ROTARY_##rule)

typedef struct hf_key {
    hf_kind kind;
    const char *key; /* "a|b.c": the first of these that the configuration has, and not as null */
    const char *option;
    const char *value; /* the JSON that an absent key means. NULL: `of`, or the key is required;
                          "": the key says nothing if it is absent */
    const char *of;    /* an absent key, and the option 0, mean `times` times this option */
    int times;
    int plus; /* the key's number is the option's plus this */
} hf_key;

/* ---- Tensors ---- */

typedef enum hf_layout {
    HF_SAME,
    HF_TRANSPOSED, /* theirs is [out, in], ours [in, out] */
    HF_COLUMNS,    /* ours are columns of theirs */
    HF_ROWS,       /* ours, transposed, are rows of theirs */
    HF_ROW         /* theirs is [1, n], ours [n]; zeros if it is missing */
} hf_layout;

/* `*` is the number of a layer, `~` the prefix of the architecture. Where several rows have the same
 * `theirs`, ours are parts of it in this order. */
typedef struct hf_tensor {
    const char *theirs, *ours;
    hf_layout layout;
} hf_tensor;

/* ---- Architectures ---- */

#define HF_TABLES 3
typedef struct hf_architecture {
    const char *name;    /* the class in transformers */
    const char *aliases; /* "A|B": classes with the same model inside; may be NULL */
    const char *type;    /* model_type */
    const char *model;   /* a listed model; on writing, all whose names begin so */
    const char *fixed;   /* options that all its configurations have: "key=value key=value" */
    const char *prefix;  /* of tensors below the model's head, "bert." */
    bool headless;       /* written without the prefix */
    const hf_key *keys[HF_TABLES];       /* each ends with a key NULL */
    const hf_tensor *tensors[HF_TABLES]; /* each ends with theirs NULL */
    const char *inert;                   /* "a|b*": more keys without influence on results */
    const char *computed; /* "a*|*b": tensors that are computed from others, or not at all */
    const char *left_out; /* tensors that no model of weft has */
} hf_architecture;

/* A configuration to read; messages call it `path`. */
typedef struct hf_source {
    const cJSON *json;
    const char *path;
    int64_t context;
} hf_source;

/* NULL beyond the end. */
const hf_architecture *weft__hf_architecture_at(size_t index);
/* Whether one of the patterns "a*|b" matches the text. */
bool weft__hf_is_one_of(const char *patterns, const char *text);
/* Keys of configurations that no computation depends on. */
extern const char weft__hf_inert[];
/* The flag `pooler` is 1 if this tensor, after the prefix, is there. */
#define HF_POOLER "pooler.dense.weight"

/* ---- config.c ---- */

/* The architecture that a configuration names. NULL on failure. */
const hf_architecture *weft__hf_find_architecture(const cJSON *json, const char *path,
                                                  weft_error *error);
/* Converts a configuration to options, for texts of up to `context` tokens. Only LongRoPE depends on
 * it; 0: as many as its short factors are for. */
weft_status weft__hf_read_config(const hf_architecture *a, const hf_source *source,
                                 weft_model_config *config, weft_error *error);
/* Converts options to a configuration, which the caller deletes. `before`, may be NULL: an earlier
 * one of the same architecture. NULL on failure. */
cJSON *weft__hf_write_config(const hf_architecture *a, const weft_model_config *config,
                             const cJSON *before, weft_error *error);

/* choose.c: makes the configuration of a model, which the caller deletes, and sets *found to its
 * architecture: that of the name, or if this is NULL the one of WEFT_HUGGINGFACE_CONFIG, or else the
 * first that has all options of the model. NULL on failure. */
cJSON *weft__hf_choose(const weft_params *params, const weft_model_config *config,
                       const char *architecture, const hf_architecture **found, weft_error *error);

/* Compares a configuration that was written as an architecture, and read again, with the options:
 * WEFT_BAD_ARGUMENT if they do not mean the same. */
weft_status weft__hf_compare(const char *architecture, const weft_model_config *wanted,
                             const weft_model_config *got, weft_error *error);

/* Whether a key, "a" or "a.b", sets an option that may be a fraction. */
bool weft__hf_is_real(const hf_architecture *a, const weft_model *model, const char *path);

/* ---- json_file.c ---- */

/* Parses a JSON object, which the caller deletes, also after an error. Messages call it `path`. */
weft_status weft__hf_parse_object(const char *text, size_t length, const char *path, cJSON **json,
                                  weft_error *error);
/* Reads a file that has one. The caller frees *text as well; both are NULL if there is none. */
weft_status weft__hf_read_object(const char *path, size_t max_bytes, char **text, cJSON **json,
                                 weft_error *error);

/* ---- names.c ---- */

#define HF_NAME_BYTES 512
/* Their tensor of a parameter: its row, and its name in files with the prefix and without. */
typedef struct hf_name {
    const hf_tensor *row; /* NULL: none */
    char full[HF_NAME_BYTES], bare[HF_NAME_BYTES];
} hf_name;
hf_name weft__hf_name_of(const hf_architecture *a, const char *ours);
/* The next parameter, from row *at on, to which their tensor belongs, and its row; NULL if there is
 * none. `theirs` may have the prefix or not, and the names of norms in old files. */
const hf_tensor *weft__hf_param_of(const hf_architecture *a, const char *theirs, size_t *at,
                                   char ours[HF_NAME_BYTES]);
/* Where ours lies among the columns (of HF_ROWS the rows) of theirs. */
typedef struct hf_place {
    int64_t first, all;
} hf_place;
/* `graph` declares the parameters. */
hf_place weft__hf_place_of(const hf_architecture *a, const weft_graph *graph, const char *ours);
/* The shape of their tensor. */
weft_shape weft__hf_their_shape(const hf_tensor *row, hf_place place, weft_shape ours);
/* Our parameter, f32. */
typedef struct hf_param {
    weft_shape shape;
    float *data;
} hf_param;
/* Copies their contents to ours, or part of theirs from ours; f32. */
void weft__hf_copy(const hf_tensor *row, hf_place place, hf_param ours, float *theirs,
                   bool to_ours);

/* A graph of the model, which declares its parameters; NULL on failure. */
weft_graph *weft__hf_graph(const weft_model_config *config, weft_error *error);

#endif
