/* What the machine reaches: the rate of matrix products, and the bandwidth of memory. */
#include "gemm.h"

#include <weft/measure.h>

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_REPEATS   3
#define LEAST_SECONDS   0.4
#define LEAST_CACHE     (32u << 20) /* where the system does not tell */
#define ALIGNMENT       64
#define SCALAR_OF_TRIAD 3.0f

enum { ROWS = 6000, COLUMNS = 2048, INNER = 512 };

/* The array's share of a thread: [*begin, *end). */
static void share(int64_t n, int64_t *begin, int64_t *end)
{
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    *begin = n * thread / threads;
    *end = n * (thread + 1) / threads;
}

typedef struct work {
    weft_dtype dtype;
    char *a, *b, *c; /* of a product, or of the triad */
    int64_t n;       /* elements of an array of the triad */
} work;

static void product(const work *w)
{
    int64_t begin, end, size = (int64_t)weft_dtype_bytes(w->dtype);
    share(ROWS, &begin, &end);
    /* BLAS does not take a region of one thread for a parallel one. */
    if (omp_get_num_threads() == 1) omp_set_num_threads(1);
    if (begin == end) return;
    const char *a = w->a + begin * INNER * size;
    char *c = w->c + begin * COLUMNS * size;
    if (w->dtype == WEFT_F32)
        gemm_f32(false, false, end - begin, COLUMNS, INNER, (const float *)a, INNER,
                 (const float *)w->b, COLUMNS, (float *)c, COLUMNS);
    else
        gemm_f64(false, false, end - begin, COLUMNS, INNER, (const double *)a, INNER,
                 (const double *)w->b, COLUMNS, (double *)c, COLUMNS);
}

static void triad(const work *w)
{
    int64_t begin, end;
    float *restrict a = (float *)w->a;
    const float *restrict b = (const float *)w->b, *restrict c = (const float *)w->c;
    share(w->n, &begin, &end);
    for (int64_t i = begin; i < end; i++) a[i] = b[i] + SCALAR_OF_TRIAD * c[i];
}

/* The least seconds that a repetition took, after one that warms up. */
static double best_time(void (*run)(const work *), const work *w, int threads)
{
    double best = 0, sum = 0;
    for (int i = -1; i < LEAST_REPEATS || sum < LEAST_SECONDS; i++) {
        double begin = omp_get_wtime();
#pragma omp parallel num_threads(threads)
        run(w);
        double took = omp_get_wtime() - begin;
        if (i < 0) continue;
        sum += took;
        if (i == 0 || took < best) best = took;
    }
    return best > 0 ? best : 1e-9;
}

/* Each thread touches its share first, so that it lies in its own part of memory. */
static void fill(char *array, int64_t n, weft_dtype dtype)
{
    int64_t begin, end;
    share(n, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        if (dtype == WEFT_F32)
            ((float *)array)[i] = 1.0f + (float)(i % 7);
        else
            ((double *)array)[i] = 1.0 + (double)(i % 7);
}

static char *array(int64_t n, weft_dtype dtype, int threads)
{
    size_t bytes = (size_t)n * weft_dtype_bytes(dtype);
    char *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!memory) return NULL;
#pragma omp parallel num_threads(threads)
    fill(memory, n, dtype);
    return memory;
}

/* Gives work->a, b, c and runs; returns the best seconds, or 0 when memory is out. */
static double measure(void (*run)(const work *), work *w, const int64_t n[3], int threads)
{
    w->a = array(n[0], w->dtype, threads);
    w->b = array(n[1], w->dtype, threads);
    w->c = array(n[2], w->dtype, threads);
    double seconds = w->a && w->b && w->c ? best_time(run, w, threads) : 0;
    free(w->a);
    free(w->b);
    free(w->c);
    return seconds;
}

/* The first number in a file of Linux's description of processor `cpu`'s third-level cache; -1 if
 * there is none. */
static long cache_number(long cpu, const char *name)
{
    char path[96];
    long number = -1;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cache/index3/%s", cpu, name);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    if (fscanf(file, "%ld", &number) != 1) number = -1;
    fclose(file);
    return number;
}

/* Bytes of all the last-level caches that `threads` threads can lie on. (sysconf tells of caches
 * that a virtual machine does not have.) */
static size_t last_level_cache(int threads)
{
    size_t bytes = 0;
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    for (long cpu = 0; cpu < cpus && threads > 0; cpu++) {
        long kib = cache_number(cpu, "size");
        /* A cache is counted with the first of the processors that share it. */
        if (kib <= 0 || cache_number(cpu, "shared_cpu_list") != cpu) continue;
        bytes += (size_t)kib << 10;
        threads--;
    }
    return bytes > LEAST_CACHE ? bytes : LEAST_CACHE;
}

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "measure", "no memory for the arrays");
}

weft_status weft_measure_gemm(weft_dtype dtype, int threads, double *flops_per_second,
                              weft_error *error)
{
    static const int64_t n[3] = {(int64_t)ROWS * INNER, (int64_t)INNER * COLUMNS,
                                 (int64_t)ROWS * COLUMNS};
    if (!flops_per_second || threads < 0 || !weft_dtype_is_float(dtype))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "measure",
                              "products are measured in f32 or f64, into a number, on 0 threads "
                              "or more");
    weft_status status = gemm_load(error);
    if (status != WEFT_OK) return status;
    work w = {.dtype = dtype};
    double seconds = measure(product, &w, n, threads ? threads : omp_get_max_threads());
    if (seconds <= 0) return no_memory(error);
    *flops_per_second = 2.0 * ROWS * COLUMNS * INNER / seconds;
    return WEFT_OK;
}

weft_status weft_measure_triad(int threads, double *bytes_per_second, weft_error *error)
{
    if (!bytes_per_second || threads < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "measure",
                              "the triad is measured into a number, on 0 threads or more");
    if (!threads) threads = omp_get_max_threads();
    size_t cache = last_level_cache(threads);
    work w = {.dtype = WEFT_F32, .n = (int64_t)(2 * cache / sizeof(float))};
    double seconds = measure(triad, &w, (const int64_t[]){w.n, w.n, w.n}, threads);
    if (seconds <= 0) return no_memory(error);
    *bytes_per_second = 3.0 * sizeof(float) * (double)w.n / seconds;
    return WEFT_OK;
}

weft_status weft_measure_peaks(weft_dtype dtype, int threads, weft_peaks *peaks, weft_error *error)
{
    if (!peaks) return weft_error_set(error, WEFT_BAD_ARGUMENT, "measure", "the result is NULL");
    weft_peaks found;
    weft_status status = weft_measure_gemm(dtype, threads, &found.flops_per_second, error);
    if (status == WEFT_OK) status = weft_measure_triad(threads, &found.bytes_per_second, error);
    if (status == WEFT_OK) *peaks = found;
    return status;
}
