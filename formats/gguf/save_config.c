/* Options of models as metadata of GGUF files: the other direction of config.c. O(rows x options). */
#include "save.h"

#include "huggingface/config.h"
#include "huggingface/tables.h"

#include "base/vmath_pow.h"

#include <stdio.h>
#include <string.h>

static double option_of(const gguf_saver *s, const char *name)
{
    return weft__gguf_option(s->config, name);
}

/* A number, as a u32 unless the option may be a fraction. */
static void add_number(gguf_saver *s, const char *key, const char *option, double number)
{
    const weft_model *m = s->config->model;
    const size_t i = weft__hf_option_index(m, option);
    if (i < m->n_options && m->options[i].real)
        weft__gguf_meta_f32(&s->header, key, number);
    else
        weft__gguf_meta_u32(&s->header, key, (uint64_t)number);
}

/* The name of the rule that scales rotary positions. */
static void rule_name(const gguf_saver *s, char name[WORD_BYTES])
{
    const weft_model *m = s->config->model;
    snprintf(name, WORD_BYTES, "none");
    const size_t i = weft__hf_option_index(m, "rotary_scaling");
    if (i < m->n_options)
        weft_model_value_text(m, i, weft_model_value(s->config, i), name, WORD_BYTES);
}

/* Omits an option of 0 if its key is optional. If an absent key does not mean 0, check_header refuses
 * the model. */
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
        if (weft__hf_head_width(s->config) * option_of(s, "heads") != option_of(s, "d_model"))
            add_number(s, key, row->option, x);
        break;
    case GGUF_HEAD:
        if (weft__hf_head_width(s->config) * option_of(s, "heads") != option_of(s, "d_model"))
            weft__gguf_meta_u32(&s->header, key, (uint64_t)weft__hf_head_width(s->config));
        break;
    case GGUF_ROTARY_DIM:
        add_number(s, key, row->option, x != 0 ? x : weft__hf_head_width(s->config));
        break;
    case GGUF_SCALING:
        if (weft__hf_is_one_of("linear|yarn|longrope", rule))
            weft__gguf_meta_text(&s->header, key, rule);
        break;
    case GGUF_SCALED:
        if (x != 0 && weft__hf_is_one_of(row->value, rule)) add_number(s, key, row->option, x);
        break;
    case GGUF_FACTORED:
        if (x != 0 && !strcmp(rule, "longrope")) add_number(s, key, row->option, x);
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

/* ---- Rotary frequencies of Llama 3 and LongRoPE ---- */

static bool has_rule(const gguf_saver *s, const char *name)
{
    char rule[WORD_BYTES];
    rule_name(s, rule);
    return !strcmp(rule, name);
}

const char *weft__gguf_divisor_name(const gguf_saver *s, size_t i)
{
    static const char *const lists[] = {GGUF_ROPE_SHORT, GGUF_ROPE_LONG};
    if (has_rule(s, "longrope")) return i < 2 ? lists[i] : NULL;
    return i == 0 && has_rule(s, "llama3") ? GGUF_ROPE_FREQS : NULL;
}

size_t weft__gguf_divisor_count(const gguf_saver *s)
{
    const double rotated = option_of(s, "rotary_dim");
    return weft__gguf_divisor_name(s, 0)
               ? (size_t)((rotated != 0 ? rotated : weft__hf_head_width(s->config)) / 2)
               : 0;
}

float weft__gguf_divisor(const gguf_saver *s, size_t i)
{
    const double factor = option_of(s, "rotary_factor");
    if (has_rule(s, "longrope")) {
        const weft_model *m = s->config->model;
        const weft_model_option *o = &m->options[weft__hf_option_index(m, "rotary_factors")];
        const float *factors = (const float *)(const void *)(s->config->options.bytes + o->offset);
        return i < o->size / sizeof *factors ? factors[i] : 0;
    }
    return (float)(1 / weft__gguf_llama3_speed(option_of(s, "rotary_base"),
                                               factor != 0 ? factor : 1, (int64_t)i,
                                               (int64_t)weft__gguf_divisor_count(s)));
}
