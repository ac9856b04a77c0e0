/* Numbers in bytes, and convolutions of images of bytes. See exact.h. */
#include "exact_any.h"

/* As in ops/quantize/bytes.c and ops/conv/conv_bytes.h. */
typedef struct bytes_attr {
    double scale;
    int32_t zero;
} bytes_attr;
typedef struct bytes_sum {
    double scale[3];
    int32_t zero[3], low, high;
} bytes_sum;
typedef struct conv_bytes_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end;
    int64_t columns;
    bool bounded;
    double low, high;
    weft_dtype dtype;
    int32_t x_zero, y_zero;
} conv_bytes_attr;

#define PANEL 32

/* The byte of x + zero that is nearest within [low, high]; NaN is low. */
static uint8_t byte_of(float x, int32_t low, int32_t high, int32_t zero)
{
    if (!(x > (float)(low - zero))) return (uint8_t)low;
    if (x > (float)(high - zero)) return (uint8_t)high;
    return (uint8_t)((int32_t)rintf(x) + zero);
}

EXACT(quantize_bytes)
{
    UNUSED;
    const bytes_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        const float x = (float)number_at(in, &out->shape, i) / (float)a->scale;
        ((uint8_t *)out->data)[i] = byte_of(x, 0, 255, a->zero);
    }
}

EXACT(dequantize_bytes)
{
    UNUSED;
    const bytes_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        const float x = (float)a->scale * (float)(number_at(in, &out->shape, i) - a->zero);
        set(out, i, (double)x);
    }
}

EXACT(add_bytes)
{
    UNUSED;
    const bytes_sum *s = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        float sum = 0;
        for (int k = 0; k < 2; k++) {
            const float number = (float)(number_at(&in[k], &out->shape, i) - s->zero[k]);
            const float term = (float)s->scale[k] * number;
            sum = k ? sum + term : term;
        }
        ((uint8_t *)out->data)[i] = byte_of(sum / (float)s->scale[2], s->low, s->high, s->zero[2]);
    }
}

/* Element i of the result. */
static void set_result(const conv_bytes_attr *a, const weft_tensor *in, size_t n_in,
                       const weft_tensor *out, int64_t i, uint32_t sum)
{
    const int64_t column = i % a->columns;
    const int32_t whole = (int32_t)(sum + (uint32_t)((const int32_t *)in[2].data)[column]);
    const float scale = n_in > 3 ? (float)weft_tensor_element(&in[3], column) : 1;
    const float x = (float)whole * scale, low = (float)a->low, high = (float)a->high;
    if (a->dtype == WEFT_I32)
        ((int32_t *)out->data)[i] = whole;
    else if (a->dtype == WEFT_F32)
        set(out, i, (double)(!a->bounded ? x : x < low ? low : x > high ? high : x));
    else
        ((uint8_t *)out->data)[i] = byte_of(x, a->bounded ? (int32_t)a->low : 0,
                                            a->bounded ? (int32_t)a->high : 255, a->y_zero);
}

/* The byte of channel c that element o of the result reads at a tap, or `padding`. */
static int32_t byte_at(const conv_bytes_attr *a, const weft_tensor *x, const weft_tensor *y,
                       int64_t o, int64_t tap, int64_t c, int32_t padding)
{
    int64_t at[4];
    place_of(&y->shape, o, at);
    at[3] = c;
    for (int d = 0; d < 2; d++) {
        const int64_t t = d ? tap % a->kernel.dim[1] : tap / a->kernel.dim[1];
        at[d + 1] = at[d + 1] * a->stride.dim[d] + t * a->dilation.dim[d] - a->pad_begin.dim[d];
        if (at[d + 1] < 0 || at[d + 1] >= x->shape.dim[d + 1]) return padding;
    }
    return ((const uint8_t *)x->data)[index_of(&x->shape, at)];
}

static int32_t weight_at(const weft_tensor *w, int64_t i)
{
    return ((const int8_t *)w->data)[i];
}

EXACT(conv_bytes)
{
    UNUSED;
    const conv_bytes_attr *a = attr;
    const int64_t channels = in->shape.dim[3], taps = a->kernel.dim[0] * a->kernel.dim[1];
    const int64_t each = (channels + 3) / 4;
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t column = o % a->columns;
        uint32_t sum = 0;
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = 0; c < channels; c++) {
                const int64_t step = column / PANEL * taps * each + t * each + c / 4;
                const int64_t place = (step * PANEL + column % PANEL) * 4 + c % 4;
                sum +=
                    (uint32_t)(byte_at(a, in, out, o, t, c, a->x_zero) * weight_at(&in[1], place));
            }
        set_result(a, in, n_in, out, o, sum);
    }
}

EXACT(conv_bytes_depthwise)
{
    UNUSED;
    const conv_bytes_attr *a = attr;
    for (int64_t o = 0; o < numel(out); o++) {
        uint32_t sum = 0;
        for (int64_t t = 0; t < a->kernel.dim[0] * a->kernel.dim[1]; t++)
            sum += (uint32_t)(byte_at(a, in, out, o, t, o % a->columns, a->x_zero) *
                              weight_at(&in[1], t * a->columns + o % a->columns));
        set_result(a, in, n_in, out, o, sum);
    }
}

EXACT(max_pool_bytes)
{
    UNUSED;
    const conv_bytes_attr *a = attr; /* its first fields */
    const int64_t taps = a->kernel.dim[0] * a->kernel.dim[1];
    for (int64_t o = 0; o < numel(out); o++) {
        int32_t best = 0;
        for (int64_t t = 0; t < taps; t++) {
            const int32_t byte = byte_at(a, in, out, o, t, o % a->columns, 0);
            best = byte > best ? byte : best;
        }
        ((uint8_t *)out->data)[o] = (uint8_t)best;
    }
}

const exact_reference exact_bytes[] = {
    ROW(quantize_bytes),       ROW(dequantize_bytes), ROW(add_bytes), ROW(conv_bytes),
    ROW(conv_bytes_depthwise), ROW(max_pool_bytes),   {NULL, NULL},
};
