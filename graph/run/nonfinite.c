/* The search for the node that first computes a number that is not finite.
 *
 * It runs the steps of the plan again, one by one in schedule order, and inspects the outputs of
 * each before a later step may reuse their memory. It leaves updates out, so states do not change.
 * NaN is always reported: the first one comes from the node that computed it. An infinity is
 * reported only if all inputs and attributes of its node are finite: an attribute may ask for
 * infinities (masked scores), and results of infinities may be infinite. O(elements). */
#include "nonfinite.h"

#include <math.h>
#include <stdlib.h>

/* The first NaN of a tensor; without any, its first infinity. */
typedef struct finding {
    bool nan, infinite; /* infinite: also true for NaN */
    int64_t index[WEFT_MAX_RANK];
} finding;

static void inspect_element(double x, const int64_t *index, finding *f)
{
    if (isfinite(x) || f->nan || (f->infinite && !isnan(x))) return;
    f->nan = isnan(x);
    f->infinite = true;
    for (int d = 0; d < WEFT_MAX_RANK; d++) f->index[d] = index[d];
}

static finding inspect(const weft_tensor *t)
{
    finding f = {0};
    int64_t index[WEFT_MAX_RANK] = {0}, offset = 0;
    weft_shape shape = t->shape;
    if (!weft_dtype_is_float(t->dtype) && t->dtype != WEFT_BF16) return f;
    for (int d = 0; d < shape.rank; d++) /* repeated elements are read once */
        if (t->stride[d] == 0 && shape.dim[d] > 1) shape.dim[d] = 1;
    const int64_t n = weft_shape_numel(shape);
    for (int64_t i = 0; i < n && !f.nan; i++) {
        inspect_element(weft_tensor_element(t, offset), index, &f);
        for (int d = shape.rank - 1; d >= 0; d--) {
            offset += t->stride[d];
            if (++index[d] < shape.dim[d]) break;
            offset -= index[d] * t->stride[d];
            index[d] = 0;
        }
    }
    return f;
}

/* Whether an attribute of the node is infinite, so that its outputs may be. */
static bool asks_for_infinity(const node_record *node)
{
    for (const weft_attr_field *a = node->op->attrs; a && a->name; a++)
        if (a->kind == WEFT_ATTR_DOUBLE &&
            isinf(*(const double *)((const char *)node->attr + a->offset)))
            return true;
    return false;
}

static weft_status report(const finding *f, const weft_tensor *t, const char *where,
                          const char *verb, weft_error *error)
{
    char at[128], of[128];
    weft_shape index = t->shape;
    for (int d = 0; d < index.rank; d++) index.dim[d] = f->index[d];
    return weft_error_set(error, WEFT_NOT_FINITE, where, "%s %s at %s of %s", verb,
                          f->nan ? "NaN" : "an infinity", weft_shape_text(index, at, sizeof at),
                          weft_shape_text(t->shape, of, sizeof of));
}

/* Checks the states and inputs that a step reads. An input may be infinite, a state may not. */
static weft_status check_leaves(const weft_plan *plan, const weft_call *call, weft_error *error)
{
    const weft_graph *g = plan->graph;
    const node_record *node = &g->nodes[plan->steps[call->node].node];
    for (size_t i = 0; i < call->n_in; i++) {
        const value_record *root = &g->values[g->values[node->in[i]].root];
        const weft_op *op = g->nodes[root->node].op;
        if (op != &weft_op_state && op != &weft_op_input) continue;
        finding f = inspect(&call->in[i]);
        if (f.nan || (f.infinite && op == &weft_op_state))
            return report(&f, &call->in[i], root->name, "holds", error);
    }
    return WEFT_OK;
}

/* Checks the outputs of a step; `infinite`: one of its inputs was infinite or NaN. */
static weft_status check_outputs(const weft_plan *plan, const weft_call *call, bool infinite,
                                 weft_error *error)
{
    const weft_graph *g = plan->graph;
    size_t index = plan->steps[call->node].node;
    const node_record *node = &g->nodes[index];
    char where[256];
    for (size_t i = 0; i < call->n_out; i++) {
        finding f = inspect(&call->out[i]);
        if (f.nan || (f.infinite && !infinite && !asks_for_infinity(node)))
            return report(&f, &call->out[i], weft__graph_node_where(g, index, where, sizeof where),
                          "produced", error);
    }
    return WEFT_OK;
}

/* Whether a node exchanges data with other processes, which do not repeat their runs now, or reads
 * what such a node received. unknown[value] marks the outputs of these nodes. */
static bool is_unknown(const weft_graph *g, const node_record *node, uint8_t *unknown)
{
    bool depends = node->op->exchanges;
    for (size_t i = 0; i < node->n_in; i++) depends |= unknown[g->values[node->in[i]].root];
    for (size_t i = 0; depends && i < node->op->n_out; i++) unknown[node->first_out + i] = 1;
    return depends;
}

weft_status weft__nonfinite_find(const executor *e, weft_error *error)
{
    const weft_plan *plan = e->plan;
    const weft_call *calls = e->calls;
    weft_status status = WEFT_OK;
    uint8_t *unknown = calloc(plan->graph->n_values + 1, 1);
    if (!unknown) return weft_error_set(error, WEFT_NO_MEMORY, "weft_session", "out of memory");
    for (size_t i = 0; i < plan->n_steps && status == WEFT_OK; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        bool infinite = false;
        if (is_unknown(plan->graph, node, unknown)) continue;
        status = check_leaves(plan, &calls[2 * i], error);
        /* Inputs are inspected before the step runs, since its outputs may overwrite them. */
        for (size_t k = 0; k < node->n_in && !infinite; k++) {
            finding f = inspect(&calls[2 * i].in[k]);
            infinite = f.nan || f.infinite;
        }
        if (status != WEFT_OK || node->op->updates) continue;
        weft__executor_run_step(e, (uint32_t)i);
        status = check_outputs(plan, &calls[2 * i], infinite, error);
    }
    free(unknown);
    return status;
}
