/* Matrix products and determinants of ONNX. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/quantized.h"

/* ---- Products ---- */

void weft__map_MatMul(onnx_node *n)
{
    weft_value bytes = weft__dequantized_product(n, false);
    if (weft_is_value(bytes)) {
        weft__set_out(n, 0, bytes);
        return;
    }
    const weft_value a = weft__widen(n, weft__in_value(n, 0));
    const weft_value b = weft__widen(n, weft__in_value(n, 1));
    weft_value y = weft__matrix_product(n->graph, a, b);
    if (weft_dtype_of(n->graph, weft__in_value(n, 0)) == WEFT_I32)
        y = weft__narrow(n, y, weft__in_type(n, 0));
    weft__set_typed(n, 0, y, weft__in_type(n, 0));
}

static weft_value scaled(weft_graph *g, weft_value x, double factor)
{
    return factor == 1 ? x : weft_mul_scalar(g, x, factor);
}

weft_value weft__gemm(onnx_node *n)
{
    weft_graph *g = n->graph;
    const double alpha = weft__attr_float(n, "alpha", 1), beta = weft__attr_float(n, "beta", 1);
    const bool trans_a = weft__attr_int(n, "transA", 0), trans_b = weft__attr_int(n, "transB", 0);
    weft_value y = trans_a ? WEFT_NO_VALUE : weft__dequantized_product(n, trans_b);
    if (!weft_is_value(y)) {
        weft_value a = weft__widen(n, weft__in_value(n, 0)),
                   b = weft__widen(n, weft__in_value(n, 1));
        if (trans_a) a = weft_transpose(g, a, 0, 1);
        if (trans_b) b = weft_transpose(g, b, 0, 1);
        y = weft_matmul(g, a, b);
    }
    y = scaled(g, y, alpha);
    if (has_in(n, 2) && beta != 0)
        y = weft_add(g, y, scaled(g, weft__widen(n, weft__in_value(n, 2)), beta));
    if (weft_dtype_of(g, weft__in_value(n, 0)) == WEFT_I32)
        y = weft__narrow(n, y, weft__in_type(n, 0));
    return y;
}

void weft__map_Gemm(onnx_node *n)
{
    weft__set_typed(n, 0, weft__gemm(n), weft__in_type(n, 0));
}

/* ---- Determinants ---- */

/* The largest matrix; each column adds a dozen nodes. */
#define MAX_DETERMINANT 64

/* Removes the first column by Gauss's elimination with the largest pivot: x [batch, m, m] becomes
 * [batch, m - 1, m - 1], and *det is multiplied by the pivot [batch, 1, 1]. */
static weft_value eliminate(weft_graph *g, weft_value x, weft_value *det)
{
    const int64_t m = weft_dim_of(g, x, 1), batch = weft_dim_of(g, x, 0);
    const weft_dtype dtype = weft_dtype_of(g, x);
    weft_value column = weft_slice(g, x, 2, 0, 1, 1);
    weft_value at = weft_argmax(g, weft_abs(g, column), 1, true);
    weft_value pivots = weft_gather(g, x, weft_broadcast_to(g, at, WEFT_SHAPE(batch, 1, m)), 1);
    weft_value pivot = weft_slice(g, pivots, 2, 0, 1, 1);
    /* The first row replaces the pivot's, which changes the sign. */
    weft_value stays = weft_equal(g, at, weft_scalar(g, WEFT_I32, 0));
    *det = weft_mul(g, *det, weft_where(g, stays, pivot, weft_neg(g, pivot)));
    weft_value number =
        weft_reshape(g, weft_arange(g, WEFT_I32, m - 1, 1, 1), WEFT_SHAPE(1, m - 1, 1));
    weft_value replaced = weft_equal(g, number, at);
    weft_value first = weft_slice(g, x, 1, 0, 1, 1), others = weft_slice(g, x, 1, 1, m, 1);
    weft_value rows = weft_where(g, replaced, first, others);
    /* A column of zeros has no pivot; the determinant is zero then. */
    weft_value zero = weft_equal(g, pivot, weft_scalar(g, dtype, 0));
    weft_value heads = weft_slice(g, rows, 2, 0, 1, 1), rest = weft_slice(g, rows, 2, 1, m, 1);
    weft_value factor = weft_div(g, heads, weft_where(g, zero, weft_scalar(g, dtype, 1), pivot));
    return weft_sub(g, rest, weft_mul(g, factor, weft_slice(g, pivots, 2, 1, m, 1)));
}

/* The determinants of matrices [..., m, m]. */
void weft__map_Det(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_shape s = weft__in_shape(n, 0);
    const int64_t m = s.rank < 2 ? 0 : s.dim[s.rank - 1];
    if (weft__node_failed(n)) return;
    if (m < 1 || m > MAX_DETERMINANT || s.dim[s.rank - 2] != m) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs square matrices of 1 to %d rows",
                        MAX_DETERMINANT);
        return;
    }
    weft_value x = weft_reshape(g, weft__in_value(n, 0), WEFT_SHAPE(-1, m, m));
    weft_value det = weft_fill(g, weft_dtype_of(g, x), WEFT_SHAPE(weft_dim_of(g, x, 0), 1, 1), 1);
    for (int64_t left = m; left > 1; left--) x = eliminate(g, x, &det);
    s.rank -= 2;
    weft__set_out(n, 0, weft_reshape(g, weft_mul(g, det, x), s));
}
