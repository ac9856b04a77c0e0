/* See streams.h. */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- gzip ---- */

static ssize_t read_gzip(void *file, char *buffer, size_t size)
{
    int failure = Z_OK, n = gzread(file, buffer, size < INT32_MAX ? (unsigned)size : INT32_MAX);
    if (n > 0) return n;
    gzerror(file, &failure);
    if (n == 0 && failure == Z_OK) return 0;
    if (failure == Z_MEM_ERROR)
        errno = ENOMEM;
    else if (failure != Z_ERRNO) /* damaged or truncated */
        errno = EBADMSG;
    return -1;
}

static int close_gzip(void *file)
{
    return gzclose_r(file) == Z_OK ? 0 : EOF;
}

static FILE *open_gzip(int descriptor)
{
    const cookie_io_functions_t functions = {.read = read_gzip, .close = close_gzip};
    gzFile file = gzdopen(descriptor, "rb");
    if (!file) {
        close(descriptor);
        errno = ENOMEM;
        return NULL;
    }
    FILE *stream = fopencookie(file, "r", functions);
    if (!stream) gzclose_r(file);
    return stream;
}

/* Whether a seekable file begins like gzip. */
static bool is_gzip(int descriptor)
{
    unsigned char magic[2];
    return pread(descriptor, magic, 2, 0) == 2 && magic[0] == 0x1F && magic[1] == 0x8B;
}

/* ---- Input that can be read only once ---- */

#define MAX_KEPT 64
static struct {
    char *path;
    int descriptor;
} kept[MAX_KEPT];
static size_t n_kept;

static int find_kept(const char *path)
{
    for (size_t i = 0; i < n_kept; i++)
        if (!strcmp(kept[i].path, path)) return kept[i].descriptor;
    return -1;
}

static bool copy_all(int from, int to)
{
    static char buffer[65536];
    for (;;) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0;
        for (ssize_t done = 0, written; done < n; done += written) {
            written = write(to, buffer + done, (size_t)(n - done));
            if (written < 0 && errno == EINTR) written = 0;
            if (written < 0) return false;
        }
    }
}

static int open_path(const char *path)
{
    return strcmp(path, "-") != 0 ? open(path, O_RDONLY | O_CLOEXEC)
                                  : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
}

static weft_status cannot(weft_error *error, const char *path, const char *what)
{
    return weft_error_set(error, errno == ENOMEM ? WEFT_NO_MEMORY : WEFT_IO, path,
                          "cannot be %s: %s", what, strerror(errno));
}

weft_status stream_keep(const char *path, weft_error *error)
{
    struct stat info;
    if (find_kept(path) >= 0) return WEFT_OK;
    if (strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode)) return WEFT_OK;
    if (n_kept == MAX_KEPT)
        return weft_error_set(error, WEFT_TOO_LARGE, path, "too many pipes: at most %d can be read",
                              MAX_KEPT);
    int from = open_path(path), to = -1;
    if (from < 0) return cannot(error, path, "opened");
    FILE *file = tmpfile();
    if (file) to = fcntl(fileno(file), F_DUPFD_CLOEXEC, 0);
    char *name = strdup(path);
    weft_status status = WEFT_OK;
    if (to < 0 || !name || !copy_all(from, to)) status = cannot(error, path, "read");
    if (file) fclose(file);
    close(from);
    if (status == WEFT_OK) {
        kept[n_kept].path = name;
        kept[n_kept++].descriptor = to;
        return WEFT_OK;
    }
    if (to >= 0) close(to);
    free(name);
    return status;
}

/* ---- Opening ---- */

FILE *stream_open(const char *path, weft_error *error)
{
    int again = find_kept(path);
    if (again < 0 && !strcmp(path, "-")) return stdin;
    int descriptor = again < 0 ? open_path(path) : fcntl(again, F_DUPFD_CLOEXEC, 0);
    if (descriptor >= 0 && again >= 0) lseek(descriptor, 0, SEEK_SET);
    FILE *file = descriptor < 0        ? NULL
                 : is_gzip(descriptor) ? open_gzip(descriptor)
                                       : fdopen(descriptor, "r");
    if (!file) cannot(error, path, "opened");
    return file;
}

void stream_close(FILE *file)
{
    if (file && file != stdin) fclose(file);
}
