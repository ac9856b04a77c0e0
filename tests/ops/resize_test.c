/* weft_resize and the layer of upsampling: the numbers of PyTorch's interpolate, values and
 * gradients that equal plain sums for every mode, and refusals. ONNX's own cases run it as well. */
#include "tests.h"

#include <weft/autograd.h>

#include <float.h>
#include <math.h>
#include <string.h>

enum { MAX = 4096 };

/* Computes values of a graph without parameters: out[k], of f64. */
static void compute(weft_graph *g, const weft_value *values, size_t n, double out[][MAX])
{
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, values, n, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    for (size_t k = 0; k < n; k++) {
        const size_t bytes = (size_t)weft_shape_numel(weft_shape_of(g, values[k])) * sizeof(double);
        CU_ASSERT_TRUE_FATAL(bytes <= sizeof out[k]);
        CU_ASSERT_EQUAL_FATAL(weft_session_fetch(s, values[k], out[k], bytes, NULL), WEFT_OK);
    }
    weft_session_free(s);
    weft_plan_free(plan);
}

/* Within the rounding of the weights and of sums of `terms` products, all below 16. */
static void expect_numbers(const char *what, const double *got, const double *want, int64_t n,
                           double terms)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) worst = fmax(worst, fabs(got[i] - want[i]));
    const double limit = DBL_EPSILON * 16 * (16 + terms);
    if (!(worst <= limit)) printf("\n    %s: off by %g\n", what, worst);
    CU_ASSERT_TRUE(worst <= limit);
}

/* ---- PyTorch ---- */

/* torch.nn.functional.interpolate in float64, PyTorch 2, of x [1, 1, 3, 4] or of its first two rows
 * and columns:
 *   interpolate(x, size=(5, 7), mode=..., align_corners=...)
 *   interpolate(x, size=(2, 2), mode=..., antialias=True)
 *   interpolate(x[:, :, :2, :2], scale_factor=2.5, mode=...) */
static const double image[12] = {0, 3, -2, 5, 1, 4, -6, 2, 8, -1, 7, -3};
static const double pillow = -0.5; /* the coefficient of PyTorch's cubic kernel with antialias */
// clang-format off
static const struct {
    const char *name;
    weft_resize_options options;
    double y[35];
} interpolated[] = {
    {"nearest", {.coordinates = WEFT_RESIZE_ASYMMETRIC, .rounding = WEFT_RESIZE_FLOOR, .size = {5, 7}},
     {0, 0, 3, 3, -2, -2, 5, 0, 0, 3, 3, -2, -2, 5, 1, 1, 4, 4, -6, -6, 2, 1, 1, 4, 4, -6, -6, 2,
      8, 8, -1, -1, 7, 7, -3}},
    {"nearest-exact", {.rounding = WEFT_RESIZE_PREFER_CEIL, .size = {5, 7}},
     {0, 0, 3, -2, -2, 5, 5, 0, 0, 3, -2, -2, 5, 5, 1, 1, 4, -6, -6, 2, 2, 8, 8, -1, 7, 7, -3, -3,
      8, 8, -1, 7, 7, -3, -3}},
    {"bilinear", {.mode = WEFT_RESIZE_LINEAR, .size = {5, 7}},
     {0.0, 1.0714285714285712, 2.7857142857142856, 0.5, -1.5000000000000018, 2.4999999999999996,
      5.0, 0.39999999999999997, 1.4714285714285713, 3.185714285714286, -0.09999999999999981,
      -3.0714285714285734, 1.157142857142857, 3.8000000000000003, 1.0, 2.071428571428571,
      3.7857142857142856, -1.0, -5.428571428571431, -0.8571428571428577, 2.0, 5.199999999999999,
      3.6999999999999997, 1.300000000000001, 1.3999999999999995, 1.599999999999999,
      1.1102230246251565e-16, -0.9999999999999994, 8.0, 4.7857142857142865, -0.3571428571428564,
      3.0, 6.285714285714288, 0.5714285714285718, -3.0}},
    {"bilinear with align_corners",
     {.mode = WEFT_RESIZE_LINEAR, .coordinates = WEFT_RESIZE_ALIGN_CORNERS, .size = {5, 7}},
     {0.0, 1.5, 3.0, 0.5, -2.0, 1.5, 5.0, 0.5, 2.0, 3.5, -0.25, -4.0, -0.25, 3.5, 1.0, 2.5, 4.0,
      -1.0, -6.0, -2.0, 2.0, 4.5, 3.0, 1.5, 1.0, 0.5, 0.0, -0.5, 8.0, 3.5, -1.0, 3.0, 7.0, 2.0,
      -3.0}},
    {"bicubic", {.mode = WEFT_RESIZE_CUBIC, .size = {5, 7}},
     {-0.3936494169096208, 1.2042004373177837, 2.9411392128279874, 0.2780000000000001,
      -1.4297689504373177, 2.6575371720116596, 5.972990524781342, -0.49937244897959615,
      1.7071286443148668, 3.907353134110788, -0.8218750000000014, -4.371573250728866,
      0.7304879737609312, 5.057595845481053, 0.7023505830903787, 2.637208454810497,
      4.290269679300294, -1.46875, -6.004190962099125, -1.3409256559766776, 2.793731778425657,
      5.7869963556851225, 3.8354679300291523, 1.2302434402332385, 1.2087499999999975,
      1.5298586005830852, -0.23250874635568541, -1.5680932944606367, 9.679245626822155,
      4.614521865889212, -1.348498542274055, 3.5317500000000006, 8.026326530612248,
      1.1144897959183682, -4.643610787172015}},
    {"bicubic with align_corners",
     {.mode = WEFT_RESIZE_CUBIC, .coordinates = WEFT_RESIZE_ALIGN_CORNERS, .size = {5, 7}},
     {0.0, 1.96875, 3.0, 0.125, -2.0, 1.03125, 5.0, -0.15625, 2.767578125, 3.96875, -1.099609375,
      -5.21875, -1.486328125, 3.96875, 1.0, 3.4375, 4.0, -1.46875, -6.0, -2.9375, 2.0, 4.59375,
      3.2314453125, 1.59375, 0.6630859375, 0.125, -0.4658203125, -0.78125, 8.0, 2.75, -1.0,
      3.09375, 7.0, 2.75, -3.0}},
    {"bilinear with antialias",
     {.mode = WEFT_RESIZE_LINEAR, .antialias = true, .exclude_outside = true, .size = {2, 2}},
     {1.107142857142857, 0.6428571428571429, 2.982142857142857, 0.5535714285714288}},
    {"bicubic with antialias",
     {.mode = WEFT_RESIZE_CUBIC, .antialias = true, .exclude_outside = true, .cubic_coeff = &pillow, .size = {2, 2}},
     {1.0359364843532362, 0.52819601236353, 3.2520196861361317, 0.3085841635381984}},
};
static const struct {
    weft_resize_mode mode;
    double y[25];
} upsampled[] = {
    {WEFT_RESIZE_NEAREST,
     {0, 0, 0, 3, 3, 0, 0, 0, 3, 3, 0, 0, 0, 3, 3, 1, 1, 1, 4, 4, 1, 1, 1, 4, 4}},
    {WEFT_RESIZE_LINEAR,
     {0, 0.3, 1.5, 2.7, 3, 0.1, 0.4, 1.6, 2.8, 3.1, 0.5, 0.8, 2, 3.2, 3.5, 0.9, 1.2, 2.4, 3.6, 3.9,
      1, 1.3, 2.5, 3.7, 4}},
    {WEFT_RESIZE_CUBIC,
     {-0.441, 0.13575, 1.38975, 2.64375, 3.2205, -0.24875, 0.328, 1.582, 2.836, 3.41275, 0.16925,
      0.746, 2, 3.254, 3.83075, 0.58725, 1.164, 2.418, 3.672, 4.24875, 0.7795, 1.35625, 2.61025,
      3.86425, 4.441}},
};
// clang-format on

static double got[2][MAX];

static void test_interpolate(void)
{
    for (size_t i = 0; i < sizeof interpolated / sizeof *interpolated; i++) {
        const weft_resize_options *o = &interpolated[i].options;
        weft_graph *g = weft_graph_new();
        weft_value x = weft_constant(g, WEFT_F64, WEFT_SHAPE(1, 1, 3, 4), image);
        weft_value y = weft_resize(g, x, o);
        CU_ASSERT_TRUE_FATAL(
            weft_shape_equal(weft_shape_of(g, y), WEFT_SHAPE(1, 1, o->size[0], o->size[1])));
        compute(g, &y, 1, got);
        expect_numbers(interpolated[i].name, got[0], interpolated[i].y, o->size[0] * o->size[1],
                       16);
        weft_graph_free(g);
    }
}

static void test_upsample(void)
{
    static const double corner[4] = {0, 3, 1, 4};
    for (size_t i = 0; i < sizeof upsampled / sizeof *upsampled; i++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_constant(g, WEFT_F64, WEFT_SHAPE(1, 1, 2, 2), corner);
        weft_value y = weft_nn_upsample(g, x, 2.5, upsampled[i].mode);
        CU_ASSERT_TRUE_FATAL(weft_shape_equal(weft_shape_of(g, y), WEFT_SHAPE(1, 1, 5, 5)));
        compute(g, &y, 1, got);
        expect_numbers("upsampled", got[0], upsampled[i].y, 25, 16);
        weft_graph_free(g);
    }
}

/* ---- Plain sums ---- */

/* The coordinate of output i, from the formulas of the header. */
static double coordinate(const weft_resize_options *o, double i, double in, double size,
                         double scale)
{
    const double table[] = {
        (i + 0.5) / scale - 0.5,
        in * scale == 1 ? 0 : i * (in - 1) / (in * scale - 1),
        i / scale,
        size > 1 ? (i + 0.5) / scale - 0.5 : 0,
        in / 2 * (1 - size / (in * scale)) + (i + 0.5) / scale - 0.5,
        (i + 0.5) / scale,
        size > 1 ? (o->crop[0] + i * (o->crop[1] - o->crop[0]) / (size - 1)) * (in - 1)
                 : (o->crop[0] + o->crop[1]) / 2 * (in - 1),
    };
    return table[o->coordinates];
}

static double kernel(const weft_resize_options *o, double t)
{
    const double a = o->cubic_coeff ? *o->cubic_coeff : -0.75, r = fabs(t);
    if (o->mode == WEFT_RESIZE_LINEAR) return fmax(0, 1 - r);
    if (r <= 1) return (a + 2) * r * r * r - (a + 3) * r * r + 1;
    return r < 2 ? a * r * r * r - 5 * a * r * r + 8 * a * r - 4 * a : 0;
}

/* row[t]: the weight of input t in output i; *added: what an output outside is instead. Returns the
 * number by which a division of the weights multiplies their rounding errors. */
static double weigh(const weft_resize_options *o, int64_t i, int64_t in, int64_t size, double scale,
                    double *row, double *added)
{
    const double c = coordinate(o, (double)i, (double)in, (double)size, scale);
    const double k = o->antialias && scale < 1 ? scale : 1;
    double sum = 0;
    for (int64_t t = 0; t < in; t++) row[t] = 0;
    *added = 0;
    if (in == size && scale == 1 && o->coordinates != WEFT_RESIZE_CROP) {
        row[i] = 1;
        return 1;
    }
    if (o->coordinates == WEFT_RESIZE_CROP && (c < 0 || c > (double)in - 1)) {
        *added = o->outside;
        return 1;
    }
    if (o->mode == WEFT_RESIZE_NEAREST) {
        const double rounded[] = {ceil(c - 0.5), floor(c + 0.5), floor(c), ceil(c)};
        const double at = fmin(fmax(rounded[o->rounding], 0), (double)in - 1);
        row[(int64_t)at] = 1;
        return 1;
    }
    for (int64_t t = -20; t < in + 20; t++) {
        const double w = kernel(o, k * ((double)t - c));
        if (o->exclude_outside && (t < 0 || t >= in)) continue;
        row[t < 0 ? 0 : t >= in ? in - 1 : t] += w;
        sum += w;
    }
    if (!o->exclude_outside && k == 1) return 1;
    for (int64_t t = 0; t < in; t++) row[t] /= sum;
    return fmax(1, 1 / fabs(sum));
}

/* y and, for the cotangent y, dx along axis 1 of x [2, in, 3] or the last of x [2, in]. */
static void check_sums(const weft_resize_options *options, int64_t in, int64_t size, bool last)
{
    static double x[MAX], y[MAX], dx[MAX];
    double row[64], added, factor = 1;
    const int64_t rest = last ? 1 : 3;
    const double scale = options->scale[0] != 0 ? options->scale[0] : (double)size / (double)in;
    weft_resize_options o = *options;
    uint64_t state = 5;
    weft_graph *g = weft_graph_new();
    weft_value v, target[2];
    for (int64_t i = 0; i < 2 * in * rest; i++) x[i] = test_uniform(&state, -2, 2);
    memset(y, 0, sizeof y);
    memset(dx, 0, sizeof dx);
    for (int64_t i = 0; i < size; i++) {
        factor = fmax(factor, weigh(&o, i, in, size, scale, row, &added));
        for (int64_t n = 0; n < 2; n++)
            for (int64_t r = 0; r < rest; r++) {
                double *out = &y[(n * size + i) * rest + r];
                *out = added;
                for (int64_t t = 0; t < in; t++) *out += row[t] * x[(n * in + t) * rest + r];
                for (int64_t t = 0; t < in; t++) dx[(n * in + t) * rest + r] += row[t] * *out;
            }
    }
    o.axes = WEFT_AXES(last ? -1 : 1);
    o.size[0] = size;
    v = weft_constant(g, WEFT_F64, last ? WEFT_SHAPE(2, in) : WEFT_SHAPE(2, in, 3), x);
    target[0] = weft_resize(g, v, &o);
    weft_grad_of(g, target, target, 1, &v, 1, target + 1);
    target[1] = weft_contiguous(g, target[1]);
    compute(g, target, 2, got);
    char what[96];
    snprintf(what, sizeof what, "mode %d, coordinates %d, from %d to %d", (int)o.mode,
             (int)o.coordinates, (int)in, (int)size);
    expect_numbers(what, got[0], y, 2 * size * rest, factor * (double)in);
    expect_numbers(what, got[1], dx, 2 * in * rest, factor * factor * (double)size);
    weft_graph_free(g);
}

static void check_sizes(const weft_resize_options *o)
{
    static const int64_t sizes[][2] = {{5, 13}, {13, 5}, {40, 33}, {9, 1}, {1, 6}, {6, 6}, {3, 70}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_sums(o, sizes[i][0], sizes[i][1], i % 2);
}

static void test_sums(void)
{
    static const double a = -0.6, region[2] = {0.25, 1.1}, back[2] = {0.9, 0.1};
    for (int c = 0; c <= WEFT_RESIZE_CROP; c++) {
        weft_resize_options o = {.coordinates = (weft_resize_coordinates)c, .crop = region};
        for (int r = 0; r <= WEFT_RESIZE_CEIL; r++) {
            o.rounding = (weft_resize_rounding)r;
            check_sizes(&o);
        }
        for (int i = 0; i < 8; i++) {
            o.mode = i & 1 ? WEFT_RESIZE_LINEAR : WEFT_RESIZE_CUBIC;
            o.antialias = i & 2;
            o.exclude_outside = i & 4;
            o.cubic_coeff = i & 2 ? &a : NULL;
            o.outside = i;
            if (i & 4) o.crop = back;
            check_sizes(&o);
        }
        o = (weft_resize_options){.coordinates = (weft_resize_coordinates)c, .scale = {1.4}};
        o.crop = region;
        check_sums(&o, 7, 9, false);  /* 9.8 rounded down */
        check_sums(&o, 7, 10, false); /* and to the nearest */
    }
}

/* Integers are gathered, with the default options, along the spatial dimensions. */
static void test_integers(void)
{
    static const int32_t x[4] = {7, -2, 3, 5};
    static const int32_t want[16] = {7, 7, -2, -2, 7, 7, -2, -2, 3, 3, 5, 5, 3, 3, 5, 5};
    int32_t y[16];
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value v = weft_resize(g, weft_constant(g, WEFT_I32, WEFT_SHAPE(1, 1, 2, 2), x),
                               &(weft_resize_options){.scale = {2, 2}});
    weft_plan *plan = weft_plan_new(g, &v, 1, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, v, y, sizeof y, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(y, want, sizeof y), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Refusals ---- */

static void expect_refusal(weft_graph *g, weft_value y, weft_status status, const char *message)
{
    const weft_error *e = weft_graph_error(g);
    if (e->status != status || !strstr(e->message, message))
        printf("\n    expected \"%s\", got status %d: %s\n", message, (int)e->status, e->message);
    CU_ASSERT_EQUAL(e->status, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(e->message, message));
    CU_ASSERT_FALSE(weft_is_value(y));
    weft_graph_free(g);
}

static void refuse(const weft_resize_options *o, weft_status status, const char *message)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 2, 3, 4), 1);
    expect_refusal(g, weft_resize(g, x, o), status, message);
}

static void test_refusals(void)
{
    static const double crop[4] = {0, 0, 1, INFINITY}, a = NAN;
    static const struct {
        weft_resize_options options;
        const char *message;
    } bad[] = {
        {{.size = {6, 0}}, "axis 3: a size or a scale is required, above 0"},
        {{.size = {6, -1}}, "axis 3: the size must be 1 to 2^31 - 2, got -1"},
        {{.scale = {2, -1}}, "axis 3: the scale must lead to a size of 1 to 2^31 - 2, got -1"},
        {{.scale = {2, NAN}}, "axis 3: the scale must lead to a size"},
        {{.scale = {0.3, 1}}, "axis 2: the scale must lead to a size of 1 to 2^31 - 2, got 0.3"},
        {{.scale = {2, 2}, .size = {6, 10}}, "axis 3: the size must be the scaled one"},
        {{.mode = (weft_resize_mode)3, .scale = {2, 2}}, "the mode is unknown"},
        {{.coordinates = (weft_resize_coordinates)7, .scale = {2, 2}}, "coordinates is unknown"},
        {{.rounding = (weft_resize_rounding)4, .scale = {2, 2}}, "the rounding is unknown"},
        {{.coordinates = WEFT_RESIZE_CROP, .scale = {2, 2}}, "WEFT_RESIZE_CROP needs `crop`"},
        {{.coordinates = WEFT_RESIZE_CROP, .crop = crop, .scale = {2, 2}}, "crop must be finite"},
        {{.cubic_coeff = &a, .scale = {2, 2}}, "cubic_coeff must be finite"},
        {{.axes = {1, {4}}, .scale = {2}}, "axis 4 is outside of rank 4"},
        {{.axes = {2, {3, -1}}, .scale = {2, 2}}, "axis 3 is named twice"},
        {{.axes = {9, {0}}, .scale = {2, 2}}, "the number of axes is out of range"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse(&bad[i].options, WEFT_BAD_ARGUMENT, bad[i].message);
    refuse(NULL, WEFT_BAD_ARGUMENT, "options are NULL");
    refuse(&(weft_resize_options){.size = {3, 1 << 27}}, WEFT_TOO_LARGE,
           "axis 3, from 4 to 134217728 elements, needs more than 67108864 weights");
    refuse(&(weft_resize_options){.mode = WEFT_RESIZE_LINEAR, .size = {3, 1 << 26}}, WEFT_TOO_LARGE,
           "needs more than 67108864 weights");

    const weft_resize_options linear = {.mode = WEFT_RESIZE_LINEAR, .scale = {2, 2}};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_fill(g, WEFT_I32, WEFT_SHAPE(1, 2, 3, 4), 1);
    expect_refusal(g, weft_resize(g, x, &linear), WEFT_BAD_DTYPE, "x is i32, expected f32 or f64");
    g = weft_graph_new();
    x = weft_fill(g, WEFT_F32, WEFT_SHAPE(3, 4), 1);
    expect_refusal(g, weft_resize(g, x, &linear), WEFT_BAD_SHAPE, "its rank is 2");
    g = weft_graph_new();
    x = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1, 0, 4), 1);
    expect_refusal(g, weft_resize(g, x, &linear), WEFT_BAD_ARGUMENT,
                   "axis 2: x must have 1 element or more, got 0");
    g = weft_graph_new();
    x = weft_fill(g, WEFT_F32, WEFT_SHAPE(3, 4), 1);
    expect_refusal(g, weft_nn_upsample(g, x, 2, WEFT_RESIZE_LINEAR), WEFT_BAD_SHAPE,
                   "1 to 3 spatial dimensions], its rank is 2");
    g = weft_graph_new();
    x = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 1, 4), 1);
    expect_refusal(g, weft_nn_upsample(g, x, 0, WEFT_RESIZE_LINEAR), WEFT_BAD_ARGUMENT,
                   "axis 2: a size or a scale is required");
}

void resize_tests(void)
{
    CU_pSuite suite = CU_add_suite("resize", NULL, NULL);
    CU_add_test(suite, "the numbers of PyTorch's interpolate", test_interpolate);
    CU_add_test(suite, "the numbers of PyTorch's upsampling", test_upsample);
    CU_add_test(suite, "values and gradients are plain sums", test_sums);
    CU_add_test(suite, "integers", test_integers);
    CU_add_test(suite, "refusals", test_refusals);
}
