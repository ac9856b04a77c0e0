/* embedding_bag: weighted sums of rows of an embedding matrix, O(indices x features). */
#include "kernels/kernel.h"

/* Results of a tile: as many as TILE products make, and at least one. */
static inline int64_t bags_of_tile(const weft_tensor *table, const weft_tensor *index)
{
    const int64_t features = table->shape.dim[1], terms = index->shape.dim[index->shape.rank - 1];
    const int64_t each = features && terms > TILE / features ? TILE + 1 : features * terms;
    return TILE / (each ? each : 1) + 1;
}

#ifdef WEFT_KERNEL_ISA

KERNEL(embedding_bag)
{
    const weft_tensor *table = &call->in[0], *y = &call->out[0];
    const int64_t rows = table->shape.dim[0], features = table->shape.dim[1];
    const int64_t terms = call->in[1].shape.dim[call->in[1].shape.rank - 1];
    const int64_t n = features ? numel_of(&y->shape) / features : 0;
    const int64_t each = bags_of_tile(table, &call->in[1]);
    const int32_t *index = call->in[1].data;
    const T *x = table->data, *weight = call->in[2].data;
    for (int64_t i = tile * each; i < n && i < (tile + 1) * each; i++) {
        T *out = (T *)y->data + i * features;
        if (!terms) memset(out, 0, (size_t)features * sizeof *out);
        for (int64_t k = i * terms; k < (i + 1) * terms; k++) {
            const bool inside = index[k] >= 0 && index[k] < rows;
            const T w = inside ? weight[k] : 0, *row = x + (inside ? index[k] * features : 0);
            if (!inside) weft_call_fail(call, index[k], rows);
            if (!rows)
                memset(out, 0, (size_t)features * sizeof *out);
            else if (k == i * terms)
                for (int64_t c = 0; c < features; c++) out[c] = w * row[c];
            else
                for (int64_t c = 0; c < features; c++) out[c] += w * row[c];
        }
    }
}

#else

#include "embedding.h"
#include "batch.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

static bool infer_bag(weft_infer *infer)
{
    char a[128], b[128];
    const weft_shape table = infer->in[0].shape, index = infer->in[1].shape;
    if (!weft_infer_float(infer, 0) || !weft_infer_dtype(infer, 1, WEFT_I32) ||
        !weft_infer_same_dtype(infer, 0, 2) || !weft_infer_min_rank(infer, 1, 1))
        return false;
    if (table.rank != 2)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "the table must be [rows, features], got %s",
                               weft_shape_text(table, a, sizeof a));
    infer->out[0] = (weft_type){infer->in[0].dtype, index};
    infer->out[0].shape.dim[index.rank - 1] = table.dim[1];
    return weft_shape_equal(index, infer->in[2].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "indices are %s, but weights %s",
                           weft_shape_text(index, a, sizeof a),
                           weft_shape_text(infer->in[2].shape, b, sizeof b));
}

static int64_t tiles_bag(const weft_call *call)
{
    const int64_t features = call->in[0].shape.dim[1];
    const int64_t n = features ? numel_of(&call->out[0].shape) / features : 0;
    return ceil_div(n, bags_of_tile(&call->in[0], &call->in[1]));
}

static void cost_bag(const weft_call *call, weft_cost *cost)
{
    const double products = (double)numel_of(&call->in[1].shape) * (double)call->in[0].shape.dim[1];
    cost->flops = 2 * products;
    cost->bytes = (double)weft_tensor_bytes(call->out[0].dtype, call->out[0].shape) +
                  products * (double)weft_dtype_bytes(call->out[0].dtype);
}

/* Of y[i] = sum of w[i, k] table[index[i, k]]: rows w dy for the table, and dots of rows for w. */
static void vjp_bag(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const weft_value dy = weft_expand_dims(g, v->grad_out[0], -2);
    if (v->wanted[0]) {
        const weft_value rows = weft_mul(g, weft_expand_dims(g, v->in[2], -1), dy);
        v->grad_in[0] = weft__embedding_grad(g, v->in[1], rows, weft_dim_of(g, v->in[0], 0), -1);
    }
    if (v->wanted[2]) {
        const weft_value rows = weft_embedding(g, v->in[0], v->in[1], -1);
        v->grad_in[2] = weft_sum(g, weft_mul(g, rows, dy), WEFT_AXES(-1), false);
    }
}

static void source_bag(weft_source *s)
{
    const weft_shape index = s->in[1].shape;
    const int64_t features = s->in[0].shape.dim[1];
    const weft_source_arg args[] = {
        WEFT_ARG_IN(0),
        WEFT_ARG_IN(1),
        WEFT_ARG_IN(2),
        WEFT_ARG_OUT(0),
        WEFT_ARG_INT(features ? weft_shape_numel(s->out[0].shape) / features : 0),
        WEFT_ARG_INT(index.dim[index.rank - 1]),
        WEFT_ARG_INT(s->in[0].shape.dim[0]),
        WEFT_ARG_INT(features)};
    weft_source_try(s, "embedding_bag", args, sizeof args / sizeof *args);
}

static void batch_bag(weft_batch *b)
{
    weft__batch_leading(b, 1u << 1 | 1u << 2);
}

static const weft_sample samples_bag[] = {
    {NULL, 3, {FLOATS({2, {6, 3}}), INDICES(6, {2, {2, 4}}), FLOATS({2, {2, 4}})}},
    {NULL, 3, {FLOATS({2, {6, 35}}), INDICES(6, {3, {2, 3, 2}}), FLOATS({3, {2, 3, 2}})}},
    {NULL, 3, {FLOATS({2, {6, 3}}), INDICES(6, {2, {2, 0}}), FLOATS({2, {2, 0}})}},
    {NULL, 3, {FLOATS({2, {6, 0}}), INDICES(6, {2, {2, 3}}), FLOATS({2, {2, 3}})}},
};
DECLARE_KERNELS(embedding_bag);
extern const weft_op weft_op_embedding_bag;
const weft_op weft_op_embedding_bag = {
    .name = "embedding_bag",
    .doc = "y[...] = the sum over k of weights[..., k] table[indices[..., k]], in order.",
    .inputs = "table indices weights",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer_bag,
    .kernel = FLOAT_KERNELS(embedding_bag),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_bag,
    .cost = cost_bag,
    .can_fail = true,
    .source = source_bag,
    .batch = batch_bag,
    .vjp = vjp_bag,
    .samples = samples_bag,
    .n_samples = sizeof samples_bag / sizeof *samples_bag,
};

weft_value weft_embedding_bag(weft_graph *graph, weft_value table, weft_value indices,
                              weft_value weights)
{
    return weft_apply(graph, &weft_op_embedding_bag, NULL, (weft_value[]){table, indices, weights},
                      3, NULL);
}

#endif
