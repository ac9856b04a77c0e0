/* An elementwise op of a program's own, whose kernel walks its operands with <weft/kernel.h>: it
 * reads any layout as it lies, broadcasts, and is fused with a matrix product. */
#include "tests.h"

#include <weft/kernel.h>

#include <stdatomic.h>
#include <stdlib.h>

/* What the kernel has seen: parts of a larger output; an input whose rows do not lie densely. */
static atomic_bool saw_block, saw_strided;
static _Atomic int64_t whole; /* elements of the output that the graph declares */

static bool infer_scaled_sum(weft_infer *infer)
{
    infer->out[0].dtype = infer->in[0].dtype;
    return weft_infer_dtype(infer, 0, WEFT_F32) && weft_infer_same_dtype(infer, 0, 1) &&
           (weft_shape_broadcast(infer->in[0].shape, infer->in[1].shape, &infer->out[0].shape) ||
            weft_infer_fail(infer, WEFT_BAD_SHAPE, "the operands do not broadcast"));
}

static void kernel_scaled_sum(const weft_call *call, int64_t tile)
{
    if (weft_shape_numel(call->out[0].shape) < whole) saw_block = true;
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        float *y = (float *)call->out[0].data + w.offset[0];
        const float *a = (const float *)call->in[0].data + w.offset[1];
        const float *b = (const float *)call->in[1].data + w.offset[2];
        if (w.step[2] > 1) saw_strided = true;
        for (int64_t i = 0; i < w.count; i++) y[i] = a[i * w.step[1]] + 2 * b[i * w.step[2]];
    }
}

static const weft_op op_scaled_sum = {.name = "scaled_sum",
                                      .doc = "y = a + 2 b. The operands broadcast.",
                                      .min_in = 2,
                                      .max_in = 2,
                                      .n_out = 1,
                                      .infer = infer_scaled_sum,
                                      .kernel = {{kernel_scaled_sum}},
                                      .takes = WEFT_TAKES_ANY,
                                      .elementwise = true,
                                      .inplace = 3,
                                      .broadcasts = true,
                                      .gradient = WEFT_GRADIENT_NONE};

enum { M = 300, K = 20, N = 200 };

static float number(int64_t i)
{
    return (float)(i * 7919 % 64) / 8 - 4;
}

/* y [M, N] = scaled_sum(x [M, K] w [K, N], b) on `threads` threads, and how many elements differ
 * from plain loops. Sums of products are exact here. b is [N, M] transposed, or its first row. */
static int64_t count_wrong(bool product, bool broadcast, int threads)
{
    static float x[M * K], w[K * N], b[N * M], y[M * N];
    weft_graph *g = weft_graph_new();
    for (int64_t i = 0; i < M * K; i++) x[i] = number(i);
    for (int64_t i = 0; i < K * N; i++) w[i] = number(3 * i);
    for (int64_t i = 0; i < N * M; i++) b[i] = number(5 * i);
    weft_value wb = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(N, M));
    weft_value second = weft_transpose(g, wb, 0, 1);
    if (broadcast) second = weft_slice(g, second, 0, 0, 1, 1);
    weft_value wx = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(M, K));
    weft_value ww = weft_input(g, "w", WEFT_F32, WEFT_SHAPE(K, N));
    weft_value first = product ? weft_matmul(g, wx, ww) : weft_slice(g, ww, 0, 0, 1, 1);
    if (!product) first = weft_broadcast_to(g, first, WEFT_SHAPE(M, N));
    weft_value in[2] = {first, second};
    weft_value out = weft_apply(g, &op_scaled_sum, NULL, in, 2, NULL);
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, &out, 1, &(weft_plan_options){.verify = true}, &error);
    weft_session *s =
        weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    if (product) CU_ASSERT_EQUAL(weft_session_feed(s, wx, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, ww, w, sizeof w, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, wb, b, sizeof b, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, sizeof y, NULL), WEFT_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float sum = product ? 0 : w[j];
            for (int64_t k = 0; product && k < K; k++) sum += x[i * K + k] * w[k * N + j];
            wrong += y[i * N + j] != sum + 2 * b[j * M + (broadcast ? 0 : i)];
        }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return wrong;
}

static void test_layouts(void)
{
    whole = (int64_t)M * N;
    saw_strided = false;
    CU_ASSERT_EQUAL(count_wrong(false, false, 1), 0);
    CU_ASSERT_TRUE(saw_strided); /* the transposed view came without a copy */
    CU_ASSERT_EQUAL(count_wrong(false, true, 1), 0);
}

/* After a product the kernel gets one block of the output at a time. */
static void test_fused(void)
{
    const char *skip = getenv("WEFT_SKIP");
    for (int threads = 1; threads <= 3; threads++)
        for (int broadcast = 0; broadcast < 2; broadcast++) {
            whole = (int64_t)M * N;
            saw_block = false;
            CU_ASSERT_EQUAL(count_wrong(true, broadcast, threads), 0);
            if (!skip) CU_ASSERT_TRUE(saw_block);
        }
    if (skip) test_skip("fusion of an op from outside", "WEFT_SKIP is set");
}

/* Runs cover a range of elements once, in order, with offsets that fit the strides. */
static void test_range(void)
{
    static float data[4 * 6 * 5];
    weft_tensor t = weft_tensor_dense(data, WEFT_F32, WEFT_SHAPE(4, 5, 6)), row = t;
    row.shape = WEFT_SHAPE(5, 1);
    row.stride[0] = 2;
    const weft_tensor *operands[2] = {&t, &row};
    for (int64_t begin = 0; begin < 120; begin += 7) {
        int64_t i = begin;
        for (weft_iterator w = weft_iterator_range(operands, 2, begin, 120); weft_iterator_next(&w);
             i += w.count) {
            CU_ASSERT_EQUAL(w.offset[0], i);
            CU_ASSERT_EQUAL(w.offset[1], i / 6 % 5 * 2);
            CU_ASSERT_EQUAL(w.step[1], 0);
            CU_ASSERT_TRUE(w.count > 0 && w.count <= 6);
        }
        CU_ASSERT_EQUAL(i, 120);
    }
}

void walk_tests(void)
{
    CU_pSuite suite = CU_add_suite("walk", NULL, NULL);
    CU_add_test(suite, "runs of a range", test_range);
    CU_add_test(suite, "an outside op reads views as they lie", test_layouts);
    CU_add_test(suite, "an outside op is fused", test_fused);
}
