/* Plans for several shapes on one store: see plans.h. */
#include "plans.h"

#include <stdlib.h>

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

static weft_status no_memory(weft_error *error, size_t bytes)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "session",
                          "no memory for %zu bytes that sessions share", bytes);
}

/* Grows memory that the sessions of a lane share to at least `bytes`. */
static weft_status grow(plan_list *plans, int lane, void **memory, size_t *have, size_t bytes,
                        weft_error *error)
{
    if (*memory && bytes <= *have) return WEFT_OK;
    close_sessions(plans, lane);
    free(*memory);
    *memory = weft_alloc(bytes);
    *have = *memory ? bytes : 0;
    return *memory ? WEFT_OK : no_memory(error, bytes);
}

/* Makes a lane, and all before it. */
static weft_status reserve_lane(plan_list *plans, int lane, weft_error *error)
{
    if (lane < plans->n_lanes) return WEFT_OK;
    const size_t bytes = ((size_t)lane + 1) * sizeof *plans->lanes;
    plan_lane *lanes = realloc(plans->lanes, bytes);
    if (!lanes) return no_memory(error, bytes);
    plans->lanes = lanes;
    while (plans->n_lanes <= lane) {
        const plan_lane new = {.arena_user = calloc(1, sizeof *new.arena_user)};
        if (!new.arena_user) return no_memory(error, sizeof *new.arena_user);
        lanes[plans->n_lanes++] = new;
    }
    return WEFT_OK;
}

weft_status weft__plans_open(plan_list *plans, plan_entry *entry, weft_error *error)
{
    const size_t arena = weft_plan_stats_of(entry->plan).arena_bytes;
    const size_t workspace = weft_plan_workspace_bytes(entry->plan, plans->threads);
    weft_status status = reserve_lane(plans, entry->lane, error);
    if (status != WEFT_OK) return status;
    plan_lane *lane = &plans->lanes[entry->lane];
    status = grow(plans, entry->lane, &lane->arena, &lane->arena_bytes, arena, error);
    if (status == WEFT_OK)
        status =
            grow(plans, entry->lane, &lane->workspace, &lane->workspace_bytes, workspace, error);
    if (status != WEFT_OK || entry->session) return status;
    const weft_session_options options = {.threads = plans->threads,
                                          .seed = plans->seed,
                                          .communicators = plans->communicators,
                                          .n_communicators = plans->n_communicators,
                                          .arena = lane->arena,
                                          .arena_bytes = lane->arena_bytes,
                                          .arena_user = lane->arena_user,
                                          .workspace = lane->workspace,
                                          .workspace_bytes = lane->workspace_bytes};
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
        free(plans->lanes[i].arena);
        free(plans->lanes[i].workspace);
        free(plans->lanes[i].arena_user);
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
