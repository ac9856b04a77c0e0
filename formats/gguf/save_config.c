/* Options of models as metadata of GGUF files: the other direction of config.c. O(rows x options). */
#include "save.h"

#include "base/vmath_pow.h"

#include <stdio.h>
#include <string.h>

#define KEY_BYTES  96
#define WORD_BYTES 64

static double option_of(const gguf_saver *s, const char *name)
{
    return weft__gguf_option(s->config, name);
}

/* A number, as a u32 unless the option may be a fraction. */
static void add_number(gguf_saver *s, const char *key, const char *option, double number)
{
    const weft_model *m = s->config->model;
    bool real = false;
    for (size_t i = 0; i < m->n_options; i++)
        if (!strcmp(m->options[i].name, option)) real = m->options[i].real;
    if (real)
        weft__gguf_meta_f32(&s->header, key, number);
    else
        weft__gguf_meta_u32(&s->header, key, (uint64_t)number);
}

static double head_width(const gguf_saver *s)
{
    const double width = option_of(s, "head_dim");
    return width != 0 ? width : option_of(s, "d_model") / option_of(s, "heads");
}

/* The name of the rule that scales rotary positions. */
static void rule_name(const gguf_saver *s, char name[WORD_BYTES])
{
    const weft_model *m = s->config->model;
    snprintf(name, WORD_BYTES, "none");
    for (size_t i = 0; i < m->n_options; i++)
        if (!strcmp(m->options[i].name, "rotary_scaling"))
            weft_model_value_text(m, i, weft_model_value(s->config, i), name, WORD_BYTES);
}

/* Whether "a|b" has a word. */
static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strcspn(at, "|") == n && !strncmp(at, word, n)) return true;
    }
    return false;
}

/* An option of 0 is left out where the key may be absent: it means what llama.cpp and the reader take
 * then, or else the options that are read again are other ones. */
static void add_row(gguf_saver *s, const gguf_key *row)
{
    char key[KEY_BYTES], rule[WORD_BYTES];
    double x = row->option ? option_of(s, row->option) : 0;
    snprintf(key, sizeof key, "%s.%s", s->a->name, row->key);
    rule_name(s, rule);
    switch (row->rule) {
    case GGUF_OPTION:
        if (x == 0 && !strcmp(row->option, "d_ff")) x = 4 * option_of(s, "d_model");
        if (x != 0 || !row->value) add_number(s, key, row->option, x);
        break;
    case GGUF_HEAD_DIM:
        if (head_width(s) * option_of(s, "heads") != option_of(s, "d_model"))
            add_number(s, key, row->option, x);
        break;
    case GGUF_HEAD:
        if (head_width(s) * option_of(s, "heads") != option_of(s, "d_model"))
            weft__gguf_meta_u32(&s->header, key, (uint64_t)head_width(s));
        break;
    case GGUF_ROTARY_DIM:
        add_number(s, key, row->option, x != 0 ? x : head_width(s));
        break;
    case GGUF_SCALING:
        if (has_word("linear|yarn", rule)) weft__gguf_meta_text(&s->header, key, rule);
        break;
    case GGUF_SCALED:
        if (x != 0 && has_word(row->value, rule)) add_number(s, key, row->option, x);
        break;
    case GGUF_VOCAB:
        weft__gguf_meta_u32(&s->header, key, (uint64_t)option_of(s, "vocab"));
        break;
    case GGUF_EQUALS:
    case GGUF_INERT:
        break;
    }
}

/* The type of most of the numbers in matrices. */
static const gguf_written *main_type(const gguf_saver *s)
{
    const gguf_written *type = weft__gguf_written_find("f32");
    int64_t most = 0;
    for (size_t i = 0; i < s->n; i++) {
        int64_t n = 0;
        for (size_t k = 0; k < s->n; k++)
            if (s->entries[k].type == s->entries[i].type && s->entries[k].shape.rank == 2)
                n += weft_shape_numel(s->entries[k].shape);
        if (n > most) {
            most = n;
            type = s->entries[i].type;
        }
    }
    return type;
}

weft_status weft__gguf_add_config(gguf_saver *s)
{
    const gguf_key *row;
    const gguf_written *type = main_type(s);
    gguf_bytes *b = &s->header;
    weft__gguf_meta_text(b, "general.architecture", s->a->name);
    weft__gguf_meta_text(b, "general.type", "model");
    if (s->options->name) weft__gguf_meta_text(b, "general.name", s->options->name);
    for (size_t i = 0; (row = weft__gguf_key_at(s->a, i)); i++) add_row(s, row);
    weft__gguf_meta_u32(b, "general.file_type", type->file);
    if (type->join) weft__gguf_meta_u32(b, "general.quantization_version", 2);
    return b->no_memory ? weft_error_set(s->error, WEFT_NO_MEMORY, s->path, "no memory") : WEFT_OK;
}

/* ---- Rotary frequencies of Llama 3 ---- */

size_t weft__gguf_divisor_count(const gguf_saver *s)
{
    char rule[WORD_BYTES];
    const double rotated = option_of(s, "rotary_dim");
    rule_name(s, rule);
    return strcmp(rule, "llama3") ? 0 : (size_t)((rotated != 0 ? rotated : head_width(s)) / 2);
}

float weft__gguf_divisor(const gguf_saver *s, size_t i)
{
    const double n = (double)weft__gguf_divisor_count(s), factor = option_of(s, "rotary_factor");
    const double turns = GGUF_LLAMA3_POSITIONS *
                         vm_pow_f64(option_of(s, "rotary_base"), -(double)i / n) /
                         6.283185307179586;
    const double kept = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / 3;
    return (float)(1 / ((1 - kept) / (factor != 0 ? factor : 1) + kept));
}
