/* Peak rates of the machine: matrix products, and the bandwidth of memory. */
#include <weft/measure.h>
#include <weft/op.h>
#include <weft/ops.h>

#include "base/openmp.h"
#include "base/platform.h"
#include "ir/isa.h"
#include "run/team.h"

#include <string.h>

#define MIN_REPEATS     3
#define MIN_SECONDS     0.4
#define MIN_CACHE       (32u << 20) /* where the system does not report a larger one */
#define ALIGNMENT       64
#define SCALAR_OF_TRIAD 3.0f

enum { ROWS = 6000, COLUMNS = 2048, INNER = 512 };

/* Seconds of the fastest repetition, after one that warms up. */
static weft_status best_time(weft_status (*run)(void *), void *work, double *seconds)
{
    double best = 0, sum = 0;
    for (int i = -1; i < MIN_REPEATS || sum < MIN_SECONDS; i++) {
        double begin = clock_seconds();
        weft_status status = run(work);
        double took = clock_seconds() - begin;
        if (status != WEFT_OK) return status;
        if (i < 0) continue;
        sum += took;
        if (i == 0 || took < best) best = took;
    }
    *seconds = best > 0 ? best : 1e-9;
    return WEFT_OK;
}

/* ---- Products ---- */

typedef struct product {
    weft_session *session;
    weft_error error;
} product;

static weft_status run_product(void *data)
{
    product *p = data;
    return weft_session_run(p->session, &p->error);
}

static void fill(weft_session *session, weft_value input)
{
    weft_tensor t;
    if (weft_session_tensor(session, input, &t, NULL) != WEFT_OK) return;
    int64_t n = weft_shape_numel(t.shape);
    for (int64_t i = 0; i < n; i++)
        if (t.dtype == WEFT_F32)
            ((float *)t.data)[i] = (float)(1 + i % 7);
        else
            ((double *)t.data)[i] = (double)(1 + i % 7);
}

weft_status weft_measure_gemm(weft_dtype dtype, int threads, double *flops_per_second,
                              weft_error *error)
{
    weft_error_clear(error);
    product p = {.error = WEFT_NO_ERROR};
    double seconds = 0;
    if (!flops_per_second || threads < 0 || !weft_dtype_is_float(dtype))
        return weft_error_set(
            error, WEFT_BAD_ARGUMENT, "measure",
            "expected f32 or f64, a result that is not NULL, and 0 threads or more");
    weft_graph *g = weft_graph_new();
    weft_value a = weft_input(g, "a", dtype, WEFT_SHAPE(ROWS, INNER));
    weft_value b = weft_input(g, "b", dtype, WEFT_SHAPE(INNER, COLUMNS)), c = weft_matmul(g, a, b);
    weft_plan *plan = weft_plan_new(g, &c, 1, NULL, &p.error);
    if (plan)
        p.session =
            weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, &p.error);
    if (p.session) {
        fill(p.session, a);
        fill(p.session, b);
        best_time(run_product, &p, &seconds);
    }
    weft_session_free(p.session);
    weft_plan_free(plan);
    weft_graph_free(g);
    if (p.error.status != WEFT_OK) return weft_error_copy(error, &p.error);
    *flops_per_second = 2.0 * ROWS * COLUMNS * INNER / seconds;
    return WEFT_OK;
}

/* ---- Memory ---- */

typedef struct arrays {
    float *a, *b, *c;
    int64_t n;
    int threads;
} arrays;

/* A thread's part of the arrays: [*begin, *end). */
static void part_of(int64_t n, int64_t *begin, int64_t *end)
{
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    *begin = n * thread / threads;
    *end = n * (thread + 1) / threads;
}

static void triad(const arrays *w)
{
    int64_t begin, end;
    float *restrict a = w->a;
    const float *restrict b = w->b, *restrict c = w->c;
    part_of(w->n, &begin, &end);
    for (int64_t i = begin; i < end; i++) a[i] = b[i] + SCALAR_OF_TRIAD * c[i];
}

static weft_status run_triad(void *work)
{
    arrays *w = work;
#pragma omp parallel num_threads(w->threads)
    triad(w);
    return WEFT_OK;
}

/* Each thread touches its part first, so that the pages are on its own memory node. */
static void touch(const arrays *w)
{
    int64_t begin, end;
    part_of(w->n, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        w->a[i] = 0;
        w->b[i] = (float)(i % 7);
        w->c[i] = (float)(i % 5);
    }
}

weft_status weft_measure_triad(int threads, double *bytes_per_second, weft_error *error)
{
    weft_error_clear(error);
    double seconds = 0;
    if (!bytes_per_second || threads < 0 || threads > WEFT_MAX_THREADS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "measure",
                              "expected a result that is not NULL, and 0 to %d threads",
                              WEFT_MAX_THREADS);
    arrays w = {0};
    weft_status status = weft__team(threads ? threads : weft_default_threads(), &w.threads, error);
    if (status != WEFT_OK) return status;
    const size_t cache = weft__os_cache_bytes(w.threads);
    const size_t bytes = 2 * (cache > MIN_CACHE ? cache : MIN_CACHE) / ALIGNMENT * ALIGNMENT;
    w.n = (int64_t)(bytes / sizeof(float));
    w.a = weft_alloc(bytes);
    w.b = weft_alloc(bytes);
    w.c = weft_alloc(bytes);
    bool good = w.a && w.b && w.c;
    if (good) {
#pragma omp parallel num_threads(w.threads)
        touch(&w);
        best_time(run_triad, &w, &seconds);
    }
    weft_free(w.a);
    weft_free(w.b);
    weft_free(w.c);
    if (!good)
        return weft_error_set(error, WEFT_NO_MEMORY, "measure",
                              "no memory for three arrays of "
                              "%zu bytes",
                              bytes);
    *bytes_per_second = 3.0 * (double)bytes / seconds;
    return WEFT_OK;
}

weft_status weft_measure_peaks(weft_dtype dtype, int threads, weft_peaks *peaks, weft_error *error)
{
    weft_error_clear(error);
    if (!peaks) return weft_error_set(error, WEFT_BAD_ARGUMENT, "measure", "the result is NULL");
    weft_peaks found;
    weft_status status = weft_measure_gemm(dtype, threads, &found.flops_per_second, error);
    if (status == WEFT_OK) status = weft_measure_triad(threads, &found.bytes_per_second, error);
    if (status == WEFT_OK) *peaks = found;
    return status;
}

const char *weft_instruction_set(weft_error *error)
{
    return weft__isa_check(error) == WEFT_OK ? weft__isa_name(weft__isa_best()) : NULL;
}
