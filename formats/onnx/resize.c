/* Resize and Upsample of ONNX, as weft_resize. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include "conv/resize.h"

#include <math.h>
#include <string.h>

/* ---- Attributes ---- */

typedef struct choice {
    const char *name;
    int value;
} choice;

static const choice coordinates[] = {
    {"half_pixel", WEFT_RESIZE_HALF_PIXEL},
    {"align_corners", WEFT_RESIZE_ALIGN_CORNERS},
    {"asymmetric", WEFT_RESIZE_ASYMMETRIC},
    {"pytorch_half_pixel", WEFT_RESIZE_PYTORCH_HALF_PIXEL},
    {"half_pixel_symmetric", WEFT_RESIZE_HALF_PIXEL_SYMMETRIC},
    {"tf_half_pixel_for_nn", WEFT_RESIZE_TF_HALF_PIXEL},
    {"tf_crop_and_resize", WEFT_RESIZE_CROP},
    {NULL, -1},
};
static const choice modes[] = {
    {"nearest", WEFT_RESIZE_NEAREST},
    {"cubic", WEFT_RESIZE_CUBIC},
    {NULL, WEFT_RESIZE_LINEAR},
};
static const choice roundings[] = {
    {"floor", WEFT_RESIZE_FLOOR},
    {"ceil", WEFT_RESIZE_CEIL},
    {"round_prefer_ceil", WEFT_RESIZE_PREFER_CEIL},
    {NULL, WEFT_RESIZE_PREFER_FLOOR},
};

/* The choice of an attribute; the last choice of a list covers all other words. */
static int choose(const onnx_node *n, const char *attr, const char *by_default, const choice *list)
{
    while (list->name && !weft__attr_is(n, attr, list->name, by_default)) list++;
    return list->value;
}

/* The options, except the axes with their sizes and crops. False after a failure. */
static bool read_options(onnx_node *n, weft_resize_options *o, double *cubic_coeff)
{
    const bool old = n->opset < 11;
    const int c =
        choose(n, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel", coordinates);
    if (c < 0)
        return weft__node_fail(n, WEFT_NO_KERNEL, "unsupported coordinate_transformation_mode"),
               false;
    *cubic_coeff = weft__attr_float(n, "cubic_coeff_a", -0.75);
    *o = (weft_resize_options){
        .mode = (weft_resize_mode)choose(n, "mode", "nearest", modes),
        .coordinates = (weft_resize_coordinates)c,
        .rounding =
            old ? WEFT_RESIZE_FLOOR
                : (weft_resize_rounding)choose(n, "nearest_mode", "round_prefer_floor", roundings),
        .antialias = weft__attr_int(n, "antialias", 0),
        .exclude_outside = weft__attr_int(n, "exclude_outside", 0),
        .cubic_coeff = cubic_coeff,
        .outside = weft__attr_float(n, "extrapolation_value", 0),
    };
    return !weft__node_failed(n);
}

/* Numbers of an input, if it is there and not empty; their number, or -1 after a failure. */
static int numbers(onnx_node *n, size_t i, const char *what, double *values)
{
    if (!has_in(n, i)) return 0;
    const onnx_tensor *t = weft__in_tensor(n, i, what);
    const int64_t count = t ? weft_shape_numel(t->shape) : 0;
    if (!t || count > 2 * WEFT_MAX_RANK || t->dtype == WEFT_BOOL) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its %s do not fit the rank of its input", what);
        return -1;
    }
    for (int64_t k = 0; k < count; k++)
        values[k] = t->dtype == WEFT_F32   ? (double)((const float *)t->data)[k]
                    : t->dtype == WEFT_F64 ? ((const double *)t->data)[k]
                                           : ((const int32_t *)t->data)[k];
    return (int)count;
}

/* ---- Sizes ---- */

/* One scale for all axes, which have sizes: the largest of which no axis, or the smallest of which
 * every axis, is larger than its size. */
static bool keep_ratio(onnx_node *n, const int64_t *in, weft_resize_options *o)
{
    const bool larger = weft__attr_is(n, "keep_aspect_ratio_policy", "not_smaller", "stretch");
    if (weft__attr_is(n, "keep_aspect_ratio_policy", "stretch", "stretch")) return true;
    if (!larger && !weft__attr_is(n, "keep_aspect_ratio_policy", "not_larger", "stretch"))
        return weft__node_fail(n, WEFT_BAD_FILE, "has an unknown keep_aspect_ratio_policy"), false;
    double scale = 0;
    for (int i = 0; i < o->axes.count; i++) {
        const double one = (double)o->size[i] / (double)in[i];
        if (i == 0 || (larger ? one > scale : one < scale)) scale = one;
    }
    for (int i = 0; i < o->axes.count; i++) {
        const double size = floor(scale * (double)in[i] + 0.5);
        if (!(size >= 1 && size < INT32_MAX))
            return weft__node_fail(n, WEFT_BAD_SHAPE, "a size is not positive"), false;
        o->scale[i] = scale;
        o->size[i] = (int64_t)size;
    }
    return true;
}

/* Sets axes, and their scales or their sizes, of which one is given. False after a failure. */
static bool set_sizes(onnx_node *n, const double *scales, int n_scales, const double *sizes,
                      int n_sizes, weft_resize_options *o)
{
    const weft_shape s = weft__in_shape(n, 0);
    const int given = n_sizes > 0 ? n_sizes : n_scales;
    int64_t axes[WEFT_MAX_RANK], in[WEFT_MAX_RANK];
    const int n_axes = weft__attr_ints(n, "axes", axes, WEFT_MAX_RANK);
    if (weft__node_failed(n)) return false;
    if (given < 1 || given != (n_axes ? n_axes : s.rank))
        return weft__node_fail(n, WEFT_BAD_SHAPE, "has %d scales or sizes for rank %d", given,
                               s.rank),
               false;
    for (int i = 0; i < given; i++) {
        const int axis = n_axes ? weft__node_axis(n, axes[i], s.rank) : i;
        const double number = n_sizes > 0 ? sizes[i] : scales[i];
        in[i] = s.dim[axis];
        if (!(number > 0 && number < INT32_MAX) || in[i] < 1)
            return weft__node_fail(n, WEFT_BAD_SHAPE, "a scale or a size is not positive"), false;
        o->axes.axis[o->axes.count++] = axis;
        if (n_sizes > 0)
            o->size[i] = (int64_t)number;
        else
            o->scale[i] = number;
    }
    return !weft__node_failed(n) && (n_sizes < 1 || keep_ratio(n, in, o));
}

static void resize(onnx_node *n, const weft_resize_options *o)
{
    const weft_value input = weft__in_value(n, 0);
    const bool picks = o->mode == WEFT_RESIZE_NEAREST;
    weft_value x = picks ? input : weft__widen(n, input);
    if (!weft__arena_count(&n->import->memory, weft__resize_constant_bytes(n->graph, x, o))) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for the weights of its axes");
        return;
    }
    x = weft_resize(n->graph, x, o);
    if (weft_dtype_of(n->graph, input) == WEFT_I32 && !picks)
        x = weft__narrow(n, x, weft__in_type(n, 0));
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
}

/* Inputs: x, region, scales, sizes; before opset 11 x and scales. */
void weft__map_Resize(onnx_node *n)
{
    double region[2 * WEFT_MAX_RANK], scales[2 * WEFT_MAX_RANK], sizes[2 * WEFT_MAX_RANK];
    double cubic_coeff;
    weft_resize_options o;
    const bool old = n->opset < 11;
    const int n_scales = numbers(n, old ? 1 : 2, "scales", scales);
    const int n_sizes = old ? 0 : numbers(n, 3, "sizes", sizes);
    if (!read_options(n, &o, &cubic_coeff) || !set_sizes(n, scales, n_scales, sizes, n_sizes, &o))
        return;
    if (!old && o.coordinates == WEFT_RESIZE_CROP) {
        o.crop = region;
        if (numbers(n, 1, "region", region) != 2 * o.axes.count) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "needs a region of %d numbers", 2 * o.axes.count);
            return;
        }
    }
    resize(n, &o);
}

/* Scales are an attribute before opset 9, then an input. */
void weft__map_Upsample(onnx_node *n)
{
    double scales[2 * WEFT_MAX_RANK], cubic_coeff;
    weft_resize_options o;
    int count = 0;
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, "scales");
    if (n->opset >= 9)
        count = numbers(n, 1, "scales", scales);
    else
        for (; a && count < WEFT_MAX_RANK && (size_t)count < a->n_floats; count++)
            scales[count] = (double)a->floats[count];
    if (read_options(n, &o, &cubic_coeff) && set_sizes(n, scales, count, NULL, 0, &o))
        resize(n, &o);
}
