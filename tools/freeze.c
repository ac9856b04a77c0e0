/* States that no update of a model's graph changes become constants, so that the planner computes
 * once what depends on them alone: weights that batch norms scale, transposed matrices. O(nodes and
 * bytes of the states). */
#include "tool.h"

#include <weft/pass.h>

#include <stdlib.h>

typedef struct freezing {
    const weft_params *params;
    bool *updated; /* by value id */
} freezing;

static bool visit(weft_rewrite *r)
{
    const freezing *f = r->context;
    weft_tensor t;
    const weft_value state = weft_value_from_id(r->source, r->node.first_out);
    if (r->node.op != weft_op_find("state") || f->updated[state.id] ||
        !weft_dtype_is_float(weft_dtype_of(r->source, state)) ||
        !weft_params_find(f->params, weft_name_of(r->source, state), &t) ||
        t.dtype != weft_dtype_of(r->source, state))
        return false;
    r->out[0] = weft_constant(r->graph, t.dtype, t.shape, t.data);
    return true;
}

/* Marks the inputs that updates change: states, or what other updates have left of them. */
static bool mark_updated(const weft_graph *g, freezing *f)
{
    const size_t n = weft_graph_node_count(g);
    size_t n_values = 1;
    for (size_t i = 0; i < n; i++) n_values += weft_graph_node(g, i).n_out;
    f->updated = calloc(n_values, sizeof *f->updated);
    for (size_t i = 0; f->updated && i < n; i++) {
        const weft_node_info node = weft_graph_node(g, i);
        for (size_t k = 0; k < node.op->updates; k++) f->updated[node.in[k]] = true;
    }
    return f->updated != NULL;
}

/* Rewrites the graph for these values of it. */
static weft_status rewrite(built_model *m, freezing *f, weft_value *values, size_t n,
                           weft_error *error)
{
    const weft_pass rule = {.name = "freeze_states", .visit = visit, .context = f};
    weft_graph *frozen = weft_graph_new();
    if (!frozen) return weft_error_set(error, WEFT_NO_MEMORY, "model", "no memory for its graph");
    if (weft_graph_rewrite(frozen, m->graph, &rule, values, n) != WEFT_OK) {
        tool_take_error(weft_graph_error(frozen), error);
        weft_graph_free(frozen);
        return error->status;
    }
    weft_graph_free(m->graph);
    m->graph = frozen;
    return WEFT_OK;
}

weft_status tool_freeze_states(built_model *m, const weft_params *params, weft_error *error)
{
    freezing f = {.params = params};
    weft_value of_step[3] = {m->built.loss, m->step, m->lr};
    const bool training = weft_is_value(m->step);
    weft_value *values = training ? of_step : m->outputs ? m->outputs : m->built.outputs;
    const size_t n = training ? 3 : m->outputs ? m->n_outputs : m->built.n_outputs;
    if (mark_updated(m->graph, &f))
        rewrite(m, &f, values, n, error);
    else
        weft_error_set(error, WEFT_NO_MEMORY, "model", "no memory for its graph");
    free(f.updated);
    if (training) {
        m->built.loss = of_step[0];
        m->step = of_step[1];
        m->lr = of_step[2];
    }
    return error->status;
}
