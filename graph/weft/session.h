/* weft/session.h - running a plan: sessions, their threads, and profiles of their time. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include <weft/plan.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Threads -------------------------------------------------------------------------------- */

/* Sessions run on OpenMP's threads, unless the program lends its own (weft_session_options.pool).
 * Without OpenMP they run on the calling thread, or on the program's. Their results never depend on
 * the number of threads.
 *
 * Number: a session may have up to WEFT_MAX_THREADS, even more than there are processors, as long
 * as the plan has work for them. A run has a single thread if the plan is tiny, or if it starts
 * inside a parallel region of the program and OMP_MAX_ACTIVE_LEVELS does not allow another level.
 *
 * Creation: weft_session_new creates the threads. The first weft_session_run on another thread of
 * the program does so too, because OpenMP has separate threads for each. If the system refuses
 * some, all sessions of the calling thread run on fewer threads from then on.
 *
 * Stack: every function here needs at most WEFT_STACK_BYTES of its caller's stack, and up to 256
 * bytes more for each thread that it creates. OpenMP's threads also need WEFT_STACK_BYTES: if
 * OMP_STACKSIZE is smaller, weft_session_new and weft_session_run fail with WEFT_NO_MEMORY.
 *
 * fork: the child may run sessions of the parent, and new ones. If the parent had several threads,
 * the thread that forked runs sessions on itself alone, because the fork did not copy OpenMP's
 * threads. Other threads of the child are not limited. A session that another thread was running
 * during the fork must not be used in the child.
 *
 * OpenMP itself may still print a line about an environment variable that it does not understand.
 * It may end the process if memory, or the permitted number of threads, runs out just after weft
 * has checked them. weft does not protect the program's own parallel regions. */
#define WEFT_MAX_THREADS 1024
#define WEFT_STACK_BYTES 65536

/* The default number of threads: OpenMP's (omp_get_max_threads), but no more than the processors
 * that the process may use. */
WEFT_API int weft_default_threads(void);

/* ---- The session ---------------------------------------------------------------------------- */

/* Threads of the program that run a session, instead of OpenMP's.
 *
 * run calls function(argument, index) once for each index in [0, n_threads), and returns when these
 * calls have returned. The calls should run at the same time on different threads, of which the
 * calling thread may be one (index 0 is best: it begins at once). Results do not depend on when and
 * where: calls may begin late, in any order or one after another, and calls that run has not made
 * follow on the calling thread. An index that is out of range, or comes twice, is WEFT_BAD_ARGUMENT
 * from weft_session_run.
 *
 * Each call needs WEFT_STACK_BYTES of stack. In a run, threads wait for each other: they spin for
 * 50 us and then sleep. Sessions that run at the same time call `run` at the same time. Runs with
 * little work, or on one thread, do not use the pool. */
typedef struct weft_thread_pool {
    void (*run)(void *context, int n_threads, void (*function)(void *argument, int index),
                void *argument);
    void *context;
} weft_thread_pool;

/* weft_forward, weft_scorer, weft_decoder and weft_trainer make their sessions themselves, with
 * threads, pool, allocator and poison of such options. If another field is not zero, they fail with
 * WEFT_BAD_ARGUMENT: their sessions share an arena that they allocate, and the trainer has its own
 * options for the seed and the processes. */
struct weft_session_options {
    int threads;   /* 0: weft_default_threads(); at most WEFT_MAX_THREADS */
    uint64_t seed; /* of dropout and other random ops */
    /* Whose threads run the session. Copied; NULL, or one without `run`: OpenMP's. */
    const weft_thread_pool *pool;
    /* Of the arena and the workspace that the session allocates. Copied; NULL: weft's own. */
    const weft_allocator *allocator;
    /* Memory for buffers, 64-byte aligned, with at least the arena_bytes of the plan's statistics.
     * NULL: the session allocates and frees its own. Sessions may share one arena if only one runs
     * at a time. Then the results of a run last until another session is fed or runs, and so do
     * feeds; see arena_user. In an arena of the program's own, each run computes what a plan with
     * fixed_states computes in the first run only. */
    void *arena;
    size_t arena_bytes;
    /* Memory for the kernels, 64-byte aligned, with at least weft_plan_workspace_bytes bytes. NULL:
     * the session allocates and frees its own. Nothing in it lasts from run to run. */
    void *workspace;
    size_t workspace_bytes;
    /* The processes that the nodes of a graph exchange data with: group i is communicators[i]. They
     * must outlive the session; the array need not. The array and its elements may be NULL:
     * none. */
    weft_communicator *const *communicators;
    size_t n_communicators;
    bool poison; /* for tests: fill buffers with 0xFF before their first writer */
    /* The first run gives back the memory of states that it alone reads (with
     * weft_plan_options.fixed_states), such as weights that it packs, right after it has read them. So
     * the weights of a model are not in memory twice. Their numbers are lost: weft_params_find does not
     * find them any more, weft_params_hash leaves them out, weft_params_save and other sessions that
     * need them fail with WEFT_NOT_FOUND, and so do weft_session_find_nonfinite and a run after
     * weft_session_renew. Retained are states of less than 64 KiB, of another store
     * (weft_params_share) or of an allocator of the program, targets, and all if the session has a
     * watch or the program's arena. A profile counts the pieces of the first run as runs. */
    bool release_states;
    /* A pointer of the program's, NULL at first, the same for all sessions that share `arena`: the
     * sessions record in it which of them used the arena last. Then it is an error to read results,
     * or to run on feeds, that another session has overwritten. It must outlive the sessions. NULL:
     * this is not detected. */
    const void **arena_user;
};

/* The bytes of workspace that a session with that many threads needs; 0 threads is the default. */
WEFT_API size_t weft_plan_workspace_bytes(const weft_plan *plan, int threads);

/* The functions of <weft/weft.h> in full:
 *
 * weft_session_new binds a plan to memory and to the states of `params`, which must have all that
 * the plan uses (weft_params_init adds them).
 *
 * weft_session_feed accepts and ignores an input that the targets do not need. If the feed is
 * refused, the input counts as not fed, even if an earlier feed or a default was there: a run fails
 * until a feed succeeds.
 *
 * weft_session_run runs the plan once, and adds 1 to the run number. If an input that the plan
 * needs was never fed and has no default, or its last feed was refused, nothing runs and the result
 * is WEFT_NOT_FOUND with its name. If a kernel reports a fault (WEFT_BAD_INDEX, WEFT_NOT_FINITE),
 * the run ends at the next barrier; states are unchanged unless an update ran before. WEFT_PEER:
 * another process failed, or did not take part in an exchange; its communicator cannot be used any
 * more. If this run fails and the plan has exchanges, the runs of the other processes fail with
 * WEFT_PEER, whatever the error. Exception: a number that all processes received is not finite
 * (weft_require_finite); then all runs fail with the same error.
 *
 * weft_session_fetch copies a state as the store holds it. A target has the contents of the last
 * run: if there was none, or it failed or has stopped (weft_session_run_before), the result is
 * WEFT_NOT_FOUND. The same holds for an input that was not fed and has no default, and for all
 * other values. */

/* As weft_session_run, but stops before the node that computes `value`, and those that run side by
 * side with it. The next weft_session_run goes on from there, and inputs that only the rest reads
 * may be fed again in between. Exchanges that have begun stay under way, so a program can run other
 * sessions, each with an arena of its own, while it waits for data. A profile counts each part as a
 * run. The error is WEFT_BAD_ARGUMENT if the session has stopped already, or if no node computes
 * the value when the plan runs. */
WEFT_API weft_status weft_session_run_before(weft_session *session, weft_value value,
                                             weft_error *error);
/* weft_session_fetch without a copy: *tensor points into the session or the store, and its contents
 * are valid until the next run. Asking for an input marks it as fed: the program may write the feed
 * there. Errors are those of weft_session_fetch. */
WEFT_API weft_status weft_session_tensor(weft_session *session, weft_value value,
                                         weft_tensor *tensor, weft_error *error);
/* Finds the first node that computes a number that is not finite. For use after a run that went
 * wrong: it repeats that run, with the same feeds and number, node by node and without its updates,
 * and inspects all inputs, states and outputs. That is slow, and overwrites the targets. WEFT_OK if
 * everything is finite. WEFT_NOT_FINITE with the name of the node or state and the element in
 * *found; `found` may be NULL. WEFT_NOT_FOUND if an input was never fed. An infinity is allowed if
 * an attribute asks for it, and in results of infinities; NaN never is. */
WEFT_API weft_status weft_session_find_nonfinite(weft_session *session, weft_error *found);
/* Call this after changing states that the plan takes as fixed (weft_plan_options.fixed_states):
 * the next run computes again what depends on them alone. */
WEFT_API void weft_session_renew(weft_session *session);
/* Sets the number of the next run, which with the seed selects the numbers of random ops. It is 0
 * at first; each run adds 1. */
WEFT_API void weft_session_set_run_number(weft_session *session, uint64_t number);
/* ---- Watching values ------------------------------------------------------------------------- */

/* What a watch sees. All of it is valid during the call only. */
typedef struct weft_watched {
    weft_value value;   /* as weft_session_watch was given it */
    const char *name;   /* its name in weft_plan_graph; without one, "scope/op" */
    weft_tensor tensor; /* contiguous; to be read, not written */
    uint64_t run;       /* the number of the run */
} weft_watched;
/* Called on the thread that runs the session, while no kernel runs. False ends the run with
 * WEFT_CANCELLED: states are unchanged unless an update ran before. It may run other sessions, but
 * not use this one: runs and new watches fail with WEFT_BAD_ARGUMENT, and no watch is removed. */
typedef bool (*weft_watch_fn)(void *context, const weft_watched *watched);

/* Calls `callback` in each run of the session, right after the interval that computes `value`
 * has ended. `value` is any value of the program's graph; weft_graph_find returns one by its name.
 * Inputs, constants and states are seen before the first node runs, and the output of an update
 * after the update. What only the first run computes (weft_plan_options.fixed_states) is seen in
 * that run only. Watches that are called at the same point are called in the order in which they
 * were added.
 *
 * A watch costs the barriers around its calls; the bits of all results stay the same. Memory is
 * allocated here, and none in a run. A profile counts each part of a run between two calls as a
 * run, without the time of the calls.
 *
 * Fails with WEFT_NOT_FOUND if the value cannot be seen: no target needs it, a pass has replaced
 * it, or a node that is fused with its own overwrites each tile of it. The message says which and
 * what to do: a target of the plan can always be seen. WEFT_BAD_ARGUMENT if the session has stopped
 * (weft_session_run_before). */
WEFT_API weft_status weft_session_watch(weft_session *session, weft_value value,
                                        weft_watch_fn callback, void *context, weft_error *error);
/* Removes all watches of a value; of WEFT_NO_VALUE, those of all values. Returns how many. */
WEFT_API size_t weft_session_unwatch(weft_session *session, weft_value value);

/* ---- The profile ---------------------------------------------------------------------------- */

/* Where the time of a session's runs went. Every nanosecond of a thread, from the call of
 * weft_session_run to its end, counts as one of
 *
 *   compute: inside the kernels of a step;
 *   waiting: inside a step that ends an exchange, for other processes; and at the barrier after a
 *            step, until the last thread arrives. The end of the run is a barrier. Steps without a
 *            barrier between them share it in proportion to the rest of their time;
 *   start:   from the call of weft_session_run until the thread reaches the first step.
 *
 * In each run, the sum of the three over all threads is exactly threads x duration. */
typedef struct weft_profile weft_profile;

typedef struct weft_profile_options {
    size_t trace_runs; /* the number of latest runs that are recorded for the trace */
} weft_profile_options;

/* Switches the profile on, with all counts at zero, or off. It allocates all memory here and none
 * in a run. While it is off, it costs nothing. Results have the same bits either way. Do not call
 * this while the session runs. `options` may be NULL. If the result is WEFT_NO_MEMORY, nothing
 * changes. */
WEFT_API weft_status weft_session_profile(weft_session *session, bool on,
                                          const weft_profile_options *options, weft_error *error);
/* The profile; NULL if it was never switched on. The session owns it, until it is freed or the
 * profile is switched on again. Read it between runs. */
WEFT_API const weft_profile *weft_profile_of(const weft_session *session);

/* Sums over all runs. compute + waiting + start = thread_seconds. */
typedef struct weft_profile_totals {
    size_t runs;           /* including failed ones */
    int threads;           /* of the last run */
    double wall_seconds;   /* from calls of weft_session_run to their ends */
    double thread_seconds; /* the same, times the threads of each run */
    double compute_seconds, waiting_seconds, start_seconds; /* over all threads */
    double flops, bytes;                                    /* as the ops count them: weft_cost */
} weft_profile_totals;
/* Zeros for NULL. */
WEFT_API weft_profile_totals weft_profile_totals_of(const weft_profile *profile);

#ifdef __cplusplus
}
#endif
#endif
