/* What fits a dtype: numbers that ops are given as doubles, bytes that come from outside as bools,
 * floats that are cast to integers; and the ops that take any dtype. */
#include "tests.h"

#include "base/platform.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Numbers ---- */

/* What takes a number; those from FLOAT_ONLY on do so for f32 and f64 only. */
enum {
    FILL,
    MASKED_FILL,
    PAD,
    ARANGE,
    STATE,
    FLOAT_ONLY,
    SCALE = FLOAT_ONLY,
    ADD_SCALAR,
    POW_SCALAR,
    SLOPE,
    LOW,
    HIGH,
    TAKERS
};

static weft_value take_number(weft_graph *g, int taker, weft_dtype dtype, double number)
{
    const weft_shape shape = WEFT_SHAPE(2, 3);
    weft_value x = weft_input(g, "x", dtype, shape), mask = weft_input(g, "m", WEFT_BOOL, shape);
    switch (taker) {
    case FILL:
        return weft_fill(g, dtype, shape, number);
    case MASKED_FILL:
        return weft_masked_fill(g, x, mask, number);
    case PAD:
        return weft_pad(g, x, (const int64_t[]){1, 0}, (const int64_t[]){0, 1}, number);
    case ARANGE:
        return weft_arange(g, dtype, 1, number, 0);
    case STATE:
        return weft_state(g, "s", dtype, shape, (weft_init){WEFT_INIT_CONSTANT, number, 0});
    case SCALE:
        return weft_mul_scalar(g, x, number);
    case ADD_SCALAR:
        return weft_add_scalar(g, x, number);
    case POW_SCALAR:
        return weft_pow_scalar(g, x, number);
    case SLOPE:
        return weft_leaky_relu(g, x, number);
    case LOW:
        return weft_clamp(g, x, number, INFINITY);
    default:
        return weft_clamp(g, x, -INFINITY, number);
    }
}

static const struct {
    weft_dtype dtype;
    double number;
    bool fits;
} numbers[] = {
    {WEFT_BOOL, 0, true},
    {WEFT_BOOL, -0.0, true},
    {WEFT_BOOL, 1, true},
    {WEFT_BOOL, 2, false},
    {WEFT_BOOL, -1, false},
    {WEFT_BOOL, 0.5, false},
    {WEFT_BOOL, 256, false},
    {WEFT_BOOL, NAN, false},
    {WEFT_BOOL, INFINITY, false},
    {WEFT_I32, -7, true},
    {WEFT_I32, INT32_MAX, true},
    {WEFT_I32, INT32_MIN, true},
    {WEFT_I32, INT32_MAX + 1.0, false},
    {WEFT_I32, INT32_MIN - 1.0, false},
    {WEFT_I32, 1.5, false},
    {WEFT_I32, 1e300, false},
    {WEFT_I32, NAN, false},
    {WEFT_I32, -INFINITY, false},
    {WEFT_F32, 0.1, true},
    {WEFT_F32, 1e-300, true},
    {WEFT_F32, (double)FLT_MAX, true},
    {WEFT_F32, 0x1.fffffefp127, true}, /* becomes FLT_MAX */
    {WEFT_F32, 0x1.ffffffp127, false}, /* would become infinite */
    {WEFT_F32, -1e40, false},
    {WEFT_F32, NAN, true},
    {WEFT_F32, -INFINITY, true},
    {WEFT_F64, DBL_MAX, true},
    {WEFT_F64, NAN, true},
    {WEFT_F64, INFINITY, true},
};

static void test_numbers(void)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const weft_dtype dtype = numbers[i].dtype;
        for (int taker = 0; taker < (weft_dtype_is_float(dtype) ? TAKERS : FLOAT_ONLY); taker++) {
            weft_graph *g = weft_graph_new();
            const bool bound = taker == LOW || taker == HIGH;
            const bool fits = numbers[i].fits && !(bound && isnan(numbers[i].number));
            weft_value y = take_number(g, taker, dtype, numbers[i].number);
            const weft_error *e = weft_graph_error(g);
            const bool good =
                fits ? e->status == WEFT_OK && weft_is_value(y)
                     : e->status == WEFT_BAD_ARGUMENT && !weft_is_value(y) && e->where[0] &&
                           (strstr(e->message, "does not fit") || strstr(e->message, "low must"));
            if (!good)
                fprintf(stderr, "\n    taker %d, %s, %g: %s: %s\n", taker, weft_dtype_name(dtype),
                        numbers[i].number, e->where, e->message);
            CU_ASSERT_TRUE(good);
            weft_graph_free(g);
        }
    }
}

/* The default of an input of bytes. */
static void test_byte_default(void)
{
    static const struct {
        double number;
        bool fits;
    } bytes[] = {{0, true}, {255, true}, {256, false}, {-1, false}, {2.5, false}, {NAN, false}};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        weft_graph *g = weft_graph_new();
        weft_input_default(g, weft_input(g, "x", WEFT_U8, WEFT_SHAPE(2)), bytes[i].number);
        CU_ASSERT_EQUAL(weft_graph_status(g), bytes[i].fits ? WEFT_OK : WEFT_BAD_ARGUMENT);
        CU_ASSERT_EQUAL(strstr(weft_graph_error(g)->message, "whole numbers from 0 to 255") != NULL,
                        !bytes[i].fits);
        weft_graph_free(g);
    }
}

static weft_status range_status(weft_dtype dtype, int64_t count, double start, double step)
{
    weft_graph *g = weft_graph_new();
    weft_arange(g, dtype, count, start, step);
    weft_status status = weft_graph_status(g);
    weft_graph_free(g);
    return status;
}

/* Every number of a range must fit. */
static void test_ranges(void)
{
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 3, INT32_MAX - 2, 1), WEFT_OK);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 4, INT32_MAX - 2, 1), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 4, INT32_MIN + 3, -1), WEFT_OK);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 5, INT32_MIN + 3, -1), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 3, 0, 0.5), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 2, 0, NAN), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 0, 0, 1), WEFT_OK);
    CU_ASSERT_EQUAL(range_status(WEFT_I32, 1, 0, INFINITY), WEFT_OK); /* the step is never taken */
    CU_ASSERT_EQUAL(range_status(WEFT_BOOL, 2, 0, 1), WEFT_OK);
    CU_ASSERT_EQUAL(range_status(WEFT_BOOL, 3, 0, 1), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(range_status(WEFT_BOOL, 3, 0, 0.5), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(range_status(WEFT_F32, 11, 0, 3e37), WEFT_OK);
    CU_ASSERT_EQUAL(range_status(WEFT_F32, 13, 0, 3e37), WEFT_BAD_ARGUMENT);
}

/* ---- Running ---- */

/* Runs the targets with x fed `data`; the session is to be freed by end_run. */
typedef struct run {
    weft_plan *plan;
    weft_session *session;
} run;

static run run_targets(weft_graph *g, weft_value x, const void *data, const weft_value *targets,
                       size_t n, weft_params *params)
{
    weft_error error = {0};
    run r = {weft_plan_new(g, targets, n, &(weft_plan_options){.verify = true}, &error), NULL};
    if (!r.plan) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.plan);
    r.session = weft_session_new(r.plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.session);
    if (weft_is_value(x))
        CU_ASSERT_EQUAL(
            weft_session_feed(r.session, x, data,
                              weft_tensor_bytes(weft_dtype_of(g, x), weft_shape_of(g, x)), NULL),
            WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(r.session, NULL), WEFT_OK);
    return r;
}

static void end_run(run *r, weft_graph *g)
{
    weft_session_free(r->session);
    weft_plan_free(r->plan);
    weft_graph_free(g);
}

static void expect_bytes(const run *r, weft_value y, const void *expected, size_t bytes)
{
    char got[512];
    CU_ASSERT_TRUE_FATAL(bytes <= sizeof got);
    CU_ASSERT_EQUAL(weft_session_fetch(r->session, y, got, bytes, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got, expected, bytes), 0);
}

/* The outermost numbers of integers and bools, as the kernels write them. */
static void test_written(void)
{
    weft_graph *g = weft_graph_new();
    const int64_t one[] = {1}, none[] = {0};
    weft_value x = weft_input(g, "x", WEFT_BOOL, WEFT_SHAPE(3));
    weft_value whole = weft_cast(g, x, WEFT_I32), yes = weft_fill(g, WEFT_BOOL, WEFT_SHAPE(3), 1);
    weft_value y[] = {weft_masked_fill(g, x, x, 1),
                      weft_pad(g, x, one, one, 1),
                      weft_equal(g, weft_masked_fill(g, x, x, 1), yes),
                      weft_masked_fill(g, whole, x, INT32_MIN),
                      weft_pad(g, whole, one, none, INT32_MAX),
                      weft_arange(g, WEFT_BOOL, 2, 0, 1),
                      weft_arange(g, WEFT_I32, 3, INT32_MIN, INT32_MAX)};
    run r = run_targets(g, x, (uint8_t[]){1, 0, 1}, y, 7, NULL);
    expect_bytes(&r, y[0], (uint8_t[]){1, 0, 1}, 3);
    expect_bytes(&r, y[1], (uint8_t[]){1, 1, 0, 1, 1}, 5);
    expect_bytes(&r, y[2], (uint8_t[]){1, 0, 1}, 3);
    expect_bytes(&r, y[3], (int32_t[]){INT32_MIN, 0, INT32_MIN}, 12);
    expect_bytes(&r, y[4], (int32_t[]){INT32_MAX, 1, 0, 1}, 16);
    expect_bytes(&r, y[5], (uint8_t[]){0, 1}, 2);
    expect_bytes(&r, y[6], (int32_t[]){INT32_MIN, -1, INT32_MAX - 1}, 12);
    end_run(&r, g);
}

/* ---- Bools from outside ---- */

#define BYTES 70

/* Bytes of all sorts, and what they must become. */
static void bool_bytes(uint8_t *given, uint8_t *expected)
{
    static const uint8_t sorts[] = {0, 1, 2, 255, 128, 0, 64};
    for (int i = 0; i < BYTES; i++) {
        given[i] = sorts[i % 7];
        expected[i] = given[i] ? 1 : 0;
    }
}

static void expect_bools(weft_graph *g, weft_value x, weft_value fed, const uint8_t *given,
                         weft_params *params)
{
    uint8_t ignored[BYTES], expected[BYTES];
    int32_t whole[BYTES];
    bool_bytes(ignored, expected);
    for (int i = 0; i < BYTES; i++) whole[i] = expected[i];
    weft_value yes = weft_fill(g, WEFT_BOOL, WEFT_SCALAR, 1);
    weft_value y[] = {weft_contiguous(g, x), weft_equal(g, x, yes), weft_logical_and(g, x, yes),
                      weft_cast(g, x, WEFT_I32)};
    run r = run_targets(g, fed, given, y, 4, params);
    for (int i = 0; i < 3; i++) expect_bytes(&r, y[i], expected, BYTES);
    expect_bytes(&r, y[3], whole, sizeof whole);
    end_run(&r, g);
}

static void test_fed_bools(void)
{
    weft_graph *g = weft_graph_new();
    uint8_t given[BYTES], expected[BYTES];
    bool_bytes(given, expected);
    weft_value x = weft_input(g, "x", WEFT_BOOL, WEFT_SHAPE(BYTES));
    expect_bools(g, x, x, given, NULL);
}

static void test_constant_bools(void)
{
    weft_graph *g = weft_graph_new();
    uint8_t given[BYTES], expected[BYTES];
    bool_bytes(given, expected);
    weft_value x = weft_constant(g, WEFT_BOOL, WEFT_SHAPE(BYTES), given);
    expect_bools(g, x, WEFT_NO_VALUE, NULL, NULL);
}

static void test_loaded_bools(void)
{
    char path[128], header[128];
    uint8_t given[BYTES], expected[BYTES];
    weft_tensor t;
    weft_error error = {0};
    bool_bytes(given, expected);
    snprintf(path, sizeof path, "/tmp/weft_bools_%d.safetensors", (int)getpid());
    snprintf(header, sizeof header,
             "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", BYTES, BYTES);
    uint64_t length = strlen(header);
    FILE *file = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fwrite(&length, 8, 1, file);
    fputs(header, file);
    fwrite(given, 1, BYTES, file);
    fclose(file);
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(p, path, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_params_find(p, "b", &t));
    CU_ASSERT_EQUAL(memcmp(t.data, expected, BYTES), 0);
    weft_graph *g = weft_graph_new();
    weft_value x = weft_state(g, "b", WEFT_BOOL, WEFT_SHAPE(BYTES), WEFT_INIT_ZEROS);
    expect_bools(g, x, WEFT_NO_VALUE, NULL, p);
    weft_params_free(p);
    unlink(path);
}

/* A mask of other bytes hides what one of 0 and 1 does. */
static void test_mask_bytes(void)
{
    weft_graph *g = weft_graph_new();
    weft_value mask = weft_input(g, "mask", WEFT_BOOL, WEFT_SHAPE(2, 3));
    weft_value q = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 2, 1, 4), 0);
    weft_value k = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 3, 1, 4), 0);
    weft_value v = weft_reshape(g, weft_arange(g, WEFT_F32, 3, 1, 1), WEFT_SHAPE(1, 3, 1, 1));
    weft_value y = weft_sdpa(g, q, k, v, &(weft_sdpa_options){.mask = mask});
    run r = run_targets(g, mask, (uint8_t[]){2, 0, 0, 0, 255, 4}, &y, 1, NULL);
    expect_bytes(&r, y, (float[]){2.5f, 1}, 8);
    end_run(&r, g);
}

/* ---- Casts ---- */

static const double floats[] = {NAN,        -NAN,       INFINITY,      -INFINITY,
                                1.9,        -1.9,       -0.0,          1e-310,
                                2147483647, 2147483648, -2147483648.0, -2147483649.0,
                                1e300,      -1e300,     2147483520,    -2147483520,
                                0x1p63,     -0x1p63,    16777217,      0.99999999999999989,
                                FLT_MAX,    -FLT_MAX,   DBL_MIN,       -0.5};
#define FLOATS ((int)(sizeof floats / sizeof *floats))

static int32_t as_i32(double x)
{
    if (isnan(x)) return 0;
    return x >= INT32_MAX ? INT32_MAX : x <= INT32_MIN ? INT32_MIN : (int32_t)x;
}

/* Towards zero, saturating, NaN to 0: dense, strided and repeated, by every instruction set. */
static void check_casts(weft_dtype dtype)
{
    float narrow[FLOATS];
    int32_t expected[FLOATS], halved[FLOATS / 2];
    for (int i = 0; i < FLOATS; i++) {
        narrow[i] = fabs(floats[i]) > (double)FLT_MAX ? (float)copysign(INFINITY, floats[i])
                                                      : (float)floats[i];
        expected[i] = as_i32(dtype == WEFT_F32 ? (double)narrow[i] : floats[i]);
        if (i % 2 == 0) halved[i / 2] = expected[i];
    }
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", dtype, WEFT_SHAPE(FLOATS));
    weft_value y[] = {weft_cast(g, x, WEFT_I32),
                      weft_cast(g, weft_slice(g, x, 0, 0, WEFT_END, 2), WEFT_I32)};
    run r = run_targets(g, x, dtype == WEFT_F32 ? (void *)narrow : (void *)floats, y, 2, NULL);
    expect_bytes(&r, y[0], expected, sizeof expected);
    expect_bytes(&r, y[1], halved, sizeof halved);
    end_run(&r, g);
}

static void test_casts(void)
{
    static const char *const isas[] = {"base", "v3", "v4"};
    const char *old = getenv("WEFT_ISA");
    char *kept = old ? strdup(old) : NULL;
    for (int i = 0; i < 3; i++) {
        weft__os_set_variable("WEFT_ISA", isas[i]);
        check_casts(WEFT_F32);
        check_casts(WEFT_F64);
    }
    weft__os_set_variable("WEFT_ISA", NULL);
    if (kept) weft__os_set_variable("WEFT_ISA", kept);
    free(kept);
}

/* Signs, infinities and the payload of a NaN, there and back, also of every second element. */
static void test_bits(void)
{
    static const uint32_t bits[] = {0, 0x80000000, 0x3f800000, 0xff800000, 0x7fc12345, 0x00000001};
    static const uint32_t halved[] = {0, 0x3f800000, 0x7fc12345};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(6)), y[3];
    y[0] = weft_bitcast(g, x, WEFT_I32);
    y[1] = weft_bitcast(g, weft_slice(g, x, 0, 0, WEFT_END, 2), WEFT_I32);
    y[2] = weft_bitcast(g, y[0], WEFT_F32);
    run r = run_targets(g, x, bits, y, 3, NULL);
    expect_bytes(&r, y[0], bits, sizeof bits);
    expect_bytes(&r, y[1], halved, sizeof halved);
    expect_bytes(&r, y[2], bits, sizeof bits);
    end_run(&r, g);
    g = weft_graph_new();
    weft_bitcast(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(6)), WEFT_F64);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_DTYPE);
    weft_graph_free(g);
}

/* ---- Any dtype ---- */

static void test_embedding(void)
{
    weft_graph *g = weft_graph_new();
    const int32_t whole[] = {10, 11, 20, 21, 30, 31};
    const uint8_t bools[] = {1, 0, 0, 1, 1, 1};
    weft_value at = weft_input(g, "at", WEFT_I32, WEFT_SHAPE(2));
    weft_value y[] = {
        weft_embedding(g, weft_constant(g, WEFT_I32, WEFT_SHAPE(3, 2), whole), at, -1),
        weft_embedding(g, weft_constant(g, WEFT_BOOL, WEFT_SHAPE(3, 2), bools), at, -1)};
    run r = run_targets(g, at, (int32_t[]){2, 1}, y, 2, NULL);
    expect_bytes(&r, y[0], (int32_t[]){30, 31, 20, 21}, 16);
    expect_bytes(&r, y[1], (uint8_t[]){1, 1, 0, 1}, 4);
    end_run(&r, g);
}

void dtypes_tests(void)
{
    CU_pSuite suite = CU_add_suite("dtypes", NULL, NULL);
    CU_add_test(suite, "a number that does not fit its dtype is refused", test_numbers);
    CU_add_test(suite, "defaults of bytes", test_byte_default);
    CU_add_test(suite, "every number of a range fits", test_ranges);
    CU_add_test(suite, "integers and bools as they are written", test_written);
    CU_add_test(suite, "any byte that is fed to a bool but 0 is true", test_fed_bools);
    CU_add_test(suite, "and of a constant", test_constant_bools);
    CU_add_test(suite, "and of a file", test_loaded_bools);
    CU_add_test(suite, "and of a mask of attention", test_mask_bytes);
    CU_add_test(suite, "casts to integers", test_casts);
    CU_add_test(suite, "bits of floats as integers", test_bits);
    CU_add_test(suite, "embedding takes any dtype", test_embedding);
}
