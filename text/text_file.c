/* See text_file.h. */
#include "text_file.h"

#include "base/platform.h"

#include <errno.h>
#include <string.h>

bool weft__text_read_line(FILE *file, char **line, size_t *capacity, size_t *length)
{
    const ptrdiff_t n = weft__os_read_line(line, capacity, file);
    if (n < 0) return false;
    *length = (size_t)n;
    if (*length && (*line)[*length - 1] == '\n') --*length;
    if (*length && (*line)[*length - 1] == '\r') --*length;
    (*line)[*length] = 0;
    return true;
}

void weft__text_skip_mark(char *line, size_t *length)
{
    if (*length < 3 || memcmp(line, "\xEF\xBB\xBF", 3) != 0) return;
    *length -= 3;
    memmove(line, line + 3, *length + 1);
}

bool weft__text_at_end(FILE *file, const char *path, weft_error *error)
{
    if (feof(file) && !ferror(file)) return true;
    if (errno == EBADMSG) {
        weft_error_set(error, WEFT_BAD_FILE, path, "is damaged or truncated");
        return false;
    }
    weft_error_set(error, errno == ENOMEM ? WEFT_NO_MEMORY : WEFT_IO, path, "cannot be read: %s",
                   strerror(errno));
    return false;
}

void weft__text_list_line(weft_text_lines *lines, size_t number)
{
    if (lines->n < WEFT_TEXT_LISTED) lines->first[lines->n] = number;
    lines->n++;
}
