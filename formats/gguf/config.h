/* A configuration while a GGUF file is read: what config.c, keys.c and rotary.c share. Not installed. */
#ifndef WEFT_FORMATS_GGUF_CONFIG_H
#define WEFT_FORMATS_GGUF_CONFIG_H

#include "model.h"

#include "base/text.h"

#define GGUF_WORDS      48
#define GGUF_WORD_BYTES 96

/* Options as "key=value". */
typedef struct gguf_reader {
    const weft_gguf *file;
    const gguf_architecture *a;
    weft_model_config *config;
    int64_t context; /* of weft_gguf_options */
    char words[GGUF_WORDS][GGUF_WORD_BYTES];
    size_t n_words;
    char factors[WEFT_ROTARY_FACTORS * TEXT_NUMBER_BYTES + GGUF_WORD_BYTES]; /* one more word; "":
                                                                                none */
    weft_error *error;
} gguf_reader;

void weft__gguf_add_word(gguf_reader *r, const char *option, const char *value);
/* The value of a key of the architecture; NULL if it is absent. */
const weft_gguf_value *weft__gguf_key(const gguf_reader *r, const char *key);
/* The number of a key; 0 if it is absent or not a number. */
double weft__gguf_number_of(const gguf_reader *r, const char *key);
/* The width of a head. */
double weft__gguf_head_width(const gguf_reader *r);
/* Whether the rule that scales rotary positions is one of "a|b". */
bool weft__gguf_is_scaled_by(const gguf_reader *r, const char *rules);

/* Whether the file has lists of factors that scale rotary positions, or should have them. */
bool weft__gguf_has_factors(const gguf_reader *r);

/* ---- rotary.c ---- */

/* Adds the options that tensors of frequencies determine. */
weft_status weft__gguf_read_rotary(gguf_reader *r);

#endif
