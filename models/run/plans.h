/* Plans of one model for several shapes, on one parameter store.
 *
 * The caller builds a graph for each new shape and adds its plan to a list. Entries of the list
 * have `plan_entry` as their first member. Only one session of a lane runs at a time, so all of a
 * lane share one arena and one workspace; data that must outlive a run is in the store. Sessions of
 * several lanes may be in progress at a time (weft_session_run_before); most callers have one lane,
 * 0. */
#ifndef WEFT_MODELS_PLANS_H
#define WEFT_MODELS_PLANS_H

#include <weft/session.h>

typedef struct plan_entry {
    weft_graph *graph; /* NULL if it is not needed after planning */
    weft_plan *plan;
    weft_params *store;    /* of the session */
    weft_session *session; /* NULL until the first use */
    int lane;
    bool borrowed; /* graph and plan are those of another entry of the list */
    struct plan_entry *next;
} plan_entry;

/* What the sessions of a lane share. */
typedef struct plan_lane {
    void *arena, *workspace;
    const void **arena_user; /* the session that has used the arena last; lanes move, it stays */
    size_t arena_bytes, workspace_bytes;
} plan_lane;

typedef struct plan_list {
    plan_entry *first; /* the newest */
    size_t count;
    /* Of all sessions; memory, pool and allocator are added when one is made. Communicators must
     * outlive the sessions. */
    weft_session_options session;
    weft_thread_pool pool;
    weft_allocator allocator; /* of the lanes' memory, and of what else the owner allocates */
    plan_lane *lanes;
    int n_lanes;
} plan_list;

/* Makes an empty list, whose sessions will have these options: copies what a program may set
 * (weft/session.h), and refuses the rest in the name of `owner`. NULL options are the defaults. */
weft_status weft__plans_init(plan_list *plans, const weft_session_options *options,
                             const char *owner, weft_error *error);
/* An empty store, with tensors from the list's allocator; NULL on failure. */
weft_params *weft__plans_store(const plan_list *plans, weft_error *error);
/* Adds an entry with plan and store. The list owns the entry. */
void weft__plans_add(plan_list *plans, plan_entry *entry);
/* Makes the entry's session, if it has none, and grows the memory of its lane as needed. Growing
 * closes all sessions of the lane; each is remade at its next use. */
weft_status weft__plans_open(plan_list *plans, plan_entry *entry, weft_error *error);
/* Bytes of the arenas of all lanes. */
size_t weft__plans_arena_bytes(const plan_list *plans);
/* Frees sessions, plans, entries and memory. */
void weft__plans_free(plan_list *plans);

/* Feed contiguous data, and run. A failure is copied to *error. */
weft_status weft__plan_feed(plan_entry *entry, weft_value input, const void *data, size_t bytes,
                            weft_error *error);
weft_status weft__plan_run(plan_entry *entry, weft_error *error);
weft_status weft__plan_run_before(plan_entry *entry, weft_value value, weft_error *error);

#endif
