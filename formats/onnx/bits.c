/* Ops of ONNX on the bits of integers, in f64; and BitCast. A number is its value modulo 2^bits of
 * its type; types of 64 bits are treated as 32 bits, in which weft has their numbers. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

static int bits_of(int type)
{
    return type == ONNX_INT8 || type == ONNX_UINT8     ? 8
           : type == ONNX_INT16 || type == ONNX_UINT16 ? 16
                                                       : 32;
}

static bool is_signed(int type)
{
    return type == ONNX_INT8 || type == ONNX_INT16 || type == ONNX_INT32 || type == ONNX_INT64;
}

/* x modulo 2^bits as a number of the type, in i32. */
static weft_value wrap(onnx_node *n, weft_value x, int type)
{
    weft_graph *g = n->graph;
    const double range = ldexp(1, bits_of(type)), low = is_signed(type) ? -range / 2 : 0;
    weft_value turns = weft_floor(g, weft_mul_scalar(g, weft_add_scalar(g, x, -low), 1 / range));
    return weft_cast(g, weft_sub(g, x, weft_mul_scalar(g, turns, range)), WEFT_I32);
}

/* Numbers of 64 bits are not wrapped, but end at the bounds of i32. A count of bits below 0, or as
 * many as the type has, leaves the sign only. */
void weft__map_BitShift(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int type = weft__in_type(n, 0);
    const bool left = weft__attr_is(n, "direction", "LEFT", "");
    const bool wraps = left && type != ONNX_INT64 && type != ONNX_UINT64;
    const double bits = type == ONNX_INT64 || type == ONNX_UINT64 ? 64 : bits_of(type);
    const weft_value x = weft_cast(g, weft__in_value(n, 0), WEFT_F64);
    const weft_value count = weft_cast(g, weft__in_value(n, 1), WEFT_F64);
    weft_value valid = weft_equal(g, weft_clamp(g, count, 0, bits - 1), count);
    weft_value two = weft_scalar(g, WEFT_F64, 2), zero = weft_scalar(g, WEFT_F64, 0);
    weft_value power = weft_pow(g, two, left ? count : weft_neg(g, count));
    weft_value sign = weft_cast(g, weft_less(g, x, zero), WEFT_F64);
    weft_value moved = weft_floor(g, weft_mul(g, x, power));
    weft_value emptied = left ? weft_mul_scalar(g, sign, 0) : weft_neg(g, sign);
    weft_value y = weft_where(g, valid, moved, emptied);
    weft__set_typed(n, 0, wraps ? wrap(n, y, type) : weft_cast(g, y, WEFT_I32), type);
}

/* The bits [..., bits] of an input, lowest first. */
static weft_value split_bits(onnx_node *n, size_t i)
{
    weft_graph *g = n->graph;
    double power[32], next[32];
    const int bits = bits_of(weft__in_type(n, 0));
    for (int k = 0; k < bits; k++) {
        power[k] = ldexp(1, -k);
        next[k] = ldexp(1, -k - 1);
    }
    const weft_shape shape = WEFT_SHAPE(bits);
    weft_value x = weft_expand_dims(g, weft_cast(g, weft__in_value(n, i), WEFT_F64), -1);
    weft_value from = weft_floor(g, weft_mul(g, x, weft__doubles_value(n, power, shape, WEFT_F64)));
    weft_value above = weft_floor(g, weft_mul(g, x, weft__doubles_value(n, next, shape, WEFT_F64)));
    return weft_sub(g, from, weft_mul_scalar(g, above, 2));
}

typedef weft_value binary(weft_graph *g, weft_value a, weft_value b);

static weft_value differ(weft_graph *g, weft_value a, weft_value b)
{
    return weft_abs(g, weft_sub(g, a, b));
}

static void map_bits(onnx_node *n, binary *f)
{
    weft_graph *g = n->graph;
    double power[32];
    const int type = weft__in_type(n, 0), bits = bits_of(type);
    for (int k = 0; k < bits; k++) power[k] = ldexp(1, k);
    const weft_value a = split_bits(n, 0), b = split_bits(n, 1);
    weft_value y = f(g, a, b);
    y = weft_mul(g, y, weft__doubles_value(n, power, WEFT_SHAPE(bits), WEFT_F64));
    weft__set_typed(n, 0, wrap(n, weft_sum(g, y, WEFT_AXES(-1), false), type), type);
}

void weft__map_BitwiseAnd(onnx_node *n)
{
    map_bits(n, weft_mul);
}

void weft__map_BitwiseOr(onnx_node *n)
{
    map_bits(n, weft_maximum);
}

void weft__map_BitwiseXor(onnx_node *n)
{
    map_bits(n, differ);
}

void weft__map_BitwiseNot(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft_cast(g, weft__in_value(n, 0), WEFT_F64);
    weft__set_typed(n, 0, wrap(n, weft_add_scalar(g, weft_neg(g, x), -1), weft__in_type(n, 0)),
                    weft__in_type(n, 0));
}

/* The same bits as another type of the same width. weft has the bits of f32 and of signed integers
 * of up to 32 bits only: f16, f64 and large unsigned numbers are refused. */
void weft__map_BitCast(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int from = weft__in_type(n, 0), to = (int)weft__attr_int(n, "to", 0);
    const size_t width = weft__onnx_type_bits(to), had = weft__onnx_type_bits(from);
    const weft_value x = weft__in_value(n, 0);
    double low, high;
    weft_dtype dtype;
    if (weft__node_failed(n)) return;
    if (width != had || width == 0) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "type %s has %zu bits, type %d has %zu",
                        weft__onnx_type_name(from), had, to, width);
        return;
    }
    const bool whole = weft__onnx_type_bounds(from, &low, &high);
    const bool into_whole = weft__onnx_type_bounds(to, &low, &high);
    const bool wide = width >= 32, loses = wide && (to == ONNX_UINT32 || to == ONNX_UINT64);
    const bool floats = from == ONNX_FLOAT || to == ONNX_FLOAT;
    if (weft__onnx_type_dtype(to, "", &dtype, NULL) != WEFT_OK ||
        (from != to && (loses || (whole ? !into_whole && !floats : !into_whole || !floats)))) {
        weft__node_fail(n, WEFT_NO_KERNEL, "bits of %s as %s are not supported",
                        weft__onnx_type_name(from), weft__onnx_type_name(to));
        return;
    }
    if (whole != into_whole)
        weft__set_typed(n, 0, weft_bitcast(g, x, dtype), to);
    else if (from == to || wide)
        weft__set_typed(n, 0, x, to);
    else
        weft__set_typed(n, 0, to == ONNX_BOOL ? weft_cast(g, x, dtype) : weft__narrow(n, x, to),
                        to);
}
