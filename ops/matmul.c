/* Batched matrix products. The batch is laid out as a list of [m, k] x [k, n] products; where b has
 * no batch of its own and the rows of a lie at one stride, the batch of a becomes rows. Each
 * product is cut into tiles of rows and columns, each one BLAS call on one thread. */
#include "gemm.h"

#include <weft/ops.h>

#include <string.h>

/* About the flops of one tile: enough to hide the packing that BLAS does for each call. */
#define TILE_FLOPS 8e6
#define MOST_TILES 32

typedef struct product {
    int64_t m, n, k, batches;
    int64_t tile_m, tile_n, tiles_m, tiles_n;
    bool rows_joined; /* the batch of a is part of m */
} product;

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* a's stride from row to row if all its leading dimensions lie at multiples of it, else 0. */
static bool rows_join(const weft_tensor *a, const weft_tensor *b)
{
    if (b->shape.rank != 2) return false;
    int64_t rank = a->shape.rank, expected = a->stride[rank - 2] * a->shape.dim[rank - 2];
    if (a->shape.dim[rank - 1] != 1 && a->stride[rank - 1] != 1) return false;
    for (int64_t d = rank - 3; d >= 0; d--) {
        if (a->shape.dim[d] != 1 && (a->stride[d] != expected || expected < a->shape.dim[rank - 1]))
            return false;
        expected = a->shape.dim[d] * expected;
    }
    return true;
}

/* Cuts the larger of rows and columns in two until there are enough tiles; edges at multiples of 64
 * or 48 rows keep BLAS's own blocks whole. */
static void cut(product *p)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    double wanted = flops / TILE_FLOPS;
    int64_t most = divide_up(MOST_TILES, p->batches < MOST_TILES ? p->batches : MOST_TILES);
    int64_t tiles = wanted < 1 ? 1 : wanted > (double)most ? most : (int64_t)wanted;
    p->tiles_m = p->tiles_n = 1;
    while (p->tiles_m * p->tiles_n * 2 <= tiles) {
        int64_t rows = p->m / p->tiles_m, columns = p->n / p->tiles_n;
        if (rows < 128 && columns < 128) break;
        if (rows >= columns)
            p->tiles_m *= 2;
        else
            p->tiles_n *= 2;
    }
    p->tile_m = divide_up(divide_up(p->m, p->tiles_m), 32) * 32;
    p->tile_n = divide_up(divide_up(p->n, p->tiles_n), 32) * 32;
    p->tiles_m = divide_up(p->m, p->tile_m);
    p->tiles_n = divide_up(p->n, p->tile_n);
}

static product product_of(const weft_call *call)
{
    const weft_tensor *a = &call->in[0], *b = &call->in[1], *c = &call->out[0];
    int rank = c->shape.rank;
    product p = {.m = c->shape.dim[rank - 2],
                 .n = c->shape.dim[rank - 1],
                 .k = a->shape.dim[a->shape.rank - 1],
                 .batches = 1};
    p.rows_joined = rows_join(a, b);
    for (int d = 0; d < rank - 2; d++) *(p.rows_joined ? &p.m : &p.batches) *= c->shape.dim[d];
    if (p.m > 0 && p.n > 0 && p.batches > 0) cut(&p);
    return p;
}

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

/* A matrix as BLAS takes it: transposed if its rows, not its columns, lie at stride 1. */
typedef struct matrix {
    bool transposed;
    int64_t leading, row, column; /* strides */
} matrix;

static matrix matrix_of(const weft_tensor *t)
{
    int rank = t->shape.rank;
    int64_t m = t->shape.dim[rank - 2], n = t->shape.dim[rank - 1];
    int64_t row = t->stride[rank - 2], column = t->stride[rank - 1];
    bool plain = (n == 1 || column == 1) && (m == 1 || row >= n);
    if (plain) return (matrix){false, m == 1 ? n : row, m == 1 ? n : row, 1};
    return (matrix){true, n == 1 ? m : column, 1, n == 1 ? m : column};
}

static void multiply(const weft_call *call, int64_t part)
{
    const weft_tensor *a = &call->in[0], *b = &call->in[1], *c = &call->out[0];
    product p = product_of(call);
    int64_t tiles = p.tiles_m * p.tiles_n, batch = part / tiles, tile = part % tiles;
    int64_t row = tile / p.tiles_n * p.tile_m, column = tile % p.tiles_n * p.tile_n;
    int64_t m = row + p.tile_m < p.m ? p.tile_m : p.m - row;
    int64_t n = column + p.tile_n < p.n ? p.tile_n : p.n - column;
    matrix ma = matrix_of(a), mb = matrix_of(b);
    if (p.rows_joined) {
        /* One matrix of all rows, at the stride that they share. */
        int64_t stride = a->stride[a->shape.rank - 2];
        for (int d = a->shape.rank - 3; a->shape.dim[a->shape.rank - 2] == 1 && d >= 0; d--)
            if (a->shape.dim[d] != 1) {
                stride = a->stride[d];
                break;
            }
        ma = (matrix){false, stride < p.k ? p.k : stride, stride, 1};
    }
    int64_t at_a = (p.rows_joined ? 0 : batch_offset(a, c, batch)) + row * ma.row;
    int64_t at_b = (p.rows_joined ? 0 : batch_offset(b, c, batch)) + column * mb.column;
    int64_t at_c = (batch * p.m + row) * p.n + column;
    if (c->dtype == WEFT_F32) {
        float *out = (float *)c->data + at_c;
        if (p.k == 0)
            for (int64_t i = 0; i < m; i++) memset(out + i * p.n, 0, (size_t)n * sizeof *out);
        else
            gemm_f32(ma.transposed, mb.transposed, m, n, p.k, (const float *)a->data + at_a,
                     ma.leading, (const float *)b->data + at_b, mb.leading, out, p.n);
    } else {
        double *out = (double *)c->data + at_c;
        if (p.k == 0)
            for (int64_t i = 0; i < m; i++) memset(out + i * p.n, 0, (size_t)n * sizeof *out);
        else
            gemm_f64(ma.transposed, mb.transposed, m, n, p.k, (const double *)a->data + at_a,
                     ma.leading, (const double *)b->data + at_b, mb.leading, out, p.n);
    }
}

static int64_t parts_matmul(const weft_call *call)
{
    product p = product_of(call);
    return p.batches * p.tiles_m * p.tiles_n;
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
    return gemm_load(&error) == WEFT_OK ||
           weft_infer_fail(infer, error.status, "%s", error.message);
}

/* [..., m, k] as one matrix of all its rows. */
static weft_value flat(weft_graph *g, weft_value x)
{
    return weft_reshape(g, x, WEFT_SHAPE(-1, weft_dim(g, x, -1)));
}

/* da = dy b^T, db = a^T dy. A matrix b that serves a whole batch gets one product over all rows. */
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

#define F(...)                                                                                     \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -1, 1, false                                                      \
    }
static const weft_sample samples_matmul[] = {
    {NULL, 2, {F({2, {3, 4}}), F({2, {4, 5}})}},
    {NULL, 2, {F({3, {2, 3, 4}}), F({2, {4, 2}})}},
    {NULL, 2, {F({4, {2, 1, 3, 2}}), F({3, {3, 2, 4}})}},
    {NULL, 2, {F({2, {1, 4}}), F({2, {4, 1}})}},
    {NULL, 2, {F({2, {3, 0}}), F({2, {0, 2}})}},
    {NULL, 2, {F({3, {0, 2, 3}}), F({2, {3, 2}})}},
};
extern const weft_op weft_op_matmul;
const weft_op weft_op_matmul = {
    .name = "matmul",
    .doc = "y [..., m, n] = a [..., m, k] b [..., k, n]; leading dimensions broadcast. Transposed "
           "operands are read as they lie.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer_matmul,
    .kernel = {{[WEFT_F32] = multiply, [WEFT_F64] = multiply}},
    .takes = WEFT_TAKES_MATRIX,
    .parts = parts_matmul,
    .cost = cost_matmul,
    .broadcasts = true,
    .vjp = vjp_matmul,
    .samples = samples_matmul,
    .n_samples = sizeof samples_matmul / sizeof *samples_matmul,
};

weft_value weft_matmul(weft_graph *graph, weft_value a, weft_value b)
{
    return weft_apply(graph, &weft_op_matmul, NULL, (weft_value[]){a, b}, 2, NULL);
}
