/* base/platform_windows.h - what the files of Windows's platform share. Not installed. */
#ifndef WEFT_BASE_PLATFORM_WINDOWS_H
#define WEFT_BASE_PLATFORM_WINDOWS_H

#define WIN32_LEAN_AND_MEAN
#define _WIN32_WINNT 0x0A000002 /* Windows 10 of 2016: FileRenameInfoEx */
#include "platform.h"

#include <windows.h>

#define PATH_UNITS 4096
typedef WCHAR wide_path[PATH_UNITS];

/* Sets errno for the last error of the system. */
void weft__windows_set_errno(void);
/* A path of UTF-8 as Windows takes it; false with errno set on failure. */
bool weft__windows_widen(const char *path, wide_path wide);
/* CreateFileW with all ways of sharing; INVALID_HANDLE_VALUE with errno set on failure. */
HANDLE weft__windows_open(const char *path, DWORD access, DWORD creation, DWORD flags);
/* A descriptor of the C library for a handle, which it closes with it; -1 if that fails or is
 * INVALID_HANDLE_VALUE. */
int weft__windows_descriptor(HANDLE handle, int mode);
HANDLE weft__windows_handle(int descriptor);

#endif
