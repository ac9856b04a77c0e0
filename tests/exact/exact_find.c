/* See exact.h: the tables of all files of references. */
#include "exact.h"

#include <string.h>

#define LIST(name, dtype) exact_##name##_##dtype,
static const exact_reference *const f32[] = {EXACT_TABLES(LIST, f32) exact_move, exact_bytes, NULL};
static const exact_reference *const f64[] = {EXACT_TABLES(LIST, f64) exact_move, exact_bytes, NULL};
static const exact_reference *const others[] = {exact_move, exact_bytes, NULL};

exact_function *exact_find(const char *op, weft_dtype dtype)
{
    const exact_reference *const *t = dtype == WEFT_F32 ? f32 : dtype == WEFT_F64 ? f64 : others;
    for (; *t; t++)
        for (const exact_reference *r = *t; r->op; r++)
            if (!strcmp(r->op, op)) return r->compute;
    return NULL;
}
