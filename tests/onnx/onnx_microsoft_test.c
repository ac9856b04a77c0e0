/* Ops of Microsoft's domain must compute what ops of ONNX compute together. The script
 * tests/real/onnx_ops_test.sh compares them with ONNX Runtime. */
#include "onnx_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A graph under construction, with its memory. */
typedef struct made {
    arena p;
    written_graph *g;
    uint64_t seed;
} made;

static made begin(void)
{
    made m = {.seed = 3};
    m.g = write_graph(&m.p);
    return m;
}

/* A parameter of numbers in [-1, 1). */
static void floats(made *m, const char *name, weft_shape shape)
{
    const int64_t n = weft_shape_numel(shape);
    float *data = weft__arena_alloc(&m->p, (size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) data[i] = (float)test_uniform(&m->seed, -1, 1);
    write_floats(&m->p, m->g, name, shape, data);
}

static void number(made *m, const char *name, double value)
{
    const float x = (float)value;
    write_floats(&m->p, m->g, name, WEFT_SCALAR, &x);
}

static void zero_point(made *m, const char *name, int type, int value)
{
    const uint8_t byte = (uint8_t)value;
    write_bytes(&m->p, m->g, name, type, WEFT_SCALAR, &byte);
}

static void bytes(made *m, const char *name, int type, weft_shape shape)
{
    uint8_t data[MAX_EQUAL];
    for (int64_t i = 0; i < weft_shape_numel(shape); i++)
        data[i] = (uint8_t)test_uniform(&m->seed, 0, 256);
    write_bytes(&m->p, m->g, name, type, shape, data);
}

static WeftOnnx__NodeProto *node(made *m, const char *op, const char *in, const char *out)
{
    return write_node(&m->p, m->g, op, in, out);
}

static WeftOnnx__NodeProto *microsoft(made *m, const char *op, const char *in, const char *out)
{
    WeftOnnx__NodeProto *n = node(m, op, in, out);
    n->domain = weft__arena_text(&m->p, "com.microsoft");
    return n;
}

static void finish(made *m, int64_t opset, size_t count)
{
    expect_equal(&m->p, m->g, opset, count);
    weft__arena_free(&m->p);
}

/* ---- Quantized tensors ---- */

/* x [1, 2, 4, 3] and y [1, 2, 1, 3], quantized as qx and qy with scales sx, sy and zero points zx, zy;
 * they are rx and ry again. st and zt are for the result. */
static made quantized(int type)
{
    made m = begin();
    floats(&m, "x", WEFT_SHAPE(1, 2, 4, 3));
    floats(&m, "y", WEFT_SHAPE(1, 2, 1, 3));
    number(&m, "sx", 0.0078);
    number(&m, "sy", 0.0071);
    number(&m, "st", 0.0113);
    zero_point(&m, "zx", type, type == ONNX_UINT8 ? 130 : 3);
    zero_point(&m, "zy", type, type == ONNX_UINT8 ? 124 : -2);
    zero_point(&m, "zt", type, type == ONNX_UINT8 ? 100 : 1);
    node(&m, "QuantizeLinear", "x sx zx", "qx");
    node(&m, "QuantizeLinear", "y sy zy", "qy");
    node(&m, "DequantizeLinear", "qx sx zx", "rx");
    node(&m, "DequantizeLinear", "qy sy zy", "ry");
    return m;
}

/* `first` and `second` are q and the float r quantized, as floats. */
static void end_quantized(made *m, size_t count)
{
    node(m, "QuantizeLinear", "r st zt", "wanted");
    write_int(&m->p, node(m, "Cast", "q", "first"), "to", ONNX_FLOAT);
    write_int(&m->p, node(m, "Cast", "wanted", "second"), "to", ONNX_FLOAT);
    finish(m, 17, count);
}

static void test_elementwise(void)
{
    static const int types[2] = {ONNX_UINT8, ONNX_INT8};
    for (int k = 0; k < 2; k++) {
        made m = quantized(types[k]);
        microsoft(&m, "QLinearAdd", "qx sx zx qy sy zy st zt", "q");
        node(&m, "Add", "rx ry", "r");
        end_quantized(&m, 24);
        m = quantized(types[k]);
        microsoft(&m, "QLinearMul", "qx sx zx qy sy zy st zt", "q");
        node(&m, "Mul", "rx ry", "r");
        end_quantized(&m, 24);
        m = quantized(types[k]);
        microsoft(&m, "QLinearSigmoid", "qx sx zx st zt", "q");
        node(&m, "Sigmoid", "rx", "r");
        end_quantized(&m, 24);
        m = quantized(types[k]);
        write_float(&m.p, microsoft(&m, "QLinearLeakyRelu", "qx sx zx st zt", "q"), "alpha", 0.3);
        write_float(&m.p, node(&m, "LeakyRelu", "rx", "r"), "alpha", 0.3);
        end_quantized(&m, 24);
        m = quantized(types[k]);
        node(&m, "Less", "rx ry", "less");
        microsoft(&m, "QLinearWhere", "less qx sx zx qy sy zy st zt", "q");
        node(&m, "Where", "less rx ry", "r");
        end_quantized(&m, 24);
    }
}

static void test_axes(void)
{
    static const int64_t spatial[2] = {2, 3}, kernel[2] = {2, 3}, last[2] = {1, 2};
    made m = quantized(ONNX_INT8);
    write_int(&m.p, microsoft(&m, "QLinearConcat", "st zt qx sx zx qy sy zy", "q"), "axis", 2);
    write_int(&m.p, node(&m, "Concat", "rx ry", "r"), "axis", 2);
    end_quantized(&m, 30);
    m = quantized(ONNX_UINT8);
    write_int(&m.p, microsoft(&m, "QLinearSoftmax", "qx sx zx st zt", "q"), "axis", 2);
    write_int(&m.p, node(&m, "Softmax", "rx", "r"), "axis", 2);
    end_quantized(&m, 24);
    m = quantized(ONNX_UINT8);
    microsoft(&m, "QLinearGlobalAveragePool", "qx sx zx st zt", "q");
    node(&m, "GlobalAveragePool", "rx", "r");
    end_quantized(&m, 2);
    m = quantized(ONNX_UINT8);
    write_int(&m.p, microsoft(&m, "QLinearGlobalAveragePool", "qx sx zx st zt", "q"),
              "channels_last", 1);
    write_ints(&m.p, node(&m, "ReduceMean", "rx", "r"), "axes", last, 2);
    end_quantized(&m, 3);
    m = quantized(ONNX_INT8);
    write_ints(&m.p, microsoft(&m, "QLinearReduceMean", "qx sx zx st zt", "q"), "axes", spatial, 2);
    write_ints(&m.p, node(&m, "ReduceMean", "rx", "r"), "axes", spatial, 2);
    end_quantized(&m, 2);
    m = quantized(ONNX_INT8);
    write_ints(&m.p, microsoft(&m, "QLinearAveragePool", "qx sx zx st zt", "q"), "kernel_shape",
               kernel, 2);
    write_ints(&m.p, node(&m, "AveragePool", "rx", "r"), "kernel_shape", kernel, 2);
    end_quantized(&m, 6);
}

/* ---- Products ---- */

/* a [2, 5] and b [5, 3] of bytes, with scales sa, sb and zero points za, zb; qa is quantized. */
static made factors(void)
{
    made m = begin();
    floats(&m, "a", WEFT_SHAPE(2, 5));
    bytes(&m, "b", ONNX_INT8, WEFT_SHAPE(5, 3));
    floats(&m, "bias", WEFT_SHAPE(3));
    number(&m, "sa", 0.01);
    number(&m, "sb", 0.002);
    zero_point(&m, "za", ONNX_UINT8, 120);
    zero_point(&m, "zb", ONNX_INT8, 5);
    node(&m, "QuantizeLinear", "a sa za", "qa");
    return m;
}

/* second = (qa - za) (b - zb) sa sb + bias, of the values named */
static void exact_product(made *m, const char *inputs, const char *scales)
{
    node(m, "MatMulInteger", inputs, "whole");
    write_int(&m->p, node(m, "Cast", "whole", "sums"), "to", ONNX_FLOAT);
    node(m, "Mul", scales, "scale");
    node(m, "Mul", "sums scale", "product");
    node(m, "Add", "product bias", "second");
}

static void test_products(void)
{
    made m = factors();
    microsoft(&m, "MatMulIntegerToFloat", "qa b sa sb za zb bias", "first");
    exact_product(&m, "qa b za zb", "sa sb");
    finish(&m, 17, 6);
    m = factors();
    microsoft(&m, "DynamicQuantizeMatMul", "a b sb zb bias", "first");
    node(&m, "DynamicQuantizeLinear", "a", "da ds dz");
    exact_product(&m, "da b dz zb", "ds sb");
    finish(&m, 17, 6);
    m = factors();
    write_float(&m.p, microsoft(&m, "QGemm", "qa sa za b sb zb", "f"), "alpha", 0.5);
    number(&m, "half", 0.5);
    number(&m, "two", 2);
    node(&m, "Mul", "f two", "ff");
    node(&m, "Add", "ff bias", "first");
    exact_product(&m, "qa b za zb", "sa sb");
    finish(&m, 17, 6);
}

/* The bias is in units of the two scales; the matrix lies transposed. */
static void test_gemm(void)
{
    static const int64_t bias[3] = {900, -300, 55};
    made m = factors();
    bytes(&m, "bt", ONNX_INT8, WEFT_SHAPE(3, 5));
    write_longs(&m.p, m.g, "wide", WEFT_SHAPE(3), bias);
    number(&m, "st", 0.02);
    zero_point(&m, "zt", ONNX_UINT8, 90);
    write_int(&m.p, node(&m, "Cast", "wide", "c"), "to", ONNX_INT32);
    write_int(&m.p, microsoft(&m, "QGemm", "qa sa za bt sb zb c st zt", "q"), "transB", 1);
    node(&m, "DequantizeLinear", "qa sa za", "ra");
    node(&m, "DequantizeLinear", "bt sb zb", "rb");
    node(&m, "Mul", "sa sb", "s");
    write_int(&m.p, node(&m, "Cast", "c", "cf"), "to", ONNX_FLOAT);
    node(&m, "Mul", "cf s", "rc");
    write_int(&m.p, node(&m, "Gemm", "ra rb rc", "r"), "transB", 1);
    end_quantized(&m, 6);
}

static void test_float_products(void)
{
    made m = begin();
    floats(&m, "a", WEFT_SHAPE(2, 4, 3));
    floats(&m, "b", WEFT_SHAPE(2, 5, 4));
    number(&m, "scale", 0.3);
    WeftOnnx__NodeProto *n = microsoft(&m, "FusedMatMul", "a b", "first");
    write_int(&m.p, n, "transA", 1);
    write_int(&m.p, n, "transB", 1);
    write_float(&m.p, n, "alpha", 0.3);
    static const int64_t swap[3] = {0, 2, 1};
    write_ints(&m.p, node(&m, "Transpose", "a", "at"), "perm", swap, 3);
    write_ints(&m.p, node(&m, "Transpose", "b", "bt"), "perm", swap, 3);
    node(&m, "MatMul", "at bt", "y");
    node(&m, "Mul", "y scale", "second");
    finish(&m, 17, 30);

    m = begin();
    floats(&m, "a", WEFT_SHAPE(4, 3));
    floats(&m, "b", WEFT_SHAPE(3, 5));
    n = microsoft(&m, "FusedGemm", "a b", "first");
    write_text(&m.p, n, "activation", "LeakyRelu");
    write_float(&m.p, n, "activation_alpha", 0.2);
    node(&m, "MatMul", "a b", "y");
    write_float(&m.p, node(&m, "LeakyRelu", "y", "second"), "alpha", 0.2);
    finish(&m, 17, 20);

    static float bounds[2] = {-0.5f, 0.25f};
    m = begin();
    floats(&m, "x", WEFT_SHAPE(1, 2, 4, 4));
    floats(&m, "w", WEFT_SHAPE(3, 2, 3, 3));
    floats(&m, "z", WEFT_SHAPE(1, 3, 2, 2));
    number(&m, "low", -0.5);
    number(&m, "high", 0.25);
    n = microsoft(&m, "FusedConv", "x w - z", "first");
    write_text(&m.p, n, "activation", "Clip");
    WeftOnnx__AttributeProto *a = write_attribute(&m.p, n, "activation_params");
    a->floats = bounds;
    a->n_floats = 2;
    node(&m, "Conv", "x w", "c");
    node(&m, "Add", "c z", "y");
    node(&m, "Clip", "y low high", "second");
    finish(&m, 17, 12);
}

/* ---- Layers ---- */

static void test_activations(void)
{
    static const char *const ops[] = {"BiasGelu", "FastGelu"};
    for (int k = 0; k < 2; k++) {
        made m = begin();
        floats(&m, "x", WEFT_SHAPE(2, 3));
        floats(&m, "b", WEFT_SHAPE(3));
        microsoft(&m, ops[k], "x b", "first");
        node(&m, "Add", "x b", "y");
        WeftOnnx__NodeProto *n = node(&m, "Gelu", "y", "second");
        if (k) write_text(&m.p, n, "approximate", "tanh");
        finish(&m, 20, 6);
    }
    made m = begin();
    floats(&m, "x", WEFT_SHAPE(2, 3));
    number(&m, "alpha", 1.5);
    write_float(&m.p, microsoft(&m, "QuickGelu", "x", "first"), "alpha", 1.5);
    node(&m, "Mul", "x alpha", "ax");
    node(&m, "Sigmoid", "ax", "s");
    node(&m, "Mul", "x s", "second");
    finish(&m, 17, 6);
}

static void test_norms(void)
{
    static const char *const ops[] = {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"};
    for (int k = 0; k < 2; k++) {
        made m = begin();
        floats(&m, "x", WEFT_SHAPE(2, 3, 4));
        floats(&m, "skip", WEFT_SHAPE(2, 3, 4));
        floats(&m, "gamma", WEFT_SHAPE(4));
        floats(&m, "beta", WEFT_SHAPE(4));
        floats(&m, "bias", WEFT_SHAPE(4));
        write_float(
            &m.p,
            microsoft(&m, ops[k], k ? "x skip gamma bias" : "x skip gamma beta bias", "y - - sum"),
            "epsilon", 1e-5);
        node(&m, "Add", "x skip", "xs");
        node(&m, "Add", "xs bias", "xsb");
        write_float(&m.p,
                    k ? node(&m, "SimplifiedLayerNormalization", "xsb gamma", "z")
                      : node(&m, "LayerNormalization", "xsb gamma beta", "z"),
                    "epsilon", 1e-5);
        node(&m, "Add", "y sum", "first");
        node(&m, "Add", "z xsb", "second");
        finish(&m, 17, 24);
    }
}

static void test_embedding(void)
{
    static const int64_t ids[6] = {0, 4, 2, 1, 1, 3}, segments[6] = {0, 0, 1, 1, 0, 1};
    static const int64_t mask[6] = {1, 1, 1, 1, 0, 0};
    made m = begin();
    write_longs(&m.p, m.g, "ids", WEFT_SHAPE(2, 3), ids);
    write_longs(&m.p, m.g, "segments", WEFT_SHAPE(2, 3), segments);
    write_longs(&m.p, m.g, "mask", WEFT_SHAPE(2, 3), mask);
    floats(&m, "words", WEFT_SHAPE(5, 4));
    floats(&m, "places", WEFT_SHAPE(3, 4));
    floats(&m, "kinds", WEFT_SHAPE(2, 4));
    floats(&m, "gamma", WEFT_SHAPE(4));
    floats(&m, "beta", WEFT_SHAPE(4));
    microsoft(&m, "EmbedLayerNormalization", "ids segments words places kinds gamma beta mask",
              "y lengths");
    node(&m, "Gather", "words ids", "w");
    node(&m, "Gather", "kinds segments", "k");
    node(&m, "Add", "w places", "wp");
    node(&m, "Add", "wp k", "wpk");
    write_float(&m.p, node(&m, "LayerNormalization", "wpk gamma beta", "z"), "epsilon", 1e-12);
    /* The lengths are 3 and 1. */
    static const float lengths[6] = {3, 1};
    write_floats(&m.p, m.g, "known", WEFT_SHAPE(2, 1), lengths);
    write_int(&m.p, node(&m, "Cast", "lengths", "lf"), "to", ONNX_FLOAT);
    write_int(&m.p, node(&m, "Flatten", "lf", "l"), "axis", 1);
    write_int(&m.p, node(&m, "Flatten", "y", "yf"), "axis", 1);
    write_int(&m.p, node(&m, "Flatten", "z", "zf"), "axis", 1);
    node(&m, "Add", "yf l", "first");
    node(&m, "Add", "zf known", "second");
    finish(&m, 17, 24);
}

/* Attention of opset 23, with its projections before it. */
static void test_attention(void)
{
    static const int64_t parts[3] = {4, 4, 4}, lengths[2] = {3, 2}, ones[6] = {1, 1, 1, 1, 1, 0};
    static const char *const inputs[] = {"x w b", "x w b lengths", "x w b ones", "x w b"};
    float mask[6] = {0, 0, 0, 0, 0, -10000};
    for (int k = 0; k < 4; k++) {
        made m = begin();
        floats(&m, "x", WEFT_SHAPE(2, 3, 6));
        floats(&m, "w", WEFT_SHAPE(6, 12));
        floats(&m, "b", WEFT_SHAPE(12));
        write_longs(&m.p, m.g, "lengths", WEFT_SHAPE(2), lengths);
        write_longs(&m.p, m.g, "ones", WEFT_SHAPE(2, 3), ones);
        write_longs(&m.p, m.g, "parts", WEFT_SHAPE(3), parts);
        write_floats(&m.p, m.g, "mask", WEFT_SHAPE(2, 1, 1, 3), mask);
        WeftOnnx__NodeProto *n = microsoft(&m, "Attention", inputs[k], "first");
        write_int(&m.p, n, "num_heads", 2);
        write_int(&m.p, n, "unidirectional", k == 3);
        node(&m, "MatMul", "x w", "xw");
        node(&m, "Add", "xw b", "xwb");
        write_int(&m.p, node(&m, "Split", "xwb parts", "q k v"), "axis", 2);
        n = node(&m, "Attention", k == 1 || k == 2 ? "q k v mask" : "q k v", "second");
        write_int(&m.p, n, "q_num_heads", 2);
        write_int(&m.p, n, "kv_num_heads", 2);
        write_int(&m.p, n, "is_causal", k == 3);
        finish(&m, 23, 24);
    }
}

/* One step from a state of zeros, of numbers that 8 bits have exactly: as an LSTM of the scaled
 * matrix, transposed. */
static void test_lstm(void)
{
    static const float x[3] = {0, 255, 17};
    static const int64_t swap[3] = {0, 2, 1};
    made m = begin();
    write_floats(&m.p, m.g, "x", WEFT_SHAPE(1, 1, 3), x);
    bytes(&m, "w", ONNX_INT8, WEFT_SHAPE(1, 3, 8));
    bytes(&m, "r", ONNX_INT8, WEFT_SHAPE(1, 2, 8));
    floats(&m, "b", WEFT_SHAPE(1, 16));
    number(&m, "s", 1e-4);
    zero_point(&m, "z", ONNX_INT8, 3);
    static const int64_t one[1] = {1};
    write_longs(&m.p, m.g, "one", WEFT_SHAPE(1), one);
    node(&m, "Reshape", "s one", "sw");
    node(&m, "Reshape", "z one", "zw");
    write_int(&m.p, microsoft(&m, "DynamicQuantizeLSTM", "x w r b - - - - sw zw sw zw", "first"),
              "hidden_size", 2);
    node(&m, "DequantizeLinear", "w s z", "wf");
    node(&m, "DequantizeLinear", "r s z", "rf");
    write_ints(&m.p, node(&m, "Transpose", "wf", "wt"), "perm", swap, 3);
    write_ints(&m.p, node(&m, "Transpose", "rf", "rt"), "perm", swap, 3);
    write_int(&m.p, node(&m, "LSTM", "x wt rt b", "second"), "hidden_size", 2);
    finish(&m, 17, 2);
}

/* ---- Refusals ---- */

static void refuse(made *m, const char *message)
{
    weft_error error = {0};
    write_output(&m->p, m->g, "y");
    weft_onnx *model = load_written(&m->p, m->g, 17, NULL, &error);
    CU_ASSERT_PTR_NULL(model);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    if (!strstr(error.message, message))
        fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    weft_onnx_free(model);
    weft__arena_free(&m->p);
}

static void test_refused(void)
{
    made m = factors();
    write_int(&m.p, microsoft(&m, "FusedMatMul", "a bias", "y"), "transBatchA", 1);
    refuse(&m, "transBatchA");
    m = factors();
    floats(&m, "c", WEFT_SHAPE(5, 3));
    write_text(&m.p, microsoft(&m, "FusedGemm", "a c", "y"), "activation", "Mish");
    refuse(&m, "unsupported activation");
    m = factors();
    write_int(&m.p, microsoft(&m, "QGemm", "qa sa za b sb zb", "y"), "transA", 1);
    refuse(&m, "transA");
    m = factors();
    microsoft(&m, "QLinearConcat", "sa za qa sa za b", "y");
    refuse(&m, "three inputs for each part");
    m = factors();
    microsoft(&m, "SkipLayerNormalization", "a a bias", "y mean");
    refuse(&m, "outputs 1 and 2");
    m = factors();
    write_int(&m.p, microsoft(&m, "Attention", "a bias", "y"), "num_heads", 2);
    refuse(&m, "needs [batch, length, features]");
    m = factors();
    microsoft(&m, "DynamicQuantizeLSTM", "a b b", "y");
    refuse(&m, "has no input 8");
    m = factors();
    microsoft(&m, "Frobnicate", "a", "y");
    refuse(&m, "\"com.microsoft\"");
}

void onnx_microsoft_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_microsoft", NULL, NULL);
    CU_add_test(suite, "quantized numbers by element", test_elementwise);
    CU_add_test(suite, "quantized numbers along axes", test_axes);
    CU_add_test(suite, "products of quantized matrices", test_products);
    CU_add_test(suite, "a product with a bias and a transposed matrix", test_gemm);
    CU_add_test(suite, "products of floats", test_float_products);
    CU_add_test(suite, "activations with a bias", test_activations);
    CU_add_test(suite, "norms of sums", test_norms);
    CU_add_test(suite, "embeddings of BERT", test_embedding);
    CU_add_test(suite, "attention with projections", test_attention);
    CU_add_test(suite, "an LSTM of quantized matrices", test_lstm);
    CU_add_test(suite, "what is refused", test_refused);
}
