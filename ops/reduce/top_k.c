/* The k largest or smallest elements along an axis, in their order, with their indices. k may be
 * the whole axis, which sorts it.
 *
 * An element becomes an unsigned key whose order is that of the numbers; of equal keys the lower
 * index comes first. If k is a small part of the axis, a heap of the best k elements so far has the
 * worst of them on top: O(n log k), and near O(n) in random order. Otherwise all elements are
 * sorted by their bytes (a radix sort from the last byte on, which is stable): O(n). A tile is some
 * lines. */
#include "kernels/kernel.h"

typedef struct top_k_attr {
    int64_t k;
    int32_t axis;
    bool largest;
} top_k_attr;

/* Lines of at most this size are sorted by insertion. */
#define FEW 32

/* A larger heap leaves the first-level cache, and more elements go through it. */
#define SMALL_HEAP 512

static inline bool by_heap(int64_t n, int64_t k)
{
    return k <= n / 64 || (k <= n / 8 && k <= SMALL_HEAP);
}

#ifdef WEFT_KERNEL_ISA

#if KERNEL_IS(f32)
typedef uint32_t key_bits;
#else
typedef uint64_t key_bits;
#endif

typedef struct entry {
    key_bits key;
    int32_t index;
} entry;

/* Smaller keys come first. A NaN is larger than all numbers, and -0 equals 0. */
static inline key_bits key_of(T x, bool largest)
{
    const key_bits top = (key_bits)1 << (8 * sizeof(key_bits) - 1);
    key_bits bits;
    x = x == 0 ? 0 : x;
    memcpy(&bits, &x, sizeof bits);
    bits = bits & top ? ~bits : bits | top;
    if (x != x) bits = ~(key_bits)0;
    return largest ? ~bits : bits;
}

static inline bool comes_before(const entry *a, const entry *b)
{
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

/* Puts e into the heap of n entries, whose root is empty. */
static inline void sift(entry *heap, int64_t n, entry e)
{
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && comes_before(&heap[child], &heap[child + 1])) child++;
        if (!comes_before(&e, &heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = e;
}

/* Puts e at the end of the heap of n entries. */
static inline void rise(entry *heap, int64_t n, entry e)
{
    int64_t at = n;
    for (int64_t parent; at && comes_before(&heap[parent = (at - 1) / 2], &e); at = parent)
        heap[at] = heap[parent];
    heap[at] = e;
}

/* The best k of n elements, `step` apart, in order. */
static void top_by_heap(const T *x, int64_t n, int64_t step, int64_t k, bool largest, entry *heap)
{
    for (int64_t i = 0; i < n && k; i++) {
        const entry e = {key_of(x[i * step], largest), (int32_t)i};
        if (i < k)
            rise(heap, i, e);
        else if (e.key < heap[0].key) /* of equal keys the one in the heap is the first */
            sift(heap, k, e);
    }
    for (int64_t left = k - 1; left > 0; left--) {
        const entry worst = heap[0];
        sift(heap, left, heap[left]);
        heap[left] = worst;
    }
}

static void sort_few(entry *e, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const entry one = e[i];
        int64_t at = i;
        for (; at && one.key < e[at - 1].key; at--) e[at] = e[at - 1];
        e[at] = one;
    }
}

/* Sorts n entries; returns where they are, in e or in `other`. A byte that all keys share is
 * skipped. */
static entry *sort_by_bytes(entry *e, entry *other, int64_t n)
{
    for (size_t byte = 0; byte < sizeof(key_bits); byte++) {
        int64_t start[257] = {0};
        for (int64_t i = 0; i < n; i++) start[(e[i].key >> (8 * byte) & 255) + 1]++;
        if (start[(e[0].key >> (8 * byte) & 255) + 1] == n) continue;
        for (int b = 0; b < 256; b++) start[b + 1] += start[b];
        for (int64_t i = 0; i < n; i++) other[start[e[i].key >> (8 * byte) & 255]++] = e[i];
        entry *swap = e;
        e = other;
        other = swap;
    }
    return e;
}

static entry *top_of_line(const T *x, int64_t n, int64_t step, const top_k_attr *attr, entry *space)
{
    if (by_heap(n, attr->k)) {
        top_by_heap(x, n, step, attr->k, attr->largest, space);
        return space;
    }
    for (int64_t i = 0; i < n; i++)
        space[i] = (entry){key_of(x[i * step], attr->largest), (int32_t)i};
    if (n > FEW) return sort_by_bytes(space, space + n, n);
    sort_few(space, n);
    return space;
}

KERNEL(top_k)
{
    const top_k_attr *attr = call->attr;
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const lines l = lines_of(x, attr->axis);
    const int64_t step = x->stride[l.axis], out_step = y->stride[l.axis];
    const int64_t end = (tile + 1) * l.each < l.count ? (tile + 1) * l.each : l.count;
    for (int64_t line = tile * l.each; line < end; line++) {
        const T *in = (const T *)x->data + line_offset(x, l.axis, line);
        const int64_t to = line_offset(y, l.axis, line);
        T *values = (T *)y->data + to;
        int32_t *indices = (int32_t *)call->out[1].data + to;
        const entry *best = top_of_line(in, l.length, step, attr, weft_call_workspace(call));
        for (int64_t i = 0; i < attr->k; i++) {
            values[i * out_step] = in[best[i].index * step];
            indices[i * out_step] = best[i].index;
        }
    }
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_top_k;

static bool infer_top_k(weft_infer *infer)
{
    const top_k_attr *attr = infer->attr;
    weft_shape shape = infer->in[0].shape;
    int axis;
    if (!weft_infer_float(infer, 0) || !weft_infer_axis(infer, shape.rank, attr->axis, &axis))
        return false;
    if (attr->k < 0 || attr->k > shape.dim[axis])
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "k must be from 0 to the %lld elements of axis %d, got %lld",
                               (long long)shape.dim[axis], axis, (long long)attr->k);
    if (shape.dim[axis] > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE,
                               "axis %d has %lld elements, more than an i32 index can count", axis,
                               (long long)shape.dim[axis]);
    shape.dim[axis] = attr->k;
    infer->out[0] = (weft_type){infer->in[0].dtype, shape};
    infer->out[1] = (weft_type){WEFT_I32, shape};
    return true;
}

static int64_t tiles_top_k(const weft_call *call)
{
    const lines l = lines_of(&call->in[0], ((const top_k_attr *)call->attr)->axis);
    return lines_tiles(&l);
}

/* A key, an index and a gap for each entry; two lists for the radix sort. */
static size_t workspace_top_k(const weft_call *call)
{
    const top_k_attr *attr = call->attr;
    const int64_t n = call->in[0].shape.dim[attr->axis];
    const int64_t entries = by_heap(n, attr->k) ? attr->k : n > FEW ? 2 * n : n;
    return (size_t)entries * 2 * weft_dtype_bytes(call->in[0].dtype);
}

static void cost_top_k(const weft_call *call, weft_cost *cost)
{
    const top_k_attr *attr = call->attr;
    const double n = (double)numel_of(&call->in[0].shape);
    const double bytes = (double)weft_dtype_bytes(call->in[0].dtype);
    cost->flops = (by_heap(call->in[0].shape.dim[attr->axis], attr->k) ? 4 : 8 * bytes) * n;
    cost->bytes = n * bytes + (double)numel_of(&call->out[0].shape) * (bytes + 4);
}

/* Each gradient goes to the element that its index names; the others get 0. */
static void vjp_top_k(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const weft_value x = v->in[0];
    const weft_value zeros = weft_fill(g, weft_dtype_of(g, x), weft_shape_of(g, x), 0);
    v->grad_in[0] =
        weft_scatter_add(g, zeros, v->out[1], v->grad_out[0], ((const top_k_attr *)v->attr)->axis);
}

static void onnx_top_k(weft_export *e)
{
    const top_k_attr *attr = e->attr;
    const weft_operand in[] = {e->in[0], weft_export_int64s(e, &attr->k, 1)};
    const weft_operand values = weft_export_node(e, "TopK", in, 2, 2);
    weft_export_int(e, "axis", attr->axis);
    weft_export_int(e, "largest", attr->largest);
    e->out[0] = values;
    e->out[1] = weft_export_unary(e, "Cast", (weft_operand){values.id + 1});
    weft_export_int(e, "to", WEFT_ONNX_INT32);
}

static void source_top_k(weft_source *s)
{
    const top_k_attr *attr = s->attr;
    const weft_tensor *x = &s->in[0], *y = &s->out[0];
    const int64_t length = x->shape.dim[attr->axis], n = weft_shape_numel(x->shape);
    int64_t size[WEFT_MAX_RANK], x_stride[WEFT_MAX_RANK], y_stride[WEFT_MAX_RANK];
    size_t rank = 0;
    for (int d = 0; d < x->shape.rank; d++) {
        if (d == attr->axis) continue;
        size[rank] = x->shape.dim[d];
        x_stride[rank] = x->stride[d];
        y_stride[rank++] = y->stride[d];
    }
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_OUT(1),
                                    WEFT_ARG_INT(length ? n / length : 0),
                                    WEFT_ARG_INT(length),
                                    WEFT_ARG_INT(attr->k),
                                    WEFT_ARG_INT(x->stride[attr->axis]),
                                    WEFT_ARG_INT(y->stride[attr->axis]),
                                    WEFT_ARG_INT(attr->largest),
                                    WEFT_ARG_INT(rank),
                                    WEFT_ARG_INTS(size, rank),
                                    WEFT_ARG_INTS(x_stride, rank),
                                    WEFT_ARG_INTS(y_stride, rank)};
    weft_source_call_of(s, "top_k", args, sizeof args / sizeof *args);
}

static const top_k_attr top_some = {3, 1, true}, top_small = {2, 0, false}, top_all = {40, 1, true},
                        top_few = {2, 1, false}, top_none = {0, 0, true};
static const weft_sample samples_top_k[] = {
    {&top_some, 1, {{WEFT_FLOAT, {2, {3, 6}}, -2, 2, true}}},
    {&top_small, 1, {{WEFT_FLOAT, {3, {4, 2, 3}}, -2, 2, true}}},
    {&top_all, 1, {{WEFT_FLOAT, {2, {2, 40}}, -2, 2, true}}},
    {&top_few, 1, {{WEFT_FLOAT, {2, {2, 40}}, -2, 2, true}}},
    {&top_none, 1, {{WEFT_FLOAT, {1, {3}}, -2, 2, true}}},
};
static const weft_attr_field top_k_fields[] = {
    {"k", WEFT_ATTR_INT64, offsetof(top_k_attr, k)},
    {"axis", WEFT_ATTR_INT, offsetof(top_k_attr, axis)},
    {"largest", WEFT_ATTR_BOOL, offsetof(top_k_attr, largest)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(top_k);
const weft_op weft_op_top_k = {
    .name = "top_k",
    .doc =
        "The k largest (or smallest) x along an axis in their order, and their indices. Of equal "
        "elements the first one comes first; a NaN is larger than all numbers.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .attr_size = sizeof(top_k_attr),
    .attrs = top_k_fields,
    .infer = infer_top_k,
    .kernel = FLOAT_KERNELS(top_k),
    .takes = WEFT_TAKES_ANY,
    .tiles = tiles_top_k,
    .workspace = workspace_top_k,
    .cost = cost_top_k,
    .vjp = vjp_top_k,
    .onnx = onnx_top_k,
    .source = source_top_k,
    .batch = weft__batch_axis,
    .samples = samples_top_k,
    .n_samples = sizeof samples_top_k / sizeof *samples_top_k,
};

weft_value weft_top_k(weft_graph *graph, weft_value x, int64_t k, int axis, bool largest,
                      weft_value *indices)
{
    weft_value out[2] = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    top_k_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.k = k;
    attr.axis = axis_from_front(axis, weft_rank_of(graph, x));
    attr.largest = largest;
    weft_apply(graph, &weft_op_top_k, &attr, &x, 1, out);
    if (indices) *indices = out[1];
    return out[0];
}

weft_value weft_sort(weft_graph *graph, weft_value x, int axis, bool descending,
                     weft_value *indices)
{
    return weft_top_k(graph, x, weft_dim_of(graph, x, axis), axis, descending, indices);
}

weft_value weft_argsort(weft_graph *graph, weft_value x, int axis, bool descending)
{
    weft_value indices;
    weft_sort(graph, x, axis, descending, &indices);
    return indices;
}

#endif
