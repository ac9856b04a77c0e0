/* Reads a tokenizer.json, and the names of special tokens next to it. */
#include "load.h"

#include "base/file.h"
#include "base/log.h"
#include "base/platform.h"
#include "decode.h"
#include "kind.h"

#include <weft/tokenizers.h>

#include <stdlib.h>
#include <string.h>

/* ---- What people and weft want to know ---- */

static void find_roles(tk_loader *l)
{
    tk_state *s = l->state;
    const tk_model *m = &s->model;
    s->roles = weft__tk_alloc(l, (size_t)m->vocabulary.size, 1);
    s->decoded = weft__tk_alloc(l, (size_t)m->vocabulary.size, sizeof *s->decoded);
    if (!s->roles || !s->decoded) return;
    bool level = false;
    for (size_t i = 0; i < s->n_decoders; i++)
        level |= s->decoders[i].apply == weft__tk_decode_level;
    for (int i = 0; i < 256; i++) {
        if (m->byte_fallback && m->byte_ids[i] >= 0) s->roles[m->byte_ids[i]] = WEFT_PIECE_BYTE;
        if (level && i >= 128 && m->level_ids[i] >= 0) s->roles[m->level_ids[i]] = WEFT_PIECE_BYTE;
    }
    for (int32_t id = 0; id < m->vocabulary.size; id++)
        if (!m->vocabulary.entries[id].piece) s->roles[id] = WEFT_PIECE_SPECIAL;
    for (size_t i = 0; i < s->n_added; i++) {
        const tk_added *a = &s->added[i];
        if (!*a->content) continue;
        if (a->special) s->roles[a->id] = WEFT_PIECE_SPECIAL;
        s->decoded[a->id] = a->decoded;
    }
}

/* The id of a special token: the one that the configuration names, or else the first of those with
 * a customary name; -1 if there is none. */
static int32_t find_special(const tk_state *s, const cJSON *config, const char *key,
                            const char *const *names)
{
    const tk_vocabulary *v = &s->model.vocabulary;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);
    if (cJSON_IsNull(value)) return -1;
    if (cJSON_IsObject(value)) value = cJSON_GetObjectItemCaseSensitive(value, "content");
    if (cJSON_IsString(value)) {
        const int32_t id =
            weft__tk_vocabulary_find(v, value->valuestring, strlen(value->valuestring));
        if (id < 0)
            weft__log(WEFT_LOG_WARNING, "tokenizer_config.json",
                      "%s: the vocabulary has no '%.60s'", key, value->valuestring);
        return id;
    }
    for (; *names; names++) {
        const int32_t id = weft__tk_vocabulary_find(v, *names, strlen(*names));
        if (id >= 0) return id;
    }
    return -1;
}

static weft_tokenizer_info describe(const tk_state *s, const cJSON *config)
{
    static const char *const bos[] = {"<s>", "<bos>", "<|begin_of_text|>", "[CLS]", NULL};
    static const char *const eos[] = {
        "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "[SEP]", NULL};
    static const char *const pad[] = {"<pad>", "[PAD]", "<|pad|>", NULL};
    return (weft_tokenizer_info){
        .type = s->model.type,
        .normalization = s->n_normalizers ? "tokenizer.json" : "identity",
        .size = s->model.vocabulary.size,
        .pad = find_special(s, config, "pad_token", pad),
        .unk = s->model.unk,
        .bos = find_special(s, config, "bos_token", bos),
        .eos = find_special(s, config, "eos_token", eos),
    };
}

/* ---- Reading ---- */

static void read_parts(tk_loader *l, const cJSON *json)
{
    const tk_place top = {NULL, NULL, 0, json};
    const tk_place normalizer = weft__tk_member(&top, "normalizer"),
                   splitter = weft__tk_member(&top, "pre_tokenizer"),
                   model = weft__tk_member(&top, "model"),
                   added = weft__tk_member(&top, "added_tokens"),
                   processor = weft__tk_member(&top, "post_processor"),
                   decoder = weft__tk_member(&top, "decoder");
    if (!cJSON_IsObject(json)) {
        weft__tk_refuse(l, NULL, "is not the JSON of a tokeniser: expected an object");
        return;
    }
    weft__tk_load_normalizer(l, &normalizer);
    weft__tk_load_splitter(l, &splitter);
    weft__tk_load_model(l, &model);
    if (l->status == WEFT_OK) weft__tk_load_added(l, &added);
    weft__tk_load_processor(l, &processor);
    weft__tk_load_decoder(l, &decoder);
    tk_state *s = l->state;
    if (!decoder.json && weft__tk_grow(l, &s->decoders, s->n_decoders, sizeof *s->decoders))
        s->decoders[s->n_decoders++] = (tk_decoder){.apply = weft__tk_decode_join};
    if (l->status == WEFT_OK) find_roles(l);
}

static cJSON *parse(tk_loader *l, const char *text, size_t bytes)
{
    json_failure why;
    cJSON *json = weft_text_is_utf8(text, bytes) ? weft__json_parse(text, bytes, &why) : NULL;
    if (json) return json;
    if (!weft_text_is_utf8(text, bytes))
        weft__tk_refuse(l, NULL, "is not UTF-8");
    else if (why.no_memory)
        weft__tk_no_memory(l);
    else
        weft__tk_refuse(l, NULL, "is not JSON at byte %zu", why.position);
    return NULL;
}

static weft_tokenizer *read_tokenizer(const char *file, const char *text, size_t bytes,
                                      const cJSON *config, weft_error *error)
{
    tk_loader l = {.file = file, .error = error};
    weft_tokenizer *t = NULL;
    l.state = weft__tk_alloc(&l, 1, sizeof *l.state);
    cJSON *json = l.state ? parse(&l, text, bytes) : NULL;
    if (json) read_parts(&l, json);
    cJSON_Delete(json);
    if (l.status == WEFT_OK) {
        const weft_tokenizer_info info = describe(l.state, config);
        t = weft_tokenizer_new(&weft__tk_kind, l.state, &info, error);
    }
    if (!t) weft__tk_state_free(l.state);
    return t;
}

weft_tokenizer *weft_tokenizer_load_json_from_memory(const char *json, size_t bytes,
                                                     weft_error *error)
{
    weft_error_clear(error);
    if (json) return read_tokenizer("tokenizer.json", json, bytes, NULL, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, "tokenizer", "loading needs JSON");
    return NULL;
}

/* Sets *config to the tree of a file, or to NULL if there is none. */
static weft_status read_config(const char *path, cJSON **config, weft_error *error)
{
    size_t bytes;
    weft_error own = WEFT_NO_ERROR;
    json_failure why;
    *config = NULL;
    char *text = weft__file_read(path, &bytes, &own);
    if (!text) return own.status == WEFT_NOT_FOUND ? WEFT_OK : weft_error_copy(error, &own);
    *config = weft__json_parse(text, bytes, &why);
    free(text);
    if (*config) return WEFT_OK;
    if (why.no_memory) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    return weft_error_set(error, WEFT_BAD_FILE, path, "is not JSON at byte %zu", why.position);
}

/* The same of tokenizer_config.json in the folder of a file. */
static weft_status read_config_next_to(const char *path, cJSON **config, weft_error *error)
{
    static const char name[] = "tokenizer_config.json";
    const size_t folder = (size_t)(weft__os_name(path) - path);
    char *path_of_config = malloc(folder + sizeof name);
    if (!path_of_config) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    memcpy(path_of_config, path, folder);
    memcpy(path_of_config + folder, name, sizeof name);
    const weft_status status = read_config(path_of_config, config, error);
    free(path_of_config);
    return status;
}

weft_tokenizer *weft_tokenizer_load_json(const char *path, weft_error *error)
{
    size_t bytes;
    cJSON *config = NULL;
    weft_error_clear(error);
    if (!path) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "tokenizer", "loading needs a path");
        return NULL;
    }
    char *text = weft__file_read(path, &bytes, error);
    if (!text) return NULL;
    weft_tokenizer *t = read_config_next_to(path, &config, error) == WEFT_OK
                            ? read_tokenizer(path, text, bytes, config, error)
                            : NULL;
    cJSON_Delete(config);
    free(text);
    return t;
}
