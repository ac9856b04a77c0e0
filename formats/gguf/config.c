/* Metadata of GGUF files as options of models (architectures.c has the table). O(keys x rows). */
#include "config.h"
#include "file.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Architectures ---- */

static bool text_is(const weft_gguf_value *value, const char *text)
{
    return value->kind == WEFT_GGUF_TEXT && value->text_bytes == strlen(text) &&
           !memcmp(value->text, text, value->text_bytes);
}

const gguf_architecture *weft__gguf_architecture(const weft_gguf *file, weft_error *error)
{
    const weft_gguf_value *name = weft_gguf_meta_find(file, "general.architecture");
    if (!name || name->kind != WEFT_GGUF_TEXT) {
        weft_error_set(error, WEFT_NOT_FOUND, file->path, "has no text general.architecture");
        return NULL;
    }
    char names[GGUF_WORD_BYTES] = "";
    const gguf_architecture *a;
    for (size_t i = 0; (a = weft__gguf_architecture_at(i)); i++) {
        if (text_is(name, a->name)) return a;
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", a->name);
    }
    weft_error_set(error, WEFT_BAD_ARGUMENT, file->path,
                   "has the architecture \"%.*s\", which weft does not read; expected one of %s",
                   name->text_bytes < 64 ? (int)name->text_bytes : 64, name->text, names);
    return NULL;
}

double weft__gguf_option(const weft_model_config *config, const char *name)
{
    const weft_model *m = config->model;
    for (size_t i = 0; i < m->n_options; i++)
        if (!strcmp(m->options[i].name, name)) return weft_model_value(config, i);
    return 0;
}

/* ---- Keys ---- */

static bool is_number(const weft_gguf_value *value)
{
    return value->kind != WEFT_GGUF_TEXT && value->kind != WEFT_GGUF_ARRAY;
}

/* The number as text; of an f32 the shortest decimal that becomes it, so that 1e-5 stays 1e-5. */
static const char *number_text(const weft_gguf_value *value, char text[TEXT_NUMBER_BYTES])
{
    if (value->kind != WEFT_GGUF_F32) return weft__text_from_double(value->number, text);
    for (int digits = 1; digits <= 9; digits++) {
        double again;
        weft__text_format(text, TEXT_NUMBER_BYTES, "%.*g", digits, value->number);
        if (weft__text_to_double(text, &again) && (float)again == (float)value->number) break;
    }
    return text;
}

/* A value as text, cut if it is long. */
static const char *value_text(const weft_gguf_value *value, char text[GGUF_WORD_BYTES])
{
    char number[TEXT_NUMBER_BYTES];
    if (value->kind == WEFT_GGUF_ARRAY)
        snprintf(text, GGUF_WORD_BYTES, "an array of %zu", value->n_items);
    else if (value->kind == WEFT_GGUF_TEXT)
        snprintf(text, GGUF_WORD_BYTES, "\"%.*s\"",
                 value->text_bytes < 64 ? (int)value->text_bytes : 64, value->text);
    else
        snprintf(text, GGUF_WORD_BYTES, "%s", number_text(value, number));
    return text;
}

static weft_status refuse(gguf_reader *r, const weft_gguf_value *value, const char *wanted)
{
    char text[GGUF_WORD_BYTES];
    return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->file->path, "%s is %s; expected %s",
                          value->key, value_text(value, text), wanted);
}

/* A number that says the same as 0 if it is `usual`. */
static void add_unusual(gguf_reader *r, const gguf_key *row, const weft_gguf_value *value,
                        double usual)
{
    char text[TEXT_NUMBER_BYTES];
    weft__gguf_add_word(r, row->option, value->number == usual ? "0" : number_text(value, text));
}

static weft_status read_option(gguf_reader *r, const gguf_key *row)
{
    char text[TEXT_NUMBER_BYTES];
    const weft_gguf_value *value = weft__gguf_key(r, row->key);
    if (row->rule == GGUF_SCALING) {
        if (value && !weft__gguf_is_scaled_by(r, "none|linear|yarn|longrope"))
            return refuse(r, value, "none, linear, yarn or longrope");
        snprintf(text, sizeof text, "%.*s", value ? (int)value->text_bytes : 4,
                 value ? value->text : "none");
        weft__gguf_add_word(r, row->option, text);
        return WEFT_OK;
    }
    if (!value && row->rule == GGUF_OPTION && !row->value)
        return weft_error_set(r->error, WEFT_NOT_FOUND, r->file->path, "has no %s.%s", r->a->name,
                              row->key);
    if (value && !is_number(value)) return refuse(r, value, "a number");
    if (row->rule == GGUF_OPTION)
        weft__gguf_add_word(r, row->option, value ? number_text(value, text) : row->value);
    else if (value && row->rule == GGUF_HEAD_DIM)
        add_unusual(r, row, value,
                    weft__gguf_number_of(r, "embedding_length") /
                        weft__gguf_number_of(r, "attention.head_count"));
    else if (value && row->rule == GGUF_ROTARY_DIM)
        add_unusual(r, row, value, weft__gguf_head_width(r));
    else if (value && row->rule == GGUF_FACTORED && weft__gguf_has_factors(r))
        weft__gguf_add_word(r, row->option, number_text(value, text));
    else if (value && row->rule == GGUF_SCALED && weft__gguf_is_scaled_by(r, row->value))
        weft__gguf_add_word(r, row->option, number_text(value, text));
    return WEFT_OK;
}

/* Options that the architecture determines. */
static void read_fixed(gguf_reader *r)
{
    char number[TEXT_NUMBER_BYTES];
    for (const char *at = r->a->fixed; at && *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (r->n_words < GGUF_WORDS)
            snprintf(r->words[r->n_words++], GGUF_WORD_BYTES, "%.*s", (int)n, at);
        at += n;
    }
    const double layers = weft__gguf_number_of(r, "block_count"),
                 heads = weft__gguf_number_of(r, "attention.head_count");
    if (r->a->divided_layers && layers == r->a->divided_layers && heads > 0)
        weft__gguf_add_word(
            r, "score_width",
            weft__text_from_double(floor(weft__gguf_number_of(r, "embedding_length") / heads),
                                   number));
}

/* ---- Tensors ---- */

/* Whether the file has one of the tensors "a|b". */
static bool has_one_of(const gguf_reader *r, const char *names)
{
    char name[GGUF_WORD_BYTES];
    for (const char *at = names; at; at = strchr(at, '|')) {
        at += *at == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
        if (weft_gguf_find(r->file, name)) return true;
    }
    return false;
}

/* The vocabulary, and options that the names of tensors determine. */
static weft_status read_tensors(gguf_reader *r)
{
    static const struct {
        const char *tensors, *option; /* "a|b": one of these */
    } flags[] = {{"blk.0.attn_q.bias|blk.0.attn_qkv.bias", "qkv_bias"},
                 {"blk.0.attn_output.bias", "out_bias"},
                 {"blk.0.ffn_up.bias", "ffn_bias"}};
    char number[TEXT_NUMBER_BYTES];
    const weft_gguf_tensor *embedding = weft_gguf_find(r->file, "token_embd.weight");
    if (!embedding || embedding->shape.rank != 2)
        return weft_error_set(r->error, embedding ? WEFT_BAD_SHAPE : WEFT_NOT_FOUND, r->file->path,
                              "has no matrix token_embd.weight");
    weft__gguf_add_word(r, "vocab",
                        weft__text_from_double((double)embedding->shape.dim[0], number));
    weft__gguf_add_word(r, "output_bias", "none");
    weft__gguf_add_word(r, "tied", weft_gguf_find(r->file, "output.weight") ? "0" : "1");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        weft__gguf_add_word(r, flags[i].option, has_one_of(r, flags[i].tensors) ? "1" : "0");
    return weft__gguf_read_rotary(r);
}

/* Padding, or else the end of a text, or else 0, as from transformers. */
static void read_pad(gguf_reader *r)
{
    static const char *const keys[] = {"tokenizer.ggml.padding_token_id",
                                       "tokenizer.ggml.eos_token_id"};
    const double vocab = (double)weft_gguf_find(r->file, "token_embd.weight")->shape.dim[0];
    char text[TEXT_NUMBER_BYTES] = "0";
    for (size_t i = 0; i < 2; i++) {
        const weft_gguf_value *id = weft_gguf_meta_find(r->file, keys[i]);
        if (!id || !is_number(id) || !(id->number >= 0 && id->number < vocab)) continue;
        number_text(id, text);
        break;
    }
    weft__gguf_add_word(r, "pad_id", text);
}

/* Sets the options from the words. */
static weft_status set_options(gguf_reader *r)
{
    const char *words[GGUF_WORDS + 1];
    weft_error problem = WEFT_NO_ERROR;
    size_t n = 0;
    for (; n < r->n_words; n++) words[n] = r->words[n];
    if (r->factors[0]) words[n++] = r->factors;
    const weft_status status =
        weft_model_parse(weft_model_find(r->a->model), words, n, r->config, &problem);
    return status == WEFT_OK
               ? WEFT_OK
               : weft_error_set(r->error, status, r->file->path, "%s", problem.message);
}

/* A key that no option has. */
static weft_status check_value(gguf_reader *r, const gguf_key *row, const weft_gguf_value *value)
{
    char number[TEXT_NUMBER_BYTES], wanted[GGUF_WORD_BYTES];
    double want = 0;
    switch (row->rule) {
    case GGUF_OPTION:
    case GGUF_HEAD_DIM:
    case GGUF_ROTARY_DIM:
    case GGUF_SCALING:
    case GGUF_SCALED:
    case GGUF_INERT:
        return WEFT_OK;
    case GGUF_FACTORED:
    case GGUF_EQUALS:
        if (row->option && weft__gguf_has_factors(r)) return WEFT_OK;
        if (!weft__text_to_double(row->value, &want))
            return text_is(value, row->value) ? WEFT_OK : refuse(r, value, row->value);
        break;
    case GGUF_HEAD:
        want = weft__gguf_head_width(r);
        break;
    case GGUF_VOCAB:
        want = weft__gguf_option(r->config, "vocab");
        break;
    }
    if (is_number(value) && value->number == want) return WEFT_OK;
    snprintf(wanted, sizeof wanted, "%s", weft__text_from_double(want, number));
    return refuse(r, value, wanted);
}

/* Checks all keys of the architecture. Others (general, tokenizer, split) have no influence on
 * logits. */
static weft_status check_keys(gguf_reader *r)
{
    const size_t prefix = strlen(r->a->name);
    for (size_t i = 0; i < weft_gguf_meta_count(r->file); i++) {
        char text[GGUF_WORD_BYTES];
        const weft_gguf_value *value = weft_gguf_meta_at(r->file, i);
        const gguf_key *row;
        size_t at = 0;
        if (strncmp(value->key, r->a->name, prefix) != 0 || value->key[prefix] != '.') continue;
        while ((row = weft__gguf_key_at(r->a, at)) &&
               strcmp(row->key, value->key + prefix + 1) != 0)
            at++;
        if (!row)
            return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->file->path,
                                  "%s is %s: unsupported key for %s", value->key,
                                  value_text(value, text), r->a->name);
        const weft_status status = check_value(r, row, value);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

weft_status weft__gguf_config(const weft_gguf *file, const gguf_architecture *a, int64_t context,
                              weft_model_config *config, weft_error *error)
{
    gguf_reader r = {.file = file, .a = a, .context = context, .config = config, .error = error};
    weft_status status = WEFT_OK;
    const gguf_key *row;
    read_fixed(&r);
    for (size_t i = 0; status == WEFT_OK && (row = weft__gguf_key_at(a, i)); i++)
        if (row->option) status = read_option(&r, row);
    if (status == WEFT_OK) status = read_tensors(&r);
    if (status != WEFT_OK) return status;
    read_pad(&r);
    status = set_options(&r);
    return status == WEFT_OK ? check_keys(&r) : status;
}
