/* Names and locks of files on Windows: see platform.h. */
#include "platform_windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

/* True, or false with errno set. */
static bool good_or_errno(BOOL good)
{
    if (!good) weft__windows_set_errno();
    return good;
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
    if (!weft__windows_widen(from, wide_from) || !weft__windows_widen(to, wide_to)) return false;
    const HANDLE handle = weft__windows_open(from, DELETE, OPEN_EXISTING,
                                             FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_WRITE_THROUGH);
    const bool renamed = handle != INVALID_HANDLE_VALUE && rename_posix(handle, wide_to);
    if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
    return renamed || good_or_errno(MoveFileExW(
                          wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH));
}

bool weft__os_link(const char *from, const char *to)
{
    wide_path wide_from, wide_to;
    return weft__windows_widen(from, wide_from) && weft__windows_widen(to, wide_to) &&
           good_or_errno(CreateHardLinkW(wide_to, wide_from, NULL));
}

bool weft__os_remove(const char *path)
{
    wide_path wide;
    return weft__windows_widen(path, wide) && good_or_errno(DeleteFileW(wide));
}

bool weft__os_make_folder(const char *path)
{
    wide_path wide;
    return weft__windows_widen(path, wide) && good_or_errno(CreateDirectoryW(wide, NULL));
}

bool weft__os_list(const char *folder, void (*take)(void *, const char *), void *context)
{
    wide_path wide;
    WIN32_FIND_DATAW entry;
    char pattern[PATH_UNITS], name[4 * MAX_PATH];
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    if (!weft__windows_widen(pattern, wide)) return false;
    const HANDLE search = FindFirstFileW(wide, &entry);
    if (search == INVALID_HANDLE_VALUE) return good_or_errno(FALSE);
    do
        if (WideCharToMultiByte(CP_UTF8, 0, entry.cFileName, -1, name, sizeof name, NULL, NULL))
            take(context, name);
    while (FindNextFileW(search, &entry));
    FindClose(search);
    return true;
}

/* Writes a path in UTF-8 with slashes, without the prefix of paths that may be long. */
static bool narrow(const WCHAR *wide, char *path, size_t size)
{
    static const WCHAR prefix[] = L"\\\\?\\", server[] = L"\\\\?\\UNC\\";
    char *to = path;
    if (!wcsncmp(wide, server, wcslen(server)) && size > 1) {
        *to++ = '/'; /* of //SERVER */
        wide += wcslen(server) - 1;
    } else if (!wcsncmp(wide, prefix, wcslen(prefix))) {
        wide += wcslen(prefix);
    }
    if (!WideCharToMultiByte(CP_UTF8, 0, wide, -1, to, (int)(size - (size_t)(to - path)), NULL,
                             NULL)) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *at = path; *at; at++)
        if (*at == '\\') *at = '/';
    return true;
}

bool weft__os_real_path(const char *path, char *real, size_t size)
{
    wide_path wide;
    const HANDLE handle = weft__windows_open(path, 0, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (handle == INVALID_HANDLE_VALUE) return false;
    const DWORD n = GetFinalPathNameByHandleW(handle, wide, PATH_UNITS, FILE_NAME_NORMALIZED);
    CloseHandle(handle);
    if (n && n < PATH_UNITS) return narrow(wide, real, size);
    errno = ENAMETOOLONG;
    return false;
}

static bool identify(const char *path, BY_HANDLE_FILE_INFORMATION *info)
{
    const HANDLE handle =
        weft__windows_open(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    if (handle == INVALID_HANDLE_VALUE) return false;
    const bool good = GetFileInformationByHandle(handle, info);
    CloseHandle(handle);
    return good;
}

bool weft__os_is_same(const char *a, const char *b)
{
    BY_HANDLE_FILE_INFORMATION one, other;
    return identify(a, &one) && identify(b, &other) &&
           one.dwVolumeSerialNumber == other.dwVolumeSerialNumber &&
           one.nFileIndexHigh == other.nFileIndexHigh && one.nFileIndexLow == other.nFileIndexLow;
}

bool weft__os_current_folder(char *path, size_t size)
{
    wide_path wide;
    const DWORD n = GetCurrentDirectoryW(PATH_UNITS, wide);
    if (n && n < PATH_UNITS) return narrow(wide, path, size);
    errno = ENAMETOOLONG;
    return false;
}

const char *weft__os_name(const char *path)
{
    const char *name = path;
    for (const char *at = path; *at; at++)
        if (weft__os_is_separator(*at) || (*at == ':' && at == path + 1)) name = at + 1;
    return name;
}

bool weft__os_is_separator(char c)
{
    return c == '/' || c == '\\';
}

/* A path on a drive (C:/X, or C:X, which also does not begin in the current folder), or \X. */
bool weft__os_is_absolute(const char *path)
{
    return weft__os_is_separator(path[0]) || (path[0] && path[1] == ':');
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
    if (!lock(weft__windows_handle(descriptor)))
        return GetLastError() != ERROR_LOCK_VIOLATION && GetLastError() != ERROR_IO_PENDING;
    return GetFileInformationByHandle(weft__windows_handle(descriptor), &info) &&
           info.nNumberOfLinks > 0;
}

void weft__os_remove_unlocked(const char *path)
{
    const HANDLE handle = weft__windows_open(path, GENERIC_WRITE | DELETE, OPEN_EXISTING,
                                             FILE_FLAG_OPEN_REPARSE_POINT);
    if (handle == INVALID_HANDLE_VALUE) return;
    if (lock(handle)) weft__os_remove(path);
    CloseHandle(handle);
}

/* Folders have no locks. Instead, whoever has one open to change it keeps others from doing the
 * same. That is not needed to list a folder and to change its files. */
static HANDLE open_to_change(const char *folder, DWORD more_share)
{
    wide_path wide;
    if (!weft__windows_widen(folder, wide)) return INVALID_HANDLE_VALUE;
    const HANDLE handle =
        CreateFileW(wide, FILE_ADD_FILE, FILE_SHARE_READ | FILE_SHARE_DELETE | more_share, NULL,
                    OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (handle != INVALID_HANDLE_VALUE) return handle;
    weft__windows_set_errno();
    if (GetLastError() == ERROR_SHARING_VIOLATION) errno = EWOULDBLOCK;
    return handle;
}

int weft__os_lock_folder(const char *folder)
{
    return weft__windows_descriptor(open_to_change(folder, 0), 0);
}

bool weft__os_folder_is_locked(const char *folder)
{
    const HANDLE handle = open_to_change(folder, FILE_SHARE_WRITE);
    if (handle == INVALID_HANDLE_VALUE) return errno == EWOULDBLOCK;
    CloseHandle(handle);
    return false;
}
