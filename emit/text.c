/* A text that grows, numbers as literals, and the C types of dtypes. See text.h. */
#include "text.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void weft__emit_text_add(emit_text *t, const char *text, size_t n)
{
    if (t->failed) return;
    if (t->n + n + 1 > t->room) {
        const size_t room = 2 * (t->n + n + 1) + 4096;
        char *grown = realloc(t->text, room);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->text = grown;
        t->room = room;
    }
    memcpy(t->text + t->n, text, n);
    t->n += n;
    t->text[t->n] = 0;
}

void weft__emit_text_print(emit_text *t, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    const int n = weft__text_vformat(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= sizeof line)
        t->failed = true; /* no caller prints as much */
    else
        weft__emit_text_add(t, line, (size_t)n);
}

void weft__emit_text_append(emit_text *t, const emit_text *other)
{
    if (other->n) weft__emit_text_add(t, other->text, other->n);
    t->failed |= other->failed;
}

void weft__emit_text_free(emit_text *t)
{
    free(t->text);
    *t = (emit_text){0};
}

const char *weft__emit_number(double value, weft_dtype dtype, char buffer[EMIT_NUMBER_BYTES])
{
    char digits[TEXT_NUMBER_BYTES];
    if (!weft_dtype_is_float(dtype)) {
        weft__text_format(buffer, EMIT_NUMBER_BYTES,
                          value == -2147483648.0 ? "(-%.0f - 1)" : "%.0f",
                          value == -2147483648.0 ? 2147483647.0 : value);
        return buffer;
    }
    const char *f = dtype == WEFT_F32 ? "f" : "";
    if (dtype == WEFT_F32) value = (double)(float)value; /* its digits are rounded once more */
    if (isnan(value)) return strcpy(buffer, dtype == WEFT_F32 ? "NAN" : "(double)NAN");
    if (isinf(value)) {
        weft__text_format(buffer, EMIT_NUMBER_BYTES, "%s%sINFINITY", value < 0 ? "-" : "",
                          dtype == WEFT_F32 ? "" : "(double)");
        return buffer;
    }
    if (dtype == WEFT_F32)
        weft__text_format(digits, sizeof digits, "%.9g", value);
    else
        weft__text_from_double(value, digits);
    weft__text_format(buffer, EMIT_NUMBER_BYTES, "%s%s%s", digits,
                      strpbrk(digits, ".e") ? "" : ".0", f);
    return buffer;
}

const char *weft__emit_type(weft_dtype dtype)
{
    static const char *const types[WEFT_DTYPES] = {
        [WEFT_F32] = "float",    [WEFT_F64] = "double",    [WEFT_I32] = "int32_t",
        [WEFT_BOOL] = "uint8_t", [WEFT_BF16] = "uint16_t", [WEFT_U8] = "uint8_t"};
    return dtype < WEFT_DTYPES ? types[dtype] : types[WEFT_F32];
}

const char *weft__emit_suffix(weft_dtype dtype)
{
    if (dtype == EMIT_HALVES) return "halves";
    /* Bytes are bytes: a function on bools also serves u8. */
    return dtype == WEFT_BOOL || dtype == WEFT_U8 ? "u8" : weft_dtype_name(dtype);
}
