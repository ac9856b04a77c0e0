/* Gradients of a program's choice. The op is its first input; the gradient of its output goes to
 * the second, or nowhere if there is none. It has no kernel: its expansion is the first input, so no
 * plan has such a node, and a plan without gradients does not compute the second input for it. */
#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>

static bool infer_custom_gradient(weft_infer *infer)
{
    char a[128], b[128];
    infer->out[0] = infer->in[0];
    if (infer->n_in < 2) return true;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    return weft_shape_equal(infer->in[0].shape, infer->in[1].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "the value is %s, its surrogate %s",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static void vjp_custom_gradient(weft_vjp *v)
{
    if (v->n_in > 1 && v->wanted[1]) v->grad_in[1] = v->grad_out[0];
}

static void expand_custom_gradient(weft_expand *e)
{
    e->out[0] = e->in[0];
}

static void onnx_custom_gradient(weft_export *e)
{
    e->out[0] = weft_export_node(e, "Identity", e->in, 1, 1);
}

static const weft_sample samples_custom_gradient[] = {
    {NULL, 1, {FLOATS({2, {3, 4}})}},
    {NULL, 2, {FLOATS({2, {3, 4}}), FLOATS({2, {3, 4}})}},
    {NULL, 2, {FLOATS({2, {0, 3}}), FLOATS({2, {0, 3}})}},
};
extern const weft_op weft_op_custom_gradient;
const weft_op weft_op_custom_gradient = {
    .name = "custom_gradient",
    .doc = "The value itself, whose gradient goes to the surrogate, or nowhere without one.",
    .min_in = 1,
    .max_in = 2,
    .n_out = 1,
    .inputs = "value surrogate",
    .infer = infer_custom_gradient,
    .gradient = WEFT_GRADIENT_STRAIGHT,
    .batch = weft__batch_front,
    .vjp = vjp_custom_gradient,
    .expand = expand_custom_gradient,
    .onnx = onnx_custom_gradient,
    .samples = samples_custom_gradient,
    .n_samples = sizeof samples_custom_gradient / sizeof *samples_custom_gradient,
};

weft_value weft_custom_gradient(weft_graph *graph, weft_value value, weft_value surrogate)
{
    return weft_apply(graph, &weft_op_custom_gradient, NULL, (weft_value[]){value, surrogate}, 2,
                      NULL);
}

weft_value weft_stop_gradient(weft_graph *graph, weft_value x)
{
    return weft_apply(graph, &weft_op_custom_gradient, NULL, &x, 1, NULL);
}
