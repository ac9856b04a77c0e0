/* The common parts of shape rules. */
#include "internal.h"

#include "base/text.h"

bool weft_infer_fail(weft_infer *infer, weft_status status, const char *format, ...)
{
    if (infer->error && infer->error->status == WEFT_OK) {
        infer->error->status = status;
        va_list arguments;
        va_start(arguments, format);
        text_vformat(infer->error->message, sizeof infer->error->message, format, arguments);
        va_end(arguments);
    }
    return false;
}

bool weft_infer_same_dtype(weft_infer *infer, size_t i, size_t j)
{
    weft_dtype a = infer->in[i].dtype, b = infer->in[j].dtype;
    return a == b || weft_infer_fail(infer, WEFT_BAD_DTYPE,
                                     "inputs %zu and %zu must have one dtype, got %s and %s", i, j,
                                     weft_dtype_name(a), weft_dtype_name(b));
}

bool weft_infer_float(weft_infer *infer, size_t i)
{
    weft_dtype d = infer->in[i].dtype;
    return weft_dtype_is_float(d) ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE, "input %zu must be f32 or f64, got %s", i,
                           weft_dtype_name(d));
}

bool weft_infer_dtype(weft_infer *infer, size_t i, weft_dtype dtype)
{
    weft_dtype d = infer->in[i].dtype;
    return d == dtype || weft_infer_fail(infer, WEFT_BAD_DTYPE, "input %zu must be %s, got %s", i,
                                         weft_dtype_name(dtype), weft_dtype_name(d));
}

bool weft_infer_min_rank(weft_infer *infer, size_t i, int rank)
{
    char text[128];
    weft_shape shape = infer->in[i].shape;
    return shape.rank >= rank ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "input %zu needs rank %d or more, got %s", i,
                           rank, weft_shape_text(shape, text, sizeof text));
}

bool weft_infer_axis(weft_infer *infer, int rank, int axis, int *out)
{
    if (axis < 0 || axis >= rank)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "axis %d, counted from the front, is outside [0, %d)", axis, rank);
    *out = axis;
    return true;
}
