/* Watches of values. A value is seen after its interval and before the next one: the executor stops
 * there, so no kernel runs. The value's buffer is not reused yet, since lifetimes are counted in
 * intervals. Only nodes fused with the value's node may have overwritten it by then, tile by tile.
 * Finding the interval is O(steps). A run costs O(1) a watch, the barriers where it stops, and a
 * copy of each value that is not contiguous. */
#include "watch.h"

#include "ir/isa.h"

#include <stdlib.h>
#include <string.h>

/* ---- When a value can be seen ---- */

static weft_status cannot_see(weft_error *error, const char *reason)
{
    return weft_error_set(error, WEFT_NOT_FOUND, "weft_session_watch", "%s", reason);
}

/* The node whose kernel writes a value, which may be a view. */
static uint32_t writer_of(const weft_graph *g, uint32_t id)
{
    while (g->nodes[g->values[id].node].op->alias && g->values[id].root != id)
        id = g->nodes[g->values[id].node].in[0];
    return g->values[id].node;
}

/* Whether a step that runs on the tiles of the same head as step `at`, after it, writes to the
 * buffer of the value. */
static bool is_overwritten(const weft_plan *plan, uint32_t at, uint32_t id)
{
    const weft_graph *g = plan->graph;
    for (size_t i = (size_t)at + 1; i < plan->n_steps && plan->steps[i].fused; i++) {
        const node_record *node = &g->nodes[plan->steps[i].node];
        for (uint32_t k = 0; k < node->op->n_out; k++)
            if (plan->buffer_of[id] && plan->buffer_of[node->first_out + k] == plan->buffer_of[id])
                return true;
    }
    return false;
}

bool weft__watch_when(const weft_plan *plan, watch *w, weft_error *error)
{
    const weft_graph *g = plan->graph;
    if (!w->id) {
        cannot_see(error, "the plan does not compute the value: no target needs it, or a pass has "
                          "replaced it; make it a target, or skip that pass "
                          "(weft_plan_options.skip, WEFT_SKIP)");
        return false;
    }
    const uint32_t node = writer_of(g, w->id);
    w->interval = 0;
    if (weft__op_is_leaf(g->nodes[node].op)) return true;
    for (uint32_t interval = 0; interval < plan->n_intervals; interval++) {
        const plan_interval *p = &plan->intervals[interval];
        for (uint32_t i = p->first_step; i < p->first_step + p->n_steps; i++) {
            if (plan->steps[i].node != node) continue;
            w->interval = interval + 1;
            if (!is_overwritten(plan, i, w->id)) return true;
            cannot_see(error, "a node that is fused with the value's overwrites it; make the value "
                              "a target, or skip the pass \"fuse\" (weft_plan_options.skip, "
                              "WEFT_SKIP)");
            return false;
        }
    }
    cannot_see(error, "no node computes the value when the plan runs; make it a target");
    return false;
}

/* ---- The list ---- */

static void free_watch(watch *w)
{
    free(w->name);
    weft_free(w->copy);
}

/* Allocates the name, and the copy of a value that is not contiguous. */
static bool fill_watch(watch *w, const weft_graph *g)
{
    char where[256];
    const value_record *v = &g->values[w->id];
    w->name = strdup(v->name ? v->name : weft__graph_node_where(g, v->node, where, sizeof where));
    w->seen.name = w->name;
    w->seen.tensor = w->bound;
    if (!w->name || weft_layout_is_dense(&v->layout, v->type.shape)) return w->name;
    const size_t bytes = weft_tensor_bytes(v->type.dtype, v->type.shape);
    w->copy = weft_alloc(bytes ? bytes : 1);
    w->seen.tensor = weft_tensor_dense(w->copy, v->type.dtype, v->type.shape);
    return w->copy;
}

weft_status weft__watches_add(watches *all, const weft_plan *plan, const watch *w,
                              weft_error *error)
{
    watch new = *w;
    watch *list = realloc(all->list, (all->n + 1) * sizeof *list);
    if (list) all->list = list;
    if (!list || !fill_watch(&new, plan->graph)) {
        free_watch(&new);
        return weft_error_set(error, WEFT_NO_MEMORY, "weft_session_watch", "out of memory");
    }
    size_t at = all->n++;
    for (; at > 0 && list[at - 1].interval > new.interval; at--) list[at] = list[at - 1];
    list[at] = new;
    return WEFT_OK;
}

size_t weft__watches_remove(watches *all, weft_value value)
{
    size_t left = 0;
    for (size_t i = 0; i < all->n; i++) {
        const weft_value have = all->list[i].seen.value;
        if (!value.id || (have.id == value.id && have.graph == value.graph))
            free_watch(&all->list[i]);
        else
            all->list[left++] = all->list[i];
    }
    const size_t removed = all->n - left;
    all->n = left;
    return removed;
}

void weft__watches_free(watches *all)
{
    weft__watches_remove(all, WEFT_NO_VALUE);
    free(all->list);
}

/* ---- Runs ---- */

static void copy_value(const executor *e, watch *w)
{
    const weft_op *op = &weft_op_contiguous;
    weft_call call = {.in = &w->bound,
                      .out = &w->seen.tensor,
                      .n_in = 1,
                      .n_out = 1,
                      .run = (weft_run_context *)(uintptr_t)&e->run};
    weft__call_run(op, weft__op_kernel(op, weft__isa_best(), w->bound.dtype), &call);
}

/* Calls watch `i` and the following ones of the same interval; *i becomes the next one. False if a
 * callback ends the run. */
static bool call_watches(watches *all, const executor *e, size_t *i)
{
    const uint32_t interval = all->list[*i].interval;
    bool going = true;
    all->calling = true;
    for (; going && *i < all->n && all->list[*i].interval == interval; ++*i) {
        watch *w = &all->list[*i];
        if (w->copy) copy_value(e, w);
        w->seen.run = e->run.number;
        going = w->callback(w->context, &w->seen);
    }
    all->calling = false;
    return going;
}

static weft_status cancel(executor *e, const watch *w, weft_error *error)
{
    e->end = 0;
    const weft_status status =
        weft_error_set(error, WEFT_CANCELLED, w->name, "its watch has ended the run");
    weft__exchanges_abandon(&e->exchanges, error);
    return status;
}

weft_status weft__watches_run(watches *all, executor *e, uint32_t until, int team,
                              weft_profile *profile, weft_error *error)
{
    const bool resumed = executor_paused(e);
    uint32_t at = resumed ? e->end : e->first;
    bool ran = false;
    size_t i = 0;
    if (!resumed && !all->list[0].interval && !call_watches(all, e, &i))
        return cancel(e, &all->list[i - 1], error);
    while (i < all->n && all->list[i].interval <= at) i++; /* computed before */
    while (i < all->n && all->list[i].interval <= until) {
        at = all->list[i].interval;
        ran = true;
        const weft_status status = weft__executor_run(e, at, team, profile, error);
        if (status != WEFT_OK) return status;
        if (!call_watches(all, e, &i)) return cancel(e, &all->list[i - 1], error);
    }
    return !ran || at < until ? weft__executor_run(e, until, team, profile, error) : WEFT_OK;
}
