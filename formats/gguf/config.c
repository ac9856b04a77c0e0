/* Metadata of GGUF files as options of models (architectures.c has the table). O(keys x rows). */
#include "model.h"
#include "file.h"

#include "base/text.h"
#include "base/vmath_pow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS  48
#define WORD_BYTES 96

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
    char names[WORD_BYTES] = "";
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

/* A configuration while it is read: options as "key=value". */
typedef struct reader {
    const weft_gguf *file;
    const gguf_architecture *a;
    weft_model_config *config;
    char words[MAX_WORDS][WORD_BYTES];
    size_t n_words;
    weft_error *error;
} reader;

static void add_word(reader *r, const char *option, const char *value)
{
    if (r->n_words < MAX_WORDS)
        snprintf(r->words[r->n_words++], WORD_BYTES, "%s=%s", option, value);
}

static const weft_gguf_value *find(const reader *r, const char *key)
{
    char whole[WORD_BYTES];
    snprintf(whole, sizeof whole, "%s.%s", r->a->name, key);
    return weft_gguf_meta_find(r->file, whole);
}

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
static const char *value_text(const weft_gguf_value *value, char text[WORD_BYTES])
{
    char number[TEXT_NUMBER_BYTES];
    if (value->kind == WEFT_GGUF_ARRAY)
        snprintf(text, WORD_BYTES, "an array of %zu", value->n_items);
    else if (value->kind == WEFT_GGUF_TEXT)
        snprintf(text, WORD_BYTES, "\"%.*s\"", value->text_bytes < 64 ? (int)value->text_bytes : 64,
                 value->text);
    else
        snprintf(text, WORD_BYTES, "%s", number_text(value, number));
    return text;
}

static weft_status refuse(reader *r, const weft_gguf_value *value, const char *wanted)
{
    char text[WORD_BYTES];
    return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->file->path, "%s is %s; expected %s",
                          value->key, value_text(value, text), wanted);
}

/* The number of a key; 0 if it is absent or not a number. */
static double number_of(const reader *r, const char *key)
{
    const weft_gguf_value *value = find(r, key);
    return value && is_number(value) ? value->number : 0;
}

/* The width of a head. */
static double head_width(const reader *r)
{
    const double width = number_of(r, "attention.key_length"),
                 heads = number_of(r, "attention.head_count");
    return width != 0 || heads == 0 ? width : number_of(r, "embedding_length") / heads;
}

/* Whether the rule that scales rotary positions is one of "a|b". */
static bool is_scaled_by(const reader *r, const char *rules)
{
    const weft_gguf_value *type = find(r, "rope.scaling.type");
    for (const char *at = rules; type && type->kind == WEFT_GGUF_TEXT && at; at = strchr(at, '|')) {
        at += *at == '|';
        const size_t n = strcspn(at, "|");
        if (n == type->text_bytes && !memcmp(at, type->text, n)) return true;
    }
    return false;
}

/* A number that says the same as 0 if it is `usual`. */
static void add_unusual(reader *r, const gguf_key *row, const weft_gguf_value *value, double usual)
{
    char text[TEXT_NUMBER_BYTES];
    add_word(r, row->option, value->number == usual ? "0" : number_text(value, text));
}

static weft_status read_option(reader *r, const gguf_key *row)
{
    char text[TEXT_NUMBER_BYTES];
    const weft_gguf_value *value = find(r, row->key);
    if (row->rule == GGUF_SCALING) {
        if (value && !is_scaled_by(r, "none|linear|yarn"))
            return refuse(r, value, "none, linear or yarn");
        snprintf(text, sizeof text, "%.*s", value ? (int)value->text_bytes : 4,
                 value ? value->text : "none");
        add_word(r, row->option, text);
        return WEFT_OK;
    }
    if (!value && row->rule == GGUF_OPTION && !row->value)
        return weft_error_set(r->error, WEFT_NOT_FOUND, r->file->path, "has no %s.%s", r->a->name,
                              row->key);
    if (value && !is_number(value)) return refuse(r, value, "a number");
    if (row->rule == GGUF_OPTION)
        add_word(r, row->option, value ? number_text(value, text) : row->value);
    else if (value && row->rule == GGUF_HEAD_DIM)
        add_unusual(r, row, value,
                    number_of(r, "embedding_length") / number_of(r, "attention.head_count"));
    else if (value && row->rule == GGUF_ROTARY_DIM)
        add_unusual(r, row, value, head_width(r));
    else if (value && row->rule == GGUF_SCALED && is_scaled_by(r, row->value))
        add_word(r, row->option, number_text(value, text));
    return WEFT_OK;
}

/* Options that the architecture determines. */
static void read_fixed(reader *r)
{
    char number[TEXT_NUMBER_BYTES];
    for (const char *at = r->a->fixed; at && *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        if (r->n_words < MAX_WORDS)
            snprintf(r->words[r->n_words++], WORD_BYTES, "%.*s", (int)n, at);
        at += n;
    }
    const double layers = number_of(r, "block_count"), heads = number_of(r, "attention.head_count");
    if (r->a->divided_layers && layers == r->a->divided_layers && heads > 0)
        add_word(r, "score_width",
                 weft__text_from_double(floor(number_of(r, "embedding_length") / heads), number));
}

/* ---- Rotary frequencies of Llama 3 ---- */

double weft__gguf_llama3_speed(double base, double factor, int64_t i, int64_t n)
{
    const double turns =
        GGUF_LLAMA3_POSITIONS * vm_pow_f64(base, -(double)i / (double)n) / 6.283185307179586;
    const double kept = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / 3;
    return (1 - kept) / factor + kept;
}

/* convert_hf_to_gguf.py writes by what the frequency of each pair is divided, in place of the rule
 * and its numbers. The largest is the factor; the others must follow from it. */
static weft_status read_rope_freqs(reader *r)
{
    char number[TEXT_NUMBER_BYTES];
    const weft_gguf_tensor *t = weft_gguf_find(r->file, GGUF_ROPE_FREQS);
    if (!t) return WEFT_OK;
    const double rotated = number_of(r, "rope.dimension_count"), width = head_width(r),
                 base = find(r, "rope.freq_base") ? number_of(r, "rope.freq_base") : 10000;
    const double pairs = (rotated > 0 ? rotated : width) / 2;
    if (t->shape.rank != 1 || (double)t->shape.dim[0] != pairs || is_scaled_by(r, "linear|yarn"))
        return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                              "%s must be one number for each of %.0f pairs, and the only scaling",
                              t->name, pairs);
    const int64_t n = t->shape.dim[0];
    float *divisors = malloc(sizeof *divisors * ((size_t)n + 1));
    if (!divisors) return weft_error_set(r->error, WEFT_NO_MEMORY, r->file->path, "no memory");
    weft_status status = weft_gguf_read(r->file, t, divisors, r->error);
    double factor = 1;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (divisors[i] > factor) factor = divisors[i];
    bool good = true;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        const double speed = weft__gguf_llama3_speed(base, factor, i, n);
        good = good && fabs(divisors[i] * speed - 1) < 1e-4;
    }
    free(divisors);
    if (status != WEFT_OK) return status;
    if (!good)
        return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                              "%s are not those of Llama 3's rule with %d positions", t->name,
                              GGUF_LLAMA3_POSITIONS);
    if (factor == 1) return WEFT_OK;
    add_word(r, "rotary_scaling", "llama3");
    add_word(r, "rotary_factor", weft__text_from_double(factor, number));
    add_word(r, "rotary_positions", weft__text_from_double(GGUF_LLAMA3_POSITIONS, number));
    return WEFT_OK;
}

/* ---- Tensors ---- */

/* Whether the file has one of the tensors "a|b". */
static bool has_one_of(const reader *r, const char *names)
{
    char name[WORD_BYTES];
    for (const char *at = names; at; at = strchr(at, '|')) {
        at += *at == '|';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
        if (weft_gguf_find(r->file, name)) return true;
    }
    return false;
}

/* The vocabulary, and options that the names of tensors determine. */
static weft_status read_tensors(reader *r)
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
    add_word(r, "vocab", weft__text_from_double((double)embedding->shape.dim[0], number));
    add_word(r, "output_bias", "none");
    add_word(r, "tied", weft_gguf_find(r->file, "output.weight") ? "0" : "1");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        add_word(r, flags[i].option, has_one_of(r, flags[i].tensors) ? "1" : "0");
    return read_rope_freqs(r);
}

/* Padding, or else the end of a text, or else 0, as from transformers. */
static void read_pad(reader *r)
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
    add_word(r, "pad_id", text);
}

/* Sets the options from the words. */
static weft_status set_options(reader *r)
{
    const char *words[MAX_WORDS];
    weft_error problem = WEFT_NO_ERROR;
    for (size_t i = 0; i < r->n_words; i++) words[i] = r->words[i];
    const weft_status status =
        weft_model_parse(weft_model_find(r->a->model), words, r->n_words, r->config, &problem);
    return status == WEFT_OK
               ? WEFT_OK
               : weft_error_set(r->error, status, r->file->path, "%s", problem.message);
}

/* A key that no option has. */
static weft_status check_value(reader *r, const gguf_key *row, const weft_gguf_value *value)
{
    char number[TEXT_NUMBER_BYTES], wanted[WORD_BYTES];
    double want = 0;
    switch (row->rule) {
    case GGUF_OPTION:
    case GGUF_HEAD_DIM:
    case GGUF_ROTARY_DIM:
    case GGUF_SCALING:
    case GGUF_SCALED:
    case GGUF_INERT:
        return WEFT_OK;
    case GGUF_EQUALS:
        if (!weft__text_to_double(row->value, &want))
            return text_is(value, row->value) ? WEFT_OK : refuse(r, value, row->value);
        break;
    case GGUF_HEAD:
        want = head_width(r);
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
static weft_status check_keys(reader *r)
{
    const size_t prefix = strlen(r->a->name);
    for (size_t i = 0; i < weft_gguf_meta_count(r->file); i++) {
        char text[WORD_BYTES];
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

weft_status weft__gguf_config(const weft_gguf *file, const gguf_architecture *a,
                              weft_model_config *config, weft_error *error)
{
    reader r = {.file = file, .a = a, .config = config, .error = error};
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
