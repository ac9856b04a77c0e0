/* Vocabularies of GGUF files: pieces, and how texts are split. O(bytes of the vocabulary).
 *
 * tokenizer.ggml.pre names the expressions that split a text before its pieces are merged. What each
 * name means is in llama.cpp, src/llama-vocab.cpp; the components below are those of the published
 * tokenizer.json of these models. */
#include "tokenizer.h"

#include "base/json.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text that grows ---- */

void weft__gguf_refuse(gguf_text *t, weft_status status, const char *format, ...)
{
    char text[256];
    va_list arguments;
    if (t->status != WEFT_OK) return;
    va_start(arguments, format);
    weft__text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    t->status = weft_error_set(t->error, status, t->file->path, "the vocabulary: %s", text);
}

static void put_bytes(gguf_text *t, const char *bytes, size_t n)
{
    if (t->status != WEFT_OK) return;
    if (t->capacity - t->n <= n) {
        const size_t capacity = 2 * t->capacity + n + 4096;
        char *grown = realloc(t->text, capacity);
        if (!grown) {
            weft__gguf_refuse(t, WEFT_NO_MEMORY, "no memory");
            return;
        }
        t->text = grown;
        t->capacity = capacity;
    }
    memcpy(t->text + t->n, bytes, n);
    t->n += n;
    t->text[t->n] = 0;
}

void weft__gguf_put(gguf_text *t, const char *text)
{
    put_bytes(t, text, strlen(text));
}

void weft__gguf_put_number(gguf_text *t, size_t number)
{
    char text[TEXT_NUMBER_BYTES];
    snprintf(text, sizeof text, "%zu", number);
    weft__gguf_put(t, text);
}

static void put_escaped(gguf_text *t, const char *text)
{
    while (*text) {
        char character[JSON_CHARACTER];
        const size_t n = weft__json_put(&text, character);
        put_bytes(t, character, n);
    }
}

void weft__gguf_put_string(gguf_text *t, const char *first, const char *second)
{
    weft__gguf_put(t, "\"");
    put_escaped(t, first);
    put_escaped(t, second);
    weft__gguf_put(t, "\"");
}

/* ---- What splits a text ---- */

#define SEQUENCE(first, second) "{\"type\":\"Sequence\",\"pretokenizers\":[" first "," second "]}"
#define LETTERS(digits)                                                                            \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{" \
    "L}\\\\p{N}]?\\\\p{L}+|" digits                                                                \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"     \
    "\"behavior\":\"Isolated\",\"invert\":false}"

static const gguf_split splits[] = {
    {{"gpt-2", "phi-2", "mpt", "olmo", "jais"}, "null", BYTE_LEVEL("true"), false, false},
    {{"smollm", "starcoder", "refact", "command-r", "codeshell"},
     "null",
     SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}", BYTE_LEVEL("true")),
     false,
     false},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3"},
     "null",
     SEQUENCE(LETTERS("\\\\p{N}{1,3}"), BYTE_LEVEL("false")),
     true,
     true},
    {{"qwen2", "deepseek-r1-qwen"},
     "{\"type\":\"NFC\"}",
     SEQUENCE(LETTERS("\\\\p{N}"), BYTE_LEVEL("false")),
     false,
     false},
};

const gguf_split *weft__gguf_split_at(size_t index)
{
    return index < sizeof splits / sizeof *splits ? &splits[index] : NULL;
}

/* ---- A vocabulary ---- */

static bool text_is(const weft_gguf_value *value, const char *text)
{
    return value && value->kind == WEFT_GGUF_TEXT && value->text_bytes == strlen(text) &&
           !memcmp(value->text, text, value->text_bytes);
}

static const weft_gguf_value *find(const weft_gguf *file, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    return weft_gguf_meta_find(file, key);
}

static bool read_flag(const weft_gguf *file, const char *name, bool fallback)
{
    const weft_gguf_value *value = find(file, name);
    return value && value->kind == WEFT_GGUF_BOOL ? value->integer != 0 : fallback;
}

/* An array of n items of a kind, or NULL, which is a failure if it is needed. */
static const weft_gguf_value *read_array(gguf_text *t, const char *name, weft_gguf_kind kind,
                                         size_t n, bool needed)
{
    const weft_gguf_value *value = find(t->file, name);
    if (value && value->kind == WEFT_GGUF_ARRAY && value->items_kind == kind &&
        (!n || value->n_items == n))
        return value;
    if (value)
        weft__gguf_refuse(t, WEFT_BAD_FILE, "%s is not an array of one %s for each piece",
                          value->key, weft_gguf_kind_name(kind));
    else if (needed)
        weft__gguf_refuse(t, WEFT_NOT_FOUND, "has no tokenizer.ggml.%s", name);
    return NULL;
}

/* A copy of a text with a zero at its end; a text that contains one, or is not UTF-8, is refused. */
const char *weft__gguf_copy_text(gguf_text *t, arena *memory, const weft_gguf_value *value,
                                 size_t i)
{
    char *text = weft__arena_alloc(memory, value->text_bytes + 1);
    if (!text) {
        weft__gguf_refuse(t, WEFT_NO_MEMORY, "no memory");
        return NULL;
    }
    if (value->text_bytes) memcpy(text, value->text, value->text_bytes);
    if (strlen(text) == value->text_bytes && weft__text_is_utf8(text)) return text;
    weft__gguf_refuse(t, WEFT_BAD_FILE, "text %zu is not UTF-8, or has a zero byte", i);
    return NULL;
}

static void read_pieces(gguf_text *t, gguf_vocabulary *v)
{
    const weft_gguf_value *tokens = read_array(t, "tokens", WEFT_GGUF_TEXT, 0, true);
    gguf_pieces *p = &v->pieces;
    if (!tokens) return;
    p->n = tokens->n_items;
    p->at = weft__arena_alloc(&v->memory, (p->n + 1) * sizeof *p->at);
    if (!p->at) weft__gguf_refuse(t, WEFT_NO_MEMORY, "no memory");
    for (size_t i = 0; i < p->n && t->status == WEFT_OK; i++) {
        weft_gguf_value item;
        weft_gguf_value_item(tokens, i, &item);
        p->at[i] = weft__gguf_copy_text(t, &v->memory, &item, i);
    }
    p->types = read_array(t, "token_type", WEFT_GGUF_I32, p->n, false);
    p->scores = read_array(t, "scores", WEFT_GGUF_F32, p->n, !v->split);
}

/* What splits texts, of a byte-level BPE. */
static void read_split(gguf_text *t, gguf_vocabulary *v)
{
    const weft_gguf_value *pre = find(t->file, "pre");
    for (size_t i = 0; i < sizeof splits / sizeof *splits && !v->split; i++)
        for (size_t k = 0; k < 6 && splits[i].names[k]; k++)
            if (text_is(pre, splits[i].names[k])) v->split = &splits[i];
    if (v->split) return;
    const bool is_text = pre && pre->kind == WEFT_GGUF_TEXT;
    weft__gguf_refuse(t, WEFT_BAD_ARGUMENT, "its tokenizer.ggml.pre \"%.*s\" is not supported",
                      is_text ? (int)(pre->text_bytes < 64 ? pre->text_bytes : 64) : 7,
                      is_text ? pre->text : "missing");
}

void weft__gguf_read_vocabulary(gguf_text *t, gguf_vocabulary *v)
{
    const weft_gguf_value *model = find(t->file, "model");
    const bool spm = text_is(model, "llama");
    *v = (gguf_vocabulary){.split = NULL};
    if (!model)
        weft__gguf_refuse(t, WEFT_NOT_FOUND, "has no tokenizer.ggml.model");
    else if (text_is(model, GGUF_NO_VOCABULARY))
        weft__gguf_refuse(t, WEFT_NOT_FOUND, "the file has none");
    else if (!spm && !text_is(model, "gpt2"))
        weft__gguf_refuse(t, WEFT_BAD_ARGUMENT,
                          "its model is not supported; expected gpt2 or llama");
    if (t->status == WEFT_OK && !spm) read_split(t, v);
    if (t->status == WEFT_OK) read_pieces(t, v);
    if (t->status == WEFT_OK && !spm) v->merges = read_array(t, "merges", WEFT_GGUF_TEXT, 0, true);
    v->add_bos = read_flag(t->file, "add_bos_token", spm || (v->split && v->split->add_bos));
    v->add_eos = read_flag(t->file, "add_eos_token", false);
    v->add_space = spm && read_flag(t->file, "add_space_prefix", true);
}

/* The piece that a key names by its id; NULL if there is none. */
const char *weft__gguf_named(const gguf_text *t, const gguf_vocabulary *v, const char *name,
                             size_t *id)
{
    const weft_gguf_value *value = find(t->file, name);
    if (!value || value->integer < 0 || (uint64_t)value->integer >= v->pieces.n) return NULL;
    *id = (size_t)value->integer;
    return v->pieces.at[*id];
}
