/* The backward pass of a stage: it begins with the gradients of what the stage sent, and sends each
 * gradient of what the stage received as soon as it is complete. */
#include "stages.h"

#include <stdlib.h>
#include <string.h>

/* State while the pass is built. In the lists, the values that cross follow the caller's. */
typedef struct backward {
    weft_stage *s;
    weft_value *outputs, *cotangents, *wrt, *grads, *ends;
    size_t n_outputs, n_wrt, n_ends;
    size_t n_own;              /* of wrt: the caller's */
    stage_crossing **received; /* by wrt - n_own */
    const weft_grad_hooks *ready;
} backward;

/* Ends the receives of gradients, then the sends. Returns the first result; WEFT_NO_VALUE without
 * exchanges. */
static weft_value end_exchanges(backward *b)
{
    weft_stage *s = b->s;
    weft_value first = WEFT_NO_VALUE;
    for (size_t i = 0; i < s->n_sent; i++) {
        const stage_crossing *c = &s->sent[i];
        if (!c->returns) continue;
        const weft_value gradient = weft_exchange_end(s->graph, c->gradient);
        if (!first.id) first = gradient;
        b->outputs[b->n_outputs] = c->value;
        b->cotangents[b->n_outputs++] =
            weft_reshape(s->graph, gradient, weft_shape_of(s->graph, c->value));
    }
    for (size_t i = 0; i < s->n_sent; i++) {
        const weft_value end = weft_exchange_end(s->graph, s->sent[i].flight);
        if (!first.id) first = end;
        b->ends[b->n_ends++] = end;
    }
    return first;
}

static void gradient_ready(void *context, size_t i, weft_value gradient)
{
    backward *b = context;
    if (i < b->n_own) {
        if (b->ready) b->ready->ready(b->ready->context, i, gradient);
        return;
    }
    stage_crossing *c = b->received[i - b->n_own];
    weft_graph_push_scope(b->s->graph, "pipeline");
    c->gradient = weft__stage_send(b->s, gradient, c->peer, b->s->first_gradient_tag + c->tag);
    weft_graph_pop_scope(b->s->graph);
}

static bool allocate(backward *b, const weft_grad_values *values)
{
    const weft_stage *s = b->s;
    const size_t outputs = s->n_sent + values->n_outputs + 1, wrt = values->n + s->n_received + 1;
    b->outputs = calloc(outputs, sizeof *b->outputs);
    b->cotangents = calloc(outputs, sizeof *b->cotangents);
    b->wrt = calloc(wrt, sizeof *b->wrt);
    b->grads = calloc(wrt, sizeof *b->grads);
    b->ends = calloc(s->n_sent + s->n_received + 1, sizeof *b->ends);
    b->received = calloc(s->n_received + 1, sizeof(stage_crossing *));
    return b->outputs && b->cotangents && b->wrt && b->grads && b->ends && b->received;
}

/* Adds the pass; returns the target. */
static weft_value add_pass(backward *b, const weft_grad_values *values, weft_value *pause)
{
    weft_stage *s = b->s;
    weft_graph_push_scope(s->graph, "pipeline");
    *pause = end_exchanges(b);
    weft_graph_pop_scope(s->graph);
    for (size_t i = 0; i < values->n_outputs; i++) {
        if (weft__stage_of(s, values->outputs[i]) != s->ranks.rank) continue;
        b->outputs[b->n_outputs] = weft__stage_value(s, values->outputs[i]);
        b->cotangents[b->n_outputs++] = values->cotangents[i];
    }
    const weft_grad_hooks ready = {.ready = gradient_ready, .context = b};
    const weft_grad_values own = {b->outputs, b->cotangents, b->n_outputs, b->wrt, b->n_wrt};
    weft_grad_each(s->graph, &own, b->grads, &ready);
    weft_graph_push_scope(s->graph, "pipeline");
    for (size_t i = 0; i < b->n_wrt - b->n_own; i++)
        b->ends[b->n_ends++] = weft_exchange_end(s->graph, b->received[i]->gradient);
    const weft_value all = weft_group(s->graph, b->ends, b->n_ends);
    weft_graph_pop_scope(s->graph);
    return all;
}

/* What is wrong with the arguments of weft__stage_grad; NULL: nothing. */
static const char *refusal(const weft_stage *stage, const weft_grad_values *v,
                           const weft_value *grads)
{
    if (!stage->training) return "the stage was made without `training`";
    if (!v || (v->n_outputs && (!v->outputs || !v->cotangents)) || (v->n && (!v->wrt || !grads)))
        return "the list of outputs, cotangents, wrt or grads is NULL";
    for (size_t i = 0; i < v->n_outputs; i++)
        if (weft__stage_of(stage, v->outputs[i]) < 0) return "no stage computes one of the outputs";
    return NULL;
}

weft_value weft__stage_grad(weft_stage *stage, const weft_grad_values *values, weft_value *grads,
                            const weft_grad_hooks *ready, weft_value *pause)
{
    weft_value all = WEFT_NO_VALUE, first = WEFT_NO_VALUE;
    if (pause) *pause = WEFT_NO_VALUE;
    if (!stage) return all;
    const char *wrong = refusal(stage, values, grads);
    if (wrong) {
        weft_graph_fail_in(stage->graph, "weft__stage_grad", WEFT_BAD_ARGUMENT, "%s", wrong);
        return all;
    }
    const size_t n = values->n;
    for (size_t i = 0; i < n; i++) grads[i] = WEFT_NO_VALUE;
    backward b = {.s = stage, .n_own = n, .n_wrt = n, .ready = ready};
    if (allocate(&b, values)) {
        if (n) memcpy(b.wrt, values->wrt, n * sizeof *b.wrt);
        for (size_t i = 0; i < stage->n_received; i++) {
            if (!stage->received[i].returns) continue;
            b.received[b.n_wrt - n] = &stage->received[i];
            b.wrt[b.n_wrt++] = stage->received[i].value;
        }
        all = add_pass(&b, values, &first);
        if (n) memcpy(grads, b.grads, n * sizeof *grads);
    } else {
        weft_graph_fail_in(stage->graph, "weft__stage_grad", WEFT_NO_MEMORY, "out of memory");
    }
    if (pause) *pause = first;
    free(b.outputs);
    free(b.cotangents);
    free(b.wrt);
    free(b.grads);
    free(b.ends);
    free(b.received);
    return all;
}

weft_value weft__stage_sent(weft_stage *stage)
{
    if (!stage) return WEFT_NO_VALUE;
    weft_value *ends = calloc(stage->n_sent + 1, sizeof *ends);
    if (!ends) {
        weft_graph_fail_in(stage->graph, "weft__stage_sent", WEFT_NO_MEMORY, "out of memory");
        return WEFT_NO_VALUE;
    }
    weft_graph_push_scope(stage->graph, "pipeline");
    for (size_t i = 0; i < stage->n_sent; i++)
        ends[i] = weft_exchange_end(stage->graph, stage->sent[i].flight);
    const weft_value all = weft_group(stage->graph, ends, stage->n_sent);
    weft_graph_pop_scope(stage->graph);
    free(ends);
    return all;
}
