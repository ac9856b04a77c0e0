/* See reference.h: the tables of all files of references. Ops that move elements, and those on
 * bytes, have those of their bits. */
#include "exact.h"
#include "reference_data.h"

static const reference *const tables[] = {references_elementwise, references_reduce,
                                          references_shape,       references_training,
                                          references_conv,        references_winograd};

reference_function *reference_find(const char *op)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const reference *r = tables[t]; r->op; r++)
            if (!strcmp(r->op, op)) return r->compute;
    for (const exact_reference *r = exact_move; r->op; r++)
        if (!strcmp(r->op, op)) return r->compute;
    for (const exact_reference *r = exact_bytes; r->op; r++)
        if (!strcmp(r->op, op)) return r->compute;
    return NULL;
}
