/* Files on POSIX systems: see platform.h. */
#include "platform.h"

#include "pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Memory that may be written counts when it is. */
#ifdef MAP_NORESERVE
#define WITHOUT_RESERVE MAP_NORESERVE
#else
#define WITHOUT_RESERVE 0
#endif

/* ---- Opening, reading, writing ---- */

/* Without O_NONBLOCK, the opening of a pipe would wait for a writer. Regular files ignore it. */
int weft__os_open(const char *path)
{
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0 || fcntl(descriptor, F_SETFL, O_RDONLY) == 0) return descriptor;
    const int problem = errno;
    close(descriptor);
    errno = problem;
    return -1;
}

int weft__os_open_new(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

int weft__os_open_stream(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

int weft__os_open_to_append(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

int weft__os_duplicate(int descriptor)
{
    return fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
}

ptrdiff_t weft__os_read(int descriptor, void *data, size_t bytes, uint64_t offset)
{
    ptrdiff_t n;
    do n = pread(descriptor, data, bytes, (off_t)offset);
    while (n < 0 && errno == EINTR);
    return n;
}

ptrdiff_t weft__os_write(int descriptor, const void *data, size_t bytes)
{
    ptrdiff_t n;
    do n = write(descriptor, data, bytes);
    while (n < 0 && errno == EINTR);
    return n;
}

/* The memory may be written, which does not change the file. */
void *weft__os_map(int descriptor, size_t bytes)
{
    void *data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | WITHOUT_RESERVE, descriptor, 0);
    return data == MAP_FAILED ? NULL : data;
}

void weft__os_unmap(void *data, size_t bytes)
{
    munmap(data, bytes);
}

void weft__os_forget(void *data, size_t bytes)
{
#ifdef MADV_DONTNEED
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data;
    const uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (first < end) madvise((char *)data + (first - begin), end - first, MADV_DONTNEED);
#else
    (void)data;
    (void)bytes;
#endif
}

void weft__os_zero(void *data, size_t bytes)
{
#ifdef __linux__ /* elsewhere pages may keep their contents */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data;
    const size_t whole = begin % page ? 0 : bytes / page * page;
    if (whole && madvise(data, whole, MADV_DONTNEED) == 0) {
        memset((char *)data + whole, 0, bytes - whole);
        return;
    }
#endif
    memset(data, 0, bytes);
}

/* ---- Names ---- */

bool weft__os_sync_folder(const char *folder)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const bool synced = fsync(descriptor) == 0;
    const int problem = errno;
    close(descriptor);
    errno = problem;
    return synced;
}

bool weft__os_real_path(const char *path, char *real, size_t size)
{
    char found[PATH_MAX];
    if (!realpath(path, found)) return false;
    const size_t length = strlen(found);
    if (length >= size) errno = ENAMETOOLONG;
    if (length < size) memcpy(real, found, length + 1);
    return length < size;
}

/* ---- Locks ---- */

bool weft__os_lock_new(int descriptor)
{
    struct stat info;
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return fstat(descriptor, &info) == 0 && info.st_nlink > 0;
}

void weft__os_remove_unlocked(const char *path)
{
    const int descriptor = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return;
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) (void)unlink(path);
    close(descriptor);
}

/* Opens a folder and locks it; -1 on failure. */
static int lock_folder(const char *folder, int kind)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 || flock(descriptor, kind | LOCK_NB) == 0) return descriptor;
    const int problem = errno;
    close(descriptor);
    errno = problem;
    return -1;
}

int weft__os_lock_folder(const char *folder)
{
    return lock_folder(folder, LOCK_EX);
}

bool weft__os_folder_is_locked(const char *folder)
{
    const int descriptor = lock_folder(folder, LOCK_SH);
    if (descriptor < 0) return errno == EWOULDBLOCK;
    close(descriptor);
    return false;
}
