/* Builders of leaves: inputs, parameters and other states, constants; and of groups. */
#include "ir/ir.h"

#include "base/text.h"

#include <weft/pass.h>

#include <inttypes.h>
#include <string.h>

static bool same_part(const weft_part *a, const weft_part *b)
{
    return a->whole == b->whole && (!a->whole || (a->axis == b->axis && a->first == b->first));
}

/* The first node that reads a value; SIZE_MAX if none does yet. */
static size_t first_reader(const weft_graph *graph, uint32_t id)
{
    for (size_t n = graph->values[id].node + 1; n < graph->n_nodes; n++)
        for (uint32_t i = 0; i < graph->nodes[n].n_in; i++)
            if (graph->nodes[n].in[i] == id) return n;
    return SIZE_MAX;
}

/* Fails because a parameter is declared again. */
static void fail_twice(weft_graph *graph, uint32_t id, const char *full)
{
    char where[256];
    const size_t reader = first_reader(graph, id);
    weft_graph_fail_in(
        graph, "weft_param", WEFT_BAD_ARGUMENT,
        "\"%s\" is declared again: it is node %" PRIu32 ", read by %s, and this would be node "
        "%zu; expected another name or scope, or weft_graph_share for shared weights",
        full, graph->values[id].node,
        reader == SIZE_MAX ? "no node yet"
                           : weft__graph_node_where(graph, reader, where, sizeof where),
        graph->n_nodes);
}

static const char *function_of(bool trainable)
{
    return trainable ? "weft_param" : "weft_state";
}

/* Finds the state of that full name, which must be equal, or adds a node for it. */
static weft_value state_of(weft_graph *graph, const char *full, const weft_state_attr *attr)
{
    const char *function = function_of(attr->trainable);
    char have[128], want[128];
    weft_value old = weft_graph_find(graph, full);
    if (!old.id) {
        weft_value value = weft_apply(graph, &weft_op_state, attr, NULL, 0, NULL);
        return value.id && weft__graph_name_value(graph, value.id, full, function) ? value
                                                                                   : WEFT_NO_VALUE;
    }
    const node_record *node = &graph->nodes[graph->values[old.id].node];
    const weft_state_attr *other = node->attr;
    if (node->op == &weft_op_state && other->dtype == attr->dtype &&
        other->trainable == attr->trainable && weft_shape_equal(other->shape, attr->shape)) {
        if (attr->trainable && !graph->shares) {
            fail_twice(graph, old.id, full);
            return WEFT_NO_VALUE;
        }
        if (same_part(&other->part, &attr->part)) return old;
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT,
                           "\"%s\" is declared again as another part of the whole", full);
        return WEFT_NO_VALUE;
    }
    const char *was = node->op != &weft_op_state                         ? "another value"
                      : ((const weft_state_attr *)node->attr)->trainable ? "a parameter"
                                                                         : "a state";
    weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT,
                       "\"%s\" is declared as %s, %s %s, and again as %s, %s %s", full, was,
                       weft_dtype_name(weft_dtype_of(graph, old)),
                       weft_shape_text(weft_shape_of(graph, old), have, sizeof have),
                       attr->trainable ? "a parameter" : "a state", weft_dtype_name(attr->dtype),
                       weft_shape_text(attr->shape, want, sizeof want));
    return WEFT_NO_VALUE;
}

static weft_value declare_state(weft_graph *graph, const char *full, weft_dtype dtype,
                                weft_shape shape, weft_init init, weft_part part, bool trainable)
{
    weft_state_attr attr;
    if (!full) return WEFT_NO_VALUE;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape = shape;
    attr.init = init;
    attr.part.axis = part.axis;
    attr.part.first = part.first;
    attr.part.whole = part.whole;
    attr.trainable = trainable;
    return state_of(graph, full, &attr);
}

/* The full name of a state in the current scope; NULL after a failure. */
static const char *name_in_scope(weft_graph *graph, const char *name, bool trainable)
{
    if (!graph || graph->error.status != WEFT_OK) return NULL;
    return weft__graph_full_name(graph, name, function_of(trainable));
}

weft_value weft_state_named(weft_graph *graph, const char *whole_name, weft_dtype dtype,
                            weft_shape shape, weft_init init, bool trainable)
{
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    if (!whole_name || !whole_name[0]) {
        weft_graph_fail_in(graph, "weft_state_named", WEFT_BAD_ARGUMENT,
                           "the name is NULL or empty");
        return WEFT_NO_VALUE;
    }
    return declare_state(graph, whole_name, dtype, shape, init, (weft_part){0, 0, 0}, trainable);
}

weft_value weft_param(weft_graph *graph, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init)
{
    return declare_state(graph, name_in_scope(graph, name, true), dtype, shape, init,
                         (weft_part){0, 0, 0}, true);
}

bool weft_graph_share(weft_graph *graph, bool on)
{
    if (!graph) return false;
    const bool was = graph->shares;
    graph->shares = on;
    return was;
}

weft_value weft_param_part(weft_graph *graph, const char *name, weft_dtype dtype, weft_shape shape,
                           weft_init init, weft_part part)
{
    return declare_state(graph, name_in_scope(graph, name, true), dtype, shape, init, part, true);
}

weft_part weft_part_of(const weft_graph *graph, weft_value value)
{
    const weft_node_info node = weft_graph_node(graph, weft_producer_of(graph, value));
    if (!weft__graph_owns(graph, value) || node.op != &weft_op_state) return (weft_part){0, 0, 0};
    return ((const weft_state_attr *)node.attr)->part;
}

weft_value weft_state(weft_graph *graph, const char *name, weft_dtype dtype, weft_shape shape,
                      weft_init init)
{
    return declare_state(graph, name_in_scope(graph, name, false), dtype, shape, init,
                         (weft_part){0, 0, 0}, false);
}

weft_value weft_rewrite_state(weft_rewrite *rewrite, const char *scoped_name, weft_dtype dtype,
                              weft_shape shape, weft_init init)
{
    if (!rewrite || !rewrite->graph) return WEFT_NO_VALUE;
    return weft_state_named(rewrite->graph, scoped_name, dtype, shape, init, false);
}

weft_value weft_input(weft_graph *graph, const char *name, weft_dtype dtype, weft_shape shape)
{
    weft_input_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape = shape;
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    const char *full = weft__graph_full_name(graph, name, "weft_input");
    if (!full) return WEFT_NO_VALUE;
    weft_value value = weft_apply(graph, &weft_op_input, &attr, NULL, 0, NULL);
    return value.id && weft__graph_name_value(graph, value.id, full, "weft_input") ? value
                                                                                   : WEFT_NO_VALUE;
}

void weft_input_default(weft_graph *graph, weft_value input, double value)
{
    char text[TEXT_NUMBER_BYTES];
    if (!graph || graph->error.status != WEFT_OK) return;
    const node_record *node =
        weft__graph_owns(graph, input) ? &graph->nodes[graph->values[input.id].node] : NULL;
    if (!node || node->op != &weft_op_input) {
        weft_graph_fail_in(graph, "weft_input_default", WEFT_BAD_ARGUMENT,
                           "the value is not an input of this graph");
        return;
    }
    weft_input_attr *attr = (weft_input_attr *)(uintptr_t)node->attr;
    const char *range = weft__dtype_range(attr->dtype, value);
    if (range) {
        weft_graph_fail_in(graph, "weft_input_default", WEFT_BAD_ARGUMENT,
                           "the default of \"%s\" is %s, but %s takes %s",
                           weft_name_of(graph, input), weft__text_from_double(value, text),
                           weft_dtype_name(attr->dtype), range);
        return;
    }
    attr->has_default = true;
    attr->value = value;
}

weft_value weft_constant(weft_graph *graph, weft_dtype dtype, weft_shape shape, const void *data)
{
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    int64_t numel = weft_shape_numel(shape);
    size_t bytes = weft_tensor_bytes(dtype, shape);
    if (numel < 0 || (!data && bytes)) {
        weft_graph_fail_in(
            graph, "weft_constant", numel < 0 ? WEFT_TOO_LARGE : WEFT_BAD_ARGUMENT, "%s",
            numel < 0 ? "a size of the shape overflows or is negative" : "the data are NULL");
        return WEFT_NO_VALUE;
    }
    void *copy = weft__arena_alloc(&graph->arena, bytes);
    if (!copy) {
        weft_graph_fail_in(graph, "weft_constant", WEFT_NO_MEMORY,
                           "no memory for a constant of %zu bytes", bytes);
        return WEFT_NO_VALUE;
    }
    if (bytes) memcpy(copy, data, bytes);
    weft__normalise_bools(dtype, copy, bytes);
    weft_constant_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape = shape;
    attr.data = copy;
    return weft_apply(graph, &weft_op_constant, &attr, NULL, 0, NULL);
}

weft_value weft_group(weft_graph *graph, const weft_value *values, size_t count)
{
    return weft_apply(graph, &weft_op_group, NULL, values, count, NULL);
}
