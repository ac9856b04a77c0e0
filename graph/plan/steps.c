/* The steps of a plan: for each node in the order of the schedule its kernel, operands, tiles,
 * scratch and workspace. O(operands). */
#include "plan/plan.h"

#include "ir/call.h"
#include "ir/isa.h"

#include <string.h>

static void fill_call(const weft_plan *plan, const plan_step *step, weft_call *call)
{
    const node_record *node = &plan->graph->nodes[step->node];
    memset(call, 0, sizeof *call);
    call->attr = node->attr;
    call->in = plan->tensors + step->first_operand;
    call->out = call->in + node->n_in;
    call->n_in = node->n_in;
    call->n_out = node->op->n_out;
    call->node = (uint32_t)(step - plan->steps);
}

/* Memory for a block in f32 of each operand that is stored as bf16. */
static void reserve_blocks(weft_plan *plan, const plan_step *step)
{
    const node_record *node = &plan->graph->nodes[step->node];
    const weft_tensor *t = plan->tensors + step->first_operand, *out = &t[node->n_in];
    const int64_t columns = out->shape.rank ? out->shape.dim[out->shape.rank - 1] : 1;
    const int64_t each = columns > NARROW_BLOCK && node_rows(node) ? columns : NARROW_BLOCK;
    size_t blocks = 0;
    for (size_t i = 0; i < node->n_in + node->op->n_out; i++) blocks += t[i].dtype == WEFT_BF16;
    const size_t bytes = blocks * (size_t)((each + 15) / 16 * 16) * sizeof(float);
    if (bytes > plan->stats.workspace_bytes) plan->stats.workspace_bytes = bytes;
}

/* The step of a scan: one tile, unless threads share its loop. */
static void fill_loop(weft_plan *plan, plan_step *step)
{
    step->loop = plan->loops;
    while (step->loop->node != step->node) step->loop++;
    const size_t workspace = step->loop->body->stats.workspace_bytes;
    step->phases = 1;
    step->tiles[0] = 1;
    step->scratch = step->loop->scratch; /* bytes, until it has an offset */
    if (workspace > plan->op_workspace) plan->op_workspace = workspace;
}

static bool fill_step(weft_plan *plan, plan_step *step, weft_error *error)
{
    const weft_graph *g = plan->graph;
    const node_record *node = &g->nodes[step->node];
    const weft_op *op = node->op;
    const weft_isa isa = weft__isa_best();
    weft_tensor *tensor = plan->tensors + step->first_operand;
    for (size_t k = 0; k < node->n_in; k++) *tensor++ = weft__graph_tensor(g, node->in[k]);
    for (size_t k = 0; k < op->n_out; k++)
        *tensor++ = weft__graph_tensor(g, node->first_out + (uint32_t)k);
    if (scan_of(op, node->attr)) {
        fill_loop(plan, step);
        return true;
    }
    const bool narrow = weft__graph_node_is_narrow(g, node),
               native = weft__op_has_kernel(op, WEFT_BF16);
    step->kernel =
        weft__op_kernel(op, isa, narrow && native ? WEFT_BF16 : weft__graph_key_dtype(g, node));
    step->widens = narrow && !native;
    step->phases = op->phases ? op->phases : 1;
    if (!step->kernel) {
        char where[256];
        weft_error_set(error, WEFT_NO_KERNEL,
                       weft__graph_node_where(g, step->node, where, sizeof where),
                       "no kernel for %s on this processor, or below WEFT_ISA: %s",
                       weft_dtype_name(weft__graph_key_dtype(g, node)), weft__isa_name(isa));
        return false;
    }
    weft_call call;
    fill_call(plan, step, &call);
    for (call.phase = 0; call.phase < step->phases; call.phase++)
        step->tiles[call.phase] = op_tiles(op, &call);
    call.phase = 0;
    if (op->scratch) step->scratch = op->scratch(&call); /* bytes, until it has an offset */
    size_t workspace = 0;
    if (op->workspace) workspace = (op->workspace(&call) + 63) / 64 * 64 + PANEL_TAG_BYTES;
    if (workspace > plan->op_workspace) plan->op_workspace = workspace;
    if (step->widens) reserve_blocks(plan, step);
    return true;
}

bool weft__steps_make(weft_plan *plan, const schedule *s, weft_error *error)
{
    const weft_graph *g = plan->graph;
    for (size_t i = 0; i < s->n; i++)
        plan->n_operands += g->nodes[s->order[i]].n_in + g->nodes[s->order[i]].op->n_out;
    plan->n_steps = s->n;
    plan->steps = weft__arena_alloc(&plan->arena, (s->n + 1) * sizeof *plan->steps);
    plan->tensors = weft__arena_alloc(&plan->arena, (plan->n_operands + 1) * sizeof *plan->tensors);
    plan->places = weft__arena_alloc(&plan->arena, (plan->n_operands + 1) * sizeof *plan->places);
    plan->matrices =
        weft__arena_alloc(&plan->arena, (plan->n_operands + 1) * sizeof *plan->matrices);
    if (!plan->steps || !plan->tensors || !plan->places || !plan->matrices)
        return plan_no_memory(error);
    uint32_t operand = 0;
    for (size_t i = 0; i < s->n; i++) {
        const node_record *node = &g->nodes[s->order[i]];
        plan->steps[i] = (plan_step){.node = s->order[i], .first_operand = operand};
        if (!fill_step(plan, &plan->steps[i], error)) return false;
        operand += node->n_in + node->op->n_out;
    }
    if (plan->stats.workspace_bytes && !plan->op_workspace) plan->op_workspace = PANEL_TAG_BYTES;
    plan->stats.workspace_bytes += plan->op_workspace;
    for (uint32_t i = 0; i < s->n; i += s->n_fused[i] + 1)
        weft__fused_set_steps(plan, i, s->n_fused[i]);
    return true;
}

weft_cost weft__plan_step_cost(const weft_plan *plan, const plan_step *step)
{
    const weft_op *op = plan->graph->nodes[step->node].op;
    weft_call call;
    fill_call(plan, step, &call);
    return weft__op_cost(op, &call);
}
