/* The gradient of a product: each element's is the product of the others, as that of the elements
 * before it times that of the elements after it. Nothing is divided, so zeros need no case of their
 * own. Products are in f64. A row goes in blocks: first the products after each block are computed,
 * from the end, then those within it. O(elements), with a number of workspace for each block. */
#include "kernels/kernel.h"

#define PROD_BLOCK 512

static inline int64_t rows_of_tile(int64_t length)
{
    return length < TILE ? TILE / (length ? length : 1) : 1;
}

#ifdef WEFT_KERNEL_ISA

/* dx of n elements of a block. `before` is the product of dy and the elements before it, and
 * becomes that of its end; `after` is the product of the elements after it. */
static double prod_block(const T *x, T *dx, int64_t n, double before, double after)
{
    double later[PROD_BLOCK];
    for (int64_t i = n - 1; i >= 0; i--) {
        later[i] = after;
        after *= (double)x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        dx[i] = (T)(before * later[i]);
        before *= (double)x[i];
    }
    return before;
}

static void prod_row(const T *x, T *dx, int64_t length, double dy, double *after)
{
    const int64_t blocks = ceil_div(length, PROD_BLOCK);
    double product = 1;
    for (int64_t b = blocks - 1; b >= 0; b--) {
        after[b] = product;
        const int64_t end = (b + 1) * PROD_BLOCK < length ? (b + 1) * PROD_BLOCK : length;
        for (int64_t i = b * PROD_BLOCK; i < end; i++) product *= (double)x[i];
    }
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * PROD_BLOCK, rest = length - first;
        dy = prod_block(x + first, dx + first, rest < PROD_BLOCK ? rest : PROD_BLOCK, dy, after[b]);
    }
}

KERNEL(prod_grad)
{
    const int64_t rows = call->in[0].shape.dim[0], length = call->in[0].shape.dim[1];
    const int64_t each = rows_of_tile(length);
    for (int64_t r = tile * each; r < rows && r < (tile + 1) * each; r++)
        prod_row((const T *)call->in[0].data + r * length, (T *)call->out[0].data + r * length,
                 length, (double)((const T *)call->in[1].data)[r], weft_call_workspace(call));
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

static bool infer_prod_grad(weft_infer *infer)
{
    const weft_shape x = infer->in[0].shape, dy = infer->in[1].shape;
    char a[128], b[128];
    infer->out[0] = infer->in[0];
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    return (x.rank == 2 && dy.rank == 1 && x.dim[0] == dy.dim[0]) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "expected [rows, n] and [rows], got %s and %s",
                           weft_shape_text(x, a, sizeof a), weft_shape_text(dy, b, sizeof b));
}

static int64_t tiles_prod_grad(const weft_call *call)
{
    return ceil_div(call->in[0].shape.dim[0], rows_of_tile(call->in[0].shape.dim[1]));
}

static size_t workspace_prod_grad(const weft_call *call)
{
    return (size_t)ceil_div(call->in[0].shape.dim[1], PROD_BLOCK) * sizeof(double);
}

/* x [rows, n] moved along the row by `by` after ones; towards the beginning if `by` is negative. */
static weft_value shifted(weft_graph *g, weft_value x, int64_t by)
{
    const int64_t n = weft_dim_of(g, x, 1), size = by < 0 ? -by : by;
    const int64_t before[2] = {0, by > 0 ? size : 0}, after[2] = {0, by < 0 ? size : 0};
    x = by > 0 ? weft_slice(g, x, 1, 0, n - size, 1) : weft_slice(g, x, 1, size, n, 1);
    return weft_pad(g, x, before, after, 1);
}

/* The products of the elements before each one, or after it (direction -1): log n products of rows
 * with shifted ones. */
static weft_value running(weft_graph *g, weft_value x, int64_t direction)
{
    const int64_t n = weft_dim_of(g, x, 1);
    x = shifted(g, x, direction);
    for (int64_t by = 1; by < n; by *= 2) x = weft_mul(g, x, shifted(g, x, direction * by));
    return x;
}

static void expand_prod_grad(weft_expand *e)
{
    weft_graph *g = e->graph;
    weft_value dy = weft_expand_dims(g, e->in[1], 1);
    if (weft_dim_of(g, e->in[0], 1) == 0) {
        e->out[0] = weft_mul(g, e->in[0], dy);
        return;
    }
    const weft_value before = running(g, e->in[0], 1);
    const weft_value others = weft_mul(g, before, running(g, e->in[0], -1));
    e->out[0] = weft_mul(g, others, dy);
}

static void source_prod_grad(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1), WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(s->in[0].shape.dim[0]),
                                    WEFT_ARG_INT(s->in[0].shape.dim[1])};
    weft_source_call_of(s, "prod_grad", args, 5);
}

static const weft_sample samples_prod_grad[] = {
    {NULL, 2, {FLOATS({2, {3, 5}}), FLOATS({1, {3}})}},
    {NULL, 2, {FLOATS({2, {2, 1}}), FLOATS({1, {2}})}},
    {NULL, 2, {FLOATS({2, {2, 0}}), FLOATS({1, {2}})}},
};
DECLARE_KERNELS(prod_grad);
extern const weft_op weft_op_prod_grad;
const weft_op weft_op_prod_grad = {
    .name = "prod_grad",
    .doc = "The gradient of prod over the last dimension: dx[r, i] = dy[r] times the product of "
           "x[r, j] for j != i.",
    .inputs = "x dy",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer_prod_grad,
    .kernel = FLOAT_KERNELS(prod_grad),
    .tiles = tiles_prod_grad,
    .workspace = workspace_prod_grad,
    .batch = weft__batch_rows,
    .source = source_prod_grad,
    .expand = expand_prod_grad,
    .samples = samples_prod_grad,
    .n_samples = sizeof samples_prod_grad / sizeof *samples_prod_grad,
};

#endif
