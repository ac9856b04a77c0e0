/* Components of a tokenizer.json that GGUF files have a name for. O(bytes of the components). */
#include "save_vocabulary.h"

#include "base/text.h"
#include "json/tree.h"

#include <string.h>

weft_status weft__gguf_refuse_tokenizer(vocabulary_writer *v, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    return weft_error_set(v->s->error, WEFT_BAD_ARGUMENT, "tokenizer.json", "%s", text);
}

const cJSON *weft__gguf_member(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNull(item) ? NULL : item;
}

/* ---- What splits a text ---- */

static bool has_type(const cJSON *json, const char *type)
{
    const char *name = cJSON_GetStringValue(weft__gguf_member(json, "type"));
    return name && !strcmp(name, type);
}

/* Removes trim_offsets, which does not change ids, and adds the default of use_regex. */
static bool simplify(cJSON *json)
{
    cJSON *item;
    if (has_type(json, "ByteLevel")) {
        cJSON_DeleteItemFromObjectCaseSensitive(json, "trim_offsets");
        if (!weft__gguf_member(json, "use_regex") && !cJSON_AddTrueToObject(json, "use_regex"))
            return false;
    }
    cJSON_ArrayForEach(item, json)
    {
        if ((cJSON_IsObject(item) || cJSON_IsArray(item)) && !simplify(item)) return false;
    }
    return true;
}

/* Whether a component is the one of a text; *good becomes false if memory is out. */
static bool is_component(const cJSON *json, const char *text, bool *good)
{
    if (!strcmp(text, "null") || !json) return !strcmp(text, "null") && !json;
    cJSON *x = cJSON_Duplicate(json, true), *y = weft__json_parse(text, strlen(text), NULL);
    const bool simple = x && y && simplify(x) && simplify(y);
    const bool same = simple && cJSON_Compare(x, y, true);
    *good = *good && simple;
    cJSON_Delete(x);
    cJSON_Delete(y);
    return same;
}

/* Forms of SentencePiece. With the normaliser that leaves no space, the split of Gemma does nothing. */
static const struct {
    const char *normalizer, *pre_tokenizer;
    bool add_space;
} forms[] = {
    {SPM_SEQUENCE(SPM_PREPEND "," SPM_REPLACE), "null", true},
    {SPM_SEQUENCE(SPM_REPLACE), "null", false},
    {SPM_REPLACE, "null", false},
    {SPM_REPLACE,
     "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\","
     "\"invert\":false}",
     false},
    {"null",
     "{\"type\":\"Metaspace\",\"replacement\":\"" SPM_SPACE
     "\",\"prepend_scheme\":\"never\",\"split\":false}",
     false},
};

static weft_status read_split(vocabulary_writer *v)
{
    const cJSON *normalizer = weft__gguf_member(v->json, "normalizer"),
                *pre = weft__gguf_member(v->json, "pre_tokenizer");
    const bool bytes = cJSON_IsTrue(weft__gguf_member(v->model, "byte_fallback")),
               ignore = cJSON_IsTrue(weft__gguf_member(v->model, "ignore_merges"));
    const gguf_split *split;
    bool good = true, found = false;
    for (size_t i = 0; !bytes && !found && (split = weft__gguf_split_at(i)); i++) {
        found = split->ignore_merges == ignore &&
                is_component(normalizer, split->normalizer, &good) &&
                is_component(pre, split->pre_tokenizer, &good);
        if (found) v->split = split;
    }
    for (size_t i = 0; bytes && !ignore && !found && i < sizeof forms / sizeof *forms; i++) {
        found = is_component(normalizer, forms[i].normalizer, &good) &&
                is_component(pre, forms[i].pre_tokenizer, &good);
        v->add_space = forms[i].add_space;
    }
    if (!good) return weft_error_set(v->s->error, WEFT_NO_MEMORY, "tokenizer.json", "no memory");
    if (found) return WEFT_OK;
    const char *type = cJSON_GetStringValue(weft__gguf_member(pre, "type"));
    return weft__gguf_refuse_tokenizer(
        v, "GGUF has no name for its normaliser and pre-tokeniser (%.64s)", type ? type : "none");
}

/* ---- What surrounds a text ---- */

static const char *special_of(const cJSON *item)
{
    return cJSON_GetStringValue(weft__gguf_member(weft__gguf_member(item, "SpecialToken"), "id"));
}

/* [bos] $A [eos]. */
static weft_status read_template(vocabulary_writer *v, const cJSON *processor)
{
    const cJSON *single = weft__gguf_member(processor, "single");
    const cJSON *item = single ? single->child : NULL;
    v->bos = special_of(item);
    if (v->bos) item = item->next;
    const bool text = weft__gguf_member(item, "Sequence") != NULL;
    if (text) item = item->next;
    v->eos = special_of(item);
    if (v->eos) item = item->next;
    return text && !item ? WEFT_OK
                         : weft__gguf_refuse_tokenizer(
                               v, "its post-processor does more than put one piece before a text, "
                                  "and one after it");
}

static weft_status read_processor(vocabulary_writer *v, const cJSON *processor)
{
    const cJSON *item;
    weft_status status = WEFT_OK;
    const char *type = cJSON_GetStringValue(weft__gguf_member(processor, "type"));
    if (!processor || has_type(processor, "ByteLevel")) return WEFT_OK;
    if (has_type(processor, "TemplateProcessing")) return read_template(v, processor);
    if (!has_type(processor, "Sequence"))
        return weft__gguf_refuse_tokenizer(
            v,
            "its post-processor is %.64s; expected ByteLevel, TemplateProcessing or a Sequence of "
            "these",
            type ? type : "without a type");
    cJSON_ArrayForEach(item, weft__gguf_member(processor, "processors"))
    {
        if (status != WEFT_OK) break;
        status = has_type(item, "Sequence")
                     ? weft__gguf_refuse_tokenizer(
                           v, "its post-processor is a Sequence in a Sequence; expected ByteLevel "
                              "or TemplateProcessing in it")
                     : read_processor(v, item);
    }
    return status;
}

/* ---- The model ---- */

/* Whether a member is absent, null or "". */
static bool is_empty(const cJSON *json, const char *key)
{
    const cJSON *item = weft__gguf_member(json, key);
    const char *text = cJSON_GetStringValue(item);
    return !item || (text && !*text);
}

weft_status weft__gguf_read_components(vocabulary_writer *v)
{
    const char *type = cJSON_GetStringValue(weft__gguf_member(v->model, "type"));
    if ((type && strcmp(type, "BPE") != 0) ||
        !cJSON_IsObject(weft__gguf_member(v->model, "vocab")) ||
        !cJSON_IsArray(weft__gguf_member(v->model, "merges")))
        return weft__gguf_refuse_tokenizer(v, "its model is %.64s; weft writes BPE to GGUF files",
                                           type ? type : "unknown");
    if (!is_empty(v->model, "continuing_subword_prefix") ||
        !is_empty(v->model, "end_of_word_suffix"))
        return weft__gguf_refuse_tokenizer(
            v, "marks pieces by a prefix or a suffix; GGUF files cannot represent that");
    const weft_status status = read_split(v);
    return status == WEFT_OK ? read_processor(v, weft__gguf_member(v->json, "post_processor"))
                             : status;
}
