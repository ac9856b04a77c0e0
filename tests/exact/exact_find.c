/* See exact.h: the tables of all files of references. */
#include "exact.h"

#include <string.h>

#define LIST(name, dtype) exact_##name##_##dtype,
static const exact_reference *const tables[2][12] = {{EXACT_TABLES(LIST, f32)},
                                                     {EXACT_TABLES(LIST, f64)}};

exact_function *exact_find(const char *op, weft_dtype dtype)
{
    for (const exact_reference *const *t = tables[dtype == WEFT_F64]; *t; t++)
        for (const exact_reference *r = *t; r->op; r++)
            if (!strcmp(r->op, op)) return r->compute;
    return NULL;
}
