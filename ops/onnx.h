/* What ops share that write themselves as nodes of ONNX. */
#ifndef WEFT_OPS_ONNX_H
#define WEFT_OPS_ONNX_H

#include <weft/export.h>

#include <math.h>

/* x under another shape. */
static inline weft_operand onnx_reshape(weft_export *e, weft_operand x, weft_shape shape)
{
    bool empty = false;
    for (int i = 0; i < shape.rank; i++) empty |= shape.dim[i] == 0;
    const weft_operand y =
        weft_export_binary(e, "Reshape", x, weft_export_int64s(e, shape.dim, (size_t)shape.rank));
    if (empty) weft_export_int(e, "allowzero", 1); /* 0 would mean the size of x */
    return y;
}

/* A reduction over axes, or over all without one. Axes became an input in opset 18, those of
 * ReduceSum before opset 17. */
static inline weft_operand onnx_reduce(weft_export *e, const char *type, weft_operand x,
                                       const int64_t *axes, size_t n_axes, bool keepdims,
                                       bool axes_input)
{
    const bool input = n_axes && (axes_input || e->opset >= 18);
    const weft_operand y = input
                               ? weft_export_binary(e, type, x, weft_export_int64s(e, axes, n_axes))
                               : weft_export_unary(e, type, x);
    if (n_axes && !input) weft_export_ints(e, "axes", axes, n_axes);
    weft_export_int(e, "keepdims", keepdims);
    return y;
}

/* The same elements; the file's counterpart of a copy. */
static inline void onnx_identity(weft_export *e)
{
    e->out[0] = weft_export_unary(e, "Identity", e->in[0]);
}

#endif
