/* Sizes that data decide: the results of NonZero, Compress, TopK with a computed k and Range up to a
 * computed limit, and what follows from them.
 *
 * In the graph, and so in its plan, such a value has the largest size that is possible. In a run,
 * the first positions along one axis count, as many as a scalar of the graph says; what the others
 * hold has no meaning. Most ops compute each position from its own, and their results count where
 * their inputs do; the table says which ops do so, and along which axis. Ops that compute from
 * several positions read the size themselves. Any other op is refused. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <string.h>

/* ---- What mappings use ---- */

weft_value weft__counted(weft_graph *g, weft_value size, int64_t dim, int axis, int rank)
{
    weft_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = i == axis ? dim : 1;
    return weft_reshape(g, weft_less(g, weft_arange(g, WEFT_I32, dim, 0, 1), size), shape);
}

weft_value weft__in_filled(onnx_node *n, size_t i, double value)
{
    return weft__filled(n, i, weft__in_value(n, i), value);
}

weft_value weft__filled(onnx_node *n, size_t i, weft_value x, double value)
{
    if (!has_size(n, i) || weft__node_failed(n)) return x;
    const weft_shape s = weft__in_shape(n, i);
    const int axis = n->in[i]->sized_axis;
    weft_value counted = weft__counted(n->graph, n->in[i]->size, s.dim[axis], axis, s.rank);
    return weft_masked_fill(n->graph, x, weft_logical_not(n->graph, counted), value);
}

weft_value weft__true_positions(weft_graph *g, weft_value mask, weft_value *size)
{
    const int64_t count = weft_dim_of(g, mask, 0);
    weft_value ones = weft_cast(g, mask, WEFT_F64);
    weft_value place = weft_add_scalar(g, weft_cumsum(g, ones, 0, false), -1);
    /* A false element goes to a place of its own after all others, which is cut off. */
    place = weft_where(g, mask, place, weft_fill(g, WEFT_F64, WEFT_SHAPE(1), (double)count));
    weft_value number = weft_mul(g, weft_arange(g, WEFT_F64, count, 0, 1), ones);
    weft_value found = weft_fill(g, WEFT_F64, WEFT_SHAPE(count + 1), 0);
    found = weft_scatter_add(g, found, weft_cast(g, place, WEFT_I32), number, 0);
    *size = weft_cast(g, weft_sum(g, ones, WEFT_AXES(0), false), WEFT_I32);
    return weft_cast(g, weft_slice(g, found, 0, 0, count, 1), WEFT_I32);
}

weft_value weft__in_flat(onnx_node *n, size_t i, weft_value *size)
{
    weft_graph *g = n->graph;
    const weft_value x = weft_reshape(g, weft__in_value(n, i), WEFT_SHAPE(-1));
    *size = WEFT_NO_VALUE;
    if (!has_size(n, i) || weft__node_failed(n)) return x;
    const weft_shape s = weft__in_shape(n, i);
    const int axis = n->in[i]->sized_axis;
    weft_value counted = weft__counted(g, n->in[i]->size, s.dim[axis], axis, s.rank);
    counted = weft_reshape(g, weft_broadcast_to(g, counted, s), WEFT_SHAPE(-1));
    return weft_gather(g, x, weft__true_positions(g, counted, size), 0);
}

weft_value weft__size_checked(weft_graph *g, weft_value size, weft_value bound)
{
    const weft_value zero = weft_scalar(g, WEFT_I32, 0);
    weft_value outside = weft_less(g, size, zero);
    outside = weft_logical_or(g, outside, weft_greater(g, size, bound));
    return weft_where(g, weft__unless(g, outside), size, zero);
}

weft_value weft__size_between(weft_graph *g, weft_value size, double low, double high)
{
    return weft_cast(g, weft_clamp(g, weft_cast(g, size, WEFT_F64), low, high), WEFT_I32);
}

weft_value weft__size_plus(weft_graph *g, weft_value size, double by)
{
    return weft_cast(g, weft_add_scalar(g, weft_cast(g, size, WEFT_F64), by), WEFT_I32);
}

weft_value weft__size_times(weft_graph *g, weft_value size, double factor)
{
    weft_value product = weft_mul_scalar(g, weft_cast(g, size, WEFT_F64), factor);
    product = weft_floor(g, weft_add_scalar(g, product, 0.5));
    return factor == 1 ? size : weft_cast(g, product, WEFT_I32);
}

void weft__add_size(onnx_node *n, size_t i, int axis, weft_value size)
{
    onnx_value *out = &n->out[i];
    if (i >= n->n_out || !weft_is_value(out->value) || weft__node_failed(n)) return;
    if (weft_is_value(out->size) && out->sized_axis != axis) {
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "has a result with two dimensions, %d and %d, whose sizes data decide",
                        out->sized_axis, axis);
        return;
    }
    if (!weft_is_value(out->size)) out->size = size;
    out->sized_axis = axis;
}

static bool differs(const onnx_value *v, int64_t element)
{
    const onnx_tensor least = {v->tensor.dtype, v->tensor.shape, v->least};
    return onnx_tensor_element(&v->tensor, element) != onnx_tensor_element(&least, element);
}

bool weft__is_open(const onnx_node *n, size_t i, int64_t element)
{
    const onnx_value *v = has_in(n, i) ? n->in[i] : NULL;
    return v && v->least && !n->folding && differs(v, element);
}

weft_value weft__in_element(onnx_node *n, size_t i, int64_t element)
{
    weft_graph *g = n->graph;
    weft_value all = weft_reshape(g, weft__in_value(n, i), WEFT_SHAPE(-1));
    all = weft_cast(g, weft_slice(g, all, 0, element, element + 1, 1), WEFT_I32);
    return weft_reshape(g, all, WEFT_SCALAR);
}

void weft__set_shaped(onnx_node *n, weft_value value, int type, size_t shape)
{
    const int64_t count = weft_shape_numel(weft__in_shape(n, shape));
    const int first = weft_rank_of(n->graph, value) - (int)count;
    weft__set_typed(n, 0, value, type);
    for (int64_t i = 0; i < count && !weft__node_failed(n); i++) {
        if (weft__is_open(n, shape, i))
            weft__add_size(n, 0, first + (int)i, weft__in_element(n, shape, i));
    }
}

/* ---- Rules ---- */

static void refuse(onnx_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        if (!has_size(n, i) && !(has_in(n, i) && n->in[i]->least)) continue;
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "reads \"%s\", whose size data decide: it is not supported for such values",
                        n->in[i]->name);
        return;
    }
}

static void give_all(onnx_node *n, int axis, weft_value size)
{
    for (size_t i = 0; i < n->n_out; i++) weft__add_size(n, i, axis, size);
}

/* Dimensions correspond from the last one on. */
static void broadcast(onnx_node *n)
{
    if (n->read_open) refuse(n);
    if (weft__node_failed(n)) return;
    const weft_shape out = weft_shape_of(n->graph, n->out[0].value);
    for (size_t i = 0; i < n->n_in; i++) {
        if (!has_size(n, i)) continue;
        const weft_shape s = weft__in_shape(n, i);
        const int from = n->in[i]->sized_axis, axis = from + out.rank - s.rank;
        if (s.dim[from] != out.dim[axis]) {
            weft__node_fail(n, WEFT_BAD_SHAPE,
                            "repeats dimension %d of \"%s\", whose size data decide, at most %lld",
                            from, n->in[i]->name, (long long)s.dim[from]);
            return;
        }
        give_all(n, axis, n->in[i]->size);
    }
}

/* The dimensions stay: the op works along others, or on each first dimension alone. */
static void same_axis(onnx_node *n)
{
    if (has_size(n, 0)) give_all(n, n->in[0]->sized_axis, n->in[0]->size);
}

/* The same along `axis` of the node, which must be another one. */
static void along(onnx_node *n, int64_t default_axis, bool and_after)
{
    if (!has_size(n, 0)) {
        refuse(n);
        return;
    }
    const int axis = weft__attr_axis(n, "axis", default_axis, weft__in_shape(n, 0).rank);
    const int sized = n->in[0]->sized_axis;
    if (sized == axis || (and_after && sized > axis))
        refuse(n);
    else
        same_axis(n);
}

static void along_last(onnx_node *n)
{
    along(n, n->opset >= 13 ? -1 : 1, n->opset < 13);
}

static void from_axis(onnx_node *n)
{
    along(n, -1, true);
}

static void along_axis(onnx_node *n)
{
    along(n, 0, false);
}

/* The axis may be removed. */
static void search(onnx_node *n)
{
    along(n, 0, false);
    if (weft__node_failed(n) || weft__attr_int(n, "keepdims", 1)) return;
    const int axis = weft__attr_axis(n, "axis", 0, weft__in_shape(n, 0).rank);
    if (n->out[0].sized_axis > axis) n->out[0].sized_axis--;
}

/* Each first dimension is computed alone: images of a batch, rows of a matrix. */
static void rows(onnx_node *n)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (has_size(n, i) && (i || n->in[i]->sized_axis)) {
            refuse(n);
            return;
        }
    same_axis(n);
}

/* The op leaves the dimension as it is, or changes it, which shows in its size. */
static void other_axes(onnx_node *n)
{
    if (weft__node_failed(n)) return;
    const int axis = has_size(n, 0) ? n->in[0]->sized_axis : 0;
    const weft_shape out = weft_shape_of(n->graph, n->out[0].value);
    if (!has_size(n, 0) || out.dim[axis] != weft__in_shape(n, 0).dim[axis])
        refuse(n);
    else
        same_axis(n);
}

static void gemm(onnx_node *n)
{
    if (weft__attr_int(n, "transA", 0))
        refuse(n);
    else
        rows(n);
}

static void regions(onnx_node *n)
{
    for (size_t i = 1; i < n->n_in; i++)
        if (has_size(n, i)) give_all(n, 0, n->in[i]->size);
    if (has_size(n, 0)) refuse(n);
}

static void transpose(onnx_node *n)
{
    int64_t perm[WEFT_MAX_RANK];
    const int rank = weft__in_shape(n, 0).rank;
    const int count = weft__attr_ints(n, "perm", perm, WEFT_MAX_RANK);
    for (int i = 0; i < rank; i++) {
        const int from = count ? weft__node_axis(n, perm[i], rank) : rank - 1 - i;
        if (from == n->in[0]->sized_axis) give_all(n, i, n->in[0]->size);
    }
}

static int64_t product(weft_shape shape, int begin, int end)
{
    int64_t size = 1;
    for (int i = begin; i < end; i++) size *= shape.dim[i];
    return size;
}

/* The dimension of the result that has as many elements before it as the axis of the input. It may
 * be joined with those after it, or be cut into whole rows. */
static void view(onnx_node *n)
{
    if (!has_size(n, 0) || weft__node_failed(n)) {
        refuse(n);
        return;
    }
    const weft_shape old = weft__in_shape(n, 0), now = weft_shape_of(n->graph, n->out[0].value);
    const int axis = n->in[0]->sized_axis;
    const int64_t before = product(old, 0, axis), dim = old.dim[axis];
    int found = -1;
    for (int i = 0; i < now.rank; i++) {
        if (product(now, 0, i) != before || now.dim[i] < 1) continue;
        if (now.dim[i] == dim || (found < 0 && (now.dim[i] % dim == 0 || dim % now.dim[i] == 0)))
            found = i;
        if (now.dim[i] == dim) break;
    }
    if (found < 0 || !dim)
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "joins dimension %d, whose size data decide, with those before it", axis);
    else
        give_all(n, found,
                 weft__size_times(n->graph, n->in[0]->size, (double)now.dim[found] / (double)dim));
}

static void matmul(onnx_node *n)
{
    if (weft__node_failed(n)) return;
    const weft_shape out = weft_shape_of(n->graph, n->out[0].value);
    for (size_t i = 0; i < 2; i++) {
        if (!has_size(n, i)) continue;
        const int rank = weft__in_shape(n, i).rank, axis = n->in[i]->sized_axis;
        /* The dimension that is summed over. */
        if (rank < 2 || weft__in_shape(n, 1 - i).rank < 2 || axis == (i ? rank - 2 : rank - 1)) {
            refuse(n);
            return;
        }
        give_all(n, axis + out.rank - rank, n->in[i]->size);
    }
}

/* The mapping has read the sizes. */
static void own(onnx_node *n)
{
    (void)n;
}

/* ---- The table ---- */

typedef struct size_rule {
    const char *op;
    void (*apply)(onnx_node *n);
} size_rule;

static const size_rule rules[] = {
#define ROW(name, min_in, max_in, max_out) {#name, broadcast},
    ONNX_ELEMENTWISE(ROW) ONNX_BITS(ROW)
#undef ROW
        {"Shape", own},
    {"Size", own},
    {"NonZero", own},
    {"NonMaxSuppression", own},
    {"Compress", own},
    {"Unique", own},
    {"Gather", own},
    {"GatherElements", own},
    {"GatherND", own},
    {"ScatterElements", own},
    {"ScatterND", own},
    {"Concat", own},
    {"Slice", own},
    {"Pad", own},
    {"TopK", own},
    {"Range", own},
    {"ConstantOfShape", own},
    {"Expand", own},
    {"ReduceSum", own},
    {"ReduceMean", own},
    {"ReduceMax", own},
    {"ReduceMin", own},
    {"ReduceProd", own},
    {"ReduceL1", own},
    {"ReduceL2", own},
    {"ReduceSumSquare", own},
    {"ReduceLogSum", own},
    {"ReduceLogSumExp", own},
    {"ArgMax", search},
    {"ArgMin", search},
    {"Split", along_axis},
    {"Softmax", along_last},
    {"LogSoftmax", along_last},
    {"LayerNormalization", from_axis},
    {"Reshape", view},
    {"Flatten", view},
    {"Squeeze", view},
    {"Unsqueeze", view},
    {"Transpose", transpose},
    {"MatMul", matmul},
    {"Gemm", gemm},
    {"Conv", rows},
    {"ConvTranspose", rows},
    {"Resize", other_axes},
    {"BatchNormalization", rows},
    {"MaxPool", rows},
    {"AveragePool", rows},
    {"GlobalAveragePool", rows},
    {"RoiAlign", regions},
};

void weft__spread_sizes(onnx_node *n)
{
    bool any = n->read_open;
    for (size_t i = 0; i < n->n_in && !any; i++) any = has_size(n, i);
    if (!any || weft__node_failed(n)) return;
    /* Bodies are mapped node by node, and values of sequences keep their sizes. But these compute
     * from several positions. */
    if (n->op->controls && strcmp(n->op->name, "FlexAttention") != 0 &&
        strcmp(n->op->name, "SplitToSequence") != 0)
        return;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!n->op->domain[0] && !strcmp(rules[i].op, n->op->name)) {
            rules[i].apply(n);
            return;
        }
    refuse(n);
}
