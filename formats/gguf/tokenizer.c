/* Vocabularies of GGUF files as the tokenizer.json and tokenizer_config.json of Hugging Face, which
 * weft-tokenizers reads. O(bytes of the vocabulary). */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* ---- tokenizer.json ---- */

/* Special pieces (kinds 2, unknown, and 3, control), and those of the user (4). */
static void put_added(gguf_text *t, const gguf_vocabulary *v)
{
    const char *comma = "";
    for (size_t i = 0; i < v->pieces.n && v->pieces.types; i++) {
        weft_gguf_value type = {.integer = 0};
        weft_gguf_value_item(v->pieces.types, i, &type);
        if (type.integer < 2 || type.integer > 4 || !*v->pieces.at[i]) continue;
        weft__gguf_put(t, comma);
        weft__gguf_put(t, "{\"id\":");
        weft__gguf_put_number(t, i);
        weft__gguf_put(t, ",\"content\":");
        weft__gguf_put_string(t, v->pieces.at[i], "");
        weft__gguf_put(t, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                          "\"normalized\":false,\"special\":");
        weft__gguf_put(t, type.integer == 4 ? "false}" : "true}");
        comma = ",\n";
    }
}

static void put_special(gguf_text *t, const char *piece, const char *type)
{
    if (!piece) return;
    weft__gguf_put(t, "{\"SpecialToken\":{\"id\":");
    weft__gguf_put_string(t, piece, "");
    weft__gguf_put(t, ",\"type_id\":");
    weft__gguf_put(t, type);
    weft__gguf_put(t, "}},");
}

static void put_end(gguf_text *t, const char *piece, const char *type)
{
    if (!piece) return;
    weft__gguf_put(t, ",");
    put_special(t, piece, type);
    t->n -= t->status == WEFT_OK; /* the comma */
}

static void put_definition(gguf_text *t, const char *piece, size_t id, const char *before)
{
    if (!piece) return;
    weft__gguf_put(t, before);
    weft__gguf_put_string(t, piece, "");
    weft__gguf_put(t, ":{\"id\":");
    weft__gguf_put_string(t, piece, "");
    weft__gguf_put(t, ",\"ids\":[");
    weft__gguf_put_number(t, id);
    weft__gguf_put(t, "],\"tokens\":[");
    weft__gguf_put_string(t, piece, "");
    weft__gguf_put(t, "]}");
}

/* The text `name`, "A" or "B", of type "0" or "1", without the special piece before it. */
static void put_sequence(gguf_text *t, const char *name, const char *type, const char *eos)
{
    weft__gguf_put(t, "{\"Sequence\":{\"id\":\"");
    weft__gguf_put(t, name);
    weft__gguf_put(t, "\",\"type_id\":");
    weft__gguf_put(t, type);
    weft__gguf_put(t, "}}");
    put_end(t, eos, type);
}

/* Ids around a text. */
static void put_processor(gguf_text *t, const gguf_vocabulary *v)
{
    size_t bos_id = 0, eos_id = 0;
    const char *bos = v->add_bos ? weft__gguf_named(t, v, "bos_token_id", &bos_id) : NULL,
               *eos = v->add_eos ? weft__gguf_named(t, v, "eos_token_id", &eos_id) : NULL;
    if (!bos && !eos) {
        weft__gguf_put(t, "null");
        return;
    }
    weft__gguf_put(t, "{\"type\":\"TemplateProcessing\",\"single\":[");
    put_special(t, bos, "0");
    put_sequence(t, "A", "0", eos);
    weft__gguf_put(t, "],\"pair\":[");
    put_special(t, bos, "0");
    put_sequence(t, "A", "0", eos);
    weft__gguf_put(t, ",");
    put_special(t, bos, "1");
    put_sequence(t, "B", "1", eos);
    weft__gguf_put(t, "],\"special_tokens\":{");
    put_definition(t, bos, bos_id, "");
    if (!bos || !eos || strcmp(bos, eos) != 0) put_definition(t, eos, eos_id, bos ? "," : "");
    weft__gguf_put(t, "}}");
}

static void put_normalizer(gguf_text *t, const gguf_vocabulary *v)
{
    if (v->split) {
        weft__gguf_put(t, v->split->normalizer);
        return;
    }
    weft__gguf_put(t, v->add_space ? SPM_SEQUENCE(SPM_PREPEND "," SPM_REPLACE)
                                   : SPM_SEQUENCE(SPM_REPLACE));
}

static void put_decoder(gguf_text *t, const gguf_vocabulary *v)
{
    if (v->split) {
        weft__gguf_put(t, BYTE_LEVEL("true"));
        return;
    }
    weft__gguf_put(t,
                   "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
                   "{\"String\":\"" SPM_SPACE "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
                   "{\"type\":\"Fuse\"}");
    if (v->add_space)
        weft__gguf_put(t, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
    weft__gguf_put(t, "]}");
}

/* Merges that the file has, "left right". */
static void put_listed_merges(gguf_text *t, const gguf_vocabulary *v)
{
    arena memory = {.blocks = NULL};
    for (size_t i = 0; i < v->merges->n_items && t->status == WEFT_OK; i++) {
        weft_gguf_value item;
        weft_gguf_value_item(v->merges, i, &item);
        const char *text = weft__gguf_copy_text(t, &memory, &item, i);
        if (!text) break;
        weft__gguf_put(t, i ? "," : "");
        weft__gguf_put_string(t, text, "");
    }
    weft__arena_free(&memory);
}

static void put_model(gguf_text *t, const gguf_vocabulary *v)
{
    size_t id;
    const char *unk = v->split ? NULL : weft__gguf_named(t, v, "unknown_token_id", &id);
    weft__gguf_put(t, "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    if (unk)
        weft__gguf_put_string(t, unk, "");
    else
        weft__gguf_put(t, "null");
    weft__gguf_put(t,
                   ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":");
    weft__gguf_put(t, v->split ? "false,\"byte_fallback\":false" : "true,\"byte_fallback\":true");
    weft__gguf_put(t, ",\"ignore_merges\":");
    weft__gguf_put(t, v->split && v->split->ignore_merges ? "true" : "false");
    weft__gguf_put(t, ",\"vocab\":{");
    for (size_t i = 0; i < v->pieces.n && t->status == WEFT_OK; i++) {
        weft__gguf_put(t, i ? ",\n" : "\n");
        weft__gguf_put_string(t, v->pieces.at[i], "");
        weft__gguf_put(t, ":");
        weft__gguf_put_number(t, i);
    }
    weft__gguf_put(t, "},\"merges\":[");
    if (v->merges)
        put_listed_merges(t, v);
    else if (t->status == WEFT_OK)
        weft__gguf_put_merges(t, &v->pieces);
    weft__gguf_put(t, "]}");
}

static void put_tokenizer(gguf_text *t, const gguf_vocabulary *v)
{
    weft__gguf_put(
        t, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    put_added(t, v);
    weft__gguf_put(t, "],\n\"normalizer\":");
    put_normalizer(t, v);
    weft__gguf_put(t, ",\n\"pre_tokenizer\":");
    weft__gguf_put(t, v->split ? v->split->pre_tokenizer : "null");
    weft__gguf_put(t, ",\n\"post_processor\":");
    put_processor(t, v);
    weft__gguf_put(t, ",\n\"decoder\":");
    put_decoder(t, v);
    weft__gguf_put(t, ",\n\"model\":");
    put_model(t, v);
    weft__gguf_put(t, "}\n");
}

/* ---- tokenizer_config.json ---- */

const gguf_special weft__gguf_specials[GGUF_SPECIALS] = {{"bos_token_id", "bos_token"},
                                                         {"eos_token_id", "eos_token"},
                                                         {"unknown_token_id", "unk_token"},
                                                         {"padding_token_id", "pad_token"}};

static void put_config(gguf_text *t, const gguf_vocabulary *v)
{
    arena memory = {.blocks = NULL};
    const weft_gguf_value *chat = weft_gguf_meta_find(t->file, "tokenizer.chat_template");
    weft__gguf_put(t, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    for (size_t i = 0; i < GGUF_SPECIALS; i++) {
        size_t id;
        const char *piece = weft__gguf_named(t, v, weft__gguf_specials[i].key, &id);
        if (!piece) continue;
        weft__gguf_put(t, ",\n  ");
        weft__gguf_put_string(t, weft__gguf_specials[i].piece, "");
        weft__gguf_put(t, ": ");
        weft__gguf_put_string(t, piece, "");
    }
    const char *text =
        chat && chat->kind == WEFT_GGUF_TEXT ? weft__gguf_copy_text(t, &memory, chat, 0) : NULL;
    if (text) {
        weft__gguf_put(t, ",\n  \"chat_template\": ");
        weft__gguf_put_string(t, text, "");
    }
    weft__gguf_put(t, ",\n  \"clean_up_tokenization_spaces\": false\n}\n");
    weft__arena_free(&memory);
}

/* ---- Both ---- */

/* The text that `put` makes of the vocabulary, which the caller frees; NULL on failure. */
static char *make_text(const weft_gguf *file, void (*put)(gguf_text *t, const gguf_vocabulary *v),
                       weft_error *error)
{
    weft_error problem = WEFT_NO_ERROR;
    gguf_vocabulary v;
    gguf_text t = {.file = file, .error = &problem};
    weft_error_clear(error);
    if (!file) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "gguf", "the file is NULL");
        return NULL;
    }
    weft__gguf_read_vocabulary(&t, &v);
    if (t.status == WEFT_OK) put(&t, &v);
    weft__arena_free(&v.memory);
    if (t.status == WEFT_OK) return t.text;
    weft_error_copy(error, &problem);
    free(t.text);
    return NULL;
}

char *weft_gguf_tokenizer_json(const weft_gguf *file, weft_error *error)
{
    return make_text(file, put_tokenizer, error);
}

char *weft_gguf_tokenizer_config(const weft_gguf *file, weft_error *error)
{
    return make_text(file, put_config, error);
}
