/* Sessions: a plan bound to memory. Binding resolves every operand to an address in the arena, the
 * parameter store or the graph's constants, O(operands); feeding and fetching copy one tensor; the
 * executor (execute.c) runs the plan. Everything that a run needs is allocated here, before it. */
#include "feeds.h"
#include "loop.h"
#include "nonfinite.h"
#include "release.h"
#include "team.h"
#include "watch.h"

#include "base/log.h"
#include "store/params.h"

#include <stdlib.h>
#include <string.h>

static const char has_not_run[] = "the session has not run";
static const char run_failed[] = "the session's last run failed";
static const char run_stopped[] = "the session has stopped in the middle of a run";
static const char was_searched[] = "weft_session_find_nonfinite has overwritten the results";
static const char arena_taken[] = "another session has used the shared arena since the last run";

struct weft_session {
    const weft_plan *plan;
    weft_params *params;
    weft_tensor *tensors; /* the plan's, with data */
    char *arena;
    void *own_arena, *own_workspace; /* that the session allocated; or NULL */
    size_t own_arena_bytes, own_workspace_bytes;
    weft_allocator allocator; /* of the two */
    const void *
        *arena_user; /* where the sessions of a shared arena record whose data it holds; or NULL */
    int threads;     /* of a run, if the system grants them */
    executor executor;
    weft_profile *profile; /* NULL if it was never switched on */
    bool profiling;
    feeds feeds;
    const char *no_results; /* why the targets have none; NULL: those of the last run */
    watches watches;
    releases releases;
};

/* ---- Binding ---- */

/* The store's tensor for a state; fails if it is missing or has another dtype or shape. */
static bool state_tensor(const weft_session *s, uint32_t root, weft_tensor *tensor,
                         weft_error *error)
{
    const value_record *v = &s->plan->graph->values[root];
    char have[128], want[128];
    if (!weft_params_find(s->params, v->name ? v->name : "", tensor)) {
        if (weft__params_check(s->params, v->name, error) != WEFT_OK) return false;
        weft_error_set(error, WEFT_NOT_FOUND, v->name,
                       "not in the parameter store (weft_params_init adds what a graph declares)");
        return false;
    }
    if (tensor->dtype == v->type.dtype && weft_shape_equal(tensor->shape, v->type.shape))
        return true;
    weft_error_set(
        error, WEFT_BAD_SHAPE, v->name, "the parameter store has %s %s, the graph %s %s",
        weft_dtype_name(tensor->dtype), weft_shape_text(tensor->shape, have, sizeof have),
        weft_dtype_name(v->type.dtype), weft_shape_text(v->type.shape, want, sizeof want));
    return false;
}

/* Resolves the address of a tensor; fails if it is a state that the store does not have. */
static bool bind_tensor(const weft_session *s, const place *at, weft_tensor *tensor,
                        weft_error *error)
{
    const weft_graph *g = s->plan->graph;
    weft_tensor state;
    char *base = s->arena;
    if (at->kind == STORAGE_STATE) {
        if (!state_tensor(s, at->root, &state, error)) return false;
        base = state.data;
    } else if (at->kind == STORAGE_CONSTANT) {
        const value_record *v = &g->values[at->root];
        base = (char *)(uintptr_t)((const weft_constant_attr *)g->nodes[v->node].attr)->data;
    }
    tensor->data = base + at->offset;
    return true;
}

/* Resolves the address of every operand and fills both calls of every step. */
static bool bind_operands(weft_session *s, weft_error *error)
{
    const weft_plan *plan = s->plan;
    s->executor.arena = s->arena;
    for (size_t i = 0; i < plan->n_operands; i++) {
        s->tensors[i] = plan->tensors[i];
        if (!bind_tensor(s, &plan->places[i], &s->tensors[i], error)) return false;
    }
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        for (int phase = 0; phase < 2; phase++)
            executor_set_call(&s->executor, i, phase, s->tensors);
        if (plan->steps[i].loop) weft__loop_bind(&s->executor, i);
    }
    return true;
}

static void *take_memory(const weft_session *s, size_t bytes, const char *what, bool lazily,
                         weft_error *error)
{
    return weft__allocator_take_zeros(&s->allocator, bytes, lazily, "weft_session_new", what,
                                      error);
}

static bool take_arena(weft_session *s, const weft_session_options *o, weft_error *error)
{
    size_t bytes = s->plan->stats.arena_bytes;
    if (o->arena) {
        s->arena = o->arena;
        s->arena_user = o->arena_user;
        if (o->arena_bytes >= bytes && (uintptr_t)o->arena % 64 == 0) return true;
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       "the arena given has %zu bytes at %p; the plan needs %zu, 64-byte aligned",
                       o->arena_bytes, o->arena, bytes);
        return false;
    }
    s->arena = s->own_arena = take_memory(s, bytes, "an arena", o->release_states, error);
    s->own_arena_bytes = bytes;
    return s->arena != NULL;
}

size_t weft_plan_workspace_bytes(const weft_plan *plan, int threads)
{
    if (!plan) return 0;
    size_t each = plan->stats.workspace_bytes, n = (size_t)weft__executor_threads(plan, threads);
    return each <= SIZE_MAX / n ? each * n : SIZE_MAX;
}

static bool take_workspace(weft_session *s, const weft_session_options *o, weft_error *error)
{
    size_t each = s->plan->stats.workspace_bytes;
    size_t bytes = weft_plan_workspace_bytes(s->plan, s->threads);
    weft_run_context *run = &s->executor.run;
    run->workspace_bytes = each;
    if (!bytes) return true;
    if (o->workspace) {
        run->workspace = o->workspace;
        if (o->workspace_bytes >= bytes && (uintptr_t)o->workspace % 64 == 0) return true;
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       "the workspace given has %zu bytes at %p; %d threads need %zu, 64-byte "
                       "aligned",
                       o->workspace_bytes, o->workspace, s->threads, bytes);
        return false;
    }
    run->workspace = s->own_workspace = take_memory(s, bytes, "a workspace", false, error);
    s->own_workspace_bytes = bytes;
    return run->workspace != NULL;
}

/* How many threads a run has: those of OpenMP have to be granted. */
static weft_status grant(const weft_session *s, int *team, weft_error *error)
{
    if (!s->executor.pool.run) return weft__team(s->threads, team, error);
    *team = s->threads;
    return WEFT_OK;
}

weft_session *weft_session_new(const weft_plan *plan, weft_params *params,
                               const weft_session_options *options, weft_error *error)
{
    static const weft_session_options defaults = {0};
    const weft_session_options *o = options ? options : &defaults;
    weft_error_clear(error);
    if (!plan || o->threads < 0 || o->threads > WEFT_MAX_THREADS) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       plan ? "%d threads; expected 0 (the default) to %d" : "the plan is NULL",
                       o->threads, WEFT_MAX_THREADS);
        return NULL;
    }
    if (!weft__allocator_valid(o->allocator)) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       "the allocator needs both allocate and release");
        return NULL;
    }
    weft_session *s = calloc(1, sizeof *s);
    bool good = s != NULL;
    int team;
    if (good) {
        s->plan = plan;
        s->params = params;
        s->threads = weft__executor_threads(plan, o->threads);
        if (s->threads < o->threads)
            weft__log(WEFT_LOG_INFO, "weft_session_new",
                      "%d of %d threads: the plan has no work for more", s->threads, o->threads);
        s->tensors = calloc(plan->n_operands + 1, sizeof *s->tensors);
        good = s->tensors && weft__executor_init(&s->executor, plan) &&
               weft__feeds_init(&s->feeds, plan);
        if (o->pool) s->executor.pool = *o->pool;
        if (o->allocator) s->allocator = *o->allocator;
        s->executor.run.seed = o->seed;
        s->executor.poison = o->poison;
        if (s->executor.exchanges.flights) s->executor.run.exchanges = &s->executor.exchanges;
    }
    if (!good)
        weft_error_set(error, WEFT_NO_MEMORY, "weft_session_new", "no memory for the session");
    else
        good = weft__exchanges_bind(&s->executor.exchanges, o->communicators, o->n_communicators,
                                    error) == WEFT_OK &&
               take_arena(s, o, error) && take_workspace(s, o, error) && bind_operands(s, error) &&
               grant(s, &team, error) == WEFT_OK;
    if (good && o->release_states && s->own_arena && params && plan->fixed_intervals &&
        !weft__releases_init(&s->releases, plan)) {
        weft_error_set(error, WEFT_NO_MEMORY, "weft_session_new", "no memory for the session");
        good = false;
    }
    if (good) {
        s->no_results = has_not_run;
        if (!s->arena_user) weft__feeds_fill_defaults(&s->feeds, plan, s->arena);
        return s;
    }
    weft_session_free(s);
    return NULL;
}

void weft_session_free(weft_session *session)
{
    if (!session) return;
    weft__allocator_give(&session->allocator, session->own_arena, session->own_arena_bytes);
    if (session->arena_user && *session->arena_user == session) *session->arena_user = NULL;
    weft__allocator_give(&session->allocator, session->own_workspace, session->own_workspace_bytes);
    free(session->tensors);
    weft__executor_free(&session->executor);
    weft__feeds_free(&session->feeds);
    weft__profile_free(session->profile);
    weft__watches_free(&session->watches);
    weft__releases_free(&session->releases);
    free(session);
}

/* Begins a call whose error is *error: false if the session is NULL. */
static bool begin(const weft_session *session, const char *function, weft_error *error)
{
    weft_error_clear(error);
    if (!session) weft_error_set(error, WEFT_BAD_ARGUMENT, function, "the session is NULL");
    return session != NULL;
}

void weft_session_set_run_number(weft_session *session, uint64_t number)
{
    if (session) session->executor.run.number = number;
}

/* ---- Data in and out ---- */

/* The id in the plan's graph of a value of the program's graph; 0 if the plan does not need it. */
static uint32_t planned_id(const weft_session *s, weft_value value)
{
    const weft_plan *plan = s->plan;
    return value.graph == plan->user_tag && value.id < plan->n_map ? plan->map[value.id] : 0;
}

/* Where the program can read a value, or write it if it is an input; false if it can do neither. */
static bool find_tensor(const weft_session *session, weft_value value, weft_tensor *tensor)
{
    const weft_plan *plan = session->plan;
    uint32_t id = planned_id(session, value);
    if (!id) return false;
    const value_record *v = &plan->graph->values[id];
    const node_record *node = &plan->graph->nodes[v->node];
    const node_record *root = &plan->graph->nodes[plan->graph->values[v->root].node];
    /* A pass may have replaced a computed value by the state it equals. Only a target is then
     * readable: for targets the plan guarantees the right version of the state. */
    if (root->op == &weft_op_state && !node->op->alias)
        return plan->kinds[value.id] & (VALUE_STATE | VALUE_TARGET) &&
               state_tensor(session, v->root, tensor, NULL);
    if (root->op == &weft_op_constant && !node->op->alias) {
        *tensor =
            weft_tensor_dense((void *)(uintptr_t)((const weft_constant_attr *)root->attr)->data,
                              v->type.dtype, v->type.shape);
        return true;
    }
    if (!plan->readable[id] || !plan->buffer_of[id]) return false;
    size_t offset = plan->buffers[plan->buffer_of[id] - 1].offset +
                    (size_t)v->layout.offset * weft_dtype_bytes(v->type.dtype);
    *tensor = weft_tensor_dense(session->arena + offset, v->type.dtype, v->type.shape);
    return true;
}

/* Whether the arena holds the data of this session; detects if another one has used it since. */
static bool has_arena(weft_session *s)
{
    if (!s->arena_user || *s->arena_user == s) return true;
    weft__feeds_lose(&s->feeds, s->plan);
    if (!s->no_results) s->no_results = arena_taken;
    return false;
}

/* Takes over the arena before this session writes it. */
static void claim_arena(weft_session *s)
{
    if (has_arena(s)) return;
    weft__feeds_fill_defaults(&s->feeds, s->plan, s->arena);
    *s->arena_user = s;
}

/* Whether a value that can be read has contents: an input its feed or default, a state those of the
 * store, a result those of a run that succeeded. */
static bool has_contents(weft_session *s, weft_value value, const char *function, weft_error *error)
{
    const unsigned kinds = s->plan->kinds[value.id];
    const char *reason = has_arena(s) ? NULL : arena_taken;
    if (kinds & VALUE_STORED) return true;
    if (!(kinds & VALUE_INPUT)) reason = s->no_results;
    if (reason)
        weft_error_set(error, WEFT_NOT_FOUND, function,
                       "%s: expected a weft_session_run that succeeds before the value is read",
                       reason);
    else if (kinds & VALUE_INPUT)
        weft__feeds_check(&s->feeds, s->plan, planned_id(s, value), error);
    return error->status == WEFT_OK;
}

/* The same as find_tensor, with an error in the name of `function`. */
static bool tensor_for(const weft_session *session, weft_value value, weft_tensor *tensor,
                       const char *function, weft_error *error)
{
    if (find_tensor(session, value, tensor)) return true;
    weft_error_set(
        error, WEFT_NOT_FOUND, function,
        value.graph != session->plan->user_tag || !value.id || value.id >= session->plan->n_map
            ? "the value does not belong to the planned graph"
            : "the value cannot be read: expected a target of the plan, or an input or a "
              "state that it uses and has not released");
    return false;
}

weft_status weft_session_tensor(weft_session *session, weft_value value, weft_tensor *tensor,
                                weft_error *error)
{
    static const char function[] = "weft_session_tensor";
    weft_error own, *e = error ? error : &own;
    if (!begin(session, function, e)) return e->status;
    if (!tensor) return weft_error_set(e, WEFT_BAD_ARGUMENT, function, "the tensor is NULL");
    if (!tensor_for(session, value, tensor, function, e)) return e->status;
    if (!(session->plan->kinds[value.id] & VALUE_INPUT)) {
        has_contents(session, value, function, e);
        return e->status;
    }
    claim_arena(session);
    weft__feeds_mark_fed(&session->feeds, session->plan, planned_id(session, value),
                         session->arena);
    return WEFT_OK;
}

static weft_status wrong_bytes(const weft_session *session, weft_value value,
                               const weft_tensor *tensor, const void *data, size_t bytes,
                               const char *function, weft_error *error)
{
    const weft_graph *g = session->plan->graph;
    const char *name = weft_name_of(g, weft__graph_value(g, planned_id(session, value)));
    char text[128];
    return weft_error_set(
        error, WEFT_BAD_ARGUMENT, function, "\"%s\" is %s %s, %zu bytes; got %zu bytes%s",
        name[0] ? name : "the value", weft_dtype_name(tensor->dtype),
        weft_shape_text(tensor->shape, text, sizeof text),
        weft_tensor_bytes(tensor->dtype, tensor->shape), bytes, data ? "" : " at NULL");
}

weft_status weft_session_feed(weft_session *session, weft_value input, const void *data,
                              size_t bytes, weft_error *error)
{
    static const char function[] = "weft_session_feed";
    weft_error own, *e = error ? error : &own;
    if (!begin(session, function, e)) return e->status;
    const weft_plan *plan = session->plan;
    if (input.graph != plan->user_tag || !input.id || input.id >= plan->n_map)
        return weft_error_set(e, WEFT_BAD_ARGUMENT, function,
                              "the value does not belong to the planned graph");
    uint32_t id = plan->map[input.id];
    if (!(plan->kinds[input.id] & VALUE_INPUT)) {
        const char *name = id ? weft_name_of(plan->graph, weft__graph_value(plan->graph, id)) : "";
        return weft_error_set(e, WEFT_BAD_ARGUMENT, function, "\"%s\" is not an input of the graph",
                              name[0] ? name : "the value");
    }
    weft_tensor tensor;
    if (!id) return WEFT_OK;
    if (!tensor_for(session, input, &tensor, function, e)) return WEFT_INTERNAL;
    claim_arena(session);
    if (bytes != weft_tensor_bytes(tensor.dtype, tensor.shape) || (!data && bytes)) {
        weft__feeds_mark_refused(&session->feeds, id);
        return wrong_bytes(session, input, &tensor, data, bytes, function, e);
    }
    weft__feeds_mark_fed(&session->feeds, plan, id, session->arena);
    if (bytes) memcpy(tensor.data, data, bytes);
    weft__normalise_bools(tensor.dtype, tensor.data, bytes);
    return WEFT_OK;
}

weft_status weft_session_fetch(weft_session *session, weft_value target, void *data, size_t bytes,
                               weft_error *error)
{
    static const char function[] = "weft_session_fetch";
    weft_error own, *e = error ? error : &own;
    weft_tensor tensor;
    if (!begin(session, function, e) || !tensor_for(session, target, &tensor, function, e))
        return e->status;
    if (bytes != weft_tensor_bytes(tensor.dtype, tensor.shape) || (!data && bytes))
        return wrong_bytes(session, target, &tensor, data, bytes, function, e);
    if (!has_contents(session, target, function, e)) return e->status;
    if (bytes) memcpy(data, tensor.data, bytes);
    return WEFT_OK;
}

/* ---- The profile ---- */

weft_status weft_session_profile(weft_session *session, bool on,
                                 const weft_profile_options *options, weft_error *error)
{
    if (!begin(session, "weft_session_profile", error)) return WEFT_BAD_ARGUMENT;
    if (on) {
        size_t trace_runs = options ? options->trace_runs : 0;
        weft_profile *profile = weft__profile_new(session->plan, session->threads, trace_runs);
        if (!profile)
            return weft_error_set(error, WEFT_NO_MEMORY, "profile",
                                  "no memory for a profile with %zu runs traced", trace_runs);
        exchanges *e = &session->executor.exchanges;
        if (e->waited_ns) memset(e->waited_ns, 0, e->n_flights * sizeof *e->waited_ns);
        profile->exchange_ns = e->waited_ns;
        weft__profile_free(session->profile);
        session->profile = profile;
    }
    session->profiling = on;
    return WEFT_OK;
}

const weft_profile *weft_profile_of(const weft_session *session)
{
    return session ? session->profile : NULL;
}

/* ---- Watches ---- */

/* Whether a callback of a watch is calling, and the error of `function` that says so. */
static bool is_watching(const weft_session *s, const char *function, weft_error *error)
{
    if (!s->watches.calling) return false;
    weft_error_set(error, WEFT_BAD_ARGUMENT, function,
                   "the session is running: a callback of weft_session_watch may not use it");
    return true;
}

weft_status weft_session_watch(weft_session *session, weft_value value, weft_watch_fn callback,
                               void *context, weft_error *error)
{
    static const char function[] = "weft_session_watch";
    weft_error own, *e = error ? error : &own;
    if (!begin(session, function, e) || is_watching(session, function, e)) return e->status;
    const weft_plan *plan = session->plan;
    if (!callback || executor_paused(&session->executor))
        return weft_error_set(e, WEFT_BAD_ARGUMENT, function,
                              callback ? "the session has stopped in the middle of a run"
                                       : "the callback is NULL");
    if (value.graph != plan->user_tag || !value.id || value.id >= plan->n_map)
        return weft_error_set(e, WEFT_NOT_FOUND, function,
                              "the value does not belong to the planned graph");
    watch w = {.id = plan->map[value.id], .callback = callback, .context = context};
    w.seen.value = value;
    if (!weft__watch_when(plan, &w, e)) return e->status;
    const place at = weft__plan_place(plan, w.id);
    w.bound = weft__graph_tensor(plan->graph, w.id);
    if (!bind_tensor(session, &at, &w.bound, e)) return e->status;
    return weft__watches_add(&session->watches, plan, &w, e);
}

size_t weft_session_unwatch(weft_session *session, weft_value value)
{
    return session && !session->watches.calling ? weft__watches_remove(&session->watches, value)
                                                : 0;
}

/* ---- Runs ---- */

/* Another session may have overwritten the defaults in a shared arena, so they are written again,
 * unless a run continues. */
static weft_status prepare_inputs(weft_session *s, weft_error *error)
{
    const bool goes_on = executor_paused(&s->executor);
    if (!has_arena(s) && goes_on)
        return weft_error_set(error, WEFT_NOT_FOUND, "weft_session_run",
                              "another session has used the shared arena in the middle of the run");
    claim_arena(s);
    if (!s->own_arena && !goes_on) weft__feeds_fill_defaults(&s->feeds, s->plan, s->arena);
    return weft__feeds_check(&s->feeds, s->plan, 0, error);
}

/* Whether the session has given back what it is to read now, and the error of `function` that says
 * so. */
static bool lacks_states(const weft_session *s, const char *function, weft_error *error)
{
    if (!s->releases.begun) return false;
    weft_error_set(error, WEFT_NOT_FOUND, function,
                   "the session has given back the memory of states that only its first run reads "
                   "(release_states)");
    return true;
}

/* Whether a run that begins now is the first one, which releases states. */
static bool releases_states(const weft_session *s, uint32_t until)
{
    const executor *x = &s->executor;
    return s->releases.n && !x->first && !executor_paused(x) &&
           (s->releases.begun || (until >= s->plan->fixed_intervals && !s->watches.n));
}

/* The first run up to an interval. */
static void run_releasing(weft_session *s, uint32_t until, int team, weft_profile *profile,
                          weft_error *error)
{
    executor *x = &s->executor;
    if (lacks_states(s, "weft_session_run", error) ||
        weft__releases_run(&s->releases, s->params, x, team, profile, error) != WEFT_OK)
        return;
    x->first = s->plan->fixed_intervals;
    if (x->end < until) weft__executor_run(x, until, team, profile, error);
}

/* Runs, or goes on, up to an interval. */
static weft_status run_until(weft_session *session, uint32_t until, weft_error *e)
{
    executor *x = &session->executor;
    int team;
    session->no_results = run_failed;
    if (grant(session, &team, e) != WEFT_OK || prepare_inputs(session, e) != WEFT_OK) {
        weft__exchanges_abandon(&x->exchanges, e);
        x->end = 0;
        return e->status;
    }
    weft_profile *profile = session->profiling ? session->profile : NULL;
    if (releases_states(session, until))
        run_releasing(session, until, team, profile, e);
    else if (!session->watches.n)
        weft__executor_run(x, until, team, profile, e);
    else
        weft__watches_run(&session->watches, x, until, team, profile, e);
    if (!executor_paused(x)) x->run.number++;
    if (e->status == WEFT_OK) session->no_results = executor_paused(x) ? run_stopped : NULL;
    if (e->status == WEFT_OK && x->end == session->plan->n_intervals && session->own_arena)
        x->first = session->plan->fixed_intervals;
    return e->status;
}

void weft_session_renew(weft_session *session)
{
    if (session) session->executor.first = 0;
}

weft_status weft_session_run(weft_session *session, weft_error *error)
{
    static const char function[] = "weft_session_run";
    weft_error own, *e = error ? error : &own;
    if (!begin(session, function, e) || is_watching(session, function, e)) return e->status;
    return run_until(session, (uint32_t)session->plan->n_intervals, e);
}

weft_status weft_session_run_before(weft_session *session, weft_value value, weft_error *error)
{
    static const char function[] = "weft_session_run_before";
    weft_error own, *e = error ? error : &own;
    if (!begin(session, function, e) || is_watching(session, function, e)) return e->status;
    const weft_plan *plan = session->plan;
    const uint32_t id = planned_id(session, value), node = id ? plan->graph->values[id].node : 0;
    for (uint32_t g = 0; id && !executor_paused(&session->executor) && g < plan->n_intervals; g++)
        for (uint32_t i = 0; i < plan->intervals[g].n_steps; i++)
            if (plan->steps[plan->intervals[g].first_step + i].node == node)
                return g > session->executor.first ? run_until(session, g, e) : WEFT_OK;
    return weft_error_set(e, WEFT_BAD_ARGUMENT, function,
                          "the session has stopped before, or no node of the plan computes the "
                          "value");
}

typedef struct nonfinite_run {
    const weft_session *session;
    weft_error *found;
    weft_status status;
} nonfinite_run;

static void find_nonfinite(void *data)
{
    nonfinite_run *r = data;
    r->status = weft__nonfinite_find(&r->session->executor, r->found);
}

weft_status weft_session_find_nonfinite(weft_session *session, weft_error *found)
{
    weft_error_clear(found);
    if (!session)
        return weft_error_set(found, WEFT_BAD_ARGUMENT, "weft_session_find_nonfinite",
                              "the session is NULL");
    nonfinite_run r = {session, found, WEFT_OK};
    if (lacks_states(session, "weft_session_find_nonfinite", found)) return found->status;
    weft_status status = prepare_inputs(session, found);
    if (status != WEFT_OK) return status;
    session->no_results = was_searched;
    session->executor.run.number--; /* the failed run has already counted */
    weft__team_alone(find_nonfinite, &r);
    session->executor.run.number++;
    return r.status;
}
