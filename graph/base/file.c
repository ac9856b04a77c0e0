/* Files that are written under a temporary name, synced, and renamed: see file.h. */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef NAME_MAX
#define NAME_MAX 255
#endif

#define UNIQUE_DIGITS 12
#define SUFFIX_BYTES  (1 + UNIQUE_DIGITS + 4) /* ".XXXXXXXXXXXX.tmp" */
#define MAX_ATTEMPTS  100

bool file_is_stream(const char *path)
{
    /* These may resolve to regular files, but their names must not be replaced. */
    static const char *const descriptors[] = {"/dev/std", "/dev/fd/", "/proc/"};
    struct stat info;
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++)
        if (!strncmp(path, descriptors[i], strlen(descriptors[i]))) return true;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

/* ---- Names ---- */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

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
    const uint64_t parts[] = {(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, (uint64_t)getpid(),
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

void file_remove_leftovers(const char *folder, const char *name)
{
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (const struct dirent *e = readdir(entries); e; e = readdir(entries))
        if (is_leftover(e->d_name, name)) (void)unlinkat(dirfd(entries), e->d_name, 0);
    closedir(entries);
}

/* ---- Writing ---- */

bool file_begin(file_writer *w, const char *path)
{
    const char *name = name_of(path);
    size_t folder = (size_t)(name - path), stem = stem_bytes(name);
    *w = (file_writer){.path = path, .descriptor = -1};
    if (!*name || file_is_stream(path)) {
        errno = EINVAL;
        return false;
    }
    if (strlen(path) >= FILE_PATH_BYTES || folder + stem + SUFFIX_BYTES >= FILE_PATH_BYTES) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (uint64_t attempt = 0; w->descriptor < 0 && attempt < MAX_ATTEMPTS; attempt++) {
        snprintf(w->temporary, sizeof w->temporary, "%.*s%.*s.%0*llx.tmp", (int)folder, path,
                 (int)stem, name, UNIQUE_DIGITS,
                 (unsigned long long)(unique_number(w, attempt) >> (64 - 4 * UNIQUE_DIGITS)));
        w->descriptor =
            open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (w->descriptor < 0 && errno != EEXIST && errno != EINTR) break;
    }
    return w->descriptor >= 0;
}

bool file_begin_stream(file_writer *w, const char *path)
{
    if (!file_is_stream(path)) return file_begin(w, path);
    *w = (file_writer){.path = path};
    w->descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->descriptor >= 0;
}

void file_write(file_writer *w, const void *data, size_t bytes)
{
    for (const char *at = data; bytes && !w->error;) {
        ssize_t n = write(w->descriptor, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            w->error = n < 0 ? errno : EIO;
            return;
        }
        at += n;
        bytes -= (size_t)n;
    }
}

/* Makes the rename itself durable. A failure is ignored: the file already has its name. */
static void sync_folder(file_writer *w)
{
    size_t length = (size_t)(name_of(w->path) - w->path);
    snprintf(w->temporary, sizeof w->temporary, "%.*s", length ? (int)length : 1,
             length ? w->path : ".");
    int folder = open(w->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    (void)fsync(folder);
    close(folder);
}

/* Remembers errno if `result` is a failure and the first one. */
static void record_error(file_writer *w, int result)
{
    if (result != 0 && !w->error) w->error = errno;
}

bool file_commit(file_writer *w)
{
    bool stream = !w->temporary[0];
    if (!stream && !w->error) record_error(w, fsync(w->descriptor));
    record_error(w, close(w->descriptor));
    w->descriptor = -1;
    if (!stream && !w->error) record_error(w, rename(w->temporary, w->path));
    if (w->error) {
        errno = w->error;
        file_abandon(w);
        return false;
    }
    if (!stream) sync_folder(w);
    return true;
}

void file_abandon(file_writer *w)
{
    int before = errno;
    if (w->descriptor >= 0) close(w->descriptor);
    if (w->temporary[0]) unlink(w->temporary);
    *w = (file_writer){.descriptor = -1};
    errno = before;
}

bool file_replace(const char *path, const void *data, size_t bytes)
{
    file_writer w;
    if (!file_begin_stream(&w, path)) return false;
    file_write(&w, data, bytes);
    return file_commit(&w);
}
