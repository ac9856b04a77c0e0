/* gather and scatter_add: elements read or added at indices along an axis, O(elements). Sums at
 * repeated indices run in the order of the indices: a tile owns columns of the result and goes
 * through all indices of them. */
#include "kernels/kernel.h"
#include "kernels/sums.h"

typedef struct gather_attr {
    int32_t axis;
} gather_attr;

/* Lines of `outer` x `inner` around the axis of a dense tensor. */
static inline void around(const weft_tensor *t, int axis, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int d = 0; d < axis; d++) *outer *= t->shape.dim[d];
    for (int d = axis + 1; d < t->shape.rank; d++) *inner *= t->shape.dim[d];
}

/* Columns that a tile of scatter_add owns. */
#define SCATTER_COLUMNS 1024

#ifdef WEFT_KERNEL_ISA

/* One check for many indices, so that the loops that read need none. */
static inline bool indices_inside(const int32_t *index, int64_t n, int64_t size)
{
    const uint32_t limit = size < INT32_MAX ? (uint32_t)size : INT32_MAX;
    uint32_t outside = 0;
    for (int64_t i = 0; i < n; i++) outside |= (uint32_t)index[i] >= limit;
    return !outside;
}

KERNEL(gather)
{
    const int axis = ((const gather_attr *)call->attr)->axis;
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const int32_t *index = call->in[1].data;
    int64_t outer, inner, size = x->shape.dim[axis], count = y->shape.dim[axis];
    around(y, axis, &outer, &inner);
    int64_t n = numel_of(&y->shape), end = (tile + 1) * TILE < n ? (tile + 1) * TILE : n;
    /* A run lies within one line of `inner` elements or, where inner is 1, one row of indices. */
    const int64_t line = inner > 1 ? inner : count, across = inner > 1;
    for (int64_t at = tile * TILE; at < end;) {
        const int64_t run = line - at % line < end - at ? line - at % line : end - at;
        const T *from = (const T *)x->data + at / (inner * count) * size * inner + at % inner;
        T *to = (T *)y->data + at;
        /* Prefetches the next row while this one is read at scattered positions. */
        const bool dense = !across && run == count && size <= LINE * count && at + run < end;
        for (int64_t i = 0; dense && i < size; i += LINE) __builtin_prefetch(from + size + i);
        if (indices_inside(index + at, run, size)) {
            if (across)
                for (int64_t i = 0; i < run; i++) to[i] = from[index[at + i] * inner + i];
            else
                for (int64_t i = 0; i < run; i++) to[i] = from[index[at + i]];
        } else {
            for (int64_t i = 0; i < run; i++) {
                const int64_t k = index[at + i];
                const bool good = k >= 0 && k < size;
                if (!good) weft_call_fail(call, k, size);
                to[i] = good ? from[k * inner + i * across] : 0;
            }
        }
        at += run;
    }
}

#if KERNEL_IS_FLOAT
/* What a tile of scatter_add owns: `width` columns of lines of `inner` elements, [size, width] of
 * the result, to which [count, width] updates are added. */
typedef struct scatter_part {
    const int32_t *index;
    const T *from;
    T *out;
    int64_t size, count, width, inner;
} scatter_part;

/* Adds each update to the cell that its index names: in the order of the indices, and for each cell
 * in blocks of SUM_BLOCK terms. */
static void scatter_blocks(const weft_call *call, const scatter_part *p)
{
    T *block = weft_call_workspace(call);
    uint8_t *terms = (uint8_t *)(block + p->size * p->width);
    memset(terms, 0, (size_t)(p->size * p->width));
    for (int64_t k = 0; k < p->count; k++)
        for (int64_t i = 0; i < p->width; i++) {
            const int64_t to = p->index[k * p->inner + i], cell = to * p->width + i;
            const T update = p->from[k * p->inner + i];
            if (to < 0 || to >= p->size) {
                weft_call_fail(call, to, p->size);
                continue;
            }
            block[cell] = terms[cell] ? block[cell] + update : update;
            if (++terms[cell] < SUM_BLOCK) continue;
            p->out[to * p->inner + i] += block[cell];
            terms[cell] = 0;
        }
    for (int64_t to = 0; to < p->size; to++)
        for (int64_t i = 0; i < p->width; i++)
            if (terms[to * p->width + i]) p->out[to * p->inner + i] += block[to * p->width + i];
}

/* The same without blocks. */
static void scatter_terms(const weft_call *call, const scatter_part *p)
{
    for (int64_t k = 0; k < p->count; k++)
        for (int64_t i = 0; i < p->width; i++) {
            const int64_t to = p->index[k * p->inner + i];
            if (to < 0 || to >= p->size)
                weft_call_fail(call, to, p->size);
            else
                p->out[to * p->inner + i] += p->from[k * p->inner + i];
        }
}

KERNEL(scatter_add)
{
    const int axis = ((const gather_attr *)call->attr)->axis;
    const weft_tensor *y = &call->out[0], *updates = &call->in[2];
    const T *x = call->in[0].data;
    int64_t outer, inner;
    around(y, axis, &outer, &inner);
    (void)outer;
    const int64_t parts = ceil_div(inner, SCATTER_COLUMNS), line = tile / parts;
    const int64_t begin = tile % parts * SCATTER_COLUMNS, rest = inner - begin;
    scatter_part p = {.size = y->shape.dim[axis],
                      .count = updates->shape.dim[axis],
                      .width = rest < SCATTER_COLUMNS ? rest : SCATTER_COLUMNS,
                      .inner = inner};
    const int64_t at = line * p.size * inner + begin, from = line * p.count * inner + begin;
    p.index = (const int32_t *)call->in[1].data + from;
    p.from = (const T *)updates->data + from;
    p.out = (T *)y->data + at;
    for (int64_t row = 0; x != y->data && row < p.size; row++)
        memcpy(p.out + row * inner, x + at + row * inner, (size_t)p.width * sizeof *x);
    (p.count > SUM_BLOCK ? scatter_blocks : scatter_terms)(call, &p);
}
#endif

#else

#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_gather, weft_op_scatter_add;

static bool fits_around(weft_shape x, weft_shape indices, int axis)
{
    if (x.rank != indices.rank) return false;
    x.dim[axis] = indices.dim[axis];
    return weft_shape_equal(x, indices);
}

static bool infer_gather(weft_infer *infer)
{
    char a[128], b[128];
    int axis, want = ((const gather_attr *)infer->attr)->axis;
    weft_shape x = infer->in[0].shape, indices = infer->in[1].shape;
    if (!weft_infer_dtype(infer, 1, WEFT_I32) || !weft_infer_axis(infer, x.rank, want, &axis))
        return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, indices};
    return fits_around(x, indices, axis) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "indices %s must equal %s outside axis %d",
                           weft_shape_text(indices, b, sizeof b), weft_shape_text(x, a, sizeof a),
                           axis);
}

static bool infer_scatter_add(weft_infer *infer)
{
    char a[128], b[128];
    if (!weft_infer_float(infer, 0) || !infer_gather(infer) || !weft_infer_same_dtype(infer, 0, 2))
        return false;
    infer->out[0] = infer->in[0];
    return weft_shape_equal(infer->in[1].shape, infer->in[2].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "indices are %s, but updates %s",
                           weft_shape_text(infer->in[1].shape, a, sizeof a),
                           weft_shape_text(infer->in[2].shape, b, sizeof b));
}

static int64_t tiles_scatter_add(const weft_call *call)
{
    int64_t outer, inner;
    around(&call->out[0], ((const gather_attr *)call->attr)->axis, &outer, &inner);
    return numel_of(&call->out[0].shape) ? outer * ceil_div(inner, SCATTER_COLUMNS) : 0;
}

static void vjp_gather(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value zeros = weft_fill(g, weft_dtype_of(g, v->in[0]), weft_shape_of(g, v->in[0]), 0.0);
    if (v->wanted[0])
        v->grad_in[0] = weft_scatter_add(g, zeros, v->in[1], v->grad_out[0],
                                         ((const gather_attr *)v->attr)->axis);
}

static void vjp_scatter_add(weft_vjp *v)
{
    if (v->wanted[0]) v->grad_in[0] = v->grad_out[0];
    if (v->wanted[2])
        v->grad_in[2] =
            weft_gather(v->graph, v->grad_out[0], v->in[1], ((const gather_attr *)v->attr)->axis);
}

static const gather_attr gather_0 = {0}, gather_1 = {1};
static const weft_sample samples_gather[] = {
    {&gather_1, 2, {FLOATS({2, {3, 5}}), INDICES(5, {2, {3, 4}})}},
    {&gather_0, 2, {FLOATS({3, {4, 2, 2}}), INDICES(4, {3, {3, 2, 2}})}},
    {&gather_0, 2, {{WEFT_I32, {1, {4}}, 0, 9, false}, INDICES(4, {1, {6}})}},
};
static const weft_sample samples_scatter_add[] = {
    {&gather_1, 3, {FLOATS({2, {3, 5}}), INDICES(5, {2, {3, 4}}), FLOATS({2, {3, 4}})}},
    {&gather_0, 3, {FLOATS({3, {4, 2, 2}}), INDICES(4, {3, {3, 2, 2}}), FLOATS({3, {3, 2, 2}})}},
};
static void onnx_gather(weft_export *e)
{
    weft_export_same(e, "GatherElements");
    weft_export_int(e, "axis", ((const gather_attr *)e->attr)->axis);
    e->note = true; /* an import of GatherElements also takes negative indices */
}

static void onnx_scatter_add(weft_export *e)
{
    weft_export_same(e, "ScatterElements");
    weft_export_int(e, "axis", ((const gather_attr *)e->attr)->axis);
    weft_export_text(e, "reduction", "add");
    e->note = true;
}

static const weft_attr_field gather_fields[] = {
    {"axis", WEFT_ATTR_INT, offsetof(gather_attr, axis)},
    {NULL, WEFT_ATTR_INT, 0},
};
/* The sizes around the axis. */
static size_t source_sizes(weft_source *s, weft_source_arg *args, size_t n)
{
    const int axis = ((const gather_attr *)s->attr)->axis;
    int64_t outer, inner;
    around(&s->out[0], axis, &outer, &inner);
    args[n++] = WEFT_ARG_INT(outer);
    args[n++] = WEFT_ARG_INT(s->in[0].shape.dim[axis]);
    args[n++] = WEFT_ARG_INT(s->in[1].shape.dim[axis]);
    args[n++] = WEFT_ARG_INT(inner);
    return n;
}

static void source_gather(weft_source *s)
{
    weft_source_arg args[8] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1), WEFT_ARG_OUT(0)};
    weft_source_try(s, "gather_elements", args, source_sizes(s, args, 3));
}

static void source_scatter_add(weft_source *s)
{
    const int64_t count = s->in[1].shape.dim[((const gather_attr *)s->attr)->axis];
    weft_source_arg args[8] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1), WEFT_ARG_IN(2), WEFT_ARG_OUT(0)};
    const size_t n = source_sizes(s, args, 4);
    /* Nothing is computed for an empty result: its indices are not looked at. */
    if (!weft_shape_numel(s->out[0].shape)) args[n - 2] = WEFT_ARG_INT(0);
    weft_source_try(s, count > SUM_BLOCK ? "scatter_add_blocks" : "scatter_add", args, n);
}

DECLARE_ANY_KERNELS(gather);
const weft_op weft_op_gather = {
    .name = "gather",
    .doc = "y[.., i, ..] = x[.., indices[.., i, ..], ..] along an axis.",
    .inputs = "x indices",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(gather_attr),
    .attrs = gather_fields,
    .infer = infer_gather,
    .kernel = ANY_KERNELS(gather),
    .takes = WEFT_TAKES_DENSE,
    .can_fail = true,
    .onnx = onnx_gather,
    .source = source_gather,
    .batch = weft__batch_axis,
    .vjp = vjp_gather,
    .samples = samples_gather,
    .n_samples = sizeof samples_gather / sizeof *samples_gather,
};
DECLARE_KERNELS(scatter_add);

/* Bytes of the blocks of a tile of scatter_add: an unfinished sum and its number of terms for each
 * cell. 0 where at most SUM_BLOCK terms can meet: then terms are added one after the other. */
static size_t scatter_room(const weft_call *call)
{
    const int axis = ((const gather_attr *)call->attr)->axis;
    const weft_tensor *y = &call->out[0];
    int64_t outer, inner;
    around(y, axis, &outer, &inner);
    if (call->in[2].shape.dim[axis] <= SUM_BLOCK) return 0;
    if (inner > SCATTER_COLUMNS) inner = SCATTER_COLUMNS;
    return (size_t)(y->shape.dim[axis] * inner) * (weft_dtype_bytes(y->dtype) + 1);
}

const weft_op weft_op_scatter_add = {
    .name = "scatter_add",
    .doc =
        "y = x, then y[.., indices[.., i, ..], ..] += updates[.., i, ..] along an axis, in order.",
    .inputs = "x indices updates",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attr_size = sizeof(gather_attr),
    .attrs = gather_fields,
    .infer = infer_scatter_add,
    .kernel = FLOAT_KERNELS(scatter_add),
    .takes = WEFT_TAKES_DENSE,
    .inplace = 1,
    .tiles = tiles_scatter_add,
    .workspace = scatter_room,
    .can_fail = true,
    .onnx = onnx_scatter_add,
    .source = source_scatter_add,
    .batch = weft__batch_axis,
    .vjp = vjp_scatter_add,
    .samples = samples_scatter_add,
    .n_samples = sizeof samples_scatter_add / sizeof *samples_scatter_add,
};

static weft_value at_axis(weft_graph *graph, const weft_op *op, const weft_value *in, size_t n,
                          int axis)
{
    gather_attr attr = {axis_from_front(axis, weft_rank_of(graph, in[0]))};
    return weft_apply(graph, op, &attr, in, n, NULL);
}

weft_value weft_gather(weft_graph *graph, weft_value x, weft_value indices, int axis)
{
    return at_axis(graph, &weft_op_gather, (weft_value[]){x, indices}, 2, axis);
}

weft_value weft_scatter_add(weft_graph *graph, weft_value x, weft_value indices, weft_value updates,
                            int axis)
{
    return at_axis(graph, &weft_op_scatter_add, (weft_value[]){x, indices, updates}, 3, axis);
}

#endif
