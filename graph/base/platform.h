/* base/platform.h - all that weft's libraries ask of an operating system beyond C11. The rest of
 * their sources is the same everywhere.
 *
 * platform_posix.c, platform_posix_files.c and the files platform_windows* implement it for two
 * families of systems, and platform_wasi.c for WebAssembly; platform_unix.c has what POSIX and WASI
 * have in common. Threads are those of POSIX (platform_threads.c), which
 * winpthreads has on Windows, or none (platform_single.c). Meson chooses the files. Unless it says
 * otherwise, a function that fails sets errno. Not installed. */
#ifndef WEFT_BASE_PLATFORM_H
#define WEFT_BASE_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#ifndef WEFT_NO_THREADS
#include <pthread.h>
#endif

#include "private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Time ---- */

/* The one clock for durations and deadlines: monotonic, from an arbitrary origin, not affected by
 * changes of the system's time. */
static inline uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double clock_seconds(void)
{
    return 1e-9 * (double)clock_ns();
}

/* Leaves the processor to others for a time, below a second; 0: until they have had a turn. */
WEFT_PRIVATE_API void weft__os_pause(uint32_t ns);

/* ---- Memory ---- */

/* Aligned memory, whose size is a multiple of the alignment, and its release; NULL is accepted. */
void *weft__os_memory(size_t alignment, size_t bytes);
void weft__os_memory_free(void *memory);
/* Asks for huge pages, where the system has such advice. False if it refuses them. */
bool weft__os_huge_pages(void *memory, size_t bytes);
/* Whether the process can reserve this much address space now, to write to it or for later. */
bool weft__os_has_space(size_t bytes, bool to_write);

/* ---- Processors and threads ---- */

/* The processors of the machine that are in use. */
WEFT_PRIVATE_API int weft__os_processors(void);
/* Bytes of all the last-level caches that this many threads can use; 0 if the system does not say. */
size_t weft__os_cache_bytes(int threads);

#ifdef WEFT_NO_THREADS
typedef char os_mutex, os_condition, os_once;
#define OS_MUTEX 0
#define OS_ONCE  0
#else
typedef pthread_mutex_t os_mutex;
typedef pthread_cond_t os_condition;
typedef pthread_once_t os_once;
#define OS_MUTEX PTHREAD_MUTEX_INITIALIZER
#define OS_ONCE  PTHREAD_ONCE_INIT
#endif

/* False if the system has no more of them. OS_MUTEX initialises a static one. */
WEFT_PRIVATE_API bool weft__os_mutex_init(os_mutex *mutex);
WEFT_PRIVATE_API void weft__os_mutex_free(os_mutex *mutex);
WEFT_PRIVATE_API void weft__os_lock(os_mutex *mutex);
/* False if another thread holds the lock. */
WEFT_PRIVATE_API bool weft__os_try_lock(os_mutex *mutex);
WEFT_PRIVATE_API void weft__os_unlock(os_mutex *mutex);

bool weft__os_condition_init(os_condition *condition);
void weft__os_condition_free(os_condition *condition);
/* Unlocks the mutex, sleeps until a signal, and locks it again. */
void weft__os_wait(os_condition *condition, os_mutex *mutex);
/* Wakes all that wait. */
void weft__os_signal(os_condition *condition);

/* Calls `run` unless a call with the same `once` has. Returns when it has returned. */
void weft__os_run_once(os_once *once, void (*run)(void));

/* How many of `wanted` threads the system can create now, each with a stack of this size (0:
 * the default); 0 if that cannot be found out. */
int weft__os_try_threads(int wanted, size_t stack);
/* Bytes of stack below the caller's frame; SIZE_MAX if unknown. */
size_t weft__os_stack_left(void);

/* From now on each fork calls the functions, which may be NULL: in the thread that forks before and
 * after, and in the child. False if the system cannot do that. True where there are no forks. */
bool weft__os_watch_forks(void (*before)(void), void (*after)(void), void (*in_child)(void));
/* Whether the process has only ever had one thread; false if unknown. */
bool weft__os_is_single_threaded(void);

/* ---- Files ---- */

/* Paths are UTF-8. Descriptors are those of the C library. Files are binary, and programs that this
 * one starts do not inherit them. */

typedef enum os_file_kind { OS_FILE, OS_FOLDER, OS_DEVICE } os_file_kind; /* OS_DEVICE: the rest */
typedef struct os_facts {
    os_file_kind kind;
    uint64_t bytes; /* of a file */
} os_facts;

WEFT_PRIVATE_API bool weft__os_facts(const char *path, os_facts *facts);
WEFT_PRIVATE_API bool weft__os_facts_of(int descriptor, os_facts *facts);

/* Each opens a file and returns its descriptor, -1 on failure: to read it, which never waits for
 * the writer of a pipe; to write a new one, which must not exist, not even as a link; to write
 * anything that exists, or a new one, from its beginning. */
WEFT_PRIVATE_API int weft__os_open(const char *path);
int weft__os_open_new(const char *path);
int weft__os_open_stream(const char *path);
/* The same, to write after the end of a file, or a new one. */
int weft__os_open_to_append(const char *path);
/* Another descriptor of a file; -1 and ENOTSUP on a system without them, which has no locks. */
int weft__os_duplicate(int descriptor);
WEFT_PRIVATE_API bool weft__os_close(int descriptor);
/* Each moves some of the bytes, at least one unless at the end, and returns how many; -1 on
 * failure. */
WEFT_PRIVATE_API ptrdiff_t weft__os_read(int descriptor, void *data, size_t bytes, uint64_t offset);
ptrdiff_t weft__os_write(int descriptor, const void *data, size_t bytes);
/* The whole of a file, to be read; NULL on failure. */
WEFT_PRIVATE_API void *weft__os_map(int descriptor, size_t bytes);
WEFT_PRIVATE_API void weft__os_unmap(void *data, size_t bytes);
/* getline of POSIX. */
WEFT_PRIVATE_API ptrdiff_t weft__os_read_line(char **line, size_t *capacity, FILE *file);

/* Returns once what was written to a file, or the names in a folder, would survive a crash of the
 * system. */
bool weft__os_sync(int descriptor);
bool weft__os_sync_folder(const char *folder);
/* Gives a file the name `to`, of which another file may have been. Readers of `to` see the old file
 * or the new one. */
bool weft__os_rename(const char *from, const char *to);
/* Gives a file a second name; false where the file system has one name a file, or `to` exists. */
bool weft__os_link(const char *from, const char *to);
WEFT_PRIVATE_API bool weft__os_remove(const char *path);
WEFT_PRIVATE_API bool weft__os_make_folder(const char *path);
/* Calls take(context, name) for each entry of a folder; false if the folder cannot be read. */
WEFT_PRIVATE_API bool weft__os_list(const char *folder,
                                    void (*take)(void *context, const char *name), void *context);
/* The path without links; false on failure. */
WEFT_PRIVATE_API bool weft__os_real_path(const char *path, char *real, size_t size);
/* Whether both paths lead to one file or folder. */
bool weft__os_is_same(const char *a, const char *b);
/* The folder in which relative paths begin; false on failure. */
bool weft__os_current_folder(char *path, size_t size);
/* The last component of a path, which is empty if the path ends with a separator. */
WEFT_PRIVATE_API const char *weft__os_name(const char *path);
/* Whether a character separates the components of a path. */
bool weft__os_is_separator(char c);
bool weft__os_is_absolute(const char *path);

/* Locks a file that this process has just made, for as long as a descriptor of it is open. False if
 * another process holds its lock, or has removed it. True if the file system has no locks. */
bool weft__os_lock_new(int descriptor);
/* Removes a file, not a link, whose lock nobody holds. */
void weft__os_remove_unlocked(const char *path);
/* Locks a folder for as long as the descriptor that it returns is open. -1 with EWOULDBLOCK if
 * another process holds the lock, with another errno if there cannot be one. */
int weft__os_lock_folder(const char *folder);
/* Whether another process holds the lock of a folder. */
WEFT_PRIVATE_API bool weft__os_folder_is_locked(const char *folder);

/* ---- The process ---- */

uint64_t weft__os_process(void); /* its number */
/* Sets a variable of the environment, or removes it if the text is NULL. */
void weft__os_set_variable(const char *name, const char *text);

/* The first of some libraries that can be loaded; NULL ends the list, and is returned if none can.
 */
void *weft__os_library(const char *const *names);
/* Sets *symbol, a pointer to a function or to data, and returns it; NULL if there is none. */
void *weft__os_symbol(void *library, const char *name, void *symbol);
/* The path of the library that has a symbol; "" if unknown. */
void weft__os_library_path(void *symbol, char *path, size_t size);

/* ---- Texts ---- */

/* The calling thread uses the C locale between the two calls, so that numbers have a point. */
typedef struct os_locale {
    void *own, *before;
} os_locale;
WEFT_PRIVATE_API os_locale weft__os_enter_c_locale(void);
WEFT_PRIVATE_API void weft__os_leave_c_locale(os_locale locale);
/* A character of Unicode in lower case, in no particular language. */
WEFT_PRIVATE_API int32_t weft__os_lowercase(int32_t character);

#ifdef __cplusplus
}
#endif
#endif
