/* Naive references of convolution and pooling: see reference.h. Every sum walks all pixels of the
 * result, all channels and all taps. */
#include "reference_data.h"

typedef struct conv_attr {
    weft_shape stride, dilation, pad_begin, pad_end, size;
    int64_t groups;
} conv_attr;

typedef struct pool_attr {
    conv_attr window;
    weft_shape kernel;
    bool ceil_mode, count_pad;
} pool_attr;

/* Sets *pixel to the element of a channel of shape x[2..] that pixel `i` of the result (of shape
 * y[2..]) reads at tap `t` of the kernel; false in the padding. */
static bool reads(const conv_attr *a, weft_shape x, weft_shape y, weft_shape kernel, int64_t i,
                  int64_t t, int64_t *pixel)
{
    int64_t size = 1;
    bool inside = true;
    *pixel = 0;
    for (int d = a->stride.rank - 1; d >= 0; d--) {
        const int64_t at = i % y.dim[d + 2] * a->stride.dim[d] +
                           t % kernel.dim[d] * a->dilation.dim[d] - a->pad_begin.dim[d];
        i /= y.dim[d + 2];
        t /= kernel.dim[d];
        if (at < 0 || at >= x.dim[d + 2]) inside = false;
        *pixel += at * size;
        size *= x.dim[d + 2];
    }
    return inside;
}

static weft_shape spatial_of(weft_shape s)
{
    weft_shape rest = {0, {0}};
    for (int d = 2; d < s.rank; d++) rest.dim[rest.rank++] = s.dim[d];
    return rest;
}

/* Calls for each product w[o, c, t] x[n, c, pixel] that belongs to y[n, o, i], with the indices of
 * the three elements. */
static void each_product(const conv_attr *a, const weft_tensor *x, const weft_tensor *w,
                         const weft_tensor *y, void (*visit)(double *x, double *w, double *y))
{
    const weft_shape kernel = spatial_of(w->shape);
    const int64_t taps = weft_shape_numel(kernel), in = weft_shape_numel(spatial_of(x->shape));
    const int64_t out = weft_shape_numel(spatial_of(y->shape)), channels = w->shape.dim[1];
    for (int64_t e = 0; e < numel(y); e++) {
        const int64_t i = e % out, o = e / out % y->shape.dim[1], n = e / out / y->shape.dim[1];
        const int64_t group = o / (y->shape.dim[1] / a->groups);
        for (int64_t c = 0; c < channels; c++)
            for (int64_t t = 0; t < taps; t++) {
                int64_t pixel;
                if (!reads(a, x->shape, y->shape, kernel, i, t, &pixel)) continue;
                visit(data(x) + (n * x->shape.dim[1] + group * channels + c) * in + pixel,
                      data(w) + (o * channels + c) * taps + t, data(y) + e);
            }
    }
}

static void add_to_y(double *x, double *w, double *y)
{
    *y += *x * *w;
}
static void add_to_x(double *x, double *w, double *y)
{
    *x += *y * *w;
}
static void add_to_w(double *x, double *w, double *y)
{
    *w += *x * *y;
}

REFERENCE(conv)
{
    UNUSED;
    const int64_t volume = weft_shape_numel(spatial_of(out->shape));
    for (int64_t i = 0; n_in > 2 && i < numel(out); i++)
        data(out)[i] = data(&in[2])[i / volume % out->shape.dim[1]];
    each_product(attr, &in[0], &in[1], out, add_to_y);
}
REFERENCE(conv_grad_input)
{
    UNUSED;
    each_product(attr, out, &in[1], &in[0], add_to_x);
}
REFERENCE(conv_grad_weight)
{
    UNUSED;
    each_product(attr, &in[0], out, &in[1], add_to_w);
}

/* The pixel of the image that a pixel of the result reads at a tap, as an element of [images,
 * height, width, channels]; -1 in the padding. */
static int64_t rows_pixel(const conv_rows_attr *a, const weft_tensor *x, const int64_t *at,
                          int64_t i, int64_t j)
{
    const int64_t h = at[1] * a->stride.dim[0] + i * a->dilation.dim[0] - a->pad_begin.dim[0];
    const int64_t w = at[2] * a->stride.dim[1] + j * a->dilation.dim[1] - a->pad_begin.dim[1];
    if (h < 0 || h >= x->shape.dim[1] || w < 0 || w >= x->shape.dim[2]) return -1;
    return ((at[0] * x->shape.dim[1] + h) * x->shape.dim[2] + w) * x->shape.dim[3];
}

static double bounded_sum(const conv_rows_attr *a, double sum)
{
    return !a->bounded || isnan(sum) ? sum : fmin(fmax(sum, a->low), a->high);
}

REFERENCE(conv_rows)
{
    UNUSED;
    const conv_rows_attr *a = attr;
    const int64_t channels = in->shape.dim[3], taps = a->kernel.dim[0] * a->kernel.dim[1];
    for (int64_t e = 0; e < numel(out); e++) {
        int64_t at[4];
        coordinates(out->shape, e, at);
        if (n_in > 2) data(out)[e] = data(&in[2])[at[3]];
        for (int64_t t = 0; t < taps; t++) {
            const int64_t pixel = rows_pixel(a, in, at, t / a->kernel.dim[1], t % a->kernel.dim[1]);
            for (int64_t c = 0; pixel >= 0 && c < channels; c++)
                data(out)[e] +=
                    data(in)[pixel + c] *
                    data(&in[1])[((at[3] / 32 * taps + t) * channels + c) * 32 + at[3] % 32];
        }
        data(out)[e] = bounded_sum(a, data(out)[e]);
    }
}
REFERENCE(conv_rows_depthwise)
{
    UNUSED;
    const conv_rows_attr *a = attr;
    const int64_t channels = in->shape.dim[3], taps = a->kernel.dim[0] * a->kernel.dim[1];
    for (int64_t e = 0; e < numel(out); e++) {
        int64_t at[4];
        coordinates(out->shape, e, at);
        if (n_in > 2) data(out)[e] = data(&in[2])[at[3]];
        for (int64_t t = 0; t < taps; t++) {
            const int64_t pixel = rows_pixel(a, in, at, t / a->kernel.dim[1], t % a->kernel.dim[1]);
            if (pixel >= 0)
                data(out)[e] += data(in)[pixel + at[3]] * data(&in[1])[t * channels + at[3]];
        }
        data(out)[e] = bounded_sum(a, data(out)[e]);
    }
}

REFERENCE(max_pool)
{
    UNUSED;
    const pool_attr *a = attr;
    const int64_t taps = weft_shape_numel(a->kernel),
                  volume = weft_shape_numel(spatial_of(in->shape));
    const int64_t each = weft_shape_numel(spatial_of(out->shape));
    for (int64_t e = 0; e < numel(out); e++) {
        int64_t best = -1;
        const double *x = data(in) + e / each * volume;
        for (int64_t t = 0; t < taps; t++) {
            int64_t pixel;
            if (!reads(&a->window, in->shape, out->shape, a->kernel, e % each, t, &pixel)) continue;
            if (best < 0 || x[pixel] > x[best] || (isnan(x[pixel]) && !isnan(x[best])))
                best = pixel;
        }
        data(out)[e] = x[best];
        put(&out[1], e, (double)best);
    }
}
REFERENCE(average_pool)
{
    UNUSED;
    const pool_attr *a = attr;
    const int64_t taps = weft_shape_numel(a->kernel),
                  volume = weft_shape_numel(spatial_of(in->shape));
    const int64_t each = weft_shape_numel(spatial_of(out->shape));
    /* The padding is counted as pixels of a larger image. */
    weft_shape wide = in->shape;
    conv_attr counting = a->window;
    for (int d = 0; d < a->kernel.rank; d++) {
        counting.pad_begin.dim[d] = 0;
        wide.dim[d + 2] += a->window.pad_begin.dim[d] + a->window.pad_end.dim[d];
    }
    for (int64_t e = 0; e < numel(out); e++) {
        double sum = 0, count = 0;
        for (int64_t t = 0; t < taps; t++) {
            int64_t pixel, ignored;
            const bool inside =
                reads(&a->window, in->shape, out->shape, a->kernel, e % each, t, &pixel);
            if (inside) sum += data(in)[e / each * volume + pixel];
            count += a->count_pad
                         ? reads(&counting, wide, out->shape, a->kernel, e % each, t, &ignored)
                         : inside;
        }
        data(out)[e] = sum / count;
    }
}

const reference references_conv[] = {SAME(conv),
                                     SAME(conv_grad_input),
                                     SAME(conv_grad_weight),
                                     SAME(conv_rows),
                                     SAME(conv_rows_depthwise),
                                     SAME(max_pool),
                                     SAME(average_pool),
                                     {NULL, NULL}};
