/* Batched matrix products, O(m n k) each. The batch is a list of [m, k] x [k, n] products; where b
 * has no batch and the rows of a have one stride, the batch of a becomes rows. Each product is cut
 * into tiles of rows and columns, which threads compute one at a time (kernels/gemm_kernel.h, or
 * the library that WEFT_GEMM names). */
#include "gemm.h"
#include "kernels/gemm_kernel.h"

/* Tiles for a library: about so many flops each, which outweigh the packing of each call; at most
 * so many tiles. */
#define LIBRARY_TILE_FLOPS 8e6
#define LIBRARY_TILES      32
/* Tiles for weft's own kernels: at least so many flops each; the number of tiles to aim for;
 * columns whose sums stay in the second-level cache where k is above GEMM_DEPTH. */
#define MIN_TILE_FLOPS 1e6
#define WANTED_TILES   20
#define DEEP_COLUMNS   512
/* B is packed once for all tiles, in a phase of its own, if it has at most MAX_SHARED elements and
 * the product has the flops that pay for the barrier. A tile of that phase packs so many columns.
 */
#define MAX_SHARED       (4 << 20)
#define MIN_SHARED_FLOPS 5e7
#define SHARED_WIDTH     128
/* With fewer rows, packing B costs more than it gains. */
#define PACKING_ROWS 48

typedef struct product {
    int64_t m, n, k, batches;
    int64_t tile_m, tile_n, tiles_m, tiles_n;
    bool rows_joined; /* the batch of a is part of m */
    bool shared;      /* B is packed in the first phase, for all tiles */
} product;

/* Whether the batch of a can be read as rows: b has no batch, the rows of a are dense, and its
 * leading dimensions continue the stride from row to row. */
static inline bool rows_join(const weft_tensor *a, const weft_tensor *b)
{
    if (b->shape.rank != 2) return false;
    const int rank = a->shape.rank;
    const int64_t k = a->shape.dim[rank - 1];
    int64_t expected = 0; /* 0: any, as dimensions of size 1 have any stride */
    if (k != 1 && a->stride[rank - 1] != 1) return false;
    for (int d = rank - 2; d >= 0; d--) {
        const int64_t size = a->shape.dim[d], stride = a->stride[d];
        if (size == 1) continue;
        if (d < rank - 2 && (stride < k || (expected && stride != expected))) return false;
        expected = size * stride;
    }
    return true;
}

/* Halves the larger of rows and columns until there are enough tiles. Edges at multiples of 32 do
 * not split the library's own blocks. */
static inline void cut_for_library(product *p)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    double wanted = flops / LIBRARY_TILE_FLOPS;
    int64_t max_tiles =
        ceil_div(LIBRARY_TILES, p->batches < LIBRARY_TILES ? p->batches : LIBRARY_TILES);
    int64_t tiles = wanted < 1 ? 1 : wanted > (double)max_tiles ? max_tiles : (int64_t)wanted;
    p->tiles_m = p->tiles_n = 1;
    while (p->tiles_m * p->tiles_n * 2 <= tiles) {
        int64_t rows = p->m / p->tiles_m, columns = p->n / p->tiles_n;
        if (rows < 128 && columns < 128) break;
        if (rows >= columns)
            p->tiles_m *= 2;
        else
            p->tiles_n *= 2;
    }
    p->tile_m = ceil_div(ceil_div(p->m, p->tiles_m), 32) * 32;
    p->tile_n = ceil_div(ceil_div(p->n, p->tiles_n), 32) * 32;
}

static inline void cut_for_kernels(product *p)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    p->shared = p->batches == 1 && p->m > GEMM_TILE_ROWS && p->k <= MAX_SHARED / p->n &&
                flops >= MIN_SHARED_FLOPS;
    /* Where each tile packs its own columns of B, taller tiles share the cost. */
    int64_t max_rows = p->shared ? GEMM_TILE_ROWS : GEMM_DEEP_ROWS;
    int64_t rows = p->m > max_rows ? (p->m + max_rows / 2) / max_rows : 1;
    double affordable = flops / MIN_TILE_FLOPS / (double)rows;
    int64_t wanted = ceil_div(p->shared ? WANTED_TILES : WANTED_TILES / 2, rows * p->batches);
    int64_t columns = p->k > GEMM_DEPTH ? ceil_div(p->n, DEEP_COLUMNS) : 1;
    /* Here each tile packs both operands again: small tiles would cost more than balance gains. */
    if (!p->shared && p->k > GEMM_DEPTH && rows > 1 && wanted > ceil_div(p->n, DEEP_COLUMNS / 2))
        wanted = ceil_div(p->n, DEEP_COLUMNS / 2);
    if ((double)wanted > affordable) wanted = (int64_t)affordable;
    if (columns < wanted) columns = wanted;
    p->tile_m = ceil_div(ceil_div(p->m, rows), GEMM_EVEN_ROWS) * GEMM_EVEN_ROWS;
    p->tile_n = ceil_div(ceil_div(p->n, columns), 32) * 32;
}

/* The first row and column of tile `index` of a product. Tiles that share the larger operand are
 * neighbours, so that it is read from memory once. */
static inline void tile_at(const product *p, int64_t index, int64_t *row, int64_t *column)
{
    bool by_columns = !p->shared && p->n > p->m;
    int64_t i = by_columns ? index % p->tiles_m : index / p->tiles_n;
    int64_t j = by_columns ? index / p->tiles_m : index % p->tiles_n;
    *row = i * p->tile_m;
    *column = j * p->tile_n;
}

static inline product product_of(const weft_call *call)
{
    const weft_tensor *a = &call->in[0], *b = &call->in[1], *c = &call->out[0];
    int rank = c->shape.rank;
    product p = {.m = c->shape.dim[rank - 2],
                 .n = c->shape.dim[rank - 1],
                 .k = a->shape.dim[a->shape.rank - 1],
                 .batches = 1};
    p.rows_joined = rows_join(a, b);
    for (int d = 0; d < rank - 2; d++) *(p.rows_joined ? &p.m : &p.batches) *= c->shape.dim[d];
    if (p.m == 0 || p.n == 0 || p.batches == 0) return p;
    if (gemm_is_own(c->dtype))
        cut_for_kernels(&p);
    else
        cut_for_library(&p);
    p.tiles_m = ceil_div(p.m, p.tile_m);
    p.tiles_n = ceil_div(p.n, p.tile_n);
    return p;
}

#ifdef WEFT_KERNEL_ISA

/* Offset of batch `index` of c's batch dimensions in operand t, which broadcasts to them. */
static int64_t batch_offset(const weft_tensor *t, const weft_tensor *c, int64_t index)
{
    int64_t offset = 0;
    for (int d = c->shape.rank - 3; d >= 0; d--) {
        int axis = d - (c->shape.rank - t->shape.rank);
        int64_t i = index % c->shape.dim[d];
        index /= c->shape.dim[d];
        if (axis >= 0 && t->shape.dim[axis] != 1) offset += i * t->stride[axis];
    }
    return offset;
}

/* The strides of a matrix, one of which is 1. A dimension of size 1 may have any stride. */
static gemm_matrix matrix_of(const weft_tensor *t)
{
    int rank = t->shape.rank;
    int64_t m = t->shape.dim[rank - 2], n = t->shape.dim[rank - 1];
    int64_t row = t->stride[rank - 2], column = t->stride[rank - 1];
    bool plain = (n == 1 || column == 1) && (m == 1 || row >= n);
    if (plain) return (gemm_matrix){t->data, m == 1 ? n : row, 1};
    return (gemm_matrix){t->data, 1, n == 1 ? m : column};
}

/* The stride that all rows share. */
static int64_t joined_stride(const weft_tensor *a, int64_t k)
{
    int64_t stride = k;
    for (int d = a->shape.rank - 2; d >= 0; d--)
        if (a->shape.dim[d] != 1) return a->stride[d] < k ? k : a->stride[d];
    return stride;
}

static void call_library(const product *p, int64_t m, int64_t n, const gemm_matrix *a,
                         const gemm_matrix *b, T *c)
{
    const bool trans_a = a->column != 1, trans_b = b->column != 1;
    const gemm_call call = {.trans_a = trans_a,
                            .trans_b = trans_b,
                            .m = m,
                            .n = n,
                            .k = p->k,
                            .a = a->data,
                            .lda = trans_a ? a->column : a->row,
                            .b = b->data,
                            .ldb = trans_b ? b->column : b->row,
                            .c = c,
                            .ldc = p->n};
#if KERNEL_IS(f32)
    gemm_f32(&call);
#else
    gemm_f64(&call);
#endif
}

static void pack_shared(const weft_call *call, const product *p, int64_t tile)
{
    const gemm_matrix b = matrix_of(&call->in[1]);
    int64_t first = tile * SHARED_WIDTH;
    int64_t end = first + SHARED_WIDTH < p->n ? first + SHARED_WIDTH : p->n;
    gemm_pack_panels(&b, first, end, p->k, (T *)call->scratch + first * p->k);
}

KERNEL(matmul)
{
    const weft_tensor *ta = &call->in[0], *tb = &call->in[1], *tc = &call->out[0];
    const product p = product_of(call);
    if (call->phase == 0) {
        pack_shared(call, &p, tile);
        return;
    }
    int64_t tiles = p.tiles_m * p.tiles_n, batch = tile / tiles, row, column;
    tile_at(&p, tile % tiles, &row, &column);
    int64_t m = row + p.tile_m < p.m ? p.tile_m : p.m - row;
    int64_t n = column + p.tile_n < p.n ? p.tile_n : p.n - column;
    gemm_matrix a = matrix_of(ta), b = matrix_of(tb);
    if (p.rows_joined)
        a = (gemm_matrix){ta->data, joined_stride(ta, p.k), 1};
    else {
        a.data += batch_offset(ta, tc, batch);
        b.data += batch_offset(tb, tc, batch);
    }
    a.data += row * a.row;
    b.data += column * b.column;
    T *c = (T *)tc->data + (batch * p.m + row) * p.n + column;
    if (p.k == 0)
        for (int64_t i = 0; i < m; i++) memset(c + i * p.n, 0, (size_t)n * sizeof *c);
    else if (!gemm_is_own(tc->dtype))
        call_library(&p, m, n, &a, &b, c);
    else if (!p.shared && m < PACKING_ROWS && b.row == 1 && b.column != 1 && a.column == 1)
        gemm_dots(m, n, p.k, &a, &b, c, p.n);
    else
        gemm_tile(&(gemm_task){.m = m,
                               .n = n,
                               .k = p.k,
                               .a = a,
                               .b = b,
                               .panels = p.shared ? (T *)call->scratch + column * p.k : NULL,
                               .direct = b.column == 1 && m < PACKING_ROWS,
                               .c = c,
                               .c_row = p.n,
                               .workspace = weft_call_workspace(call),
                               .name = 1 + batch * p.tiles_m + row / p.tile_m,
                               .panel_tag = weft_call_panel_tag(call),
                               .next = column + n == p.n && row + m < p.m});
}

#else

#include <weft/measure.h>
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>

static int64_t tiles_matmul(const weft_call *call)
{
    product p = product_of(call);
    if (call->phase == 0) return p.shared ? ceil_div(p.n, SHARED_WIDTH) : 0;
    return p.batches * p.tiles_m * p.tiles_n;
}

static void block_matmul(const weft_call *call, int64_t tile, weft_block *block)
{
    product p = product_of(call);
    *block = (weft_block){0, 0, 0, 0};
    if (!p.tiles_m) return;
    int64_t tiles = p.tiles_m * p.tiles_n, row, column;
    tile_at(&p, tile % tiles, &row, &column);
    block->row = tile / tiles * p.m + row;
    block->rows = row + p.tile_m < p.m ? p.tile_m : p.m - row;
    block->column = column;
    block->columns = column + p.tile_n < p.n ? p.tile_n : p.n - column;
}

static size_t scratch_matmul(const weft_call *call)
{
    product p = product_of(call);
    return p.shared ? (size_t)(ceil_div(p.n, SHARED_WIDTH) * SHARED_WIDTH * p.k) *
                          weft_dtype_bytes(call->out[0].dtype)
                    : 0;
}

static size_t workspace_matmul(const weft_call *call)
{
    weft_dtype dtype = call->out[0].dtype;
    return gemm_is_own(dtype) ? GEMM_WORKSPACE * weft_dtype_bytes(dtype) : 0;
}

static void cost_matmul(const weft_call *call, weft_cost *cost)
{
    product p = product_of(call);
    double m = (double)p.m, n = (double)p.n, k = (double)p.k, size;
    size = (double)weft_dtype_bytes(call->out[0].dtype);
    cost->flops = 2 * m * n * k * (double)p.batches;
    cost->bytes = size * ((double)weft_shape_numel(call->in[0].shape) +
                          (double)weft_shape_numel(call->in[1].shape) + m * n * (double)p.batches);
}

static bool infer_matmul(weft_infer *infer)
{
    char ta[128], tb[128];
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1) ||
        !weft_infer_min_rank(infer, 0, 2) || !weft_infer_min_rank(infer, 1, 2))
        return false;
    weft_shape a = infer->in[0].shape, b = infer->in[1].shape, out;
    int64_t m = a.dim[a.rank - 2], k = a.dim[a.rank - 1], n = b.dim[b.rank - 1];
    bool fits = k == b.dim[b.rank - 2];
    weft_shape ba = a, bb = b;
    ba.rank -= 2;
    bb.rank -= 2;
    if (!fits || !weft_shape_broadcast(ba, bb, &out) || out.rank > WEFT_MAX_RANK - 2)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s times %s: %s",
                               weft_shape_text(a, ta, sizeof ta), weft_shape_text(b, tb, sizeof tb),
                               fits ? "the leading dimensions do not broadcast"
                                    : "the inner dimensions differ");
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "a dimension is over 2^31 - 1");
    out.dim[out.rank++] = m;
    out.dim[out.rank++] = n;
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    weft_error error = {0};
    return weft_gemm_chosen(infer->in[0].dtype, NULL, &error) == WEFT_OK ||
           weft_infer_fail(infer, error.status, "%s", error.message);
}

/* [..., m, k] as one matrix of all its rows. */
static weft_value flat(weft_graph *g, weft_value x)
{
    return weft_reshape(g, x, WEFT_SHAPE(-1, weft_dim(g, x, -1)));
}

/* da = dy b^T, db = a^T dy. For a b without a batch, db is one product over the rows of all. */
static void vjp_matmul(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value a = v->in[0], b = v->in[1], dy = v->grad_out[0];
    if (v->wanted[0]) v->grad_in[0] = weft_matmul(g, dy, weft_transpose(g, b, -1, -2));
    if (!v->wanted[1]) return;
    if (weft_rank(g, b) == 2 && weft_rank(g, a) > 2 && weft_shape_numel(weft_shape_of(g, dy)) > 0 &&
        weft_dim(g, a, -1) > 0) {
        a = flat(g, a);
        dy = flat(g, dy);
    }
    v->grad_in[1] = weft_matmul(g, weft_transpose(g, a, -1, -2), dy);
}

static const weft_sample samples_matmul[] = {
    {NULL, 2, {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {4, 5}})}},
    {NULL, 2, {UNIT_FLOATS({3, {2, 3, 4}}), UNIT_FLOATS({2, {4, 2}})}},
    {NULL, 2, {UNIT_FLOATS({4, {2, 1, 3, 2}}), UNIT_FLOATS({3, {3, 2, 4}})}},
    {NULL, 2, {UNIT_FLOATS({2, {1, 4}}), UNIT_FLOATS({2, {4, 1}})}},
    {NULL, 2, {UNIT_FLOATS({2, {3, 0}}), UNIT_FLOATS({2, {0, 2}})}},
    {NULL, 2, {UNIT_FLOATS({3, {0, 2, 3}}), UNIT_FLOATS({2, {3, 2}})}},
};
static void onnx_matmul(weft_export *e)
{
    weft_export_same(e, "MatMul");
}

DECLARE_KERNELS(matmul);
extern const weft_op weft_op_matmul;
const weft_op weft_op_matmul = {
    .name = "matmul",
    .doc = "y [..., m, n] = a [..., m, k] b [..., k, n]; leading dimensions broadcast. Transposed "
           "operands are read as they lie.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer_matmul,
    .kernel = FLOAT_KERNELS(matmul),
    .takes = WEFT_TAKES_MATRIX,
    .phases = 2,
    .tiles = tiles_matmul,
    .scratch = scratch_matmul,
    .block = block_matmul,
    .workspace = workspace_matmul,
    .cost = cost_matmul,
    .broadcasts = true,
    .onnx = onnx_matmul,
    .vjp = vjp_matmul,
    .samples = samples_matmul,
    .n_samples = sizeof samples_matmul / sizeof *samples_matmul,
};

weft_value weft_matmul(weft_graph *graph, weft_value a, weft_value b)
{
    return weft_apply(graph, &weft_op_matmul, NULL, (weft_value[]){a, b}, 2, NULL);
}

#endif
