/* Batching rules (weft_op.batch) that several ops share. */
#include "batch.h"

#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

weft_shape weft__batch_shape(const weft_batch *b, weft_shape one)
{
    weft_shape s = {one.rank + 1, {b->size}};
    for (int d = 0; d < one.rank && d + 1 < WEFT_MAX_RANK; d++) s.dim[d + 1] = one.dim[d];
    return s;
}

weft_value weft__batch_in(const weft_batch *b, size_t i)
{
    if (b->batched[i]) return b->in[i];
    const weft_shape one = weft_shape_of(b->graph, b->in[i]);
    return weft_broadcast_to(b->graph, b->in[i], weft__batch_shape(b, one));
}

weft_value weft__batch_fold(weft_graph *graph, weft_value x)
{
    const weft_shape from = weft_shape_of(graph, x);
    weft_shape to = {from.rank - 1, {0}};
    for (int d = 0; d < to.rank; d++) to.dim[d] = from.dim[d + 1];
    if (to.rank > 0) to.dim[0] = weft__batch_product(to.dim[0], from.dim[0]);
    return weft_reshape(graph, x, to);
}

weft_value weft__batch_unfold(const weft_batch *b, weft_value x, weft_value one)
{
    return weft_reshape(b->graph, x, weft__batch_shape(b, weft_shape_of(b->graph, one)));
}

weft_value weft__batch_align(weft_graph *graph, weft_value x, int rank)
{
    const weft_shape from = weft_shape_of(graph, x);
    const int ones = rank + 1 - from.rank;
    weft_shape to = {rank + 1, {0}};
    if (ones <= 0) return x;
    for (int d = 0; d < to.rank; d++)
        to.dim[d] = d == 0 ? from.dim[0] : d <= ones ? 1 : from.dim[d - ones];
    return weft_reshape(graph, x, to);
}

weft_value weft__batch_sums(weft_graph *graph, weft_value x)
{
    const weft_shape shape = weft_shape_of(graph, x);
    int64_t n = 1;
    for (int d = 1; d < shape.rank; d++) n = weft__batch_product(n, shape.dim[d]);
    const weft_value rows = weft_reshape(graph, x, WEFT_SHAPE(shape.dim[0], n));
    return weft_sum(graph, rows, WEFT_AXES(1), false);
}

/* ---- Rules ---- */

static void no_memory(const weft_batch *b)
{
    weft_graph_fail_in(b->graph, b->op->name, WEFT_NO_MEMORY, "no memory");
}

static weft_value *lists(const weft_batch *b, size_t n)
{
    weft_value *list = malloc((n + 1) * sizeof *list);
    if (!list) no_memory(b);
    return list;
}

void weft__batch_with(weft_batch *b, const void *attr)
{
    weft_value *in = lists(b, b->n_in);
    for (size_t i = 0; in && i < b->n_in; i++) in[i] = weft__batch_in(b, i);
    if (in) weft_apply(b->graph, b->op, attr, in, b->n_in, b->out);
    free(in);
}

void weft__batch_front(weft_batch *b)
{
    weft__batch_with(b, b->attr);
}

void weft__batch_axis(weft_batch *b)
{
    const weft_attr_field *field = b->op->attrs;
    while (strcmp(field->name, "axis") != 0) field++;
    char *attr = malloc(b->op->attr_size);
    int32_t axis;
    if (!attr) {
        no_memory(b);
        return;
    }
    memcpy(attr, b->attr, b->op->attr_size);
    memcpy(&axis, attr + field->offset, sizeof axis);
    axis++;
    memcpy(attr + field->offset, &axis, sizeof axis);
    weft__batch_with(b, attr);
    free(attr);
}

/* Folds the first `n` inputs; the others are passed as they are. */
static void fold(weft_batch *b, size_t n)
{
    weft_value *in = lists(b, b->n_in);
    for (size_t i = 0; in && i < b->n_in; i++) {
        in[i] = b->in[i];
        if (i < n) in[i] = weft__batch_fold(b->graph, weft__batch_in(b, i));
    }
    if (in) weft_apply(b->graph, b->op, b->attr, in, b->n_in, b->out);
    for (size_t k = 0; in && k < b->n_out; k++)
        b->out[k] = weft__batch_unfold(b, b->out[k], b->one_out[k]);
    free(in);
}

void weft__batch_rows(weft_batch *b)
{
    fold(b, b->n_in);
}

static bool shares_from(const weft_batch *b, size_t i)
{
    bool shared = true;
    for (; i < b->n_in; i++) shared = shared && !b->batched[i];
    return shared;
}

void weft__batch_first(weft_batch *b)
{
    if (shares_from(b, 1))
        fold(b, 1);
    else
        weft__batch_each(b);
}

void weft__batch_leading(weft_batch *b, unsigned mask)
{
    weft_value *in = lists(b, b->n_in);
    bool shared = true;
    for (size_t i = 0; in && i < b->n_in; i++) {
        const bool leading = i < 32 && mask >> i & 1;
        in[i] = leading ? weft__batch_in(b, i) : b->in[i];
        shared = shared && (leading || !b->batched[i]);
    }
    if (in && shared)
        weft_apply(b->graph, b->op, b->attr, in, b->n_in, b->out);
    else if (in)
        weft__batch_each(b);
    free(in);
}

/* Input i of example e. */
static weft_value one_of(const weft_batch *b, size_t i, int64_t e)
{
    if (!b->batched[i]) return b->in[i];
    const weft_value row = weft_slice(b->graph, b->in[i], 0, e, e + 1, 1);
    return weft_squeeze(b->graph, row, 0);
}

void weft__batch_each(weft_batch *b)
{
    const size_t size = (size_t)b->size;
    weft_value *in = lists(b, b->n_in), *outs = lists(b, size * b->n_out);
    weft_value one[WEFT_MAX_OUTPUTS] = {{0, 0}};
    for (int64_t e = 0; in && outs && e < b->size && !weft_graph_status(b->graph); e++) {
        for (size_t i = 0; i < b->n_in; i++) in[i] = one_of(b, i, e);
        weft_apply(b->graph, b->op, b->attr, in, b->n_in, one);
        for (size_t k = 0; k < b->n_out; k++) outs[k * size + (size_t)e] = one[k];
    }
    for (size_t k = 0; in && outs && k < b->n_out && !weft_graph_status(b->graph); k++)
        b->out[k] = weft_stack(b->graph, outs + k * size, size, 0);
    free(in);
    free(outs);
}
