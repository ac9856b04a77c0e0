/* matmul_quantized: products with a matrix of 8 or 4 bits, O(m n k); embedding_quantized: rows of
 * one, O(elements of the result).
 *
 * A product of one row or a few, as a token step computes them, takes as long as its matrix
 * takes to be read. Quantised weights have a quarter or less of the bytes of f32. Rows of x are
 * quantised in a first phase; then threads compute tiles of columns, whose weights stay in the
 * second-level cache while all rows of x pass over them, eight at a time
 * (kernels/quantized_kernel.h, kernels/quantized_panel.h). */
#include "kernels/quantized_panel_avx2.h"
#include "kernels/quantized_panel_vnni.h"

typedef struct quantized_attr {
    int32_t bits, group;
    bool whole;   /* x has whole numbers in [-128, 127], which are not rounded */
    bool none[3]; /* in place of padding: attributes are compared byte by byte */
} quantized_attr;

/* Rows of x of a tile; the bytes of its weights; the fewest columns; elements that a tile of the
 * first phase quantises. */
#define TILE_ROWS    256
#define TILE_BYTES   (128 << 10)
#define FEW_COLUMNS  16
#define ROW_ELEMENTS 16384

typedef struct product {
    int64_t m, n, k, chunks;
    int bits;
    bool minima; /* instead of zero points */
    int64_t tile_n, tiles_m, tiles_n;
    int64_t each; /* rows of a tile of the first phase */
} product;

static inline product product_of(const weft_call *call)
{
    const quantized_attr *attr = call->attr;
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const int last = y->shape.rank - 1;
    product p = {.m = 1, .n = y->shape.dim[last], .k = x->shape.dim[last], .bits = attr->bits};
    for (int d = 0; d < last; d++) p.m *= y->shape.dim[d];
    p.minima = call->in[3].dtype != WEFT_U8;
    p.chunks = quantized_chunks(p.k);
    const int64_t row = p.k ? p.k * p.bits / 8 : 1;
    p.tile_n = TILE_BYTES / row / FEW_COLUMNS * FEW_COLUMNS;
    if (p.tile_n < FEW_COLUMNS) p.tile_n = FEW_COLUMNS;
    p.tiles_n = ceil_div(p.n, p.tile_n);
    p.tiles_m = ceil_div(p.m, TILE_ROWS);
    p.each = p.k < ROW_ELEMENTS ? ROW_ELEMENTS / (p.k ? p.k : 1) : 1;
    return p;
}

/* Tiles of the same columns are neighbours. */
static inline weft_block block_at(const product *p, int64_t tile)
{
    weft_block b = {.row = tile % p->tiles_m * TILE_ROWS, .column = tile / p->tiles_m * p->tile_n};
    b.rows = p->m - b.row < TILE_ROWS ? p->m - b.row : TILE_ROWS;
    b.columns = p->n - b.column < p->tile_n ? p->n - b.column : p->tile_n;
    return b;
}

/* Bytes of a thread's workspace for a row of weights. Those for rows of x in 16 bits follow. */
static inline int64_t row_bytes(const product *p, int64_t element)
{
    return quantized_row_bytes(p->k, element, p->minima);
}

/* Rows that a tile of embedding_quantized looks up. */
static inline int64_t rows_of_tile(int64_t features)
{
    return TILE / (features ? features : 1) + 1;
}

#ifdef WEFT_KERNEL_ISA

/* Where the first phase leaves the quantised rows of x. */
static quantized_rows rows_of(const weft_call *call, const product *p)
{
    const int64_t blocks = p->m * p->chunks * QUANTIZED_LANES;
    quantized_rows r = {.scale = call->scratch, .chunks = p->chunks};
    r.sum = (int32_t *)(void *)(r.scale + blocks);
    r.q = (int8_t *)(r.sum + blocks);
    return r;
}

static quantized_matrix matrix_of(const weft_call *call, const product *p)
{
    const quantized_attr *attr = call->attr;
    quantized_matrix m = {.q = call->in[1].data,
                          .scale = call->in[2].data,
                          .blocks = p->k / QUANTIZED_BLOCK,
                          .each = attr->group / QUANTIZED_BLOCK,
                          .scales = weft_call_workspace(call)};
    m.words = (int16_t *)(void *)((char *)m.scales + row_bytes(p, sizeof(T)));
    m.minima = m.scales + p->chunks * QUANTIZED_LANES;
    m.zeros = (uint8_t *)m.minima;
    if (p->minima)
        m.minimum = call->in[3].data;
    else
        m.zero = call->in[3].data;
    return m;
}

#if defined(__AVX512F__)
/* The function of whole panels on AVX512_VNNI. Where all scales are 1, and the sums of all of k are
 * exact in an int and as a T, they need not be those of blocks. */
static quantized_panel_function *vnni_function_of(const quantized_attr *attr, const product *p,
                                                  const quantized_panel *panel)
{
    const int64_t largest = sizeof(T) == 4 ? 1 << 24 : INT32_MAX;
    bool exact = attr->whole && attr->bits == 8 && !p->minima && attr->group == p->k &&
                 p->k <= largest / (128 * 255);
    for (int n = 0; exact && n < QUANTIZED_COLUMNS; n++) exact = panel->scale[n] == 1;
    if (exact) return quantized_vnni_whole;
    if (p->minima) return attr->bits == 8 ? quantized_vnni_8_1 : quantized_vnni_4_1;
    return attr->bits == 8 ? quantized_vnni_8_0 : quantized_vnni_4_0;
}
#endif

#if defined(__AVX2__)
/* Packs columns from `column` on, and returns the function that multiplies with them. */
static quantized_panel_function *pack_panel(const weft_call *call, const product *p,
                                            const quantized_matrix *m, int64_t column, bool vnni,
                                            const quantized_panel *panel)
{
#if defined(__AVX512F__)
    if (vnni) {
        quantized_pack(p->bits, m, column, p->chunks, panel, quantized_pack_vnni,
                       QUANTIZED_VNNI_BYTES);
        return vnni_function_of(call->attr, p, panel);
    }
#endif
    (void)call, (void)vnni;
    quantized_pack(p->bits, m, column, p->chunks, panel, quantized_pack_avx2,
                   QUANTIZED_AVX2_BYTES(p->bits));
    if (p->minima) return p->bits == 8 ? quantized_avx2_8_1 : quantized_avx2_4_1;
    return p->bits == 8 ? quantized_avx2_8_0 : quantized_avx2_4_0;
}
#endif

/* Multiplies as many rows and columns of the block as fill panels and their functions; *b becomes
 * the remaining columns. */
static void multiply_panels(const weft_call *call, const product *p, const quantized_rows *x,
                            const quantized_matrix *m, bool vnni, weft_block *b)
{
#if defined(__AVX2__)
    char *space = (char *)weft_call_workspace(call) + row_bytes(p, sizeof(T)) +
                  quantized_words_bytes(p->m, p->k, p->bits);
    const quantized_panel panel = quantized_panel_at(space, m->blocks, p->chunks);
    const int64_t end = b->row + b->rows, tall = b->rows / QUANTIZED_ROWS * QUANTIZED_ROWS;
    for (; b->columns >= QUANTIZED_COLUMNS; b->column += QUANTIZED_COLUMNS) {
        T *y = (T *)call->out[0].data + b->column;
        quantized_panel_function *const products = pack_panel(call, p, m, b->column, vnni, &panel);
        for (int64_t i = b->row; i < b->row + tall; i += QUANTIZED_ROWS)
            products(x, i, &panel, y + i * p->n, p->n);
        for (int64_t i = b->row + tall; i < end; i++)
            quantized_function_of(1, p->bits, vnni, p->minima)(
                x, i, m, b->column, QUANTIZED_COLUMNS, y + i * p->n, p->n);
        b->columns -= QUANTIZED_COLUMNS;
    }
#else
    (void)call, (void)p, (void)x, (void)m, (void)vnni, (void)b;
#endif
}

static void multiply(const weft_call *call, const product *p, const weft_block *whole, bool vnni)
{
    const quantized_rows x = rows_of(call, p);
    const quantized_matrix m = matrix_of(call, p);
    weft_block left = *whole, *b = &left;
    if (b->rows >= (vnni ? QUANTIZED_VNNI_ROWS : QUANTIZED_MIN_ROWS))
        multiply_panels(call, p, &x, &m, vnni, b);
    if (!b->columns) return;
    for (int64_t i = b->row, rows; i < b->row + b->rows; i += rows) {
        const int64_t rest = b->row + b->rows - i;
        rows = rest >= QUANTIZED_ROWS ? QUANTIZED_ROWS : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
        quantized_function_of((int)rows, p->bits, vnni, p->minima)(
            &x, i, &m, b->column, b->columns, (T *)call->out[0].data + i * p->n + b->column, p->n);
    }
}

KERNEL(matmul_quantized)
{
    const quantized_attr *attr = call->attr;
    const product p = product_of(call);
    if (call->phase == 0) {
        const quantized_rows rows = rows_of(call, &p);
        const int64_t end = (tile + 1) * p.each < p.m ? (tile + 1) * p.each : p.m;
        for (int64_t i = tile * p.each; i < end; i++)
            quantized_row((const T *)call->in[0].data + i * p.k, p.k, p.bits, attr->whole, &rows,
                          i);
        return;
    }
    bool vnni = false;
#if defined(__AVX512F__)
    vnni = __builtin_cpu_supports("avx512vnni");
#endif
    const weft_block b = block_at(&p, tile);
    multiply(call, &p, &b, vnni);
}

KERNEL(embedding_quantized)
{
    const quantized_attr *attr = call->attr;
    const weft_tensor *table = &call->in[0];
    const int64_t rows = table->shape.dim[0], bytes = table->shape.dim[1];
    const int64_t groups = call->in[1].shape.dim[1], n = numel_of(&call->in[3].shape);
    const int64_t features = bytes * 8 / attr->bits, each = rows_of_tile(features);
    const int32_t *index = call->in[3].data;
    for (int64_t i = tile * each; i < n && i < (tile + 1) * each; i++) {
        T *out = (T *)call->out[0].data + i * features;
        if (index[i] < 0 || index[i] >= rows) {
            memset(out, 0, (size_t)features * sizeof *out);
            weft_call_fail(call, index[i], rows);
            continue;
        }
        const uint8_t *q = (const uint8_t *)table->data + index[i] * bytes;
        const T *scale = (const T *)call->in[1].data + index[i] * groups;
        const bool minima = call->in[2].dtype != WEFT_U8;
        for (int64_t c = 0; c < features; c++) {
            const int64_t g = c / attr->group, at = index[i] * groups + g;
            const int number = attr->bits == 8 ? q[c] : q[c / 2] >> c % 2 * 4 & 15;
            out[c] = minima ? scale[g] * (T)number + ((const T *)call->in[2].data)[at]
                            : scale[g] * (T)(number - ((const uint8_t *)call->in[2].data)[at]);
        }
    }
}

#else

#include "batch.h"
#include "quantize.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

static int64_t tiles_quantized(const weft_call *call)
{
    const product p = product_of(call);
    if (p.m == 0 || p.n == 0) return 0;
    return call->phase == 0 ? ceil_div(p.m, p.each) : p.tiles_m * p.tiles_n;
}

static void block_quantized(const weft_call *call, int64_t tile, weft_block *block)
{
    const product p = product_of(call);
    *block = p.m == 0 || p.n == 0 ? (weft_block){0, 0, 0, 0} : block_at(&p, tile);
}

static size_t scratch_quantized(const weft_call *call)
{
    const product p = product_of(call);
    const size_t block = QUANTIZED_BLOCK + sizeof(int32_t) + weft_dtype_bytes(call->out[0].dtype);
    return (size_t)(p.m * p.chunks * QUANTIZED_LANES) * block;
}

static size_t workspace_quantized(const weft_call *call)
{
    const product p = product_of(call);
    const int64_t element = (int64_t)weft_dtype_bytes(call->out[0].dtype);
    const bool panels = p.m >= QUANTIZED_MIN_ROWS && p.n >= QUANTIZED_COLUMNS;
    return (size_t)(row_bytes(&p, element) + quantized_words_bytes(p.m, p.k, p.bits) +
                    (panels ? quantized_panel_bytes(p.k, element) : 0));
}

static void cost_quantized(const weft_call *call, weft_cost *cost)
{
    const product p = product_of(call);
    cost->flops = 2 * (double)p.m * (double)p.n * (double)p.k;
    cost->bytes = 0;
    for (size_t i = 0; i < call->n_in; i++)
        cost->bytes += (double)weft_tensor_bytes(call->in[i].dtype, call->in[i].shape);
    cost->bytes += (double)weft_tensor_bytes(call->out[0].dtype, call->out[0].shape);
}

static bool check_attr(weft_infer *infer)
{
    const quantized_attr *attr = infer->attr;
    if (attr->bits != 8 && attr->bits != 4)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%d bits, expected 8 or 4", attr->bits);
    if (attr->group < QUANTIZED_BLOCK || attr->group % QUANTIZED_BLOCK)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "groups of %d elements, expected a multiple of %d", attr->group,
                               QUANTIZED_BLOCK);
    return true;
}

/* Input `zero` has zero points, in u8, or minima, which have the dtype of input `like`. */
static bool check_zero(weft_infer *infer, size_t like, size_t zero)
{
    return infer->in[zero].dtype == infer->in[like].dtype || weft_infer_dtype(infer, zero, WEFT_U8);
}

static bool infer_quantized(weft_infer *infer)
{
    char tw[128], tx[128], ts[128], tz[128];
    const quantized_attr *attr = infer->attr;
    if (!check_attr(infer) || !weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 2) ||
        !weft_infer_dtype(infer, 1, WEFT_U8) || !check_zero(infer, 0, 3) ||
        !weft_infer_min_rank(infer, 0, 1))
        return false;
    weft_shape x = infer->in[0].shape, w = infer->in[1].shape;
    const weft_shape scale = infer->in[2].shape, zero = infer->in[3].shape;
    const int64_t k = x.dim[x.rank - 1];
    if (k % attr->group)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "groups of %d elements do not divide rows of %lld", attr->group,
                               (long long)k);
    const weft_shape groups = WEFT_SHAPE(w.dim[0], k / attr->group);
    if (w.rank != 2 || w.dim[1] != k * attr->bits / 8 || !weft_shape_equal(scale, groups) ||
        !weft_shape_equal(zero, groups))
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "%s times %s of %d bits, with scales %s and zero points %s of groups of %d",
            weft_shape_text(x, tx, sizeof tx), weft_shape_text(w, tw, sizeof tw), attr->bits,
            weft_shape_text(scale, ts, sizeof ts), weft_shape_text(zero, tz, sizeof tz),
            attr->group);
    x.dim[x.rank - 1] = w.dim[0];
    infer->out[0] = (weft_type){infer->in[0].dtype, x};
    return true;
}

static bool infer_lookup(weft_infer *infer)
{
    char tw[128], ts[128], tz[128];
    const quantized_attr *attr = infer->attr;
    if (!check_attr(infer) || !weft_infer_dtype(infer, 0, WEFT_U8) || !weft_infer_float(infer, 1) ||
        !check_zero(infer, 1, 2) || !weft_infer_dtype(infer, 3, WEFT_I32))
        return false;
    const weft_shape w = infer->in[0].shape, scale = infer->in[1].shape, zero = infer->in[2].shape;
    const int64_t features = w.rank == 2 ? w.dim[1] * 8 / attr->bits : 0;
    if (w.rank != 2 || features % attr->group ||
        !weft_shape_equal(scale, WEFT_SHAPE(w.dim[0], features / attr->group)) ||
        !weft_shape_equal(zero, scale))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "a table %s of %d bits, with scales %s and zero points %s of groups "
                               "of %d",
                               weft_shape_text(w, tw, sizeof tw), attr->bits,
                               weft_shape_text(scale, ts, sizeof ts),
                               weft_shape_text(zero, tz, sizeof tz), attr->group);
    weft_shape y = infer->in[3].shape;
    if (y.rank == WEFT_MAX_RANK)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "indices have rank %d, expected at most %d",
                               y.rank, WEFT_MAX_RANK - 1);
    y.dim[y.rank++] = features;
    infer->out[0] = (weft_type){infer->in[1].dtype, y};
    return true;
}

static int64_t tiles_lookup(const weft_call *call)
{
    const quantized_attr *attr = call->attr;
    return ceil_div(numel_of(&call->in[3].shape),
                    rows_of_tile(call->in[0].shape.dim[1] * 8 / attr->bits));
}

static void cost_lookup(const weft_call *call, weft_cost *cost)
{
    const quantized_attr *attr = call->attr;
    const double out = (double)weft_tensor_bytes(call->out[0].dtype, call->out[0].shape);
    cost->flops = 0;
    cost->bytes = out + out / (double)weft_dtype_bytes(call->out[0].dtype) * attr->bits / 8;
}

static void source_quantized(weft_source *s)
{
    const quantized_attr *attr = s->attr;
    const product p = product_of(&(weft_call){.in = s->in, .out = s->out, .attr = attr});
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    WEFT_ARG_IN(2),
                                    p.minima ? WEFT_ARG_NONE : WEFT_ARG_IN(3),
                                    p.minima ? WEFT_ARG_IN(3) : WEFT_ARG_NONE,
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_SCRATCH,
                                    WEFT_ARG_INT(p.m),
                                    WEFT_ARG_INT(p.n),
                                    WEFT_ARG_INT(p.k),
                                    WEFT_ARG_INT(attr->bits),
                                    WEFT_ARG_INT(attr->group),
                                    WEFT_ARG_INT(attr->whole)};
    weft_source_call_of(s, "matmul_quantized", args, sizeof args / sizeof *args);
}

static void source_lookup(weft_source *s)
{
    const quantized_attr *attr = s->attr;
    const weft_shape table = s->in[0].shape;
    const bool minima = s->in[2].dtype != WEFT_U8;
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    minima ? WEFT_ARG_NONE : WEFT_ARG_IN(2),
                                    minima ? WEFT_ARG_IN(2) : WEFT_ARG_NONE,
                                    WEFT_ARG_IN(3),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(table.dim[0]),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[3].shape)),
                                    WEFT_ARG_INT(table.dim[1] * 8 / attr->bits),
                                    WEFT_ARG_INT(attr->bits),
                                    WEFT_ARG_INT(attr->group)};
    weft_source_try(s, "embedding_quantized", args, sizeof args / sizeof *args);
}

/* dx = dy times the matrix: x passes as if it were not rounded (the straight-through estimator of
 * Bengio et al. 2013). The matrix has no gradient. */
static void vjp_quantized(weft_vjp *v)
{
    const quantized_attr *attr = v->attr;
    if (attr->whole || v->wanted[2] || v->wanted[3]) {
        weft_graph_fail_in(v->graph, "matmul_quantized", WEFT_NO_GRADIENT,
                           "has a gradient with regard to x only, unless x has whole numbers");
        return;
    }
    const weft_value in[4] = {v->grad_out[0], v->in[1], v->in[2], v->in[3]};
    if (v->wanted[0])
        v->grad_in[0] = weft__matmul_quantized_grad(v->graph, in, attr->bits, attr->group);
}

static void batch_quantized(weft_batch *b)
{
    weft__batch_leading(b, 1);
}

static const quantized_attr bytes_32 = {.bits = 8, .group = 32},
                            nibbles_32 = {.bits = 4, .group = 32},
                            bytes_64 = {.bits = 8, .group = 64},
                            nibbles_96 = {.bits = 4, .group = 96},
                            whole = {.bits = 8, .group = 32, .whole = true};
static const weft_sample samples_quantized[] = {
    {&bytes_32,
     4,
     {UNIT_FLOATS({2, {3, 64}}), BYTES({2, {5, 64}}), SCALES({2, {5, 2}}), BYTES({2, {5, 2}})}},
    {&nibbles_32,
     4,
     {UNIT_FLOATS({3, {2, 3, 32}}), BYTES({2, {4, 16}}), SCALES({2, {4, 1}}),
      NIBBLES({2, {4, 1}})}},
    {&bytes_64,
     4,
     {UNIT_FLOATS({2, {9, 640}}), BYTES({2, {33, 640}}), SCALES({2, {33, 10}}),
      BYTES({2, {33, 10}})}},
    {&nibbles_96,
     4,
     {UNIT_FLOATS({1, {576}}), BYTES({2, {7, 288}}), SCALES({2, {7, 6}}), NIBBLES({2, {7, 6}})}},
    {&bytes_32,
     4,
     {UNIT_FLOATS({2, {2, 0}}), BYTES({2, {3, 0}}), SCALES({2, {3, 0}}), BYTES({2, {3, 0}})}},
    {&whole,
     4,
     {{WEFT_FLOAT, {2, {3, 64}}, -135, 135, false},
      BYTES({2, {5, 64}}),
      SCALES({2, {5, 2}}),
      BYTES({2, {5, 2}})}},
    {&nibbles_32,
     4,
     {UNIT_FLOATS({2, {35, 352}}), BYTES({2, {19, 176}}), SCALES({2, {19, 11}}),
      UNIT_FLOATS({2, {19, 11}})}},
    {&bytes_64,
     4,
     {UNIT_FLOATS({2, {3, 128}}), BYTES({2, {5, 128}}), SCALES({2, {5, 2}}),
      UNIT_FLOATS({2, {5, 2}})}},
};
static const weft_sample samples_lookup[] = {
    {&bytes_32,
     4,
     {BYTES({2, {6, 64}}), SCALES({2, {6, 2}}), BYTES({2, {6, 2}}), INDICES(6, {2, {2, 4}})}},
    {&nibbles_96,
     4,
     {BYTES({2, {5, 48}}), SCALES({2, {5, 1}}), NIBBLES({2, {5, 1}}), INDICES(5, {1, {7}})}},
    {&bytes_32,
     4,
     {BYTES({2, {6, 64}}), SCALES({2, {6, 2}}), BYTES({2, {6, 2}}), INDICES(6, {2, {0, 4}})}},
    {&nibbles_32,
     4,
     {BYTES({2, {6, 32}}), SCALES({2, {6, 2}}), UNIT_FLOATS({2, {6, 2}}), INDICES(6, {2, {2, 4}})}},
};
static const weft_attr_field fields_quantized[] = {
    {"bits", WEFT_ATTR_INT, offsetof(quantized_attr, bits)},
    {"group", WEFT_ATTR_INT, offsetof(quantized_attr, group)},
    {"whole", WEFT_ATTR_BOOL, offsetof(quantized_attr, whole)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(matmul_quantized);
extern const weft_op weft_op_matmul_quantized;
const weft_op weft_op_matmul_quantized = {
    .name = "matmul_quantized",
    .doc = "y [..., n] = x [..., k] times the transpose of a matrix [n, k] in 8 or 4 bits, whose "
           "elements are scale (q - zero), with a scale and a zero point in u8 for each group of a "
           "row; or scale q + zero, with a minimum of the dtype of x for each group. x is rounded "
           "to 8 bits, with a scale for each 32 elements. The gradient with regard to x is that "
           "of an x that is not rounded; the matrix has none.",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .inputs = "x weight scale zero",
    .attr_size = sizeof(quantized_attr),
    .attrs = fields_quantized,
    .infer = infer_quantized,
    .kernel = FLOAT_KERNELS(matmul_quantized),
    .takes = WEFT_TAKES_DENSE,
    .phases = 2,
    .tiles = tiles_quantized,
    .scratch = scratch_quantized,
    .workspace = workspace_quantized,
    .block = block_quantized,
    .cost = cost_quantized,
    .batch = batch_quantized,
    .vjp = vjp_quantized,
    .gradient = WEFT_GRADIENT_STRAIGHT,
    .source = source_quantized,
    .samples = samples_quantized,
    .n_samples = sizeof samples_quantized / sizeof *samples_quantized,
};
static void batch_lookup(weft_batch *b)
{
    weft__batch_leading(b, 1u << 3);
}

DECLARE_KERNELS(embedding_quantized);
extern const weft_op weft_op_embedding_quantized;
const weft_op weft_op_embedding_quantized = {
    .name = "embedding_quantized",
    .doc = "y[...] = table[indices[...]]: rows of a table in 8 or 4 bits, whose elements are "
           "scale (q - zero), with a scale and a zero point in u8 for each group of a row; or "
           "scale q + zero, with a minimum of the dtype of the scales for each group. For "
           "inference: there is no gradient.",
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .inputs = "table scale zero indices",
    .attr_size = sizeof(quantized_attr),
    .attrs = fields_quantized,
    .infer = infer_lookup,
    .kernel = FLOAT_KERNELS(embedding_quantized),
    .key_output = true,
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_lookup,
    .cost = cost_lookup,
    .can_fail = true,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_lookup,
    .batch = batch_lookup,
    .samples = samples_lookup,
    .n_samples = sizeof samples_lookup / sizeof *samples_lookup,
};

weft_value weft_matmul_quantized(weft_graph *graph, weft_value x, weft_value weight,
                                 weft_value scale, weft_value zero, int bits, int group)
{
    const quantized_attr attr = {.bits = bits, .group = group};
    return weft_apply(graph, &weft_op_matmul_quantized, &attr,
                      (weft_value[]){x, weight, scale, zero}, 4, NULL);
}

weft_value weft_matmul_whole(weft_graph *graph, weft_value x, weft_value weight, weft_value zero)
{
    const int64_t k = weft_dim_of(graph, weight, -1);
    const quantized_attr attr = {
        .bits = 8, .group = k <= INT32_MAX ? (int32_t)k : 0, .whole = true};
    const weft_value one = weft_fill(graph, weft_dtype_of(graph, x), weft_shape_of(graph, zero), 1);
    return weft_apply(graph, &weft_op_matmul_quantized, &attr, (weft_value[]){x, weight, one, zero},
                      4, NULL);
}

weft_value weft_embedding_quantized(weft_graph *graph, weft_value table, weft_value scale,
                                    weft_value zero, weft_value indices, int bits, int group)
{
    const quantized_attr attr = {.bits = bits, .group = group};
    return weft_apply(graph, &weft_op_embedding_quantized, &attr,
                      (weft_value[]){table, scale, zero, indices}, 4, NULL);
}

#endif
