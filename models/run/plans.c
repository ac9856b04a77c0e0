/* Plans for several shapes on one store: see plans.h. */
#include "plans.h"

#include <stdlib.h>

static void close_sessions(plan_list *plans)
{
    for (plan_entry *e = plans->first; e; e = e->next) {
        weft_session_free(e->session);
        e->session = NULL;
    }
}

void plans_add(plan_list *plans, plan_entry *entry)
{
    entry->next = plans->first;
    plans->first = entry;
    plans->count++;
}

/* Grows memory that all sessions share to at least `bytes`. */
static weft_status grow(plan_list *plans, void **memory, size_t *have, size_t bytes,
                        weft_error *error)
{
    if (*memory && bytes <= *have) return WEFT_OK;
    close_sessions(plans);
    free(*memory);
    *memory = weft_alloc(bytes);
    *have = *memory ? bytes : 0;
    return *memory ? WEFT_OK
                   : weft_error_set(error, WEFT_NO_MEMORY, "session",
                                    "no memory for %zu bytes that sessions share", bytes);
}

weft_status plans_open(plan_list *plans, plan_entry *entry, weft_error *error)
{
    const size_t arena = weft_plan_get_stats(entry->plan).arena_bytes;
    const size_t workspace = weft_session_workspace(entry->plan, plans->threads);
    weft_status status = grow(plans, &plans->arena, &plans->arena_bytes, arena, error);
    if (status == WEFT_OK)
        status = grow(plans, &plans->workspace, &plans->workspace_bytes, workspace, error);
    if (status != WEFT_OK || entry->session) return status;
    const weft_session_options options = {.threads = plans->threads,
                                          .seed = plans->seed,
                                          .communicators = &plans->communicator,
                                          .n_communicators = plans->communicator != NULL,
                                          .arena = plans->arena,
                                          .arena_bytes = plans->arena_bytes,
                                          .workspace = plans->workspace,
                                          .workspace_bytes = plans->workspace_bytes};
    entry->session = weft_session_new(entry->plan, entry->store, &options, error);
    return entry->session ? WEFT_OK : error->status;
}

void plans_free(plan_list *plans)
{
    close_sessions(plans);
    for (plan_entry *e = plans->first, *next; e; e = next) {
        next = e->next;
        weft_plan_free(e->plan);
        weft_graph_free(e->graph);
        free(e);
    }
    free(plans->arena);
    free(plans->workspace);
    *plans = (plan_list){.first = NULL};
}

static weft_status copy_error(const plan_entry *entry, weft_error *error)
{
    const weft_error *e = weft_session_error(entry->session);
    return weft_error_copy(error, e);
}

weft_status plan_feed(plan_entry *entry, weft_value input, const void *data, size_t bytes,
                      weft_error *error)
{
    weft_status status = weft_feed(entry->session, input, data, bytes);
    return status == WEFT_OK ? WEFT_OK : copy_error(entry, error);
}

weft_status plan_run(plan_entry *entry, weft_error *error)
{
    weft_status status = weft_run(entry->session);
    return status == WEFT_OK ? WEFT_OK : copy_error(entry, error);
}
