/* Checks of an op's descriptor before a node of it is added: see weft/op.h. O(1) a node. */
#include "ir/ir.h"
#include "ir/isa.h"

#include <string.h>

bool weft__op_is_leaf(const weft_op *op)
{
    return op == &weft_op_input || op == &weft_op_state || op == &weft_op_constant;
}

bool weft__op_has_kernel(const weft_op *op, weft_dtype dtype)
{
    return weft__op_kernel(op, (weft_isa)(WEFT_ISAS - 1), dtype) != NULL;
}

static bool has_any_kernel(const weft_op *op)
{
    for (int d = 0; d < WEFT_DTYPES; d++)
        if (weft__op_has_kernel(op, (weft_dtype)d)) return true;
    return false;
}

/* A message if numbers of the descriptor contradict each other, in `text`; else NULL. */
static const char *check_counts(const weft_op *op, char *text, size_t size)
{
    if (op->n_out < 1 || op->n_out > WEFT_MAX_OUTPUTS)
        snprintf(text, size, "has %d outputs, expected 1 to %d", op->n_out, WEFT_MAX_OUTPUTS);
    else if (op->min_in > op->max_in)
        snprintf(text, size, "takes %d to %d inputs: min_in is above max_in", op->min_in,
                 op->max_in);
    else if (op->updates > op->n_out || op->updates > op->min_in)
        snprintf(text, size, "updates %d states, but has %d outputs and at least %d inputs",
                 op->updates, op->n_out, op->min_in);
    else if (op->phases > 2)
        snprintf(text, size, "has %d phases, expected at most 2", op->phases);
    else if ((unsigned)op->takes > WEFT_TAKES_ANY)
        snprintf(text, size, "invalid layout %d of inputs; expected a weft_takes", (int)op->takes);
    else if ((unsigned)op->gradient > WEFT_GRADIENT_STRAIGHT)
        snprintf(text, size, "declares gradient %d, which is not a weft_gradient",
                 (int)op->gradient);
    else if (op->exchanges && !op->can_fail)
        snprintf(text, size, "exchanges data, which can fail, but does not declare can_fail");
    else if (op->n_samples && !op->samples)
        snprintf(text, size, "n_samples is %zu, but samples is NULL", op->n_samples);
    else
        return NULL;
    return text;
}

static const char *check_attributes(const weft_op *op, char *text, size_t size)
{
    for (const weft_attr_field *f = op->attrs; f && f->name; f++) {
        const size_t bytes = weft__attr_field_bytes(f->kind);
        if (bytes && f->offset <= op->attr_size && bytes <= op->attr_size - f->offset) continue;
        snprintf(text, size,
                 "attribute \"%s\", of kind %d at byte %zu, is not in the %zu bytes of "
                 "attributes (attr_size)",
                 f->name, (int)f->kind, f->offset, op->attr_size);
        return text;
    }
    return NULL;
}

/* A message if functions of the descriptor exclude each other; else NULL. */
static const char *check_rules(const weft_op *op)
{
    if (op->vjp && op->gradient != WEFT_GRADIENT_VJP && op->gradient != WEFT_GRADIENT_STRAIGHT)
        return "has a vjp, but declares that there is no gradient or that it is zero";
    if (op->alias && has_any_kernel(op)) return "has a kernel and alias: a view computes nothing";
    if (op->alias && (op->n_out != 1 || op->min_in < 1 || op->updates))
        return "has alias: a view has one output, which lies over input 0, and updates nothing";
    return NULL;
}

weft_status weft__op_check(const weft_op *op, char *text, size_t size)
{
    const char *wrong = NULL;
    if (!op)
        wrong = "the op's descriptor is NULL";
    else if (!op->name || !op->name[0])
        wrong = "the op's descriptor has no name";
    else if (!op->infer)
        wrong = "has no shape rule (infer)";
    if (!wrong) wrong = check_counts(op, text, size);
    if (!wrong) wrong = check_attributes(op, text, size);
    if (!wrong) wrong = check_rules(op);
    if (wrong) {
        if (wrong != text) snprintf(text, size, "%s", wrong);
        return WEFT_BAD_ARGUMENT;
    }
    if (weft__op_is_leaf(op) || op == &weft_op_group || op->alias || op->expand ||
        has_any_kernel(op))
        return WEFT_OK;
    snprintf(text, size, "has no kernel, expand or alias: nothing computes it");
    return WEFT_NO_KERNEL;
}

weft_status weft__op_check_dtype(const weft_op *op, weft_dtype dtype, char *text, size_t size)
{
    if (!has_any_kernel(op) || op->expand || weft__op_has_kernel(op, dtype)) return WEFT_OK;
    char known[64] = "";
    for (int d = 0; d < WEFT_DTYPES; d++) {
        if (!weft__op_has_kernel(op, (weft_dtype)d)) continue;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                 weft_dtype_name((weft_dtype)d));
    }
    snprintf(text, size, "no kernel for %s, only for %s", weft_dtype_name(dtype), known);
    return WEFT_NO_KERNEL;
}
