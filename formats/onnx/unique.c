/* Unique: the different elements of a tensor, or its different slices along an axis. Data decide
 * how many there are (sizes.c).
 *
 * The slices are sorted by their elements, from the last element to the first, by stable sorts.
 * Then equal slices are neighbours, in the order in which the tensor has them. O(slices x
 * elements). */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <string.h>

/* Each element of a slice is sorted by nodes of its own. */
#define MAX_ELEMENTS 1024

/* The slices of input 0. */
typedef struct slices {
    weft_value keys;    /* [count, each], floats */
    weft_value counted; /* bool [count]: the slices that exist in a run, the first ones */
    weft_value size;    /* how many exist; no value: all */
    int64_t count, each;
} slices;

/* Reads input 0 as x, whose slices along *axis are compared. False after a failure. */
static bool read_slices(onnx_node *n, weft_value *x, int *axis, slices *s)
{
    weft_graph *g = n->graph;
    const bool flat = !weft__has_attr(n, "axis");
    *s = (slices){.size = WEFT_NO_VALUE};
    *x = weft__in_value(n, 0);
    if (weft__node_failed(n)) return false;
    if (flat) *x = weft__in_flat(n, 0, &s->size);
    const weft_shape shape = weft_shape_of(g, *x);
    *axis = weft__attr_axis(n, "axis", 0, shape.rank);
    if (weft__node_failed(n)) return false;
    if (!flat && has_size(n, 0) && n->in[0]->sized_axis != *axis)
        return weft__node_fail(n, WEFT_NO_KERNEL,
                               "chooses along another dimension than %d, whose size data decide",
                               n->in[0]->sized_axis),
               false;
    if (!flat && has_size(n, 0)) s->size = n->in[0]->size;
    s->count = shape.dim[*axis];
    s->each = 1;
    weft_axes first = {.count = shape.rank, .axis = {*axis}};
    for (int i = 0, at = 1; i < shape.rank; i++) {
        if (i == *axis) continue;
        first.axis[at++] = i;
        s->each *= shape.dim[i];
    }
    if (s->count > INT32_MAX || s->each > MAX_ELEMENTS)
        return weft__node_fail(n, WEFT_TOO_LARGE,
                               "compares %lld slices of %lld elements, at most %d",
                               (long long)s->count, (long long)s->each, MAX_ELEMENTS),
               false;
    s->keys = weft_reshape(g, weft_permute(g, *x, first), WEFT_SHAPE(s->count, s->each));
    s->keys = weft__widen(n, s->keys);
    s->counted = weft_is_value(s->size) ? weft__counted(g, s->size, s->count, 0, 1)
                                        : weft_fill(g, WEFT_BOOL, WEFT_SHAPE(s->count), 1);
    return !weft__node_failed(n);
}

/* The slices in their order, those that count first: i32 [count]. */
static weft_value sorted_order(weft_graph *g, const slices *s)
{
    weft_value unused, order = weft_arange(g, WEFT_I32, s->count, 0, 1);
    for (int64_t k = s->each - 1; k >= 0; k--) {
        weft_value key = weft_squeeze(g, weft_slice(g, s->keys, 1, k, k + 1, 1), 1);
        key = weft_gather(g, key, order, 0);
        order = weft_gather(g, order, weft_argsort(g, key, 0, false), 0);
    }
    if (!weft_is_value(s->size)) return order;
    weft_value counted = weft_gather(g, s->counted, order, 0);
    return weft_gather(g, order, weft__true_positions(g, counted, &unused), 0);
}

/* Where a slice of the order differs from the one before it: bool [count]. NaN equals itself. */
static weft_value group_starts(onnx_node *n, const slices *s, weft_value order)
{
    weft_graph *g = n->graph;
    if (!s->count) return s->counted;
    const weft_value sorted = weft__gather_rows(n, s->keys, order, 0);
    const weft_value nan = weft_not_equal(g, sorted, sorted);
    const weft_value before = weft_slice(g, sorted, 0, 0, s->count - 1, 1);
    const weft_value after = weft_slice(g, sorted, 0, 1, s->count, 1);
    const weft_value nan_before = weft_slice(g, nan, 0, 0, s->count - 1, 1);
    const weft_value nan_after = weft_slice(g, nan, 0, 1, s->count, 1);
    weft_value both = weft_logical_and(g, nan_before, nan_after);
    weft_value differ = weft_not_equal(g, before, after);
    differ = weft_logical_and(g, differ, weft_logical_not(g, both));
    differ = weft_sum(g, weft_cast(g, differ, WEFT_F64), WEFT_AXES(1), false);
    differ = weft_greater(g, differ, weft_scalar(g, WEFT_F64, 0));
    differ = weft_pad(g, differ, WEFT_SHAPE(1).dim, WEFT_SHAPE(0).dim, 1);
    return weft_logical_and(g, differ, s->counted);
}

/* zeros [count], f64, to which numbers [count] are added at positions. */
static weft_value added_at(weft_graph *g, const slices *s, weft_value at, weft_value numbers)
{
    const weft_value zeros = weft_fill(g, WEFT_F64, WEFT_SHAPE(s->count), 0);
    return weft_scatter_add(g, zeros, at, numbers, 0);
}

/* The number of true elements before each one, itself included, less one: f64. */
static weft_value number_of(weft_graph *g, weft_value mask)
{
    return weft_add_scalar(g, weft_cumsum(g, weft_cast(g, mask, WEFT_F64), 0, false), -1);
}

/* The first slice of each group, where `size` of [count] count; and the group of each slice. */
static weft_value find_groups(onnx_node *n, const slices *s, weft_value *size, weft_value *group)
{
    weft_graph *g = n->graph;
    const weft_value order = sorted_order(g, s), starts = group_starts(n, s, order);
    weft_value first = weft_gather(g, order, weft__true_positions(g, starts, size), 0);
    weft_value of = number_of(g, starts);
    of = weft_mul(g, of, weft_cast(g, s->counted, WEFT_F64));
    *group = weft_cast(g, added_at(g, s, order, of), WEFT_I32);
    if (weft__attr_int(n, "sorted", 1)) return first;
    /* In the order of their first slices. */
    weft_value leads = added_at(g, s, order, weft_cast(g, starts, WEFT_F64));
    leads = weft_greater(g, leads, weft_scalar(g, WEFT_F64, 0));
    const weft_value number = weft_cast(g, number_of(g, leads), WEFT_I32);
    *group = weft_gather(g, number, weft_gather(g, first, *group, 0), 0);
    return weft__true_positions(g, leads, size);
}

/* The different elements or slices, and outputs 1 to 3: where each is first, which one each element
 * is, and how often each is there. */
void weft__map_Unique(onnx_node *n)
{
    weft_graph *g = n->graph;
    slices s;
    int axis;
    weft_value x, size, group;
    if (!read_slices(n, &x, &axis, &s)) return;
    const weft_value first = find_groups(n, &s, &size, &group);
    const weft_value times = added_at(g, &s, group, weft_cast(g, s.counted, WEFT_F64));
    weft__set_typed(n, 0, weft__gather_rows(n, x, first, axis), weft__in_type(n, 0));
    weft__add_size(n, 0, axis, size);
    weft__set_typed(n, 1, first, ONNX_INT64);
    weft__add_size(n, 1, 0, size);
    weft__set_typed(n, 2, group, ONNX_INT64);
    if (weft_is_value(s.size)) weft__add_size(n, 2, 0, s.size);
    weft__set_typed(n, 3, weft_cast(g, times, WEFT_I32), ONNX_INT64);
    weft__add_size(n, 3, 0, size);
}
