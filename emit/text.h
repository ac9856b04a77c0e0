/* A text that grows. Errors of memory are sticky: a text without memory stays as it is. */
#ifndef WEFT_EMIT_TEXT_H
#define WEFT_EMIT_TEXT_H

#include <weft/types.h>

typedef struct emit_text {
    char *text; /* NUL terminated; NULL while empty */
    size_t n, room;
    bool failed;
    bool holes; /* values that may differ between steps are holes (steps.h) */
} emit_text;

void weft__emit_text_add(emit_text *t, const char *text, size_t n);
/* printf's format, with a decimal point in every locale. */
void weft__emit_text_print(emit_text *t, const char *format, ...) WEFT_PRINTF(2, 3);
void weft__emit_text_append(emit_text *t, const emit_text *other);
void weft__emit_text_free(emit_text *t);

/* A number as a literal of C of the dtype (f32 or f64; else an integer), which reads back as it. */
#define EMIT_NUMBER_BYTES 48
const char *weft__emit_number(double value, weft_dtype dtype, char buffer[EMIT_NUMBER_BYTES]);

/* Instead of a dtype: elements are floats, and some operands are stored as bf16. */
#define EMIT_HALVES WEFT_DTYPES

/* The C type of a dtype's elements, and the suffix of functions on them. */
const char *weft__emit_type(weft_dtype dtype);
const char *weft__emit_suffix(weft_dtype dtype);

#endif
