/* Metadata of GGUF files as options of models. The keys are those of gguf/constants.py in the Python
 * package `gguf`; defaults are those of llama.cpp, src/llama-model.cpp. O(keys x rows). */
#include "model.h"
#include "file.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS  24
#define WORD_BYTES 96

/* ---- Architectures ---- */

/* Files of Mistral, SmolLM2 and TinyLlama are of the architecture llama as well. */
static const gguf_key llama_keys[] = {
    {GGUF_OPTION, "block_count", "layers", NULL},
    {GGUF_OPTION, "context_length", "max_positions", NULL},
    {GGUF_OPTION, "embedding_length", "d_model", NULL},
    {GGUF_OPTION, "feed_forward_length", "d_ff", NULL},
    {GGUF_OPTION, "attention.head_count", "heads", NULL},
    {GGUF_OPTION, "attention.head_count_kv", "kv_heads", "0"},
    {GGUF_OPTION, "attention.layer_norm_rms_epsilon", "eps", NULL},
    {GGUF_OPTION, "rope.freq_base", "rotary_base", "10000"},
    {GGUF_HEAD, "rope.dimension_count", NULL, NULL},
    {GGUF_HEAD, "attention.key_length", NULL, NULL},
    {GGUF_HEAD, "attention.value_length", NULL, NULL},
    {GGUF_VOCAB, "vocab_size", NULL, NULL},
    {GGUF_EQUALS, "rope.scaling.type", NULL, "none"},
    {GGUF_EQUALS, "rope.scale_linear", NULL, "1"},
    {GGUF_EQUALS, "expert_count", NULL, "0"},
    {GGUF_EQUALS, "expert_used_count", NULL, "0"},
    {GGUF_INERT, "rope.scaling.original_context_length", NULL, NULL},
    {GGUF_INERT, "rope.scaling.finetuned", NULL, NULL},
    {GGUF_INERT, NULL, NULL, NULL},
};

#define LINEAR(theirs, ours, layout)                                                               \
    {theirs ".weight", ours ".weight", layout},                                                    \
    {                                                                                              \
        theirs ".bias", ours ".bias", layout == GGUF_TRANSPOSED ? GGUF_SAME : layout               \
    }
/* The tensors of both architectures, whose queries and keys have one of two orders. */
#define TENSORS(query, key)                                                                        \
    {"token_embd.weight", "embedding", GGUF_SAME},                                                 \
        {"blk.*.attn_norm.weight", "layer.*.norm_attn.gamma", GGUF_SAME},                          \
        LINEAR("blk.*.attn_q", "layer.*.attn.q", query),                                           \
        LINEAR("blk.*.attn_k", "layer.*.attn.k", key),                                             \
        LINEAR("blk.*.attn_v", "layer.*.attn.v", GGUF_TRANSPOSED),                                 \
        LINEAR("blk.*.attn_output", "layer.*.attn.out", GGUF_TRANSPOSED),                          \
        {"blk.*.ffn_norm.weight", "layer.*.norm_ffn.gamma", GGUF_SAME},                            \
        LINEAR("blk.*.ffn_gate", "layer.*.ffn.gate", GGUF_TRANSPOSED),                             \
        LINEAR("blk.*.ffn_up", "layer.*.ffn.in", GGUF_TRANSPOSED),                                 \
        LINEAR("blk.*.ffn_down", "layer.*.ffn.out", GGUF_TRANSPOSED),                              \
        {"output_norm.weight", "layer.norm.gamma", GGUF_SAME},                                     \
    {                                                                                              \
        "output.weight", "output.weight", GGUF_TRANSPOSED                                          \
    }
static const gguf_row llama_tensors[] = {
    TENSORS(GGUF_QUERY, GGUF_KEY),
    {NULL, NULL, GGUF_SAME},
};
/* convert_hf_to_gguf.py does not move the rows of this one. */
static const gguf_row qwen2_tensors[] = {
    TENSORS(GGUF_TRANSPOSED, GGUF_TRANSPOSED),
    {NULL, NULL, GGUF_SAME},
};

static const gguf_architecture architectures[] = {
    {"llama", "llama", llama_keys, llama_tensors},
    {"qwen2", "llama", llama_keys, qwen2_tensors},
};

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
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (text_is(name, architectures[i].name)) return &architectures[i];
    weft_error_set(error, WEFT_BAD_ARGUMENT, file->path,
                   "has the architecture \"%.*s\", which weft does not read; expected llama or "
                   "qwen2",
                   name->text_bytes < 64 ? (int)name->text_bytes : 64, name->text);
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

static weft_status read_option(reader *r, const gguf_key *row)
{
    char text[TEXT_NUMBER_BYTES];
    const weft_gguf_value *value = find(r, row->key);
    if (!value && !row->value)
        return weft_error_set(r->error, WEFT_NOT_FOUND, r->file->path, "has no %s.%s", r->a->name,
                              row->key);
    if (value && !is_number(value)) return refuse(r, value, "a number");
    add_word(r, row->option, value ? number_text(value, text) : row->value);
    return WEFT_OK;
}

/* The vocabulary, and options that the names of tensors determine. */
static weft_status read_tensors(reader *r)
{
    static const struct {
        const char *tensor, *option;
    } flags[] = {{"blk.0.attn_q.bias", "qkv_bias"},
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
        add_word(r, flags[i].option, weft_gguf_find(r->file, flags[i].tensor) ? "1" : "0");
    return WEFT_OK;
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
    case GGUF_INERT:
        return WEFT_OK;
    case GGUF_EQUALS:
        if (!weft__text_to_double(row->value, &want))
            return text_is(value, row->value) ? WEFT_OK : refuse(r, value, row->value);
        break;
    case GGUF_HEAD:
        want = weft__gguf_option(r->config, "d_model") / weft__gguf_option(r->config, "heads");
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
        const gguf_key *row = r->a->keys;
        if (strncmp(value->key, r->a->name, prefix) != 0 || value->key[prefix] != '.') continue;
        while (row->key && strcmp(row->key, value->key + prefix + 1) != 0) row++;
        if (!row->key)
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
    for (const gguf_key *row = a->keys; row->key && status == WEFT_OK; row++)
        if (row->rule == GGUF_OPTION) status = read_option(&r, row);
    if (status == WEFT_OK) status = read_tensors(&r);
    if (status != WEFT_OK) return status;
    read_pad(&r);
    status = set_options(&r);
    return status == WEFT_OK ? check_keys(&r) : status;
}
