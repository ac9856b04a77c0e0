/* The common parts of shape rules. */
#include "internal.h"

#include "base/text.h"

#include <math.h>

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

/* Halfway between the largest f32 and the number after it, if there were one: from here on numbers
 * round to an infinity. */
#define F32_LIMIT 0x1.ffffffp127

bool weft_infer_scalar(weft_infer *infer, const char *name, double value, weft_dtype dtype)
{
    const char *takes = NULL;
    char text[TEXT_NUMBER_BYTES];
    if (dtype == WEFT_BOOL && !(value == 0 || value == 1))
        takes = "0 and 1";
    else if (dtype == WEFT_I32 &&
             !(value >= INT32_MIN && value <= INT32_MAX && value == floor(value)))
        takes = "whole numbers from -2147483648 to 2147483647";
    else if (dtype == WEFT_F32 && isfinite(value) && fabs(value) >= F32_LIMIT)
        takes = "numbers up to 3.4028235e38, infinities and NaN";
    return !takes ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%s: %s does not fit %s, which takes %s", name,
                           text_from_double(value, text), weft_dtype_name(dtype), takes);
}

bool weft_infer_axis(weft_infer *infer, int rank, int axis, int *out)
{
    if (axis < 0 || axis >= rank)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "axis %d is outside [-%d, %d)", axis, rank,
                               rank);
    *out = axis;
    return true;
}
