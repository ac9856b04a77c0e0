/* one_hot: rows of zeros with a 1 at an index, O(elements of the result). */
#include "kernels/kernel.h"

typedef struct one_hot_attr {
    int64_t classes;
    weft_dtype dtype;
} one_hot_attr;

#ifdef WEFT_KERNEL_ISA

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

#include "batch.h"
#include "onnx.h"

#include <weft/ops.h>
#include <weft/source.h>

static bool infer_one_hot(weft_infer *infer)
{
    const one_hot_attr *attr = infer->attr;
    weft_shape shape = infer->in[0].shape;
    if (!weft_infer_dtype(infer, 0, WEFT_I32)) return false;
    if (shape.rank == WEFT_MAX_RANK || attr->classes < 0)
        return weft_infer_fail(
            infer, WEFT_BAD_ARGUMENT,
            "%lld classes for indices of rank %d; expected 0 or more, and a rank below 8",
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
/* indices == 0, 1, ... classes - 1: OneHot would count negative indices from the end. */
static void onnx_one_hot(weft_export *e)
{
    const one_hot_attr *attr = e->attr;
    weft_shape column = e->out_type[0].shape;
    column.dim[column.rank - 1] = 1;
    const weft_operand range[] = {weft_export_scalar(e, WEFT_I32, 0),
                                  weft_export_scalar(e, WEFT_I32, (double)attr->classes),
                                  weft_export_scalar(e, WEFT_I32, 1)};
    weft_operand classes = weft_export_node(e, "Range", range, 3, 1);
    weft_operand hot = weft_export_binary(e, "Equal", onnx_reshape(e, e->in[0], column), classes);
    e->out[0] = weft_export_unary(e, "Cast", hot);
    weft_export_int(e, "to", weft_export_type(attr->dtype));
}

static void source_one_hot(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[0].shape)),
                                    WEFT_ARG_INT(((const one_hot_attr *)s->attr)->classes)};
    weft_source_call_of(s, "one_hot", args, 4);
}

static const weft_attr_field one_hot_fields[] = {
    {"classes", WEFT_ATTR_INT64, offsetof(one_hot_attr, classes)},
    {"dtype", WEFT_ATTR_DTYPE, offsetof(one_hot_attr, dtype)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_ANY_KERNELS(one_hot);
extern const weft_op weft_op_one_hot;
const weft_op weft_op_one_hot = {
    .name = "one_hot",
    .doc = "y[..., c] = 1 if indices[...] = c, else 0; a row of zeros for an index out of range.",
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
    .onnx = onnx_one_hot,
    .batch = weft__batch_front,
    .source = source_one_hot,
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
