/* What moves from step to step of a loop: see loop.h and plan/loop.c. O(operands of the body that are
 * given) a step. */
#include "loop.h"

#include <stdlib.h>
#include <string.h>

bool weft__loop_init(loop_run *l, const plan_loop *loop)
{
    const scan_body *b = loop->scan->body;
    const weft_plan *body = loop->body;
    l->loop = loop;
    l->tensors = calloc(body->n_operands + 1, sizeof *l->tensors);
    l->moving = calloc(body->n_operands + 1, sizeof *l->moving);
    l->base = calloc(body->n_buffers + 1, sizeof *l->base);
    l->value = calloc(b->n_carry + b->n_out + 1, sizeof *l->value);
    l->carry = calloc(b->n_carry + 1, sizeof *l->carry);
    return l->tensors && l->moving && l->base && l->value && l->carry;
}

void weft__loop_free(loop_run *l)
{
    free(l->tensors);
    free(l->moving);
    free(l->base);
    free(l->value);
    free(l->carry);
}

/* ---- Binding ---- */

/* Where a place of the body lies; at is NULL if it moves. */
static loop_value locate(const loop_run *l, const place *p)
{
    const weft_plan *plan = l->body.plan;
    const weft_graph *g = plan->graph;
    if (p->kind == STORAGE_CONSTANT) {
        const weft_constant_attr *c = g->nodes[g->values[p->root].node].attr;
        return (loop_value){.at = (const char *)c->data + p->offset};
    }
    const uint32_t buffer = plan->buffer_of[p->root];
    if (!buffer || !plan->given[buffer - 1]) return (loop_value){.at = l->body.arena + p->offset};
    return (loop_value){NULL, buffer - 1, p->offset - plan->buffers[buffer - 1].offset};
}

static void bind_operands(loop_run *l)
{
    const weft_plan *plan = l->body.plan;
    l->n_moving = 0;
    for (size_t i = 0; i < plan->n_operands; i++) {
        const loop_value v = locate(l, &plan->places[i]);
        l->tensors[i] = plan->tensors[i];
        l->tensors[i].data = (char *)(uintptr_t)v.at;
        if (!v.at) l->moving[l->n_moving++] = (loop_operand){(uint32_t)i, v.buffer, v.offset};
    }
    for (size_t i = 0; i < plan->n_steps; i++)
        for (int phase = 0; phase < 2; phase++)
            executor_set_call(&l->body, (uint32_t)i, phase, l->tensors);
    const uint32_t n_out = l->loop->scan->body->n_carry + l->loop->scan->body->n_out;
    for (uint32_t k = 0; k < n_out; k++) {
        const place p = weft__plan_place(plan, l->loop->value[k]);
        l->value[k] = locate(l, &p);
    }
}

void weft__loop_bind(executor *e, uint32_t step)
{
    loop_run *l = &e->loops[e->plan->steps[step].loop - e->plan->loops];
    executor *body = &l->body;
    l->call = &e->calls[2 * (size_t)step];
    body->arena = l->call->scratch;
    body->poison = e->poison;
    body->pool = e->pool;
    body->run.workspace = e->run.workspace;
    body->run.workspace_bytes = e->run.workspace_bytes;
    bind_operands(l);
    for (uint32_t i = 0; i < body->plan->n_steps; i++)
        if (body->plan->steps[i].loop) weft__loop_bind(body, i);
}

void weft__loops_reset(executor *e)
{
    for (size_t i = 0; i < e->plan->n_loops; i++) {
        loop_run *l = &e->loops[i];
        if (!l->loop->shared) continue;
        executor_clear_progress(&l->body, 0, (uint32_t)l->body.plan->n_intervals);
        executor_clear_fault(&l->body);
        l->turn = (phase_progress){0};
        atomic_store(&l->over, false);
    }
}

/* ---- Steps ---- */

static int64_t slice_of(const loop_run *l, int64_t step)
{
    return l->loop->scan->reverse ? l->loop->scan->n - 1 - step : step;
}

/* Of output k in one step. */
static size_t out_bytes(const plan_loop *loop, uint32_t k)
{
    return loop->bytes[scan_inputs(loop->scan->body) + k];
}

/* Where output k of the scan belongs after a step: its slice of the stack, or, for a carry, the scan's
 * output and a second buffer in turn, which ends with the output. */
static char *destination(const loop_run *l, uint32_t k, int64_t step)
{
    const scan_attr *scan = l->loop->scan;
    const weft_tensor *out = &l->call->out[k];
    if (k >= scan->body->n_carry)
        return (char *)out->data + slice_of(l, step) * (int64_t)out_bytes(l->loop, k);
    return (scan->n - 1 - step) % 2 ? l->body.arena + l->loop->spare[k] : out->data;
}

/* What step `step` reads as input i of the scan. */
static char *source(const loop_run *l, uint32_t i, int64_t step)
{
    const scan_body *b = l->loop->scan->body;
    char *at = l->call->in[i].data;
    if (i < b->n_carry) return l->carry[i];
    if (i >= b->n_carry + b->n_each) return at;
    return at + slice_of(l, step) * (int64_t)l->loop->bytes[i];
}

/* Passes the carries on from step `from` to before step `end`, and fills the rows of the stacks with zeros. */
static void skip(loop_run *l, int64_t from, int64_t end)
{
    const scan_attr *scan = l->loop->scan;
    const scan_body *b = scan->body;
    for (uint32_t k = 0; k < b->n_carry; k++) {
        if (l->loop->stacked[k] && end < scan->n) continue;
        char *to = destination(l, k, end - 1);
        const size_t bytes = out_bytes(l->loop, k);
        if (to != l->carry[k] && bytes) memcpy(to, l->carry[k], bytes);
        l->carry[k] = to;
    }
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++)
        memset(destination(l, k, scan->reverse ? end - 1 : from), 0,
               (size_t)(end - from) * out_bytes(l->loop, k));
}

int64_t weft__loop_next(loop_run *l, int64_t step)
{
    const scan_attr *scan = l->loop->scan;
    const scan_body *b = scan->body;
    for (uint32_t i = 0; step == 0 && i < b->n_carry; i++) l->carry[i] = l->call->in[i].data;
    while (b->when && step < scan->n && !*(const uint8_t *)source(l, b->when - 1, step)) {
        const int64_t end = scan_is_while(b) ? scan->n : step + 1;
        skip(l, step, end);
        step = end;
    }
    return step;
}

void weft__loop_move(loop_run *l, int64_t step)
{
    const plan_loop *loop = l->loop;
    const scan_body *b = loop->scan->body;
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        if (loop->in[i]) l->base[loop->in[i] - 1] = source(l, i, step);
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        if (loop->direct[k]) l->base[l->value[k].buffer] = destination(l, k, step);
    for (size_t i = 0; i < l->n_moving; i++) {
        const loop_operand *m = &l->moving[i];
        l->tensors[m->operand].data = l->base[m->buffer] + m->offset;
    }
}

void weft__loop_collect(loop_run *l, int64_t step)
{
    const plan_loop *loop = l->loop;
    const scan_body *b = loop->scan->body;
    const bool last = step == loop->scan->n - 1;
    for (uint32_t at = 0; at < b->n_carry + b->n_out; at++) {
        /* Stacks first: they may read carries. */
        const uint32_t k = (at + b->n_carry) % (b->n_carry + b->n_out);
        const loop_value *v = &l->value[k];
        const char *from = v->at ? v->at : l->base[v->buffer] + v->offset;
        const bool is_carry = k < b->n_carry, in_stack = is_carry && loop->stacked[k];
        char *to = in_stack && !last ? (char *)(uintptr_t)from : destination(l, k, step);
        const size_t bytes = out_bytes(loop, k);
        if (!loop->direct[k] && to != from && bytes) memcpy(to, from, bytes);
        if (is_carry) l->carry[k] = to;
    }
}
