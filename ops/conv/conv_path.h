/* Which kernel computes conv, conv_grad_input and conv_grad_weight: the one of less work, which
 * follows from shapes alone. The functions are compiled once, not for each instruction set. */
#ifndef WEFT_OPS_CONV_PATH_H
#define WEFT_OPS_CONV_PATH_H

#include "conv_columns.h"
#include "conv_planes.h"

/* Of conv and conv_grad_input. */
typedef enum conv_path {
    CONV_BY_PRODUCT, /* of weights and patches (conv.h) */
    CONV_BY_PLANES,  /* sums over taps alone (conv_planes.h) */
    CONV_BY_COLUMNS, /* a product that is added to the image (conv_columns.h); conv_grad_input */
} conv_path;

/* Whether each channel of the result is computed from one of the image, plane by plane, instead of
 * by a matrix product, whose sums would be short. With several channels of the result for each one
 * of the image, the path of less work is taken. */
bool weft__conv_is_direct(const conv_sizes *z, bool transposed);

conv_path weft__conv_path_of(const conv_sizes *z, bool transposed);

/* The same choice for conv_grad_weight. */
bool weft__conv_weight_is_direct(const conv_sizes *z);

#endif
