/* Text files as commands read them: gzip is decompressed, "-" is standard input, and input that can
 * be read only once, such as a pipe, can be copied to be read again. */
#ifndef WEFT_TOOLS_STREAMS_H
#define WEFT_TOOLS_STREAMS_H

#include <weft/graph.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a file for reading with stdio, and decompresses gzip (RFC 1952). After the last read,
 * weft__text_at_end checks that all of it was read: damaged gzip fails with EBADMSG. NULL after an
 * error. */
FILE *stream_open(const char *path, weft_error *error);
/* Closes it, unless it is standard input. NULL is ignored. */
void stream_close(FILE *file);
/* Makes a path that can be read only once (standard input, a pipe, a terminal) readable any number
 * of times by stream_open, until the program ends: its bytes are copied into an unnamed file.
 * Regular files are left alone. Not for several threads. */
weft_status stream_keep(const char *path, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
