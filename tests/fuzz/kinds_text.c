/* Reads bytes as files of the library weft-tokenizers: tokenisers, chat templates and JSON Schemas. */
#include "kinds.h"

#include <weft/chat.h>
#include <weft/constraint.h>
#include <weft/tokenizers.h>

#include <cjson/cJSON.h>

#include <stdlib.h>
#include <string.h>

/* ---- Tokenisers ---- */

/* Ids are in the vocabulary, spans in the text, and ids become UTF-8. */
static const char *encode_and_decode(const weft_tokenizer *t, const char *text, const char *pair)
{
    const weft_encode_input input = {text, pair, true, true};
    const int32_t size = weft_tokenizer_info_of(t).size;
    weft_encoding e;
    weft_error error;
    char *decoded;
    const bool good = weft_tokenizer_encode_input(t, &input, &e, &error) == WEFT_OK;
    const char *broken = fuzz_check_error(&error, good);
    for (size_t i = 0; good && i < e.n; i++) {
        const size_t n = strlen(e.sources[i] == 1 ? pair : text);
        if (e.ids[i] < 0 || e.ids[i] >= size) broken = "an id is not in the vocabulary";
        if (e.spans[i].begin > e.spans[i].end || e.spans[i].end > n)
            broken = "a span is not in the text";
    }
    if (good && !broken) {
        if (weft_tokenizer_decode(t, e.ids, e.n, &decoded, NULL, &error) != WEFT_OK)
            broken = fuzz_check_error(&error, false);
        else if (!weft_text_is_utf8(decoded, strlen(decoded)))
            broken = "ids become a text that is not UTF-8";
        free(decoded);
    }
    weft_encoding_free(&e);
    return broken;
}

const char *fuzz_check_tokenizer(const char *folder, const uint8_t *data, size_t bytes)
{
    static const char sample[] =
        "In the  beginning, don't 1234\t\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\x8D \xFF<s>";
    char path[256];
    weft_error error = WEFT_NO_ERROR;
    weft_tokenizer *t =
        weft_tokenizer_load_json(fuzz_put(folder, "tokenizer.json", data, bytes, path), &error);
    const char *broken = fuzz_check_error(&error, t != NULL);
    char *text = calloc(bytes + 1, 1);
    if (!text) abort();
    if (bytes) memcpy(text, data, bytes);
    if (t && !broken) broken = encode_and_decode(t, sample, text);
    free(text);
    weft_tokenizer_free(t);
    return broken;
}

/* ---- Chat templates ---- */

/* Two renderings are alike, and UTF-8. */
static const char *render_twice(const weft_chat_template *t, const weft_chat_options *options)
{
    static const weft_chat_message messages[] = {
        {"system", "be \xFF brief", NULL},
        {"user", " what\nis it?", "{\"name\": \"x\"}"},
        {"assistant", NULL,
         "{\"tool_calls\": [{\"id\": \"c1\", \"function\": {\"name\": \"f\", "
         "\"arguments\": {\"a\": [1, 2.5, null, true]}}}]}"},
        {"tool", "\xC3\xA9", NULL},
        {"user", "", "{\"content\": [{\"type\": \"text\", \"text\": \"t\"}]}"}};
    const size_t n = sizeof messages / sizeof *messages;
    weft_error error, again_error;
    char *text = weft_chat_template_render(t, messages, n, options, &error);
    const char *broken = fuzz_check_error(&error, text != NULL);
    if (text && !broken) {
        char *again = weft_chat_template_render(t, messages, n, options, &again_error);
        if (!weft_text_is_utf8(text, strlen(text))) broken = "a text that is not UTF-8";
        if (!again || strcmp(text, again) != 0) broken = "a template renders another text again";
        weft_free(again);
    }
    weft_free(text);
    return broken;
}

/* The bytes are a template; after a zero byte, a JSON object of variables. */
const char *fuzz_check_chat(const char *folder, const uint8_t *data, size_t bytes)
{
    const uint8_t *zero = bytes ? memchr(data, 0, bytes) : NULL;
    const size_t n = zero ? (size_t)(zero - data) : bytes;
    char *variables = zero ? calloc(bytes - n, 1) : NULL;
    if (zero && !variables) abort();
    if (zero) memcpy(variables, zero + 1, bytes - n - 1);
    const weft_chat_options options = {.add_generation_prompt = true,
                                       .bos_token = "<s>",
                                       .tools = "[{\"function\": {\"name\": \"f\"}}]",
                                       .variables = variables,
                                       .date = "2025-01-31"};
    char path[256];
    weft_error error, memory_error;
    weft_chat_template *t =
        weft_chat_template_load(fuzz_put(folder, "x.jinja", data, n, path), &error);
    weft_chat_template *same = weft_chat_template_parse((const char *)data, n, &memory_error);
    const char *broken = fuzz_check_error(&error, t != NULL);
    if (data && strcmp(error.message, memory_error.message) != 0)
        broken = "a file and its bytes in memory differ";
    if (t && !broken) broken = render_twice(t, &options);
    weft_chat_template_free(t);
    weft_chat_template_free(same);
    free(variables);
    return broken;
}

/* ---- JSON Schemas ---- */

#define MAX_TEXT 40 /* bytes of a generated text */

/* What a text must not be: whole but not JSON in UTF-8, or able to go on after a text that is not. */
static const char *check_state(const weft_constraint *c, const char *text, size_t n,
                               weft_constraint_state before, weft_constraint_state *state)
{
    weft_error error;
    const bool good = weft_constraint_match(c, text, n, state, &error) == WEFT_OK;
    const char *broken = fuzz_check_error(&error, good);
    if (!good) *state = WEFT_CONSTRAINT_NEVER;
    if (broken || !good) return broken;
    if (before == WEFT_CONSTRAINT_NEVER && *state != WEFT_CONSTRAINT_NEVER)
        return "a text matches whose beginning does not";
    if (*state != WEFT_CONSTRAINT_WHOLE) return NULL;
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(text, n, &end, false);
    if (!json || end != text + n || !weft_text_is_utf8(text, n))
        broken = "a text that matches is not JSON";
    cJSON_Delete(json);
    return broken;
}

/* Appends the first byte, of those that JSON is made of, with which a text can go on, until none can. */
static const char *grow(const weft_constraint *c)
{
    static const char bytes[] = "\"}]{[0:, truefalsn-.1a\\";
    char text[MAX_TEXT + 1] = "";
    const char *broken = NULL;
    size_t n = 0, i = 0;
    while (n < MAX_TEXT && bytes[i] && !broken) {
        weft_constraint_state state;
        text[n] = bytes[i++];
        broken = check_state(c, text, n + 1, WEFT_CONSTRAINT_MAYBE, &state);
        if (state == WEFT_CONSTRAINT_NEVER) {
            text[n] = 0;
            continue;
        }
        n++;
        i = 0;
    }
    return broken;
}

/* The bytes are a schema; after a zero byte, a text. */
const char *fuzz_check_schema(const char *folder, const uint8_t *data, size_t bytes)
{
    (void)folder;
    char *schema = calloc(bytes + 2, 1);
    if (!schema) abort();
    if (bytes) memcpy(schema, data, bytes);
    const char *text = schema + strlen(schema) + 1;
    const size_t n = strlen(schema) < bytes ? strlen(text) : 0;
    weft_error error;
    weft_constraint *c = weft_constraint_new_json(schema, &error);
    const char *broken = fuzz_check_error(&error, c != NULL);
    weft_constraint_state state = WEFT_CONSTRAINT_MAYBE;
    for (size_t i = 0; c && !broken && i <= n && i < 200; i++)
        broken = check_state(c, text, i, state, &state);
    if (c && !broken) broken = grow(c);
    weft_constraint_free(c);
    free(schema);
    return broken;
}
