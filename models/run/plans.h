/* Plans of one model for several shapes, on one parameter store.
 *
 * The user builds a graph for each new shape and adds its plan to a list. Entries of the list have
 * `plan_entry` as their first member. Only one session runs at a time, so all share one arena and
 * one workspace; data that must outlive a run is in the store. */
#ifndef WEFT_MODELS_PLANS_H
#define WEFT_MODELS_PLANS_H

#include <weft/session.h>

typedef struct plan_entry {
    weft_graph *graph; /* NULL if it is not needed after planning */
    weft_plan *plan;
    weft_params *store;    /* of the session */
    weft_session *session; /* NULL until the first use */
    struct plan_entry *next;
} plan_entry;

typedef struct plan_list {
    plan_entry *first; /* the newest */
    size_t count;
    int threads;
    uint64_t seed;
    weft_communicator *communicator; /* of all sessions; may be NULL */
    void *arena, *workspace;
    size_t arena_bytes, workspace_bytes;
} plan_list;

/* Adds an entry with plan and store. The list owns the entry. */
void plans_add(plan_list *plans, plan_entry *entry);
/* Makes the entry's session, if it has none, and grows the shared memory as needed. Growing closes
 * all sessions; each is remade at its next use. */
weft_status plans_open(plan_list *plans, plan_entry *entry, weft_error *error);
/* Frees sessions, plans, entries and memory. */
void plans_free(plan_list *plans);

/* Feed contiguous data, and run. A failure is copied to *error. */
weft_status plan_feed(plan_entry *entry, weft_value input, const void *data, size_t bytes,
                      weft_error *error);
weft_status plan_run(plan_entry *entry, weft_error *error);

#endif
