/* weft's matrix products compared with oneDNN's, in f32 and bf16: gemm_bench THREADS [ROUNDS]
 *
 * A chain of products, x [6000, 512] W [512, 2048] and back, as the layers of a Transformer have
 * them. In bf16 both store the results of products as bf16; weft rounds its f32 parameters while it
 * packs them, oneDNN reads matrices of bf16 as they lie. The programs run in turn, and the least
 * time of each counts. Not a test: nothing here fails because it is slow. */
#include <weft/weft.h>

#include "base/platform.h"

#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6000, NARROW = 512, WIDE = 2048, PRODUCTS = 6 };

/* ---- weft ---- */

typedef struct own {
    weft_graph *graph;
    weft_plan *plan;
    weft_params *params;
    weft_session *session;
} own;

static bool own_open(own *o, weft_precision precision, int threads, const float *x)
{
    weft_error error = {0};
    o->graph = weft_graph_new();
    weft_value in = weft_input(o->graph, "x", WEFT_F32, WEFT_SHAPE(ROWS, NARROW)), y = in;
    for (int i = 0; i < PRODUCTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        const weft_shape shape = i % 2 ? WEFT_SHAPE(WIDE, NARROW) : WEFT_SHAPE(NARROW, WIDE);
        y = weft_matmul(o->graph, y, weft_param(o->graph, name, WEFT_F32, shape, WEFT_INIT_XAVIER));
    }
    o->params = weft_params_new();
    o->plan = weft_plan_new(o->graph, &y, 1, &(weft_plan_options){.precision = precision}, &error);
    if (o->plan && weft_params_init(o->params, o->graph, 1, &error) == WEFT_OK)
        o->session = weft_session_new(o->plan, o->params,
                                      &(weft_session_options){.threads = threads}, &error);
    if (o->session &&
        weft_session_feed(o->session, in, x, sizeof(float) * ROWS * NARROW, NULL) == WEFT_OK)
        return true;
    fprintf(stderr, "gemm_bench: %s: %s\n", error.where, error.message);
    return false;
}

static double own_seconds(const own *o)
{
    const double begin = clock_seconds();
    return weft_session_run(o->session, NULL) == WEFT_OK ? clock_seconds() - begin : 1e30;
}

static void own_close(own *o)
{
    weft_session_free(o->session);
    weft_plan_free(o->plan);
    weft_params_free(o->params);
    weft_graph_free(o->graph);
}

/* ---- oneDNN ---- */

typedef struct peer {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t product[2]; /* to WIDE and back */
    dnnl_memory_t x[2], w[2];    /* of width NARROW, WIDE; for either product */
} peer;

static dnnl_memory_t matrix(const peer *p, dnnl_data_type_t dtype, int64_t rows, int64_t columns,
                            dnnl_memory_desc_t *desc)
{
    const dnnl_dims_t dims = {rows, columns};
    dnnl_memory_t memory = NULL;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_create_with_tag(desc, 2, dims, dtype, dnnl_ab);
    dnnl_memory_create(&memory, *desc, p->engine, DNNL_MEMORY_ALLOCATE);
#else
    dnnl_memory_desc_init_by_tag(desc, 2, dims, dtype, dnnl_ab);
    dnnl_memory_create(&memory, desc, p->engine, DNNL_MEMORY_ALLOCATE);
#endif
    void *data;
    if (memory && dnnl_memory_get_data_handle(memory, &data) == dnnl_success)
        memset(data, 0, (size_t)(rows * columns) * (dtype == dnnl_f32 ? 4 : 2));
    return memory;
}

static bool peer_open(peer *p, dnnl_data_type_t dtype)
{
    dnnl_memory_desc_t x[2], w[2];
    if (dnnl_engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) != dnnl_success)
        return false;
    p->x[0] = matrix(p, dtype, ROWS, NARROW, &x[0]);
    p->x[1] = matrix(p, dtype, ROWS, WIDE, &x[1]);
    p->w[0] = matrix(p, dtype, NARROW, WIDE, &w[0]);
    p->w[1] = matrix(p, dtype, WIDE, NARROW, &w[1]);
    for (int i = 0; i < 2; i++) {
        dnnl_primitive_desc_t pd;
#if DNNL_VERSION_MAJOR >= 3
        if (dnnl_matmul_primitive_desc_create(&pd, p->engine, x[i], w[i], NULL, x[1 - i], NULL) !=
            dnnl_success)
            return false;
#else
        dnnl_matmul_desc_t d;
        if (dnnl_matmul_desc_init(&d, &x[i], &w[i], NULL, &x[1 - i]) != dnnl_success ||
            dnnl_primitive_desc_create(&pd, &d, NULL, p->engine, NULL) != dnnl_success)
            return false;
#endif
        if (dnnl_primitive_create(&p->product[i], pd) != dnnl_success) return false;
        dnnl_primitive_desc_destroy(pd);
    }
    return true;
}

static double peer_seconds(const peer *p)
{
    const double begin = clock_seconds();
    for (int i = 0; i < PRODUCTS; i++) {
        const dnnl_exec_arg_t arguments[3] = {{DNNL_ARG_SRC, p->x[i % 2]},
                                              {DNNL_ARG_WEIGHTS, p->w[i % 2]},
                                              {DNNL_ARG_DST, p->x[1 - i % 2]}};
        if (dnnl_primitive_execute(p->product[i % 2], p->stream, 3, arguments) != dnnl_success)
            return 1e30;
    }
    dnnl_stream_wait(p->stream);
    return clock_seconds() - begin;
}

static void peer_close(peer *p)
{
    for (int i = 0; i < 2; i++) {
        dnnl_primitive_destroy(p->product[i]);
        dnnl_memory_destroy(p->x[i]);
        dnnl_memory_destroy(p->w[i]);
    }
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
}

static bool measure(weft_precision precision, int threads, int rounds, const float *x)
{
    own o = {0};
    peer p = {0};
    const bool narrow = precision == WEFT_PRECISION_BF16;
    if (!own_open(&o, precision, threads, x)) return false;
    if (!peer_open(&p, narrow ? dnnl_bf16 : dnnl_f32)) {
        printf("oneDNN has no product of %s here\n", narrow ? "bf16" : "f32");
        return false;
    }
    double least = 1e30, theirs = 1e30;
    for (int i = 0; i <= rounds; i++) {
        const double a = own_seconds(&o), b = peer_seconds(&p);
        if (i && a < least) least = a; /* the first round makes threads and touches memory */
        if (i && b < theirs) theirs = b;
    }
    const double flops = 2.0 * ROWS * NARROW * WIDE * PRODUCTS;
    printf("%s: weft %.1f GFLOP/s, oneDNN %d.%d %.1f GFLOP/s, weft at %.2f of it\n",
           narrow ? "bf16" : "f32", 1e-9 * flops / least, DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
           1e-9 * flops / theirs, theirs / least);
    own_close(&o);
    peer_close(&p);
    return true;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 7;
    if (threads < 1 || rounds < 1) {
        fprintf(stderr, "Usage: gemm_bench THREADS [ROUNDS]\n");
        return 2;
    }
    omp_set_num_threads(threads);
    float *x = malloc(sizeof(float) * ROWS * NARROW);
    if (!x) return 1;
    for (int i = 0; i < ROWS * NARROW; i++) x[i] = (float)(i % 17) - 8;
    const bool good = measure(WEFT_PRECISION_F32, threads, rounds, x) &&
                      measure(WEFT_PRECISION_BF16, threads, rounds, x);
    free(x);
    return good ? 0 : 1;
}
