/* Convolutions, sums and maxima of quantised images: they are computed in bytes, and have the values of their
 * definitions. */
#include "onnx_writer.h"
#include "tests.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 6, HEIGHT = 5, WIDTH = 7, COLUMNS = 6, OUT = 3 * WIDTH };

/* A model of one convolution of 3 x 3 taps, padded by one pixel, with a stride of two lines. */
typedef struct byte_model {
    arena memory;
    written_graph *g;
    bool depthwise;
    int type; /* of the image and the results */
    int zero, y_zero;
    float scale, y_scale, w_scale[COLUMNS];
    int8_t w[COLUMNS * CHANNELS * 9];
    int32_t bias[COLUMNS];
    float x[CHANNELS * HEIGHT * WIDTH];
    int32_t xq[CHANNELS * HEIGHT * WIDTH];
} byte_model;

static int depth_of(const byte_model *m)
{
    return m->depthwise ? 1 : CHANNELS;
}

static int32_t quantized(const byte_model *m, float x, float scale, int zero)
{
    const int low = m->type == ONNX_INT8 ? -128 : 0;
    return (int32_t)fmin(fmax(rint((double)(x / scale)) + zero, low), low + 255);
}

static void write_zero(byte_model *m, const char *name, int zero)
{
    const int8_t byte = (int8_t)zero;
    write_bytes(&m->memory, m->g, name, m->type, WEFT_SCALAR, &byte);
}

static void window(byte_model *m, WeftOnnx__NodeProto *node)
{
    write_ints(&m->memory, node, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    write_ints(&m->memory, node, "strides", (int64_t[]){2, 1}, 2);
    write_int(&m->memory, node, "group", m->depthwise ? CHANNELS : 1);
}

static void begin(byte_model *m, bool depthwise, int type)
{
    uint64_t random = 5;
    memset(m, 0, sizeof *m);
    *m = (byte_model){.depthwise = depthwise, .type = type, .scale = 0.0625f, .y_scale = 0.5f};
    m->zero = type == ONNX_INT8 ? -20 : 120;
    m->y_zero = type == ONNX_INT8 ? -100 : 30;
    arena *p = &m->memory;
    m->g = write_graph(p);
    for (int i = 0; i < COLUMNS * depth_of(m) * 9; i++)
        m->w[i] = (int8_t)(test_random(&random) & 255);
    for (int i = 0; i < COLUMNS; i++) {
        m->w_scale[i] = 0.0078125f * (float)(i + 1);
        m->bias[i] = 100 * i - 300;
    }
    for (int i = 0; i < CHANNELS * HEIGHT * WIDTH; i++) {
        m->x[i] = (float)test_uniform(&random, -9, 9);
        m->xq[i] = quantized(m, m->x[i], m->scale, m->zero);
    }
    write_input(p, m->g, "x", ONNX_FLOAT, WEFT_SHAPE(1, CHANNELS, HEIGHT, WIDTH));
    write_floats(p, m->g, "s", WEFT_SCALAR, &m->scale);
    write_floats(p, m->g, "sy", WEFT_SCALAR, &m->y_scale);
    write_floats(p, m->g, "sw", WEFT_SHAPE(COLUMNS), m->w_scale);
    write_zero(m, "z", m->zero);
    write_zero(m, "zy", m->y_zero);
    write_bytes(p, m->g, "w", ONNX_INT8, WEFT_SHAPE(COLUMNS, depth_of(m), 3, 3), m->w);
    WeftOnnx__TensorProto *b = write_initializer(p, m->g, "b", ONNX_INT32, WEFT_SHAPE(COLUMNS));
    b->n_int32_data = COLUMNS;
    b->int32_data = m->bias;
    write_node(p, m->g, "QuantizeLinear", "x s z", "xq");
}

/* The sum of element i of the result, without the bias. */
static int32_t sum_of(const byte_model *m, int i)
{
    const int o = i / OUT, y = i % OUT / WIDTH, x = i % WIDTH;
    int32_t sum = 0;
    for (int c = 0; c < depth_of(m); c++)
        for (int t = 0; t < 9; t++) {
            const int line = 2 * y + t / 3 - 1, pixel = x + t % 3 - 1;
            const int channel = m->depthwise ? o : c;
            if (line < 0 || line >= HEIGHT || pixel < 0 || pixel >= WIDTH) continue;
            sum += (m->xq[(channel * HEIGHT + line) * WIDTH + pixel] - m->zero) *
                   m->w[(o * depth_of(m) + c) * 9 + t];
        }
    return sum;
}

/* Runs the model, whose output is y; `op` has `count` nodes. The caller frees *forward and *m. */
static const void *run(byte_model *b, const char *op, int count, weft_onnx **m,
                       weft_forward **forward)
{
    weft_error error = WEFT_NO_ERROR;
    weft_value in[4], out[4];
    weft_tensor y;
    write_output(&b->memory, b->g, "y");
    *m = must_load_written(&b->memory, b->g, 21, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(*m);
    weft_graph *g = weft_graph_new();
    int n = 0;
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, *m, 0, in, out), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, out, 1, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const weft_graph *planned = weft_plan_graph(plan);
    for (size_t i = 0; i < weft_graph_node_count(planned); i++)
        n += !strcmp(weft_graph_node(planned, i).op->name, op);
    CU_ASSERT_EQUAL(n, count);
    weft_plan_free(plan);
    weft_graph_free(g);
    const weft_builder builder = weft_onnx_builder(*m);
    const weft_build_options o = {.shape.rows = 1};
    weft_params *store = weft_params_new();
    const void *inputs[] = {b->x};
    CU_ASSERT_EQUAL_FATAL(weft_onnx_copy_weights(*m, store, &error), WEFT_OK);
    *forward = weft_forward_new(&builder, store, &(weft_session_options){.threads = 1}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(*forward);
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(*forward, &o, inputs, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(*forward, 0, &y));
    weft_params_free(store);
    return y.data;
}

static const char *op_of(const byte_model *m)
{
    return m->depthwise ? "conv_bytes_depthwise" : "conv_bytes";
}

/* The quantised result of element i, after a Relu or without one. */
static int32_t result_of(const byte_model *m, int i, bool bias, bool relu)
{
    const int o = i / OUT;
    const float unit = m->scale * m->w_scale[o], scale = unit / m->y_scale;
    const float x = (float)(sum_of(m, i) + (bias ? m->bias[o] : 0)) * scale;
    return quantized(m, relu && x < 0 ? 0 : x, 1, m->y_zero);
}

static void end(byte_model *b, weft_onnx *m, weft_forward *forward)
{
    weft_forward_free(forward);
    weft_onnx_free(m);
    weft__arena_free(&b->memory);
}

static void check_integer(bool depthwise, int type)
{
    byte_model b;
    weft_onnx *m;
    weft_forward *forward;
    begin(&b, depthwise, type);
    window(&b, write_node(&b.memory, b.g, "ConvInteger", "xq w z", "y"));
    const int32_t *y = run(&b, op_of(&b), 1, &m, &forward);
    for (int i = 0; i < COLUMNS * OUT; i++) CU_ASSERT_EQUAL(y[i], sum_of(&b, i));
    end(&b, m, forward);
}

static void check_linear(bool depthwise, int type)
{
    const int8_t zeros[COLUMNS] = {0};
    byte_model b;
    weft_onnx *m;
    weft_forward *forward;
    begin(&b, depthwise, type);
    write_bytes(&b.memory, b.g, "zw", ONNX_INT8, WEFT_SHAPE(COLUMNS), zeros);
    window(&b, write_node(&b.memory, b.g, "QLinearConv", "xq s z w sw zw sy zy b", "y"));
    const int32_t *y = run(&b, op_of(&b), 1, &m, &forward);
    for (int i = 0; i < COLUMNS * OUT; i++) CU_ASSERT_EQUAL(y[i], result_of(&b, i, true, false));
    end(&b, m, forward);
}

/* Conv, Relu and QuantizeLinear; and the sum of the result and of itself. */
static void check_dequantized(bool depthwise, int type, bool sum)
{
    byte_model b;
    weft_onnx *m;
    weft_forward *forward;
    begin(&b, depthwise, type);
    arena *p = &b.memory;
    float unit[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) unit[i] = b.scale * b.w_scale[i];
    write_floats(p, b.g, "sb", WEFT_SHAPE(COLUMNS), unit);
    write_node(p, b.g, "DequantizeLinear", "xq s z", "xd");
    write_int(p, write_node(p, b.g, "DequantizeLinear", "w sw", "wd"), "axis", 0);
    write_int(p, write_node(p, b.g, "DequantizeLinear", "b sb", "bd"), "axis", 0);
    window(&b, write_node(p, b.g, "Conv", "xd wd bd", "c"));
    write_node(p, b.g, "Relu", "c", "r");
    write_node(p, b.g, "QuantizeLinear", "r sy zy", sum ? "q" : "y");
    if (sum) {
        write_node(p, b.g, "DequantizeLinear", "q sy zy", "d");
        write_node(p, b.g, "Add", "d d", "a");
        write_node(p, b.g, "QuantizeLinear", "a sy zy", "y");
    }
    const int32_t *y = run(&b, sum ? "add_bytes" : op_of(&b), 1, &m, &forward);
    for (int i = 0; i < COLUMNS * OUT; i++) {
        const int32_t one = result_of(&b, i, true, true), high = type == ONNX_INT8 ? 127 : 255;
        const int32_t two = 2 * (one - b.y_zero) + b.y_zero;
        CU_ASSERT_EQUAL(y[i], !sum ? one : two > high ? high : two);
    }
    end(&b, m, forward);
}

/* The maximum of the window of 2 x 3 results, padded by a pixel and with strides of 2, that element i
 * of a pooling of [COLUMNS, 2, 4] reads. */
static int32_t largest(const byte_model *m, int i)
{
    const int o = i / 8, y = i % 8 / 4, x = i % 4;
    int32_t best = INT32_MIN;
    for (int t = 0; t < 6; t++) {
        const int line = 2 * y + t / 3, pixel = 2 * x + t % 3 - 1;
        if (line > 2 || pixel < 0 || pixel >= WIDTH) continue;
        const int32_t result = result_of(m, o * OUT + line * WIDTH + pixel, true, false);
        best = result > best ? result : best;
    }
    return best;
}

/* A MaxPool of a convolution: of quantised numbers; of dequantised ones, which are quantised again by
 * the same numbers; and by others. */
static void check_pool(int type, int form)
{
    const int8_t zeros[COLUMNS] = {0};
    const float other = 0.75f;
    byte_model b;
    weft_onnx *m;
    weft_forward *forward;
    begin(&b, false, type);
    arena *p = &b.memory;
    write_bytes(p, b.g, "zw", ONNX_INT8, WEFT_SHAPE(COLUMNS), zeros);
    write_floats(p, b.g, "so", WEFT_SCALAR, &other);
    window(&b, write_node(p, b.g, "QLinearConv", "xq s z w sw zw sy zy b", "q"));
    if (form) write_node(p, b.g, "DequantizeLinear", "q sy zy", "d");
    WeftOnnx__NodeProto *pool = write_node(p, b.g, "MaxPool", form ? "d" : "q", form ? "p" : "y");
    write_ints(p, pool, "kernel_shape", (int64_t[]){2, 3}, 2);
    write_ints(p, pool, "pads", (int64_t[]){0, 1, 0, 1}, 4);
    write_ints(p, pool, "strides", (int64_t[]){2, 2}, 2);
    write_int(p, pool, "ceil_mode", 1);
    if (form) write_node(p, b.g, "QuantizeLinear", form == 1 ? "p sy zy" : "p so zy", "y");
    const int32_t *y = run(&b, "max_pool_bytes", 1, &m, &forward);
    for (int i = 0; i < 8 * COLUMNS; i++) {
        const int32_t best = largest(&b, i);
        const float x = b.y_scale * (float)(best - b.y_zero);
        CU_ASSERT_EQUAL(y[i], form < 2 ? best : quantized(&b, x, other, b.y_zero));
    }
    end(&b, m, forward);
}

static void test_pools(void)
{
    for (int form = 0; form < 3; form++) {
        check_pool(ONNX_UINT8, form);
        check_pool(ONNX_INT8, form);
    }
}

/* A weight that does not fit an i8 after its zero point is subtracted: f64, and the same sums. */
static void test_wide(void)
{
    const int8_t zero = 100;
    byte_model b;
    weft_onnx *m;
    weft_forward *forward;
    begin(&b, false, ONNX_UINT8);
    write_bytes(&b.memory, b.g, "zw", ONNX_INT8, WEFT_SCALAR, &zero);
    window(&b, write_node(&b.memory, b.g, "ConvInteger", "xq w z zw", "y"));
    const int32_t *y = run(&b, "conv_bytes", 0, &m, &forward);
    int32_t ones = 0;
    for (int c = 0; c < CHANNELS; c++) /* the sum of the image under the first window */
        for (int t = 0; t < 4; t++)
            ones += b.xq[c * HEIGHT * WIDTH + t / 2 * WIDTH + t % 2] - b.zero;
    CU_ASSERT_EQUAL(y[0], sum_of(&b, 0) - zero * ones);
    end(&b, m, forward);
}

static void test_convolutions(void)
{
    for (int k = 0; k < 4; k++) {
        const int type = k & 1 ? ONNX_INT8 : ONNX_UINT8;
        check_integer(k & 2, type);
        check_linear(k & 2, type);
        check_dequantized(k & 2, type, false);
        check_dequantized(k & 2, type, true);
    }
}

void onnx_bytes_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_bytes", NULL, NULL);
    CU_add_test(suite, "convolutions and sums of quantised images", test_convolutions);
    CU_add_test(suite, "maxima of quantised images", test_pools);
    CU_add_test(suite, "weights beyond an i8", test_wide);
}
