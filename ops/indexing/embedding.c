/* Rows of an embedding matrix at indices, O(elements of the result), and their gradient.
 *
 * The gradient adds rows at repeated indices in the order of the indices: one tile of the first
 * phase lists the positions of each index, and a tile of the second owns columns and follows the
 * lists.
 */
#include "kernels/kernel.h"
#include "kernels/sums.h"

typedef struct embedding_attr {
    int64_t rows, padding_index;
} embedding_attr;

#define GRAD_COLUMNS 64
#define GRAD_ZEROS   65536

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
/* Lists of the positions of each index in [0, size), in order: head[index] is the first position,
 * next[i] the one after position i, and -1 ends a list. Reports indices out of range, except
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
    if (call->phase == 0) { /* zeros, in contiguous ranges */
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

#else

#include "embedding.h"
#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_embedding, weft_op_embedding_grad;

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
    cost->bytes = 2.0 * (double)weft_tensor_bytes(call->out[0].dtype, call->out[0].shape);
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

weft_value weft__embedding_grad(weft_graph *graph, weft_value indices, weft_value dy, int64_t rows,
                                int64_t padding_index)
{
    const embedding_attr attr = embedding_of(rows, padding_index);
    return weft_apply(graph, &weft_op_embedding_grad, &attr, (weft_value[]){indices, dy}, 2, NULL);
}

static void vjp_embedding(weft_vjp *v)
{
    const embedding_attr *attr = v->attr;
    v->grad_in[0] = weft__embedding_grad(v->graph, v->in[1], v->grad_out[0],
                                         weft_dim_of(v->graph, v->in[0], 0), attr->padding_index);
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

static void batch_embedding(weft_batch *b)
{
    weft__batch_leading(b, 1u << 1);
}

/* The tables of all examples are one. An index out of range stays one. */
static void batch_embedding_grad(weft_batch *b)
{
    const embedding_attr *attr = b->attr;
    weft_graph *g = b->graph;
    if (attr->rows < 1 || attr->rows > INT32_MAX / b->size) {
        weft__batch_each(b);
        return;
    }
    const weft_value indices = weft__batch_in(b, 0), zero = weft_scalar(g, WEFT_I32, 0);
    weft_value dy = weft__batch_in(b, 1);
    if (attr->padding_index >= 0) {
        const weft_value wide = weft_scalar(g, WEFT_F64, (double)attr->padding_index);
        const weft_value mask = weft_equal(g, indices, weft_cast(g, wide, WEFT_I32));
        dy = weft_masked_fill(g, dy, weft_expand_dims(g, mask, -1), 0.0);
    }
    weft_value first = weft_arange(g, WEFT_F64, b->size, 0, (double)attr->rows);
    first = weft__batch_align(g, first, weft_rank_of(g, b->one_in[0]));
    const weft_value end = weft_scalar(g, WEFT_I32, (double)attr->rows);
    const weft_value before = weft_less(g, indices, zero);
    const weft_value outside = weft_logical_or(g, before, weft_greater_equal(g, indices, end));
    const weft_value inside = weft_masked_fill(g, indices, outside, 0);
    const weft_value sum = weft_add(g, weft_cast(g, inside, WEFT_F64), first);
    const weft_value moved = weft_masked_fill(g, weft_cast(g, sum, WEFT_I32), outside, -1);
    const weft_value whole = weft__embedding_grad(g, moved, dy, attr->rows * b->size, -1);
    b->out[0] = weft__batch_unfold(b, whole, b->one_out[0]);
}

static const embedding_attr emb_none = {6, -1}, emb_pad = {6, 0};
static const weft_sample samples_embedding[] = {
    {&emb_none, 2, {FLOATS({2, {6, 3}}), INDICES(6, {2, {2, 4}})}},
    {&emb_none, 2, {FLOATS({2, {6, 1}}), INDICES(6, {1, {5}})}},
    {&emb_none, 2, {FLOATS({2, {6, 3}}), INDICES(6, {2, {0, 4}})}},
    {&emb_none, 2, {INDICES(9, {2, {6, 3}}), INDICES(6, {1, {5}})}},
    {&emb_none, 2, {{WEFT_BOOL, {2, {6, 3}}, 0, 0.5, false}, INDICES(6, {1, {5}})}},
};
static const weft_sample samples_embedding_grad[] = {
    {&emb_none, 2, {INDICES(6, {2, {2, 4}}), FLOATS({3, {2, 4, 3}})}},
    {&emb_pad, 2, {INDICES(6, {1, {9}}), FLOATS({2, {9, 2}})}},
};
static void onnx_embedding(weft_export *e)
{
    weft_export_same(e, "Gather");
    e->note = true; /* for padding_index */
}

static const weft_attr_field embedding_fields[] = {
    {"padding_index", WEFT_ATTR_INT64, offsetof(embedding_attr, padding_index)},
    {NULL, WEFT_ATTR_INT, 0},
};

static void source_embedding(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[1].shape)),
                                    WEFT_ARG_INT(s->in[0].shape.dim[0]),
                                    WEFT_ARG_INT(s->in[0].shape.dim[1])};
    weft_source_try(s, "embedding", args, sizeof args / sizeof *args);
}

static void source_embedding_grad(weft_source *s)
{
    const embedding_attr *attr = s->attr;
    const int64_t n = weft_shape_numel(s->in[0].shape);
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    WEFT_ARG_OUT(0),
                                    attr->rows + n ? WEFT_ARG_SCRATCH : WEFT_ARG_NONE,
                                    WEFT_ARG_INT(n),
                                    WEFT_ARG_INT(attr->rows),
                                    WEFT_ARG_INT(s->out[0].shape.dim[1]),
                                    WEFT_ARG_DOUBLE((double)attr->padding_index)};
    weft_source_try(s, "embedding_grad", args, sizeof args / sizeof *args);
}

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
    .onnx = onnx_embedding,
    .source = source_embedding,
    .batch = batch_embedding,
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
    .source = source_embedding_grad,
    .batch = batch_embedding_grad,
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

#endif
