/* Convolutions of images whose channels are innermost, [images, height, width, channels], with
 * weights that are packed apart. Passes make these ops from conv (ops/conv/conv.c). */
#ifndef WEFT_OPS_CONV_ROWS_H
#define WEFT_OPS_CONV_ROWS_H

#include "conv.h"

typedef struct conv_rows_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end; /* rank 2: height, width */
    int64_t columns;                                         /* channels of the result */
    /* The result is min(max(sum, low), high), NaN for NaN, if `bounded` is set. */
    bool bounded;
    double low, high;
} conv_rows_attr;

/* y [images, out height, out width, columns] from x [images, height, width, channels], panels
 * [ceil(columns / 32), kernel height * kernel width * channels, 32], which the op `panels` makes of
 * the matrix [(tap row, tap column, channel), columns], and bias [columns], which may be missing.
 */
extern const weft_op weft_op_conv_rows;
/* y [images, out height, out width, channels] from x [images, height, width, channels], w [kernel
 * height, kernel width, channels] and bias [channels], which may be missing; columns is the number
 * of channels. */
extern const weft_op weft_op_conv_rows_depthwise;

/* The attribute of a sample: kernel, stride, dilation, padding at begin and end as
 * CONV_PAIR(height, width); columns, and any other fields. */
#define CONV_PAIR(a, b)                                                                            \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            a, b                                                                                   \
        }                                                                                          \
    }
#define CONV_ROWS(k, s, d, b, e, ...)                                                              \
    {                                                                                              \
        .kernel = k, .stride = s, .dilation = d, .pad_begin = b, .pad_end = e,                     \
        .columns = __VA_ARGS__                                                                     \
    }

extern const weft_attr_field weft__conv_rows_fields[];
/* The shape [images, lines, pixels, columns] of the results of input 0, [images, height, width, channels];
 * an error if it is none, or the window does not fit. */
bool weft__conv_rows_output(weft_infer *infer, const conv_rows_attr *a, int64_t groups,
                            weft_shape *y);
/* Sets the shape of output 0, for `groups` groups, and checks the bias, input 2 (conv_rows.c). */
bool weft__conv_rows_infer(weft_infer *infer, int64_t groups);

/* The sizes of a convolution, of rank 2, without the strides and dilations that have no effect. */
typedef struct conv_rows_sizes {
    int64_t images, in[2], out[2], channels, columns;
    int64_t kernel[2], stride[2], dilation[2], begin[2];
} conv_rows_sizes;

static inline conv_rows_sizes conv_rows_sizes_of(const weft_call *call)
{
    const conv_rows_attr *a = call->attr;
    const weft_shape *x = &call->in[0].shape, *y = &call->out[0].shape;
    conv_rows_sizes z = {.images = x->dim[0], .channels = x->dim[3], .columns = a->columns};
    for (int d = 0; d < 2; d++) {
        z.in[d] = x->dim[d + 1];
        z.out[d] = y->dim[d + 1];
        z.kernel[d] = a->kernel.dim[d];
        z.stride[d] = z.out[d] == 1 ? 1 : a->stride.dim[d];
        z.dilation[d] = z.kernel[d] == 1 ? 1 : a->dilation.dim[d];
        z.begin[d] = a->pad_begin.dim[d];
    }
    return z;
}

#endif
