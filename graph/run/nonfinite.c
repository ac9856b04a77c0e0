/* The search for the node that first makes something else than finite numbers.
 *
 * The steps of a plan run again, one by one in their order, and what each wrote is looked at before
 * the next one may take over its memory. Updates are left out, so that states stay as they are. An
 * infinity may be meant: an attribute can ask for it (masked scores), and what is computed from
 * infinities may be infinite. So an infinity counts only where all that went in was finite and no
 * attribute is infinite; a NaN always counts, since nothing before it had one. O(elements). */
#include "nonfinite.h"

#include <math.h>

typedef struct finding {
    bool nan, infinite; /* nan: the first NaN is at `index`; else the first infinity */
    int64_t index[WEFT_MAX_RANK];
} finding;

static void look_at(double x, const int64_t *index, finding *f)
{
    if (isfinite(x) || f->nan || (f->infinite && !isnan(x))) return;
    f->nan = isnan(x);
    f->infinite = true;
    for (int d = 0; d < WEFT_MAX_RANK; d++) f->index[d] = index[d];
}

static finding look(const weft_tensor *t)
{
    finding f = {0};
    int64_t index[WEFT_MAX_RANK] = {0}, offset = 0;
    weft_shape shape = t->shape;
    if (!weft_dtype_is_float(t->dtype)) return f;
    for (int d = 0; d < shape.rank; d++) /* one of those that are repeated is enough */
        if (t->stride[d] == 0 && shape.dim[d] > 1) shape.dim[d] = 1;
    const int64_t n = weft_shape_numel(shape);
    for (int64_t i = 0; i < n && !f.nan; i++) {
        look_at(t->dtype == WEFT_F32 ? (double)((const float *)t->data)[offset]
                                     : ((const double *)t->data)[offset],
                index, &f);
        for (int d = shape.rank - 1; d >= 0; d--) {
            offset += t->stride[d];
            if (++index[d] < shape.dim[d]) break;
            offset -= index[d] * t->stride[d];
            index[d] = 0;
        }
    }
    return f;
}

/* Is an attribute of the node infinite? Then its infinities are meant. */
static bool asks_for_infinity(const node_record *node)
{
    for (const weft_attr_field *a = node->op->attrs; a && a->name; a++)
        if (a->kind == WEFT_ATTR_DOUBLE &&
            isinf(*(const double *)((const char *)node->attr + a->offset)))
            return true;
    return false;
}

static weft_status tell(const finding *f, const weft_tensor *t, const char *where, const char *verb,
                        weft_error *error)
{
    char at[128], of[128];
    weft_shape index = t->shape;
    for (int d = 0; d < index.rank; d++) index.dim[d] = f->index[d];
    return weft_error_set(error, WEFT_NOT_FINITE, where, "%s %s at %s of %s", verb,
                          f->nan ? "NaN" : "an infinity", weft_shape_text(index, at, sizeof at),
                          weft_shape_text(t->shape, of, sizeof of));
}

/* The states and feeds that a step reads. A feed may be infinite, a state may not. */
static weft_status check_leaves(const weft_plan *plan, const weft_call *call, weft_error *error)
{
    const weft_graph *g = plan->graph;
    const node_record *node = &g->nodes[plan->steps[call->node].node];
    for (size_t i = 0; i < call->n_in; i++) {
        const value_record *root = &g->values[g->values[node->in[i]].root];
        const weft_op *op = g->nodes[root->node].op;
        if (op != &weft_op_state && op != &weft_op_input) continue;
        finding f = look(&call->in[i]);
        if (f.nan || (f.infinite && op == &weft_op_state))
            return tell(&f, &call->in[i], root->name, "holds", error);
    }
    return WEFT_OK;
}

/* `infinite`: so was something that the step read. */
static weft_status check_outputs(const weft_plan *plan, const weft_call *call, bool infinite,
                                 weft_error *error)
{
    const weft_graph *g = plan->graph;
    size_t index = plan->steps[call->node].node;
    const node_record *node = &g->nodes[index];
    char where[256];
    for (size_t i = 0; i < call->n_out; i++) {
        finding f = look(&call->out[i]);
        if (f.nan || (f.infinite && !infinite && !asks_for_infinity(node)))
            return tell(&f, &call->out[i], graph_node_where(g, index, where, sizeof where),
                        "produced", error);
    }
    return WEFT_OK;
}

/* The whole step. A fused step has the tiles that it would have on its own. */
static void run_step(const weft_plan *plan, const plan_step *step, const weft_call *calls)
{
    const weft_op *op = plan->graph->nodes[step->node].op;
    for (int phase = 0; phase < step->phases; phase++) {
        weft_call call = calls[phase];
        if (step->n_fused || step->fused) call.tiles = op_tiles(op, &call);
        if (op->workspace) *weft_call_panel_tag(&call) = 0;
        for (int64_t tile = 0; tile < call.tiles; tile++) step->kernel(&call, tile);
    }
}

weft_status nonfinite_find(const weft_plan *plan, const weft_call *calls, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->n_steps && status == WEFT_OK; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        bool infinite = false;
        status = check_leaves(plan, &calls[2 * i], error);
        /* Before the step runs: its outputs may lie where its inputs were. */
        for (size_t k = 0; k < node->n_in && !infinite; k++) {
            finding f = look(&calls[2 * i].in[k]);
            infinite = f.nan || f.infinite;
        }
        if (status != WEFT_OK || node->op->updates) continue;
        run_step(plan, step, &calls[2 * i]);
        status = check_outputs(plan, &calls[2 * i], infinite, error);
    }
    return status;
}
