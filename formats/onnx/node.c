/* What mappings use: inputs, attributes, outputs, and integers as f64. */
#include "onnx/import.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

/* ---- Inputs ---- */

weft_value weft__in_value(onnx_node *n, size_t i)
{
    if (!has_in(n, i) || weft__node_failed(n)) return WEFT_NO_VALUE;
    onnx_value *v = n->in[i];
    if (!n->folding) return weft__import_value(n->import, v);
    n->trainable |= v->trainable;
    return weft_constant(n->graph, v->tensor.dtype, v->tensor.shape, v->tensor.data);
}

weft_shape weft__in_shape(onnx_node *n, size_t i)
{
    if (has_in(n, i) && n->in[i]->known) return n->in[i]->tensor.shape;
    return weft_shape_of(n->graph, weft__in_value(n, i));
}

int weft__in_type(const onnx_node *n, size_t i)
{
    return has_in(n, i) ? n->in[i]->type : ONNX_UNTYPED;
}

const onnx_tensor *weft__in_tensor(onnx_node *n, size_t i, const char *what)
{
    if (weft__node_failed(n)) return NULL;
    if (!has_in(n, i)) {
        weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu (%s)", i, what);
        return NULL;
    }
    if (!weft__import_contents(n->import, n->in[i])) return NULL;
    n->trainable |= n->in[i]->trainable;
    n->read_open |= n->in[i]->least != NULL;
    if (n->in[i]->known) return &n->in[i]->tensor;
    weft__node_fail(n, WEFT_BAD_ARGUMENT,
                    "needs the contents of \"%s\" (%s) during the import, but they depend on data",
                    n->in[i]->name, what);
    return NULL;
}

int weft__in_ints(onnx_node *n, size_t i, const char *what, int64_t *values, int capacity)
{
    if (!has_in(n, i)) return 0;
    const onnx_tensor *t = weft__in_tensor(n, i, what);
    if (!t) return -1;
    const int64_t count = weft_shape_numel(t->shape);
    if (t->dtype != WEFT_I32 || t->shape.rank > 1 || count > capacity) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "%s must be at most %d integers, not %s with %lld elements", what, capacity,
                        weft_dtype_name(t->dtype), (long long)count);
        return -1;
    }
    for (int64_t k = 0; k < count; k++) values[k] = ((const int32_t *)t->data)[k];
    return (int)count;
}

double weft__in_number(onnx_node *n, size_t i, const char *what, double default_value)
{
    if (!has_in(n, i)) return default_value;
    const onnx_tensor *t = weft__in_tensor(n, i, what);
    if (!t) return default_value;
    if (weft_shape_numel(t->shape) == 1) return onnx_tensor_element(t, 0);
    weft__node_fail(n, WEFT_BAD_SHAPE, "%s must be a single number", what);
    return default_value;
}

bool weft__in_is_number(onnx_node *n, size_t i, double *number)
{
    if (!has_in(n, i) || (n->in[i]->trainable && !n->in[i]->weight) ||
        !weft__import_contents(n->import, n->in[i]) || !n->in[i]->known)
        return false;
    const weft_shape shape = n->in[i]->tensor.shape;
    if (weft_shape_numel(shape) != 1 || shape.rank > weft__in_shape(n, 0).rank) return false;
    *number = onnx_tensor_element(&n->in[i]->tensor, 0);
    return true;
}

/* ---- Attributes ---- */

static const WeftOnnx__AttributeProto *find_in(const name_table *attributes, const char *name)
{
    const size_t *address = weft__name_table_find(attributes, name);
    return address ? (const WeftOnnx__AttributeProto *)(uintptr_t)*address : NULL;
}

const WeftOnnx__AttributeProto *weft__attr_find(const onnx_node *n, const char *name)
{
    const onnx_scope *scope = n->scope;
    const WeftOnnx__AttributeProto *a = NULL;
    for (size_t i = 0; i < n->proto->n_attribute && !a; i++)
        if (!strcmp(onnx_text(n->proto->attribute[i]->name), name)) a = n->proto->attribute[i];
    while (a && onnx_text(a->ref_attr_name)[0]) {
        const char *of_call = a->ref_attr_name;
        scope = weft__scope_function(scope);
        if (!scope) return NULL;
        a = find_in(&scope->attributes, of_call);
        if (!a) return find_in(&scope->function->defaults, of_call);
        scope = scope->caller;
    }
    return a;
}

bool weft__has_attr(const onnx_node *n, const char *name)
{
    return weft__attr_find(n, name) != NULL;
}

int64_t weft__attr_int(const onnx_node *n, const char *name, int64_t default_value)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    return a && a->has_i ? a->i : default_value;
}

double weft__attr_float(const onnx_node *n, const char *name, double default_value)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    return a && a->has_f ? (double)a->f : default_value;
}

bool weft__attr_is(const onnx_node *n, const char *name, const char *text, const char *default_text)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    if (!a || !a->has_s) return !strcmp(text, default_text);
    return a->s.len == strlen(text) && !memcmp(a->s.data, text, a->s.len);
}

int weft__attr_ints(onnx_node *n, const char *name, int64_t *values, int capacity)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    if (!a) return 0;
    if (a->n_ints > (size_t)capacity) {
        weft__node_fail(n, WEFT_BAD_FILE, "%s has %zu numbers, expected at most %d", name,
                        a->n_ints, capacity);
        return -1;
    }
    for (size_t i = 0; i < a->n_ints; i++) values[i] = a->ints[i];
    return (int)a->n_ints;
}

int64_t weft__attr_listed(const onnx_node *n, const char *name, size_t i)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    return a && i < a->n_ints ? a->ints[i] : 0;
}

int weft__node_axis(onnx_node *n, int64_t axis, int rank)
{
    if (axis >= -rank && axis < rank) return (int)(axis < 0 ? axis + rank : axis);
    weft__node_fail(n, WEFT_BAD_ARGUMENT, "axis %lld is outside of rank %d", (long long)axis, rank);
    return 0;
}

int weft__attr_axis(onnx_node *n, const char *name, int64_t default_value, int rank)
{
    return weft__node_axis(n, weft__attr_int(n, name, default_value), rank);
}

bool weft__attr_tensor(onnx_node *n, const WeftOnnx__AttributeProto *a, const char *name,
                       onnx_tensor *t)
{
    return weft__onnx_tensor_read(a->t, name, &n->import->memory,
                                  (onnx_files *)(uintptr_t)&n->import->model->files, t,
                                  &n->import->error) == WEFT_OK;
}

int weft__in_or_attr_ints(onnx_node *n, int64_t since, size_t i, const char *name, int64_t *values,
                          int capacity)
{
    return n->opset >= since ? weft__in_ints(n, i, name, values, capacity)
                             : weft__attr_ints(n, name, values, capacity);
}

/* ---- Outputs ---- */

static int default_type(const onnx_node *n, weft_dtype dtype)
{
    static const int types[] = {[WEFT_F32] = ONNX_FLOAT,
                                [WEFT_F64] = ONNX_DOUBLE,
                                [WEFT_BOOL] = ONNX_BOOL,
                                [WEFT_BF16] = ONNX_BFLOAT16,
                                [WEFT_U8] = ONNX_UINT8};
    if (dtype != WEFT_I32) return types[dtype];
    for (size_t i = 0; i < n->n_in; i++) {
        weft_dtype of;
        if (has_in(n, i) && weft__onnx_type_dtype(weft__in_type(n, i), "", &of, NULL) == WEFT_OK &&
            of == WEFT_I32)
            return weft__in_type(n, i);
    }
    return ONNX_INT64;
}

void weft__set_typed(onnx_node *n, size_t i, weft_value value, int type)
{
    if (i >= n->n_out || weft__node_failed(n)) return;
    n->out[i].value = value;
    n->out[i].region = n->import->region;
    n->out[i].type = type;
}

void weft__set_out(onnx_node *n, size_t i, weft_value value)
{
    weft__set_typed(n, i, value, default_type(n, weft_dtype_of(n->graph, value)));
}

void weft__set_known(onnx_node *n, size_t i, int type, weft_shape shape, const void *data)
{
    weft_dtype dtype;
    if (i >= n->n_out || weft__node_failed(n)) return;
    if (weft__onnx_value_dtype(type, onnx_text(n->proto->name), &dtype, &n->import->error) !=
        WEFT_OK)
        return;
    const size_t bytes = weft_tensor_bytes(dtype, shape);
    void *copy = weft__arena_alloc(&n->import->memory, bytes);
    if (!copy) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a constant");
        return;
    }
    n->out[i].tensor = (onnx_tensor){dtype, shape, bytes ? memcpy(copy, data, bytes) : copy};
    n->out[i].known = true;
    n->out[i].type = type;
}

/* ---- Integers ---- */

weft_value weft__widen(onnx_node *n, weft_value x)
{
    return weft_dtype_is_float(weft_dtype_of(n->graph, x)) ? x : weft_cast(n->graph, x, WEFT_F64);
}

weft_value weft__towards_zero(weft_graph *g, weft_value x)
{
    const weft_value sign = weft_sign(g, x);
    return weft_mul(g, sign, weft_floor(g, weft_abs(g, x)));
}

weft_value weft__saturate(onnx_node *n, weft_value x, int type)
{
    double low, high;
    return weft__onnx_type_bounds(type, &low, &high) ? weft_clamp(n->graph, x, low, high) : x;
}

weft_value weft__narrow(onnx_node *n, weft_value x, int type)
{
    weft_graph *g = n->graph;
    double low, high;
    if (weft__onnx_type_bounds(type, &low, &high) && high - low < INT32_MAX) {
        const double range = high - low + 1;
        x = weft__towards_zero(g, weft_cast(g, x, WEFT_F64));
        weft_value turns =
            weft_floor(g, weft_mul_scalar(g, weft_add_scalar(g, x, -low), 1 / range));
        x = weft_sub(g, x, weft_mul_scalar(g, turns, range));
    }
    return weft_cast(g, x, WEFT_I32);
}

weft_value weft__wrap_index(onnx_node *n, weft_value index, int64_t size)
{
    weft_graph *g = n->graph;
    weft_value zero = weft_scalar(g, WEFT_I32, 0);
    weft_value moved = weft_add_scalar(g, weft_cast(g, index, WEFT_F64), (double)size);
    weft_value negative = weft_less(g, index, zero);
    return weft_where(g, negative, weft_cast(g, moved, WEFT_I32), index);
}

/* Element 0 of one element: the index is out of range if `wrong` is true. */
weft_value weft__unless(weft_graph *g, weft_value wrong)
{
    const weft_value index = weft_reshape(g, weft_cast(g, wrong, WEFT_I32), WEFT_SHAPE(1));
    const weft_value one = weft_gather(g, weft_fill(g, WEFT_I32, WEFT_SHAPE(1), 1), index, 0);
    return weft_reshape(g, weft_greater(g, one, weft_scalar(g, WEFT_I32, 0)), WEFT_SCALAR);
}

/* ---- Constants ---- */

weft_value weft__doubles_value(onnx_node *n, const double *values, weft_shape shape,
                               weft_dtype dtype)
{
    weft_value v = weft_constant(n->graph, WEFT_F64, shape, values);
    return dtype == WEFT_F64 ? v : weft_cast(n->graph, v, dtype);
}

weft_value weft__ints_value(onnx_node *n, const int64_t *values, weft_shape shape)
{
    const int64_t count = weft_shape_numel(shape);
    int32_t *data =
        count < 0 ? NULL : weft__arena_alloc(&n->import->memory, (size_t)count * sizeof *data);
    if (!data) return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a constant");
    for (int64_t i = 0; i < count; i++) data[i] = (int32_t)values[i];
    return weft_constant(n->graph, WEFT_I32, shape, data);
}
