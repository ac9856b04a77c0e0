/* Convolutions of images whose channels are innermost. See exact.h. */
#include "exact_math.h"

typedef struct conv_rows_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end;
    int64_t columns;
    bool bounded;
    double low, high;
} conv_rows_attr;

#define PANEL 32
#define CHAIN 128

/* Where pixel `o` of the result reads at a tap: the pixel of x, or -1 in the padding. */
static int64_t pixel_at(const conv_rows_attr *a, const weft_tensor *x, const weft_tensor *y,
                        int64_t o, int64_t tap)
{
    const int64_t at[2] = {o / y->shape.dim[2] % y->shape.dim[1], o % y->shape.dim[2]};
    const int64_t taps[2] = {tap / a->kernel.dim[1], tap % a->kernel.dim[1]};
    int64_t place = o / y->shape.dim[2] / y->shape.dim[1];
    for (int d = 0; d < 2; d++) {
        const int64_t i =
            at[d] * a->stride.dim[d] + taps[d] * a->dilation.dim[d] - a->pad_begin.dim[d];
        if (i < 0 || i >= x->shape.dim[d + 1]) return -1;
        place = place * x->shape.dim[d + 1] + i;
    }
    return place;
}

static T bounded(const conv_rows_attr *a, T x)
{
    if (!a->bounded) return x;
    return x < (T)a->low ? (T)a->low : x > (T)a->high ? (T)a->high : x;
}

/* The terms [tap, channel] with zeros for the padding, in chains of 128; or, if a weight is not
 * finite and padding was multiplied, the chain of those inside. */
EXACT(conv_rows)
{
    UNUSED;
    const conv_rows_attr *a = attr;
    const int64_t channels = last_dim(in), depth = a->kernel.dim[0] * a->kernel.dim[1] * channels;
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t column = o % a->columns;
        const T *w = data(&in[1]) + column / PANEL * depth * PANEL + column % PANEL;
        const T bias = n_in > 2 ? data(&in[2])[column] : 0;
        T total = 0, part = 0 + bias, inside = bias;
        bool finite = true, padded = false;
        for (int64_t k = 0; k < depth; k++) {
            const int64_t pixel = pixel_at(a, in, out, o / a->columns, k / channels);
            const T x = pixel < 0 ? 0 : data(in)[pixel * channels + k % channels];
            if (k && k % CHAIN == 0) {
                total = k == CHAIN ? part : total + part;
                part = 0;
            }
            part = FMA(w[k * PANEL], x, part);
            if (pixel >= 0) inside = FMA(w[k * PANEL], x, inside);
            padded |= pixel < 0;
            finite &= isfinite(w[k * PANEL]) != 0;
        }
        const T sum = depth > CHAIN ? total + part : part;
        data(out)[o] = bounded(a, isnan(sum) && padded && !finite ? inside : sum);
    }
}

/* The taps inside, one after the other. */
EXACT(conv_rows_depthwise)
{
    UNUSED;
    const conv_rows_attr *a = attr;
    const int64_t channels = last_dim(in), taps = a->kernel.dim[0] * a->kernel.dim[1];
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t c = o % channels;
        T sum = n_in > 2 ? data(&in[2])[c] : 0;
        for (int64_t t = 0; t < taps; t++) {
            const int64_t pixel = pixel_at(a, in, out, o / channels, t);
            if (pixel >= 0)
                sum = FMA(data(&in[1])[t * channels + c], data(in)[pixel * channels + c], sum);
        }
        data(out)[o] = bounded(a, sum);
    }
}

EXACT_TABLE(conv_rows) = {ROW(conv_rows), ROW(conv_rows_depthwise), {NULL, NULL}};
