/* See json_lines.h. */
#include "json_lines.h"

#include "base/file.h"
#include "json/tree.h"
#include "text_file.h"

#include <errno.h>
#include <stdlib.h>

bool json_lines_read(const char *path, json_line_taker *take, void *context, weft_error *error)
{
    char *line = NULL;
    size_t size = 0, number = 0;
    ssize_t n;
    FILE *file = weft__file_open_stdio(path);
    if (!file) {
        weft_error_set(error, WEFT_IO, path, "cannot be opened: %s", weft__file_error(errno));
        return false;
    }
    bool good = true, is_json = true;
    while (good && is_json && (n = getline(&line, &size, file)) > 0) {
        json_failure why;
        number++;
        if (line[n - 1] != '\n') break;
        cJSON *json = weft__json_parse(line, (size_t)n, &why);
        is_json = json || why.no_memory;
        good = json ? take(context, json) : !why.no_memory;
    }
    if (!is_json) weft_error_set(error, WEFT_BAD_FILE, path, "line %zu is not JSON", number);
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    const bool ended = good && is_json && weft__text_at_end(file, path, error);
    free(line);
    fclose(file);
    return ended;
}
