/* Keys of an architecture in a GGUF file, and the options that they become. */
#include "config.h"

#include <stdio.h>
#include <string.h>

void weft__gguf_add_word(gguf_reader *r, const char *option, const char *value)
{
    if (r->n_words < GGUF_WORDS)
        snprintf(r->words[r->n_words++], GGUF_WORD_BYTES, "%s=%s", option, value);
}

const weft_gguf_value *weft__gguf_key(const gguf_reader *r, const char *key)
{
    char whole[GGUF_WORD_BYTES];
    snprintf(whole, sizeof whole, "%s.%s", r->a->name, key);
    return weft_gguf_meta_find(r->file, whole);
}

/* Whether there is a value, and it is a number. */
static bool is_number(const weft_gguf_value *value)
{
    return value && value->kind != WEFT_GGUF_TEXT && value->kind != WEFT_GGUF_ARRAY;
}

/* The number of a key; 0 if it is absent or not a number. */
double weft__gguf_number_of(const gguf_reader *r, const char *key)
{
    const weft_gguf_value *value = weft__gguf_key(r, key);
    return is_number(value) ? value->number : 0;
}

/* The width of a head. */
double weft__gguf_head_width(const gguf_reader *r)
{
    const double width = weft__gguf_number_of(r, "attention.key_length"),
                 heads = weft__gguf_number_of(r, "attention.head_count");
    return width != 0 || heads == 0 ? width : weft__gguf_number_of(r, "embedding_length") / heads;
}

/* Whether the rule that scales rotary positions is one of "a|b". */
bool weft__gguf_is_scaled_by(const gguf_reader *r, const char *rules)
{
    const weft_gguf_value *type = weft__gguf_key(r, "rope.scaling.type");
    for (const char *at = rules; type && type->kind == WEFT_GGUF_TEXT && at; at = strchr(at, '|')) {
        at += *at == '|';
        const size_t n = strcspn(at, "|");
        if (n == type->text_bytes && !memcmp(at, type->text, n)) return true;
    }
    return false;
}

/* Whether the file has lists of factors that scale rotary positions, or should have them. */
bool weft__gguf_has_factors(const gguf_reader *r)
{
    return weft_gguf_find(r->file, GGUF_ROPE_SHORT) || weft_gguf_find(r->file, GGUF_ROPE_LONG) ||
           weft__gguf_is_scaled_by(r, "longrope");
}
