/* Ops of the domain com.microsoft on quantized numbers, which ONNX Runtime's quantiser and optimiser
 * write. Tensors are quantized by one scale and one zero point each. Matrix products are computed in
 * whole numbers; everything else in floats, and quantized again. */
#include "onnx/ops.h"
#include "onnx/quantized.h"

/* ---- Scales ---- */

/* Whether input i, a positive scale, and input i + 1, a zero point or none, are numbers. */
static bool numbers(onnx_node *n, size_t i, double *step, double *offset)
{
    return weft__in_is_number(n, i, step) && *step > 0 &&
           (!has_in(n, i + 1) || weft__in_is_number(n, i + 1, offset));
}

weft_value weft__quantized_real(onnx_node *n, size_t i)
{
    weft_graph *g = n->graph;
    double step, offset = 0;
    if (!n->folding && weft_is_value(n->in[i]->bytes) && numbers(n, i + 1, &step, &offset))
        return weft__bytes_real(g, n->in[i]->bytes, step, offset, n->in[i]->type);
    weft_value x = weft_cast(g, weft__quantized_whole(n, i), WEFT_F32);
    x = weft_sub(g, x, weft_cast(g, weft__quantized_along(n, i + 2, 0, 1, 0), WEFT_F32));
    return weft_mul(g, x, weft_cast(g, weft__quantized_along(n, i + 1, 0, 1, 1), WEFT_F32));
}

void weft__set_quantized_real(onnx_node *n, weft_value y, size_t scale, size_t like)
{
    weft_graph *g = n->graph;
    const int type = weft__in_type(n, has_in(n, scale + 1) ? scale + 1 : like);
    double step, offset = 0;
    if ((type == ONNX_UINT8 || type == ONNX_INT8) && weft__keeps_bytes(n, y) &&
        numbers(n, scale, &step, &offset)) {
        weft__set_bytes(n, weft__bytes_of(g, y, step, offset, type), type);
        return;
    }
    y = weft_div(g, y, weft_cast(g, weft__quantized_along(n, scale, 0, 1, 1), WEFT_F32));
    const weft_value zero = weft_cast(g, weft__quantized_along(n, scale + 1, 0, 1, 0), WEFT_F32);
    weft__set_quantized(n, weft__quantized_clip(n, y, zero, type), type);
}

/* ---- Elementwise ---- */

void weft__microsoft_QLinearAdd(onnx_node *n)
{
    const onnx_byte_op *sum = weft__byte_sum(n);
    const int type = weft__in_type(n, has_in(n, 7) ? 7 : 0);
    if (sum && weft__set_byte_op(n, sum, 6, type)) return;
    const weft_value a = weft__quantized_real(n, 0), b = weft__quantized_real(n, 3);
    weft__set_quantized_real(n, weft_add(n->graph, a, b), 6, 0);
}

void weft__microsoft_QLinearMul(onnx_node *n)
{
    const weft_value a = weft__quantized_real(n, 0), b = weft__quantized_real(n, 3);
    weft__set_quantized_real(n, weft_mul(n->graph, a, b), 6, 0);
}

void weft__microsoft_QLinearSigmoid(onnx_node *n)
{
    weft__set_quantized_real(n, weft_sigmoid(n->graph, weft__quantized_real(n, 0)), 3, 0);
}

void weft__microsoft_QLinearLeakyRelu(onnx_node *n)
{
    const double alpha = weft__attr_float(n, "alpha", 0.01);
    weft__set_quantized_real(n, weft_leaky_relu(n->graph, weft__quantized_real(n, 0), alpha), 3, 0);
}

/* Inputs: condition, x with its scale and zero point, the same of y, and of the result. */
void weft__microsoft_QLinearWhere(onnx_node *n)
{
    const weft_value x = weft__quantized_real(n, 1), y = weft__quantized_real(n, 4);
    weft__set_quantized_real(n, weft_where(n->graph, weft__in_value(n, 0), x, y), 7, 1);
}

/* ---- Along axes ---- */

/* Before opset 13, which is an attribute, all axes from `axis` on are one. */
void weft__microsoft_QLinearSoftmax(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0);
    const bool one_axis = weft__attr_int(n, "opset", 13) >= 13;
    const int axis = weft__attr_axis(n, "axis", one_axis ? -1 : 1, s.rank);
    const weft_value x = weft__quantized_real(n, 0);
    if (weft__node_failed(n)) return;
    if (one_axis) {
        weft__set_quantized_real(n, weft_softmax(g, x, axis), 3, 0);
        return;
    }
    int64_t rows = 1;
    for (int i = 0; i < axis; i++) rows *= s.dim[i];
    const weft_value flat = weft_reshape(g, x, WEFT_SHAPE(rows, -1));
    weft__set_quantized_real(n, weft_reshape(g, weft_softmax(g, flat, 1), s), 3, 0);
}

void weft__microsoft_QLinearReduceMean(onnx_node *n)
{
    const int rank = weft__in_shape(n, 0).rank;
    int64_t list[WEFT_MAX_RANK];
    weft_axes axes = {.count = weft__attr_ints(n, "axes", list, WEFT_MAX_RANK)};
    for (int i = 0; i < axes.count; i++) axes.axis[i] = weft__node_axis(n, list[i], rank);
    if (axes.count <= 0) axes = WEFT_ALL_AXES;
    const weft_value x = weft__quantized_real(n, 0);
    if (weft__node_failed(n)) return;
    weft__set_quantized_real(n, weft_mean(n->graph, x, axes, weft__attr_int(n, "keepdims", 1) != 0),
                             3, 0);
}

void weft__microsoft_QLinearGlobalAveragePool(onnx_node *n)
{
    const int rank = weft__in_shape(n, 0).rank;
    const bool last = weft__attr_int(n, "channels_last", 0);
    weft_axes axes = {.count = 0};
    const weft_value x = weft__quantized_real(n, 0);
    for (int i = last ? 1 : 2; i < rank - last; i++) axes.axis[axes.count++] = i;
    if (!axes.count) weft__node_fail(n, WEFT_BAD_SHAPE, "needs an image with spatial dimensions");
    if (!weft__node_failed(n))
        weft__set_quantized_real(n, weft_mean(n->graph, x, axes, true), 3, 0);
}

/* Inputs: scale and zero point of the result, and then each part with its own. */
void weft__microsoft_QLinearConcat(onnx_node *n)
{
    const size_t count = (n->n_in - 2) / 3;
    weft_value *parts = weft__arena_alloc(&n->import->memory, count * sizeof *parts);
    const int axis = weft__attr_axis(n, "axis", 0, weft__in_shape(n, 2).rank);
    if (!parts || n->n_in != 2 + 3 * count) {
        weft__node_fail(n, WEFT_BAD_FILE, "needs three inputs for each part");
        return;
    }
    for (size_t i = 0; i < count; i++) parts[i] = weft__quantized_real(n, 2 + 3 * i);
    if (!weft__node_failed(n))
        weft__set_quantized_real(n, weft_concat(n->graph, parts, count, axis), 0, 2);
}

/* ---- Matrix products ---- */

/* Scales of inputs i and j multiplied, in f64; that of j is a number or one for each column. */
static weft_value scales(onnx_node *n, size_t i, size_t j, int rank)
{
    const weft_value a = weft__quantized_along(n, i, rank - 2, rank, 1);
    return weft_mul(n->graph, a, weft__quantized_along(n, j, rank - 1, rank, 1));
}

/* Inputs: a, its scale and zero point, b, the same, a bias in units of both scales, and scale and
 * zero point of y; without these y is in f32. */
void weft__microsoft_QGemm(onnx_node *n)
{
    weft_graph *g = n->graph;
    const byte_factor b = {3, 5, weft__attr_int(n, "transB", 0) != 0};
    if (weft__attr_int(n, "transA", 0)) {
        weft__node_fail(n, WEFT_NO_KERNEL, "transA is not supported");
        return;
    }
    weft_value y = weft_cast(g, weft__integer_product(n, 0, 2, &b), WEFT_F64);
    if (has_in(n, 6)) y = weft_add(g, y, weft_cast(g, weft__in_value(n, 6), WEFT_F64));
    y = weft_mul(g, y, scales(n, 1, 4, 2));
    y = weft_cast(g, weft_mul_scalar(g, y, weft__attr_float(n, "alpha", 1)), WEFT_F32);
    if (has_in(n, 7))
        weft__set_quantized_real(n, y, 7, 0);
    else
        weft__set_out(n, 0, y);
}

static void set_product(onnx_node *n, weft_value y, size_t bias)
{
    weft__set_out(n, 0, has_in(n, bias) ? weft_add(n->graph, y, weft__in_value(n, bias)) : y);
}

/* Inputs: a, b, their scales, their zero points, and a bias of floats. */
void weft__microsoft_MatMulIntegerToFloat(onnx_node *n)
{
    const byte_rows a = weft__byte_rows(n, 0, 4);
    const weft_value scale = scales(n, 2, 3, weft__in_shape(n, 0).rank);
    set_product(n, weft__scaled_product(n, &a, &(byte_factor){.index = 1, .zero = 5}, scale), 6);
}

/* Inputs: a in floats, b, its scale and zero point, and a bias of floats. */
void weft__microsoft_DynamicQuantizeMatMul(onnx_node *n)
{
    weft_graph *g = n->graph;
    const dynamic_quantized a = weft__quantize_dynamically(g, weft__in_value(n, 0));
    const byte_rows rows = {NULL, a.whole, weft_cast(g, a.zero, WEFT_F64), ONNX_UINT8};
    const int rank = weft__in_shape(n, 0).rank;
    weft_value scale = weft_cast(g, a.scale, WEFT_F64);
    scale = weft_mul(g, scale, weft__quantized_along(n, 2, rank - 1, rank, 1));
    set_product(n, weft__scaled_product(n, &rows, &(byte_factor){.index = 1, .zero = 3}, scale), 4);
}
