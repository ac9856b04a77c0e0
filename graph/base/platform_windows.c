/* Memory, processors, libraries and texts on Windows: see platform.h. */
#include "platform.h"

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <stdlib.h>

/* Windows sleeps for milliseconds. */
void weft__os_pause(uint32_t ns)
{
    if (ns)
        Sleep((ns + 999999) / 1000000);
    else
        SwitchToThread();
}

/* ---- Memory ---- */

void *weft__os_memory(size_t alignment, size_t bytes)
{
    return _aligned_malloc(bytes, alignment);
}

void weft__os_memory_free(void *memory)
{
    _aligned_free(memory);
}

/* Large pages are a privilege, not advice. */
bool weft__os_huge_pages(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return true;
}

bool weft__os_has_space(size_t bytes, bool to_write)
{
    (void)to_write;
    void *space = VirtualAlloc(NULL, bytes, MEM_RESERVE, PAGE_NOACCESS);
    return space && VirtualFree(space, 0, MEM_RELEASE);
}

/* ---- Processors and threads ---- */

int weft__os_processors(void)
{
    return (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

size_t weft__os_cache_bytes(int threads)
{
    (void)threads;
    return 0;
}

size_t weft__os_stack_left(void)
{
    ULONG_PTR begin, end;
    GetCurrentThreadStackLimits(&begin, &end);
    return (uintptr_t)__builtin_frame_address(0) - begin;
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
    return false;
}

/* ---- The process ---- */

uint64_t weft__os_process(void)
{
    return GetCurrentProcessId();
}

void weft__os_set_variable(const char *name, const char *text)
{
    _putenv_s(name, text ? text : "");
}

void *weft__os_library(const char *const *names)
{
    HMODULE library = NULL;
    for (; *names && !library; names++) library = LoadLibraryA(*names);
    return library;
}

void *weft__os_symbol(void *library, const char *name, void *symbol)
{
    const FARPROC found = GetProcAddress(library, name);
    *(FARPROC *)symbol = found;
    return *(void **)symbol;
}

void weft__os_library_path(void *symbol, char *path, size_t size)
{
    HMODULE library;
    path[0] = 0;
    if (!GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
                                GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                            symbol, &library))
        return;
    if (GetModuleFileNameA(library, path, (DWORD)size) >= size) path[0] = 0;
}

/* ---- Texts ---- */

/* The locale of a thread, which UCRT has. msvcrt.dll has none for threads: there a program must
 * leave LC_NUMERIC at "C". */
os_locale weft__os_enter_c_locale(void)
{
    const int before = _configthreadlocale(_ENABLE_PER_THREAD_LOCALE);
    if (before < 0) return (os_locale){NULL, NULL};
    char *name = _strdup(setlocale(LC_ALL, NULL));
    if (name) setlocale(LC_ALL, "C");
    return (os_locale){name, before == _ENABLE_PER_THREAD_LOCALE ? name : NULL};
}

void weft__os_leave_c_locale(os_locale locale)
{
    if (!locale.own) return;
    setlocale(LC_ALL, locale.own);
    if (!locale.before) _configthreadlocale(_DISABLE_PER_THREAD_LOCALE);
    free(locale.own);
}

int32_t weft__os_lowercase(int32_t character)
{
    const bool pair = character > 0xFFFF;
    const int32_t rest = character - 0x10000;
    const WCHAR from[2] = {(WCHAR)(pair ? 0xD800 + (rest >> 10) : character),
                           (WCHAR)(0xDC00 + (rest & 0x3FF))};
    WCHAR to[2];
    const int length = pair ? 2 : 1;
    if (LCMapStringEx(LOCALE_NAME_INVARIANT, LCMAP_LOWERCASE, from, length, to, length, NULL, NULL,
                      0) != length)
        return character;
    return pair ? 0x10000 + ((to[0] - 0xD800) << 10) + (to[1] - 0xDC00) : to[0];
}
