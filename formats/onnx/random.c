/* Random ops of ONNX, and dropout. Their numbers are weft's: they follow from the seed of the run,
 * so an attribute `seed` has no effect. Nodes with such numbers are never computed during the
 * import. */
#include "onnx/import.h"
#include "onnx/ops.h"

typedef weft_value distribution(weft_graph *g, weft_dtype dtype, weft_shape shape, double a,
                                double b);

/* The type of the result: the attribute, or else `type`. */
static int result_type(onnx_node *n, int type, weft_dtype *dtype)
{
    weft_error error = {0};
    type = (int)weft__attr_int(n, "dtype", type);
    if (weft__onnx_type_dtype(type, "dtype", dtype, &error) != WEFT_OK || *dtype == WEFT_DTYPES)
        weft__node_fail(n, WEFT_BAD_DTYPE, "its dtype %s", error.message);
    return type;
}

/* Numbers of a shape. ONNX has types that weft draws in f32 or f64, and then casts. */
static void set_random(onnx_node *n, distribution *draw, weft_shape shape, int type, const char *a,
                       const char *b, double default_a)
{
    weft_dtype dtype;
    type = result_type(n, type, &dtype);
    if (weft__node_failed(n)) return;
    n->random = true;
    const weft_dtype drawn = dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    weft_value y =
        draw(n->graph, drawn, shape, weft__attr_float(n, a, default_a), weft__attr_float(n, b, 1));
    weft__set_typed(n, 0, drawn == dtype ? y : weft_cast(n->graph, y, dtype), type);
}

static weft_shape shape_attribute(onnx_node *n)
{
    weft_shape shape = {.rank = 0};
    const int rank = weft__attr_ints(n, "shape", shape.dim, WEFT_MAX_RANK);
    shape.rank = rank > 0 ? rank : 0;
    return shape;
}

void weft__map_RandomUniform(onnx_node *n)
{
    set_random(n, weft_random_uniform, shape_attribute(n), ONNX_FLOAT, "low", "high", 0);
}

void weft__map_RandomNormal(onnx_node *n)
{
    set_random(n, weft_random_normal, shape_attribute(n), ONNX_FLOAT, "mean", "scale", 0);
}

void weft__map_RandomUniformLike(onnx_node *n)
{
    set_random(n, weft_random_uniform, weft__in_shape(n, 0), weft__in_type(n, 0), "low", "high", 0);
}

void weft__map_RandomNormalLike(onnx_node *n)
{
    set_random(n, weft_random_normal, weft__in_shape(n, 0), weft__in_type(n, 0), "mean", "scale",
               0);
}

void weft__map_Bernoulli(onnx_node *n)
{
    weft_dtype dtype;
    const weft_value p = weft__in_value(n, 0);
    const int type = result_type(n, weft__in_type(n, 0), &dtype);
    if (weft__node_failed(n)) return;
    n->random = true;
    weft_value y = weft_bernoulli(n->graph, p);
    weft__set_typed(n, 0, weft_dtype_of(n->graph, p) == dtype ? y : weft_cast(n->graph, y, dtype),
                    type);
}

/* Drops elements of x, and sets output 1, the mask of elements that stay. */
static weft_value drop_with_mask(onnx_node *n, weft_value x, double ratio)
{
    weft_graph *g = n->graph;
    const weft_dtype dtype = weft_dtype_of(g, x);
    weft_value kept = weft_bernoulli(g, weft_fill(g, dtype, weft_shape_of(g, x), 1 - ratio));
    weft_value mask = weft_cast(g, kept, WEFT_BOOL);
    weft__set_out(n, 1, mask);
    if (ratio == 1) return weft_mul_scalar(g, x, 0);
    const weft_value scaled = weft_mul_scalar(g, x, 1 / (1 - ratio));
    return weft_where(g, mask, scaled, weft_scalar(g, dtype, 0));
}

/* Passes its input through, except in training. */
void weft__map_Dropout(onnx_node *n)
{
    const onnx_mode mode = n->import->mode;
    const bool asked = n->opset >= 12 && weft__in_number(n, 2, "training_mode", 0) != 0;
    const bool training = mode == ONNX_AS_FILE ? asked : mode == ONNX_TRAINING;
    const double ratio = !training        ? 0
                         : n->opset >= 12 ? weft__in_number(n, 1, "ratio", 0.5)
                                          : weft__attr_float(n, "ratio", 0.5);
    weft_value x = weft__in_value(n, 0);
    if (weft__node_failed(n)) return;
    if (!(ratio >= 0 && ratio <= 1)) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "its ratio must be in [0, 1], got %g", ratio);
        return;
    }
    n->random = ratio != 0;
    if (ratio != 0 && (has_out(n, 1) || ratio == 1)) {
        x = drop_with_mask(n, x, ratio);
    } else {
        x = weft_dropout(n->graph, x, ratio);
        if (has_out(n, 1))
            weft__set_out(n, 1, weft_fill(n->graph, WEFT_BOOL, weft__in_shape(n, 0), 1));
    }
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
}
