/* Convolutions of 3 x 3 taps by fewer multiplications (Winograd, 1980; Lavin & Gray, "Fast
 * Algorithms for Convolutional Neural Networks", 2016). A tile of m x m pixels of the result reads
 * n x n pixels, n = m + 2:
 *
 *     y = At (sum over channels of (G g Gt) * (Bt d B)) A
 *
 * so each of the n n positions of the transformed tile is a matrix product over channels. F(2x2)
 * needs 16 products for 4 pixels, F(4x4) 36 for 16, where the direct sum needs 36 and 144.
 * F(4x4) has the points 0, +-sqrt(1/2), +-sqrt 2 and infinity. With the usual ones, 0, +-1, +-2, its
 * error is more than twice as large. */
#ifndef WEFT_OPS_CONV_WINOGRAD_H
#define WEFT_OPS_CONV_WINOGRAD_H

#include "conv_rows.h"

typedef struct winograd_weights_attr {
    int64_t tile; /* m: 2 or 4 */
} winograd_weights_attr;

/* u [ceil(o / 32), n n, c, 32] from w [o, c, 3, 3]: 32 channels of the result side by side, zeros
 * beyond the last. */
extern const weft_op weft_op_winograd_weights;
/* y [images, out height, out width, columns] from x [images, height, width, channels], u as above,
 * and bias [columns], which may be missing. The attribute is that of conv_rows, with a kernel of 3 x
 * 3 and strides and dilations of 1. */
extern const weft_op weft_op_conv_winograd;

/* The tile by which such a convolution is computed in less time than by its sums, by an estimate
 * that follows from shapes alone: 2, 4, or 0 if the sums are as fast (winograd_choice.c). */
int64_t weft__winograd_choice(const conv_sizes *z);

#endif
