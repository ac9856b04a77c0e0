/* What the kernels of reductions and their descriptors share: the attribute, and how the dimensions
 * are split and the work is cut into tiles, from the shapes and strides alone. */
#ifndef WEFT_OPS_REDUCE_H
#define WEFT_OPS_REDUCE_H

#include "kernels/kernel.h"

typedef struct reduce_attr {
    int32_t count;
    int32_t axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;

#define COLUMNS      256  /* outputs folded together in the column path */
#define BLOCK_ROWS   256  /* elements of each in a block there */
#define BLOCK        4096 /* elements of a block of the row path */
#define PACKED       1024 /* of one whose elements lie apart */
#define WANTED_TILES 64   /* outputs are cut into pieces to reach this number */
#define NUMBERS      2    /* of a state */

/* The dimensions of x, kept and reduced, outermost first. */
typedef struct split {
    int n_kept, n_folded;
    int64_t kept[WEFT_MAX_RANK], kept_stride[WEFT_MAX_RANK];
    int64_t folded[WEFT_MAX_RANK], folded_stride[WEFT_MAX_RANK];
    int64_t count; /* elements folded into one output */
} split;

static inline bool is_reduced(const reduce_attr *attr, int axis)
{
    if (attr->count == 0) return true;
    for (int i = 0; i < attr->count; i++)
        if (attr->axis[i] == axis) return true;
    return false;
}

static inline void split_add(int *n, int64_t *dims, int64_t *strides, int64_t dim, int64_t stride)
{
    if (dim == 1) return;
    if (*n && strides[*n - 1] == dim * stride) {
        dims[*n - 1] *= dim;
        strides[*n - 1] = stride;
        return;
    }
    dims[*n] = dim;
    strides[(*n)++] = stride;
}

static inline split split_of(const weft_call *call)
{
    const weft_tensor *x = &call->in[0];
    split s = {0};
    s.count = 1;
    for (int d = 0; d < x->shape.rank; d++) {
        if (is_reduced(call->attr, d)) {
            s.count *= x->shape.dim[d];
            split_add(&s.n_folded, s.folded, s.folded_stride, x->shape.dim[d], x->stride[d]);
        } else {
            split_add(&s.n_kept, s.kept, s.kept_stride, x->shape.dim[d], x->stride[d]);
        }
    }
    return s;
}

static inline bool by_columns(const split *s)
{
    return s->n_kept && s->kept_stride[s->n_kept - 1] == 1 && s->n_folded &&
           s->folded_stride[s->n_folded - 1] != 1;
}

/* Whether the elements that are folded into one output are contiguous. */
static inline bool by_dense_rows(const split *s)
{
    return !s->n_folded || s->folded_stride[s->n_folded - 1] == 1;
}

/* Whether so few elements are folded into each output that a loop over them would be too short to
 * pay: then elements of up to COLUMNS outputs are packed into columns. */
#define FEW_FOLDED 32
#define SHORT_RUN  8
static inline bool by_packed_columns(const split *s)
{
    return s->count <= FEW_FOLDED && s->n_kept > 0 &&
           (!by_columns(s) || s->kept[s->n_kept - 1] < SHORT_RUN);
}

/* How the work is cut: tiles are ranges of outputs times pieces of their blocks. */
typedef struct cut {
    int64_t outputs, width, ranges; /* all, of a range, and how many ranges */
    int64_t length, block, per_row; /* of a row of folded elements, of a block; blocks a row */
    int64_t blocks, pieces;
} cut;

static inline cut cut_of(const split *s, int64_t outputs)
{
    const bool columns = by_columns(s);
    const int64_t count = s->count ? s->count : 1, min_width = columns ? COLUMNS : 1;
    cut c = {.outputs = outputs, .width = TILE / count, .length = 1};
    if (c.width < min_width) c.width = min_width;
    c.ranges = ceil_div(outputs, c.width);
    if (s->n_folded) c.length = s->folded[s->n_folded - 1];
    c.block = columns ? BLOCK_ROWS : by_dense_rows(s) ? BLOCK : PACKED;
    c.per_row = ceil_div(c.length, c.block);
    c.blocks = s->count ? s->count / c.length * c.per_row : 0;
    c.pieces = c.ranges ? ceil_div(WANTED_TILES, c.ranges) : 1;
    const int64_t by_size = (outputs < c.width ? outputs : c.width) * s->count / TILE;
    if (c.pieces > by_size) c.pieces = by_size;
    if (c.pieces > c.blocks) c.pieces = c.blocks;
    if (c.pieces < 1) c.pieces = 1;
    return c;
}

#endif
