/* The logits of a model whose output is a softmax, or a sigmoid, of them. A loss of probabilities
 * would take their softmax again, whose gradients are small. */
#include "fit_data.h"

#include <string.h>

static weft_node_info node_of(const weft_graph *g, weft_value y)
{
    return weft_graph_node(g, weft_producer_of(g, y));
}

static bool is_op(const weft_node_info *node, const char *name)
{
    return node->op && !strcmp(node->op->name, name);
}

/* Whether two nodes are the same op with the same attributes. */
static bool same_op(weft_node_info a, weft_node_info b)
{
    return a.op && a.op == b.op && (!a.op->attr_size || !memcmp(a.attr, b.attr, a.op->attr_size));
}

/* The node that computes a value, seen through reshapes that leave the last dimension as it is: a
 * file of an older opset has a softmax between two. */
static weft_node_info producer(const weft_graph *g, weft_value y)
{
    const int64_t last = weft_dim_of(g, y, -1);
    weft_node_info node = node_of(g, y);
    while (is_op(&node, "reshape")) {
        const weft_value x = weft_value_from_id(g, node.in[0]);
        if (weft_rank_of(g, x) < 1 || weft_dim_of(g, x, -1) != last) break;
        node = node_of(g, x);
    }
    return node;
}

/* x of y = e / sum(e) over an axis, where e = exp(x), as TensorFlow writes a softmax: these are
 * logits less their maximum. */
static weft_value of_quotient(weft_graph *g, const weft_node_info *node, int axis)
{
    const weft_value e = weft_value_from_id(g, node->in[0]);
    const weft_node_info power = node_of(g, e);
    weft_node_info sum = node_of(g, weft_value_from_id(g, node->in[1]));
    while (is_op(&sum, "reshape") || is_op(&sum, "broadcast_to"))
        sum = node_of(g, weft_value_from_id(g, sum.in[0]));
    if (!is_op(&power, "exp") || !is_op(&sum, "sum") || sum.in[0] != e.id) return WEFT_NO_VALUE;
    const weft_value kept = weft_sum(g, e, WEFT_AXES(axis), true);
    const weft_value dropped = weft_sum(g, e, WEFT_AXES(axis), false);
    if (!same_op(sum, node_of(g, kept)) && !same_op(sum, node_of(g, dropped))) return WEFT_NO_VALUE;
    return weft_value_from_id(g, power.in[0]);
}

/* What y is a softmax or a sigmoid of; WEFT_NO_VALUE for other values. Adds to the graph. */
static weft_value logits_of(const weft_fit *fit, weft_graph *g, weft_value y)
{
    const weft_shape shape = weft_shape_of(g, y);
    const int axis = fit->class_axis ? fit->class_axis : shape.rank - 1;
    const bool softmax = fit->loss == WEFT_LOSS_CROSS_ENTROPY;
    if ((!softmax && fit->loss != WEFT_LOSS_BCE) || shape.rank < 1 || axis >= shape.rank)
        return WEFT_NO_VALUE;
    const weft_node_info node = producer(g, y);
    if (!node.op || node.n_in < 1) return WEFT_NO_VALUE;
    const weft_value x = weft_value_from_id(g, node.in[0]);
    /* Seen through a reshape, only the last dimension is known to be the same. */
    const bool direct = weft_shape_equal(weft_shape_of(g, x), shape);
    if (softmax && !direct && axis != shape.rank - 1) return WEFT_NO_VALUE;
    if (softmax && direct && is_op(&node, "div")) return of_quotient(g, &node, axis);
    const weft_value like =
        softmax ? weft_softmax(g, x, direct ? axis : weft_rank_of(g, x) - 1) : weft_sigmoid(g, x);
    return same_op(node, node_of(g, like)) ? weft_reshape(g, x, shape) : WEFT_NO_VALUE;
}

/* The model, whose output of the loss is replaced by its logits. */
static weft_status build_logits(void *context, weft_graph *graph, const weft_build_options *options,
                                weft_built *built)
{
    const training_fit *f = context;
    if (f->model.build(f->model.context, graph, options, built) != WEFT_OK)
        return weft_graph_status(graph);
    weft_value *output = &built->outputs[f->fit.output];
    const weft_value logits = logits_of(&f->fit, graph, *output);
    if (weft_is_value(logits)) *output = logits;
    return weft_graph_status(graph);
}

bool fit_take_logits(training_fit *f)
{
    const weft_value y = f->built.outputs[f->fit.output];
    if (!f->file || !weft_is_value(logits_of(&f->fit, f->graph, y))) return false;
    f->model = f->fit.model;
    f->fit.model.build = build_logits;
    f->fit.model.context = f;
    return true;
}
