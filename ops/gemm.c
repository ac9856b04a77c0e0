/* Matrix products by OpenBLAS, loaded at run time.
 *
 * OpenBLAS picks its kernels when it is loaded, by a list of processors that it knows; one that
 * came after its release falls back to AVX2 kernels, half the speed on a processor with AVX-512. So
 * the library is loaded here, with OPENBLAS_CORETYPE set to SkylakeX where the processor has
 * AVX-512 - unless the user has set the variable, or the program has loaded OpenBLAS before. The
 * OpenMP build runs on one thread when called from within a parallel region, as the executor does.
 */
#include "gemm.h"

#include <weft/op.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void sgemm_function(int, int, int, int, int, int, float, const float *, int, const float *,
                            int, float, float *, int);
typedef void dgemm_function(int, int, int, int, int, int, double, const double *, int,
                            const double *, int, double, double *, int);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sgemm_function *sgemm;
static dgemm_function *dgemm;

#ifndef WEFT_OPENBLAS_PATH
#define WEFT_OPENBLAS_PATH "libopenblas.so.0"
#endif

/* dlsym gives a data pointer; POSIX lets it be used as a function. */
static void *symbol(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    *(void **)function = found;
    return found;
}

static void load(void)
{
    static const char *const names[] = {WEFT_OPENBLAS_PATH, "libopenblas.so.0", "libopenblas.so"};
    static const char variable[] = "OPENBLAS_CORETYPE";
    bool steer = weft_isa_best() == WEFT_ISA_V4 && !getenv(variable);
    void *library = NULL;
    if (steer) setenv(variable, "SkylakeX", 1);
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (steer) unsetenv(variable);
    if (!library) return;
    int (*parallel)(void);
    void (*set_threads)(int);
    const int openmp = 2;
    if (symbol(library, "openblas_get_parallel", &parallel) &&
        symbol(library, "openblas_set_num_threads", &set_threads) && parallel() != openmp)
        set_threads(1);
    symbol(library, "cblas_sgemm", &sgemm);
    symbol(library, "cblas_dgemm", &dgemm);
}

static gemm_backend chosen;

static void choose(void)
{
    const char *wanted = getenv("WEFT_GEMM");
    chosen = wanted && !strcmp(wanted, "openblas") ? GEMM_OPENBLAS : GEMM_WEFT;
}

gemm_backend gemm_chosen(void)
{
    static pthread_once_t choice = PTHREAD_ONCE_INIT;
    pthread_once(&choice, choose);
    return chosen;
}

weft_status gemm_load(weft_error *error)
{
    pthread_once(&once, load);
    if (sgemm && dgemm) return WEFT_OK;
    return weft_error_set(error, WEFT_NO_BACKEND, "gemm",
                          "OpenBLAS could not be loaded (libopenblas.so.0); on Debian it is in "
                          "libopenblas0-openmp");
}

void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float *a,
              int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc)
{
    sgemm(ROW_MAJOR, trans_a ? TRANS : NO_TRANS, trans_b ? TRANS : NO_TRANS, (int)m, (int)n, (int)k,
          1.0f, a, (int)lda, b, (int)ldb, 0.0f, c, (int)ldc);
}

void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double *a,
              int64_t lda, const double *b, int64_t ldb, double *c, int64_t ldc)
{
    dgemm(ROW_MAJOR, trans_a ? TRANS : NO_TRANS, trans_b ? TRANS : NO_TRANS, (int)m, (int)n, (int)k,
          1.0, a, (int)lda, b, (int)ldb, 0.0, c, (int)ldc);
}
