/* See lines.h. */
#include "lines.h"

#include "base/file.h"
#include "base/platform.h"
#include "tree.h"

#include <errno.h>
#include <stdlib.h>

weft_status weft__json_read_lines(const char *path, json_line_taker *take, void *context,
                                  weft_error *error)
{
    char *line = NULL;
    size_t size = 0, number = 0;
    ptrdiff_t n;
    FILE *file = weft__file_open_stdio(path);
    if (!file)
        return weft_error_set(error, weft__file_status(errno), path, "cannot be opened: %s",
                              weft__file_error(errno));
    bool complete = true, good = true, is_json = true;
    errno = 0;
    while (good && is_json && complete && (n = weft__os_read_line(&line, &size, file)) > 0) {
        json_failure why;
        number++;
        complete = line[n - 1] == '\n';
        cJSON *json = complete ? weft__json_parse(line, (size_t)n, &why) : NULL;
        if (!complete) continue;
        is_json = json || why.no_memory;
        good = json && take(context, json);
    }
    const int failure = feof(file) && !ferror(file) ? 0 : errno;
    free(line);
    fclose(file);
    if (!is_json) return weft_error_set(error, WEFT_BAD_FILE, path, "line %zu is not JSON", number);
    if (!good || failure == ENOMEM) /* of the line */
        return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    if (failure)
        return weft_error_set(error, WEFT_IO, path, "cannot be read: %s",
                              weft__file_error(failure));
    return WEFT_OK;
}
