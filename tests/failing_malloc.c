/* Linked into a copy of the program: makes one allocation of the whole process fail, whoever asks
 * for it. WEFT_FAIL_ALLOCATION=N: the N-th one from main on; "count": none, but their number is
 * reported at the end as the last line of stderr. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long allocations;
static long fails; /* 0: none */

/* After the constructors of libraries: C++ ends the process if one of those fails. */
__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("WEFT_FAIL_ALLOCATION");
    fails = text ? atol(text) : 0;
    atomic_store(&allocations, 0);
}

__attribute__((destructor)) static void end(void)
{
    const char *text = getenv("WEFT_FAIL_ALLOCATION");
    char line[32];
    if (!text || strcmp(text, "count") != 0) return;
    int n = snprintf(line, sizeof line, "%ld\n", atomic_load(&allocations));
    if (write(STDERR_FILENO, line, (size_t)n) != n) _exit(9);
}

static int may(void)
{
    if (atomic_fetch_add(&allocations, 1) + 1 != fails) return 1;
    errno = ENOMEM;
    return 0;
}

/* Without this the shared libraries go on with the malloc of libc. */
#pragma GCC visibility push(default)

void *malloc(size_t bytes)
{
    return may() ? __libc_malloc(bytes) : NULL;
}
void *calloc(size_t n, size_t bytes)
{
    return may() ? __libc_calloc(n, bytes) : NULL;
}
void *realloc(void *old, size_t bytes)
{
    return may() ? __libc_realloc(old, bytes) : NULL;
}
void *aligned_alloc(size_t alignment, size_t bytes)
{
    return may() ? __libc_memalign(alignment, bytes) : NULL;
}
