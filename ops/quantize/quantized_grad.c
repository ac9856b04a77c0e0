/* matmul_quantized_grad: the gradient of matmul_quantized with regard to x, O(m n k).
 *
 * dx [m, k] = dy [m, n] times a matrix [n, k] of 8 or 4 bits. A tile has some columns of the matrix.
 * It widens them one piece of n after another, straight into the panels of the kernel of products
 * (kernels/gemm_kernel.h), and multiplies all rows of dy with each. So the matrix is never widened
 * as a whole, and the bits are those of a chain with the widened matrix. */
#include "kernels/gemm_kernel.h"

typedef struct grad_attr {
    int32_t bits, group;
} grad_attr;

#define BLOCK        32 /* elements of a row that have one scale */
#define TILE_COLUMNS 64
#define TILE_ROWS    504 /* of dy, blocks of GEMM_TILE_ROWS */

typedef struct product {
    int64_t m, n, k, tiles_m, tiles_k;
} product;

static inline product product_of(const weft_call *call)
{
    const weft_tensor *dx = &call->out[0];
    const int last = dx->shape.rank - 1;
    product p = {.m = 1, .n = call->in[0].shape.dim[last], .k = dx->shape.dim[last]};
    for (int d = 0; d < last; d++) p.m *= dx->shape.dim[d];
    p.tiles_m = ceil_div(p.m, TILE_ROWS);
    p.tiles_k = ceil_div(p.k, TILE_COLUMNS);
    return p;
}

static inline weft_block block_at(const product *p, int64_t tile)
{
    weft_block b = {.row = tile % p->tiles_m * TILE_ROWS,
                    .column = tile / p->tiles_m * TILE_COLUMNS};
    b.rows = p->m - b.row < TILE_ROWS ? p->m - b.row : TILE_ROWS;
    b.columns = p->k - b.column < TILE_COLUMNS ? p->k - b.column : TILE_COLUMNS;
    return b;
}

#ifdef WEFT_KERNEL_ISA

/* Widens a block of 32 elements, whose first bytes are at q. */
static inline void widen_block(int bits, const uint8_t *q, T scale, int zero, T *out)
{
    uint8_t number[BLOCK];
    if (bits == 8) {
        memcpy(number, q, BLOCK);
    } else {
        for (int i = 0; i < BLOCK / 2; i++) {
            number[2 * i] = q[i] & 15;
            number[2 * i + 1] = q[i] >> 4;
        }
    }
    SIMD_FOR (i, BLOCK) out[i] = scale * (T)(number[i] - zero);
}

/* The columns of `b` of rows [first, first + depth) of the matrix, as panels of GEMM_COLUMNS. */
static void widen(const weft_call *call, const weft_block *b, int64_t first, int64_t depth,
                  T *panels)
{
    const grad_attr *attr = call->attr;
    const weft_tensor *w = &call->in[1];
    const int64_t groups = call->in[2].shape.dim[1];
    const bool minima = call->in[3].dtype != WEFT_U8;
    for (int64_t d = 0; d < depth; d++) {
        const uint8_t *row = (const uint8_t *)w->data + (first + d) * w->shape.dim[1];
        for (int64_t c = 0; c < b->columns; c += BLOCK) {
            const int64_t column = b->column + c;
            const int64_t g = (first + d) * groups + column / attr->group;
            T block[BLOCK];
            widen_block(attr->bits, row + column * attr->bits / 8, ((const T *)call->in[2].data)[g],
                        minima ? 0 : ((const uint8_t *)call->in[3].data)[g], block);
            const T minimum = minima ? ((const T *)call->in[3].data)[g] : 0;
            if (minima)
                SIMD_FOR (i, BLOCK) block[i] = block[i] + minimum;
            for (int64_t i = 0; i < BLOCK; i += GEMM_COLUMNS) {
                T *to = panels + (c + i) / GEMM_COLUMNS * GEMM_COLUMNS * depth + d * GEMM_COLUMNS;
                memcpy(to + (c + i) % GEMM_COLUMNS, block + i,
                       (size_t)(GEMM_COLUMNS < BLOCK ? GEMM_COLUMNS : BLOCK) * sizeof *to);
            }
        }
    }
}

KERNEL(matmul_quantized_grad)
{
    const product p = product_of(call);
    const weft_block b = block_at(&p, tile);
    const T *dy = call->in[0].data;
    T *dx = (T *)call->out[0].data + b.column, *panels = weft_call_workspace(call);
    T *workspace = panels + TILE_COLUMNS * GEMM_DEPTH;
    for (int64_t i = b.row; p.n == 0 && i < b.row + b.rows; i++)
        memset(dx + i * p.k, 0, (size_t)b.columns * sizeof *dx);
    for (int64_t first = 0; first < p.n; first += GEMM_DEPTH) {
        const int64_t depth = p.n - first < GEMM_DEPTH ? p.n - first : GEMM_DEPTH;
        widen(call, &b, first, depth, panels);
        for (int64_t i = b.row; i < b.row + b.rows; i += GEMM_TILE_ROWS) {
            const int64_t left = b.row + b.rows - i;
            int64_t tag = 0;
            gemm_tile(&(gemm_task){.m = left < GEMM_TILE_ROWS ? left : GEMM_TILE_ROWS,
                                   .n = b.columns,
                                   .k = depth,
                                   .a = {dy + i * p.n + first, p.n, 1},
                                   .panels = panels,
                                   .c = dx + i * p.k,
                                   .c_row = p.k,
                                   .add = first > 0,
                                   .workspace = workspace,
                                   .name = 1,
                                   .panel_tag = &tag});
        }
    }
}

#else

#include "batch.h"
#include "quantize.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

static int64_t tiles_grad(const weft_call *call)
{
    const product p = product_of(call);
    return p.tiles_m * p.tiles_k;
}

static void block_grad(const weft_call *call, int64_t tile, weft_block *block)
{
    const product p = product_of(call);
    *block = p.m == 0 || p.k == 0 ? (weft_block){0, 0, 0, 0} : block_at(&p, tile);
}

static size_t workspace_grad(const weft_call *call)
{
    const product p = product_of(call);
    const int64_t rows = p.m < GEMM_TILE_ROWS ? p.m : GEMM_TILE_ROWS;
    const int64_t depth = p.n < GEMM_DEPTH ? p.n : GEMM_DEPTH;
    return (size_t)(TILE_COLUMNS * GEMM_DEPTH + gemm_workspace(rows, depth)) *
           weft_dtype_bytes(call->out[0].dtype);
}

static void cost_grad(const weft_call *call, weft_cost *cost)
{
    const product p = product_of(call);
    cost->flops = 2 * (double)p.m * (double)p.n * (double)p.k;
    cost->bytes = (double)weft_tensor_bytes(call->out[0].dtype, call->out[0].shape);
    for (size_t i = 0; i < call->n_in; i++)
        cost->bytes += (double)weft_tensor_bytes(call->in[i].dtype, call->in[i].shape);
}

static bool infer_grad(weft_infer *infer)
{
    char ty[128], tw[128], ts[128], tz[128];
    const grad_attr *attr = infer->attr;
    if (weft__quantized_check(attr->bits, attr->group, "matmul_quantized_grad", NULL) != WEFT_OK)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "%d bits in groups of %d, expected 8 or 4 and a multiple of 32",
                               attr->bits, attr->group);
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 2) ||
        !weft_infer_dtype(infer, 1, WEFT_U8) || !weft_infer_min_rank(infer, 0, 1))
        return false;
    if (infer->in[3].dtype != infer->in[0].dtype && !weft_infer_dtype(infer, 3, WEFT_U8))
        return false;
    weft_shape y = infer->in[0].shape;
    const weft_shape w = infer->in[1].shape, scale = infer->in[2].shape, zero = infer->in[3].shape;
    const int64_t k = w.rank == 2 ? w.dim[1] * 8 / attr->bits : 0;
    const weft_shape groups = WEFT_SHAPE(w.dim[0], k / attr->group);
    if (w.rank != 2 || w.dim[0] != y.dim[y.rank - 1] || k % attr->group ||
        !weft_shape_equal(scale, groups) || !weft_shape_equal(zero, groups))
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "%s times %s of %d bits, with scales %s and zero points %s of groups of %d",
            weft_shape_text(y, ty, sizeof ty), weft_shape_text(w, tw, sizeof tw), attr->bits,
            weft_shape_text(scale, ts, sizeof ts), weft_shape_text(zero, tz, sizeof tz),
            attr->group);
    y.dim[y.rank - 1] = k;
    infer->out[0] = (weft_type){infer->in[0].dtype, y};
    return true;
}

static void source_grad(weft_source *s)
{
    const grad_attr *attr = s->attr;
    const product p = product_of(&(weft_call){.in = s->in, .out = s->out});
    const bool minima = s->in[3].dtype != WEFT_U8;
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    WEFT_ARG_IN(2),
                                    minima ? WEFT_ARG_NONE : WEFT_ARG_IN(3),
                                    minima ? WEFT_ARG_IN(3) : WEFT_ARG_NONE,
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(p.m),
                                    WEFT_ARG_INT(p.n),
                                    WEFT_ARG_INT(p.k),
                                    WEFT_ARG_INT(attr->bits),
                                    WEFT_ARG_INT(attr->group)};
    weft_source_call_of(s, "matmul_quantized_grad", args, sizeof args / sizeof *args);
}

static const grad_attr bytes_32 = {8, 32}, nibbles_32 = {4, 32}, bytes_64 = {8, 64},
                       nibbles_96 = {4, 96};
static const weft_sample samples_grad[] = {
    {&bytes_32,
     4,
     {UNIT_FLOATS({2, {3, 5}}), BYTES({2, {5, 64}}), SCALES({2, {5, 2}}), BYTES({2, {5, 2}})}},
    {&nibbles_32,
     4,
     {UNIT_FLOATS({3, {2, 3, 4}}), BYTES({2, {4, 16}}), SCALES({2, {4, 1}}), NIBBLES({2, {4, 1}})}},
    {&bytes_64,
     4,
     {UNIT_FLOATS({2, {9, 150}}), BYTES({2, {150, 128}}), SCALES({2, {150, 2}}),
      BYTES({2, {150, 2}})}},
    {&nibbles_96,
     4,
     {UNIT_FLOATS({1, {7}}), BYTES({2, {7, 48}}), SCALES({2, {7, 1}}), UNIT_FLOATS({2, {7, 1}})}},
    {&bytes_32,
     4,
     {UNIT_FLOATS({2, {2, 0}}), BYTES({2, {0, 32}}), SCALES({2, {0, 1}}), BYTES({2, {0, 1}})}},
};
static const weft_attr_field fields_grad[] = {
    {"bits", WEFT_ATTR_INT, offsetof(grad_attr, bits)},
    {"group", WEFT_ATTR_INT, offsetof(grad_attr, group)},
    {NULL, WEFT_ATTR_INT, 0},
};
static void batch_grad(weft_batch *b)
{
    weft__batch_leading(b, 1);
}

DECLARE_KERNELS(matmul_quantized_grad);
extern const weft_op weft_op_matmul_quantized_grad;
const weft_op weft_op_matmul_quantized_grad = {
    .name = "matmul_quantized_grad",
    .doc = "dx [..., k] = dy [..., n] times a matrix [n, k] in 8 or 4 bits, whose elements are "
           "those of matmul_quantized: its gradient with regard to x, as if it did not round x.",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .inputs = "dy weight scale zero",
    .attr_size = sizeof(grad_attr),
    .attrs = fields_grad,
    .infer = infer_grad,
    .kernel = FLOAT_KERNELS(matmul_quantized_grad),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_grad,
    .workspace = workspace_grad,
    .block = block_grad,
    .cost = cost_grad,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_grad,
    .batch = batch_grad,
    .samples = samples_grad,
    .n_samples = sizeof samples_grad / sizeof *samples_grad,
};

weft_value weft__matmul_quantized_grad(weft_graph *graph, const weft_value *in, int bits, int group)
{
    const grad_attr attr = {bits, group};
    return weft_apply(graph, &weft_op_matmul_quantized_grad, &attr, in, 4, NULL);
}

#endif
