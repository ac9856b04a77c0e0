/* Ops of ONNX whose values follow from shapes or attributes. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>
#include <string.h>

/* Data decide element `i` of the known integers of output 0: it is the size of input 0 times
 * `each`. */
static void set_open(onnx_node *n, int64_t i, int64_t each)
{
    weft_graph *g = n->graph;
    onnx_value *out = &n->out[0];
    const onnx_tensor t = out->tensor;
    const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
    int32_t *least = weft__arena_alloc(&n->import->memory, bytes);
    if (!least) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a shape");
    if (weft__node_failed(n) || !((const int32_t *)t.data)[i]) return;
    memcpy(least, t.data, bytes);
    least[i] = 0;
    out->least = least;
    out->trainable = true;
    weft_value at = weft_arange(g, WEFT_I32, weft_shape_numel(t.shape), 0, 1);
    at = weft_reshape(g, weft_equal(g, at, weft_scalar(g, WEFT_I32, (double)i)), t.shape);
    const weft_value size = weft__size_times(g, n->in[0]->size, (double)each);
    out->value = weft_where(g, at, size, weft_constant(g, t.dtype, t.shape, t.data));
}

void weft__map_Shape(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    int64_t begin = weft__attr_int(n, "start", 0), end = weft__attr_int(n, "end", s.rank);
    int32_t dims[WEFT_MAX_RANK];
    if (begin < 0) begin += s.rank;
    if (end < 0) end += s.rank;
    if (begin < 0) begin = 0;
    if (end > s.rank) end = s.rank;
    int count = 0;
    for (int64_t i = begin; i < end; i++) {
        dims[count++] = (int32_t)s.dim[i];
        if (s.dim[i] > INT32_MAX)
            weft__node_fail(n, WEFT_TOO_LARGE, "a dimension does not fit i32");
    }
    weft__set_known(n, 0, ONNX_INT64, WEFT_SHAPE(count), dims);
    if (has_size(n, 0) && n->in[0]->sized_axis >= begin && n->in[0]->sized_axis < end)
        set_open(n, n->in[0]->sized_axis - begin, 1);
}

void weft__map_Size(onnx_node *n)
{
    const int64_t numel = weft_shape_numel(weft__in_shape(n, 0));
    const int32_t size = (int32_t)numel;
    if (size != numel)
        weft__node_fail(n, WEFT_TOO_LARGE, "the number of elements does not fit i32");
    weft__set_known(n, 0, ONNX_INT64, WEFT_SCALAR, &size);
    if (has_size(n, 0) && size)
        set_open(n, 0, numel / weft__in_shape(n, 0).dim[n->in[0]->sized_axis]);
}

/* A constant of the attribute "value" and its relatives. */
void weft__map_Constant(onnx_node *n)
{
    static const char *const names[] = {"value",      "value_float",  "value_floats", "value_int",
                                        "value_ints", "value_string", "value_strings"};
    const WeftOnnx__AttributeProto *a = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !a; i++)
        a = weft__attr_find(n, names[i]);
    if (a && a->t) {
        weft__set_tensor(n->import, &n->out[0], a->t);
        return;
    }
    if (a && (a->has_s || a->n_strings)) {
        weft__set_texts(n, 0, a->has_s ? &a->s : a->strings, a->has_s ? 1 : a->n_strings,
                        a->has_s ? WEFT_SCALAR : WEFT_SHAPE((int64_t)a->n_strings));
        return;
    }
    const bool is_float = a && (a->has_f || a->n_floats), is_int = a && (a->has_i || a->n_ints);
    if (!is_float && !is_int && !a) {
        weft__node_fail(n, WEFT_BAD_DTYPE, "has a value that is not a dense tensor of numbers");
        return;
    }
    const bool list = is_float ? a->n_floats || !a->has_f : a->n_ints || !a->has_i;
    const size_t count = !list ? 1 : is_float ? a->n_floats : a->n_ints;
    const weft_shape shape = list ? WEFT_SHAPE((int64_t)count) : WEFT_SCALAR;
    if (is_float) {
        weft__set_known(n, 0, ONNX_FLOAT, shape, list ? a->floats : &a->f);
        return;
    }
    int32_t *ints = weft__arena_alloc(&n->import->memory, (count + 1) * sizeof *ints);
    if (!ints) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a constant");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const int64_t value = list ? a->ints[i] : a->i;
        ints[i] = value >= INT64_MAX ? INT32_MAX : value <= -INT64_MAX ? INT32_MIN : (int32_t)value;
        if (ints[i] != value && value != INT64_MAX && value > -INT64_MAX)
            weft__node_fail(n, WEFT_BAD_DTYPE, "%lld does not fit i32", (long long)value);
    }
    weft__set_known(n, 0, ONNX_INT64, shape, ints);
}

void weft__map_ConstantOfShape(onnx_node *n)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, "value");
    weft_shape shape = {.rank = 0};
    onnx_tensor value = {.dtype = WEFT_F32, .shape = {1, {1}}, .data = &(const float){0}};
    shape.rank = weft__in_ints(n, 0, "shape", shape.dim, WEFT_MAX_RANK);
    if (a && a->t && !weft__attr_tensor(n, a, "value", &value)) return;
    if (shape.rank < 0) return;
    if (weft_shape_numel(value.shape) != 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its value must have one element");
        return;
    }
    weft_value one = weft_constant(n->graph, value.dtype, WEFT_SCALAR, value.data);
    weft__set_shaped(n, weft_broadcast_to(n->graph, one, shape),
                     a && a->t ? a->t->data_type : ONNX_FLOAT, 0);
}

void weft__map_Range(onnx_node *n)
{
    const double start = weft__in_number(n, 0, "start", 0),
                 limit = weft__in_number(n, 1, "limit", 0);
    const double step = weft__in_number(n, 2, "delta", 0), count = ceil((limit - start) / step);
    weft_dtype dtype;
    if (weft__node_failed(n) ||
        weft__onnx_type_dtype(weft__in_type(n, 0), "Range", &dtype, &n->import->error))
        return;
    if (step == 0 || !(count < INT32_MAX)) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "has a step of 0, or too many elements");
        return;
    }
    weft__set_typed(n, 0, weft_arange(n->graph, dtype, count > 0 ? (int64_t)count : 0, start, step),
                    weft__in_type(n, 0));
    if (!weft__is_open(n, 1, 0)) return;
    weft_value size = weft__size_plus(n->graph, weft__in_element(n, 1, 0), -start);
    if (step == 1 && dtype == WEFT_I32)
        weft__add_size(n, 0, 0, weft__size_between(n->graph, size, 0, count));
    else
        weft__node_fail(n, WEFT_NO_KERNEL, "needs a step of 1: data decide its limit");
}

/* Ones on a diagonal of a matrix. */
void weft__map_EyeLike(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0);
    const int type = (int)weft__attr_int(n, "dtype", weft__in_type(n, 0));
    const int64_t k = weft__attr_int(n, "k", 0);
    weft_dtype dtype;
    if (weft__node_failed(n) || weft__onnx_type_dtype(type, "EyeLike", &dtype, &n->import->error))
        return;
    if (s.rank != 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs a matrix");
        return;
    }
    weft_value below = weft_tril_mask(g, s.dim[0], s.dim[1], k - 1);
    weft_value up_to = weft_tril_mask(g, s.dim[0], s.dim[1], k);
    weft_value on = weft_logical_and(g, up_to, weft_logical_not(g, below));
    weft__set_typed(n, 0, weft_cast(g, on, dtype), type);
}

void weft__map_Trilu(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const bool upper = weft__attr_int(n, "upper", 1);
    const int64_t k = (int64_t)weft__in_number(n, 1, "k", 0);
    if (weft__node_failed(n)) return;
    if (s.rank < 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs matrices");
        return;
    }
    weft_value mask = weft_tril_mask(g, s.dim[s.rank - 2], s.dim[s.rank - 1], upper ? k - 1 : k);
    weft_value hidden = upper ? mask : weft_logical_not(g, mask);
    weft__set_typed(n, 0, weft_masked_fill(g, x, hidden, 0), weft__in_type(n, 0));
}
