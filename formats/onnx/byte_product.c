/* Exact matrix products of quantized numbers of ONNX, by matrices of bytes of the file. */
#include "onnx/byte_op.h"
#include "onnx/ops.h"

#include "quantize/bytes.h"

#include <stdlib.h>
#include <string.h>

weft_value weft__matrix_product(weft_graph *g, weft_value a, weft_value b)
{
    const bool row = weft_rank_of(g, a) == 1, column = weft_rank_of(g, b) == 1;
    if (row) a = weft_expand_dims(g, a, 0);
    if (column) b = weft_expand_dims(g, b, 1);
    weft_value y = weft_matmul(g, a, b);
    if (column) y = weft_squeeze(g, y, -1);
    return row ? weft_squeeze(g, y, column ? -1 : -2) : y;
}

/* A matrix [k, n] of bytes, with known contents and zero points. If its elements less their zero points
 * fit an i8, and sums of products an i32, it is packed as the weights of a convolution of one tap. Else
 * it is what weft_matmul_whole reads: its rows are padded with their zero points. */
typedef struct byte_matrix {
    int64_t k, n, padded;
    weft_value panels; /* or none */
    weft_value weight, zero;
    weft_value sums; /* f64 [n]: of the elements less their zero points, over k */
} byte_matrix;

/* Rows of the file's matrix that are read together, so that a cache line is read once. */
#define ROWS_READ 64
/* With more products of a u8 and an i8 a sum may exceed an i32. */
#define MAX_PRODUCTS (INT32_MAX / (255 * 128))

/* Whether the contents are known, now that they are needed. */
static bool is_known(onnx_node *n, onnx_value *v)
{
    return weft__import_contents(n->import, v) && v->known;
}

/* Elements [n, padded] as a u8, of an i8 with 128 added, their zero points [n], and sums. */
typedef struct matrix_bytes {
    uint8_t *q, *zero;
    double *sums;
} matrix_bytes;

static void copy_bytes(const onnx_value *matrix, const onnx_value *zero, bool transposed,
                       const byte_matrix *m, const matrix_bytes *to)
{
    const int lift = bytes_lift(matrix->type);
    const int64_t zeros = zero ? weft_shape_numel(zero->tensor.shape) : 1;
    const int64_t row_step = transposed ? m->k : 1, step = transposed ? 1 : m->n;
    const int32_t *elements = matrix->tensor.data;
    for (int64_t row = 0; row < m->n; row++) {
        const int at = zero ? (int)onnx_tensor_element(&zero->tensor, zeros == 1 ? 0 : row) : 0;
        to->zero[row] = (uint8_t)(at + lift);
        memset(to->q + row * m->padded, to->zero[row], (size_t)m->padded);
    }
    for (int64_t begin = 0; begin < m->k; begin += ROWS_READ)
        for (int64_t row = 0; row < m->n; row++)
            for (int64_t c = begin; c < m->k && c < begin + ROWS_READ; c++) {
                const int32_t element = elements[row * row_step + c * step];
                to->q[row * m->padded + c] = (uint8_t)(element + lift);
                to->sums[row] += element + lift - to->zero[row];
            }
}

/* Packs the elements less their zero points, if they fit; false if out of memory. */
static bool pack_matrix(onnx_node *n, const matrix_bytes *from, byte_matrix *m)
{
    const int64_t panels = (m->n + BYTES_PANEL - 1) / BYTES_PANEL;
    const int64_t steps = conv_bytes_steps(1, m->k), each = BYTES_PANEL * BYTES_EACH;
    int8_t *w = malloc((size_t)(m->n * m->k));
    uint8_t *packed = malloc((size_t)(panels * steps * each));
    bool fits = m->k <= MAX_PRODUCTS && w && packed;
    for (int64_t row = 0; fits && row < m->n; row++)
        for (int64_t c = 0; fits && c < m->k; c++) {
            const int element = from->q[row * m->padded + c] - from->zero[row];
            fits = element >= INT8_MIN && element <= INT8_MAX;
            w[row * m->k + c] = (int8_t)element;
        }
    if (fits) {
        weft__conv_bytes_pack(w, m->n, 1, m->k, packed);
        m->panels = weft_constant(n->graph, WEFT_U8, WEFT_SHAPE(panels, steps, each), packed);
    }
    const bool good = w && packed;
    free(w);
    free(packed);
    return good;
}

/* Reads a matrix to multiply x with; `transposed`: the file has it as [n, k]. False if it is not a
 * matrix, or after a failure. */
static bool read_bytes(onnx_node *n, onnx_value *matrix, onnx_value *zero, bool transposed,
                       weft_shape x, byte_matrix *m)
{
    weft_graph *g = n->graph;
    const onnx_tensor *t = &matrix->tensor;
    if (!is_known(n, matrix) || t->shape.rank != 2 || t->dtype != WEFT_I32 ||
        !bytes_listed(matrix->type) ||
        (zero && (!is_known(n, zero) || zero->tensor.shape.rank > 1)))
        return false;
    *m = (byte_matrix){.k = t->shape.dim[transposed], .n = t->shape.dim[!transposed]};
    m->padded = (m->k + 31) / 32 * 32;
    m->panels = WEFT_NO_VALUE;
    const int64_t zeros = zero ? weft_shape_numel(zero->tensor.shape) : 1;
    if (!m->k || !m->n || x.dim[x.rank - 1] != m->k || (zeros != 1 && zeros != m->n)) return false;
    const matrix_bytes b = {malloc((size_t)(m->n * m->padded)), malloc((size_t)m->n),
                            calloc((size_t)m->n, sizeof *b.sums)};
    bool good = b.q && b.zero && b.sums;
    if (good) copy_bytes(matrix, zero, transposed, m, &b);
    good = good && pack_matrix(n, &b, m);
    if (good) {
        m->sums = weft_constant(g, WEFT_F64, WEFT_SHAPE(m->n), b.sums);
        if (!weft_is_value(m->panels)) {
            m->weight = weft_constant(g, WEFT_U8, WEFT_SHAPE(m->n, m->padded), b.q);
            m->zero = weft_constant(g, WEFT_U8, WEFT_SHAPE(m->n, 1), b.zero);
        }
    } else {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a matrix");
    }
    free(b.q);
    free(b.zero);
    free(b.sums);
    return good;
}

/* Whole numbers of a type of bytes, of which a value of the file may be known, as bytes: of an i8 with
 * 128 added. */
static weft_value factor_bytes(weft_graph *g, const onnx_value *v, weft_value whole, int type)
{
    const int lift = bytes_lift(type);
    if (v && weft_is_value(v->bytes)) return v->bytes;
    if (v && weft_is_value(v->exact) && v->step > 0)
        return weft__quantize_bytes(g, v->exact, v->step, (int)v->offset + lift);
    return weft__quantize_bytes(g, weft_cast(g, whole, WEFT_F32), 1, lift);
}

/* A number, or a vector along the last axis, as [count]; no value of others. */
static weft_value by_column(weft_graph *g, weft_value x, int64_t count)
{
    const weft_shape s = weft_shape_of(g, x);
    const int64_t n = weft_shape_numel(s);
    if (n == 1) return weft_broadcast_to(g, weft_reshape(g, x, WEFT_SHAPE(1)), WEFT_SHAPE(count));
    return n == count && s.dim[s.rank - 1] == n ? weft_reshape(g, x, WEFT_SHAPE(n)) : WEFT_NO_VALUE;
}

/* Products of rows of bytes, less a zero point, with packed columns: a convolution of one tap. In i32,
 * or in f32, multiplied with `scale` [n]. */
static weft_value panel_product(weft_graph *g, weft_value bytes, weft_value zero,
                                const byte_matrix *m, weft_value scale)
{
    const bool scaled = weft_is_value(scale);
    weft_shape shape = weft_shape_of(g, bytes);
    conv_bytes_attr attr;
    memset(&attr, 0, sizeof attr);
    weft__set_byte_window(&(weft_conv_options){.stride = {1, 1}, .dilation = {1, 1}},
                          (int64_t[]){1, 1}, &attr.rows);
    attr.rows.columns = m->n;
    attr.dtype = scaled ? WEFT_F32 : WEFT_I32;
    const weft_value offset = weft_mul(g, weft_reshape(g, zero, WEFT_SHAPE(1)), m->sums);
    const weft_value rows = weft_reshape(g, bytes, WEFT_SHAPE(1, 1, -1, m->k));
    const weft_value bias = weft_cast(g, weft_neg(g, offset), WEFT_I32);
    const weft_value in[] = {rows, m->panels, bias, scale};
    const weft_value y = weft__conv_bytes(g, in, scaled ? 4 : 3, &attr, false);
    shape.dim[shape.rank - 1] = m->n;
    return weft_reshape(g, y, shape);
}

/* The zero point of the bytes of rows. */
static weft_value lifted(weft_graph *g, const byte_rows *r)
{
    return r->type == ONNX_INT8 ? weft_add_scalar(g, r->zero, 128) : r->zero;
}

static bool has_one_zero(weft_graph *g, const byte_rows *r)
{
    return weft_shape_numel(weft_shape_of(g, r->zero)) == 1;
}

/* In i32 or f64. Without packed columns a = a' + lift, where a' has the bytes of an i8, and (a - zero) b =
 * a' b + (lift - zero) sums of b. */
static weft_value byte_product(weft_graph *g, const byte_rows *r, const byte_matrix *m)
{
    const weft_value a = r->a, zero = r->zero;
    const int type = r->type;
    if (weft_is_value(m->panels)) {
        const weft_value bytes = factor_bytes(g, r->value, a, type);
        if (has_one_zero(g, r)) return panel_product(g, bytes, lifted(g, r), m, WEFT_NO_VALUE);
        const weft_value none = weft_scalar(g, WEFT_F64, 0);
        const weft_value y = panel_product(g, bytes, none, m, WEFT_NO_VALUE);
        const weft_value offset = weft_mul(g, lifted(g, r), m->sums);
        return weft_sub(g, weft_cast(g, y, WEFT_F64), offset);
    }
    const int rank = weft_rank_of(g, a);
    const weft_value lift = weft_scalar(g, WEFT_F64, type == ONNX_UINT8 ? 128 : 0);
    weft_value x = weft_cast(g, a, WEFT_F64);
    if (type == ONNX_UINT8) x = weft_sub(g, x, lift);
    const int64_t none[WEFT_MAX_RANK] = {0};
    int64_t after[WEFT_MAX_RANK] = {0};
    after[rank - 1] = m->padded - m->k;
    if (m->padded > m->k) x = weft_pad(g, x, none, after, 0);
    const weft_value whole = weft_matmul_whole(g, x, m->weight, m->zero);
    return weft_add(g, whole, weft_mul(g, weft_sub(g, lift, zero), m->sums));
}

/* In f32, scaled by a number, or by vectors along rows or columns, in f64. */
static weft_value scaled_bytes(weft_graph *g, const byte_rows *r, const byte_matrix *m,
                               weft_value scale)
{
    if (weft_is_value(m->panels) && has_one_zero(g, r)) {
        const weft_value each = by_column(g, scale, m->n);
        if (weft_is_value(each)) {
            const weft_value bytes = factor_bytes(g, r->value, r->a, r->type);
            const weft_value zero = lifted(g, r);
            return panel_product(g, bytes, zero, m, weft_cast(g, each, WEFT_F32));
        }
    }
    const weft_value y = weft_cast(g, byte_product(g, r, m), WEFT_F64);
    return weft_cast(g, weft_mul(g, y, scale), WEFT_F32);
}

/* Whether input b is a matrix of bytes that rows can be multiplied with; reads it. */
static bool reads_factor(onnx_node *n, const byte_rows *r, const byte_factor *b, byte_matrix *m)
{
    const weft_shape shape = weft_shape_of(n->graph, r->a);
    onnx_value *const zero = has_in(n, b->zero) ? n->in[b->zero] : NULL;
    return !n->folding && bytes_listed(r->type) && shape.rank >= 2 &&
           read_bytes(n, n->in[b->index], zero, b->transposed, shape, m);
}

/* The product if b is not such a matrix, in f64. */
static weft_value wide_product(onnx_node *n, const byte_rows *r, const byte_factor *b)
{
    weft_graph *g = n->graph;
    const weft_value left = weft_sub(g, weft_cast(g, r->a, WEFT_F64), r->zero);
    weft_value right = weft__quantized_centred(n, b->index, b->zero, b->transposed ? -2 : -1);
    if (b->transposed) right = weft_transpose(g, right, -2, -1);
    return weft__matrix_product(g, left, right);
}

weft_value weft__scaled_product(onnx_node *n, const byte_rows *r, const byte_factor *b,
                                weft_value scale)
{
    byte_matrix m;
    weft_graph *g = n->graph;
    if (reads_factor(n, r, b, &m)) return scaled_bytes(g, r, &m, scale);
    return weft_cast(g, weft_mul(g, wide_product(n, r, b), scale), WEFT_F32);
}

byte_rows weft__byte_rows(onnx_node *n, size_t a, size_t zero)
{
    const int rank = weft__in_shape(n, a).rank;
    const weft_value whole = weft__quantized_whole(n, a);
    const weft_value number = weft__quantized_along(n, zero, rank - 2, rank, 0);
    return (byte_rows){n->in[a], whole, number, weft__in_type(n, a)};
}

weft_value weft__integer_product(onnx_node *n, size_t a, size_t a_zero, const byte_factor *b)
{
    byte_matrix m;
    const byte_rows r = weft__byte_rows(n, a, a_zero);
    return reads_factor(n, &r, b, &m) ? byte_product(n->graph, &r, &m) : wide_product(n, &r, b);
}

/* Whether a factor is scaled by one number, or along the axis given. */
static bool scaled_along(onnx_node *n, const onnx_value *v, int axis)
{
    const weft_shape shape = weft_shape_of(n->graph, weft__import_value(n->import, v->scale));
    return shape.rank <= 1 && (weft_shape_numel(shape) == 1 || v->axis == axis);
}

weft_value weft__dequantized_product(onnx_node *n, bool transposed)
{
    if (n->folding || n->import->mode == ONNX_TRAINING || !has_in(n, 0) || !has_in(n, 1))
        return WEFT_NO_VALUE;
    weft_graph *g = n->graph;
    const onnx_value *a = n->in[0], *b = n->in[1];
    byte_matrix m;
    if (!a->quantized || !b->quantized || a->known || !bytes_listed(a->quantized->type))
        return WEFT_NO_VALUE;
    const weft_value x = weft__whole_of(n, a->quantized);
    const weft_shape shape = weft_shape_of(g, x);
    if (shape.rank < 2 || !scaled_along(n, a, -1) || !scaled_along(n, b, transposed ? 0 : 1) ||
        weft_dtype_of(g, weft__import_value(n->import, a->scale)) != WEFT_F32 ||
        !read_bytes(n, b->quantized, b->zero, transposed, shape, &m))
        return WEFT_NO_VALUE;
    const weft_value zero =
        a->zero ? weft__along(g, weft__import_value(n->import, a->zero), -1, shape.rank)
                : weft_scalar(g, WEFT_F64, 0);
    weft_value scale = weft__along(g, weft__import_value(n->import, a->scale), -1, shape.rank);
    scale = weft_mul(
        g, scale,
        weft__along(g, weft__import_value(n->import, b->scale), shape.rank - 1, shape.rank));
    const byte_rows rows = {a->quantized, x, zero, a->quantized->type};
    return scaled_bytes(g, &rows, &m, scale);
}

void weft__map_MatMulInteger(onnx_node *n)
{
    weft_value y = weft__integer_product(n, 0, 2, &(byte_factor){.index = 1, .zero = 3});
    weft__set_typed(n, 0, weft_cast(n->graph, y, WEFT_I32), ONNX_INT32);
}

/* Inputs: a, its scale and zero point, b, its scale and zero point, scale and zero point of y. */
void weft__map_QLinearMatMul(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value y = weft__integer_product(n, 0, 2, &(byte_factor){.index = 3, .zero = 5});
    y = weft_cast(g, y, WEFT_F64);
    const int rank = weft_rank_of(g, y);
    const weft_value of_a = weft__quantized_along(n, 1, rank - 2, rank, 1);
    const weft_value of_b = weft__quantized_along(n, 4, rank - 1, rank, 1);
    y = weft_mul(g, y, weft_mul(g, of_a, of_b));
    y = weft_div(g, y, weft__quantized_along(n, 6, rank - 1, rank, 1));
    weft__set_typed(n, 0,
                    weft__quantized_round(n, y, weft__quantized_along(n, 7, rank - 1, rank, 0),
                                          weft__in_type(n, 7)),
                    weft__in_type(n, 7));
}
