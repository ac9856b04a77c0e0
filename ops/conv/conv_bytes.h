/* Convolutions of images of bytes whose channels are innermost. A byte b of the image is the number
 * b - x_zero, and a weight is a byte of an i8. Products are summed in i32, which wraps around, so
 * that no order of the sums changes a bit. */
#ifndef WEFT_OPS_CONV_BYTES_H
#define WEFT_OPS_CONV_BYTES_H

#include "conv_rows.h"

#include "base/private.h"

/* Columns of a panel of weights, and bytes that one step multiplies for each column. */
#define BYTES_PANEL 32
#define BYTES_EACH  4

typedef struct conv_bytes_attr {
    conv_rows_attr rows; /* bounds: of the result, of a u8 those of its bytes */
    weft_dtype dtype;    /* of the result: u8, f32 or i32 */
    int32_t x_zero;      /* the byte that pads x */
    int32_t y_zero;      /* of a u8: added to the rounded number */
    int32_t none;        /* instead of padding: attributes are compared byte by byte */
} conv_bytes_attr;

/* With sum = bias[o] + the sum over taps and channels of x w, in i32:
 *
 *     i32   y = sum
 *     f32   y = (f32)sum scale[o], within the bounds
 *     u8    y = round((f32)sum scale[o]) + y_zero, within the bounds; ties to even
 *
 * x [images, height, width, channels] u8, padded with x_zero. Panels of weights
 * [ceil(columns / 32), steps, 128] u8, steps = kernel height * kernel width * ceil(channels / 4): of
 * each tap and four channels, four bytes for each of 32 columns, zeros beyond the last channel and the
 * last column. bias [columns] i32, which has -x_zero times the sum of a column's weights; scale [columns]
 * f32, unless y is i32. */
extern const weft_op weft_op_conv_bytes;
/* The same for one weight for each tap and channel: w [kernel height, kernel width, channels] u8;
 * columns is the number of channels. */
extern const weft_op weft_op_conv_bytes_depthwise;

/* y [images, out height, out width, channels] u8: the largest byte of each window of x [images, height,
 * width, channels] u8, 0 in a window that lies in the padding alone. Its attribute is a
 * conv_rows_attr without bounds; columns is the number of channels. */
extern const weft_op weft_op_max_pool_bytes;

static inline int64_t conv_bytes_steps(int64_t taps, int64_t channels)
{
    return taps * ((channels + BYTES_EACH - 1) / BYTES_EACH);
}

/* Packs w [columns, taps, channels] into panels. */
WEFT_PRIVATE_API void weft__conv_bytes_pack(const int8_t *w, int64_t columns, int64_t taps,
                                            int64_t channels, uint8_t *panels);
/* A convolution of in[0..n_in-1], by panels or by depthwise weights. */
WEFT_PRIVATE_API weft_value weft__conv_bytes(weft_graph *graph, const weft_value *in, size_t n_in,
                                             const conv_bytes_attr *attr, bool depthwise);

/* The maxima of the windows of x. */
WEFT_PRIVATE_API weft_value weft__max_pool_bytes(weft_graph *graph, weft_value x,
                                                 const conv_rows_attr *window);

/* What these ops share (conv_bytes.c, conv_source.c). */
extern const weft_attr_field weft__conv_bytes_fields[];
extern const weft_pass *const weft__conv_bytes_passes[];
/* Checks image, bias and scale, and sets output 0. */
bool weft__conv_bytes_infer(weft_infer *infer, int64_t groups);
void weft__conv_bytes_cost(const weft_call *call, weft_cost *cost);
void weft__conv_bytes_source(weft_source *s, const char *function);
void weft__max_pool_bytes_source(weft_source *s);

#endif
