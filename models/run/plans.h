/* Plans of one model for several shapes, on one parameter store.
 *
 * A user of this file builds a graph for each shape it meets and keeps the plans in a list of its
 * own, with `plan_entry` as the first member of its entries. All sessions share one arena and one
 * workspace, since only one of them runs at a time; what a run leaves for the next lies in the
 * store. */
#ifndef WEFT_MODELS_PLANS_H
#define WEFT_MODELS_PLANS_H

#include <weft/session.h>

typedef struct plan_entry {
    weft_graph *graph; /* NULL where it is not needed after planning */
    weft_plan *plan;
    weft_params *store;    /* of the session */
    weft_session *session; /* NULL until it is needed */
    struct plan_entry *next;
} plan_entry;

typedef struct plan_list {
    plan_entry *first; /* the newest */
    size_t count;
    int threads;
    uint64_t seed;
    void *arena, *workspace;
    size_t arena_bytes, workspace_bytes;
} plan_list;

/* Adds an entry, whose plan and store are set; the list owns it. */
void plans_add(plan_list *plans, plan_entry *entry);
/* Makes the entry's session, if it has none, and the shared memory large enough. Where that has to
 * grow, all sessions are closed first, and each is made anew when it is needed. */
weft_status plans_open(plan_list *plans, plan_entry *entry, weft_error *error);
/* Frees sessions, plans, entries and memory. */
void plans_free(plan_list *plans);

/* Feeds contiguous data, and runs; a failure is copied to *error. */
weft_status plan_feed(plan_entry *entry, weft_value input, const void *data, size_t bytes,
                      weft_error *error);
weft_status plan_run(plan_entry *entry, weft_error *error);

#endif
