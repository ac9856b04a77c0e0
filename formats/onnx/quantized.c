/* Quantized numbers of ONNX: conversions. */
#include "onnx/quantized.h"
#include "onnx/ops.h"

#include <stdlib.h>
#include <string.h>

/* ---- Scales and zero points ---- */

/* Types whose sums and differences are exact in f32. */
static bool has_few_bits(int type)
{
    return bytes_listed(type) || type == ONNX_INT16 || type == ONNX_UINT16;
}

weft_value weft__along(weft_graph *g, weft_value x, int axis, int rank)
{
    x = weft_cast(g, x, WEFT_F64);
    if (weft_rank_of(g, x) != 1 || weft_dim_of(g, x, 0) == 1)
        return weft_rank_of(g, x) == 1 ? weft_squeeze(g, x, 0) : x;
    weft_shape shape = {.rank = rank};
    for (int k = 0; k < rank; k++) shape.dim[k] = k == axis ? weft_dim_of(g, x, 0) : 1;
    return weft_reshape(g, x, shape);
}

/* x with each element as often along the axis as a block has elements; the last block is cut off at
 * the size of input 0. */
static weft_value of_blocks(onnx_node *n, weft_value x, int axis, int64_t block)
{
    weft_graph *g = n->graph;
    weft_shape shape = weft_shape_of(g, x), wide = {.rank = shape.rank + 1};
    const int64_t size = weft__in_shape(n, 0).dim[axis], blocks = shape.dim[axis];
    if (block < 1 || size < 1 || blocks != (size - 1) / block + 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "%lld blocks of %lld elements do not fit axis %d, which has %lld elements",
                        (long long)blocks, (long long)block, axis, (long long)size);
        return x;
    }
    for (int i = 0; i < wide.rank; i++)
        wide.dim[i] = i <= axis ? shape.dim[i] : i == axis + 1 ? block : shape.dim[i - 1];
    shape.dim[axis] *= block;
    x = weft_broadcast_to(g, weft_expand_dims(g, x, axis + 1), wide);
    return weft_slice(g, weft_reshape(g, x, shape), axis, 0, size, 1);
}

weft_value weft__quantized_along(onnx_node *n, size_t i, int axis, int rank, double default_value)
{
    weft_graph *g = n->graph;
    if (!has_in(n, i)) return weft_scalar(g, WEFT_F64, default_value);
    const weft_value x = weft__along(g, weft__in_value(n, i), axis, rank);
    const int64_t block = weft__attr_int(n, "block_size", 0);
    if (weft__node_failed(n) || block == 0 || rank < 2 || weft_rank_of(g, x) != rank) return x;
    return of_blocks(n, x, axis, block);
}

weft_value weft__quantized_clip(onnx_node *n, weft_value x, weft_value zero, int type)
{
    return weft__saturate(n, weft_add(n->graph, weft_round(n->graph, x), zero), type);
}

weft_value weft__quantized_round(onnx_node *n, weft_value x, weft_value zero, int type)
{
    return weft_cast(n->graph, weft__quantized_clip(n, x, zero, type), WEFT_I32);
}

/* That of the zero point, or of an attribute. */
static int quantized_type(onnx_node *n, size_t zero_point)
{
    double low, high;
    const int given = (int)weft__attr_int(n, "output_dtype", 0);
    const int type = has_in(n, zero_point) ? weft__in_type(n, zero_point)
                     : given               ? given
                                           : ONNX_UINT8;
    const onnx_minifloat *m = weft__onnx_minifloat(type);
    if (!weft__onnx_type_bounds(type, &low, &high) && (!m || !m->has_sign))
        weft__node_fail(n, WEFT_BAD_DTYPE,
                        "quantizes to %s, expected an integer type or a float of 4 or 8 bits",
                        weft__onnx_type_name(type));
    return type;
}

/* In f64 a quotient that is halfway in f32 is not; so the division is one of f32. What the zero
 * point is added to in f32 is exact, or outside of the type's range. */
void weft__map_QuantizeLinear(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int rank = weft__in_shape(n, 0).rank, type = quantized_type(n, 2);
    const int axis = rank > 1 ? weft__attr_axis(n, "axis", 1, rank) : 0;
    const onnx_minifloat *m = weft__onnx_minifloat(type);
    if (!n->folding && n->in[0]->byte_op && weft__set_byte_op(n, n->in[0]->byte_op, 1, type))
        return;
    const weft_value exact = weft_cast(g, weft__in_value(n, 0), WEFT_F32);
    weft_value x =
        weft_div(g, exact, weft_cast(g, weft__quantized_along(n, 1, axis, rank, 1), WEFT_F32));
    if (m) {
        if (has_in(n, 2))
            x = weft_add(g, x, weft_cast(g, weft__quantized_along(n, 2, axis, rank, 0), WEFT_F32));
        weft__set_typed(n, 0, weft__round_minifloat(n, x, m), type);
        return;
    }
    weft_value zero = weft_cast(g, weft__quantized_along(n, 2, axis, rank, 0), WEFT_F32);
    double step, offset = 0;
    const bool numbers = !n->folding && n->n_out && has_few_bits(type) &&
                         weft__in_is_number(n, 1, &step) &&
                         (!has_in(n, 2) || weft__in_is_number(n, 2, &offset));
    if (numbers && step > 0 && bytes_listed(type) && weft__keeps_bytes(n, exact)) {
        weft__set_bytes(n, weft__bytes_of(g, exact, step, offset, type), type);
        return;
    }
    weft__set_quantized(n, weft__quantized_clip(n, x, zero, type), type);
    if (!numbers) return;
    n->out[0].exact = exact;
    n->out[0].step = step;
    n->out[0].offset = offset;
}

weft_value weft__whole_of(onnx_node *n, onnx_value *v)
{
    return weft_is_value(v->whole) ? v->whole : weft__import_value(n->import, v);
}

weft_value weft__quantized_whole(onnx_node *n, size_t i)
{
    return n->folding || weft__node_failed(n) ? weft__in_value(n, i) : weft__whole_of(n, n->in[i]);
}

/* Whether a zero point may be other than zero. */
static bool has_offset(onnx_node *n, size_t i)
{
    if (!has_in(n, i)) return false;
    if (!weft__import_contents(n->import, n->in[i]) || !n->in[i]->known) return true;
    const onnx_tensor *t = &n->in[i]->tensor;
    for (int64_t k = 0; k < weft_shape_numel(t->shape); k++)
        if (onnx_tensor_element(t, k) != 0) return true;
    return false;
}

/* What QuantizeLinear has rounded with the same scale and zero point, in one op; or no value. The
 * gradient of that op is a surrogate, so that training keeps the definition. */
static weft_value on_grid(onnx_node *n)
{
    const onnx_value *q = n->in[0];
    double step = 0, offset = 0, low, high;
    if (n->folding || n->import->mode == ONNX_TRAINING || !weft_is_value(q->exact) ||
        !weft__in_is_number(n, 1, &step) || (has_in(n, 2) && !weft__in_is_number(n, 2, &offset)) ||
        step != q->step || offset != q->offset || !(step > 0) ||
        weft_dtype_of(n->graph, weft__in_value(n, 1)) != WEFT_F32 ||
        !weft__onnx_type_bounds(q->type, &low, &high))
        return WEFT_NO_VALUE;
    return weft_fake_quantize(n->graph, q->exact, step, low - offset, high - offset);
}

/* Numbers that are in bytes, in one op; or no value. */
static weft_value dequantized_bytes(onnx_node *n)
{
    const onnx_value *q = n->in[0];
    double step, offset = 0;
    if (n->folding || !weft_is_value(q->bytes) || !weft__in_is_number(n, 1, &step) || !(step > 0) ||
        (has_in(n, 2) && !weft__in_is_number(n, 2, &offset)) ||
        weft_dtype_of(n->graph, weft__in_value(n, 1)) != WEFT_F32)
        return WEFT_NO_VALUE;
    return weft__bytes_real(n->graph, q->bytes, step, offset, q->type);
}

/* The difference of numbers of few bits is exact in f32, so that only the product with a scale in
 * f32 is rounded; that of floats of at most 8 bits is exact in f64. */
void weft__map_DequantizeLinear(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int rank = weft__in_shape(n, 0).rank, type = weft__in_type(n, 0);
    const int axis = rank > 1 ? weft__attr_axis(n, "axis", 1, rank) : 0;
    const weft_dtype out = weft_dtype_of(g, weft__in_value(n, 1));
    const bool exact = weft__onnx_minifloat(type) && !has_offset(n, 2);
    const bool few_bits = has_few_bits(type) || exact;
    const weft_dtype dtype = few_bits && out == WEFT_F32 ? WEFT_F32 : WEFT_F64;
    const weft_value rounded = on_grid(n);
    const weft_value real = dequantized_bytes(n);
    weft_value x = weft_cast(g, weft__quantized_whole(n, 0), dtype);
    if (!exact) x = weft_sub(g, x, weft_cast(g, weft__quantized_along(n, 2, axis, rank, 0), dtype));
    x = weft_mul(g, x, weft_cast(g, weft__quantized_along(n, 1, axis, rank, 1), dtype));
    weft__set_out(n, 0,
                  weft_is_value(real)      ? real
                  : weft_is_value(rounded) ? rounded
                                           : weft_cast(g, x, out));
    if (!n->n_out) return;
    n->out[0].quantized = n->in[0];
    n->out[0].scale = n->in[1];
    n->out[0].zero = has_in(n, 2) ? n->in[2] : NULL;
    n->out[0].axis = axis;
}

dynamic_quantized weft__quantize_dynamically(weft_graph *g, weft_value x)
{
    const weft_value nothing = weft_scalar(g, WEFT_F32, 0);
    weft_value high = weft_maximum(g, weft_max(g, x, WEFT_ALL_AXES, false), nothing);
    weft_value low = weft_minimum(g, weft_min(g, x, WEFT_ALL_AXES, false), nothing);
    dynamic_quantized q;
    const weft_value range = weft_sub(g, high, low);
    q.scale = weft_div(g, range, weft_scalar(g, WEFT_F32, 255));
    /* Of zeros only, as in ONNX Runtime; ONNX's formula would divide 0 by 0. */
    q.scale = weft_masked_fill(g, q.scale, weft_equal(g, q.scale, nothing), 1);
    q.zero = weft_round(g, weft_clamp(g, weft_neg(g, weft_div(g, low, q.scale)), 0, 255));
    weft_value rounded = weft_round(g, weft_div(g, x, q.scale));
    q.whole = weft_clamp(g, weft_add(g, rounded, q.zero), 0, 255);
    return q;
}

void weft__map_DynamicQuantizeLinear(onnx_node *n)
{
    const dynamic_quantized q = weft__quantize_dynamically(n->graph, weft__in_value(n, 0));
    weft__set_quantized(n, q.whole, ONNX_UINT8);
    weft__set_typed(n, 1, q.scale, ONNX_FLOAT);
    weft__set_typed(n, 2, weft_cast(n->graph, q.zero, WEFT_I32), ONNX_UINT8);
}

weft_value weft__quantized_centred(onnx_node *n, size_t i, size_t zero_point, int axis)
{
    weft_value x = weft_cast(n->graph, weft__in_value(n, i), WEFT_F64);
    const int rank = weft__in_shape(n, i).rank;
    return weft_sub(n->graph, x, weft__quantized_along(n, zero_point, rank + axis, rank, 0));
}
