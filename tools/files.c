/* Reads and writes whole files, and prints JSON. */
#include "tool.h"

#include "base/file.h"
#include "json/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The whole of a stream, followed by a zero byte; closes it. */
static char *read_all(FILE *file, const char *path, size_t *bytes, weft_error *error)
{
    char *data = NULL;
    size_t capacity = 0;
    *bytes = 0;
    while (!feof(file) && !ferror(file)) {
        if (capacity - *bytes < 2) {
            capacity = capacity ? 2 * capacity : 65536;
            char *grown = realloc(data, capacity);
            if (!grown) break;
            data = grown;
        }
        *bytes += fread(data + *bytes, 1, capacity - *bytes - 1, file);
    }
    bool good = feof(file) && !ferror(file);
    if (ferror(file))
        weft_error_set(error, WEFT_IO, path, "cannot be read: %s", strerror(errno));
    else if (!good)
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    fclose(file);
    if (good) {
        data[*bytes] = 0;
        return data;
    }
    free(data);
    return NULL;
}

char *tool_read_file(const char *path, size_t *bytes, weft_error *error)
{
    const int descriptor = weft__file_open_once(path);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (file) return read_all(file, path, bytes, error);
    weft_error_set(error, WEFT_IO, path, "cannot be opened: %s", weft__file_error(errno));
    if (descriptor >= 0) close(descriptor);
    return NULL;
}

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
