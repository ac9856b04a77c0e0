/* base/file.h - the one opener of files that are read, and files that are written whole, or not at
 * all.
 *
 * The bytes go into a temporary file of a unique name in the folder of PATH: NAME.XXXXXXXXXXXX.tmp,
 * where NAME is the last component of PATH and each X a hexadecimal digit. When they are complete
 * and on the disk, the temporary file is renamed to PATH. A reader of PATH sees the old file or the
 * new one, however many writers there are; the last one to finish wins. If PATH is a symbolic link,
 * the link is replaced and its target does not change. A writer holds a lock (flock) on its
 * temporary file. A process that is killed leaves the file without its lock, and the next writer of
 * the same name removes it. Not installed.
 */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <weft/graph.h>

#include "private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the longest path, with its final NUL. */
#define FILE_PATH_BYTES 4096

/* ---- Reading ---- */

/* Whether a file or a folder has that path. */
WEFT_PRIVATE_API bool weft__file_exists(const char *path);
/* Opens a regular file to read it; -1 with errno set on failure. Never waits: a pipe, device or
 * socket is refused with FILE_NOT_REGULAR, a folder with EISDIR. */
WEFT_PRIVATE_API int weft__file_open(const char *path);
/* The same as a stream of stdio; NULL on failure. */
WEFT_PRIVATE_API FILE *weft__file_open_stdio(const char *path);
/* For a reader that needs its bytes only once and in order: weft__file_open, which also accepts
 * open files, such as a pipe: /dev/stdin, /dev/fd/N, and names in /proc. */
int weft__file_open_once(const char *path);
/* The bytes of a file that weft__file_open_once opens, followed by a zero; the caller frees them.
 * NULL on failure. Does not clear the error. */
WEFT_PRIVATE_API char *weft__file_read(const char *path, size_t *bytes, weft_error *error);
#define FILE_NOT_REGULAR ESPIPE
/* The status of an errno of these functions: WEFT_NOT_FOUND, WEFT_BAD_FILE for anything but a
 * regular file, and otherwise WEFT_IO, including folders. */
WEFT_PRIVATE_API weft_status weft__file_status(int number);
/* strerror for these functions. */
WEFT_PRIVATE_API const char *weft__file_error(int number);

/* ---- Writing ---- */

typedef struct file_writer {
    const char *path;                /* the caller's; must live until commit or abandon */
    int descriptor;                  /* open for writing */
    int error;                       /* errno of the first failure, 0 if there was none */
    char temporary[FILE_PATH_BYTES]; /* name of the temporary file; "" for a stream */
} file_writer;

/* Whether PATH, or the target of the link PATH, cannot be replaced by a file: a device, a pipe, a
 * socket, a folder, or the name of an open file (/dev/stdout, /dev/fd/N, anything in /proc). */
bool weft__file_is_stream(const char *path);

/* Opens the temporary file, with mode 0666 less the umask. Returns false with errno set on failure
 * (FILE_NOT_REGULAR if PATH is a stream); there is nothing to abandon then. Never blocks. */
WEFT_PRIVATE_API bool weft__file_begin(file_writer *w, const char *path);
/* The same, but accepts a stream, which receives the bytes as they are written. Opening a pipe
 * blocks until it has a reader. */
bool weft__file_begin_stream(file_writer *w, const char *path);
/* Appends bytes. After a failure, which weft__file_commit reports, further bytes are ignored. */
WEFT_PRIVATE_API void weft__file_write(file_writer *w, const void *data, size_t bytes);
/* Syncs the temporary file and renames it to PATH. After any failure since weft__file_begin it
 * abandons the file instead and returns false with errno set. */
WEFT_PRIVATE_API bool weft__file_commit(file_writer *w);
/* Removes the temporary file; PATH does not change, nor does errno. */
WEFT_PRIVATE_API void weft__file_abandon(file_writer *w);
/* weft__file_begin, weft__file_write and weft__file_commit in one call. */
WEFT_PRIVATE_API bool weft__file_replace(const char *path, const void *data, size_t bytes);
/* The same with weft__file_begin_stream. */
bool weft__file_replace_stream(const char *path, const void *data, size_t bytes);

/* Removes the temporary files of `name` that killed processes left in a folder, those whose lock is
 * free; none where the file system has no locks. weft__file_begin does so for its own name.
 * O(entries of the folder). */
void weft__file_remove_leftovers(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif
#endif
