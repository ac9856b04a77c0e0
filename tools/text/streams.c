/* See streams.h. */
#include "streams.h"

#include "base/platform.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* ---- gzip ---- */

static ptrdiff_t read_gzip(void *file, char *buffer, size_t size)
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
    gzFile file = gzdopen(descriptor, "rb");
    if (file) return system_open_source(&(stream_source){file, read_gzip, close_gzip});
    weft__os_close(descriptor);
    errno = ENOMEM;
    return NULL;
}

/* Whether a regular file begins like gzip. The descriptor will read from its beginning. */
static bool is_gzip(int descriptor)
{
    unsigned char magic[2];
    os_facts facts;
    if (!weft__os_facts_of(descriptor, &facts) || facts.kind != OS_FILE) return false;
    const bool gzip =
        weft__os_read(descriptor, magic, 2, 0) == 2 && magic[0] == 0x1F && magic[1] == 0x8B;
    return lseek(descriptor, 0, SEEK_SET) == 0 && gzip;
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
        ptrdiff_t n = read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0;
        for (ptrdiff_t done = 0, written; done < n; done += written) {
            written = weft__os_write(to, buffer + done, (size_t)(n - done));
            if (written < 0) return false;
        }
    }
}

static weft_status cannot(weft_error *error, const char *path, const char *what)
{
    /* Where streams cannot call functions, gzip is decompressed when it is opened. */
    if (errno == EBADMSG)
        return weft_error_set(error, WEFT_BAD_FILE, path, "is damaged or truncated");
    return weft_error_set(error, errno == ENOMEM ? WEFT_NO_MEMORY : WEFT_IO, path,
                          "cannot be %s: %s", what, strerror(errno));
}

weft_status stream_keep(const char *path, weft_error *error)
{
    os_facts facts;
    if (find_kept(path) >= 0) return WEFT_OK;
    if (strcmp(path, "-") != 0 && weft__os_facts(path, &facts) && facts.kind == OS_FILE)
        return WEFT_OK;
    if (n_kept == MAX_KEPT)
        return weft_error_set(error, WEFT_TOO_LARGE, path, "too many pipes: at most %d can be read",
                              MAX_KEPT);
    const int from = system_open_input(path);
    if (from < 0) return cannot(error, path, "opened");
    const int to = system_unnamed_file();
    char *name = strdup(path);
    weft_status status = WEFT_OK;
    if (to < 0 || !name || !copy_all(from, to)) status = cannot(error, path, "read");
    weft__os_close(from);
    if (status == WEFT_OK) {
        kept[n_kept].path = name;
        kept[n_kept++].descriptor = to;
        return WEFT_OK;
    }
    if (to >= 0) weft__os_close(to);
    free(name);
    return status;
}

/* ---- Opening ---- */

FILE *stream_open(const char *path, weft_error *error)
{
    int again = find_kept(path);
    if (again < 0 && !strcmp(path, "-")) return stdin;
    const int descriptor = again < 0 ? system_open_input(path) : weft__os_duplicate(again);
    FILE *file = descriptor < 0        ? NULL
                 : is_gzip(descriptor) ? open_gzip(descriptor)
                                       : fdopen(descriptor, "rb");
    if (!file) cannot(error, path, "opened");
    return file;
}

void stream_close(FILE *file)
{
    if (file && file != stdin) fclose(file);
}
