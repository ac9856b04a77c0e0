/* Plans for several shapes on one store: see plans.h. */
#include "plans.h"

#include "base/arena.h"

#include <stdlib.h>

/* The name of a field that only a single session can have, and that is not zero; or NULL. */
static const char *field_of_one_session(const weft_session_options *o)
{
    return o->seed                                  ? "seed"
           : o->arena || o->arena_bytes             ? "arena"
           : o->workspace || o->workspace_bytes     ? "workspace"
           : o->communicators || o->n_communicators ? "communicators"
           : o->arena_user                          ? "arena_user"
                                                    : NULL;
}

weft_status weft__plans_init(plan_list *plans, const weft_session_options *options,
                             const char *owner, weft_error *error)
{
    static const weft_session_options defaults = {0};
    const weft_session_options *o = options ? options : &defaults;
    const char *field = field_of_one_session(o);
    *plans = (plan_list){.first = NULL};
    if (field)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, owner,
                              "the session's option \"%s\" is not zero; expected threads, pool, "
                              "allocator and poison only",
                              field);
    if (o->threads < 0 || o->threads > WEFT_MAX_THREADS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, owner,
                              "%d threads; expected 0 (the default) to %d", o->threads,
                              WEFT_MAX_THREADS);
    if (!weft__allocator_valid(o->allocator))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, owner,
                              "the allocator needs both allocate and release");
    plans->session = (weft_session_options){.threads = o->threads, .poison = o->poison};
    if (o->pool) plans->pool = *o->pool;
    if (o->allocator) plans->allocator = *o->allocator;
    return WEFT_OK;
}

weft_params *weft__plans_store(const plan_list *plans, weft_error *error)
{
    weft_error e;
    weft_params *store = weft_params_new_with(&(weft_params_options){&plans->allocator}, &e);
    if (!store) weft_error_copy(error, &e);
    return store;
}

static void close_sessions(plan_list *plans, int lane)
{
    for (plan_entry *e = plans->first; e; e = e->next) {
        if (e->lane != lane) continue;
        weft_session_free(e->session);
        e->session = NULL;
    }
}

void weft__plans_add(plan_list *plans, plan_entry *entry)
{
    entry->next = plans->first;
    plans->first = entry;
    plans->count++;
}

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "session", "out of memory");
}

/* Grows memory that the sessions of a lane share to at least `bytes`. */
static weft_status grow(plan_list *plans, int lane, void **memory, size_t *have, size_t bytes,
                        weft_error *error)
{
    if (*memory && bytes <= *have) return WEFT_OK;
    close_sessions(plans, lane);
    weft__allocator_give(&plans->allocator, *memory, *have);
    *memory = weft__allocator_take_zeros(&plans->allocator, bytes, false, "session",
                                         "an arena or workspace that sessions share", error);
    *have = *memory ? bytes : 0;
    return *memory ? WEFT_OK : error->status;
}

/* Makes a lane, and all before it. */
static weft_status reserve_lane(plan_list *plans, int lane, weft_error *error)
{
    if (lane < plans->n_lanes) return WEFT_OK;
    plan_lane *lanes = realloc(plans->lanes, ((size_t)lane + 1) * sizeof *plans->lanes);
    if (!lanes) return no_memory(error);
    plans->lanes = lanes;
    while (plans->n_lanes <= lane) {
        const plan_lane new = {.arena_user = calloc(1, sizeof *new.arena_user)};
        if (!new.arena_user) return no_memory(error);
        lanes[plans->n_lanes++] = new;
    }
    return WEFT_OK;
}

weft_status weft__plans_open(plan_list *plans, plan_entry *entry, weft_error *error)
{
    const size_t arena_bytes = weft_plan_stats_of(entry->plan).arena_bytes;
    const size_t workspace_bytes = weft_plan_workspace_bytes(entry->plan, plans->session.threads);
    weft_status status = reserve_lane(plans, entry->lane, error);
    if (status != WEFT_OK) return status;
    plan_lane *lane = &plans->lanes[entry->lane];
    status = grow(plans, entry->lane, &lane->arena, &lane->arena_bytes, arena_bytes, error);
    if (status == WEFT_OK)
        status = grow(plans, entry->lane, &lane->workspace, &lane->workspace_bytes, workspace_bytes,
                      error);
    if (status != WEFT_OK || entry->session) return status;
    weft_session_options options = plans->session;
    options.pool = &plans->pool;
    options.allocator = &plans->allocator;
    options.arena = lane->arena;
    options.arena_bytes = lane->arena_bytes;
    options.arena_user = lane->arena_user;
    options.workspace = lane->workspace;
    options.workspace_bytes = lane->workspace_bytes;
    entry->session = weft_session_new(entry->plan, entry->store, &options, error);
    return entry->session ? WEFT_OK : error->status;
}

size_t weft__plans_arena_bytes(const plan_list *plans)
{
    size_t bytes = 0;
    for (int i = 0; i < plans->n_lanes; i++) bytes += plans->lanes[i].arena_bytes;
    return bytes;
}

void weft__plans_free(plan_list *plans)
{
    for (plan_entry *e = plans->first, *next; e; e = next) {
        next = e->next;
        weft_session_free(e->session);
        if (!e->borrowed) {
            weft_plan_free(e->plan);
            weft_graph_free(e->graph);
        }
        free(e);
    }
    for (int i = 0; i < plans->n_lanes; i++) {
        const plan_lane *lane = &plans->lanes[i];
        weft__allocator_give(&plans->allocator, lane->arena, lane->arena_bytes);
        weft__allocator_give(&plans->allocator, lane->workspace, lane->workspace_bytes);
        free(lane->arena_user);
    }
    free(plans->lanes);
    *plans = (plan_list){.first = NULL};
}

weft_status weft__plan_feed(plan_entry *entry, weft_value input, const void *data, size_t bytes,
                            weft_error *error)
{
    return weft_session_feed(entry->session, input, data, bytes, error);
}

weft_status weft__plan_run_before(plan_entry *entry, weft_value value, weft_error *error)
{
    return weft_session_run_before(entry->session, value, error);
}

weft_status weft__plan_run(plan_entry *entry, weft_error *error)
{
    return weft_session_run(entry->session, error);
}
