/* base/file.h - files that are written whole, or not at all.
 *
 * The bytes go into a new file in the folder of PATH, under a unique name that nobody else has
 * open: NAME.XXXXXXXXXXXX.tmp, NAME being that of PATH and each X a hexadecimal digit. When they
 * are complete and on the disk, that file is renamed to PATH. Whoever reads PATH has the old file
 * or the new one, whatever the number of writers; the last one to finish wins. If PATH is a
 * symbolic link, the link is replaced and its target stays as it is. A process that is killed
 * leaves its temporary file behind: see file_remove_leftovers. Not installed.
 */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A path must be shorter. */
#define FILE_PATH_BYTES 4096

typedef struct file_writer {
    const char *path;                /* the caller's: must live until commit or abandon */
    int descriptor;                  /* open for writing */
    int error;                       /* errno of the first failure, 0 if there was none */
    char temporary[FILE_PATH_BYTES]; /* "" while a stream is written */
} file_writer;

/* Whether PATH, or the target of a link PATH, takes bytes but cannot be replaced: a device, a pipe,
 * a socket, a folder, or a name of an open file (/dev/stdout, /dev/fd/N, anything in /proc). */
bool file_is_stream(const char *path);

/* Begins a new file, with the mode that the umask leaves of 0666. False, with errno set and nothing
 * to abandon, on failure; EINVAL if PATH is a stream. Never waits. */
bool file_begin(file_writer *w, const char *path);
/* The same, but a stream is opened and gets the bytes as they come. A pipe waits for its reader. */
bool file_begin_stream(file_writer *w, const char *path);
/* A failure is remembered for file_commit, and further bytes are ignored. */
void file_write(file_writer *w, const void *data, size_t bytes);
/* Puts the new file in the place of PATH. On any failure since file_begin: abandons it and returns
 * false with errno set. */
bool file_commit(file_writer *w);
/* Removes the new file; PATH is as it was. Keeps errno. */
void file_abandon(file_writer *w);
/* file_begin_stream, file_write and file_commit. */
bool file_replace(const char *path, const void *data, size_t bytes);

/* Removes the temporary files for `name` that killed processes left in a folder. Only for callers
 * that know that nobody writes this file now. */
void file_remove_leftovers(const char *folder, const char *name);

#ifdef __cplusplus
}
#endif
#endif
