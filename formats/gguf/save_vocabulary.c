/* The tokenizer.json of Hugging Face as the vocabulary of a GGUF file: the other direction of
 * vocabulary.c and tokenizer.c. O(bytes of the vocabulary). */
#include "save.h"
#include "save_vocabulary.h"

#include "base/text.h"
#include "json/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status no_memory(vocabulary_writer *v)
{
    return weft_error_set(v->s->error, WEFT_NO_MEMORY, "tokenizer.json", "no memory");
}

/* ---- Pieces ---- */

/* Kinds of tokenizer.ggml.token_type. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

static weft_status put_piece(vocabulary_writer *v, const char *text, const cJSON *id, int type)
{
    if (!text || !cJSON_IsNumber(id) || id->valueint < 0)
        return weft__gguf_refuse_tokenizer(v, "has a piece without a text or an id");
    const size_t i = (size_t)id->valueint;
    if (i >= v->n)
        return weft__gguf_refuse_tokenizer(v, "has the id %zu, but the model only %zu ids", i,
                                           v->n);
    v->pieces[i].text = text;
    v->pieces[i].type = type;
    return weft__name_table_put(&v->ids, text, i) ? WEFT_OK : no_memory(v);
}

/* Whether a piece is a byte, <0x0A>. */
static bool is_byte(const char *text)
{
    return strlen(text) == 6 && !strncmp(text, "<0x", 3) && text[5] == '>' &&
           strspn(text + 3, "0123456789ABCDEF") == 2;
}

static weft_status read_pieces(vocabulary_writer *v)
{
    const cJSON *item, *added = weft__gguf_member(v->json, "added_tokens");
    const char *unk = cJSON_GetStringValue(weft__gguf_member(v->model, "unk_token"));
    weft_status status = WEFT_OK;
    v->n = (size_t)weft__gguf_option(v->s->config, "vocab");
    v->pieces = calloc(v->n + 1, sizeof *v->pieces);
    if (!v->pieces) return no_memory(v);
    cJSON_ArrayForEach(item, weft__gguf_member(v->model, "vocab"))
    {
        const bool byte = !v->split && is_byte(item->string);
        if (status == WEFT_OK) status = put_piece(v, item->string, item, byte ? BYTE : NORMAL);
    }
    cJSON_ArrayForEach(item, added)
    {
        const char *text = cJSON_GetStringValue(weft__gguf_member(item, "content"));
        const int type = !cJSON_IsTrue(weft__gguf_member(item, "special")) ? USER_DEFINED
                         : text && unk && !v->split && !strcmp(text, unk)  ? UNKNOWN
                                                                           : CONTROL;
        if (status == WEFT_OK) status = put_piece(v, text, weft__gguf_member(item, "id"), type);
    }
    return status;
}

/* ---- Merges ---- */

/* The two pieces of a merge, "a b" or ["a", "b"], one after the other in `whole`, and the bytes of
 * the first; 0 for another item. The caller frees `whole`; NULL if out of memory. */
static size_t join_merge(const cJSON *item, char **whole)
{
    const char *left =
                   cJSON_GetStringValue(cJSON_IsArray(item) ? cJSON_GetArrayItem(item, 0) : item),
               *right = cJSON_IsArray(item) ? cJSON_GetStringValue(cJSON_GetArrayItem(item, 1))
                        : left              ? strchr(left, ' ')
                                            : NULL;
    *whole = NULL;
    if (!left || !right) return 0;
    const size_t n = cJSON_IsArray(item) ? strlen(left) : (size_t)(right - left);
    right += !cJSON_IsArray(item);
    *whole = malloc(n + strlen(right) + 1);
    if (!*whole) return n;
    memcpy(*whole, left, n);
    memcpy(*whole + n, right, strlen(right) + 1);
    return n;
}

/* The scores of SentencePiece: a piece that is made earlier has a higher one. A piece of several
 * characters that nothing makes is unused, so that readers find no merge for it. */
static weft_status read_scores(vocabulary_writer *v)
{
    const cJSON *item;
    float next = 0;
    cJSON_ArrayForEach(item, weft__gguf_member(v->model, "merges"))
    {
        char *whole;
        const size_t bytes = join_merge(item, &whole);
        if (bytes && !whole) return no_memory(v);
        const size_t *id = bytes ? weft__name_table_find(&v->ids, whole) : NULL;
        free(whole);
        if (!id) return weft__gguf_refuse_tokenizer(v, "has a merge that makes no piece");
        writer_piece *p = &v->pieces[*id];
        if (!p->made) p->score = --next;
        p->made = true;
    }
    for (size_t i = 0; i < v->n; i++) {
        writer_piece *p = &v->pieces[i];
        if (!p->text || p->type != NORMAL || p->made) continue;
        p->score = -1e9f;
        if (weft__text_length(p->text) > 1) p->type = UNUSED;
    }
    return WEFT_OK;
}

static weft_status add_merges(vocabulary_writer *v)
{
    gguf_bytes *b = &v->s->header;
    const cJSON *item, *merges = weft__gguf_member(v->model, "merges");
    weft__gguf_add_array(b, "tokenizer.ggml.merges", WEFT_GGUF_TEXT,
                         (size_t)cJSON_GetArraySize(merges));
    cJSON_ArrayForEach(item, merges)
    {
        char *whole;
        const size_t bytes = join_merge(item, &whole);
        if (bytes && !whole) return no_memory(v);
        const bool good = bytes && !strchr(whole, ' ');
        if (good) {
            weft__gguf_add_number(b, strlen(whole) + 1, 8);
            weft__gguf_add(b, whole, bytes);
            weft__gguf_add(b, " ", 1);
            weft__gguf_add(b, whole + bytes, strlen(whole) - bytes);
        }
        free(whole);
        if (!good)
            return weft__gguf_refuse_tokenizer(v, "has a merge that is not a pair of pieces");
    }
    return WEFT_OK;
}

/* ---- Special pieces ---- */

/* The id of a piece that the configuration names by a text, or an object with one; -1: none. */
static int64_t named_id(const vocabulary_writer *v, const char *name)
{
    const cJSON *item = weft__gguf_member(v->config, name);
    const char *text =
        cJSON_GetStringValue(cJSON_IsObject(item) ? weft__gguf_member(item, "content") : item);
    if (!text && !strcmp(name, "bos_token")) text = v->bos;
    if (!text && !strcmp(name, "eos_token")) text = v->eos;
    if (!text && !strcmp(name, "unk_token"))
        text = cJSON_GetStringValue(weft__gguf_member(v->model, "unk_token"));
    const size_t *id = text ? weft__name_table_find(&v->ids, text) : NULL;
    return id ? (int64_t)*id : -1;
}

/* What the reader takes as pad_id is the piece of padding, or else that of the end of a text, or else
 * 0: it is written where it would be another one than the model's. */
static int64_t padding_of(const vocabulary_writer *v, int64_t padding, int64_t end)
{
    const int64_t wanted = (int64_t)weft__gguf_option(v->s->config, "pad_id");
    if (padding < 0 && wanted == (end >= 0 ? end : 0)) return -1;
    return wanted;
}

static void add_ids(vocabulary_writer *v)
{
    int64_t end = -1;
    for (size_t i = 0; i < GGUF_SPECIALS; i++) {
        char key[64];
        const gguf_special *special = &weft__gguf_specials[i];
        const bool padding = !strcmp(special->piece, "pad_token");
        int64_t id = named_id(v, special->piece);
        if (!strcmp(special->piece, "eos_token")) end = id;
        if (padding) id = padding_of(v, id, end);
        snprintf(key, sizeof key, "tokenizer.ggml.%s", special->key);
        if (id >= 0) weft__gguf_meta_u32(&v->s->header, key, (uint64_t)id);
    }
}

/* An id that is put around a text must be the one that the file has for it. */
static weft_status check_ends(vocabulary_writer *v)
{
    static const char *const names[] = {"bos_token", "eos_token"};
    for (int i = 0; i < 2; i++) {
        const char *text = i ? v->eos : v->bos;
        const size_t *id = text ? weft__name_table_find(&v->ids, text) : NULL;
        if (text && (!id || (int64_t)*id != named_id(v, names[i])))
            return weft__gguf_refuse_tokenizer(
                v, "adds %s to each text, but its %s is another piece", text, names[i]);
    }
    return WEFT_OK;
}

static const char *template_of(const vocabulary_writer *v)
{
    const cJSON *item, *list = weft__gguf_member(v->config, "chat_template");
    if (v->s->options->chat_template) return v->s->options->chat_template;
    if (!cJSON_IsArray(list)) return cJSON_GetStringValue(list);
    cJSON_ArrayForEach(item, list)
    {
        const char *name = cJSON_GetStringValue(weft__gguf_member(item, "name"));
        if (name && !strcmp(name, "default"))
            return cJSON_GetStringValue(weft__gguf_member(item, "template"));
    }
    return NULL;
}

/* ---- All ---- */

static weft_status add_pieces(vocabulary_writer *v)
{
    gguf_bytes *b = &v->s->header;
    weft__gguf_meta_text(b, "tokenizer.ggml.model", v->split ? "gpt2" : "llama");
    weft__gguf_meta_text(b, "tokenizer.ggml.pre", v->split ? v->split->names[0] : "default");
    weft__gguf_add_array(b, "tokenizer.ggml.tokens", WEFT_GGUF_TEXT, v->n);
    for (size_t i = 0; i < v->n; i++) {
        char text[32]; /* of an id that no text has */
        snprintf(text, sizeof text, "[PAD%zu]", i);
        weft__gguf_add_text(b, v->pieces[i].text ? v->pieces[i].text : text);
    }
    weft__gguf_add_array(b, "tokenizer.ggml.token_type", WEFT_GGUF_I32, v->n);
    for (size_t i = 0; i < v->n; i++)
        weft__gguf_add_number(b, (uint64_t)(v->pieces[i].text ? v->pieces[i].type : UNUSED), 4);
    if (v->split) return add_merges(v);
    weft__gguf_add_array(b, "tokenizer.ggml.scores", WEFT_GGUF_F32, v->n);
    for (size_t i = 0; i < v->n; i++) weft__gguf_add_f32(b, v->pieces[i].score);
    return WEFT_OK;
}

static weft_status add_all(vocabulary_writer *v)
{
    gguf_bytes *b = &v->s->header;
    weft_status status = weft__gguf_read_components(v);
    if (status == WEFT_OK) status = read_pieces(v);
    if (status == WEFT_OK && !v->split) status = read_scores(v);
    if (status == WEFT_OK) status = check_ends(v);
    if (status == WEFT_OK) status = add_pieces(v);
    if (status != WEFT_OK) return status;
    add_ids(v);
    weft__gguf_meta_bool(b, "tokenizer.ggml.add_bos_token", v->bos);
    weft__gguf_meta_bool(b, "tokenizer.ggml.add_eos_token", v->eos);
    if (!v->split) weft__gguf_meta_bool(b, "tokenizer.ggml.add_space_prefix", v->add_space);
    const char *chat = template_of(v);
    if (chat) weft__gguf_meta_text(b, "tokenizer.chat_template", chat);
    return WEFT_OK;
}

/* A text as JSON; NULL without one. */
static cJSON *parse(vocabulary_writer *v, const char *text, const char *name)
{
    json_failure why = {.no_memory = false};
    cJSON *json = text ? weft__json_parse(text, strlen(text), &why) : NULL;
    if (text && why.no_memory)
        no_memory(v);
    else if (text && !json)
        weft_error_set(v->s->error, WEFT_BAD_FILE, name, "is not JSON, near byte %zu",
                       why.position);
    return json;
}

weft_status weft__gguf_add_vocabulary(gguf_saver *s)
{
    vocabulary_writer v = {.s = s};
    if (!s->options->tokenizer_json) {
        weft__gguf_meta_text(&s->header, "tokenizer.ggml.model", GGUF_NO_VOCABULARY);
        if (s->options->chat_template)
            weft__gguf_meta_text(&s->header, "tokenizer.chat_template", s->options->chat_template);
        add_ids(&v);
        return WEFT_OK;
    }
    v.json = parse(&v, s->options->tokenizer_json, "tokenizer.json");
    v.config = parse(&v, s->options->tokenizer_config, "tokenizer_config.json");
    v.model = weft__gguf_member(v.json, "model");
    const weft_status status = s->error->status == WEFT_OK ? add_all(&v) : s->error->status;
    cJSON_Delete(v.json);
    cJSON_Delete(v.config);
    weft__name_table_free(&v.ids);
    free(v.pieces);
    return status;
}
