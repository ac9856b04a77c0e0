/* Speed of single ops compared with the memory bandwidth: op_bench [name ...]
 *
 * Each case is a graph of one op, or of one with its backward pass, at the sizes of a Transformer
 * (d_model 512, d_ff 2048, vocabulary 8000, 16 x 64 tokens) or of an encoder over [30, 200, 512].
 * Bytes are those that must move: each operand read once, each result written once. The triad
 * a = b + s c over arrays larger than the caches runs between any two runs of a case, and the least
 * time of either counts, so that both see the same machine. Names given select the cases that
 * contain one ("=add": that case alone). On a machine that other programs use too,
 * OMP_WAIT_POLICY=passive keeps a waiting thread from holding the processor. Not a test: nothing
 * here fails because it is slow. */
#include <weft/autograd.h>
#include <weft/ops.h>
#include <weft/weft.h>

#include "base/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUTS 8
#define MIN_RUNS   7
#define MAX_RUNS   60
#define SECONDS    0.4

typedef struct bench {
    weft_graph *graph;
    weft_value inputs[MAX_INPUTS];
    double low[MAX_INPUTS], high[MAX_INPUTS];
    size_t n_inputs;
    weft_value targets[MAX_INPUTS];
    size_t n_targets;
    double bytes;
} bench;

static weft_value input(bench *b, weft_dtype dtype, weft_shape shape, double low, double high)
{
    static const char *const names[MAX_INPUTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    size_t i = b->n_inputs++;
    b->low[i] = low;
    b->high[i] = high;
    b->bytes += (double)weft_tensor_bytes(dtype, shape);
    return b->inputs[i] = weft_input(b->graph, names[i], dtype, shape);
}

static weft_value floats(bench *b, weft_shape shape)
{
    return input(b, WEFT_F32, shape, -2, 2);
}

/* A result that is written once. */
static void target(bench *b, weft_value value)
{
    b->targets[b->n_targets++] = value;
    b->bytes +=
        (double)weft_tensor_bytes(weft_dtype_of(b->graph, value), weft_shape_of(b->graph, value));
}

#define FF     WEFT_SHAPE(6000, 2048)
#define MODEL  WEFT_SHAPE(6000, 512)
#define SCORES WEFT_SHAPE(240 * 200, 200)
#define ALL    ((weft_axes){0, {0}})

/* name, statements with b the bench, g its graph */
#define CASES(X)                                                                                   \
    X(add, target(b, weft_add(g, floats(b, FF), floats(b, FF))))                                   \
    X(add_row, target(b, weft_add(g, floats(b, FF), floats(b, WEFT_SHAPE(2048)))))                 \
    X(mul_column, target(b, weft_mul(g, floats(b, FF), floats(b, WEFT_SHAPE(6000, 1)))))           \
    X(mul_scalar, target(b, weft_mul_scalar(g, floats(b, FF), 0.5)))                               \
    X(add_narrow,                                                                                  \
      target(b, weft_add(g, floats(b, WEFT_SHAPE(1500000, 8)), floats(b, WEFT_SHAPE(8)))))         \
    X(div, target(b, weft_div(g, floats(b, FF), floats(b, FF))))                                   \
    X(maximum, target(b, weft_maximum(g, floats(b, FF), floats(b, FF))))                           \
    X(add_n3,                                                                                      \
      target(b, weft_add_n(g, (weft_value[]){floats(b, FF), floats(b, FF), floats(b, FF)}, 3)))    \
    X(relu, target(b, weft_relu(g, floats(b, FF))))                                                \
    X(gelu, target(b, weft_gelu(g, floats(b, FF))))                                                \
    X(gelu_tanh, target(b, weft_gelu_tanh(g, floats(b, FF))))                                      \
    X(tanh, target(b, weft_tanh(g, floats(b, FF))))                                                \
    X(sigmoid, target(b, weft_sigmoid(g, floats(b, FF))))                                          \
    X(silu, target(b, weft_silu(g, floats(b, FF))))                                                \
    X(softplus, target(b, weft_softplus(g, floats(b, FF))))                                        \
    X(exp, target(b, weft_exp(g, floats(b, FF))))                                                  \
    X(log, target(b, weft_log(g, input(b, WEFT_F32, FF, 0.5, 2))))                                 \
    X(erf, target(b, weft_erf(g, floats(b, FF))))                                                  \
    X(sqrt, target(b, weft_sqrt(g, input(b, WEFT_F32, FF, 0.5, 2))))                               \
    X(sin, target(b, weft_sin(g, floats(b, MODEL))))                                               \
    X(cos, target(b, weft_cos(g, floats(b, MODEL))))                                               \
    X(dropout, target(b, weft_dropout(g, floats(b, FF), 0.1)))                                     \
    X(cast_f64, target(b, weft_cast(g, floats(b, FF), WEFT_F64)))                                  \
    X(cast_i32, target(b, weft_cast(g, floats(b, FF), WEFT_I32)))                                  \
    X(cast_from_i32, target(b, weft_cast(g, input(b, WEFT_I32, FF, 0, 9), WEFT_F32)))              \
    X(cast_from_bool, target(b, weft_cast(g, input(b, WEFT_BOOL, FF, 0, 0.5), WEFT_F32)))          \
    X(bitcast, target(b, weft_bitcast(g, floats(b, FF), WEFT_I32)))                                \
    X(greater, target(b, weft_greater(g, floats(b, FF), floats(b, FF))))                           \
    X(greater_scalar, target(b, weft_greater(g, floats(b, FF), weft_scalar(g, WEFT_F32, 0))))      \
    X(equal_i32,                                                                                   \
      target(b, weft_equal(g, input(b, WEFT_I32, FF, 0, 9), input(b, WEFT_I32, FF, 0, 9))))        \
    X(logical_not, target(b, weft_logical_not(g, input(b, WEFT_BOOL, FF, 0, 0.5))))                \
    X(where,                                                                                       \
      target(b, weft_where(g, input(b, WEFT_BOOL, FF, 0, 0.5), floats(b, FF), floats(b, FF))))     \
    X(where_zero, target(b, weft_where(g, input(b, WEFT_BOOL, FF, 0, 0.5), floats(b, FF),          \
                                       weft_scalar(g, WEFT_F32, 0))))                              \
    X(masked_fill,                                                                                 \
      target(b, weft_masked_fill(g, floats(b, FF), input(b, WEFT_BOOL, FF, 0, 0.5), -1e9)))        \
    X(masked_fill_row,                                                                             \
      target(b, weft_masked_fill(g, floats(b, WEFT_SHAPE(30, 8, 200, 200)),                        \
                                 input(b, WEFT_BOOL, WEFT_SHAPE(30, 1, 1, 200), 0, 0.5), -1e9)))   \
    X(masked_fill_causal,                                                                          \
      target(b, weft_masked_fill(g, floats(b, WEFT_SHAPE(30, 8, 200, 200)),                        \
                                 input(b, WEFT_BOOL, WEFT_SHAPE(200, 200), 0, 0.5), -1e9)))        \
    X(sum_last, target(b, weft_sum(g, floats(b, FF), WEFT_AXES(1), false)))                        \
    X(sum_first, target(b, weft_sum(g, floats(b, FF), WEFT_AXES(0), false)))                       \
    X(sum_model, target(b, weft_sum(g, floats(b, MODEL), WEFT_AXES(0), false)))                    \
    X(sum_middle,                                                                                  \
      target(b, weft_sum(g, floats(b, WEFT_SHAPE(60, 200, 512)), WEFT_AXES(1), false)))            \
    X(sum_all, target(b, weft_sum(g, floats(b, FF), ALL, false)))                                  \
    X(mean_all, target(b, weft_mean(g, floats(b, FF), ALL, false)))                                \
    X(max_last, target(b, weft_max(g, floats(b, FF), WEFT_AXES(1), false)))                        \
    X(max_first, target(b, weft_max(g, floats(b, FF), WEFT_AXES(0), false)))                       \
    X(max_all, target(b, weft_max(g, floats(b, FF), ALL, false)))                                  \
    X(min_first, target(b, weft_min(g, floats(b, FF), WEFT_AXES(0), false)))                       \
    X(variance_last, target(b, weft_variance(g, floats(b, FF), WEFT_AXES(1), false, 1)))           \
    X(variance_first, target(b, weft_variance(g, floats(b, FF), WEFT_AXES(0), false, 1)))          \
    X(variance_all, target(b, weft_variance(g, floats(b, FF), ALL, false, 1)))                     \
    X(logsumexp_last, target(b, weft_logsumexp(g, floats(b, FF), WEFT_AXES(1), false)))            \
    X(logsumexp_first, target(b, weft_logsumexp(g, floats(b, FF), WEFT_AXES(0), false)))           \
    X(logsumexp_all, target(b, weft_logsumexp(g, floats(b, FF), ALL, false)))                      \
    X(argmax_last, target(b, weft_argmax(g, floats(b, FF), 1, false)))                             \
    X(argmax_first, target(b, weft_argmax(g, floats(b, FF), 0, false)))                            \
    X(cumsum_last, target(b, weft_cumsum(g, floats(b, FF), 1, false)))                             \
    X(cumsum_first, target(b, weft_cumsum(g, floats(b, FF), 0, false)))                            \
    X(softmax, target(b, weft_softmax(g, floats(b, SCORES), -1)))                                  \
    X(softmax_grad, softmax_backward(b, SCORES, 1))                                                \
    X(softmax_first, target(b, weft_softmax(g, floats(b, FF), 0)))                                 \
    X(softmax_grad_first, softmax_backward(b, FF, 0))                                              \
    X(softmax_middle, target(b, weft_softmax(g, floats(b, WEFT_SHAPE(60, 200, 512)), 1)))          \
    X(log_softmax, target(b, weft_log_softmax(g, floats(b, WEFT_SHAPE(1024, 8000)), -1)))          \
    X(log_softmax_first, target(b, weft_log_softmax(g, floats(b, FF), 0)))                         \
    X(layer_norm, target(b, weft_layer_norm(g, floats(b, MODEL), floats(b, WEFT_SHAPE(512)),       \
                                            floats(b, WEFT_SHAPE(512)), 1e-5)))                    \
    X(layer_norm_large,                                                                            \
      target(b, weft_layer_norm(g, floats(b, WEFT_SHAPE(24000, 512)), floats(b, WEFT_SHAPE(512)),  \
                                floats(b, WEFT_SHAPE(512)), 1e-5)))                                \
    X(layer_norm_both, layer_norm_both(b, MODEL))                                                  \
    X(layer_norm_both_large, layer_norm_both(b, WEFT_SHAPE(24000, 512)))                           \
    X(rms_norm_large, target(b, weft_rms_norm(g, floats(b, WEFT_SHAPE(24000, 512)),                \
                                              floats(b, WEFT_SHAPE(512)), 1e-6)))                  \
    X(embedding, embedding(b, 1024, false))                                                        \
    X(embedding_large, embedding(b, 24000, false))                                                 \
    X(embedding_grad, embedding(b, 1024, true))                                                    \
    X(embedding_grad_large, embedding(b, 24000, true))                                             \
    X(cross_entropy, cross_entropy(b, false))                                                      \
    X(cross_entropy_both, cross_entropy(b, true))                                                  \
    X(one_hot,                                                                                     \
      target(b, weft_one_hot(g, input(b, WEFT_I32, WEFT_SHAPE(1024), 0, 8000), 8000, WEFT_F32)))   \
    X(gather_last, gather(b, WEFT_SHAPE(6000, 2048), WEFT_SHAPE(6000, 1024), 1))                   \
    X(gather_first, gather(b, WEFT_SHAPE(2000, 2048), WEFT_SHAPE(3000, 2048), 0))                  \
    X(concat_last, target(b, weft_concat(g,                                                        \
                                         (weft_value[]){floats(b, MODEL), floats(b, MODEL),        \
                                                        floats(b, MODEL), floats(b, MODEL)},       \
                                         4, 1)))                                                   \
    X(slice_last, slice_last(b, false))                                                            \
    X(slice_grad, slice_last(b, true))                                                             \
    X(pad_last, target(b, weft_pad(g, floats(b, WEFT_SHAPE(6000, 2000)), (int64_t[]){0, 24},       \
                                   (int64_t[]){0, 24}, 0)))                                        \
    X(transpose, target(b, weft_contiguous(g, weft_transpose(g, floats(b, FF), 0, 1))))            \
    X(split_heads,                                                                                 \
      target(b,                                                                                    \
             weft_contiguous(g, weft_transpose(g, floats(b, WEFT_SHAPE(120, 200, 8, 64)), 1, 2)))) \
    X(transpose_keys,                                                                              \
      target(b, weft_contiguous(g, weft_transpose(g, floats(b, WEFT_SHAPE(960, 200, 64)), 1, 2)))) \
    X(global_norm, target(b, weft_global_norm(g,                                                   \
                                              (weft_value[]){floats(b, FF), floats(b, MODEL),      \
                                                             floats(b, WEFT_SHAPE(512))},          \
                                              3)))                                                 \
    X(adam, adam(b, WEFT_SHAPE(4000000)))                                                          \
    X(adam_large, adam(b, WEFT_SHAPE(8000, 2048)))                                                 \
    X(adam_small, adam(b, WEFT_SHAPE(512)))                                                        \
    X(sgd, sgd(b, WEFT_SHAPE(8000, 2048)))                                                         \
    X(add_small, target(b, weft_add(g, floats(b, WEFT_SHAPE(512)), floats(b, WEFT_SHAPE(512)))))

static void softmax_backward(bench *b, weft_shape shape, int axis)
{
    weft_value x = floats(b, shape), dy = floats(b, shape), dx;
    weft_value y = weft_softmax(b->graph, x, axis);
    b->bytes += 2.0 * (double)weft_shape_numel(shape) * 4; /* y, written and read */
    weft_grad_of(b->graph, &y, &dy, 1, &x, 1, &dx);
    target(b, dx);
}

static void layer_norm_both(bench *b, weft_shape shape)
{
    weft_value x = floats(b, shape), dy = floats(b, shape);
    weft_value gamma = floats(b, WEFT_SHAPE(shape.dim[1])), grads[3];
    weft_value beta = floats(b, WEFT_SHAPE(shape.dim[1]));
    weft_value y = weft_layer_norm(b->graph, x, gamma, beta, 1e-5);
    b->bytes += (double)weft_shape_numel(shape) * 4; /* x is read twice */
    weft_grad_of(b->graph, &y, &dy, 1, (weft_value[]){x, gamma, beta}, 3, grads);
    target(b, y);
    for (int i = 0; i < 3; i++) target(b, grads[i]);
}

static void embedding(bench *b, int64_t tokens, bool backward)
{
    weft_value table = floats(b, WEFT_SHAPE(8000, 512)), dy, grad;
    weft_value ids = input(b, WEFT_I32, WEFT_SHAPE(tokens), 0, 8000);
    weft_value y = weft_embedding(b->graph, table, ids, -1);
    b->bytes = (double)tokens * 4; /* the rows that are read, instead of the table */
    if (!backward) {
        b->bytes += (double)tokens * 512 * 4;
        target(b, y);
        return;
    }
    dy = floats(b, WEFT_SHAPE(tokens, 512));
    weft_grad_of(b->graph, &y, &dy, 1, &table, 1, &grad);
    target(b, grad);
}

static void cross_entropy(bench *b, bool backward)
{
    weft_value logits = floats(b, WEFT_SHAPE(1024, 8000)), grad;
    weft_value ids = input(b, WEFT_I32, WEFT_SHAPE(1024), 0, 8000);
    weft_cross_entropy_loss_options options = {.label_smoothing = 0.1};
    weft_value loss = weft_cross_entropy_loss(b->graph, logits, ids, &options);
    target(b, loss);
    if (!backward) return;
    b->bytes += 1024.0 * 8000 * 4; /* read twice */
    weft_grad(b->graph, loss, &logits, 1, &grad);
    target(b, grad);
}

static void gather(bench *b, weft_shape from, weft_shape to, int axis)
{
    weft_value x = floats(b, from);
    weft_value ids = input(b, WEFT_I32, to, 0, (double)from.dim[axis]);
    target(b, weft_gather(b->graph, x, ids, axis));
}

static void slice_last(bench *b, bool backward)
{
    weft_value x = floats(b, FF), grad;
    weft_value y = weft_slice(b->graph, x, 1, 512, 1536, 1);
    b->bytes /= 2;
    if (!backward) {
        target(b, weft_contiguous(b->graph, y));
        return;
    }
    b->bytes = 0;
    weft_value dy = floats(b, WEFT_SHAPE(6000, 1024));
    weft_grad_of(b->graph, &y, &dy, 1, &x, 1, &grad);
    target(b, grad);
}

static weft_value state(bench *b, const char *name, weft_shape shape)
{
    b->bytes += (double)weft_shape_numel(shape) * 4;
    return weft_state(b->graph, name, WEFT_F32, shape, WEFT_INIT_ONES);
}

static void adam(bench *b, weft_shape shape)
{
    weft_value param = state(b, "param", shape), m = state(b, "m", shape), v = state(b, "v", shape);
    weft_value lr = weft_scalar(b->graph, WEFT_F32, 1e-3), t = weft_scalar(b->graph, WEFT_F32, 3);
    weft_adam_options options = {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-9};
    weft_value next = weft_adam_update(
        b->graph, &(weft_adam_values){param, m, v, floats(b, shape), lr, t, WEFT_NO_VALUE},
        &options);
    target(b, next);
    b->bytes += 2.0 * (double)weft_shape_numel(shape) * 4; /* m and v are written too */
}

static void sgd(bench *b, weft_shape shape)
{
    weft_value lr = weft_scalar(b->graph, WEFT_F32, 1e-3);
    weft_sgd_options options = {.weight_decay = 0.01};
    target(b, weft_sgd_update(b->graph, state(b, "param", shape), WEFT_NO_VALUE, floats(b, shape),
                              lr, WEFT_NO_VALUE, &options));
}

#define CASE_FUNCTION(name, ...)                                                                   \
    static void case_##name(bench *b)                                                              \
    {                                                                                              \
        weft_graph *g = b->graph;                                                                  \
        (void)g;                                                                                   \
        __VA_ARGS__;                                                                               \
    }
CASES(CASE_FUNCTION)

#define CASE_ROW(name, ...) {#name, case_##name},
static const struct {
    const char *name;
    void (*build)(bench *);
} cases[] = {CASES(CASE_ROW)};

/* ---- Timing ---- */

#define TRIAD_NUMEL (12 * 1024 * 1024) /* 48 MiB an array */

static float *triad_arrays;

static double triad(void)
{
    float *a = triad_arrays, *b = a + TRIAD_NUMEL, *c = b + TRIAD_NUMEL;
    double begin = clock_seconds();
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < TRIAD_NUMEL; i++) a[i] = b[i] + 0.5f * c[i];
    return clock_seconds() - begin;
}

static bool feed(bench *b, weft_session *session)
{
    for (size_t i = 0; i < b->n_inputs; i++) {
        weft_sample_input sample = {weft_dtype_of(b->graph, b->inputs[i]),
                                    weft_shape_of(b->graph, b->inputs[i]), b->low[i], b->high[i],
                                    false};
        size_t bytes = weft_tensor_bytes(sample.dtype, sample.shape);
        void *data = malloc(bytes);
        if (!data) return false;
        weft_sample_input_fill(&sample, sample.dtype, i + 1, data);
        weft_status status = weft_session_feed(session, b->inputs[i], data, bytes, NULL);
        free(data);
        /* An input whose value is not needed is not a failure. */
        if (status != WEFT_OK) return false;
    }
    return true;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static bool measure(const char *name, bench *b, weft_session *session)
{
    double op_s = 1e9, triad_s = 1e9, begin = clock_seconds();
    weft_error error = WEFT_NO_ERROR;
    if (!feed(b, session) || weft_session_run(session, &error) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", name, error.message);
        return false;
    }
    for (int i = 0; i < MIN_RUNS || (i < MAX_RUNS && clock_seconds() - begin < SECONDS); i++) {
        triad_s = least(triad_s, triad());
        weft_session_run(session, NULL); /* what the triad took from the caches comes back */
        double start = clock_seconds();
        weft_session_run(session, NULL);
        op_s = least(op_s, clock_seconds() - start);
    }
    double rate = b->bytes / op_s, triad_rate = 12.0 * TRIAD_NUMEL / triad_s;
    printf("%-22s %9.4f MB %9.4f ms %7.2f GB/s %6.2f of triad\n", name, b->bytes * 1e-6, op_s * 1e3,
           rate * 1e-9, rate / triad_rate);
    fflush(stdout);
    return true;
}

static bool run_case(size_t index)
{
    weft_error error = {0};
    bench b = {.graph = weft_graph_new()};
    cases[index].build(&b);
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(b.graph, b.targets, b.n_targets, NULL, &error);
    weft_session *session = NULL;
    if (plan && weft_params_init(params, b.graph, 1, &error) == WEFT_OK)
        session = weft_session_new(plan, params, NULL, &error);
    bool good = session && measure(cases[index].name, &b, session);
    if (!session) fprintf(stderr, "%s: %s: %s\n", cases[index].name, error.where, error.message);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(b.graph);
    return good;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '=' ? !strcmp(name, argv[i] + 1) : strstr(name, argv[i]) != NULL)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    bool good = true;
    triad_arrays = malloc(sizeof *triad_arrays * 3 * TRIAD_NUMEL);
    if (!triad_arrays) return 1;
    for (int64_t i = 0; i < 3 * TRIAD_NUMEL; i++) triad_arrays[i] = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (is_wanted(cases[i].name, argc, argv)) good = run_case(i) && good;
    free(triad_arrays);
    return !good;
}
