/* Losses that are plain compositions: they have no kernels and are always expanded. */
#include "samples.h"

#include <weft/ops.h>

#include <string.h>

typedef struct loss_attr {
    int32_t sum; /* instead of mean */
} loss_attr;

static bool infer_loss(weft_infer *infer)
{
    char a[128], b[128];
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, WEFT_SCALAR};
    return weft_shape_equal(infer->in[0].shape, infer->in[1].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s and %s must be equal",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static weft_value reduced(weft_expand *e, weft_value x)
{
    return ((const loss_attr *)e->attr)->sum ? weft_sum(e->graph, x, WEFT_ALL_AXES, false)
                                             : weft_mean(e->graph, x, WEFT_ALL_AXES, false);
}

static void expand_mse(weft_expand *e)
{
    e->out[0] = reduced(e, weft_square(e->graph, weft_sub(e->graph, e->in[0], e->in[1])));
}

/* softplus(x) - x t = max(x, 0) - x t + ln(1 + e^-|x|) */
static void expand_bce(weft_expand *e)
{
    weft_value product = weft_mul(e->graph, e->in[0], e->in[1]);
    e->out[0] = reduced(e, weft_sub(e->graph, weft_softplus(e->graph, e->in[0]), product));
}

#define UNIT(...)                                                                                  \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, 0, 1, false                                                       \
    }
static const loss_attr loss_mean = {0}, loss_sum = {1};
static const weft_sample samples_mse[] = {
    {&loss_mean, 2, {FLOATS({2, {3, 4}}), FLOATS({2, {3, 4}})}},
    {&loss_sum, 2, {FLOATS({1, {5}}), FLOATS({1, {5}})}},
    {&loss_sum, 2, {FLOATS({2, {0, 3}}), FLOATS({2, {0, 3}})}},
};
static const weft_sample samples_bce[] = {
    {&loss_mean, 2, {FLOATS({2, {3, 4}}), UNIT({2, {3, 4}})}},
    {&loss_sum, 2, {FLOATS({1, {5}}), UNIT({1, {5}})}},
    {&loss_sum, 2, {FLOATS({2, {0, 3}}), UNIT({2, {0, 3}})}},
};
static const weft_attr_field loss_fields[] = {
    {"sum", WEFT_ATTR_INT, offsetof(loss_attr, sum)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define LOSS_OP(op, text, expansion, sample_list)                                                  \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 2,                                                                               \
        .max_in = 2,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(loss_attr),                                                            \
        .attrs = loss_fields,                                                                      \
        .infer = infer_loss,                                                                       \
        .expand = expansion,                                                                       \
        .samples = sample_list,                                                                    \
        .n_samples = sizeof sample_list / sizeof *sample_list,                                     \
    };
LOSS_OP(mse, "loss = mean (or sum) of (a - b)^2.", expand_mse, samples_mse)
LOSS_OP(bce_with_logits, "loss = mean (or sum) of max(x, 0) - x t + ln(1 + e^-|x|).", expand_bce,
        samples_bce)

weft_value weft_mse(weft_graph *graph, weft_value a, weft_value b, weft_reduction reduction)
{
    return weft_apply(graph, &weft_op_mse, &(loss_attr){reduction == WEFT_REDUCE_SUM},
                      (weft_value[]){a, b}, 2, NULL);
}

weft_value weft_bce_with_logits(weft_graph *graph, weft_value logits, weft_value targets,
                                weft_reduction reduction)
{
    return weft_apply(graph, &weft_op_bce_with_logits, &(loss_attr){reduction == WEFT_REDUCE_SUM},
                      (weft_value[]){logits, targets}, 2, NULL);
}
