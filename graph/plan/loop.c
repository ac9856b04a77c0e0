/* The loop of a scan in a plan: where the values of a step come from and go to. Slices of sequences and
 * of stacks are used in place, and carries alternate between the scan's output and a second buffer.
 * What a step cannot write there itself, such as a carry that it does not change, is copied after
 * the step. O(operands of the scan). */
#include "plan/plan.h"

bool weft__loop_covers(const weft_graph *body, uint32_t id)
{
    const value_record *v = &body->values[id];
    return body->nodes[body->values[v->root].node].op != &weft_op_input &&
           body->nodes[body->values[v->root].node].op != &weft_op_constant &&
           v->layout.offset == 0 &&
           weft__graph_value_bytes(body, id) == weft__graph_value_bytes(body, v->root);
}

/* Chooses the outputs that the body writes directly: of those that share a buffer only one, a stack
 * rather than a carry. */
static bool choose_direct(plan_loop *l, weft_plan *plan)
{
    const scan_body *b = l->scan->body;
    const weft_plan *body = l->body;
    const uint32_t n_out = b->n_carry + b->n_out;
    uint8_t *taken = weft__arena_alloc(&plan->arena, body->n_buffers + 1);
    if (!taken) return false;
    for (uint32_t at = 0; at < n_out; at++) {
        const uint32_t k = (at + b->n_carry) % n_out, v = l->value[k];
        const uint32_t buffer = body->buffer_of[v];
        if (!buffer || taken[buffer - 1] || !body->given[buffer - 1] ||
            !weft__loop_covers(body->graph, v))
            continue;
        taken[buffer - 1] = 1;
        l->direct[k] = true;
    }
    for (uint32_t c = 0; c < b->n_carry; c++)
        for (uint32_t k = b->n_carry; k < n_out; k++)
            if (l->direct[k] && l->value[k] == l->value[c]) l->stacked[c] = true;
    return true;
}

/* Work that can be counted over all steps: see phase_progress. */
#define MAX_LOOP_WORK 0x1p60

/* Whether threads share the steps: some interval of the body has work for several. */
static bool is_shared(const plan_loop *l)
{
    bool shared = false;
    for (size_t g = 0; g < l->body->n_intervals; g++) {
        const plan_interval *interval = &l->body->intervals[g];
        shared |= !interval->serial;
        if ((double)(interval->work[0] + interval->work[1]) * ((double)l->scan->n + 1) >
            MAX_LOOP_WORK)
            return false;
    }
    return shared;
}

/* The value of the plan of a body in which a target lies. */
static uint32_t target_of(const weft_plan *body, uint32_t user)
{
    size_t i = 0;
    while (body->targets[i].user != user) i++;
    return body->targets[i].value.id;
}

/* The bytes of a value of the body as the operand of the scan is stored. */
static size_t step_bytes(const weft_plan *plan, const plan_loop *loop, uint32_t operand,
                         uint32_t value)
{
    const weft_graph *body = loop->scan->body->graph;
    return weft_tensor_bytes(plan->graph->values[operand].stored, body->values[value].type.shape);
}

bool weft__loop_finish(weft_plan *plan, plan_loop *loop, weft_error *error)
{
    const scan_body *b = loop->scan->body;
    const weft_plan *body = loop->body;
    const node_record *node = &plan->graph->nodes[loop->node];
    const uint32_t n_out = b->n_carry + b->n_out;
    loop->spare = weft__arena_alloc(&plan->arena, (b->n_carry + 1) * sizeof *loop->spare);
    loop->in = weft__arena_alloc(&plan->arena, (scan_inputs(b) + 1) * sizeof *loop->in);
    loop->value = weft__arena_alloc(&plan->arena, n_out * sizeof *loop->value);
    loop->bytes = weft__arena_alloc(&plan->arena, (scan_inputs(b) + n_out) * sizeof(size_t));
    loop->direct = weft__arena_alloc(&plan->arena, n_out * sizeof *loop->direct);
    loop->stacked = weft__arena_alloc(&plan->arena, n_out * sizeof *loop->stacked);
    if (!loop->spare || !loop->in || !loop->value || !loop->bytes || !loop->direct ||
        !loop->stacked)
        return plan_no_memory(error);
    for (uint32_t i = 0; i < scan_inputs(b); i++) {
        const uint32_t id = body->map[b->in[i]];
        loop->in[i] = id ? body->buffer_of[id] : 0;
        loop->bytes[i] = step_bytes(plan, loop, node->in[i], b->in[i]);
    }
    for (uint32_t k = 0; k < n_out; k++) {
        loop->value[k] = target_of(body, b->out[k]);
        loop->bytes[scan_inputs(b) + k] = step_bytes(plan, loop, node->first_out + k, b->out[k]);
    }
    if (!choose_direct(loop, plan)) return plan_no_memory(error);
    loop->scratch = (body->stats.arena_bytes + 63) / 64 * 64;
    for (uint32_t c = 0; c < b->n_carry; c++) {
        loop->spare[c] = loop->scratch;
        if (!loop->stacked[c]) loop->scratch += weft__storage_bytes(body->graph, loop->value[c]);
    }
    loop->shared = !plan->body && is_shared(loop);
    return true;
}
