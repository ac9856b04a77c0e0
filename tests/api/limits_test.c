/* Sizes at their limits: shapes of up to 2^56 elements, broadcast from one, and axes and lengths at
 * the ends of their types. What is too large is refused with WEFT_TOO_LARGE; for the rest the
 * plan's counts do not overflow. */
#include "tests.h"

#include "plan/plan.h"

#include <weft/decode.h>
#include <weft/transform.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Huge shapes ---- */

static weft_value wide(weft_graph *g, weft_dtype dtype, weft_shape shape)
{
    static int count;
    char name[32];
    snprintf(name, sizeof name, "x%d", count++);
    return weft_broadcast_to(g, weft_input(g, name, dtype, WEFT_SCALAR), shape);
}

#define F(...) wide(g, WEFT_F32, WEFT_SHAPE(__VA_ARGS__))
#define D(...) wide(g, WEFT_F64, WEFT_SHAPE(__VA_ARGS__))
#define I(...) wide(g, WEFT_I32, WEFT_SHAPE(__VA_ARGS__))
#define B(...) wide(g, WEFT_BOOL, WEFT_SHAPE(__VA_ARGS__))
#define NONE   WEFT_NO_VALUE

static weft_value state(weft_graph *g, const char *name, weft_shape shape)
{
    return weft_state(g, name, WEFT_F32, shape, WEFT_INIT_ZEROS);
}

/* name, a value with n in its shape or in that of an operand */
#define BUILDERS(X)                                                                                \
    X(add, weft_add(g, F(n), F(1)))                                                                \
    X(outer, weft_mul(g, F(n, 1), F(1, n)))                                                        \
    X(gelu, weft_gelu(g, D(n)))                                                                    \
    X(sin, weft_sin(g, F(n)))                                                                      \
    X(add_n, weft_add_n(g, (weft_value[]){F(n), F(n)}, 2))                                         \
    X(equal, weft_equal(g, I(n, 3), I(3)))                                                         \
    X(logical_not, weft_logical_not(g, B(n)))                                                      \
    X(where, weft_where(g, B(n, 1), F(1, 2), F(2)))                                                \
    X(masked_fill, weft_masked_fill(g, F(n, 2), B(2), 0))                                          \
    X(cast, weft_cast(g, F(n), WEFT_F64))                                                          \
    X(dropout, weft_dropout(g, F(n), 0.5))                                                         \
    X(sum_all, weft_sum(g, F(n), WEFT_ALL_AXES, false))                                            \
    X(sum_rows, weft_sum(g, F(3, n), WEFT_AXES(1), false))                                         \
    X(sum_columns, weft_sum(g,                                                                     \
                            weft_broadcast_to(g, weft_input(g, "row", WEFT_F32, WEFT_SHAPE(1, 2)), \
                                              WEFT_SHAPE(n, 2)),                                   \
                            WEFT_AXES(0), false))                                                  \
    X(sum_other, weft_sum(g, F(n, 3), WEFT_AXES(1), false))                                        \
    X(mean, weft_mean(g, D(n, 2), WEFT_ALL_AXES, false))                                           \
    X(max, weft_max(g, F(2, n), WEFT_AXES(1), true))                                               \
    X(variance, weft_variance(g, F(n), WEFT_ALL_AXES, false, 1))                                   \
    X(logsumexp, weft_logsumexp(g, F(n), WEFT_AXES(0), false))                                     \
    X(argmax, weft_argmax(g, F(2, n), 1, false))                                                   \
    X(argmax_other, weft_argmax(g, F(n, 2), 1, false))                                             \
    X(cumsum, weft_cumsum(g, F(n), 0, false))                                                      \
    X(conv_images, weft_conv(g, F(n, 2, 4, 4), F(3, 2, 3, 3), F(3), NULL))                         \
    X(conv_channels, weft_conv(g, F(1, n, 4), F(2, n, 3), NONE, NULL))                             \
    X(conv_rows, weft_conv(g, F(1, 2, 4), F(n, 2, 3), NONE, NULL))                                 \
    X(conv_pixels,                                                                                 \
      weft_conv(g, F(1, 2, n), F(3, 2, 3), NONE, &(weft_conv_options){.stride = {2}}))             \
    X(conv_plane,                                                                                  \
      weft_conv(g, F(1, 2, n, 3), F(2, 1, 3, 3), NONE, &(weft_conv_options){.groups = 2}))         \
    X(conv_pad,                                                                                    \
      weft_conv(g, F(1, 2, 3, 3), F(2, 2, 3, 3), NONE, &(weft_conv_options){.pad_end = {n, n}}))   \
    X(conv_dilation,                                                                               \
      weft_conv(g, F(1, 1, 3, 3), F(1, 1, 2, 2), NONE,                                             \
                &(weft_conv_options){.dilation = {n - 1, n - 1}, .pad_end = {n - 1, n - 1}}))      \
    X(conv_groups, weft_conv(g, F(1, n, 4), F(n, 1, 3), NONE, &(weft_conv_options){.groups = n}))  \
    X(conv_transpose, weft_conv_transpose(g, F(1, 2, 3, 3), F(2, 2, 3, 3), NONE,                   \
                                          &(weft_conv_options){.stride = {n, n}}))                 \
    X(max_pool, weft_max_pool(g, F(2, 2, n), &(weft_pool_options){.kernel = {3}}, NULL))           \
    X(max_pool_images, weft_max_pool(g, F(n, 2, 8), &(weft_pool_options){.kernel = {3}}, NULL))    \
    X(average_pool,                                                                                \
      weft_average_pool(g, F(2, 2, n), &(weft_pool_options){.kernel = {3}, .ceil_mode = true}))    \
    X(average_pool_images, weft_average_pool(g, F(n, 2, 8), &(weft_pool_options){.kernel = {3}}))  \
    X(average_pool_window,                                                                         \
      weft_average_pool(g, F(2, 2, n, 2), &(weft_pool_options){.kernel = {n, 2}}))                 \
    X(softmax, weft_softmax(g, F(2, n), 1))                                                        \
    X(softmax_columns, weft_softmax(g, F(n, 2), 0))                                                \
    X(log_softmax, weft_log_softmax(g, D(n, 4), 1))                                                \
    X(layer_norm, weft_layer_norm(g, F(2, n), F(n), F(n), 1e-5))                                   \
    X(rms_norm, weft_rms_norm(g, F(n, 4), F(4), 1e-5))                                             \
    X(matmul_batch, weft_matmul(g, F(n, 2, 3), F(3, 2)))                                           \
    X(matmul_batches, weft_matmul(g, F(n, 1, 2, 3), F(64, 3, 2)))                                  \
    X(matmul_inner, weft_matmul(g, F(2, n), F(n, 2)))                                              \
    X(matmul_work, weft_matmul(g, F(n / INT32_MAX + 1, 256, INT32_MAX), F(INT32_MAX, 256)))        \
    X(matmul_shared, weft_matmul_shared(g, F(n, 2), F(2, 2)))                                      \
    X(einsum, weft_einsum(g, "ij,jk->ik", F(n, 2), F(2, 3)))                                       \
    X(einsum_outer, weft_einsum(g, "i,j->ij", F(n), F(n)))                                         \
    X(sdpa_keys, weft_sdpa(g, F(1, 4096, 64, 4), F(1, n, 1, 4), F(1, n, 1, 4), NULL))              \
    X(sdpa_few_keys, weft_sdpa(g, F(1, 1, 1, 4), F(1, n, 1, 4), F(1, n, 1, 4), NULL))              \
    X(sdpa_queries, weft_sdpa(g, F(1, n, 1, 4), F(1, 2000, 1, 4), F(1, 2000, 1, 4), NULL))         \
    X(sdpa_batch, weft_sdpa(g, F(n, 2, 1, 4), F(n, 2, 1, 4), F(n, 2, 1, 4), NULL))                 \
    X(sdpa_both, weft_sdpa(g, F(1, n, 1, 1), F(1, n, 1, 1), F(1, n, 1, 1), NULL))                  \
    X(sdpa_width, weft_sdpa(g, F(1, 2, 1, n), F(1, 2, 1, n), F(1, 2, 1, n), NULL))                 \
    X(sdpa_dropped, weft_sdpa(g, F(1, 2, 64, 4), F(1, n, 1, 4), F(1, n, 1, 4),                     \
                              &(weft_sdpa_options){.dropout = 0.5, .causal = true}))               \
    X(embedding, weft_embedding(g, F(5, 2), I(n), -1))                                             \
    X(embedding_rows, weft_embedding(g, F(n, 2), I(5), -1))                                        \
    X(gather, weft_gather(g, F(n, 2), I(3, 2), 0))                                                 \
    X(scatter_add, weft_scatter_add(g, F(3, 2), I(n, 2), F(n, 2), 0))                              \
    X(one_hot, weft_one_hot(g, I(3), n, WEFT_F32))                                                 \
    X(one_hot_rows, weft_one_hot(g, I(n), 100, WEFT_F32))                                          \
    X(concat, weft_concat(g, (weft_value[]){F(n), F(n), F(n)}, 3, 0))                              \
    X(stack, weft_stack(g, (weft_value[]){F(n), F(n)}, 2, -1))                                     \
    X(pad, weft_pad(g, F(n), (int64_t[]){INT32_MAX}, (int64_t[]){INT32_MAX}, 0))                   \
    X(slice, weft_contiguous(g, weft_slice(g, F(n), 0, n / 2, n - 1, 1)))                          \
    X(slice_step, weft_sum(g, weft_slice(g, F(n), 0, -1, 0, -INT64_MAX), WEFT_ALL_AXES, false))    \
    X(reshape, weft_neg(g, weft_reshape(g, F(n, 2), WEFT_SHAPE(2, -1))))                           \
    X(permute, weft_neg(g, weft_transpose(g, F(n, 2), 0, 1)))                                      \
    X(fill, weft_contiguous(g, weft_fill(g, WEFT_F32, WEFT_SHAPE(n, 2), 3)))                       \
    X(arange, weft_arange(g, WEFT_F64, n, 0, 1))                                                   \
    X(tril_mask, weft_tril_mask(g, n, 2, 0))                                                       \
    X(causal_mask, weft_causal_mask(g, n, n))                                                      \
    X(tril, weft_tril(g, F(n, 2), INT64_MAX))                                                      \
    X(cross_entropy_rows, weft_cross_entropy_loss(g, F(n, 3), I(n), &loss))                        \
    X(cross_entropy, weft_cross_entropy_loss(g, F(3, n), I(3), &loss))                             \
    X(mse, weft_mse_loss(g, F(n), F(n), WEFT_REDUCE_MEAN))                                         \
    X(bce, weft_bce_with_logits_loss(g, D(n), D(n), WEFT_REDUCE_SUM))                              \
    X(global_norm, weft_global_norm(g, (weft_value[]){F(n), F(n)}, 2))                             \
    X(require_finite,                                                                              \
      weft_require_finite(g, F(n), (weft_value[]){weft_scalar(g, WEFT_F32, 1)}, 1))                \
    X(assign, weft_assign(g, state(g, "s", WEFT_SHAPE(n)), F(n)))                                  \
    X(sgd_update, weft_sgd_update(g, state(g, "s", WEFT_SHAPE(n)), NONE, F(n),                     \
                                  weft_scalar(g, WEFT_F32, 1), NONE, &(weft_sgd_options){0}))      \
    X(cache_write, weft_cache_write(g, state(g, "s", WEFT_SHAPE(2, n, 2)), F(2, n / 2, 2),         \
                                    weft_scalar(g, WEFT_I32, 0)))                                  \
    X(cache_reorder, weft_cache_reorder(g, state(g, "s", WEFT_SHAPE(n, 2, 2)), I(n),               \
                                        weft_scalar(g, WEFT_I32, 1)))

#define PARAMETERS weft_graph *g, int64_t n, const weft_cross_entropy_loss_options loss
#define DEFINE_BUILDER(name, value)                                                                \
    static weft_value build_##name(PARAMETERS)                                                     \
    {                                                                                              \
        (void)loss;                                                                                \
        return value;                                                                              \
    }
BUILDERS(DEFINE_BUILDER)

static const struct {
    const char *name;
    weft_value (*build)(PARAMETERS);
} builders[] = {
#define ROW(name, value) {#name, build_##name},
    BUILDERS(ROW)
#undef ROW
};

/* The plan's counts of work are positive, and those of an interval are the sums of its steps'. */
static bool counts_hold(const weft_plan *plan)
{
    for (size_t i = 0; i < plan->n_intervals; i++) {
        const plan_interval *interval = &plan->intervals[i];
        for (int phase = 0; phase < interval->phases; phase++) {
            double sum = 0;
            for (uint32_t k = 0; k < interval->n_steps; k++) {
                const plan_step *step = &plan->steps[interval->first_step + k];
                if (phase >= step->phases || step->fused) continue;
                if (step->tiles[phase] < 0 || step->tile_work[phase] < 0) return false;
                if (step->tiles[phase] && !step->tile_work[phase]) return false;
                sum += (double)step->tiles[phase] * (double)step->tile_work[phase];
            }
            /* The counts are whole numbers, whose sum f64 rounds. */
            if (!(fabs((double)interval->work[phase] - sum) <= sum * ROUNDING_F64)) return false;
        }
    }
    const weft_plan_stats s = weft_plan_stats_of(plan);
    return s.sum_bytes >= s.arena_bytes && s.arena_bytes >= s.lower_bound_bytes && s.flops >= 0 &&
           weft_plan_workspace_bytes(plan, INT_MAX) >= weft_plan_workspace_bytes(plan, 1);
}

static bool one_line(const weft_error *e)
{
    return e->where[0] && e->message[0] && !strchr(e->message, '\n');
}

/* A batch of the value for two examples, each with the inputs of the graph. */
static weft_value two_of(weft_graph *g, weft_value value)
{
    weft_value inputs[8], batches[8], result = WEFT_NO_VALUE;
    const size_t n_nodes = weft_graph_node_count(g);
    size_t n = 0;
    for (size_t i = 0; i < n_nodes && n < 8; i++) {
        const weft_node_info node = weft_graph_node(g, i);
        if (node.op != &weft_op_input) continue;
        inputs[n] = weft_value_from_id(g, node.first_out);
        const weft_shape one = weft_shape_of(g, inputs[n]);
        weft_shape two = {one.rank + 1, {2}};
        for (int d = 0; d < one.rank; d++) two.dim[d + 1] = one.dim[d];
        batches[n] = weft_broadcast_to(g, inputs[n], two);
        n++;
    }
    if (!n) return value;
    weft_vmap(g, &value, 1, inputs, batches, n, &result);
    return result;
}

typedef enum variant { PLAIN, DIFFERENTIATED, BATCHED, VARIANTS } variant;

/* Plans a value; or, if it is a float, the gradients of all inputs that it depends on, and its
 * derivative along them; or a batch of it. */
static void check_huge(const char *name, int64_t n, weft_value (*build)(PARAMETERS), variant mode)
{
    static const char *const modes[] = {"", ", backward", ", batched"};
    const bool backward = mode == DIFFERENTIATED;
    weft_graph *g = weft_graph_new();
    weft_value targets[10], wrt[8];
    size_t n_wrt = 0;
    const weft_cross_entropy_loss_options loss = {.ignore_index = -1, .label_smoothing = 0.1};
    weft_error error = {0};
    targets[0] = build(g, n, loss);
    const weft_error *e = weft_graph_error(g);
    for (size_t i = 0; i < weft_graph_node_count(g) && n_wrt < 8; i++) {
        weft_node_info node = weft_graph_node(g, i);
        weft_value v = weft_value_from_id(g, node.first_out);
        if (node.op == &weft_op_input && weft_dtype_is_float(weft_dtype_of(g, v))) wrt[n_wrt++] = v;
    }
    if (backward && e->status == WEFT_OK) {
        weft_value ones =
            weft_fill(g, weft_dtype_of(g, targets[0]), weft_shape_of(g, targets[0]), 1);
        weft_grad_of(g, targets, &ones, 1, wrt, n_wrt, targets + 1);
        weft_jvp(g, targets, 1, wrt, wrt, n_wrt, targets + 1 + n_wrt);
    }
    if (mode == BATCHED && e->status == WEFT_OK) targets[0] = two_of(g, targets[0]);
    bool good = e->status == WEFT_OK || e->status == WEFT_NO_GRADIENT ||
                (mode == BATCHED && e->status == WEFT_BAD_ARGUMENT &&
                 strstr(e->message, "cannot be batched")) ||
                (e->status == WEFT_TOO_LARGE && one_line(e));
    if (e->status == WEFT_OK) {
        weft_plan *plan = weft_plan_new(g, targets, backward ? 2 + n_wrt : 1, NULL, &error);
        good = plan ? counts_hold(plan) : error.status == WEFT_TOO_LARGE && one_line(&error);
        e = &error;
        weft_plan_free(plan);
    }
    if (!good)
        fprintf(stderr, "\n    %s of %g%s: %s: %s\n", name, (double)n, modes[mode], e->where,
                e->message);
    CU_ASSERT_TRUE(good);
    weft_graph_free(g);
}

static void test_huge(void)
{
    static const int64_t sizes[] = {(int64_t)1 << 31,           (int64_t)1 << 40, (int64_t)1 << 50,
                                    ((int64_t)1 << 50) + 12345, (int64_t)1 << 55, (int64_t)1 << 56};
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            weft_graph *g = weft_graph_new();
            weft_value y = builders[i].build(g, 16, (weft_cross_entropy_loss_options){0});
            const bool is_float = weft_dtype_is_float(weft_dtype_of(g, y));
            CU_ASSERT_NOT_EQUAL(weft_graph_status(g), WEFT_TOO_LARGE);
            weft_graph_free(g);
            for (variant mode = PLAIN; mode < VARIANTS; mode++)
                if (mode != DIFFERENTIATED || is_float)
                    check_huge(builders[i].name, sizes[k], builders[i].build, mode);
        }
}

/* Work that overflows the counters of a run is refused, with the node's name. */
static void test_work(void)
{
    weft_graph *g = weft_graph_new();
    const int64_t n = (int64_t)1 << 50;
    weft_error error;
    weft_graph_push_scope(g, "enc");
    weft_value y = weft_sdpa(g, F(1, 4096, 1, 64), F(1, n, 1, 64), F(1, n, 1, 64), NULL);
    weft_graph_pop_scope(g);
    weft_plan *plan = y.id ? weft_plan_new(g, &y, 1, NULL, &error) : NULL;
    CU_ASSERT_PTR_NULL(plan);
    if (y.id) {
        CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
        CU_ASSERT_STRING_EQUAL(error.where, "enc/sdpa");
    } else {
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_TOO_LARGE);
        CU_ASSERT_STRING_EQUAL(weft_graph_error(g)->where, "enc/sdpa");
    }
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A slice of a huge broadcast can be read. */
static void test_pieces(void)
{
    weft_graph *g = weft_graph_new();
    const int64_t n = (int64_t)1 << 55;
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 2));
    weft_value all = weft_broadcast_to(g, x, WEFT_SHAPE(n, 2));
    weft_value y = weft_neg(g, weft_slice(g, all, 0, n - 3, WEFT_END, 2));
    weft_error error = {0};
    float got[4];
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, (float[]){3, 4}, 8, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, got, sizeof got, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got, (float[]){-3, -4, -3, -4}, sizeof got), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Bytes of a tensor: 0 if it has no elements, and for dtypes and shapes that are invalid. */
static void test_tensor_bytes(void)
{
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_F32, WEFT_SHAPE(3, 4)), 48);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_F64, WEFT_SCALAR), 8);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_BOOL, WEFT_SHAPE(5)), 5);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_F32, WEFT_SHAPE(3, 0, 4)), 0);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_DTYPES, WEFT_SHAPE(3)), 0);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_F32, WEFT_SHAPE(3, -1)), 0);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_F32, WEFT_SHAPE(INT64_MAX, 2)), 0);
    CU_ASSERT_EQUAL(weft_tensor_bytes(WEFT_F64, WEFT_SHAPE(INT64_MAX / 64)),
                    8 * (size_t)(INT64_MAX / 64));
}

/* ---- Axes ---- */

#define AXIS_BUILDERS(X)                                                                           \
    X(softmax, weft_softmax(g, x, axis))                                                           \
    X(log_softmax, weft_log_softmax(g, x, axis))                                                   \
    X(argmax, weft_argmax(g, x, axis, true))                                                       \
    X(cumsum, weft_cumsum(g, x, axis, true))                                                       \
    X(sum, weft_sum(g, x, WEFT_AXES(axis), true))                                                  \
    X(logsumexp, weft_logsumexp(g, x, WEFT_AXES(0, axis), true))                                   \
    X(permute, weft_permute(g, x, WEFT_AXES(0, axis)))                                             \
    X(transpose, weft_transpose(g, x, 0, axis))                                                    \
    X(transpose_first, weft_transpose(g, x, axis, 0))                                              \
    X(slice, weft_slice(g, x, axis, 0, 1, 1))                                                      \
    X(flip, weft_flip(g, x, axis))                                                                 \
    X(squeeze, weft_squeeze(g, x, axis))                                                           \
    X(concat, weft_concat(g, (weft_value[]){x, x}, 2, axis))                                       \
    X(gather, weft_gather(g, x, at, axis))                                                         \
    X(scatter_add, weft_scatter_add(g, x, at, x, axis))                                            \
    X(split, (weft_split(g, x, axis, (int64_t[]){0}, 1, pieces), pieces[0]))                       \
    X(chunk, (weft_chunk(g, x, axis, 1, pieces), pieces[0]))

#define DEFINE_AXIS_BUILDER(name, value)                                                           \
    static weft_value axis_##name(weft_graph *g, int axis, weft_value x, weft_value at,            \
                                  weft_value *pieces)                                              \
    {                                                                                              \
        (void)at;                                                                                  \
        (void)pieces;                                                                              \
        return value;                                                                              \
    }
AXIS_BUILDERS(DEFINE_AXIS_BUILDER)

static const struct {
    const char *name;
    weft_value (*build)(weft_graph *g, int axis, weft_value x, weft_value at, weft_value *pieces);
} axis_builders[] = {
#define ROW(name, value) {#name, axis_##name},
    AXIS_BUILDERS(ROW)
#undef ROW
};

/* The axis is refused, and the message shows it as the caller wrote it. */
static void test_axes(void)
{
    static const int axes[] = {INT_MIN, INT_MIN + 1, -3, 2, 3, INT_MAX - 1, INT_MAX};
    for (size_t i = 0; i < sizeof axis_builders / sizeof *axis_builders; i++)
        for (size_t k = 0; k < sizeof axes / sizeof *axes; k++) {
            weft_graph *g = weft_graph_new();
            weft_value pieces[1] = {NONE};
            weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 1);
            weft_value at = weft_fill(g, WEFT_I32, WEFT_SHAPE(2, 3), 1);
            weft_value y = axis_builders[i].build(g, axes[k], x, at, pieces);
            const weft_error *e = weft_graph_error(g);
            char number[16];
            snprintf(number, sizeof number, "%d", axes[k]);
            const bool good = !weft_is_value(y) && strstr(e->message, number) &&
                              (e->status == WEFT_BAD_ARGUMENT || e->status == WEFT_BAD_SHAPE);
            if (!good)
                fprintf(stderr, "\n    %s(%d): %s: %s\n", axis_builders[i].name, axes[k], e->where,
                        e->message);
            CU_ASSERT_TRUE(good);
            weft_graph_free(g);
        }
}

/* Split into more pieces than elements, up to the limits of size_t. */
static void test_chunks(void)
{
    static const size_t counts[] = {0, 7, SIZE_MAX, SIZE_MAX - 5, (size_t)INT64_MAX + 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        weft_graph *g = weft_graph_new();
        weft_value pieces[8] = {NONE}, x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(6));
        if (counts[i] <= 8)
            weft_chunk(g, x, 0, counts[i], pieces);
        else
            weft_chunk(g, x, 0, counts[i], NULL);
        CU_ASSERT_NOT_EQUAL(weft_graph_status(g), WEFT_OK);
        weft_graph_free(g);
    }
}

/* ---- Searches ---- */

static weft_status no_step(void *context, const int32_t *tokens, const int32_t *parents,
                           weft_tensor *log_probs, weft_error *error)
{
    (void)context;
    (void)tokens;
    (void)parents;
    (void)log_probs;
    return weft_error_set(error, WEFT_INTERNAL, "step", "not to be called");
}

static const struct {
    int64_t sentences, beams, vocab, model_len, input_len;
} searches[] = {
    {1, 1, 5, INT64_MAX, INT64_MAX - 1},
    {1, 1, 5, INT64_MAX, INT64_MAX},
    {2, 1, 5, INT64_MAX, INT64_MAX / 2},
    {1, 4, 5, INT64_MAX, (int64_t)1 << 61},
    {1, 4, 5, INT64_MAX, ((int64_t)1 << 62) - 1},
    {2, 2, 5, INT64_MAX - 1, INT64_MAX - 2},
    {(int64_t)1 << 32, (int64_t)1 << 32, 5, 100, 9},
    {(int64_t)1 << 31, 1, 5, 100, 9},
    {1, (int64_t)1 << 31, 5, 100, 9},
    {1, INT64_MAX, 5, 100, 9},
    {INT64_MAX, 1, 5, 100, 9},
    {1, 1, INT64_MAX, 100, 9},
    {1, 1, (int64_t)1 << 31, 100, 9},
};

static void test_searches(void)
{
    weft_search_result *(*const kinds[])(const weft_search_model *, const weft_search_input *,
                                         size_t, const weft_search_options *, weft_error *) = {
        weft_search_greedy, weft_search_beam, weft_search_sample};
    static const int32_t begin[] = {1, 2};
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++)
        for (int kind = 0; kind < 3; kind++) {
            const weft_search_model model = {.step = no_step,
                                             .sentences = searches[i].sentences,
                                             .beams = searches[i].beams,
                                             .vocab = searches[i].vocab,
                                             .max_len = searches[i].model_len};
            const weft_search_input in = {
                .prefix = begin, .prefix_len = 2, .max_len = searches[i].input_len};
            const weft_search_options o = {.eos = 0, .temperature = 1, .top_p = 1};
            weft_error error = {0};
            weft_search_result *r = kinds[kind](&model, &in, 1, &o, &error);
            CU_ASSERT_PTR_NULL(r);
            /* One token more than there are positions is a different error. */
            const bool fits = searches[i].input_len <= searches[i].model_len - 1;
            if (error.status != (fits ? WEFT_TOO_LARGE : WEFT_BAD_ARGUMENT))
                fprintf(stderr, "\n    search %zu, %d: %s: %s\n", i, kind, error.where,
                        error.message);
            CU_ASSERT_EQUAL(error.status, fits ? WEFT_TOO_LARGE : WEFT_BAD_ARGUMENT);
            CU_ASSERT_TRUE(one_line(&error));
            weft_search_result_free(r);
        }
}

void limits_tests(void)
{
    CU_pSuite suite = CU_add_suite("limits", NULL, NULL);
    CU_add_test(suite, "bytes of a tensor", test_tensor_bytes);
    CU_add_test(suite, "shapes of up to 2^56 elements", test_huge);
    CU_add_test(suite, "work that cannot be counted is refused", test_work);
    CU_add_test(suite, "a piece of a huge broadcast", test_pieces);
    CU_add_test(suite, "axes at the ends of int", test_axes);
    CU_add_test(suite, "chunks at the ends of size_t", test_chunks);
    CU_add_test(suite, "searches of more tokens than memory can hold", test_searches);
}
