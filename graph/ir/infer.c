/* Checks that shape rules share, and their error messages. */
#include "ir/ir.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

bool weft_infer_fail(weft_infer *infer, weft_status status, const char *format, ...)
{
    if (infer && infer->error && infer->error->status == WEFT_OK) {
        infer->error->status = status;
        va_list arguments;
        va_start(arguments, format);
        weft__text_vformat(infer->error->message, sizeof infer->error->message, format, arguments);
        va_end(arguments);
    }
    return false;
}

const char *weft_infer_input(const weft_infer *infer, size_t i, char *buffer, size_t size)
{
    if (size) buffer[0] = 0;
    if (!infer) return buffer;
    const char *word = infer->op->inputs, *name = infer->names ? infer->names[i] : NULL;
    for (size_t k = 0; word && k < i; k++) word = (word = strchr(word, ' ')) ? word + 1 : NULL;
    char number[32];
    if (!word) snprintf(number, sizeof number, "input %zu", i);
    snprintf(buffer, size, "%.*s%s%s%s", word ? (int)strcspn(word, " ") : (int)sizeof number,
             word ? word : number, name ? " \"" : "", name ? name : "", name ? "\"" : "");
    return buffer;
}

bool weft_infer_same_dtype(weft_infer *infer, size_t i, size_t j)
{
    char a[128], b[128];
    if (!infer) return false;
    weft_dtype wanted = infer->in[i].dtype, got = infer->in[j].dtype;
    return wanted == got ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE, "%s must be %s like %s, got %s",
                           weft_infer_input(infer, j, b, sizeof b), weft_dtype_name(wanted),
                           weft_infer_input(infer, i, a, sizeof a), weft_dtype_name(got));
}

bool weft_infer_float(weft_infer *infer, size_t i)
{
    char name[128];
    if (!infer) return false;
    weft_dtype d = infer->in[i].dtype;
    return weft_dtype_is_float(d) ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE, "%s must be f32 or f64, got %s",
                           weft_infer_input(infer, i, name, sizeof name), weft_dtype_name(d));
}

bool weft_infer_dtype(weft_infer *infer, size_t i, weft_dtype dtype)
{
    char name[128];
    if (!infer) return false;
    weft_dtype d = infer->in[i].dtype;
    return d == dtype || weft_infer_fail(infer, WEFT_BAD_DTYPE, "%s must be %s, got %s",
                                         weft_infer_input(infer, i, name, sizeof name),
                                         weft_dtype_name(dtype), weft_dtype_name(d));
}

bool weft_infer_min_rank(weft_infer *infer, size_t i, int rank)
{
    char name[128], text[128];
    if (!infer) return false;
    weft_shape shape = infer->in[i].shape;
    return shape.rank >= rank ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s needs rank %d or more, got %s",
                           weft_infer_input(infer, i, name, sizeof name), rank,
                           weft_shape_text(shape, text, sizeof text));
}

/* Halfway between the largest f32 and 2^128: numbers from here on round to an infinity. */
#define F32_LIMIT 0x1.ffffffp127

const char *weft__dtype_range(weft_dtype dtype, double value)
{
    if (dtype == WEFT_BOOL && !(value == 0 || value == 1)) return "0 and 1";
    if (dtype == WEFT_I32 && !(value >= INT32_MIN && value <= INT32_MAX && value == floor(value)))
        return "whole numbers from -2147483648 to 2147483647";
    if (dtype == WEFT_U8 && !(value >= 0 && value <= 255 && value == floor(value)))
        return "whole numbers from 0 to 255";
    if ((dtype == WEFT_F32 || dtype == WEFT_BF16) && isfinite(value) && fabs(value) >= F32_LIMIT)
        return "numbers up to 3.4028235e38, infinities and NaN";
    return NULL;
}

bool weft_infer_scalar(weft_infer *infer, const char *name, double value, weft_dtype dtype)
{
    const char *range = weft__dtype_range(dtype, value);
    char text[TEXT_NUMBER_BYTES];
    return !range ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%s: %s does not fit %s, which takes %s", name,
                           weft__text_from_double(value, text), weft_dtype_name(dtype), range);
}

bool weft_infer_axis(weft_infer *infer, int rank, int axis, int *out)
{
    if (axis < 0 || axis >= rank)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "axis %d is outside [-%d, %d)", axis, rank,
                               rank);
    if (out) *out = axis;
    return true;
}
