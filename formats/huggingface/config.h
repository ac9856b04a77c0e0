/* What reading and writing configurations share. Not installed. */
#ifndef WEFT_FORMATS_HUGGINGFACE_CONFIG_H
#define WEFT_FORMATS_HUGGINGFACE_CONFIG_H

#include "tables.h"

#define KEY_BYTES  128
#define WORD_BYTES 128

/* Copies the i-th of "a|b|c"; false if there is none. */
bool weft__hf_alternative(const char *keys, int i, char key[KEY_BYTES]);
/* The object that has the last component of "a.b.c", which *last becomes; NULL if there is none. */
cJSON *weft__hf_holder(const cJSON *json, char *key, char **last);
/* The value of a key; NULL if it is absent or null. */
cJSON *weft__hf_find_value(const cJSON *json, const char *keys);
/* Whether a path, "a" or "a.b", is a key of a row, or an object that has one. */
bool weft__hf_is_key(const hf_key *row, const char *path);

/* Names of activations, of rules that scale rotary positions, and of layers by weft__hf_is_global.
 * Of several names of theirs for one of ours, the first is written. */
typedef struct hf_word {
    const char *theirs, *ours; /* NULL: the end */
} hf_word;
extern const hf_word weft__hf_activations[], weft__hf_rope_types[];
extern const char *const weft__hf_layer_types[2];
/* NULL if there is none, or the name is NULL. */
const char *weft__hf_ours(const hf_word *words, const char *theirs);
const char *weft__hf_theirs(const hf_word *words, const char *ours);

/* The number of an option, n_options if there is none, and its value, then 0. */
size_t weft__hf_option_index(const weft_model *m, const char *name);
double weft__hf_option(const weft_model_config *c, const char *name);
/* The width of a head. */
double weft__hf_head_width(const weft_model_config *c);
/* Whether layer `i` attends without the window, if every n-th does. */
bool weft__hf_is_global(double every, int i);
/* What a configuration says of LongRoPE: factors for texts up to the original positions and for
 * longer ones, and the ratio of the lengths. NULL: absent. */
typedef struct hf_longrope {
    const cJSON *factors[2], *factor;
} hf_longrope;
/* Chooses the factors for texts of source->context tokens, and sets the options of LongRoPE; does
 * nothing for another rule (longrope.c). */
weft_status weft__hf_choose_factors(const hf_source *source, const hf_longrope *longrope,
                                    weft_model_config *config, weft_error *error);
/* Whether a row belongs to the rule that scales the rotary positions. */
bool weft__hf_is_of_rule(const hf_key *row, const weft_model_config *c);

#endif
