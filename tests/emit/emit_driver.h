/* What main.c of emit_cases needs: comparing outputs, and the file of a model's states. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static union {
    double align;
    unsigned char bytes[1 << 22];
} got[64];
static int failed, equals;
static FILE *data; /* inputs and expected outputs, in the order in which they are needed */
static void *taken[4096];
static size_t n_taken;

/* The next n bytes of the data. */
static void *next(size_t n)
{
    void *bytes = malloc(n + 1);
    if (!bytes || n_taken == sizeof taken / sizeof *taken || fread(bytes, 1, n, data) != n) {
        printf("the data end too early\n");
        exit(2);
    }
    taken[n_taken++] = bytes;
    return bytes;
}

/* An arena of n bytes, and as many after it; all of them are 0xa5. An address that is relative to the arena of a loop's
 * body, where that of the file is meant, lies in the second half. */
static unsigned char *new_arena(size_t n)
{
    unsigned char *arena = malloc(2 * n + 1);
    if (!arena) {
        printf("no memory\n");
        exit(2);
    }
    memset(arena, 0xa5, 2 * n + 1);
    return arena;
}

/* Frees it; returns whether something was written after it. */
static int end_arena(unsigned char *arena, size_t n)
{
    size_t i;
    for (i = n; i < 2 * n + 1 && arena[i] == 0xa5; i++) continue;
    free(arena);
    return i < 2 * n + 1;
}

/* NaN equal each other. `number`: the bytes of a float; 0: the elements are not floats. */
static int equal(const void *a, const void *b, size_t n, int number)
{
    const char *p = (const char *)a, *q = (const char *)b;
    size_t i;
    if (!memcmp(a, b, n)) return 1;
    if (!number) return 0;
    for (i = 0; i + (size_t)number <= n; i += (size_t)number) {
        float x, y;
        double u, v;
        if (!memcmp(p + i, q + i, (size_t)number)) continue;
        memcpy(&x, p + i, sizeof x);
        memcpy(&y, q + i, sizeof y);
        if (number == 4 && (x == x || y == y)) return 0;
        if (number != 8) continue;
        memcpy(&u, p + i, sizeof u);
        memcpy(&v, q + i, sizeof v);
        if (u == u || v == v) return 0;
    }
    return 1;
}

static void report(const char *name, int bad)
{
    if (bad) printf("differs: %s\n", name);
    failed += bad != 0;
    equals += !bad;
    while (n_taken) free(taken[--n_taken]);
}

/* The bytes of a file, which must fit. */
size_t read_file(const char *path, unsigned char *bytes, size_t size)
{
    FILE *from = fopen(path, "rb");
    const size_t n = from ? fread(bytes, 1, size, from) : 0;
    if (from) fclose(from);
    return n;
}

/* Saves the states, for emit_cases --saved. Loads them from the file that the library has written, into
 * memory of zeros, and saves them again. Refuses files that are too short or have another name, and then
 * changes nothing. */
#define CHECK_FILE(name, m, file_bytes, states)                                                    \
    do {                                                                                           \
        static unsigned char file[file_bytes], again[file_bytes], from[file_bytes + 4096];         \
        const size_t n_from = read_file(#name ".expected", from, sizeof from);                     \
        FILE *to = fopen(#name ".saved", "wb");                                                    \
        name##_save(&(m), file);                                                                   \
        bad += !to || fwrite(file, 1, sizeof file, to) != sizeof file;                             \
        if (to) bad += fclose(to) != 0;                                                            \
        memset(&(states), 0, sizeof(states));                                                      \
        bad += name##_load(&(m), from, n_from) != 0;                                               \
        name##_save(&(m), again);                                                                  \
        bad += memcmp(file, again, sizeof file) != 0;                                              \
        again[10] ^= 1;                                                                            \
        bad += name##_load(&(m), again, sizeof again) != 1;                                        \
        bad += name##_load(&(m), from, n_from - 1) != 1;                                           \
        name##_save(&(m), again);                                                                  \
        bad += memcmp(file, again, sizeof file) != 0;                                              \
        bad += name##_load(&(m), file, sizeof file) != 0;                                          \
    } while (0)
