/* What is drawn for convolutions: see exact_ops.c. */
#include "exact_case.h"

#include <math.h>
#include <string.h>

typedef struct conv_attr {
    weft_shape stride, dilation, pad_begin, pad_end, size;
    int64_t groups;
} conv_attr;

typedef struct conv_shapes {
    weft_shape x, w, y;
} conv_shapes;

/* Spatial dimension d of an image, a kernel and their result. */
static void draw_dimension(exact_case *c, conv_attr *a, conv_shapes *s, int d, int64_t most)
{
    const int64_t kernel = exact_one_of(c, 3) ? 1 : exact_between(c, 1, 5);
    const int64_t reach = (kernel - 1) * (a->dilation.dim[d] = exact_between(c, 1, 3)) + 1;
    const int64_t stride = a->stride.dim[d] = exact_one_of(c, 2) ? 1 : exact_between(c, 1, 4);
    a->pad_begin.dim[d] = exact_one_of(c, 2) ? 0 : exact_between(c, 0, kernel);
    a->pad_end.dim[d] = exact_one_of(c, 2) ? 0 : exact_between(c, 0, kernel);
    const int64_t padding = a->pad_begin.dim[d] + a->pad_end.dim[d];
    int64_t size = exact_between(c, 1, most);
    if (size + padding < reach) size = reach;
    s->x.dim[d + 2] = size;
    s->w.dim[d + 2] = kernel;
    s->y.dim[d + 2] = (size + padding - reach) / stride + 1;
}

static conv_shapes draw_shapes(exact_case *c, conv_attr *a)
{
    const bool large = exact_one_of(c, 20); /* with many tiles */
    const int rank = large ? 2 : (int)exact_between(c, 1, 3);
    const bool planes = !large && exact_one_of(c, 3),
               deep = !planes && !large && exact_one_of(c, 8);
    int64_t channels = planes ? 1 : exact_between(c, 1, 20),
            results = exact_between(c, 1, planes ? 2 : 20);
    if (deep) *(exact_one_of(c, 2) ? &channels : &results) = exact_between(c, 100, 900);
    if (large) {
        channels = exact_between(c, 8, 20);
        results = exact_between(c, 8, 20);
    }
    const int64_t images = exact_between(c, 1, 3);
    a->groups = planes ? exact_between(c, 1, 9) : exact_one_of(c, 3) ? 2 : 1;
    conv_shapes s = {{rank + 2, {images, channels * a->groups}},
                     {rank + 2, {results * a->groups, channels}},
                     {rank + 2, {images, results * a->groups}}};
    a->stride.rank = a->dilation.rank = a->pad_begin.rank = a->pad_end.rank = rank;
    int64_t most = deep ? 6 : rank == 1 ? 200 : rank == 2 ? 20 : 7;
    if (planes && exact_one_of(c, 8)) most = rank == 1 ? 4000 : rank == 2 ? 90 : most;
    if (large) most = 60;
    for (int d = 0; d < rank; d++) draw_dimension(c, a, &s, d, most);
    return s;
}

/* The spatial part of a shape. */
static weft_shape spatial(weft_shape shape)
{
    weft_shape s = {shape.rank - 2, {0}};
    memcpy(s.dim, shape.dim + 2, (size_t)s.rank * sizeof *s.dim);
    return s;
}

static void draw_conv(exact_case *c)
{
    conv_attr attr;
    memset(&attr, 0, sizeof attr);
    const conv_shapes s = draw_shapes(c, &attr);
    const bool input = !strcmp(c->op->name, "conv_grad_input");
    const bool weight = !strcmp(c->op->name, "conv_grad_weight");
    if (input || weight) attr.size = spatial(input ? s.x : s.w);
    memcpy(c->attr.bytes, &attr, sizeof attr);
    exact_dense(c, input ? s.y : s.x);
    exact_dense(c, weight ? s.y : s.w);
    if (!input && !weight && exact_one_of(c, 2)) exact_dense(c, WEFT_SHAPE(s.y.dim[1]));
}

typedef struct pool_attr {
    conv_attr window;
    weft_shape kernel;
    bool ceil_mode, count_pad;
} pool_attr;

static void draw_pool(exact_case *c)
{
    pool_attr attr;
    memset(&attr, 0, sizeof attr);
    const conv_shapes s = draw_shapes(c, &attr.window);
    attr.kernel = spatial(s.w);
    attr.window.groups = 1;
    /* A window of padding alone has no maximum. */
    memset(attr.window.pad_begin.dim, 0, sizeof attr.window.pad_begin.dim);
    memset(attr.window.pad_end.dim, 0, sizeof attr.window.pad_end.dim);
    weft_shape x = s.x;
    for (int d = 0; d < attr.kernel.rank; d++) {
        const int64_t reach = (s.w.dim[d + 2] - 1) * attr.window.dilation.dim[d] + 1;
        if (x.dim[d + 2] < reach) x.dim[d + 2] = reach;
        if (attr.window.dilation.dim[d] == 1) attr.window.pad_begin.dim[d] = s.w.dim[d + 2] / 2;
    }
    memcpy(c->attr.bytes, &attr, sizeof attr);
    exact_dense(c, x);
}

/* ---- Channels innermost ---- */

typedef struct conv_rows_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end;
    int64_t columns;
    bool bounded;
    double low, high;
} conv_rows_attr;

static void draw_conv_rows(exact_case *c)
{
    const bool depthwise = !strcmp(c->op->name, "conv_rows_depthwise");
    conv_attr window;
    conv_shapes s = {.x = {4, {0}}};
    memset(&window, 0, sizeof window);
    window.stride.rank = window.dilation.rank = window.pad_begin.rank = window.pad_end.rank = 2;
    const bool large = exact_one_of(c, 20);
    for (int d = 0; d < 2; d++) draw_dimension(c, &window, &s, d, large ? 60 : 20);
    conv_rows_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.kernel = WEFT_SHAPE(s.w.dim[2], s.w.dim[3]);
    attr.stride = window.stride;
    attr.dilation = window.dilation;
    attr.pad_begin = window.pad_begin;
    attr.pad_end = window.pad_end;
    const int64_t channels = exact_between(c, 1, !large && exact_one_of(c, 4) ? 300 : 40);
    attr.columns = depthwise ? channels : exact_between(c, 1, 70);
    attr.bounded = exact_one_of(c, 2);
    attr.low = exact_one_of(c, 2) ? 0 : -1;
    attr.high = exact_one_of(c, 2) ? (double)INFINITY : 1;
    memcpy(c->attr.bytes, &attr, sizeof attr);
    exact_dense(c, WEFT_SHAPE(exact_between(c, 1, 3), s.x.dim[2], s.x.dim[3], channels));
    const int64_t depth = attr.kernel.dim[0] * attr.kernel.dim[1] * channels;
    exact_dense(c, depthwise ? WEFT_SHAPE(attr.kernel.dim[0], attr.kernel.dim[1], channels)
                             : WEFT_SHAPE((attr.columns + 31) / 32, depth, 32));
    if (exact_one_of(c, 2)) exact_dense(c, WEFT_SHAPE(attr.columns));
}

/* ---- Bytes ---- */

typedef struct conv_bytes_attr {
    conv_rows_attr rows;
    weft_dtype dtype;
    int32_t x_zero, y_zero;
} conv_bytes_attr;

static void draw_conv_bytes(exact_case *c)
{
    static const weft_dtype dtypes[] = {WEFT_U8, WEFT_U8, WEFT_F32, WEFT_I32};
    const bool depthwise = !strcmp(c->op->name, "conv_bytes_depthwise");
    const bool large = exact_one_of(c, 20);
    conv_attr window;
    conv_shapes s = {.x = {4, {0}}};
    conv_bytes_attr attr;
    memset(&window, 0, sizeof window);
    memset(&attr, 0, sizeof attr);
    window.stride.rank = window.dilation.rank = window.pad_begin.rank = window.pad_end.rank = 2;
    for (int d = 0; d < 2; d++) draw_dimension(c, &window, &s, d, large ? 60 : 20);
    const int64_t channels = exact_between(c, 1, !large && exact_one_of(c, 4) ? 300 : 40);
    attr.rows.kernel = WEFT_SHAPE(s.w.dim[2], s.w.dim[3]);
    attr.rows.stride = window.stride;
    attr.rows.dilation = window.dilation;
    attr.rows.pad_begin = window.pad_begin;
    attr.rows.pad_end = window.pad_end;
    attr.rows.columns = depthwise ? channels : exact_between(c, 1, 70);
    attr.dtype = dtypes[exact_between(c, 0, 3)];
    attr.x_zero = (int32_t)exact_between(c, 0, 255);
    attr.y_zero = (int32_t)exact_between(c, 0, 255);
    attr.rows.bounded = exact_one_of(c, 2);
    attr.rows.low = (double)exact_between(c, 0, 100);
    attr.rows.high = (double)exact_between(c, 100, 255);
    memcpy(c->attr.bytes, &attr, sizeof attr);
    const weft_shape kernel = attr.rows.kernel;
    const int64_t steps = kernel.dim[0] * kernel.dim[1] * ((channels + 3) / 4);
    const weft_shape columns = WEFT_SHAPE(attr.rows.columns);
    exact_numbers(c, WEFT_U8, WEFT_SHAPE(exact_between(c, 1, 3), s.x.dim[2], s.x.dim[3], channels),
                  0, 255);
    exact_numbers(c, WEFT_U8,
                  depthwise ? WEFT_SHAPE(kernel.dim[0], kernel.dim[1], channels)
                            : WEFT_SHAPE((attr.rows.columns + 31) / 32, steps, 128),
                  0, 255);
    if (exact_one_of(c, 4)) /* where sums wrap around */
        exact_numbers(c, WEFT_I32, columns, INT32_MAX - 100000, INT32_MAX);
    else
        exact_numbers(c, WEFT_I32, columns, -100000, 100000);
    if (attr.dtype == WEFT_I32) return;
    const double largest = exact_one_of(c, 2) ? 0.001 : 0.1;
    weft_tensor *scale = exact_numbers(c, WEFT_F32, columns, 1, 1);
    for (int64_t i = 0; i < attr.rows.columns; i++)
        ((float *)scale->data)[i] = (float)exact_number(c, 0, largest);
}

static void draw_max_pool_bytes(exact_case *c)
{
    const bool large = exact_one_of(c, 20);
    conv_attr window;
    conv_shapes s = {.x = {4, {0}}};
    conv_rows_attr attr;
    memset(&window, 0, sizeof window);
    memset(&attr, 0, sizeof attr);
    window.stride.rank = window.dilation.rank = window.pad_begin.rank = window.pad_end.rank = 2;
    for (int d = 0; d < 2; d++) draw_dimension(c, &window, &s, d, large ? 60 : 20);
    attr.kernel = WEFT_SHAPE(s.w.dim[2], s.w.dim[3]);
    attr.stride = window.stride;
    attr.dilation = window.dilation;
    attr.pad_begin = window.pad_begin;
    attr.pad_end = window.pad_end;
    attr.columns = exact_between(c, 1, !large && exact_one_of(c, 4) ? 300 : 40);
    memcpy(c->attr.bytes, &attr, sizeof attr);
    exact_numbers(c, WEFT_U8,
                  WEFT_SHAPE(exact_between(c, 1, 3), s.x.dim[2], s.x.dim[3], attr.columns), 0, 255);
}

static void draw_winograd_weights(exact_case *c)
{
    const int64_t tile = exact_one_of(c, 2) ? 2 : 4;
    memcpy(c->attr.bytes, &tile, sizeof tile);
    exact_dense(c, WEFT_SHAPE(exact_between(c, 1, 70), exact_between(c, 1, 20), 3, 3));
}

static void draw_winograd(exact_case *c)
{
    const bool wide = exact_one_of(c, 20), deep = exact_one_of(c, 4);
    const int64_t channels = exact_between(c, 1, deep ? 300 : 40), most = deep ? 8 : 20;
    conv_rows_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.kernel = WEFT_SHAPE(3, 3);
    attr.stride = attr.dilation = WEFT_SHAPE(1, 1);
    attr.pad_begin = WEFT_SHAPE(exact_between(c, 0, 2), exact_between(c, 0, 2));
    attr.pad_end = WEFT_SHAPE(exact_between(c, 0, 2), exact_between(c, 0, 2));
    attr.columns = exact_between(c, 1, 70);
    attr.bounded = exact_one_of(c, 2);
    attr.low = exact_one_of(c, 2) ? 0 : -1;
    attr.high = exact_one_of(c, 2) ? (double)INFINITY : 1;
    memcpy(c->attr.bytes, &attr, sizeof attr);
    exact_dense(c, WEFT_SHAPE(exact_between(c, 1, 3), exact_between(c, 3, most),
                              exact_between(c, 3, wide ? 700 : most), channels));
    exact_dense(c,
                WEFT_SHAPE((attr.columns + 31) / 32, exact_one_of(c, 2) ? 16 : 36, channels, 32));
    if (exact_one_of(c, 2)) exact_dense(c, WEFT_SHAPE(attr.columns));
}

const exact_op exact_conv_ops[] = {
    {"conv", draw_conv},
    {"conv_grad_input", draw_conv},
    {"conv_grad_weight", draw_conv},
    {"max_pool", draw_pool},
    {"conv_rows", draw_conv_rows},
    {"conv_rows_depthwise", draw_conv_rows},
    {"conv_bytes", draw_conv_bytes},
    {"conv_bytes_depthwise", draw_conv_bytes},
    {"max_pool_bytes", draw_max_pool_bytes},
    {"winograd_weights", draw_winograd_weights},
    {"conv_winograd", draw_winograd},
    {NULL, NULL},
};
