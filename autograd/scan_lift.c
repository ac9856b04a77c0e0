/* Sums over the steps of a loop that it does not add up itself: those of matrix products and of sums
 * over rows. The loop stacks their factors, and one node after the loop computes the sum of all
 * steps:
 *     sum_t a_t b_t = [a_1 ... a_n] [b_1; ...; b_n].
 * Such a sum is the gradient of a weight that all steps share. It rounds less than one added up step
 * by step, and the loop does not write the weight's gradient in each step. O(nodes between). */
#include "scan_lift.h"

#include <stdlib.h>

extern const weft_op weft_op_add_n, weft_op_matmul, weft_op_permute, weft_op_reshape, weft_op_sum,
    weft_op_slice_scatter;

/* The elements that a step may stack beyond as many as the sum has. Without its addition to the sum, a step
 * has a node less, and about this many elements can be copied in the time of a node. */
#define NODE_ELEMENTS 4096

static weft_node_info producer(const scan_lift *l, weft_value v)
{
    return weft_graph_node(l->body, weft_producer_of(l->body, v));
}

static weft_value input_of(const scan_lift *l, const weft_node_info *node, size_t i)
{
    return weft_value_from_id(l->body, node->in[i]);
}

/* The axes of a node of permute or sum. */
static const weft_axes *axes_of(const weft_node_info *node)
{
    const weft_attr_field *field = node->op->attrs;
    while (field->kind != WEFT_ATTR_INTS) field++;
    return (const void *)((const char *)node->attr + field->offset);
}

/* ---- Stacks of the values of all steps ---- */

/* What is stacked for a value: the value, or what it is a view of. */
static weft_value stacked_for(const scan_lift *l, weft_value v)
{
    for (;;) {
        const weft_node_info node = producer(l, v);
        if (node.op != &weft_op_permute && node.op != &weft_op_reshape) return v;
        v = input_of(l, &node, 0);
    }
}

/* The place of a value among the sequences or the stacks; their number if it is not there. */
static size_t find(const weft_value *values, size_t n, weft_value v)
{
    size_t i = 0;
    while (i < n && values[i].id != v.id) i++;
    return i;
}

/* Lets the loop stack a value, unless it does; room[0] is the number of elements that it may add. */
static bool plan_stack(scan_lift *l, weft_value v, double *room)
{
    const weft_shape shape = weft_shape_of(l->body, v);
    const weft_value stacked = stacked_for(l, v);
    if (shape.rank == WEFT_MAX_RANK || weft_rank_of(l->body, stacked) == WEFT_MAX_RANK)
        return false;
    if (find(l->each, l->n_each, stacked) < l->n_each) return true;
    if (find(l->out, l->n_out, stacked) < l->n_out) return true;
    if (find(l->shared, l->n_shared, stacked) < l->n_shared) return false;
    *room -= (double)weft_shape_numel(shape);
    if (l->n_out >= l->max_out || *room < 0) return false;
    l->out[l->n_out++] = stacked;
    return true;
}

/* The values of all steps, [n, ...]. */
static weft_value stack_of(const scan_lift *l, weft_value v)
{
    const weft_node_info node = producer(l, v);
    if (node.op == &weft_op_permute) {
        const weft_axes *axes = axes_of(&node);
        weft_axes all = {axes->count + 1, {0}};
        for (int i = 0; i < axes->count; i++) all.axis[i + 1] = axes->axis[i] + 1;
        return weft_permute(l->graph, stack_of(l, input_of(l, &node, 0)), all);
    }
    if (node.op == &weft_op_reshape) {
        const weft_shape all = scan_stack_shape(weft_shape_of(l->body, v), l->n);
        return weft_reshape(l->graph, stack_of(l, input_of(l, &node, 0)), all);
    }
    const size_t i = find(l->each, l->n_each, v);
    return i < l->n_each ? l->sequences[i] : l->stacks[find(l->out, l->n_out, v)];
}

/* ---- Sums ---- */

/* Whether a node is a product of equal leading dimensions, whose inner dimension has room for all
 * steps. */
static bool is_product(const scan_lift *l, const weft_node_info *node)
{
    if (node->op != &weft_op_matmul) return false;
    const weft_value a = input_of(l, node, 0), b = input_of(l, node, 1);
    weft_shape left = weft_shape_of(l->body, a), right = weft_shape_of(l->body, b);
    const int64_t inner = right.dim[right.rank - 2];
    left.rank -= 2, right.rank -= 2;
    return weft_shape_equal(left, right) && (!inner || l->n <= INT32_MAX / inner);
}

/* Whether op(sum of x_t) is the sum of op(x_t). */
static bool is_linear(const scan_lift *l, const weft_node_info *node)
{
    return (node->op->alias || node->op == &weft_op_slice_scatter) && node->n_in == 1 &&
           node->n_out == 1 && weft_dtype_is_float(weft_dtype_of(l->body, input_of(l, node, 0)));
}

/* Whether the loop can leave the sum of the values of all steps to nodes after it: lists what it
 * then stacks. */
static bool plan_term(scan_lift *l, weft_value v)
{
    weft_node_info node = producer(l, v);
    while (is_linear(l, &node)) node = producer(l, v = input_of(l, &node, 0));
    const bool product = is_product(l, &node);
    double room = (double)weft_shape_numel(weft_shape_of(l->body, v)) + NODE_ELEMENTS;
    const size_t n_out = l->n_out;
    if ((product || node.op == &weft_op_sum) && plan_stack(l, input_of(l, &node, 0), &room) &&
        (!product || plan_stack(l, input_of(l, &node, 1), &room)))
        return true;
    l->n_out = n_out;
    return false;
}

/* Joins the steps of [n, ..., rows, columns] along the rows, or along the columns. */
static weft_value join_steps(const scan_lift *l, weft_value stack, bool rows)
{
    const int rank = weft_rank_of(l->graph, stack), at = rows ? rank - 3 : rank - 2;
    weft_axes axes = {rank, {0}};
    for (int i = 0; i < rank; i++) axes.axis[i] = i < at ? i + 1 : i == at ? 0 : i;
    const weft_value moved = weft_permute(l->graph, stack, axes);
    const weft_shape from = weft_shape_of(l->graph, moved);
    weft_shape to = {rank - 1, {0}};
    for (int i = 0; i < to.rank; i++)
        to.dim[i] = i < at    ? from.dim[i]
                    : i == at ? from.dim[i] * from.dim[i + 1]
                              : from.dim[i + 1];
    return weft_reshape(l->graph, moved, to);
}

static weft_value sum_term(const scan_lift *l, weft_value v)
{
    weft_graph *g = l->graph;
    const weft_node_info node = producer(l, v);
    if (is_linear(l, &node)) {
        const weft_value in = sum_term(l, input_of(l, &node, 0));
        return weft_apply(g, node.op, node.attr, &in, 1, NULL);
    }
    const weft_value first = stack_of(l, input_of(l, &node, 0));
    if (node.op == &weft_op_matmul) {
        const weft_value second = stack_of(l, input_of(l, &node, 1));
        const weft_value a = join_steps(l, first, false), b = join_steps(l, second, true);
        return weft_matmul(g, a, b);
    }
    const weft_axes *axes = axes_of(&node);
    weft_axes all = {axes->count ? axes->count + 1 : 0, {0}};
    for (int i = 0; i < axes->count; i++) all.axis[i + 1] = axes->axis[i] + 1;
    return weft_reshape(g, weft_sum(g, first, all, false), weft_shape_of(l->body, v));
}

/* The terms of a sum of the body; one if it is not a sum. */
static size_t count_terms(const scan_lift *l, weft_value sum)
{
    const weft_node_info node = producer(l, sum);
    return node.op == &weft_op_add_n ? node.n_in : 1;
}

static weft_value term_of(const scan_lift *l, weft_value sum, size_t i)
{
    const weft_node_info node = producer(l, sum);
    return node.op == &weft_op_add_n ? input_of(l, &node, i) : sum;
}

weft_value weft__scan_lift_plan(scan_lift *l, weft_graph *body, weft_value sum)
{
    const size_t n = count_terms(l, sum);
    size_t n_rest = 0;
    weft_value *rest = malloc(n * sizeof *rest), left = WEFT_NO_VALUE;
    if (!rest) {
        scan_no_memory(l->graph);
        return left;
    }
    for (size_t i = 0; i < n; i++) {
        const weft_value term = term_of(l, sum, i);
        if (!l->lifted[term.id]) l->lifted[term.id] = plan_term(l, term);
        if (!l->lifted[term.id]) rest[n_rest++] = term;
    }
    if (n_rest) left = n_rest == n ? sum : weft_add_n(body, rest, n_rest);
    free(rest);
    return left;
}

weft_value weft__scan_lift_sum(const scan_lift *l, weft_value sum, weft_value left)
{
    const size_t n = count_terms(l, sum);
    size_t n_terms = 0;
    weft_value *terms = malloc((n + 1) * sizeof *terms), total = WEFT_NO_VALUE;
    if (!terms) {
        scan_no_memory(l->graph);
        return total;
    }
    if (weft_is_value(left)) terms[n_terms++] = left;
    for (size_t i = 0; i < n; i++) {
        const weft_value term = term_of(l, sum, i);
        if (l->lifted[term.id]) terms[n_terms++] = sum_term(l, term);
    }
    total = weft_add_n(l->graph, terms, n_terms);
    free(terms);
    return total;
}
