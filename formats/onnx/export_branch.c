/* Scans of one step that may not run, as If. weft_cond makes two of them, one for each value of its
 * condition, which become the branches of one If. O(nodes). */
#include "onnx/export_scan.h"

#include <weft/ops.h>

#include <string.h>

bool weft__export_is_branch(const weft_node_info *node)
{
    const scan_attr *a = scan_of(node->op, node->attr);
    return a && a->n == 1 && a->body->when && !scan_is_while(a->body);
}

/* ---- Conditions ---- */

/* A bool of one element, or its opposite. */
typedef struct guard {
    uint32_t value;
    bool negated;
} guard;

/* What the condition of a branch follows from, without the views and negations of weft_cond. */
static guard guard_of(const weft_graph *g, const weft_node_info *branch)
{
    const scan_attr *a = scan_of(branch->op, branch->attr);
    const weft_op *reshape = weft_op_find("reshape"), *negation = weft_op_find("logical_not");
    guard c = {branch->in[a->body->when - 1], false};
    for (;;) {
        const weft_value v = weft_value_from_id(g, c.value);
        const weft_node_info from = weft_graph_node(g, weft_producer_of(g, v));
        if (from.op != reshape && from.op != negation) return c;
        c.negated ^= from.op == negation;
        c.value = from.in[0];
    }
}

/* ---- Pairs ---- */

/* Whether a step reads the carries that come in. */
static bool reads_carries(const scan_body *b)
{
    const size_t n = weft_graph_node_count(b->graph);
    for (uint32_t i = 0; i < b->n_carry; i++) {
        for (uint32_t k = 0; k < b->n_carry; k++)
            if (b->out[k] == b->in[i]) return true;
        for (size_t j = 0; j < n; j++) {
            const weft_node_info node = weft_graph_node(b->graph, j);
            for (size_t k = 0; k < node.n_in; k++)
                if (node.in[k] == b->in[i]) return true;
        }
    }
    return false;
}

/* Whether all outputs are last carries. */
static bool is_plain(const export_frame *f, const weft_node_info *node)
{
    const scan_body *b = scan_of(node->op, node->attr)->body;
    for (size_t k = b->n_carry; k < node->n_out; k++)
        if (f->needed[node->first_out + k]) return false;
    return !reads_carries(b);
}

/* The node before `second` that is the other branch of the same choice; false if there is none.
 * reads: how many needed nodes read a value, by value. */
static bool find_first(const export_frame *f, const weft_node_info *second, const uint32_t *reads,
                       const bool *is_output, size_t *index)
{
    const weft_graph *g = f->graph;
    const scan_body *b = scan_of(second->op, second->attr)->body;
    if (!b->n_carry || !is_plain(f, second)) return false;
    *index = weft_producer_of(g, weft_value_from_id(g, second->in[0]));
    const weft_node_info first = weft_graph_node(g, *index);
    if (!weft__export_is_branch(&first) || !is_plain(f, &first) ||
        scan_of(first.op, first.attr)->body->n_carry != b->n_carry)
        return false;
    for (uint32_t k = 0; k < b->n_carry; k++) {
        const uint32_t id = first.first_out + k;
        if (second->in[k] != id || reads[id] != 1 || is_output[id]) return false;
    }
    const guard one = guard_of(g, &first), other = guard_of(g, second);
    return one.value == other.value && one.negated != other.negated;
}

/* How many needed nodes read a value, by value; NULL out of memory. */
static uint32_t *count_reads(export_record *r, const export_frame *f)
{
    const size_t n = weft_graph_node_count(f->graph);
    uint32_t *reads = weft__arena_alloc(&r->memory, f->n_values * sizeof *reads);
    for (size_t i = 0; reads && i < n; i++) {
        const weft_node_info node = weft_graph_node(f->graph, i);
        if (!export_is_needed(f, &node)) continue;
        for (size_t k = 0; k < node.n_in; k++) reads[node.in[k]]++;
    }
    return reads;
}

bool weft__export_find_partners(export_record *r, export_frame *f, const bool *is_output)
{
    const size_t n = weft_graph_node_count(f->graph);
    uint32_t *reads = NULL;
    size_t first;
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->graph, i);
        if (!weft__export_is_branch(&node) || !export_is_needed(f, &node)) continue;
        if (!reads) {
            reads = count_reads(r, f);
            f->partner = weft__arena_alloc(&r->memory, n * sizeof *f->partner);
            if (!reads || !f->partner) return weft__export_no_memory(r), false;
        }
        if (!find_first(f, &node, reads, is_output, &first) || f->partner[first]) continue;
        f->partner[first] = (uint32_t)i + 1;
        f->partner[i] = (uint32_t)first + 1;
    }
    return true;
}

/* Marks what the body reads besides carries, and the condition. */
static void need_body(export_frame *f, const weft_node_info *node)
{
    const scan_body *b = scan_of(node->op, node->attr)->body;
    for (uint32_t i = b->n_carry; i < node->n_in; i++)
        if (i + 1 != b->when) f->needed[node->in[i]] = true;
    f->needed[guard_of(f->graph, node).value] = true;
}

void weft__export_need_branch(export_frame *f, size_t index)
{
    const weft_node_info node = weft_graph_node(f->graph, index);
    const uint32_t partner = f->partner ? f->partner[index] : 0;
    need_body(f, &node);
    if (partner) {
        const weft_node_info first = weft_graph_node(f->graph, partner - 1);
        need_body(f, &first);
        return;
    }
    const uint32_t n_carry = scan_of(node.op, node.attr)->body->n_carry;
    for (uint32_t i = 0; i < n_carry; i++) f->needed[node.in[i]] = true;
}

/* ---- Nodes ---- */

/* Zeros as an output of the body. */
static void put_zeros(export_record *r, weft_onnx_type type, weft_shape shape)
{
    static const int64_t zero[1] = {0};
    weft_operand in[2] = {weft__export_add_constant(r, type, WEFT_SCALAR, zero)};
    if (shape.rank) {
        in[1] = weft__export_add_constant(r, WEFT_ONNX_INT64, WEFT_SHAPE(shape.rank), shape.dim);
        in[0] = weft__export_add_node(r, "Expand", in, 2, 1);
    }
    weft__export_body_out(r, type, shape, in[0]);
}

/* Adds or removes a first axis of size 1. */
static weft_operand change_axis(export_record *r, const char *type, weft_operand x)
{
    static const int64_t first = 0;
    const weft_operand in[2] = {
        x, weft__export_add_constant(r, WEFT_ONNX_INT64, WEFT_SHAPE(1), &first)};
    return weft__export_add_node(r, type, in, 2, 1);
}

/* Output k of the branch, in its shape there. */
static weft_shape out_shape(const export_arm *arm, uint32_t k)
{
    const weft_shape row = export_shape_of(arm->body, arm->body->out[k]);
    return arm->single && k >= arm->body->n_carry ? scan_stack_shape(row, 1) : row;
}

/* Adds the nodes of the step, and its results as outputs. */
static void write_step(export_record *r, const export_arm *arm)
{
    const scan_body *b = arm->body;
    export_frame *f = arm->step;
    for (uint32_t i = b->n_carry; arm->single && i < b->n_carry + b->n_each; i++)
        if (i + 1 != b->when) f->of_value[b->in[i]] = change_axis(r, "Squeeze", arm->in[i]);
    if (!weft__export_frame_nodes(r, f)) return;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) {
        if (k >= b->n_carry && !arm->wanted[k]) continue;
        weft_operand out = f->of_value[b->out[k]];
        if (k >= b->n_carry && arm->single) out = change_axis(r, "Unsqueeze", out);
        weft__export_body_out(r, export_type_of(b, b->out[k]), out_shape(arm, k), out);
    }
}

/* Passes the carries on; rows of stacks are zeros. */
static void write_otherwise(export_record *r, const export_arm *arm)
{
    const scan_body *b = arm->body;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) {
        const weft_onnx_type type = export_type_of(b, b->out[k]);
        if (k < b->n_carry)
            weft__export_body_out(r, type, out_shape(arm, k), arm->in[k]);
        else if (arm->wanted[k])
            put_zeros(r, type, out_shape(arm, k));
    }
}

weft_operand weft__export_if(export_record *r, weft_operand condition, const export_arm arms[2],
                             size_t n_out)
{
    uint32_t bodies[2];
    for (int k = 0; k < 2; k++) {
        bodies[k] = weft__export_begin_body(r, 0, n_out);
        if (!bodies[k]) return WEFT_NO_OPERAND;
        if (arms[k].step)
            write_step(r, &arms[k]);
        else
            write_otherwise(r, &arms[k]);
        weft__export_end_body(r);
    }
    const weft_operand out = weft__export_add_node(r, "If", &condition, 1, n_out);
    if (!export_failed(r)) memcpy(r->nodes[r->n_nodes - 1].bodies, bodies, sizeof bodies);
    return out;
}

/* The operands of a node, which a node of a pair has from its partner for its carries. */
static weft_operand *list_operands(export_record *r, const export_frame *f,
                                   const weft_node_info *node)
{
    weft_operand *in = weft__arena_alloc(&r->memory, (node->n_in + 1) * sizeof *in);
    if (!in) weft__export_no_memory(r);
    for (size_t i = 0; in && i < node->n_in; i++) in[i] = f->of_value[node->in[i]];
    return in;
}

/* The branch that runs the step of a node. False after a failure. */
static bool open_arm(export_record *r, const export_frame *f, const weft_node_info *node,
                     export_frame *step, export_arm *arm)
{
    const scan_body *b = scan_of(node->op, node->attr)->body;
    const bool *wanted = f->needed + node->first_out;
    static const uint8_t truth = 1;
    *arm = (export_arm){b, list_operands(r, f, node), wanted, step, true};
    if (!arm->in || !weft__export_open_step(r, step, b, arm->in, wanted)) return false;
    for (uint32_t i = 0; i < b->n_carry; i++) step->of_value[b->in[i]] = arm->in[i];
    step->of_value[b->in[b->when - 1]] =
        weft__export_add_constant(r, WEFT_ONNX_BOOL, WEFT_SCALAR, &truth);
    return !export_failed(r);
}

void weft__export_branch(export_record *r, export_frame *f, size_t index, weft_export *e)
{
    const weft_node_info node = weft_graph_node(f->graph, index);
    const scan_body *b = scan_of(node.op, node.attr)->body;
    const uint32_t partner = f->partner ? f->partner[index] : 0;
    const guard c = guard_of(f->graph, &node);
    export_frame steps[2];
    export_arm arms[2]; /* of true and false */
    export_arm *own = &arms[c.negated], *other = &arms[!c.negated];
    if (!open_arm(r, f, &node, &steps[0], own)) return;
    *other = *own;
    other->step = NULL;
    if (partner) {
        const weft_node_info first = weft_graph_node(f->graph, partner - 1);
        if (!open_arm(r, f, &first, &steps[1], other)) return;
    }
    weft_operand out = weft__export_if(r, f->of_value[c.value], arms, export_count(b, e->wanted));
    for (uint32_t k = 0; k < b->n_carry + b->n_out && !export_failed(r); k++)
        if (k < b->n_carry || e->wanted[k]) e->out[k].id = out.id++;
}
