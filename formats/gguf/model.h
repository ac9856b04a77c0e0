/* Architectures of GGUF files: their metadata and tensors in weft. Not installed. */
#ifndef WEFT_FORMATS_GGUF_MODEL_H
#define WEFT_FORMATS_GGUF_MODEL_H

#include <weft/gguf.h>

typedef enum gguf_rule {
    GGUF_OPTION,     /* the number of an option */
    GGUF_HEAD_DIM,   /* the width of a head; the option is 0 if it is d_model / heads */
    GGUF_ROTARY_DIM, /* the rotated elements of a head; the option is 0 if it is all of them */
    GGUF_SCALING,    /* the rule that scales rotary positions: a text */
    GGUF_SCALED,     /* a number of the rules in `value`, "a|b"; else without influence */
    GGUF_FACTORED,   /* a number of LongRoPE; else weft needs `value` */
    GGUF_EQUALS,     /* no option: weft needs the number or text `value` */
    GGUF_HEAD,       /* no option: must be the width of a head */
    GGUF_VOCAB,      /* no option: must be the rows of the embedding matrix */
    GGUF_INERT       /* results do not depend on it */
} gguf_rule;

typedef struct gguf_key {
    gguf_rule rule;
    const char *key; /* without the name of the architecture before it */
    const char *option;
    const char *value; /* the option of an absent key, or what weft needs; NULL: the key is
                           required */
} gguf_key;

typedef enum gguf_layout {
    GGUF_SAME,
    GGUF_TRANSPOSED, /* theirs is [out, in], ours [in, out] */
    GGUF_QUERY,      /* the same of a projection whose rows llama.cpp has in another order, */
    GGUF_KEY         /* and with the heads of keys */
} gguf_layout;

/* `*` is the number of a layer. Where several rows have the same `theirs`, ours are rows of it, one
 * parameter after the other in this order. */
typedef struct gguf_row {
    const char *theirs, *ours;
    gguf_layout layout;
} gguf_row;

#define GGUF_TABLES 3
typedef struct gguf_architecture {
    const char *name;  /* general.architecture, and what its keys begin with */
    const char *model; /* a listed model */
    const char *fixed; /* options that all its files have: "key=value key=value"; may be NULL */
    int divided_layers; /* the number of layers with which the width of scores is d_model / heads, not the
                            width of a head; 0: never */
    bool by_name;       /* written only if it is asked for */
    const gguf_key *keys[GGUF_TABLES];    /* each ends with a key NULL */
    const gguf_row *tensors[GGUF_TABLES]; /* each ends with theirs NULL */
} gguf_architecture;

/* NULL beyond the end. */
const gguf_architecture *weft__gguf_architecture_at(size_t index);
const gguf_key *weft__gguf_key_at(const gguf_architecture *a, size_t index);
const gguf_row *weft__gguf_row_at(const gguf_architecture *a, size_t index);
/* ---- names.c ---- */

#define GGUF_NAME_BYTES 256
/* Whether a name is the pattern `from` with digits for `*`; then *out becomes `to` with them. */
bool weft__gguf_translate(const char *from, const char *to, const char *name,
                          char out[GGUF_NAME_BYTES]);
/* The row of a parameter, and the name of its tensor; NULL if there is none. */
const gguf_row *weft__gguf_row_of(const gguf_architecture *a, const char *ours,
                                  char theirs[GGUF_NAME_BYTES]);
/* Where the rows of a parameter lie in their tensor, which has `all`. */
typedef struct gguf_place {
    int64_t first, all;
} gguf_place;
/* `graph` declares the parameters. */
gguf_place weft__gguf_place_of(const gguf_architecture *a, const weft_graph *graph,
                               const gguf_row *row, const char *theirs);
/* The row of theirs that is row `i` of a projection of n, and the inverse. */
int64_t weft__gguf_their_row(const weft_model_config *config, gguf_layout layout, int64_t i,
                             int64_t n);
int64_t weft__gguf_our_row(const weft_model_config *config, gguf_layout layout, int64_t i,
                           int64_t n);

/* ---- config.c, rotary.c ---- */

#define GGUF_LLAMA3_POSITIONS 8192 /* in which all published models of Llama 3 count turns */
/* By what Llama 3's rule multiplies the frequency of pair i of n. */
double weft__gguf_llama3_speed(double base, double factor, int64_t i, int64_t n);
/* Tensors of frequencies that scale rotary positions, not parameters: by Llama 3's rule, and by the
 * two lists of LongRoPE. */
#define GGUF_ROPE_FREQS "rope_freqs.weight"
#define GGUF_ROPE_SHORT "rope_factors_short.weight"
#define GGUF_ROPE_LONG  "rope_factors_long.weight"

/* The architecture of a file; NULL on failure. */
const gguf_architecture *weft__gguf_architecture(const weft_gguf *file, weft_error *error);
/* Sets the model and its options, from metadata and names of tensors. `context` is that of
 * weft_gguf_options. */
weft_status weft__gguf_config(const weft_gguf *file, const gguf_architecture *a, int64_t context,
                              weft_model_config *config, weft_error *error);
/* The value of an option of that name; 0 if the model has none. */
double weft__gguf_option(const weft_model_config *config, const char *name);

#endif
