/* The list of ops as a table. */
#include <weft/ops.h>

#include "list.h"

#include <string.h>

#define DECLARE(op) extern const weft_op weft_op_##op;
WEFT_OP_LIST(DECLARE)
#undef DECLARE

static const weft_op *const ops[] = {
#define ROW(op) &weft_op_##op,
    WEFT_OP_LIST(ROW)
#undef ROW
};

size_t weft_op_count(void)
{
    return sizeof ops / sizeof *ops;
}

const weft_op *weft_op_at(size_t index)
{
    return index < weft_op_count() ? ops[index] : NULL;
}

const weft_op *weft_op_find(const char *name)
{
    for (size_t i = 0; name && i < weft_op_count(); i++)
        if (!strcmp(ops[i]->name, name)) return ops[i];
    return NULL;
}
