/* Files on Windows: see platform.h. Every file is opened so that others may rename and remove it
 * meanwhile, as on POSIX systems. */
#define WIN32_LEAN_AND_MEAN
#define _WIN32_WINNT 0x0A000002 /* Windows 10 of 2016: FileRenameInfoEx */
#include "platform.h"

#include <windows.h>

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PATH_UNITS 4096
typedef WCHAR wide_path[PATH_UNITS];

/* ---- Errors and paths ---- */

/* Sets errno for the last error of the system. */
static void set_errno(void)
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

static bool widen(const char *path, wide_path wide)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, PATH_UNITS)) return true;
    errno = GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
    return false;
}

static HANDLE handle_of(int descriptor)
{
    return (HANDLE)_get_osfhandle(descriptor);
}

/* ---- Opening, reading, writing ---- */

static HANDLE open_handle(const char *path, DWORD access, DWORD creation, DWORD flags)
{
    wide_path wide;
    if (!widen(path, wide)) return INVALID_HANDLE_VALUE;
    const HANDLE handle =
        CreateFileW(wide, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    creation, FILE_ATTRIBUTE_NORMAL | flags, NULL);
    if (handle == INVALID_HANDLE_VALUE) set_errno();
    return handle;
}

static int open_descriptor(const char *path, DWORD access, DWORD creation, DWORD flags)
{
    const HANDLE handle = open_handle(path, access, creation, flags);
    if (handle == INVALID_HANDLE_VALUE) return -1;
    const int mode = access & GENERIC_WRITE ? _O_WRONLY : _O_RDONLY;
    const int descriptor = _open_osfhandle((intptr_t)handle, mode | _O_BINARY | _O_NOINHERIT);
    if (descriptor < 0) CloseHandle(handle);
    return descriptor;
}

static bool facts_of(HANDLE handle, os_facts *facts)
{
    BY_HANDLE_FILE_INFORMATION info;
    *facts = (os_facts){OS_DEVICE, 0};
    if (GetFileType(handle) != FILE_TYPE_DISK) return true;
    if (!GetFileInformationByHandle(handle, &info)) {
        set_errno();
        return false;
    }
    facts->kind = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? OS_FOLDER : OS_FILE;
    facts->bytes = (uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow;
    return true;
}

bool weft__os_facts(const char *path, os_facts *facts)
{
    const HANDLE handle =
        open_handle(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (handle == INVALID_HANDLE_VALUE) return false;
    const bool good = facts_of(handle, facts);
    CloseHandle(handle);
    return good;
}

bool weft__os_facts_of(int descriptor, os_facts *facts)
{
    return facts_of(handle_of(descriptor), facts);
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
    if (ReadFile(handle_of(descriptor), data, at_once(bytes), &n, &at)) return n;
    if (GetLastError() == ERROR_HANDLE_EOF) return 0;
    set_errno();
    return -1;
}

ptrdiff_t weft__os_write(int descriptor, const void *data, size_t bytes)
{
    return _write(descriptor, data, at_once(bytes));
}

/* The view keeps the mapping. */
void *weft__os_map(int descriptor, size_t bytes)
{
    const HANDLE mapping =
        CreateFileMappingW(handle_of(descriptor), NULL, PAGE_READONLY, 0, 0, NULL);
    void *data = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, bytes) : NULL;
    if (!data) set_errno();
    if (mapping) CloseHandle(mapping);
    return data;
}

void weft__os_unmap(void *data, size_t bytes)
{
    (void)bytes;
    UnmapViewOfFile(data);
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

/* ---- Names ---- */

/* True, or false with errno set. */
static bool good_or_errno(BOOL good)
{
    if (!good) set_errno();
    return good;
}

bool weft__os_sync(int descriptor)
{
    return good_or_errno(FlushFileBuffers(handle_of(descriptor)));
}

/* MOVEFILE_WRITE_THROUGH does it for renamed files. */
bool weft__os_sync_folder(const char *folder)
{
    (void)folder;
    return true;
}

/* As on POSIX systems: a file that is open keeps its contents for who has opened it. */
static bool rename_posix(HANDLE handle, const wide_path to)
{
    union {
        FILE_RENAME_INFO info;
        char bytes[sizeof(FILE_RENAME_INFO) + sizeof(wide_path)];
    } r = {.info = {.Flags = FILE_RENAME_FLAG_REPLACE_IF_EXISTS | FILE_RENAME_FLAG_POSIX_SEMANTICS,
                    .FileNameLength = (DWORD)(wcslen(to) * sizeof(WCHAR))}};
    memcpy(r.info.FileName, to, r.info.FileNameLength + sizeof(WCHAR));
    return SetFileInformationByHandle(handle, FileRenameInfoEx, &r, sizeof r);
}

/* Not every file system can do the first, nor Wine; the second fails if the old file is open. */
bool weft__os_rename(const char *from, const char *to)
{
    wide_path wide_from, wide_to;
    if (!widen(from, wide_from) || !widen(to, wide_to)) return false;
    const HANDLE handle = open_handle(from, DELETE, OPEN_EXISTING,
                                      FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_WRITE_THROUGH);
    const bool renamed = handle != INVALID_HANDLE_VALUE && rename_posix(handle, wide_to);
    if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
    return renamed || good_or_errno(MoveFileExW(
                          wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH));
}

bool weft__os_remove(const char *path)
{
    wide_path wide;
    return widen(path, wide) && good_or_errno(DeleteFileW(wide));
}

bool weft__os_make_folder(const char *path)
{
    wide_path wide;
    return widen(path, wide) && good_or_errno(CreateDirectoryW(wide, NULL));
}

void weft__os_list(const char *folder, void (*take)(void *, const char *), void *context)
{
    wide_path wide;
    WIN32_FIND_DATAW entry;
    char pattern[PATH_UNITS], name[4 * MAX_PATH];
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    if (!widen(pattern, wide)) return;
    const HANDLE search = FindFirstFileW(wide, &entry);
    if (search == INVALID_HANDLE_VALUE) return;
    do
        if (WideCharToMultiByte(CP_UTF8, 0, entry.cFileName, -1, name, sizeof name, NULL, NULL))
            take(context, name);
    while (FindNextFileW(search, &entry));
    FindClose(search);
}

bool weft__os_real_path(const char *path, char *real, size_t size)
{
    wide_path wide;
    const HANDLE handle = open_handle(path, 0, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (handle == INVALID_HANDLE_VALUE) return false;
    const DWORD n = GetFinalPathNameByHandleW(handle, wide, PATH_UNITS, FILE_NAME_NORMALIZED);
    CloseHandle(handle);
    if (n && n < PATH_UNITS &&
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, real, (int)size, NULL, NULL)) {
        for (char *at = real; *at; at++)
            if (*at == '\\') *at = '/';
        return true;
    }
    errno = ENAMETOOLONG;
    return false;
}

const char *weft__os_name(const char *path)
{
    const char *name = path;
    for (const char *at = path; *at; at++)
        if (*at == '/' || *at == '\\' || (*at == ':' && at == path + 1)) name = at + 1;
    return name;
}

/* ---- Locks ---- */

/* Locks on Windows keep others from the bytes that they cover: this one covers a byte that no file
 * has. */
static bool lock(HANDLE handle)
{
    OVERLAPPED at = {.OffsetHigh = 0x7FFFFFFF};
    return LockFileEx(handle, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at);
}

bool weft__os_lock_new(int descriptor)
{
    BY_HANDLE_FILE_INFORMATION info;
    if (!lock(handle_of(descriptor)))
        return GetLastError() != ERROR_LOCK_VIOLATION && GetLastError() != ERROR_IO_PENDING;
    return GetFileInformationByHandle(handle_of(descriptor), &info) && info.nNumberOfLinks > 0;
}

void weft__os_remove_unlocked(const char *path)
{
    const HANDLE handle =
        open_handle(path, GENERIC_WRITE | DELETE, OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT);
    if (handle == INVALID_HANDLE_VALUE) return;
    if (lock(handle)) weft__os_remove(path);
    CloseHandle(handle);
}

/* Folders have no locks. */
bool weft__os_folder_is_locked(const char *folder)
{
    (void)folder;
    return false;
}
