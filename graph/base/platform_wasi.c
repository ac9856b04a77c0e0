/* WebAssembly with WASI (preview 1), which has one thread, and no memory maps, locks of files,
 * libraries to load, or other processes: see platform.h. platform_unix.c has the rest. */
#include "platform.h"

#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wctype.h>

void weft__os_pause(uint32_t ns)
{
    (void)ns; /* nobody else would run */
}

/* ---- Memory ---- */

bool weft__os_huge_pages(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return true;
}

bool weft__os_has_space(size_t bytes, bool to_write)
{
    (void)to_write;
    void *volatile space = malloc(bytes);
    const bool has = space != NULL;
    free(space);
    return has;
}

/* ---- Processors and forks ---- */

int weft__os_processors(void)
{
    return 1;
}

size_t weft__os_cache_bytes(int threads)
{
    (void)threads;
    return 0;
}

size_t weft__os_stack_left(void)
{
    return SIZE_MAX;
}

bool weft__os_watch_forks(void (*before)(void), void (*after)(void), void (*in_child)(void))
{
    (void)before;
    (void)after;
    (void)in_child;
    return true;
}

bool weft__os_is_single_threaded(void)
{
    return true;
}

/* ---- Opening, reading, writing ---- */

int weft__os_open(const char *path)
{
    return open(path, O_RDONLY);
}

int weft__os_open_new(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
}

int weft__os_open_stream(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC);
}

int weft__os_open_to_append(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND);
}

int weft__os_duplicate(int descriptor)
{
    (void)descriptor;
    errno = ENOTSUP;
    return -1;
}

ptrdiff_t weft__os_read(int descriptor, void *data, size_t bytes, uint64_t offset)
{
    return pread(descriptor, data, bytes, (off_t)offset);
}

ptrdiff_t weft__os_write(int descriptor, const void *data, size_t bytes)
{
    return write(descriptor, data, bytes);
}

void *weft__os_map(int descriptor, size_t bytes)
{
    char *data = malloc(bytes ? bytes : 1);
    for (size_t done = 0; data && done < bytes;) {
        const ptrdiff_t n = pread(descriptor, data + done, bytes - done, (off_t)done);
        if (n <= 0) {
            free(data);
            return NULL;
        }
        done += (size_t)n;
    }
    return data;
}

void weft__os_unmap(void *data, size_t bytes)
{
    (void)bytes;
    free(data);
}

void weft__os_forget(void *data, size_t bytes)
{
    (void)data;
    (void)bytes;
}

void weft__os_zero(void *data, size_t bytes)
{
    memset(data, 0, bytes);
}

/* ---- Names ---- */

bool weft__os_sync_folder(const char *folder)
{
    (void)folder; /* WASI opens no folder to sync it */
    return true;
}

/* Links are not followed. */
bool weft__os_real_path(const char *path, char *real, size_t size)
{
    const size_t length = strlen(path);
    if (length >= size) errno = ENAMETOOLONG;
    if (length < size) memcpy(real, path, length + 1);
    return length < size;
}

/* ---- Locks ---- */

bool weft__os_lock_new(int descriptor)
{
    (void)descriptor;
    return true;
}

/* Without locks, nobody knows which of them are still being written. */
void weft__os_remove_unlocked(const char *path)
{
    (void)path;
}

int weft__os_lock_folder(const char *folder)
{
    (void)folder;
    errno = ENOTSUP;
    return -1;
}

bool weft__os_folder_is_locked(const char *folder)
{
    (void)folder;
    return false;
}

/* ---- The process ---- */

uint64_t weft__os_process(void)
{
    return 1;
}

void *weft__os_library(const char *const *names)
{
    (void)names;
    return NULL;
}

void *weft__os_symbol(void *library, const char *name, void *symbol)
{
    (void)library;
    (void)name;
    *(void **)symbol = NULL;
    return NULL;
}

void weft__os_library_path(void *symbol, char *path, size_t size)
{
    (void)symbol;
    if (size) *path = 0;
}

/* ---- Texts ---- */

/* WASI has the C locale alone. */
os_locale weft__os_enter_c_locale(void)
{
    return (os_locale){NULL, NULL};
}

void weft__os_leave_c_locale(os_locale locale)
{
    (void)locale;
}

int32_t weft__os_lowercase(int32_t character)
{
    return (int32_t)towlower((wint_t)character);
}
