/* Text files as commands read them: gzip is read through, "-" is standard input, and what can be
 * read only once, such as a pipe, can be kept to be read again. */
#ifndef WEFT_TOOLS_STREAMS_H
#define WEFT_TOOLS_STREAMS_H

#include <weft/graph.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a file to be read with stdio; a gzip file (RFC 1952) gives what is compressed in it. After
 * the last read, stream_at_end tells whether all of it came. NULL after an error. */
FILE *stream_open(const char *path, weft_error *error);
/* Whether a file has been read to its end, asked right after getline found no more: false, with the
 * error set, if reading failed, memory was out or gzip is damaged. */
bool stream_at_end(FILE *file, const char *path, weft_error *error);
/* Closes it, unless it is standard input. NULL is nothing. */
void stream_close(FILE *file);
/* Makes a path that cannot be read twice (standard input, a pipe, a terminal) readable any number
 * of times by stream_open, until the program ends: what it gives is copied into a file without a
 * name. Regular files are left alone. Not for several threads. */
weft_status stream_keep(const char *path, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
