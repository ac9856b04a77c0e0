/* The shape rule of scans and their work. O(inputs of the body). */
#include "ir/scan.h"

#include <stddef.h>
#include <string.h>

const weft_attr_field weft__scan_attrs[] = {
    {"steps", WEFT_ATTR_INT64, offsetof(scan_attr, n)},
    {"nodes", WEFT_ATTR_INT64, offsetof(scan_attr, nodes)},
    {"reverse", WEFT_ATTR_BOOL, offsetof(scan_attr, reverse)},
    {"conditional", WEFT_ATTR_BOOL, offsetof(scan_attr, conditional)},
    {"recompute", WEFT_ATTR_BOOL, offsetof(scan_attr, recompute)},
    {NULL, WEFT_ATTR_INT, 0}};

static bool same_type(const weft_type *a, const weft_type *b)
{
    return a->dtype == b->dtype && weft_shape_equal(a->shape, b->shape);
}

/* The type of n values of a type along a new first dimension. */
static weft_type stack_of(const weft_type *one, int64_t n)
{
    return (weft_type){one->dtype, scan_stack_shape(one->shape, n)};
}

static bool check_input(weft_infer *infer, const scan_attr *a, uint32_t i)
{
    static const char *const words[] = {"carry", "sequence", "shared input"};
    const scan_body *b = a->body;
    const uint32_t first[] = {0, b->n_carry, b->n_carry + b->n_each};
    const int kind = i < first[1] ? 0 : i < first[2] ? 1 : 2;
    weft_type want = b->graph->values[b->in[i]].type;
    if (kind == 1) want = stack_of(&want, a->n);
    if (same_type(&infer->in[i], &want)) return true;
    char have[128], wanted[128];
    return weft_infer_fail(
        infer, infer->in[i].dtype != want.dtype ? WEFT_BAD_DTYPE : WEFT_BAD_SHAPE,
        "%s %u is %s %s, the body needs %s %s", words[kind], i - first[kind],
        weft_dtype_name(infer->in[i].dtype), weft_shape_text(infer->in[i].shape, have, sizeof have),
        weft_dtype_name(want.dtype), weft_shape_text(want.shape, wanted, sizeof wanted));
}

bool weft__scan_infer(weft_infer *infer)
{
    const scan_attr *a = infer->attr;
    const scan_body *b = a->body;
    if (!b || infer->n_in != scan_inputs(b) || infer->n_out != b->n_carry + b->n_out)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "expected the inputs of its body");
    if (a->n < 1 || a->n > INT32_MAX)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%lld steps, expected 1 to %d",
                               (long long)a->n, INT32_MAX);
    for (uint32_t i = 0; i < infer->n_in; i++)
        if (!check_input(infer, a, i)) return false;
    for (uint32_t k = 0; k < infer->n_out; k++) {
        const weft_type *one = &b->graph->values[b->out[k]].type;
        infer->out[k] = k < b->n_carry ? *one : stack_of(one, a->n);
    }
    return true;
}

void weft__scan_cost(const weft_call *call, weft_cost *cost)
{
    const scan_attr *a = call->attr;
    cost->flops = a->body->cost.flops * (double)a->n;
    cost->bytes = a->body->cost.bytes * (double)a->n;
}
