/* dropout: the mask of element i comes from the counter-based generator at (key, seed, run, i), so
 * that forward, backward and any split into tiles see the same mask and none is stored. */
#include "dropout.h"
#include "kernels/kernel.h"

#ifdef WEFT_KERNEL_ISA
/* Elements whose bits are made at a time: whole groups of any width. */
#define DROPOUT_BLOCK 1024

KERNEL(dropout)
{
    const dropout_attr *attr = call->attr;
    const T scale = (T)(1 / (1 - attr->p));
    const uint32_t limit = dropout_limit(attr->p);
    const uint64_t stream = dropout_stream(attr->key, call->run), run = call->run->number;
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const T *x = (const T *)call->in[0].data + w.offset[1];
        T *y = (T *)call->out[0].data + w.offset[0];
        /* Where the run lies in the whole tensor; its first elements may be a group's last. */
        const int64_t first = call->first + w.offset[0], skip = first % 4;
        for (int64_t at = 0; at < w.count; at += DROPOUT_BLOCK - 4) {
            uint32_t bits[DROPOUT_BLOCK];
            int64_t count = w.count - at < DROPOUT_BLOCK - 4 ? w.count - at : DROPOUT_BLOCK - 4;
            /* Prefetches the next block while the bits of this one are computed. */
            for (int64_t i = at + count; i < at + count + DROPOUT_BLOCK && i < w.count; i += LINE) {
                __builtin_prefetch(x + i);
                __builtin_prefetch(y + i, 1);
            }
            dropout_bits((uint64_t)(first + at) / 4, count + skip, stream, run, bits);
            _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[at + i] =
                bits[skip + i] >= limit ? x[at + i] * scale : 0;
        }
    }
}

#else

#include "passes.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_dropout;

static bool infer_dropout(weft_infer *infer)
{
    double p = ((const dropout_attr *)infer->attr)->p;
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0) &&
           ((p >= 0 && p < 1) ||
            weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "p must be in [0, 1), got %g", p));
}

/* Linear, with the mask of the same key. */
static void vjp_dropout(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_dropout, v->attr, v->grad_out, 1, NULL);
}

static void cost_dropout(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->out[0].shape);
    cost->flops = 20 * n;
    cost->bytes = 2 * n * (double)weft_dtype_bytes(call->out[0].dtype);
}

static const dropout_attr drop_some = {0.3, 11}, drop_none = {0.0, 12};
static const weft_sample samples_dropout[] = {
    {&drop_some, 1, {{WEFT_FLOAT, {2, {5, 9}}, -2, 2, false}}},
    {&drop_none, 1, {{WEFT_FLOAT, {1, {5}}, -2, 2, false}}},
    {&drop_some, 1, {{WEFT_FLOAT, {2, {0, 2}}, -2, 2, false}}},
};
/* Without `training_mode`, it passes its input through, as in inference. */
static void onnx_dropout(weft_export *e)
{
    const double p = ((const dropout_attr *)e->attr)->p;
    const weft_operand ratio = weft_export_scalar(e, WEFT_F64, p);
    e->out[0] = weft_export_binary(e, "Dropout", e->in[0], ratio);
    e->inexact = true;
}

static void source_dropout(weft_source *s)
{
    const dropout_attr *a = s->attr;
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[0].shape)),
                                    WEFT_ARG_KEY(a->key),
                                    WEFT_ARG_SEED,
                                    WEFT_ARG_KEY(dropout_limit(a->p)),
                                    WEFT_ARG_NUMBER(1 / (1 - a->p))};
    weft_source_call_of(s, "dropout", args, sizeof args / sizeof *args);
}

static const weft_attr_field dropout_fields[] = {
    {"p", WEFT_ATTR_DOUBLE, offsetof(dropout_attr, p)},
    {NULL, WEFT_ATTR_INT, 0},
};
/* All examples have the factors of one: those of the graph, in its gradient as well. */
static void batch_dropout(weft_batch *b)
{
    weft_graph *g = b->graph;
    const weft_shape one = weft_shape_of(g, b->one_in[0]);
    const weft_value ones = weft_fill(g, weft_dtype_of(g, b->in[0]), one, 1);
    const weft_value factors = weft_apply(g, b->op, b->attr, &ones, 1, NULL);
    b->out[0] = weft_mul(g, b->in[0], factors);
}

DECLARE_KERNELS(dropout);
const weft_op weft_op_dropout = {
    .name = "dropout",
    .doc = "y = x / (1 - p) with probability 1 - p, else 0 (Srivastava et al. 2014, inverted).",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(dropout_attr),
    .attrs = dropout_fields,
    .infer = infer_dropout,
    .kernel = FLOAT_KERNELS(dropout),
    .elementwise = true,
    .takes = WEFT_TAKES_DENSE,
    .cost = cost_dropout,
    .inplace = 1,
    .random = true,
    .onnx = onnx_dropout,
    .source = source_dropout,
    PASSES(&weft__pass_reuse_dropout),
    .batch = batch_dropout,
    .vjp = vjp_dropout,
    .samples = samples_dropout,
    .n_samples = sizeof samples_dropout / sizeof *samples_dropout,
};

weft_value weft_dropout(weft_graph *graph, weft_value x, double p)
{
    if (p == 0) return x;
    dropout_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.p = p;
    attr.key = weft_graph_random_key(graph);
    return weft_apply(graph, &weft_op_dropout, &attr, &x, 1, NULL);
}

#endif
