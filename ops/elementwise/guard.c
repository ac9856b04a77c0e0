/* require_finite: passes a value through, and ends the run if a scalar is not finite. */
#include "kernels/kernel.h"

#ifdef WEFT_KERNEL_ISA

/* Inputs: x, then the scalars that must be finite. Every tile copies; the first one also checks
 * the scalars. */
KERNEL(require_finite)
{
    const int64_t n = numel_of(&call->out[0].shape), begin = tile * TILE;
    const int64_t end = begin + TILE < n ? begin + TILE : n;
    T *to = (T *)call->out[0].data + begin;
    const T *from = (const T *)call->in[0].data + begin;
    if (to != from && end > begin) memcpy(to, from, (size_t)(end - begin) * sizeof(T));
    if (tile) return;
    for (size_t i = 1; i < call->n_in; i++) {
        const weft_tensor *x = &call->in[i];
        if (x->dtype == WEFT_F32 ? !isfinite(*(const float *)x->data)
                                 : !isfinite(*(const double *)x->data))
            weft_call_not_finite(call, i);
    }
}

#else

#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

#include <stdlib.h>

static bool infer_require_finite(weft_infer *infer)
{
    char name[128], text[128];
    for (size_t i = 0; i < infer->n_in; i++) {
        if (!weft_infer_float(infer, i)) return false;
        if (i && infer->in[i].shape.rank)
            return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be a scalar, got %s",
                                   weft_infer_input(infer, i, name, sizeof name),
                                   weft_shape_text(infer->in[i].shape, text, sizeof text));
    }
    infer->out[0] = infer->in[0];
    return true;
}

/* At least one tile, so that the scalars are checked even if x is empty. */
static int64_t tiles_require_finite(const weft_call *call)
{
    int64_t tiles = ceil_div(numel_of(&call->out[0].shape), TILE);
    return tiles ? tiles : 1;
}

#define SCALAR(dtype)                                                                              \
    {                                                                                              \
        dtype, {0, {0}}, -2, 2, false                                                              \
    }
static const weft_sample samples_require_finite[] = {
    {NULL, 3, {FLOATS({2, {3, 4}}), SCALAR(WEFT_F32), SCALAR(WEFT_F64)}},
    {NULL, 2, {FLOATS({0, {0}}), FLOATS({0, {0}})}},
    {NULL, 2, {FLOATS({2, {0, 3}}), FLOATS({0, {0}})}},
};
static void source_require_finite(weft_source *s)
{
    const int64_t n = weft_shape_numel(s->out[0].shape);
    const weft_source_arg copy[] = {WEFT_ARG_OUT(0), WEFT_ARG_IN(0), WEFT_ARG_INT(n)};
    weft_source_call_of(s, "assign", copy, 3);
    for (size_t i = 1; i < s->n_in; i++) {
        weft_source_call call = {.function = "is_not_finite",
                                 .dtype = s->in[i].dtype,
                                 .args = &WEFT_ARG_IN(i),
                                 .n_args = 1,
                                 .fails = true};
        s->receiver->call(s, &call);
    }
}

DECLARE_KERNELS(require_finite);
extern const weft_op weft_op_require_finite;
const weft_op weft_op_require_finite = {
    .name = "require_finite",
    .doc = "y = x if all further inputs are finite; else the run fails here.",
    .min_in = 2,
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .infer = infer_require_finite,
    .kernel = FLOAT_KERNELS(require_finite),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_require_finite,
    .inplace = 1,
    .can_fail = true,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_require_finite,
    .samples = samples_require_finite,
    .n_samples = sizeof samples_require_finite / sizeof *samples_require_finite,
};

weft_value weft_require_finite(weft_graph *graph, weft_value x, const weft_value *scalars, size_t n)
{
    weft_value *in = n < SIZE_MAX ? calloc(n + 1, sizeof *in) : NULL;
    if (!in || (n && !scalars)) {
        weft_graph_fail_in(graph, "require_finite", in ? WEFT_BAD_ARGUMENT : WEFT_NO_MEMORY, "%s",
                           in ? "the scalars are NULL" : "no memory");
        free(in);
        return WEFT_NO_VALUE;
    }
    in[0] = x;
    for (size_t i = 0; i < n; i++) in[i + 1] = scalars[i];
    weft_value y = weft_apply(graph, &weft_op_require_finite, NULL, in, n + 1, NULL);
    free(in);
    return y;
}

#endif
