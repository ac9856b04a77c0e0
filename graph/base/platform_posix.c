/* Memory, processors, forks, libraries and texts on POSIX systems: see platform.h. */
#include "platform.h"

#include <dlfcn.h>
#include <locale.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wctype.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define SINGLE_THREADED (__libc_single_threaded != 0)
#endif
#endif
#ifndef SINGLE_THREADED
#define SINGLE_THREADED false
#endif

void weft__os_pause(uint32_t ns)
{
    const struct timespec nap = {0, (long)ns};
    if (ns)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

/* ---- Memory ---- */

bool weft__os_huge_pages(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    return madvise(memory, bytes, MADV_HUGEPAGE) == 0;
#else
    (void)memory;
    (void)bytes;
    return true;
#endif
}

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

bool weft__os_has_space(size_t bytes, bool to_write)
{
    void *space = mmap(NULL, bytes, to_write ? PROT_READ | PROT_WRITE : PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return space != MAP_FAILED && munmap(space, bytes) == 0;
}

/* ---- Processors and threads ---- */

int weft__os_processors(void)
{
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* The first number in a file of Linux's description of processor `cpu`'s third-level cache; -1 if
 * there is none. */
static long cache_number(long cpu, const char *name)
{
    char path[96];
    char text[32], *end = text;
    long number = -1;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cache/index3/%s", cpu, name);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    if (fgets(text, sizeof text, file)) number = strtol(text, &end, 10);
    fclose(file);
    return end > text ? number : -1;
}

/* (sysconf reports caches that a virtual machine does not have.) */
size_t weft__os_cache_bytes(int threads)
{
    size_t bytes = 0;
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    for (long cpu = 0; cpu < cpus && threads > 0; cpu++) {
        const long kib = cache_number(cpu, "size");
        /* A cache is counted with the first of the processors that share it. */
        if (kib <= 0 || cache_number(cpu, "shared_cpu_list") != cpu) continue;
        bytes += (size_t)kib << 10;
        threads--;
    }
    return bytes;
}

size_t weft__os_stack_left(void)
{
#if defined(__linux__) && !defined(WEFT_NO_THREADS)
    pthread_attr_t attr;
    void *begin = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return SIZE_MAX;
    pthread_attr_getstack(&attr, &begin, &size);
    pthread_attr_destroy(&attr);
    return (uintptr_t)__builtin_frame_address(0) - (uintptr_t)begin;
#else
    return SIZE_MAX;
#endif
}

bool weft__os_watch_forks(void (*before)(void), void (*after)(void), void (*in_child)(void))
{
#ifdef WEFT_NO_THREADS
    (void)before;
    (void)after;
    (void)in_child;
    return true;
#else
    return pthread_atfork(before, after, in_child) == 0;
#endif
}

bool weft__os_is_single_threaded(void)
{
    return SINGLE_THREADED;
}

/* ---- The process ---- */

uint64_t weft__os_process(void)
{
    return (uint64_t)getpid();
}

void *weft__os_library(const char *const *names)
{
    void *library = NULL;
    for (; *names && !library; names++) library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* dlsym returns a data pointer; POSIX lets it be used as a function. */
void *weft__os_symbol(void *library, const char *name, void *symbol)
{
    void *found = dlsym(library, name);
    *(void **)symbol = found;
    return found;
}

void weft__os_library_path(void *symbol, char *path, size_t size)
{
    Dl_info info;
    const bool known = dladdr(symbol, &info) && info.dli_fname;
    snprintf(path, size, "%s", known ? info.dli_fname : "");
}

/* ---- Texts ---- */

/* Without memory for the C locale, the program's own remains. */
os_locale weft__os_enter_c_locale(void)
{
    const locale_t own = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return (os_locale){own, own ? uselocale(own) : NULL};
}

void weft__os_leave_c_locale(os_locale locale)
{
    if (!locale.own) return;
    uselocale(locale.before);
    freelocale(locale.own);
}

static locale_t unicode;

static void make_unicode(void)
{
    unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

int32_t weft__os_lowercase(int32_t character)
{
    static os_once once = OS_ONCE;
    weft__os_run_once(&once, make_unicode);
    return unicode ? (int32_t)towlower_l((wint_t)character, unicode) : character;
}
