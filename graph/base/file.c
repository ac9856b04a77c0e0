/* Files that are read, and files that are written under a temporary name, synced, and renamed: see
 * file.h. */
#include "file.h"
#include "log.h"
#include "platform.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef NAME_MAX
#define NAME_MAX 255
#endif

#define UNIQUE_DIGITS 12
#define SUFFIX_BYTES  (1 + UNIQUE_DIGITS + 4) /* ".XXXXXXXXXXXX.tmp" */
#define MAX_ATTEMPTS  100

/* Whether a path names an open file: /dev/stdout, /dev/fd/N. */
static bool is_open_already(const char *path)
{
    static const char *const descriptors[] = {"/dev/std", "/dev/fd/", "/proc/"};
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++)
        if (!strncmp(path, descriptors[i], strlen(descriptors[i]))) return true;
    return false;
}

bool weft__file_is_stream(const char *path)
{
    os_facts facts;
    /* The first may resolve to regular files, but their names must not be replaced. */
    return is_open_already(path) || (weft__os_facts(path, &facts) && facts.kind != OS_FILE);
}

/* ---- Reading ---- */

bool weft__file_exists(const char *path)
{
    os_facts facts;
    return weft__os_facts(path, &facts);
}

static int open_checked(const char *path, bool once)
{
    os_facts facts;
    const int descriptor = weft__os_open(path);
    if (descriptor < 0) return -1;
    int problem = 0;
    if (!weft__os_facts_of(descriptor, &facts))
        problem = errno;
    else if (facts.kind == OS_FOLDER)
        problem = EISDIR;
    else if (facts.kind == OS_DEVICE && !once)
        problem = FILE_NOT_REGULAR;
    if (!problem) return descriptor;
    weft__os_close(descriptor);
    errno = problem;
    return -1;
}

int weft__file_open(const char *path)
{
    return open_checked(path, false);
}

int weft__file_open_once(const char *path)
{
    return open_checked(path, is_open_already(path));
}

FILE *weft__file_open_stdio(const char *path)
{
    const int descriptor = weft__file_open(path);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (!file && descriptor >= 0) weft__os_close(descriptor);
    return file;
}

/* The whole of a stream, followed by a zero byte; NULL with errno set on failure. */
static char *read_all(FILE *file, size_t *bytes)
{
    char *data = NULL;
    size_t capacity = 0;
    *bytes = 0;
    while (!feof(file) && !ferror(file)) {
        if (capacity - *bytes < 2) {
            capacity = capacity ? 2 * capacity : 65536;
            char *grown = realloc(data, capacity);
            if (!grown) break;
            data = grown;
        }
        *bytes += fread(data + *bytes, 1, capacity - *bytes - 1, file);
    }
    if (feof(file) && !ferror(file)) {
        data[*bytes] = 0;
        return data;
    }
    const int failure = errno;
    free(data);
    errno = failure;
    return NULL;
}

char *weft__file_read(const char *path, size_t *bytes, weft_error *error)
{
    const int descriptor = weft__file_open_once(path);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (!file) {
        weft_error_set(error, weft__file_status(errno), path, "cannot be opened: %s",
                       weft__file_error(errno));
        if (descriptor >= 0) weft__os_close(descriptor);
        return NULL;
    }
    char *data = read_all(file, bytes);
    if (!data && errno == ENOMEM)
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    else if (!data)
        weft_error_set(error, WEFT_IO, path, "cannot be read: %s", strerror(errno));
    fclose(file);
    return data;
}

weft_status weft__file_status(int number)
{
    return number == ENOENT ? WEFT_NOT_FOUND : number == FILE_NOT_REGULAR ? WEFT_BAD_FILE : WEFT_IO;
}

const char *weft__file_error(int number)
{
    return number == FILE_NOT_REGULAR ? "not a regular file" : strerror(number);
}

/* ---- Names ---- */

/* Bytes of a name that fit before the suffix, without cutting a UTF-8 character. */
static size_t stem_bytes(const char *name)
{
    size_t n = strlen(name);
    if (n <= NAME_MAX - SUFFIX_BYTES) return n;
    n = NAME_MAX - SUFFIX_BYTES;
    while (n > 0 && ((unsigned char)name[n] & 0xC0) == 0x80) n--;
    return n;
}

/* A number that differs between processes, threads, times and attempts. A collision costs one more
 * attempt. The mixing is that of splitmix64. */
static uint64_t unique_number(const file_writer *w, uint64_t attempt)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t parts[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, weft__os_process(),
                              (uint64_t)(uintptr_t)w, attempt};
    uint64_t z = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        z += parts[i] + 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return z;
}

static bool is_leftover(const char *entry, const char *name)
{
    size_t stem = stem_bytes(name);
    if (strncmp(entry, name, stem) != 0 || entry[stem] != '.') return false;
    const char *digits = entry + stem + 1;
    return strspn(digits, "0123456789abcdef") == UNIQUE_DIGITS &&
           !strcmp(digits + UNIQUE_DIGITS, ".tmp");
}

typedef struct leftovers {
    const char *folder, *name;
} leftovers;

/* Removes a temporary file if its lock is free, so its writer has ended. */
static void remove_leftover(void *context, const char *entry)
{
    const leftovers *l = context;
    char path[FILE_PATH_BYTES];
    if (!is_leftover(entry, l->name)) return;
    if (snprintf(path, sizeof path, "%s/%s", l->folder, entry) < FILE_PATH_BYTES)
        weft__os_remove_unlocked(path);
}

void weft__file_remove_leftovers(const char *folder, const char *name)
{
    leftovers l = {folder, name};
    weft__os_list(folder, remove_leftover, &l);
}

/* ---- Writing ---- */

/* Makes a temporary file with a unique name, and locks it, unless another process found it before
 * that and removes it. False with errno set on failure. */
static bool make_temporary(file_writer *w, int folder_bytes, int stem)
{
    for (uint64_t attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        snprintf(w->temporary, sizeof w->temporary, "%.*s%.*s.%0*llx.tmp", folder_bytes, w->path,
                 stem, weft__os_name(w->path), UNIQUE_DIGITS,
                 (unsigned long long)(unique_number(w, attempt) >> (64 - 4 * UNIQUE_DIGITS)));
        w->descriptor = weft__os_open_new(w->temporary);
        if (w->descriptor < 0 && errno != EEXIST && errno != EINTR) return false;
        if (w->descriptor < 0) continue;
        if (weft__os_lock_new(w->descriptor)) return true;
        weft__os_close(w->descriptor);
        w->descriptor = -1;
        errno = EEXIST;
    }
    return false;
}

/* Writes the folder of a path to `text`, "." if the path has none. */
static void folder_of(const char *path, char *text, size_t size)
{
    const size_t length = (size_t)(weft__os_name(path) - path);
    snprintf(text, size, "%.*s", length ? (int)length : 1, length ? path : ".");
}

bool weft__file_begin(file_writer *w, const char *path)
{
    const char *name = weft__os_name(path);
    size_t folder = (size_t)(name - path), stem = stem_bytes(name);
    *w = (file_writer){.path = path, .descriptor = -1};
    if (!*name || weft__file_is_stream(path)) {
        errno = *name ? FILE_NOT_REGULAR : EINVAL;
        return false;
    }
    if (strlen(path) >= FILE_PATH_BYTES || folder + stem + SUFFIX_BYTES >= FILE_PATH_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    folder_of(path, w->temporary, sizeof w->temporary);
    weft__file_remove_leftovers(w->temporary, name);
    return make_temporary(w, (int)folder, (int)stem);
}

bool weft__file_begin_stream(file_writer *w, const char *path)
{
    if (!weft__file_is_stream(path)) return weft__file_begin(w, path);
    *w = (file_writer){.path = path};
    w->descriptor = weft__os_open_stream(path);
    return w->descriptor >= 0;
}

void weft__file_write(file_writer *w, const void *data, size_t bytes)
{
    for (const char *at = data; bytes && !w->error;) {
        const ptrdiff_t n = weft__os_write(w->descriptor, at, bytes);
        if (n <= 0) {
            w->error = n < 0 ? errno : EIO;
            return;
        }
        at += n;
        bytes -= (size_t)n;
    }
}

/* Makes the rename itself durable. A failure is reported only: the file already has its name. */
static void sync_folder(file_writer *w)
{
    folder_of(w->path, w->temporary, sizeof w->temporary);
    if (!weft__os_sync_folder(w->temporary))
        weft__log(
            WEFT_LOG_WARNING, w->path,
            "was written, but a crash of the system may undo it: its folder cannot be synced: "
            "%s",
            strerror(errno));
}

/* Remembers errno after the first failure. */
static void record_error(file_writer *w, bool good)
{
    if (!good && !w->error) w->error = errno;
}

bool weft__file_commit(file_writer *w)
{
    bool stream = !w->temporary[0];
    /* Closing may fail, which must be known before the file is renamed. This keeps the lock until
     * then. */
    int lock = -1;
    if (!stream && !w->error) record_error(w, weft__os_sync(w->descriptor));
    if (!stream && !w->error) {
        lock = weft__os_duplicate(w->descriptor);
        record_error(w, lock >= 0 || errno == ENOTSUP); /* a system without locks */
    }
    record_error(w, weft__os_close(w->descriptor));
    w->descriptor = -1;
    if (!stream && !w->error) record_error(w, weft__os_rename(w->temporary, w->path));
    if (lock >= 0) weft__os_close(lock);
    if (w->error) {
        errno = w->error;
        weft__file_abandon(w);
        return false;
    }
    if (!stream) sync_folder(w);
    return true;
}

void weft__file_abandon(file_writer *w)
{
    int before = errno;
    if (w->descriptor >= 0) weft__os_close(w->descriptor);
    if (w->temporary[0]) weft__os_remove(w->temporary);
    *w = (file_writer){.descriptor = -1};
    errno = before;
}

static bool replace(file_writer *w, bool begun, const void *data, size_t bytes)
{
    if (!begun) return false;
    weft__file_write(w, data, bytes);
    return weft__file_commit(w);
}

bool weft__file_replace(const char *path, const void *data, size_t bytes)
{
    file_writer w;
    return replace(&w, weft__file_begin(&w, path), data, bytes);
}

bool weft__file_replace_stream(const char *path, const void *data, size_t bytes)
{
    file_writer w;
    return replace(&w, weft__file_begin_stream(&w, path), data, bytes);
}
