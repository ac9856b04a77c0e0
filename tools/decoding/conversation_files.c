/* Conversations as files: a message a line, as JSON. See conversation.h. */
#include "conversation.h"
#include "system.h"

#include "base/file.h"
#include "json/tree.h"

#include <stdlib.h>
#include <string.h>

static bool write_message(conversation *c, FILE *file, const char *role, const char *content)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "role", role);
    cJSON_AddStringToObject(json, "content", content);
    return tool_write_json_line(json, file, "conversation", &c->error);
}

bool conversation_save(conversation *c, const char *path)
{
    text_stream out;
    weft_error_clear(&c->error);
    if (tool_check_output(path, c->a->folder, &c->error) != WEFT_OK) return false;
    if (!text_stream_open(&out))
        return weft_error_set(&c->error, WEFT_NO_MEMORY, path, "out of memory") == WEFT_OK;
    bool good = !c->system || write_message(c, out.file, "system", c->system);
    for (size_t i = 0; good && i < c->n; i++)
        good = write_message(c, out.file, c->messages[i].role, c->messages[i].content);
    if (!text_stream_close(&out))
        good = weft_error_set(&c->error, WEFT_NO_MEMORY, path, "out of memory") == WEFT_OK;
    good = good && tool_write_output(path, out.text, out.bytes, &c->error);
    free(out.text);
    return good;
}

/* Adds the message of one line. */
static bool load_line(conversation *c, const char *path, size_t number, const char *line,
                      size_t bytes)
{
    json_failure why;
    cJSON *json = weft__json_parse(line, bytes, &why);
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "role"));
    const char *content = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "content"));
    bool good = role && content;
    if (!good)
        weft_error_set(&c->error, WEFT_BAD_FILE, path,
                       "line %zu: expected {\"role\": \"...\", \"content\": \"...\"}", number);
    else if (number == 1 && !strcmp(role, "system"))
        good = conversation_set_system(c, content);
    else
        good = conversation_add(c, role, content);
    cJSON_Delete(json);
    return good;
}

bool conversation_load(conversation *c, const char *path)
{
    size_t bytes, number = 1;
    weft_error_clear(&c->error);
    char *text = weft__file_read(path, &bytes, &c->error);
    if (!text) return false;
    conversation_cut(c, 0);
    conversation_set_system(c, NULL);
    bool good = true;
    for (char *line = text, *end; good && line < text + bytes; line = end + 1, number++) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!end) end = text + bytes;
        if (end > line) good = load_line(c, path, number, line, (size_t)(end - line));
    }
    if (!good) conversation_cut(c, 0);
    free(text);
    return good;
}
