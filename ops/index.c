/* Reading and writing at indices: embedding, gather, scatter_add, one_hot. Sums at repeated indices
 * run in the order of the indices: a tile owns columns (or lines) of the result and walks them all.
 */
#include "kernels/kernel.h"

typedef struct embedding_attr {
    int64_t rows, padding_index;
} embedding_attr;
typedef struct gather_attr {
    int32_t axis;
} gather_attr;
typedef struct one_hot_attr {
    int64_t classes;
    weft_dtype dtype;
} one_hot_attr;

#define GRAD_COLUMNS 64
#define GRAD_ZEROS   65536

/* Terms of one element that are added one after the other: more are added in blocks of so many, so
 * that the error of n terms grows with SUM_BLOCK + n / SUM_BLOCK. */
#define SUM_BLOCK 32

/* Lines of `outer` x `inner` around the axis of a dense tensor. */
static inline void around(const weft_tensor *t, int axis, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int d = 0; d < axis; d++) *outer *= t->shape.dim[d];
    for (int d = axis + 1; d < t->shape.rank; d++) *inner *= t->shape.dim[d];
}

#if !defined WEFT_KERNEL_ISA || KERNEL_IS_FLOAT
/* Bytes of the lists of a tile of scatter_add; 0 where few terms can meet, or the places are more
 * than i32 counts: then they are added one after the other. */
static inline size_t scatter_room(const weft_call *call)
{
    const int axis = ((const gather_attr *)call->attr)->axis;
    const weft_tensor *y = &call->out[0], *updates = &call->in[2];
    int64_t outer, inner;
    around(y, axis, &outer, &inner);
    const int64_t count = updates->shape.dim[axis], cells = y->shape.dim[axis] * inner;
    if (count <= SUM_BLOCK || cells > INT32_MAX || (inner && count > INT32_MAX / inner)) return 0;
    return (size_t)(cells + count * inner) * sizeof(int32_t);
}
#endif

#ifdef WEFT_KERNEL_ISA

KERNEL(embedding)
{
    const weft_tensor *table = &call->in[0];
    int64_t features = table->shape.dim[1], rows = table->shape.dim[0];
    int64_t n = numel_of(&call->in[1].shape), each = TILE / (features ? features : 1) + 1;
    const int32_t *index = call->in[1].data;
    for (int64_t i = tile * each; i < n && i < (tile + 1) * each; i++) {
        T *out = (T *)call->out[0].data + i * features;
        if (index[i] < 0 || index[i] >= rows) {
            memset(out, 0, (size_t)features * sizeof *out);
            weft_call_fail(call, index[i], rows);
            continue;
        }
        memcpy(out, (const T *)table->data + index[i] * features, (size_t)features * sizeof *out);
    }
}

#if KERNEL_IS_FLOAT
/* Lists of the places of each index in [0, size): head[index] is the first, next[place] the one
 * after that, -1 ends a list. They keep the order of places. Reports indices outside, but for
 * `skipped`. */
static void make_lists(const weft_call *call, const int32_t *index, int64_t n, int64_t size,
                       int64_t skipped, int32_t *head, int32_t *next)
{
    for (int64_t r = 0; r < size; r++) head[r] = -1;
    for (int64_t i = n - 1; i >= 0; i--) {
        if (index[i] == skipped) continue;
        if (index[i] < 0 || index[i] >= size) {
            weft_call_fail(call, index[i], size);
            continue;
        }
        next[i] = head[index[i]];
        head[index[i]] = (int32_t)i;
    }
}

/* Columns [begin, begin + width) of the gradient of the table, which is zero. */
static inline __attribute__((always_inline)) void grad_columns(const weft_call *call, int64_t begin,
                                                               int64_t width)
{
    const int64_t rows = call->out[0].shape.dim[0], features = call->out[0].shape.dim[1];
    const int32_t *head = call->scratch, *next = head + rows;
    const T *dy = (const T *)call->in[1].data + begin;
    T *out = (T *)call->out[0].data + begin, block[GRAD_COLUMNS];
    for (int64_t r = 0; r < rows; r++) {
        T *to = out + r * features;
        int32_t i = head[r];
        for (int left = SUM_BLOCK; i >= 0 && left; i = next[i], left--) {
            const T *from = dy + i * features;
            _Pragma("omp simd") for (int64_t c = 0; c < width; c++) to[c] += from[c];
        }
        while (i >= 0) {
            memset(block, 0, sizeof block);
            for (int left = SUM_BLOCK; i >= 0 && left; i = next[i], left--) {
                const T *from = dy + i * features;
                _Pragma("omp simd") for (int64_t c = 0; c < width; c++) block[c] += from[c];
            }
            _Pragma("omp simd") for (int64_t c = 0; c < width; c++) to[c] += block[c];
        }
    }
}

KERNEL(embedding_grad)
{
    if (call->phase == 0 && tile == call->tiles - 1) {
        const embedding_attr *attr = call->attr;
        int32_t *head = call->scratch;
        make_lists(call, call->in[0].data, numel_of(&call->in[0].shape), attr->rows,
                   attr->padding_index, head, head + attr->rows);
        return;
    }
    if (call->phase == 0) { /* zeros, in whole stretches */
        const int64_t from = tile * GRAD_ZEROS, left = numel_of(&call->out[0].shape) - from;
        memset((T *)call->out[0].data + from, 0,
               (size_t)(left < GRAD_ZEROS ? left : GRAD_ZEROS) * sizeof(T));
        return;
    }
    const int64_t begin = tile * GRAD_COLUMNS, width = call->out[0].shape.dim[1] - begin;
    if (width >= GRAD_COLUMNS)
        grad_columns(call, begin, GRAD_COLUMNS); /* as a constant */
    else
        grad_columns(call, begin, width);
}
#endif

/* Asked of many at once, so that what reads there need not ask. */
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
    /* A run keeps to one line of `inner` elements or, where inner is 1, to one row of indices. */
    const int64_t line = inner > 1 ? inner : count, across = inner > 1;
    for (int64_t at = tile * TILE; at < end;) {
        const int64_t run = line - at % line < end - at ? line - at % line : end - at;
        const T *from = (const T *)x->data + at / (inner * count) * size * inner + at % inner;
        T *to = (T *)y->data + at;
        /* The next row comes line by line while this one is read here and there. */
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
/* Adds from[count, inner] to out[size, inner], each place to the cell that its index names: the
 * places of a cell as a list, in order, and in blocks. */
static void scatter_lists(const weft_call *call, const int32_t *index, const T *from, T *out,
                          int64_t size, int64_t count, int64_t inner)
{
    int32_t *head = weft_call_workspace(call), *next = head + size * inner;
    for (int64_t cell = 0; cell < size * inner; cell++) head[cell] = -1;
    for (int64_t k = count - 1; k >= 0; k--)
        for (int64_t i = 0; i < inner; i++) {
            const int64_t at = k * inner + i, to = index[at];
            if (to < 0 || to >= size) {
                weft_call_fail(call, to, size);
                continue;
            }
            next[at] = head[to * inner + i];
            head[to * inner + i] = (int32_t)at;
        }
    for (int64_t cell = 0; cell < size * inner; cell++)
        for (int32_t at = head[cell]; at >= 0;) {
            T block = from[at];
            at = next[at];
            for (int left = SUM_BLOCK - 1; at >= 0 && left; at = next[at], left--)
                block += from[at];
            out[cell] += block;
        }
}

KERNEL(scatter_add)
{
    const int axis = ((const gather_attr *)call->attr)->axis;
    const weft_tensor *y = &call->out[0], *updates = &call->in[2];
    const int32_t *index = call->in[1].data;
    const T *x = call->in[0].data, *from = updates->data;
    T *out = y->data;
    int64_t outer, inner, size = y->shape.dim[axis], count = updates->shape.dim[axis];
    around(y, axis, &outer, &inner);
    (void)outer;
    if (x != out)
        memcpy(out + tile * size * inner, x + tile * size * inner,
               (size_t)(size * inner) * sizeof *out);
    index += tile * count * inner;
    from += tile * count * inner;
    out += tile * size * inner;
    if (scatter_room(call))
        scatter_lists(call, index, from, out, size, count, inner);
    else
        for (int64_t at = 0; at < count * inner; at++) {
            const int64_t to = index[at];
            if (to < 0 || to >= size)
                weft_call_fail(call, to, size);
            else
                out[to * inner + at % inner] += from[at];
        }
}
#endif

KERNEL(one_hot)
{
    int64_t classes = ((const one_hot_attr *)call->attr)->classes;
    int64_t n = numel_of(&call->in[0].shape), each = TILE / (classes ? classes : 1) + 1;
    const int32_t *index = call->in[0].data;
    for (int64_t i = tile * each; i < n && i < (tile + 1) * each; i++) {
        T *out = (T *)call->out[0].data + i * classes;
        memset(out, 0, (size_t)classes * sizeof *out);
        if (index[i] >= 0 && index[i] < classes) out[index[i]] = 1;
    }
}

#else

#include <weft/ops.h>

#define F(...)                                                                                     \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -2, 2, false                                                      \
    }
#define INDICES(high, ...)                                                                         \
    {                                                                                              \
        WEFT_I32, __VA_ARGS__, 0, high, false                                                      \
    }

/* ---- embedding ---- */

extern const weft_op weft_op_embedding, weft_op_embedding_grad, weft_op_gather, weft_op_scatter_add;

static bool infer_embedding(weft_infer *infer)
{
    char text[128];
    weft_shape table = infer->in[0].shape, out = infer->in[1].shape;
    if (!weft_infer_dtype(infer, 1, WEFT_I32)) return false;
    if (table.rank != 2 || out.rank == WEFT_MAX_RANK)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "the table must be [rows, features], got %s",
                               weft_shape_text(table, text, sizeof text));
    out.dim[out.rank++] = table.dim[1];
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

static bool infer_embedding_grad(weft_infer *infer)
{
    char a[128], b[128];
    weft_shape indices = infer->in[0].shape, dy = infer->in[1].shape, front = dy;
    if (!weft_infer_dtype(infer, 0, WEFT_I32) || !weft_infer_float(infer, 1)) return false;
    front.rank--;
    if (dy.rank < 1 || !weft_shape_equal(front, indices))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "indices %s do not fit dy %s",
                               weft_shape_text(indices, a, sizeof a),
                               weft_shape_text(dy, b, sizeof b));
    if (weft_shape_numel(indices) > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "takes up to 2147483647 indices, got %s",
                               weft_shape_text(indices, a, sizeof a));
    infer->out[0] =
        (weft_type){infer->in[1].dtype,
                    WEFT_SHAPE(((const embedding_attr *)infer->attr)->rows, dy.dim[dy.rank - 1])};
    return true;
}

static int64_t tiles_embedding(const weft_call *call)
{
    int64_t features = call->in[0].shape.dim[1];
    return ceil_div(numel_of(&call->in[1].shape), TILE / (features ? features : 1) + 1);
}

static int64_t tiles_embedding_grad(const weft_call *call)
{
    if (call->phase == 0) return ceil_div(numel_of(&call->out[0].shape), GRAD_ZEROS) + 1;
    return ceil_div(call->out[0].shape.dim[1], GRAD_COLUMNS);
}

static size_t scratch_embedding_grad(const weft_call *call)
{
    return (size_t)(call->out[0].shape.dim[0] + numel_of(&call->in[0].shape)) * sizeof(int32_t);
}

static void cost_embedding(const weft_call *call, weft_cost *cost)
{
    cost->flops = 0;
    cost->bytes =
        2.0 * (double)numel_of(&call->out[0].shape) * (double)weft_dtype_bytes(call->out[0].dtype);
}

static void cost_embedding_grad(const weft_call *call, weft_cost *cost)
{
    double dy = (double)numel_of(&call->in[1].shape), table = (double)numel_of(&call->out[0].shape);
    cost->flops = dy;
    cost->bytes = (dy + table) * (double)weft_dtype_bytes(call->out[0].dtype);
}

static embedding_attr embedding_of(int64_t rows, int64_t padding_index)
{
    embedding_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.rows = rows;
    attr.padding_index = padding_index;
    return attr;
}

static void vjp_embedding(weft_vjp *v)
{
    const embedding_attr *own = v->attr;
    embedding_attr attr = embedding_of(weft_dim(v->graph, v->in[0], 0), own->padding_index);
    v->grad_in[0] = weft_apply(v->graph, &weft_op_embedding_grad, &attr,
                               (weft_value[]){v->in[1], v->grad_out[0]}, 2, NULL);
}

/* Linear in dy: its gradient reads the rows back, but for those of the padding. */
static void vjp_embedding_grad(weft_vjp *v)
{
    const embedding_attr *attr = v->attr;
    weft_graph *g = v->graph;
    weft_value rows = weft_embedding(g, v->grad_out[0], v->in[0], attr->padding_index);
    if (attr->padding_index >= 0) {
        weft_value pad =
            weft_cast(g, weft_scalar(g, WEFT_F64, (double)attr->padding_index), WEFT_I32);
        weft_value mask = weft_expand_dims(g, weft_equal(g, v->in[0], pad), -1);
        rows = weft_masked_fill(g, rows, mask, 0.0);
    }
    v->grad_in[1] = rows;
}

static const embedding_attr emb_none = {6, -1}, emb_pad = {6, 0};
static const weft_sample samples_embedding[] = {
    {&emb_none, 2, {F({2, {6, 3}}), INDICES(6, {2, {2, 4}})}},
    {&emb_none, 2, {F({2, {6, 1}}), INDICES(6, {1, {5}})}},
    {&emb_none, 2, {F({2, {6, 3}}), INDICES(6, {2, {0, 4}})}},
    {&emb_none, 2, {INDICES(9, {2, {6, 3}}), INDICES(6, {1, {5}})}},
    {&emb_none, 2, {{WEFT_BOOL, {2, {6, 3}}, 0, 0.5, false}, INDICES(6, {1, {5}})}},
};
static const weft_sample samples_embedding_grad[] = {
    {&emb_none, 2, {INDICES(6, {2, {2, 4}}), F({3, {2, 4, 3}})}},
    {&emb_pad, 2, {INDICES(6, {1, {9}}), F({2, {9, 2}})}},
};
static const weft_attr_field embedding_fields[] = {
    {"padding_index", WEFT_ATTR_INT64, offsetof(embedding_attr, padding_index)},
    {NULL, WEFT_ATTR_INT, 0},
};

DECLARE_ANY_KERNELS(embedding);
const weft_op weft_op_embedding = {
    .name = "embedding",
    .doc = "y[...] = table[indices[...]]: rows of a table. Rows read at padding_index get no "
           "gradient.",
    .inputs = "table indices",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(embedding_attr),
    .attrs = embedding_fields,
    .infer = infer_embedding,
    .kernel = ANY_KERNELS(embedding),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_embedding,
    .cost = cost_embedding,
    .can_fail = true,
    .vjp = vjp_embedding,
    .samples = samples_embedding,
    .n_samples = sizeof samples_embedding / sizeof *samples_embedding,
};
DECLARE_KERNELS(embedding_grad);
const weft_op weft_op_embedding_grad = {
    .name = "embedding_grad",
    .doc = "dtable[r] = sum of dy[...] where indices[...] = r, in order: embedding backward.",
    .inputs = "indices dy",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(embedding_attr),
    .attrs = embedding_fields,
    .infer = infer_embedding_grad,
    .kernel = FLOAT_KERNELS(embedding_grad),
    .key_output = true,
    .takes = WEFT_TAKES_DENSE,
    .phases = 2,
    .tiles = tiles_embedding_grad,
    .scratch = scratch_embedding_grad,
    .cost = cost_embedding_grad,
    .can_fail = true,
    .vjp = vjp_embedding_grad,
    .samples = samples_embedding_grad,
    .n_samples = sizeof samples_embedding_grad / sizeof *samples_embedding_grad,
};

weft_value weft_embedding(weft_graph *graph, weft_value table, weft_value indices,
                          int64_t padding_index)
{
    embedding_attr attr = embedding_of(0, padding_index);
    return weft_apply(graph, &weft_op_embedding, &attr, (weft_value[]){table, indices}, 2, NULL);
}

/* ---- gather, scatter_add ---- */

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
    int64_t outer = 1;
    for (int d = 0; d < ((const gather_attr *)call->attr)->axis; d++)
        outer *= call->out[0].shape.dim[d];
    return numel_of(&call->out[0].shape) ? outer : 0;
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
    {&gather_1, 2, {F({2, {3, 5}}), INDICES(5, {2, {3, 4}})}},
    {&gather_0, 2, {F({3, {4, 2, 2}}), INDICES(4, {3, {3, 2, 2}})}},
    {&gather_0, 2, {{WEFT_I32, {1, {4}}, 0, 9, false}, INDICES(4, {1, {6}})}},
};
static const weft_sample samples_scatter_add[] = {
    {&gather_1, 3, {F({2, {3, 5}}), INDICES(5, {2, {3, 4}}), F({2, {3, 4}})}},
    {&gather_0, 3, {F({3, {4, 2, 2}}), INDICES(4, {3, {3, 2, 2}}), F({3, {3, 2, 2}})}},
};
static const weft_attr_field gather_fields[] = {
    {"axis", WEFT_ATTR_INT, offsetof(gather_attr, axis)},
    {NULL, WEFT_ATTR_INT, 0},
};
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
    .vjp = vjp_gather,
    .samples = samples_gather,
    .n_samples = sizeof samples_gather / sizeof *samples_gather,
};
DECLARE_KERNELS(scatter_add);
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
    .vjp = vjp_scatter_add,
    .samples = samples_scatter_add,
    .n_samples = sizeof samples_scatter_add / sizeof *samples_scatter_add,
};

static weft_value at_axis(weft_graph *graph, const weft_op *op, const weft_value *in, size_t n,
                          int axis)
{
    gather_attr attr = {axis_from_front(axis, weft_rank(graph, in[0]))};
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

/* ---- one_hot ---- */

static bool infer_one_hot(weft_infer *infer)
{
    const one_hot_attr *attr = infer->attr;
    weft_shape shape = infer->in[0].shape;
    if (!weft_infer_dtype(infer, 0, WEFT_I32)) return false;
    if (shape.rank == WEFT_MAX_RANK || attr->classes < 0)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%lld classes on rank %d",
                               (long long)attr->classes, shape.rank);
    shape.dim[shape.rank++] = attr->classes;
    infer->out[0] = (weft_type){attr->dtype, shape};
    return true;
}

static int64_t tiles_one_hot(const weft_call *call)
{
    int64_t classes = ((const one_hot_attr *)call->attr)->classes;
    return ceil_div(numel_of(&call->in[0].shape), TILE / (classes ? classes : 1) + 1);
}

static const one_hot_attr hot_f64 = {5, WEFT_F64}, hot_int = {3, WEFT_I32}, hot_f32 = {5, WEFT_F32};
static const weft_sample samples_one_hot[] = {
    {&hot_f64, 1, {{WEFT_I32, {2, {2, 4}}, -1, 6, false}}},
    {&hot_f32, 1, {{WEFT_I32, {2, {2, 4}}, -1, 6, false}}},
    {&hot_int, 1, {{WEFT_I32, {1, {4}}, 0, 3, false}}},
};
static const weft_attr_field one_hot_fields[] = {
    {"classes", WEFT_ATTR_INT64, offsetof(one_hot_attr, classes)},
    {"dtype", WEFT_ATTR_DTYPE, offsetof(one_hot_attr, dtype)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_ANY_KERNELS(one_hot);
extern const weft_op weft_op_one_hot;
const weft_op weft_op_one_hot = {
    .name = "one_hot",
    .doc = "y[..., c] = 1 if indices[...] = c, else 0; a row of zeros for an index outside.",
    .inputs = "indices",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(one_hot_attr),
    .attrs = one_hot_fields,
    .infer = infer_one_hot,
    .kernel = ANY_KERNELS(one_hot),
    .key_output = true,
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_one_hot,
    .gradient = WEFT_GRADIENT_ZERO,
    .samples = samples_one_hot,
    .n_samples = sizeof samples_one_hot / sizeof *samples_one_hot,
};

weft_value weft_one_hot(weft_graph *graph, weft_value indices, int64_t classes, weft_dtype dtype)
{
    one_hot_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.classes = classes;
    attr.dtype = dtype;
    return weft_apply(graph, &weft_op_one_hot, &attr, &indices, 1, NULL);
}

#endif
