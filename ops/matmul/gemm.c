/* Matrix products by a library, loaded at run time: OpenBLAS or oneDNN.
 *
 * OpenBLAS picks its kernels when it is loaded, by a list of processors that it knows; one that
 * came after its release falls back to AVX2 kernels, half the speed on a processor with AVX-512. So
 * the library is loaded here, with OPENBLAS_CORETYPE set to SkylakeX where the processor has
 * AVX-512 - unless the user has set the variable, or the program has loaded OpenBLAS before. The
 * OpenMP build runs on one thread when called from within a parallel region, as the executor does.
 * So does oneDNN, which detects the processor's features itself. Its product of bf16 is exported,
 * but not declared in its headers, so a small product tries whether it works here.
 */
#include "gemm.h"

#include "base/half.h"
#include "base/log.h"
#include "base/openmp.h"
#include "base/platform.h"
#include "ir/isa.h"

#include <weft/measure.h>
#include <weft/op.h>

#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

#ifndef WEFT_OPENBLAS_PATH
#define WEFT_OPENBLAS_PATH "libopenblas.so.0"
#endif

typedef void cblas_sgemm_function(int, int, int, int, int, int, float, const float *, int,
                                  const float *, int, float, float *, int);
typedef void cblas_dgemm_function(int, int, int, int, int, int, double, const double *, int,
                                  const double *, int, double, double *, int);
typedef int dnnl_sgemm_function(char, char, int64_t, int64_t, int64_t, float, const float *,
                                int64_t, const float *, int64_t, float, float *, int64_t);
typedef int dnnl_bf16_function(char, char, int64_t, int64_t, int64_t, float, const uint16_t *,
                               int64_t, const uint16_t *, int64_t, float, float *, int64_t);
/* The beginning of dnnl_version_t. */
typedef struct dnnl_version {
    int major, minor, patch;
} dnnl_version;

static cblas_sgemm_function *cblas_sgemm;
static cblas_dgemm_function *cblas_dgemm;
static dnnl_sgemm_function *dnnl_sgemm;
static dnnl_bf16_function *dnnl_bf16; /* NULL: this oneDNN or this processor has none */

/* A library that is called outside of a parallel region starts threads of its own. Where a constant
 * product is folded there is no region, so CALL gets one, whose setting ends with it. */
#define ON_ONE_THREAD(CALL)                                                                        \
    if (omp_get_level() > 0) {                                                                     \
        CALL;                                                                                      \
    } else {                                                                                       \
        _Pragma("omp parallel num_threads(1)")                                                     \
        {                                                                                          \
            omp_set_num_threads(1);                                                                \
            CALL;                                                                                  \
        }                                                                                          \
    }

/* ---- The backends ---- */

#define TEXT 128

/* What loading a library found out. */
typedef struct loaded {
    os_once once;
    bool good, core_chosen, no_room;
    char path[256], version[TEXT], core[TEXT];
} loaded;
static loaded openblas = {.once = OS_ONCE}, onednn = {.once = OS_ONCE};

static void note_path(loaded *l, void *function)
{
    weft__os_library_path(function, l->path, sizeof l->path);
}

/* Whether OpenBLAS finds room for itself and the 128 MiB that it takes for each thread when it is
 * loaded. Without that, under a limit of the address space, its loading never ends. */
static bool has_room(void)
{
    const int threads = omp_get_max_threads(), processors = omp_get_num_procs();
    const size_t MiB = (size_t)1 << 20;
    return weft__os_has_space(
        64 * MiB + 128 * MiB * (size_t)(threads < processors ? threads : processors), true);
}

static void load_openblas(void)
{
    static const char *const names[] = {WEFT_OPENBLAS_PATH, "libopenblas.so.0", "libopenblas.so",
                                        NULL};
    static const char variable[] = "OPENBLAS_CORETYPE";
    openblas.no_room = !has_room();
    if (openblas.no_room) return;
    bool steer = weft__isa_best() >= WEFT_ISA_V4 && !getenv(variable);
    if (steer) weft__os_set_variable(variable, "SkylakeX");
    void *library = weft__os_library(names);
    if (steer) weft__os_set_variable(variable, NULL);
    if (!library) return;
    int (*parallel)(void);
    void (*set_threads)(int);
    char *(*get_core)(void), *(*get_config)(void);
    const int openmp = 2;
    if (weft__os_symbol(library, "openblas_get_parallel", &parallel) &&
        weft__os_symbol(library, "openblas_set_num_threads", &set_threads) && parallel() != openmp)
        set_threads(1);
    if (weft__os_symbol(library, "openblas_get_corename", &get_core))
        snprintf(openblas.core, sizeof openblas.core, "%s", get_core());
    if (weft__os_symbol(library, "openblas_get_config", &get_config))
        snprintf(openblas.version, sizeof openblas.version, "%s", get_config());
    void *sgemm = weft__os_symbol(library, "cblas_sgemm", &cblas_sgemm);
    openblas.good = weft__os_symbol(library, "cblas_dgemm", &cblas_dgemm) && sgemm;
    openblas.core_chosen = steer;
    if (sgemm) note_path(&openblas, sgemm);
}

#ifdef WEFT_ONEDNN
/* Sets dnnl_bf16 if it computes 3 times 0.5 here. */
static void try_bf16(void *library)
{
    const uint16_t three = half_to_bf16(3), half = half_to_bf16(0.5F);
    float product = 0;
    int refused = 1;
    if (!weft__os_symbol(library, "dnnl_gemm_bf16bf16f32", &dnnl_bf16)) return;
    ON_ONE_THREAD(refused =
                      dnnl_bf16('N', 'N', 1, 1, 1, 1.0F, &three, 1, &half, 1, 0.0F, &product, 1))
    if (refused || product != 1.5F) dnnl_bf16 = NULL;
}
#endif

static void load_onednn(void)
{
#ifdef WEFT_ONEDNN
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    void *library = weft__os_library(names), *sgemm;
    const dnnl_version *(*version)(void);
    if (!library) return;
    sgemm = weft__os_symbol(library, "dnnl_sgemm", &dnnl_sgemm);
    onednn.good = sgemm != NULL;
    if (sgemm) note_path(&onednn, sgemm);
    try_bf16(library);
    if (weft__os_symbol(library, "dnnl_version", &version)) {
        const dnnl_version *v = version();
        snprintf(onednn.version, sizeof onednn.version, "oneDNN %d.%d.%d", v->major, v->minor,
                 v->patch);
    }
#endif
}

#ifdef WEFT_ONEDNN
#define ONEDNN_MISSING                                                                             \
    "oneDNN could not be loaded (libdnnl.so.3 or libdnnl.so.2); on Debian it is in libdnnl2"
#else
#define ONEDNN_MISSING "weft was built without oneDNN (configured with -Donednn=disabled)"
#endif

static const struct {
    const char *name;
    void (*load)(void); /* NULL: nothing to load */
    loaded *loaded;
    const char *missing;
    bool has_f64, may_have_bf16;
} backends[WEFT_GEMM_BACKENDS] = {
    [WEFT_GEMM_WEFT] = {"weft", NULL, NULL, "", true, true},
    [WEFT_GEMM_OPENBLAS] = {"openblas", load_openblas, &openblas,
                            "OpenBLAS could not be loaded (libopenblas.so.0); on Debian it is in "
                            "libopenblas0-openmp",
                            true, false},
    [WEFT_GEMM_ONEDNN] = {"onednn", load_onednn, &onednn, ONEDNN_MISSING, false, true},
};

static weft_status load_backend(weft_gemm_backend backend, weft_error *error)
{
    if (!backends[backend].load) return WEFT_OK;
    weft__os_run_once(&backends[backend].loaded->once, backends[backend].load);
    if (backends[backend].loaded->good) return WEFT_OK;
    if (backends[backend].loaded->no_room)
        return weft_error_set(error, WEFT_NO_BACKEND, "gemm",
                              "OpenBLAS was not loaded: it takes 128 MiB of address space for each "
                              "thread, more than this process may have");
    return weft_error_set(error, WEFT_NO_BACKEND, "gemm", "%s", backends[backend].missing);
}

/* ---- The choice ---- */

static weft_gemm_backend chosen; /* WEFT_GEMM_BACKENDS: the variable names none */
static char unknown[32];         /* what it names */

static void choose(void)
{
    const char *wanted = getenv("WEFT_GEMM");
    if (!wanted || !*wanted) return;
    int b = 0;
    while (b < WEFT_GEMM_BACKENDS && strcmp(wanted, backends[b].name) != 0) b++;
    chosen = (weft_gemm_backend)b;
    snprintf(unknown, sizeof unknown, "%s", wanted);
}

/* Once for the process: plans made before and after must cut their products alike. */
static weft_gemm_backend choice(void)
{
    static os_once once = OS_ONCE;
    weft__os_run_once(&once, choose);
    return chosen;
}

/* The chosen library has no kernel for a dtype. */
static void report_own(weft_dtype dtype)
{
    static atomic_bool done[WEFT_DTYPES];
    if (weft__log_first(&done[dtype]))
        weft__log(WEFT_LOG_INFO, "WEFT_GEMM", "%s does not multiply %s here: weft's kernels do",
                  backends[choice()].name, weft_dtype_name(dtype));
}

/* Whose kernels multiply matrices of `dtype`; weft's own if WEFT_GEMM names no backend. */
static weft_gemm_backend backend_of(weft_dtype dtype)
{
    const weft_gemm_backend wanted = choice();
    if (wanted == WEFT_GEMM_BACKENDS || wanted == WEFT_GEMM_WEFT) return WEFT_GEMM_WEFT;
    bool lacks = dtype == WEFT_F64 && !backends[wanted].has_f64;
    /* A library that cannot be loaded stays the choice, so that the message says so. */
    if (dtype == WEFT_BF16)
        lacks = !backends[wanted].may_have_bf16 ||
                (load_backend(wanted, NULL) == WEFT_OK && !dnnl_bf16);
    if (lacks) report_own(dtype);
    return lacks ? WEFT_GEMM_WEFT : wanted;
}

bool weft__gemm_is_own(weft_dtype dtype)
{
    return backend_of(dtype) == WEFT_GEMM_WEFT;
}

weft_status weft_gemm_chosen(weft_dtype dtype, weft_gemm_backend *backend, weft_error *error)
{
    weft_error_clear(error);
    if (!weft_dtype_is_float(dtype) && dtype != WEFT_BF16)
        return weft_error_set(error, WEFT_BAD_DTYPE, "gemm",
                              "invalid dtype %s; expected f32, f64 or bf16",
                              weft_dtype_name(dtype));
    if (choice() == WEFT_GEMM_BACKENDS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "gemm",
                              "WEFT_GEMM is \"%s\"; expected weft, openblas or onednn", unknown);
    weft_gemm_backend found = backend_of(dtype);
    weft_status status = load_backend(found, error);
    if (status == WEFT_OK && backend) *backend = found;
    return status;
}

weft_status weft_gemm_info_of(weft_gemm_backend backend, weft_gemm_info *info, weft_error *error)
{
    weft_error_clear(error);
    if ((unsigned)backend >= WEFT_GEMM_BACKENDS || !info)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "gemm",
                              "the backend is unknown, or the result is NULL");
    *info = (weft_gemm_info){.name = backends[backend].name, .path = "", .version = "", .core = ""};
    weft_status status = load_backend(backend, error);
    const loaded *l = backends[backend].loaded;
    if (status != WEFT_OK || !l) return status;
    info->path = l->path;
    info->version = l->version;
    info->core = l->core;
    info->core_chosen = l->core_chosen;
    return WEFT_OK;
}

/* ---- The calls ---- */

static double element(const void *x, int64_t i, bool narrow)
{
    return narrow ? half_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* For when oneDNN, which allocates memory for each product, finds none. */
static void plain(const gemm_call *p, bool narrow)
{
    static atomic_bool done;
    if (weft__log_first(&done))
        weft__log(WEFT_LOG_WARNING, "gemm", "oneDNN has no memory: a slow loop multiplies instead");
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < p->k; l++)
                sum += element(p->a, p->trans_a ? l * p->lda + i : i * p->lda + l, narrow) *
                       element(p->b, p->trans_b ? j * p->ldb + l : l * p->ldb + j, narrow);
            ((float *)p->c)[i * p->ldc + j] = (float)sum;
        }
}

static int order(bool transposed)
{
    return transposed ? TRANS : NO_TRANS;
}

static void library_f32(const gemm_call *p)
{
    if (chosen == WEFT_GEMM_OPENBLAS)
        cblas_sgemm(ROW_MAJOR, order(p->trans_a), order(p->trans_b), (int)p->m, (int)p->n,
                    (int)p->k, 1.0f, p->a, (int)p->lda, p->b, (int)p->ldb, 0.0f, p->c, (int)p->ldc);
    else if (dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, 1.0f,
                        p->a, p->lda, p->b, p->ldb, 0.0f, p->c, p->ldc) != 0)
        plain(p, false);
}

void weft__gemm_f32(const gemm_call *call)
{
    ON_ONE_THREAD(library_f32(call))
}

void weft__gemm_f64(const gemm_call *p)
{
    ON_ONE_THREAD(cblas_dgemm(ROW_MAJOR, order(p->trans_a), order(p->trans_b), (int)p->m, (int)p->n,
                              (int)p->k, 1.0, p->a, (int)p->lda, p->b, (int)p->ldb, 0.0, p->c,
                              (int)p->ldc))
}

void weft__gemm_bf16(const gemm_call *p)
{
    int refused = 0;
    ON_ONE_THREAD(refused = dnnl_bf16(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n,
                                      p->k, 1.0F, p->a, p->lda, p->b, p->ldb, 0.0F, p->c, p->ldc))
    if (refused) plain(p, true);
}
