/* Ops of ONNX that are compositions of several ops: their gradients against differences. What
 * ops refuse. Functions that a model defines. Models whose import would take far more memory than
 * their files. */
#include "onnx_checks.h"
#include "onnx_writer.h"
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Gradients ---- */

#define MAX_INPUTS 4

static void test_grid_sample(void)
{
    static const char *const modes[] = {"linear", "cubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    for (int k = 0; k < 12; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(2, 2, 3, 4));
        write_input(&p, g, "grid", ONNX_DOUBLE, WEFT_SHAPE(2, 2, 3, 2));
        WeftOnnx__NodeProto *node = write_node(&p, g, "GridSample", "x grid", "y");
        write_text(&p, node, "mode", modes[k % 2]);
        write_text(&p, node, "padding_mode", paddings[k / 2 % 3]);
        write_int(&p, node, "align_corners", k / 6);
        check_written_gradients(g, &p, 20, -1.3, 1.3);
        weft__arena_free(&p);
    }
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(1, 2, 2, 3, 2));
    write_input(&p, g, "grid", ONNX_DOUBLE, WEFT_SHAPE(1, 1, 2, 2, 3));
    write_node(&p, g, "GridSample", "x grid", "y");
    check_written_gradients(g, &p, 20, -1.3, 1.3);
    weft__arena_free(&p);
}

static void test_roi_align(void)
{
    static const int64_t images[3] = {1, 0, 1};
    static const char *const modes[] = {"avg", "max"};
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(2, 3, 5, 4));
        write_input(&p, g, "boxes", ONNX_DOUBLE, WEFT_SHAPE(3, 4));
        write_longs(&p, g, "images", WEFT_SHAPE(3), images);
        WeftOnnx__NodeProto *node = write_node(&p, g, "RoiAlign", "x boxes images", "y");
        write_text(&p, node, "mode", modes[k]);
        write_int(&p, node, "sampling_ratio", 2);
        write_int(&p, node, "output_height", 2);
        write_int(&p, node, "output_width", 3);
        check_written_gradients(g, &p, 16, 0.1, 4);
        weft__arena_free(&p);
    }
}

static void test_determinant(void)
{
    for (int64_t m = 1; m <= 5; m++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(3, m, m));
        write_node(&p, g, "Det", "x", "y");
        check_written_gradients(g, &p, 11, -2, 2);
        weft__arena_free(&p);
    }
}

/* Also updates at equal indices. */
static void test_scatter(void)
{
    static const char *const reductions[] = {"none", "add", "mul", "min", "max"};
    static const int64_t indices[6] = {1, 0, 1, 2, 1, -1}, without_repeats[6] = {0, 1, 2, 2, 0, 1};
    for (int k = 0; k < 5; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(2, 3));
        write_input(&p, g, "updates", ONNX_DOUBLE, WEFT_SHAPE(2, 3));
        write_longs(&p, g, "at", WEFT_SHAPE(2, 3), k ? indices : without_repeats);
        WeftOnnx__NodeProto *node = write_node(&p, g, "ScatterElements", "x at updates", "y");
        write_text(&p, node, "reduction", reductions[k]);
        write_int(&p, node, "axis", 1);
        check_written_gradients(g, &p, 18, -2, 2);
        weft__arena_free(&p);
    }
}

static void test_attention(void)
{
    for (int k = 0; k < 4; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "q", ONNX_DOUBLE, WEFT_SHAPE(2, 3, 8));
        write_input(&p, g, "k", ONNX_DOUBLE, WEFT_SHAPE(2, 4, 4));
        write_input(&p, g, "v", ONNX_DOUBLE, WEFT_SHAPE(2, 4, 6));
        write_input(&p, g, "mask", ONNX_DOUBLE, WEFT_SHAPE(3, 4));
        WeftOnnx__NodeProto *node =
            write_node(&p, g, "Attention", k == 3 ? "q k v mask" : "q k v", "y");
        if (k != 3) write_node(&p, g, "Identity", "mask", "unused");
        write_int(&p, node, "q_num_heads", 4);
        write_int(&p, node, "kv_num_heads", 2);
        if (k == 1) write_int(&p, node, "is_causal", 1);
        if (k == 2) write_float(&p, node, "softcap", 0.5);
        check_written_gradients(g, &p, 23, -1, 1);
        weft__arena_free(&p);
    }
}

static void test_signals(void)
{
    static const int64_t step = 2, length = 4;
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(2, 9, 1));
    write_input(&p, g, "window", ONNX_DOUBLE, WEFT_SHAPE(4));
    write_longs(&p, g, "step", WEFT_SCALAR, &step);
    write_longs(&p, g, "length", WEFT_SCALAR, &length);
    write_node(&p, g, "STFT", "x step window length", "y");
    check_written_gradients(g, &p, 17, -1, 1);
    weft__arena_free(&p);
}

/* ---- Functions ---- */

/* y = own.scaled(x), whose body multiplies by the attribute "factor" of the call. */
static written_graph *calling(arena *p, bool recursive)
{
    written_graph *g = write_graph(p), *body = write_graph(p);
    WeftOnnx__NodeProto *factor = write_node(p, body, "Constant", "", "f");
    write_attribute(p, factor, "value_float")->ref_attr_name = (char *)(uintptr_t) "factor";
    WeftOnnx__NodeProto *node =
        write_node(p, body, recursive ? "scaled" : "Mul", recursive ? "a -" : "a f", "b");
    if (recursive) {
        node->domain = (char *)(uintptr_t) "own";
        write_attribute(p, node, "factor")->ref_attr_name = (char *)(uintptr_t) "factor";
    }
    write_function(p, g, "scaled", "a left_out", "b", body);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2));
    node = write_node(p, g, "scaled", "x", "y");
    node->domain = (char *)(uintptr_t) "own";
    write_float(p, node, "factor", 2.5);
    write_output(p, g, "y");
    return g;
}

static void test_function(void)
{
    static const float x[2] = {2, -4};
    arena p = {.blocks = NULL};
    weft_onnx *m = must_load_written(&p, calling(&p, false), 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_params *store = weft_params_new();
    weft_tensor y;
    weft_forward *forward = test_run_onnx(m, store, 1, x, &y);
    CU_ASSERT_EQUAL(((const float *)y.data)[0], 5);
    CU_ASSERT_EQUAL(((const float *)y.data)[1], -10);
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

/* ---- Products of bytes ---- */

enum { BYTE_ROWS = 3, BYTE_COLUMNS = 7 };

static bool is_byte_product(const char *op)
{
    return !strcmp(op, "matmul_quantized") || !strcmp(op, "conv_bytes");
}

/* How many nodes multiply with a matrix of bytes. */
static int byte_products(const weft_onnx *m)
{
    weft_graph *g = weft_graph_new();
    weft_value in[MAX_INPUTS], out[MAX_INPUTS];
    int n = 0;
    CU_ASSERT_EQUAL(weft_onnx_build(g, m, 0, in, out), WEFT_OK);
    for (size_t i = 0; i < weft_graph_node_count(g); i++)
        n += is_byte_product(weft_graph_node(g, i).op->name);
    weft_graph_free(g);
    return n;
}

/* x is quantised as the run computes, and multiplied with a matrix of the file: every element is
 * the sum of whole numbers. `way` 0: one zero point; 1: one for each column; 2: none. `extreme`:
 * all elements are the largest. */
static void check_bytes(int64_t k, int type, int way, bool extreme)
{
    arena p = {.blocks = NULL};
    weft_error error = {0};
    written_graph *g = write_graph(&p);
    const weft_shape shape = WEFT_SHAPE(k, BYTE_COLUMNS);
    const bool is_signed = type == ONNX_INT8;
    int8_t *b = malloc((size_t)(k * BYTE_COLUMNS)), zero[BYTE_COLUMNS];
    float *x = malloc((size_t)(BYTE_ROWS * k) * sizeof *x);
    uint64_t random = 9;
    for (int64_t i = 0; i < k * BYTE_COLUMNS; i++)
        b[i] = extreme ? is_signed ? -128 : -1 : (int8_t)(test_random(&random) & 255);
    for (int i = 0; i < BYTE_COLUMNS; i++) zero[i] = (int8_t)(extreme ? 0 : 17 * i - 50);
    for (int64_t i = 0; i < BYTE_ROWS * k; i++)
        x[i] = extreme ? 5.0f : (float)test_uniform(&random, -1, 3);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(BYTE_ROWS, k));
    write_bytes(&p, g, "b", type, shape, b);
    if (way < 2)
        write_bytes(&p, g, "zero", type, way ? WEFT_SHAPE(BYTE_COLUMNS) : WEFT_SCALAR, zero);
    write_node(&p, g, "DynamicQuantizeLinear", "x", "a a_scale a_zero");
    write_node(&p, g, "MatMulInteger", way < 2 ? "a b a_zero zero" : "a b a_zero", "y");
    for (int i = 0; i < 3; i++) write_output(&p, g, i == 0 ? "y" : i == 1 ? "a" : "a_zero");
    weft_onnx *m = must_load_written(&p, g, 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL(byte_products(m), 1);
    const weft_builder builder = weft_onnx_builder(m);
    const weft_build_options o = {.shape.rows = BYTE_ROWS};
    weft_params *store = weft_params_new();
    weft_forward *forward =
        weft_forward_new(&builder, store, &(weft_session_options){.threads = 1}, &error);
    weft_tensor t[3];
    const void *inputs[] = {x};
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(forward, &o, inputs, &error), WEFT_OK);
    for (size_t i = 0; i < 3; i++) CU_ASSERT_TRUE_FATAL(weft_forward_output(forward, i, &t[i]));
    const int32_t *y = t[0].data, *a = t[1].data, a_zero = *(const int32_t *)t[2].data;
    int wrong = 0;
    for (int64_t i = 0; i < BYTE_ROWS * BYTE_COLUMNS; i++) {
        int64_t sum = 0;
        for (int64_t c = 0; c < k; c++) {
            const int8_t bits = b[c * BYTE_COLUMNS + i % BYTE_COLUMNS];
            const int8_t off = way == 2 ? 0 : zero[way ? i % BYTE_COLUMNS : 0];
            sum += (a[i / BYTE_COLUMNS * k + c] - a_zero) *
                   (is_signed ? bits - off : (uint8_t)bits - (uint8_t)off);
        }
        wrong += y[i] != sum;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);
    weft__arena_free(&p);
    free(b);
    free(x);
}

static void test_bytes(void)
{
    static const int64_t lengths[] = {1, 32, 45, 300};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int way = 0; way < 6; way++)
            check_bytes(lengths[i], way < 3 ? ONNX_INT8 : ONNX_UINT8, way % 3, false);
    check_bytes(5000, ONNX_INT8, 2, true); /* sums of 1.6e8, which f32 does not hold */
    check_bytes(5000, ONNX_UINT8, 0, true);
}

/* x and a matrix, which the file has transposed for Gemm, are dequantized and then multiplied: as
 * bytes, unless x has 16 bits (`wide`). */
static void check_dequantized(bool gemm, bool by_column, bool wide)
{
    enum { LENGTH = 70 };
    arena p = {.blocks = NULL};
    weft_error error = {0};
    written_graph *g = write_graph(&p);
    int8_t b[LENGTH * BYTE_COLUMNS], zero[BYTE_COLUMNS];
    const uint16_t x_zero = wide ? 30000 : 101;
    float x[BYTE_ROWS * LENGTH], scale[BYTE_COLUMNS], bias[BYTE_COLUMNS];
    const float x_scale = wide ? 1e-4f : 0.02f;
    uint64_t random = 3;
    for (int i = 0; i < LENGTH * BYTE_COLUMNS; i++) b[i] = (int8_t)(test_random(&random) & 255);
    for (int i = 0; i < BYTE_ROWS * LENGTH; i++) x[i] = (float)test_uniform(&random, -2, 3);
    for (int i = 0; i < BYTE_COLUMNS; i++) {
        scale[i] = 0.01f * (float)(i + 1);
        zero[i] = (int8_t)(9 * i - 20);
        bias[i] = (float)i;
    }
    const weft_shape several = by_column ? WEFT_SHAPE(BYTE_COLUMNS) : WEFT_SCALAR;
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(BYTE_ROWS, LENGTH));
    write_floats(&p, g, "x_scale", WEFT_SCALAR, &x_scale);
    write_bytes(&p, g, "x_zero", wide ? ONNX_UINT16 : ONNX_UINT8, WEFT_SCALAR, &x_zero);
    write_bytes(&p, g, "b", ONNX_INT8,
                gemm ? WEFT_SHAPE(BYTE_COLUMNS, LENGTH) : WEFT_SHAPE(LENGTH, BYTE_COLUMNS), b);
    write_floats(&p, g, "b_scale", several, scale);
    write_bytes(&p, g, "b_zero", ONNX_INT8, several, zero);
    write_node(&p, g, "QuantizeLinear", "x x_scale x_zero", "xq");
    write_node(&p, g, "DequantizeLinear", "xq x_scale x_zero", "xd");
    write_int(&p, write_node(&p, g, "DequantizeLinear", "b b_scale b_zero", "bd"), "axis",
              gemm ? 0 : 1);
    if (gemm) {
        write_floats(&p, g, "bias", WEFT_SHAPE(BYTE_COLUMNS), bias);
        write_int(&p, write_node(&p, g, "Gemm", "xd bd bias", "y"), "transB", 1);
    } else {
        write_node(&p, g, "MatMul", "xd bd", "y");
    }
    write_output(&p, g, "y");
    write_output(&p, g, "xq");
    weft_onnx *m = must_load_written(&p, g, 21, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL(byte_products(m), !wide);
    const weft_builder builder = weft_onnx_builder(m);
    const weft_build_options o = {.shape.rows = BYTE_ROWS};
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_copy_weights(m, store, &error), WEFT_OK);
    weft_forward *forward =
        weft_forward_new(&builder, store, &(weft_session_options){.threads = 1}, &error);
    weft_tensor t[2];
    const void *inputs[] = {x};
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(forward, &o, inputs, &error), WEFT_OK);
    for (size_t i = 0; i < 2; i++) CU_ASSERT_TRUE_FATAL(weft_forward_output(forward, i, &t[i]));
    for (int i = 0; i < BYTE_ROWS * BYTE_COLUMNS; i++) {
        const int column = i % BYTE_COLUMNS, which = by_column ? column : 0;
        double sum = 0, sizes = 0;
        for (int c = 0; c < LENGTH; c++) {
            const int32_t xq = ((const int32_t *)t[1].data)[i / BYTE_COLUMNS * LENGTH + c];
            const double term =
                (xq - x_zero) *
                (b[gemm ? column * LENGTH + c : c * BYTE_COLUMNS + column] - zero[which]);
            sum += term;
            sizes += fabs(term);
        }
        const double each = (double)x_scale * (double)scale[which];
        const double want = sum * each + (gemm ? column : 0);
        /* The scales, the bias and the result round a few times, of 2^-24 each. Products of f32
         * also round each of LENGTH sums, by 2^-24 of the terms at most. */
        CU_ASSERT_DOUBLE_EQUAL((double)((const float *)t[0].data)[i], want,
                               1e-5 + 1e-6 * fabs(want) +
                                   (wide ? LENGTH * 0x1p-24 * sizes * each : 0));
    }
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

static void test_dequantized(void)
{
    for (int k = 0; k < 8; k++) check_dequantized(k & 4, k & 2, k & 1);
}

/* ---- Operands, and memory ---- */

/* The model has one output, of that shape. */
static void expect_output(arena *p, written_graph *g, int64_t opset, weft_shape shape)
{
    size_t n;
    weft_onnx *m = must_load_written(p, g, opset, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const weft_onnx_value *outputs = weft_onnx_outputs(m, &n);
    CU_ASSERT_TRUE(n == 1 && weft_shape_equal(outputs[0].shape, shape));
    weft_onnx_free(m);
}

/* Determinants are of matrices. */
static void test_no_matrix(void)
{
    static const weft_shape shapes[] = {{1, {1}}, {2, {2, 3}}, {3, {2, 3, 1}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, shapes[i]);
        write_node(&p, g, "Det", "x", "y");
        write_output(&p, g, "y");
        refuse_written(&p, g, 17, WEFT_BAD_SHAPE, "needs square matrices");
        weft__arena_free(&p);
    }
}

/* Compress takes bools. */
static void test_condition(void)
{
    static const int64_t whole[4] = {1, 0, 1, 0};
    static const uint8_t bools[4] = {1, 0, 1, 0};
    for (int good = 0; good < 2; good++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(4));
        if (good)
            write_bytes(&p, g, "which", ONNX_BOOL, WEFT_SHAPE(4), bools);
        else
            write_longs(&p, g, "which", WEFT_SHAPE(4), whole);
        write_node(&p, g, "Compress", "x which", "y");
        write_output(&p, g, "y");
        if (good)
            expect_output(&p, g, 17, WEFT_SHAPE(2));
        else
            refuse_written(&p, g, 17, WEFT_BAD_DTYPE, "needs a condition of bools");
        weft__arena_free(&p);
    }
}

/* An equation without a result implies its letters that occur once, from the first to the last of
 * the alphabet. */
static void test_implied(void)
{
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, 3));
    write_input(&p, g, "y", ONNX_FLOAT, WEFT_SHAPE(3, 4));
    write_text(&p, write_node(&p, g, "Einsum", "x y", "z"), "equation", "zi,iA");
    write_output(&p, g, "z");
    expect_output(&p, g, 17, WEFT_SHAPE(4, 2));
    weft__arena_free(&p);
}

/* Rotated features are an even number of each head's, with half as many sines and cosines. */
static void test_rotated(void)
{
    static const struct {
        int64_t features, columns; /* rotated of 4; of the tables */
        bool good;
    } cases[] = {{4, 2, true}, {2, 1, true}, {4, 1, false}, {3, 1, false}, {6, 3, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        const weft_shape table = WEFT_SHAPE(2, 3, cases[i].columns);
        write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, 5, 3, 4));
        write_input(&p, g, "cosines", ONNX_FLOAT, table);
        write_input(&p, g, "sines", ONNX_FLOAT, table);
        WeftOnnx__NodeProto *n = write_node(&p, g, "RotaryEmbedding", "x cosines sines", "y");
        write_int(&p, n, "rotary_embedding_dim", cases[i].features);
        write_output(&p, g, "y");
        if (cases[i].good)
            expect_output(&p, g, 23, WEFT_SHAPE(2, 5, 3, 4));
        else
            refuse_written(&p, g, 23, WEFT_BAD_SHAPE,
                           "do not fit an even number of rotated features");
        weft__arena_free(&p);
    }
}

/* Axes are integers. */
static void test_float_axes(void)
{
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, 3));
    write_floats(&p, g, "axes", WEFT_SHAPE(1), (const float[]){0});
    write_node(&p, g, "Unsqueeze", "x axes", "y");
    write_output(&p, g, "y");
    refuse_written(&p, g, 17, WEFT_BAD_SHAPE, "integers, not f32");
    weft__arena_free(&p);
}

/* The options say how large an open dimension is. */
static void test_open_dimension(void)
{
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, -1)); /* [2, N] */
    write_node(&p, g, "Relu", "x", "y");
    write_output(&p, g, "y");
    size_t n;
    const weft_onnx_dim dim = {.name = "N", .size = 5};
    weft_onnx *m = must_load_written(&p, g, 17, &(weft_onnx_options){.dims = &dim, .n_dims = 1});
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_TRUE(weft_shape_equal(weft_onnx_outputs(m, &n)[0].shape, WEFT_SHAPE(2, 5)));
    weft_onnx_free(m);
    weft__arena_free(&p);
}

/* Unsqueeze to as many axes as a tensor may have. */
static void test_most_axes(void)
{
    static const int64_t axes[] = {0, 7};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, 1, 3, 1, 1, 2));
    write_longs(&p, g, "axes", WEFT_SHAPE(2), axes);
    write_node(&p, g, "Unsqueeze", "x axes", "y");
    write_output(&p, g, "y");
    expect_output(&p, g, 17, WEFT_SHAPE(1, 2, 1, 3, 1, 1, 2, 1));
    weft__arena_free(&p);
}

/* A function that calls itself. */
static void test_recursion(void)
{
    arena p = {.blocks = NULL};
    refuse_written(&p, calling(&p, true), 17, WEFT_TOO_LARGE, "bodies are more than");
    weft__arena_free(&p);
}

/* A loop of a million iterations, each of which makes another constant of a quarter of a MB. */
static void test_many_constants(void)
{
    static const int64_t trips = 1000000, shape = 65536;
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p), *body = write_graph(&p);
    write_input(&p, body, "i", ONNX_INT64, WEFT_SCALAR);
    write_input(&p, body, "go_on", ONNX_BOOL, WEFT_SCALAR);
    write_input(&p, body, "before", ONNX_FLOAT, WEFT_SHAPE(65536));
    write_longs(&p, body, "shape", WEFT_SHAPE(1), &shape);
    write_node(&p, body, "ConstantOfShape", "shape", "zeros");
    write_node(&p, body, "RandomUniformLike", "before", "noise"); /* so it cannot be one node */
    write_node(&p, body, "Add", "noise zeros", "after");
    write_node(&p, body, "Identity", "go_on", "next");
    write_output(&p, body, "next");
    write_output(&p, body, "after");
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(65536));
    write_longs(&p, g, "trips", WEFT_SCALAR, &trips);
    WeftOnnx__NodeProto *loop = write_node(&p, g, "Loop", "trips - x", "last");
    write_attribute(&p, loop, "body")->g = &body->proto;
    write_output(&p, g, "last");
    refuse_written(&p, g, 17, WEFT_TOO_LARGE, "the import of the model takes more than");
    weft__arena_free(&p);
}

void onnx_ops_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_ops", NULL, NULL);
    CU_add_test(suite, "gradients of GridSample", test_grid_sample);
    CU_add_test(suite, "gradients of RoiAlign", test_roi_align);
    CU_add_test(suite, "gradients of Det", test_determinant);
    CU_add_test(suite, "gradients of ScatterElements", test_scatter);
    CU_add_test(suite, "gradients of Attention", test_attention);
    CU_add_test(suite, "gradients of STFT", test_signals);
    CU_add_test(suite, "products of bytes", test_bytes);
    CU_add_test(suite, "products of dequantized bytes", test_dequantized);
    CU_add_test(suite, "functions of a model", test_function);
    CU_add_test(suite, "determinants of what is not square", test_no_matrix);
    CU_add_test(suite, "conditions are bools", test_condition);
    CU_add_test(suite, "equations without a result", test_implied);
    CU_add_test(suite, "tables of rotated features", test_rotated);
    CU_add_test(suite, "axes that are not integers", test_float_axes);
    CU_add_test(suite, "the size of an open dimension", test_open_dimension);
    CU_add_test(suite, "as many axes as there may be", test_most_axes);
    CU_add_test(suite, "functions that call themselves", test_recursion);
    CU_add_test(suite, "loops that take too much memory", test_many_constants);
}
