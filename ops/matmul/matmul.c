/* Batched matrix products, O(m n k) each. The batch is a list of [m, k] x [k, n] products; where b
 * has no batch and the rows of a have one stride, the batch of a becomes rows. Each product is cut
 * into tiles of rows and columns, which threads compute one at a time (kernels/gemm_kernel.h, or
 * the library that WEFT_GEMM names). */
#include "product.h"

#ifdef WEFT_KERNEL_ISA

static void call_library(const product *p, int64_t m, int64_t n, const gemm_matrix *a,
                         const gemm_matrix *b, T *c)
{
    gemm_call call = library_call(m, n, p->k, a, b);
    call.c = c;
    call.ldc = p->n;
#if KERNEL_IS(f32)
    weft__gemm_f32(&call);
#else
    weft__gemm_f64(&call);
#endif
}

static gemm_matrix matrix_a(const weft_call *call, const product *p)
{
    const weft_tensor *a = &call->in[0];
    return p->rows_joined ? (gemm_matrix){a->data, joined_stride(a, p->k), 1} : matrix_of(a);
}

static void pack_shared(const weft_call *call, const product *p, int64_t tile)
{
    if (p->shared == SHARED_A) {
        const gemm_matrix a = matrix_a(call, p);
        const int64_t row = tile * SHARED_ROWS, left = p->m - row;
        gemm_pack_blocks(&a, p->m, row, left < SHARED_ROWS ? left : SHARED_ROWS, p->k,
                         call->scratch);
        return;
    }
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
    gemm_matrix a = matrix_a(call, &p), b = matrix_of(tb);
    if (!p.rows_joined) {
        a.data += batch_offset(ta, tc, batch);
        b.data += batch_offset(tb, tc, batch);
    }
    a.data += row * a.row;
    b.data += column * b.column;
    T *c = (T *)tc->data + (batch * p.m + row) * p.n + column;
    if (p.k == 0)
        for (int64_t i = 0; i < m; i++) memset(c + i * p.n, 0, (size_t)n * sizeof *c);
    else if (!weft__gemm_is_own(tc->dtype))
        call_library(&p, m, n, &a, &b, c);
    else if (product_by_dots(&p, m, &a, &b))
        gemm_dots(m, n, p.k, &a, &b, c, p.n);
    else
        gemm_tile(
            &(gemm_task){.m = m,
                         .n = n,
                         .k = p.k,
                         .a = a,
                         .b = b,
                         .panels = p.shared == SHARED_B ? (T *)call->scratch + column * p.k : NULL,
                         .blocks = p.shared == SHARED_A ? call->scratch : NULL,
                         .all_rows = p.m,
                         .row = row,
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
#include "batch.h"
#include "passes.h"
#include "samples.h"

#include "ir/isa.h"
#include "kernels/bf16_kernel.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static int64_t tiles_matmul(const weft_call *call)
{
    product p = product_of(call);
    if (call->phase == 0) return shared_tiles(&p);
    return p.batches * p.tiles_m * p.tiles_n;
}

static void block_matmul(const weft_call *call, int64_t tile, weft_block *block)
{
    product p = product_of(call);
    *block = (weft_block){0, 0, 0, 0};
    if (!p.tiles_m) return;
    int64_t row, column;
    tile_at(&p, tile % (p.tiles_m * p.tiles_n), &row, &column);
    *block = product_block(&p, tile, row, column);
}

/* Whether the kernel of bf16 packs pairs: see kernels/bf16_kernel.h. */
static bool bf16_pairs(void)
{
#ifdef WEFT_KERNEL_BF16
    return weft__isa_best() == WEFT_ISA_V4_BF16;
#else
    return false;
#endif
}

static size_t scratch_matmul(const weft_call *call)
{
    const product p = product_of(call);
    const bool narrow = product_is_narrow(call);
    const int64_t steps = narrow ? bf16_steps(p.k, bf16_pairs()) : p.k;
    return (size_t)shared_elements(&p, steps) *
           (narrow ? sizeof(float) : weft_dtype_bytes(call->out[0].dtype));
}

/* What a library's product of bf16 needs in addition to its operands: see call_library in
 * matmul_bf16.c. */
static size_t library_workspace(const weft_call *call, const product *p)
{
    const int64_t sums = call->out[0].dtype == WEFT_BF16 ? p->tile_m * p->tile_n : 0;
    const int64_t rows = call->in[0].dtype == WEFT_F32 ? p->tile_m : 0;
    const int64_t columns = call->in[1].dtype == WEFT_F32 ? p->tile_n : 0;
    return (size_t)sums * sizeof(float) + (size_t)((rows + columns) * p->k) * sizeof(uint16_t);
}

static size_t workspace_matmul(const weft_call *call)
{
    weft_dtype dtype = call->out[0].dtype;
    const product p = product_of(call);
    const bool narrow = product_is_narrow(call);
    if (!product_is_own(call)) return narrow ? library_workspace(call, &p) : 0;
    if (!p.tiles_m) return 0;
    const int64_t m = p.m < p.tile_m ? p.m : p.tile_m, n = p.n < p.tile_n ? p.n : p.tile_n;
    const int64_t rows = p.shared == SHARED_A ? 0 : m; /* that a tile packs */
    if (!narrow) return (size_t)gemm_workspace(rows, p.k) * weft_dtype_bytes(dtype);
    return (size_t)(bf16_workspace(rows, p.k, bf16_pairs()) + m * n) * sizeof(float);
}

void weft__product_cost(const weft_call *call, weft_cost *cost)
{
    product p = product_of(call);
    double m = (double)p.m, n = (double)p.n, k = (double)p.k, size;
    size = (double)weft_dtype_bytes(call->out[0].dtype);
    cost->flops = 2 * m * n * k * (double)p.batches;
    cost->bytes = size * ((double)weft_shape_numel(call->in[0].shape) +
                          (double)weft_shape_numel(call->in[1].shape) + m * n * (double)p.batches);
}

bool weft__product_infer(weft_infer *infer)
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
    return weft_reshape(g, x, WEFT_SHAPE(-1, weft_dim_of(g, x, -1)));
}

/* da = dy b^T, db = a^T dy. For a b without a batch, db is one product over the rows of all. */
void weft__product_vjp(weft_vjp *v, product_builder *multiply)
{
    weft_graph *g = v->graph;
    weft_value a = v->in[0], b = v->in[1], dy = v->grad_out[0];
    if (v->wanted[0]) v->grad_in[0] = multiply(g, dy, weft_transpose(g, b, -1, -2));
    if (!v->wanted[1]) return;
    if (weft_rank_of(g, b) == 2 && weft_rank_of(g, a) > 2 &&
        weft_shape_numel(weft_shape_of(g, dy)) > 0 && weft_dim_of(g, a, -1) > 0) {
        a = flat(g, a);
        dy = flat(g, dy);
    }
    v->grad_in[1] = multiply(g, weft_transpose(g, a, -1, -2), dy);
}

static void vjp_matmul(weft_vjp *v)
{
    weft__product_vjp(v, weft_matmul);
}

/* The batch is in front of the dimensions that broadcast. With one b for all, all rows are one matrix. */
void weft__product_batch(weft_batch *b, product_builder *multiply)
{
    weft_graph *g = b->graph;
    const int ranks[] = {weft_rank_of(g, b->one_in[0]), weft_rank_of(g, b->one_in[1])};
    const int rank = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
    weft_value in[2];
    const int64_t inner = weft_dim_of(g, b->in[0], -1);
    if (!b->batched[1] && ranks[1] == 2 && inner > 0) {
        const weft_value rows = multiply(g, flat(g, b->in[0]), b->in[1]);
        b->out[0] = weft__batch_unfold(b, rows, b->one_out[0]);
        return;
    }
    for (int i = 0; i < 2; i++)
        in[i] = b->batched[i] ? weft__batch_align(g, b->in[i], rank) : b->in[i];
    b->out[0] = multiply(g, in[0], in[1]);
}

static void batch_matmul(weft_batch *b)
{
    weft__product_batch(b, weft_matmul);
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

/* A matrix for C: the strides of its rows and columns, and whether its rows, or else its columns, are
 * dense. */
typedef struct source_matrix {
    int64_t row, column;
    bool dense_rows;
} source_matrix;

static source_matrix source_matrix_of(const weft_tensor *t)
{
    const int rank = t->shape.rank;
    const int64_t m = t->shape.dim[rank - 2], n = t->shape.dim[rank - 1];
    const int64_t row = t->stride[rank - 2], column = t->stride[rank - 1];
    return (source_matrix){row, column, (n == 1 || column == 1) && (m == 1 || row >= n)};
}

/* The strides of a batch in operand t. */
static void batch_strides(const weft_tensor *t, const weft_tensor *c, int64_t stride[WEFT_MAX_RANK])
{
    for (int d = 0; d < c->shape.rank - 2; d++) {
        const int axis = d - (c->shape.rank - t->shape.rank);
        stride[d] = axis < 0 || t->shape.dim[axis] == 1 ? 0 : t->stride[axis];
    }
}

void weft__product_source(weft_source *s, const product *p, int64_t first, int64_t m,
                          product_form form)
{
    static const char *const names[][2] = {
        {"matmul_chain", "matmul_batch"},
        {"matmul_dots", "matmul_batch_dots"},
        {"matmul_tiles", "matmul_batch_tiles"},
    };
    const weft_call call = {.in = s->in, .out = s->out, .n_in = 2, .n_out = 1};
    const bool dots = form == PRODUCT_DOTS, narrow = product_is_narrow(&call);
    const weft_tensor *c = &s->out[0];
    const source_matrix a = source_matrix_of(&s->in[0]), b = source_matrix_of(&s->in[1]);
    const int batch_rank = p->rows_joined ? 0 : c->shape.rank - 2;
    int64_t row = a.row, as[WEFT_MAX_RANK], bs[WEFT_MAX_RANK];
    if (p->rows_joined)
        for (int d = s->in[0].shape.rank - 2, found = 0; d >= 0 && !found; d--)
            if (s->in[0].shape.dim[d] != 1) {
                row = s->in[0].stride[d];
                found = 1;
            }
    batch_strides(&s->in[0], c, as);
    batch_strides(&s->in[1], c, bs);
    const weft_source_arg batch[] = {WEFT_ARG_INT(p->m * p->n),
                                     WEFT_ARG_INT(m),
                                     WEFT_ARG_INT(p->n),
                                     WEFT_ARG_INT(p->k),
                                     WEFT_ARG_INT(batch_rank),
                                     WEFT_ARG_INTS(c->shape.dim, (size_t)batch_rank),
                                     WEFT_ARG_INTS(as, (size_t)batch_rank),
                                     WEFT_ARG_INTS(bs, (size_t)batch_rank)};
    weft_source_arg args[24];
    size_t n = 0;
    args[n++] = WEFT_ARG_IN_AT(0, first * row);
    args[n++] = WEFT_ARG_INT(row);
    if (!dots) args[n++] = WEFT_ARG_INT(a.column);
    args[n++] = WEFT_ARG_IN(1);
    if (!dots) args[n++] = WEFT_ARG_INT(b.row);
    args[n++] = WEFT_ARG_INT(b.column);
    args[n++] = WEFT_ARG_OUT_AT(0, first * p->n);
    if (batch_rank) {
        memcpy(args + n, batch, sizeof batch);
        n += sizeof batch / sizeof *batch;
        weft_source_call_of(s, names[form][1], args, n);
        return;
    }
    args[n++] = WEFT_ARG_INT(p->n);
    args[n++] = WEFT_ARG_INT(m);
    args[n++] = WEFT_ARG_INT(p->n);
    args[n++] = WEFT_ARG_INT(p->k);
    if (form == PRODUCT_CHAINS && !narrow && row == p->k && a.column == 1 && b.row == p->n &&
        b.column == 1) {
        const weft_source_arg dense[] = {
            args[0], args[3], args[6], WEFT_ARG_INT(m), WEFT_ARG_INT(p->n), WEFT_ARG_INT(p->k)};
        weft_source_call_of(s, "matmul_dense", dense, sizeof dense / sizeof *dense);
        return;
    }
    weft_source_call_of(s, names[form][0], args, n);
}

/* Rows are computed by dots where a tile has few: the last tile may have fewer than the others. */
static void source_matmul(weft_source *s)
{
    const weft_call call = {.in = s->in, .out = s->out, .n_in = 2, .n_out = 1};
    const product p = product_of(&call);
    const source_matrix a = source_matrix_of(&s->in[0]), b = source_matrix_of(&s->in[1]);
    const bool plain = b.dense_rows, dense_a = p.rows_joined || a.dense_rows;
    const bool dense_b = !plain || (p.n == 1 && (p.k == 1 || b.row == 1));
    const bool dots = !product_is_narrow(&call) && !p.shared && dense_a && dense_b &&
                      p.k >= (p.n < DOT_COLUMNS ? MIN_FEW_DOT : MIN_DOT);
    if (!p.tiles_m) {
        weft__product_source(s, &p, 0, 0, PRODUCT_CHAINS);
        return;
    }
    for (int64_t first = 0; first < p.m;) {
        /* Tiles of one form are written together. */
        const int64_t left = p.m - first, whole = left / p.tile_m * p.tile_m;
        const int64_t rows = whole ? whole : left, tile = whole ? p.tile_m : left;
        const bool by_dots = dots && (p.n == 1 || (tile < PACKING_ROWS && !plain));
        weft__product_source(s, &p, first, rows, by_dots ? PRODUCT_DOTS : PRODUCT_CHAINS);
        first += rows;
    }
}

DECLARE_KERNELS(matmul);
DECLARE_KERNEL_(matmul_bf16, f32);
DECLARE_DOTS_KERNEL(matmul_bf16);
extern const weft_op weft_op_matmul;
const weft_op weft_op_matmul = {
    .name = "matmul",
    .doc = "y [..., m, n] = a [..., m, k] b [..., k, n]; leading dimensions broadcast. Transposed "
           "operands are read as they lie.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = weft__product_infer,
    .kernel = {NARROW_ROWS(matmul, matmul_bf16) DOTS_ROWS(matmul_bf16)},
    .takes = WEFT_TAKES_MATRIX,
    .narrow_in = 3,
    .narrow_out = 1,
    PASSES(&weft__pass_join_products, &weft__pass_tiles, &weft__pass_pack_weights),
    .phases = 2,
    .tiles = tiles_matmul,
    .scratch = scratch_matmul,
    .block = block_matmul,
    .workspace = workspace_matmul,
    .cost = weft__product_cost,
    .broadcasts = true,
    .onnx = onnx_matmul,
    .source = source_matmul,
    .batch = batch_matmul,
    .vjp = vjp_matmul,
    .samples = samples_matmul,
    .n_samples = sizeof samples_matmul / sizeof *samples_matmul,
};

weft_value weft_matmul(weft_graph *graph, weft_value a, weft_value b)
{
    return weft_apply(graph, &weft_op_matmul, NULL, (weft_value[]){a, b}, 2, NULL);
}

#endif
