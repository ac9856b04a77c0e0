/* Writes whole files, and prints JSON. */
#include "tool.h"

#include "base/file.h"
#include "json/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

/* Whether cJSON ever ran out of memory in this thread: after that any of its trees may lack
 * members.
 */
static _Thread_local bool json_lost;

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) json_lost = true;
    return memory;
}

void tool_watch_json(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){allocate, free});
}

char *tool_json_text(cJSON *json, bool lines)
{
    char *text = json && !json_lost ? weft__json_print(json, lines) : NULL;
    cJSON_Delete(json);
    return text;
}

int tool_print_json(cJSON *json)
{
    char *text = tool_json_text(json, true);
    if (!text) return tool_fail_text("JSON", "out of memory");
    bool good = printf("%s\n", text) > 0 && fflush(stdout) == 0;
    cJSON_free(text);
    return good ? EXIT_GOOD : tool_fail_text("output", "cannot be written");
}

bool tool_write_json_line(cJSON *json, FILE *file, const char *where, weft_error *error)
{
    char *text = tool_json_text(json, false);
    bool good = text && fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    if (!text)
        weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    else if (!good)
        weft_error_set(error, WEFT_IO, where, "cannot be written: %s", strerror(errno));
    cJSON_free(text);
    return good;
}

/* ---- Files ---- */

static bool cannot_write(const char *path, weft_error *error)
{
    weft_error_set(error, WEFT_IO, path, "cannot be written: %s", weft__file_error(errno));
    return false;
}

bool tool_replace_file(const char *path, const char *data, size_t bytes, weft_error *error)
{
    return weft__file_replace(path, data, bytes) || cannot_write(path, error);
}

bool tool_write_output(const char *path, const char *data, size_t bytes, weft_error *error)
{
    return weft__file_replace_stream(path, data, bytes) || cannot_write(path, error);
}

bool tool_copy_file(const char *from, const char *to, weft_error *error)
{
    char chunk[65536];
    file_writer w;
    FILE *file = weft__file_open_stdio(from);
    if (!file) {
        weft_error_set(error, WEFT_IO, from, "cannot be opened: %s", weft__file_error(errno));
        return false;
    }
    if (!weft__file_begin(&w, to)) {
        fclose(file);
        return cannot_write(to, error);
    }
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;) weft__file_write(&w, chunk, n);
    const bool read = !ferror(file);
    if (!read) {
        weft_error_set(error, WEFT_IO, from, "cannot be read: %s", strerror(errno));
        weft__file_abandon(&w);
    }
    fclose(file);
    return read && (weft__file_commit(&w) || cannot_write(to, error));
}
