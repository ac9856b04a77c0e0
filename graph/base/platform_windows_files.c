/* Files on Windows: see platform.h. Every file is opened so that others may rename and remove it
 * meanwhile, as on POSIX systems. */
#include "platform_windows.h"

#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- Errors and paths ---- */

void weft__windows_set_errno(void)
{
    static const struct {
        DWORD error;
        int number;
    } known[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},    {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},      {ERROR_BAD_NETPATH, ENOENT},
        {ERROR_ACCESS_DENIED, EACCES},     {ERROR_SHARING_VIOLATION, EACCES},
        {ERROR_WRITE_PROTECT, EROFS},      {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
        {ERROR_FILE_EXISTS, EEXIST},       {ERROR_ALREADY_EXISTS, EEXIST},
        {ERROR_DISK_FULL, ENOSPC},         {ERROR_HANDLE_DISK_FULL, ENOSPC},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM}, {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
        {ERROR_BROKEN_PIPE, EPIPE},        {ERROR_NO_DATA, EPIPE},
        {ERROR_INVALID_HANDLE, EBADF},
    };
    const DWORD error = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].error == error) errno = known[i].number;
}

bool weft__windows_widen(const char *path, wide_path wide)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, PATH_UNITS)) return true;
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
    return false;
}

HANDLE weft__windows_handle(int descriptor)
{
    return (HANDLE)_get_osfhandle(descriptor);
}

/* ---- Opening, reading, writing ---- */

HANDLE weft__windows_open(const char *path, DWORD access, DWORD creation, DWORD flags)
{
    wide_path wide;
    if (!weft__windows_widen(path, wide)) return INVALID_HANDLE_VALUE;
    const HANDLE handle =
        CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    creation, FILE_ATTRIBUTE_NORMAL | flags, NULL);
    if (handle == INVALID_HANDLE_VALUE) weft__windows_set_errno();
    return handle;
}

int weft__windows_descriptor(HANDLE handle, int mode)
{
    if (handle == INVALID_HANDLE_VALUE) return -1;
    const int descriptor = _open_osfhandle((intptr_t)handle, mode | _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0) CloseHandle(handle);
    return descriptor;
}

static int open_descriptor(const char *path, DWORD access, DWORD creation, DWORD flags)
{
    return weft__windows_descriptor(weft__windows_open(path, access, creation, flags),
                                    access & GENERIC_WRITE ? _O_WRONLY : _O_RDONLY);
}

static bool facts_of(HANDLE handle, os_facts *facts)
{
    BY_HANDLE_FILE_INFORMATION info;
    *facts = (os_facts){OS_DEVICE, 0};
    if (GetFileType(handle) != FILE_TYPE_DISK) return true;
    if (!GetFileInformationByHandle(handle, &info)) {
        weft__windows_set_errno();
        return false;
    }
    facts->kind = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? OS_FOLDER : OS_FILE;
    facts->bytes = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
    return true;
}

bool weft__os_facts(const char *path, os_facts *facts)
{
    const HANDLE handle =
        weft__windows_open(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (handle == INVALID_HANDLE_VALUE) return false;
    const bool good = facts_of(handle, facts);
    CloseHandle(handle);
    return good;
}

bool weft__os_facts_of(int descriptor, os_facts *facts)
{
    return facts_of(weft__windows_handle(descriptor), facts);
}

/* Folders are opened too, so that the caller can say what they are. */
int weft__os_open(const char *path)
{
    return open_descriptor(path, GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
}

int weft__os_open_new(const char *path)
{
    return open_descriptor(path, GENERIC_WRITE | DELETE, CREATE_NEW, 0);
}

int weft__os_open_stream(const char *path)
{
    return open_descriptor(path, GENERIC_WRITE, CREATE_ALWAYS, 0);
}

int weft__os_open_to_append(const char *path)
{
    return weft__windows_descriptor(
        weft__windows_open(path, FILE_APPEND_DATA | SYNCHRONIZE, OPEN_ALWAYS, 0),
        _O_WRONLY | _O_APPEND);
}

int weft__os_duplicate(int descriptor)
{
    return _dup(descriptor);
}

bool weft__os_close(int descriptor)
{
    return _close(descriptor) == 0;
}

static unsigned at_once(size_t bytes)
{
    return bytes < INT_MAX ? (unsigned)bytes : INT_MAX;
}

ptrdiff_t weft__os_read(int descriptor, void *data, size_t bytes, uint64_t offset)
{
    OVERLAPPED at = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
    DWORD n = 0;
    if (ReadFile(weft__windows_handle(descriptor), data, at_once(bytes), &n, &at)) return n;
    if (GetLastError() == ERROR_HANDLE_EOF) return 0;
    weft__windows_set_errno();
    return -1;
}

ptrdiff_t weft__os_write(int descriptor, const void *data, size_t bytes)
{
    return _write(descriptor, data, at_once(bytes));
}

/* The view keeps the mapping. It may be written, which does not change the file. */
void *weft__os_map(int descriptor, size_t bytes)
{
    const HANDLE mapping =
        CreateFileMappingW(weft__windows_handle(descriptor), NULL, PAGE_WRITECOPY, 0, 0, NULL);
    void *data = mapping ? MapViewOfFile(mapping, FILE_MAP_COPY, 0, 0, bytes) : NULL;
    if (!data) weft__windows_set_errno();
    if (mapping) CloseHandle(mapping);
    return data;
}

void weft__os_unmap(void *data, size_t bytes)
{
    (void)bytes;
    UnmapViewOfFile(data);
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

ptrdiff_t weft__os_read_line(char **line, size_t *capacity, FILE *file)
{
    size_t n = 0;
    int c = 0;
    if (!*line) *capacity = 0;
    while (c != '\n' && (c = getc(file)) != EOF) {
        if (*capacity - n < 2 || !*line) {
            const size_t more = *capacity ? 2 * *capacity : 128;
            char *grown = realloc(*line, more);
            if (!grown) return -1;
            *line = grown;
            *capacity = more;
        }
        (*line)[n++] = (char)c;
    }
    if (!n || ferror(file)) return -1;
    (*line)[n] = 0;
    return (ptrdiff_t)n;
}

bool weft__os_sync(int descriptor)
{
    if (FlushFileBuffers(weft__windows_handle(descriptor))) return true;
    weft__windows_set_errno();
    return false;
}
