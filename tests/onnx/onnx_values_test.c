/* Results of single ONNX nodes where the standard decides every bit: rounding, wrapping, signed
 * zeros, reductions over nothing. The expected numbers are those of the onnx package's reference
 * implementation (1.23.2). Each node runs on inputs and, computed during the import, on constants.
 */
#include "onnx_writer.h"
#include "tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ELEMENTS 16

/* A tensor by its numbers. */
typedef struct numbers {
    int type; /* of ONNX */
    weft_shape shape;
    double data[MAX_ELEMENTS];
} numbers;

/* y of a graph whose only input, if it has one, is x. */
typedef struct result {
    weft_dtype dtype;
    weft_shape shape;
    double data[MAX_ELEMENTS];
} result;

static void store(const numbers *from, weft_dtype dtype, void *to)
{
    for (int64_t i = 0; i < weft_shape_numel(from->shape); i++)
        if (dtype == WEFT_F32)
            ((float *)to)[i] = (float)from->data[i];
        else if (dtype == WEFT_F64)
            ((double *)to)[i] = from->data[i];
        else if (dtype == WEFT_I32)
            ((int32_t *)to)[i] = (int32_t)from->data[i];
        else
            ((uint8_t *)to)[i] = from->data[i] != 0;
}

static result fetch(weft_session *s, weft_value y)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y, &t, NULL) == WEFT_OK);
    result r = {.dtype = t.dtype, .shape = t.shape};
    CU_ASSERT_TRUE_FATAL(weft_shape_numel(t.shape) <= MAX_ELEMENTS);
    for (int64_t i = 0; i < weft_shape_numel(t.shape); i++) r.data[i] = weft_tensor_element(&t, i);
    return r;
}

/* Runs a written graph. Without `constant`, x is fed. */
static result run(arena *memory, written_graph *g, int64_t opset, const numbers *x, bool constant)
{
    double data[MAX_ELEMENTS];
    weft_error error = {0};
    weft_dtype dtype = WEFT_F32;
    weft_value in[1], out;
    weft__onnx_type_dtype(x->type, "x", &dtype, NULL);
    store(x, dtype, data);
    const weft_onnx_constant value = {"x", dtype, x->shape, data, NULL};
    const weft_onnx_options options = {.constants = &value, .n_constants = constant};
    weft_onnx *m = must_load_written(memory, g, opset, &options);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *graph = weft_graph_new();
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_onnx_build(graph, m, 0, in, &out), WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_copy_weights(m, params, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(graph, &out, 1, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, params, NULL, &error) : NULL;
    if (!s) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    if (!constant)
        CU_ASSERT_EQUAL(weft_session_feed(s, in[0], data, weft_tensor_bytes(dtype, x->shape), NULL),
                        WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    const result r = fetch(s, out);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(graph);
    weft_onnx_free(m);
    return r;
}

/* The same number, zeros with their sign; `limit` is relative. */
static bool same(double got, double want, double limit)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (want == 0 && got == 0) return !signbit(got) == !signbit(want);
    return got == want || fabs(got - want) <= limit * fabs(want);
}

static void expect(const char *what, const result *got, const numbers *want, double limit)
{
    char is[80], wanted[80];
    weft_dtype dtype = WEFT_F32;
    weft__onnx_type_dtype(want->type, "y", &dtype, NULL);
    const bool good = got->dtype == dtype && weft_shape_equal(got->shape, want->shape);
    if (!good)
        fprintf(stderr, "\n    %s: %s %s, expected %s %s\n", what, weft_dtype_name(got->dtype),
                weft_shape_text(got->shape, is, sizeof is), weft_dtype_name(dtype),
                weft_shape_text(want->shape, wanted, sizeof wanted));
    CU_ASSERT_TRUE_FATAL(good);
    for (int64_t i = 0; i < weft_shape_numel(want->shape); i++) {
        const bool equal = same(got->data[i], want->data[i], limit);
        if (!equal)
            fprintf(stderr, "\n    %s: element %d is %.9g, expected %.9g\n", what, (int)i,
                    got->data[i], want->data[i]);
        CU_ASSERT_TRUE(equal);
    }
}

/* y of the node op(x, rest), with at most two integer attributes, on data and on constants. */
typedef struct attribute {
    const char *name;
    double value;
    bool is_float;
} attribute;

static void check(const char *op, int64_t opset, const attribute *attributes, const numbers *x,
                  const numbers *y, double limit)
{
    for (int constant = 0; constant < 2; constant++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", x->type, x->shape);
        WeftOnnx__NodeProto *node = write_node(&p, g, op, "x", "y");
        for (const attribute *a = attributes; a && a->name; a++)
            if (a->is_float)
                write_float(&p, node, a->name, a->value);
            else
                write_int(&p, node, a->name, (int64_t)a->value);
        write_output(&p, g, "y");
        const result r = run(&p, g, opset, x, constant);
        expect(op, &r, y, limit);
        weft__arena_free(&p);
    }
}

/* ---- Reductions ---- */

/* With noop_with_empty_axes and no axes, only what is done to each element remains. */
static void test_no_axes(void)
{
    static const attribute noop[] = {{"noop_with_empty_axes", 1, false}, {NULL, 0, false}};
    static const double log3 = 1.0986122886681098, log_half = -0.6931471805599453;
    static const numbers x = {ONNX_FLOAT, {2, {2, 2}}, {-2, 3, 0.5, -1}};
    const numbers size = {ONNX_FLOAT, {2, {2, 2}}, {2, 3, 0.5, 1}},
                  square = {ONNX_FLOAT, {2, {2, 2}}, {4, 9, 0.25, 1}},
                  log = {ONNX_FLOAT, {2, {2, 2}}, {NAN, log3, log_half, NAN}};
    static const char *const plain[] = {"ReduceSum", "ReduceMean", "ReduceMax",
                                        "ReduceMin", "ReduceProd", "ReduceLogSumExp"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) check(plain[i], 18, noop, &x, &x, 0);
    check("ReduceL1", 18, noop, &x, &size, 0);
    check("ReduceL2", 18, noop, &x, &size, 0);
    check("ReduceSumSquare", 18, noop, &x, &square, 0);
    check("ReduceLogSum", 18, noop, &x, &log, 2e-7); /* rounding of log in f32 */
    static const numbers bytes = {ONNX_INT8, {1, {4}}, {-2, 3, 0, -128}},
                         wrapped = {ONNX_INT8, {1, {4}}, {4, 9, 0, 0}},
                         sizes = {ONNX_INT8, {1, {4}}, {2, 3, 0, -128}};
    check("ReduceSumSquare", 18, noop, &bytes, &wrapped, 0);
    check("ReduceL1", 18, noop, &bytes, &sizes, 0);
}

/* The largest of nothing is the smallest number of the type, and the other way round. */
static void test_empty_extremes(void)
{
    static const struct {
        int type;
        double low, high;
    } rows[] = {
        {ONNX_UINT8, 0, 255},
        {ONNX_INT8, -128, 127},
        {ONNX_UINT16, 0, 65535},
        {ONNX_INT16, -32768, 32767},
        {ONNX_INT32, INT32_MIN, INT32_MAX},
        {ONNX_UINT32, 0, INT32_MAX}, /* weft has no larger ones */
        {ONNX_BOOL, 0, 1},
        {ONNX_FLOAT, -INFINITY, INFINITY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const numbers nothing = {rows[i].type, {2, {0, 3}}, {0}};
        const numbers low = {rows[i].type, {2, {1, 1}}, {rows[i].low}},
                      high = {rows[i].type, {2, {1, 1}}, {rows[i].high}};
        check("ReduceMax", 20, NULL, &nothing, &low, 0);
        check("ReduceMin", 20, NULL, &nothing, &high, 0);
    }
}

/* ---- Casts ---- */

static void check_cast(const numbers *x, const numbers *y)
{
    const attribute to[] = {{"to", y->type, false}, {NULL, 0, false}};
    check("Cast", 19, to, x, y, 0);
}

/* Numbers lose their fraction first, and what remains wraps around. */
static void test_casts(void)
{
    static const double from[] = {-0.13,  0.99,   3.7,   -1.5,  127.9, 128.2,
                                  -128.7, -129.5, 255.5, 300.7, 0};
    static const struct {
        int type;
        double data[11];
    } rows[] = {
        {ONNX_UINT8, {0, 0, 3, 255, 127, 128, 128, 127, 255, 44, 0}},
        {ONNX_INT8, {0, 0, 3, -1, 127, -128, -128, 127, -1, 44, 0}},
        {ONNX_UINT16, {0, 0, 3, 65535, 127, 128, 65408, 65407, 255, 300, 0}},
        {ONNX_INT16, {0, 0, 3, -1, 127, 128, -128, -129, 255, 300, 0}},
        {ONNX_INT32, {0, 0, 3, -1, 127, 128, -128, -129, 255, 300, 0}},
        {ONNX_UINT4, {0, 0, 3, 15, 15, 0, 0, 15, 15, 12, 0}},
        {ONNX_INT4, {0, 0, 3, -1, -1, 0, 0, -1, -1, -4, 0}},
        {ONNX_UINT2, {0, 0, 3, 3, 3, 0, 0, 3, 3, 0, 0}},
        {ONNX_INT2, {0, 0, -1, -1, -1, 0, 0, -1, -1, 0, 0}},
    };
    for (int type = 0; type < 2; type++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            numbers x = {type ? ONNX_DOUBLE : ONNX_FLOAT, {1, {11}}, {0}};
            numbers y = {rows[i].type, {1, {11}}, {0}};
            memcpy(x.data, from, sizeof from);
            memcpy(y.data, rows[i].data, sizeof rows[i].data);
            check_cast(&x, &y);
        }
    static const numbers whole = {ONNX_INT32, {1, {4}}, {-1, 256, 65537, -32769}},
                         u8 = {ONNX_UINT8, {1, {4}}, {255, 0, 1, 255}},
                         i16 = {ONNX_INT16, {1, {4}}, {-1, 256, 1, 32767}};
    check_cast(&whole, &u8);
    check_cast(&whole, &i16);
}

/* Floats of at most 8 bits, in all their roundings: halves to even, the smallest number, beyond the
 * largest one. */
static void test_minifloats(void)
{
    static const double from[] = {0.5625, 0.6875, -1.1875, 0x1p-10, 0x3p-11, -0x1p-20,
                                  464,    465,    -1e30,   0x1p-17, 0x3p-18, NAN};
    static const struct {
        int type;
        double saturated[12], beyond[3]; /* of 464, 465 and -1e30 without saturation */
    } rows[] = {
        {ONNX_FLOAT8E4M3FN,
         {0.5625, 0.6875, -1.25, 0, 0x1p-9, -0.0, 448, 448, -448, 0, 0, NAN},
         {448, NAN, NAN}},
        {ONNX_FLOAT8E4M3FNUZ,
         {0.5625, 0.6875, -1.25, 0x1p-10, 0x1p-9, 0, 240, 240, -240, 0, 0, NAN},
         {NAN, NAN, NAN}},
        {ONNX_FLOAT8E5M2,
         {0.5, 0.75, -1.25, 0x1p-10, 0x3p-11, -0.0, 448, 448, -57344, 0, 0x1p-16, NAN},
         {448, 448, -INFINITY}},
        {ONNX_FLOAT8E5M2FNUZ,
         {0.5, 0.75, -1.25, 0x1p-10, 0x3p-11, 0, 448, 448, -57344, 0x1p-17, 0x1p-16, NAN},
         {448, 448, NAN}},
        {ONNX_FLOAT4E2M1, {0.5, 0.5, -1, 0, 0, -0.0, 6, 6, -6, 0, 0, -0.0}, {6, 6, -6}},
    };
    for (int type = 0; type < 2; type++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            numbers x = {type ? ONNX_DOUBLE : ONNX_FLOAT, {1, {12}}, {0}};
            numbers y = {rows[i].type, {1, {12}}, {0}};
            memcpy(x.data, from, sizeof from);
            memcpy(y.data, rows[i].saturated, sizeof rows[i].saturated);
            check_cast(&x, &y);
            const attribute to[] = {
                {"to", y.type, false}, {"saturate", 0, false}, {NULL, 0, false}};
            memcpy(y.data + 6, rows[i].beyond, sizeof rows[i].beyond);
            check("Cast", 24, to, &x, &y, 0);
        }
    /* Rounded to f32 first, the first would be a tie. */
    static const numbers precise = {ONNX_DOUBLE, {1, {1}}, {1.0625 + 0x1p-40}},
                         eighth = {ONNX_FLOAT8E4M3FN, {1, {1}}, {1.125}},
                         whole = {ONNX_INT32, {1, {4}}, {-1, 17, 19, 16777217}},
                         e5m2 = {ONNX_FLOAT8E5M2, {1, {4}}, {-1, 16, 20, 57344}};
    check_cast(&precise, &eighth);
    check_cast(&whole, &e5m2);
}

/* Powers of two, in each direction. */
static void test_powers(void)
{
    static const numbers x = {
        ONNX_FLOAT, {1, {9}}, {0, 0x1p-130, 0x3p-128, 1, 1.25, 1.5, 0x1p127, INFINITY, NAN}};
    static const struct {
        const char *mode;
        double saturated[9], exact[9];
    } rows[] = {
        {"up",
         {0x1p-127, 0x1p-127, 0x1p-126, 1, 2, 2, 0x1p127, 0x1p127, NAN},
         {NAN, NAN, 0x1p-126, 1, 2, 2, 0x1p127, NAN, NAN}},
        {"down",
         {0x1p-127, 0x1p-127, 0x1p-127, 1, 1, 1, 0x1p127, 0x1p127, NAN},
         {NAN, NAN, 0x1p-127, 1, 1, 1, 0x1p127, NAN, NAN}},
        {"nearest",
         {0x1p-127, 0x1p-127, 0x1p-126, 1, 1, 2, 0x1p127, 0x1p127, NAN},
         {NAN, NAN, 0x1p-126, 1, 1, 2, 0x1p127, NAN, NAN}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int saturate = 0; saturate < 2; saturate++) {
            numbers y = {ONNX_FLOAT8E8M0, {1, {9}}, {0}};
            memcpy(y.data, saturate ? rows[i].saturated : rows[i].exact, sizeof rows[i].exact);
            arena p = {.blocks = NULL};
            written_graph *g = write_graph(&p);
            write_input(&p, g, "x", x.type, x.shape);
            WeftOnnx__NodeProto *node = write_node(&p, g, "Cast", "x", "y");
            write_int(&p, node, "to", y.type);
            write_int(&p, node, "saturate", saturate);
            write_text(&p, node, "round_mode", rows[i].mode);
            write_output(&p, g, "y");
            const result r = run(&p, g, 24, &x, false);
            expect(rows[i].mode, &r, &y, 0);
            weft__arena_free(&p);
        }
}

/* Of a matrix in 8 bits and its scale, only the scale is a parameter. The zero point is that of the
 * formula. */
static void test_minifloat_weights(void)
{
    static const uint8_t codes[4] = {0x30, 0xb8, 0x7e, 0x01}; /* 0.5, -1, 448 and 2^-9 */
    static const uint8_t zero[2] = {0x00, 0x38};              /* 0 and 1 */
    static const float scale[2] = {2, 3};
    static const numbers x = {ONNX_FLOAT, {2, {2, 2}}, {0}},
                         y = {ONNX_FLOAT, {2, {2, 2}}, {1, -2, 1341, (0x1p-9 - 1) * 3}};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    size_t count;
    write_input(&p, g, "x", ONNX_FLOAT, x.shape);
    write_bytes(&p, g, "w", ONNX_FLOAT8E4M3FN, WEFT_SHAPE(2, 2), codes);
    write_bytes(&p, g, "zero", ONNX_FLOAT8E4M3FN, WEFT_SHAPE(2), zero);
    write_floats(&p, g, "scale", WEFT_SHAPE(2), scale);
    WeftOnnx__NodeProto *node = write_node(&p, g, "DequantizeLinear", "w scale zero", "real");
    write_int(&p, node, "axis", 0);
    write_node(&p, g, "Add", "real x", "y");
    write_output(&p, g, "y");
    const result r = run(&p, g, 21, &x, false);
    expect("DequantizeLinear", &r, &y, 0);
    weft_onnx *m = must_load_written(&p, g, 21, NULL);
    const weft_onnx_value *params = weft_onnx_params(m, &count);
    CU_ASSERT_TRUE(count == 1 && !strcmp(params[0].name, "scale"));
    weft_onnx_free(m);
    weft__arena_free(&p);
}

/* The gradient of rounding is zero, beyond the largest number too. */
static void test_minifloat_gradients(void)
{
    static const float x[4] = {0.3f, -7, 1e9f, -INFINITY};
    for (int saturate = 0; saturate < 2; saturate++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        float slope[4] = {1, 1, 1, 1};
        weft_value in, y, grad;
        write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(4));
        WeftOnnx__NodeProto *node = write_node(&p, g, "Cast", "x", "y");
        write_int(&p, node, "to", ONNX_FLOAT8E5M2);
        write_int(&p, node, "saturate", saturate);
        write_output(&p, g, "y");
        weft_onnx *m = must_load_written(&p, g, 24, NULL);
        weft_graph *graph = weft_graph_new();
        CU_ASSERT_EQUAL_FATAL(weft_onnx_build(graph, m, 0, &in, &y), WEFT_OK);
        weft_grad(graph, weft_sum(graph, y, WEFT_ALL_AXES, false), &in, 1, &grad);
        weft_plan *plan = weft_plan_new(graph, &grad, 1, NULL, NULL);
        weft_session *s = plan ? weft_session_new(plan, NULL, NULL, NULL) : NULL;
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_feed(s, in, x, sizeof x, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, grad, slope, sizeof slope, NULL), WEFT_OK);
        for (int i = 0; i < 4; i++) CU_ASSERT_EQUAL(slope[i], 0);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(graph);
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
}

/* Five numbers of 4 or 2 bits, which share bytes, raw or as a list. */
static void test_packed(void)
{
    static const struct {
        int type;
        uint8_t bytes[3];
        size_t n_bytes;
        numbers y;
    } rows[] = {
        {ONNX_INT4, {0x8f, 0x07, 0x0d}, 3, {ONNX_FLOAT, {1, {5}}, {-1, -8, 7, 0, -3}}},
        {ONNX_UINT4, {0x8f, 0x07, 0x0d}, 3, {ONNX_FLOAT, {1, {5}}, {15, 8, 7, 0, 13}}},
        {ONNX_INT2, {0x1b, 0x02}, 2, {ONNX_FLOAT, {1, {5}}, {-1, -2, 1, 0, -2}}},
        {ONNX_UINT2, {0x1b, 0x02}, 2, {ONNX_FLOAT, {1, {5}}, {3, 2, 1, 0, 2}}},
        {ONNX_FLOAT4E2M1, {0x8f, 0x17, 0x0d}, 3, {ONNX_FLOAT, {1, {5}}, {-6, 0, 6, 0.5, -3}}},
    };
    static const numbers zero = {ONNX_FLOAT, {0, {0}}, {0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int list = 0; list < 2; list++) {
            int32_t ints[3];
            arena p = {.blocks = NULL};
            written_graph *g = write_graph(&p);
            write_input(&p, g, "x", ONNX_FLOAT, zero.shape);
            WeftOnnx__TensorProto *t =
                write_initializer(&p, g, "packed", rows[i].type, WEFT_SHAPE(5));
            for (size_t k = 0; k < rows[i].n_bytes; k++) ints[k] = rows[i].bytes[k];
            t->n_int32_data = list ? rows[i].n_bytes : 0;
            t->int32_data = ints;
            t->has_raw_data = !list;
            t->raw_data.len = rows[i].n_bytes;
            t->raw_data.data = (uint8_t *)(uintptr_t)rows[i].bytes;
            WeftOnnx__NodeProto *cast = write_node(&p, g, "Cast", "packed", "wide");
            write_int(&p, cast, "to", ONNX_FLOAT);
            write_node(&p, g, "Add", "wide x", "y");
            write_output(&p, g, "y");
            const result r = run(&p, g, 25, &zero, false);
            expect(list ? "a list" : "raw bytes", &r, &rows[i].y, 0);
            weft__arena_free(&p);
        }
}

/* ---- Zeros ---- */

/* Shrink returns +0 between the bounds, also for -0 and NaN. */
static void test_shrink(void)
{
    static const attribute bounds[] = {{"lambd", 1.5, true}, {"bias", 0.5, true}, {NULL, 0, false}};
    const numbers x = {ONNX_FLOAT, {1, {8}}, {-2, -1, -0.0, 0, 1, 2, NAN, -INFINITY}},
                  y = {ONNX_FLOAT, {1, {8}}, {-1.5, 0, 0, 0, 0, 1.5, 0, -INFINITY}};
    check("Shrink", 9, bounds, &x, &y, 0);
}

static void test_non_zero(void)
{
    static const numbers x = {ONNX_FLOAT, {1, {4}}, {-0.0, 1, 0, -2}},
                         y = {ONNX_INT64, {2, {1, 2}}, {1, 3}};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, x.shape);
    write_node(&p, g, "NonZero", "x", "y");
    write_output(&p, g, "y");
    const result r = run(&p, g, 13, &x, true);
    expect("NonZero", &r, &y, 0);
    weft__arena_free(&p);
}

/* Equal numbers deviate by nothing. */
static void test_mean_variance(void)
{
    const double c = (double)37.8368f;
    const numbers x = {ONNX_FLOAT, {4, {1, 1, 1, 7}}, {c, c, c, c, c, c, c}},
                  y = {ONNX_FLOAT, {4, {1, 1, 1, 7}}, {0}};
    check("MeanVarianceNormalization", 13, NULL, &x, &y, 0);
}

/* ---- Shapes of parameters ---- */

/* y = op(w) is a number of the file, although w is a parameter: as the result, and as a value that
 * another node adds. */
static void test_shape_of_parameter(void)
{
    static const float w[6] = {1, 2, 3, 4, 5, 6};
    static const numbers x = {ONNX_INT64, {1, {1}}, {10}};
    static const struct {
        const char *op;
        numbers y, sum;
    } rows[] = {
        {"Shape", {ONNX_INT64, {1, {2}}, {2, 3}}, {ONNX_INT64, {1, {2}}, {12, 13}}},
        {"Size", {ONNX_INT64, {0, {0}}, {6}}, {ONNX_INT64, {1, {1}}, {16}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int add = 0; add < 2; add++) {
            arena p = {.blocks = NULL};
            written_graph *g = write_graph(&p);
            write_input(&p, g, "x", ONNX_INT64, x.shape);
            write_floats(&p, g, "w", WEFT_SHAPE(2, 3), w);
            write_node(&p, g, rows[i].op, "w", add ? "shape" : "y");
            if (add) write_node(&p, g, "Add", "shape x", "y");
            write_output(&p, g, "y");
            const result r = run(&p, g, 13, &x, false);
            expect(rows[i].op, &r, add ? &rows[i].sum : &rows[i].y, 0);
            weft__arena_free(&p);
        }
}

/* ---- Squeeze ---- */

/* Missing axes are all those of size 1; an empty list of axes names none. */
static void test_squeeze(void)
{
    static const numbers x = {ONNX_FLOAT, {3, {1, 3, 1}}, {1, 2, 3}};
    static const numbers all = {ONNX_FLOAT, {1, {3}}, {1, 2, 3}};
    static const char *const inputs[] = {"x", "x -", "x axes"};
    for (int64_t opset = 11; opset <= 13; opset += 2)
        for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
            for (int constant = 0; constant < 2; constant++) {
                arena p = {.blocks = NULL};
                written_graph *g = write_graph(&p);
                const bool empty = i == 2;
                write_input(&p, g, "x", ONNX_FLOAT, x.shape);
                if (opset >= 13 && empty) write_longs(&p, g, "axes", WEFT_SHAPE(0), NULL);
                WeftOnnx__NodeProto *node =
                    write_node(&p, g, "Squeeze", opset >= 13 ? inputs[i] : "x", "y");
                if (opset < 13 && empty) write_attribute(&p, node, "axes");
                write_output(&p, g, "y");
                const result r = run(&p, g, opset, &x, constant);
                expect("Squeeze", &r, empty ? &x : &all, 0);
                weft__arena_free(&p);
            }
}

void onnx_values_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_values", NULL, NULL);
    CU_add_test(suite, "reductions without axes", test_no_axes);
    CU_add_test(suite, "extremes of nothing", test_empty_extremes);
    CU_add_test(suite, "casts to integers", test_casts);
    CU_add_test(suite, "casts to floats of at most 8 bits", test_minifloats);
    CU_add_test(suite, "casts to powers of two", test_powers);
    CU_add_test(suite, "weights in floats of 8 bits", test_minifloat_weights);
    CU_add_test(suite, "gradients of casts to floats of 8 bits", test_minifloat_gradients);
    CU_add_test(suite, "numbers of less than 8 bits", test_packed);
    CU_add_test(suite, "zeros of Shrink", test_shrink);
    CU_add_test(suite, "negative zeros in NonZero", test_non_zero);
    CU_add_test(suite, "equal numbers in MeanVarianceNormalization", test_mean_variance);
    CU_add_test(suite, "shapes of parameters", test_shape_of_parameter);
    CU_add_test(suite, "axes of Squeeze", test_squeeze);
}
