/* The shape rules of conv, conv_grad_input and conv_grad_weight. Each derives the shape of y from
 * those of x and w; the gradients check dy against it. */
#include "conv.h"

/* Does each number of the attribute lie in its range? */
static bool check_attr(weft_infer *infer, const conv_attr *a)
{
    const struct {
        const char *name;
        const weft_shape *values;
        int64_t least;
    } fields[] = {{"stride", &a->stride, 1},
                  {"dilation", &a->dilation, 1},
                  {"pad_begin", &a->pad_begin, 0},
                  {"pad_end", &a->pad_end, 0}};
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        if (fields[f].values->rank != a->stride.rank)
            return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%s has %d numbers, expected %d",
                                   fields[f].name, fields[f].values->rank, a->stride.rank);
        for (int d = 0; d < a->stride.rank; d++) {
            const int64_t value = fields[f].values->dim[d];
            if (value < fields[f].least)
                return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%s is %lld, expected at least %d",
                                       fields[f].name, (long long)value, (int)fields[f].least);
            if (value > INT32_MAX)
                return weft_infer_fail(infer, WEFT_TOO_LARGE, "%s is %lld, over 2^31 - 1",
                                       fields[f].name, (long long)value);
        }
    }
    return a->groups >= 1 ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "groups is %lld, expected at least 1",
                           (long long)a->groups);
}

bool weft__conv_infer_output(weft_infer *infer, const conv_attr *a, weft_shape x, weft_shape w,
                             weft_shape *y)
{
    char tx[128], tw[128];
    weft_shape_text(x, tx, sizeof tx);
    weft_shape_text(w, tw, sizeof tw);
    if (x.rank < 3 || x.rank > 2 + PATCH_DIMS || w.rank != x.rank || a->stride.rank != x.rank - 2)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "image %s, weights %s: expected [images, channels, ...] and "
                               "[out channels, channels / groups, ...] with 1 to 3 spatial "
                               "dimensions",
                               tx, tw);
    if (!check_attr(infer, a)) return false;
    if (w.dim[0] % a->groups || x.dim[1] % a->groups || x.dim[1] / a->groups != w.dim[1])
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "image %s, weights %s: the channels do not fit %lld groups", tx, tw,
                               (long long)a->groups);
    if (x.dim[0] > INT32_MAX || x.dim[1] > INT32_MAX || w.dim[0] > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "images or channels are over 2^31 - 1");
    *y = x;
    y->dim[1] = w.dim[0];
    for (int d = 0; d < x.rank - 2; d++) {
        const int64_t in = x.dim[d + 2], kernel = w.dim[d + 2];
        if (in > INT32_MAX || kernel > INT32_MAX)
            return weft_infer_fail(infer, WEFT_TOO_LARGE, "a spatial dimension is over 2^31 - 1");
        if (in < 0)
            return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                                   "spatial dimension %d of the image would be %lld", d,
                                   (long long)in);
        const int64_t reach = (kernel - 1) * a->dilation.dim[d] + 1;
        const int64_t padded = in + a->pad_begin.dim[d] + a->pad_end.dim[d];
        if (kernel < 1 || padded < reach)
            return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                                   "image %s, weights %s: spatial dimension %d is %lld with its "
                                   "padding, the kernel reaches over %lld",
                                   tx, tw, d, (long long)padded, (long long)reach);
        y->dim[d + 2] = (padded - reach) / a->stride.dim[d] + 1;
    }
    return true;
}

bool weft__conv_infer_bias(weft_infer *infer, int64_t channels)
{
    char text[128];
    if (!weft_infer_same_dtype(infer, 0, 2)) return false;
    return weft_shape_equal(infer->in[2].shape, WEFT_SHAPE(channels)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "bias %s, expected [%lld]",
                           weft_shape_text(infer->in[2].shape, text, sizeof text),
                           (long long)channels);
}

bool weft__conv_infer_conv(weft_infer *infer)
{
    weft_shape y = {0, {0}};
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1) ||
        !weft__conv_infer_output(infer, infer->attr, infer->in[0].shape, infer->in[1].shape, &y))
        return false;
    if (infer->n_in > 2 && !weft__conv_infer_bias(infer, y.dim[1])) return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, y};
    return true;
}

/* [first, second, the spatial sizes of the attribute]. */
static weft_shape sized(const conv_attr *a, int64_t first, int64_t second)
{
    weft_shape s = WEFT_SHAPE(first, second);
    for (int d = 0; d < a->size.rank && d < PATCH_DIMS; d++) s.dim[s.rank++] = a->size.dim[d];
    return s;
}

/* Is dy, input i, what a convolution of an image x with weights w returns? */
static bool check_gradient(weft_infer *infer, weft_shape x, weft_shape w, size_t i)
{
    char got[128], expected[128];
    const weft_shape dy = infer->in[i].shape;
    weft_shape y;
    if (!weft__conv_infer_output(infer, infer->attr, x, w, &y)) return false;
    return weft_shape_equal(dy, y) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s, but the convolution returns %s",
                           weft_shape_text(dy, got, sizeof got),
                           weft_shape_text(y, expected, sizeof expected));
}

bool weft__conv_infer_conv_grad_input(weft_infer *infer)
{
    const conv_attr *a = infer->attr;
    const weft_shape dy = infer->in[0].shape, w = infer->in[1].shape;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1) ||
        !weft_infer_min_rank(infer, 0, 2) || !weft_infer_min_rank(infer, 1, 2))
        return false;
    int64_t channels;
    if (__builtin_mul_overflow(w.dim[1], a->groups, &channels))
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "%lld groups are too many",
                               (long long)a->groups);
    const weft_shape x = sized(a, dy.dim[0], channels);
    infer->out[0] = (weft_type){infer->in[0].dtype, x};
    return check_gradient(infer, x, w, 0);
}

bool weft__conv_infer_conv_grad_weight(weft_infer *infer)
{
    const conv_attr *a = infer->attr;
    const weft_shape x = infer->in[0].shape, dy = infer->in[1].shape;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1) ||
        !weft_infer_min_rank(infer, 0, 2) || !weft_infer_min_rank(infer, 1, 2))
        return false;
    const weft_shape w = sized(a, dy.dim[1], a->groups > 0 ? x.dim[1] / a->groups : 0);
    infer->out[0] = (weft_type){infer->in[0].dtype, w};
    return check_gradient(infer, x, w, 1);
}
