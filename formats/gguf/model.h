/* Architectures of GGUF files: their metadata and tensors in weft. Not installed. */
#ifndef WEFT_FORMATS_GGUF_MODEL_H
#define WEFT_FORMATS_GGUF_MODEL_H

#include <weft/gguf.h>

typedef enum gguf_rule {
    GGUF_OPTION, /* the number of an option */
    GGUF_EQUALS, /* no option: weft needs the number or text `value` */
    GGUF_HEAD,   /* no option: must be d_model / heads */
    GGUF_VOCAB,  /* no option: must be the rows of the embedding matrix */
    GGUF_INERT   /* results do not depend on it */
} gguf_rule;

typedef struct gguf_key {
    gguf_rule rule;
    const char *key;    /* without the name of the architecture before it */
    const char *option; /* of GGUF_OPTION */
    const char *value;  /* the option of an absent key, or what GGUF_EQUALS needs; NULL: the key is
                           required */
} gguf_key;

typedef enum gguf_layout {
    GGUF_SAME,
    GGUF_TRANSPOSED, /* theirs is [out, in], ours [in, out] */
    GGUF_QUERY,      /* the same of a projection whose rows llama.cpp has in another order, */
    GGUF_KEY         /* and with the heads of keys */
} gguf_layout;

/* `*` is the number of a layer. */
typedef struct gguf_row {
    const char *theirs, *ours;
    gguf_layout layout;
} gguf_row;

typedef struct gguf_architecture {
    const char *name;        /* general.architecture, and what its keys begin with */
    const char *model;       /* a listed model */
    const gguf_key *keys;    /* ends with a key NULL */
    const gguf_row *tensors; /* ends with theirs NULL */
} gguf_architecture;

/* The architecture of a file; NULL on failure. */
const gguf_architecture *weft__gguf_architecture(const weft_gguf *file, weft_error *error);
/* Sets the model and its options, from metadata and names of tensors. */
weft_status weft__gguf_config(const weft_gguf *file, const gguf_architecture *a,
                              weft_model_config *config, weft_error *error);
/* The value of an option of that name; 0 if the model has none. */
double weft__gguf_option(const weft_model_config *config, const char *name);

#endif
