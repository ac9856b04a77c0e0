/* text_file.h - lines of files, and their numbers. */
#ifndef WEFT_TEXT_FILE_H
#define WEFT_TEXT_FILE_H

#include <weft/text.h>

#include "base/private.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the next line, which may contain zeros, without its end (LF or CRLF). A zero byte follows its
 * `length` bytes. False at the end of the file or if it cannot be read. The caller frees *line. */
WEFT_PRIVATE_API bool weft__text_read_line(FILE *file, char **line, size_t *capacity,
                                           size_t *length);
/* Removes a byte order mark from the beginning of a file's first line. */
WEFT_PRIVATE_API void weft__text_skip_mark(char *line, size_t *length);
/* Whether a file has been read to its end; to be called right after weft__text_read_line failed. False, with the
 * error set, if reading failed, memory was out or what the file decompresses is damaged (EBADMSG).
 * Does not clear the error. */
WEFT_PRIVATE_API bool weft__text_at_end(FILE *file, const char *path, weft_error *error);
/* Adds the number of a line. */
WEFT_PRIVATE_API void weft__text_list_line(weft_text_lines *lines, size_t number);

#ifdef __cplusplus
}
#endif
#endif
