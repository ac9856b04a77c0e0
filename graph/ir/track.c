/* Running averages of a graph: states that training moves towards values of its batches. A node
 * records each, so copies of a graph keep it; training updates turn it into an update of the state.
 * O(running averages). */
#include "ir/ir.h"

typedef struct track_attr {
    double momentum;
} track_attr;

static bool infer_track(weft_infer *infer)
{
    char state[128], value[128];
    const weft_type *in = infer->in;
    infer->out[0] = (weft_type){WEFT_BOOL, {1, {0}}};
    if (in[0].dtype == in[1].dtype && weft_dtype_is_float(in[0].dtype) &&
        weft_shape_equal(in[0].shape, in[1].shape))
        return true;
    return weft_infer_fail(
        infer, in[0].dtype == in[1].dtype ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
        "the state is %s %s, the value %s %s; expected the same, f32 or f64",
        weft_dtype_name(in[0].dtype), weft_shape_text(in[0].shape, state, sizeof state),
        weft_dtype_name(in[1].dtype), weft_shape_text(in[1].shape, value, sizeof value));
}

/* A plan that needs the node computes its value only. */
static void expand_track(weft_expand *expand)
{
    expand->out[0] = weft_group(expand->graph, &expand->in[1], 1);
}

static const weft_attr_field track_attrs[] = {
    {"momentum", WEFT_ATTR_DOUBLE, offsetof(track_attr, momentum)},
    {NULL, WEFT_ATTR_INT, 0},
};

const weft_op weft_op_track = {
    .name = "track",
    .doc = "A record for training updates: state = (1 - momentum) state + momentum value.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .inputs = "state value",
    .attr_size = sizeof(track_attr),
    .attrs = track_attrs,
    .infer = infer_track,
    .takes = WEFT_TAKES_ANY,
    .expand = expand_track,
};

void weft_graph_freeze(weft_graph *graph, bool (*frozen)(void *context, const char *name),
                       void *context)
{
    if (!graph) return;
    graph->frozen = frozen;
    graph->frozen_context = context;
}

/* A message if the value cannot be tracked; else NULL. */
static const char *check_state(const weft_graph *graph, weft_value state)
{
    const weft_node_info node = weft_graph_node(graph, weft_producer_of(graph, state));
    if (!weft__graph_owns(graph, state) || node.op != &weft_op_state)
        return "the value is not a state of this graph";
    if (((const weft_state_attr *)node.attr)->trainable)
        return "the state is a trainable parameter: declare it with weft_state";
    size_t n;
    const weft_tracked *tracked = weft_graph_tracked(graph, &n);
    for (size_t i = 0; i < n; i++)
        if (tracked[i].state.id == state.id) return "the state is tracked already";
    return NULL;
}

bool weft_track(weft_graph *graph, weft_value state, weft_value value, double momentum)
{
    const track_attr attr = {momentum};
    if (weft_graph_status(graph) != WEFT_OK) return false;
    const char *wrong = momentum >= 0 && momentum <= 1 ? check_state(graph, state)
                                                       : "the momentum must be in [0, 1]";
    if (wrong) {
        weft_graph_fail_in(graph, "weft_track", WEFT_BAD_ARGUMENT, "\"%s\": %s",
                           weft_name_of(graph, state), wrong);
        return false;
    }
    if (graph->frozen && graph->frozen(graph->frozen_context, weft_name_of(graph, state)))
        return false;
    const weft_value in[2] = {state, value};
    const weft_value node = weft_apply(graph, &weft_op_track, &attr, in, 2, NULL);
    if (weft_is_value(node)) weft__graph_list_tracked(graph, node);
    return weft_graph_status(graph) == WEFT_OK;
}

void weft__graph_list_tracked(weft_graph *graph, weft_value node)
{
    const node_record *record = &graph->nodes[graph->values[node.id].node];
    graph_list *list = &graph->tracked;
    if (weft__graph_reserve(graph, list, sizeof(weft_tracked)))
        ((weft_tracked *)list->at)[list->n++] = (weft_tracked){
            weft__graph_value(graph, record->in[0]), weft__graph_value(graph, record->in[1]), node,
            ((const track_attr *)record->attr)->momentum};
    else
        weft_graph_fail_in(graph, "weft_track", WEFT_NO_MEMORY, "no memory for the list");
}

const weft_tracked *weft_graph_tracked(const weft_graph *graph, size_t *count)
{
    if (count) *count = graph ? graph->tracked.n : 0;
    return graph ? graph->tracked.at : NULL;
}
