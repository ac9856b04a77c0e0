/* Views: other shapes over the same storage. They cost nothing at run time. */
#include "kernels/kernel.h"

#include "batch.h"
#include "onnx.h"
#include "samples.h"

#include <weft/ops.h>

typedef struct reshape_attr {
    weft_shape shape;
} reshape_attr;
typedef struct permute_attr {
    int32_t count;
    int32_t axes[WEFT_MAX_RANK];
} permute_attr;

static const weft_attr_field shape_fields[] = {
    {"shape", WEFT_ATTR_SHAPE, offsetof(reshape_attr, shape)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define VIEW_OP(op, text, attribute, fields, shape_rule, alias_rule, vjp_rule)                     \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(attribute),                                                            \
        .attrs = fields,                                                                           \
        .infer = shape_rule,                                                                       \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .alias = alias_rule,                                                                       \
        .onnx = onnx_##op##_rule,                                                                  \
        .batch = batch_##op,                                                                       \
        .vjp = vjp_rule,                                                                           \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };

/* ---- reshape ---- */

static bool infer_reshape(weft_infer *infer)
{
    char a[128], b[128];
    weft_shape in = infer->in[0].shape, out = ((const reshape_attr *)infer->attr)->shape;
    int64_t numel = weft_shape_numel(in), known = 1;
    int open = -1;
    bool good = out.rank >= 0 && out.rank <= WEFT_MAX_RANK;
    for (int i = 0; good && i < out.rank; i++) {
        if (out.dim[i] == -1 && open < 0)
            open = i;
        else if (out.dim[i] < 0)
            good = false;
        else if (out.dim[i] && known > INT64_MAX / out.dim[i])
            good = false;
        else
            known *= out.dim[i];
    }
    if (good && open >= 0) {
        good = known > 0 && numel % known == 0;
        if (good) out.dim[open] = numel / known;
    }
    if (!good || weft_shape_numel(out) != numel)
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE, "%s does not reshape to %s", weft_shape_text(in, a, sizeof a),
            weft_shape_text(((const reshape_attr *)infer->attr)->shape, b, sizeof b));
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

/* Matches groups of dimensions of equal product from the left; within a group the input must lie
 * like one dimension of constant stride, which the new dimensions then divide among them. */
static bool alias_reshape(const void *attr, const weft_type *in, const weft_layout *in_layout,
                          const weft_type *out, weft_layout *out_layout)
{
    (void)attr;
    int i = 0, o = 0, ni = in->shape.rank, no = out->shape.rank;
    out_layout->offset = in_layout->offset;
    if (weft_shape_numel(in->shape) == 0) {
        for (int d = 0; d < no; d++) out_layout->stride[d] = 1;
        return true;
    }
    while (i < ni || o < no) {
        while (i < ni && in->shape.dim[i] == 1) i++;
        if (i == ni) {
            for (; o < no; o++) out_layout->stride[o] = 1; /* only ones are left */
            break;
        }
        /* As many elements are left of the output, so o < no. */
        int64_t left = in->shape.dim[i], right = out->shape.dim[o];
        int i_end = i + 1, o_end = o + 1;
        while (left != right) {
            if (left < right) {
                int before = i_end - 1;
                while (before > i && in->shape.dim[before] == 1) before--;
                int64_t dim = in->shape.dim[i_end];
                if (dim != 1 && in_layout->stride[before] != dim * in_layout->stride[i_end])
                    return false;
                left *= dim;
                i_end++;
            } else {
                right *= out->shape.dim[o_end++];
            }
        }
        int last = i_end - 1;
        while (last > i && in->shape.dim[last] == 1) last--;
        int64_t stride = in_layout->stride[last];
        for (int d = o_end - 1; d >= o; d--) {
            out_layout->stride[d] = stride;
            stride *= out->shape.dim[d];
        }
        i = i_end;
        o = o_end;
    }
    return true;
}

static void vjp_reshape(weft_vjp *v)
{
    v->grad_in[0] = weft_reshape(v->graph, v->grad_out[0], weft_shape_of(v->graph, v->in[0]));
}

static void batch_reshape(weft_batch *b)
{
    b->out[0] = weft__batch_unfold(b, b->in[0], b->one_out[0]);
}

static void onnx_reshape_rule(weft_export *e)
{
    e->out[0] = onnx_reshape(e, e->in[0], e->out_type[0].shape);
}

static const reshape_attr reshape_a = {{3, {2, 3, 2}}}, reshape_b = {{2, {-1, 4}}},
                          reshape_c = {{0, {0}}}, reshape_d = {{2, {0, 7}}};
static const weft_sample samples_reshape[] = {
    {&reshape_a, 1, {FLOATS({2, {3, 4}})}},
    {&reshape_b, 1, {FLOATS({3, {2, 6, 1}})}},
    {&reshape_c, 1, {FLOATS({2, {1, 1}})}},
    {&reshape_d, 1, {FLOATS({2, {0, 2}})}},
};
VIEW_OP(reshape, "The same elements in row-major order under another shape.", reshape_attr,
        shape_fields, infer_reshape, alias_reshape, vjp_reshape)

weft_value weft_reshape(weft_graph *graph, weft_value x, weft_shape shape)
{
    reshape_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = shape.rank; /* field by field: equal nodes have equal bytes, gaps too */
    memcpy(attr.shape.dim, shape.dim, sizeof shape.dim);
    if (weft_is_value(x) && weft_shape_equal(weft_shape_of(graph, x), shape)) return x;
    return weft_apply(graph, &weft_op_reshape, &attr, &x, 1, NULL);
}

weft_value weft_expand_dims(weft_graph *graph, weft_value x, int axis)
{
    weft_shape s = weft_shape_of(graph, x), r = {s.rank + 1, {0}};
    const int at = axis_from_front(axis, r.rank);
    if (at < 0 || at > s.rank || r.rank > WEFT_MAX_RANK) {
        weft_graph_fail_in(graph, "expand_dims", WEFT_BAD_ARGUMENT,
                           "axis %d is outside rank %d, or the rank exceeds the maximum", axis,
                           r.rank);
        return WEFT_NO_VALUE;
    }
    for (int d = 0; d < r.rank; d++) r.dim[d] = d == at ? 1 : s.dim[d - (d > at)];
    return weft_reshape(graph, x, r);
}

weft_value weft_squeeze(weft_graph *graph, weft_value x, int axis)
{
    weft_shape s = weft_shape_of(graph, x), r = {s.rank - 1, {0}};
    const int at = axis_from_front(axis, s.rank);
    if (at < 0 || at >= s.rank || s.dim[at] != 1) {
        char text[128];
        weft_graph_fail_in(graph, "squeeze", WEFT_BAD_SHAPE, "axis %d of %s is not of size 1", axis,
                           weft_shape_text(s, text, sizeof text));
        return WEFT_NO_VALUE;
    }
    for (int d = 0; d < r.rank; d++) r.dim[d] = s.dim[d + (d >= at)];
    return weft_reshape(graph, x, r);
}

/* ---- permute ---- */

static bool infer_permute(weft_infer *infer)
{
    char text[128];
    const permute_attr *attr = infer->attr;
    weft_shape in = infer->in[0].shape, out = {in.rank, {0}};
    unsigned seen = 0;
    if (attr->count != in.rank)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "%d axes for %s, expected one for each dimension", attr->count,
                               weft_shape_text(in, text, sizeof text));
    for (int i = 0; i < in.rank; i++) {
        const int axis = attr->axes[i];
        if (axis < 0 || axis >= in.rank || seen >> axis & 1)
            return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                                   "axis %d is outside [-%d, %d), or named twice", axis, in.rank,
                                   in.rank);
        seen |= 1u << axis;
    }
    for (int i = 0; i < in.rank; i++) out.dim[i] = in.dim[attr->axes[i]];
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

static bool alias_permute(const void *attr, const weft_type *in, const weft_layout *in_layout,
                          const weft_type *out, weft_layout *out_layout)
{
    (void)in;
    out_layout->offset = in_layout->offset;
    for (int i = 0; i < out->shape.rank; i++)
        out_layout->stride[i] = in_layout->stride[((const permute_attr *)attr)->axes[i]];
    return true;
}

static void vjp_permute(weft_vjp *v)
{
    const permute_attr *attr = v->attr;
    weft_axes inverse = {attr->count, {0}};
    for (int i = 0; i < attr->count; i++) inverse.axis[attr->axes[i]] = i;
    v->grad_in[0] = weft_permute(v->graph, v->grad_out[0], inverse);
}

static void batch_permute(weft_batch *b)
{
    const permute_attr *attr = b->attr;
    weft_axes axes = {attr->count + 1, {0}};
    for (int i = 0; i < attr->count; i++) axes.axis[i + 1] = attr->axes[i] + 1;
    b->out[0] = weft_permute(b->graph, b->in[0], axes);
}

static void onnx_permute_rule(weft_export *e)
{
    const permute_attr *attr = e->attr;
    int64_t axes[WEFT_MAX_RANK];
    for (int i = 0; i < attr->count; i++) axes[i] = attr->axes[i];
    weft_export_same(e, "Transpose");
    weft_export_ints(e, "perm", axes, (size_t)attr->count);
}

static const permute_attr permute_a = {2, {1, 0}}, permute_b = {3, {2, 0, 1}};
static const weft_sample samples_permute[] = {
    {&permute_a, 1, {FLOATS({2, {3, 4}})}},
    {&permute_b, 1, {FLOATS({3, {2, 3, 2}})}},
    {&permute_a, 1, {FLOATS({2, {0, 2}})}},
};
static const weft_attr_field permute_fields[] = {
    {"axes", WEFT_ATTR_INTS, offsetof(permute_attr, count)},
    {NULL, WEFT_ATTR_INT, 0},
};
VIEW_OP(permute, "Dimension i of y is dimension axes[i] of x.", permute_attr, permute_fields,
        infer_permute, alias_permute, vjp_permute)

weft_value weft_permute(weft_graph *graph, weft_value x, weft_axes axes)
{
    permute_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.count = axes.count;
    for (int i = 0; i < axes.count && i < WEFT_MAX_RANK; i++)
        attr.axes[i] = axis_from_front(axes.axis[i], weft_rank_of(graph, x));
    return weft_apply(graph, &weft_op_permute, &attr, &x, 1, NULL);
}

weft_value weft_transpose(weft_graph *graph, weft_value x, int axis_a, int axis_b)
{
    weft_axes order = {weft_rank_of(graph, x), {0}};
    const int a = axis_from_front(axis_a, order.count), b = axis_from_front(axis_b, order.count);
    if (a < 0 || a >= order.count || b < 0 || b >= order.count) {
        weft_graph_fail_in(graph, "transpose", WEFT_BAD_ARGUMENT,
                           "axis %d or %d is outside rank %d", axis_a, axis_b, order.count);
        return WEFT_NO_VALUE;
    }
    for (int i = 0; i < order.count; i++) order.axis[i] = i == a ? b : i == b ? a : i;
    return weft_permute(graph, x, order);
}

/* ---- broadcast_to ---- */

/* Whether rank and dimensions are in range. The graph checks the product of every result. */
static bool has_dimensions(weft_shape shape)
{
    bool good = shape.rank >= 0 && shape.rank <= WEFT_MAX_RANK;
    for (int d = 0; good && d < shape.rank; d++) good = shape.dim[d] >= 0;
    return good;
}

static bool infer_broadcast(weft_infer *infer)
{
    char a[128], b[128];
    weft_shape in = infer->in[0].shape, out = ((const reshape_attr *)infer->attr)->shape, joint;
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return (has_dimensions(out) && weft_shape_broadcast(in, out, &joint) &&
            weft_shape_equal(joint, out)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s does not broadcast to %s",
                           weft_shape_text(in, a, sizeof a), weft_shape_text(out, b, sizeof b));
}

static bool alias_broadcast(const void *attr, const weft_type *in, const weft_layout *in_layout,
                            const weft_type *out, weft_layout *out_layout)
{
    (void)attr;
    int extra = out->shape.rank - in->shape.rank;
    out_layout->offset = in_layout->offset;
    for (int d = 0; d < out->shape.rank; d++)
        out_layout->stride[d] =
            d < extra || in->shape.dim[d - extra] == 1 ? 0 : in_layout->stride[d - extra];
    return true;
}

static void vjp_broadcast(weft_vjp *v)
{
    v->grad_in[0] = weft_sum_to(v->graph, v->grad_out[0], weft_shape_of(v->graph, v->in[0]));
}

static void batch_broadcast_to(weft_batch *b)
{
    const weft_shape one = weft_shape_of(b->graph, b->one_out[0]);
    const weft_value x = weft__batch_align(b->graph, b->in[0], one.rank);
    b->out[0] = weft_broadcast_to(b->graph, x, weft__batch_shape(b, one));
}

static void onnx_broadcast_to_rule(weft_export *e)
{
    const weft_shape *shape = &e->out_type[0].shape;
    const weft_operand sizes = weft_export_int64s(e, shape->dim, (size_t)shape->rank);
    e->out[0] = weft_export_binary(e, "Expand", e->in[0], sizes);
}

static const reshape_attr broadcast_a = {{3, {2, 3, 4}}}, broadcast_b = {{2, {2, 2}}};
static const weft_sample samples_broadcast_to[] = {
    {&broadcast_a, 1, {FLOATS({2, {3, 1}})}},
    {&broadcast_b, 1, {FLOATS({0, {0}})}},
    {&broadcast_b, 1, {FLOATS({2, {2, 2}})}},
};
VIEW_OP(broadcast_to, "x repeated to the shape, as in NumPy; the gradient is summed back.",
        reshape_attr, shape_fields, infer_broadcast, alias_broadcast, vjp_broadcast)

weft_value weft_broadcast_to(weft_graph *graph, weft_value x, weft_shape shape)
{
    reshape_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.shape.rank = shape.rank; /* field by field: equal nodes have equal bytes, gaps too */
    memcpy(attr.shape.dim, shape.dim, sizeof shape.dim);
    if (weft_is_value(x) && weft_shape_equal(weft_shape_of(graph, x), shape)) return x;
    return weft_apply(graph, &weft_op_broadcast_to, &attr, &x, 1, NULL);
}

weft_value weft_contiguous(weft_graph *graph, weft_value x)
{
    weft_layout layout = weft_layout_of(graph, x);
    if (weft_is_value(x) && weft_layout_is_dense(&layout, weft_shape_of(graph, x))) return x;
    return weft_apply(graph, &weft_op_contiguous, NULL, &x, 1, NULL);
}
