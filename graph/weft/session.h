/* weft/session.h - running a plan: sessions, their threads, and profiles of where the time goes. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include <weft/plan.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Threads -------------------------------------------------------------------------------- */

/* Sessions run on OpenMP's threads; results never depend on how many there are.
 *
 * A session may have up to WEFT_MAX_THREADS, more than there are processors too, as far as the plan
 * has work to share out. weft_session_new makes the threads, and so does the first weft_run of
 * another thread of the program, which has OpenMP threads of its own. If the system refuses some,
 * the calling thread's sessions run on fewer from then on. A run has one thread if the plan is
 * tiny, and inside a parallel region of the program, unless OMP_MAX_ACTIVE_LEVELS allows more.
 *
 * Stack: every function here works in WEFT_STACK_BYTES, called from whichever thread; making the
 * threads takes up to 256 bytes more for each. OpenMP's threads need as much: with a smaller
 * OMP_STACKSIZE, weft_session_new and weft_run return WEFT_NO_MEMORY.
 *
 * fork: in the child, the thread that forked runs sessions, those of the parent and new ones, on
 * itself alone if the parent had other threads, since OpenMP's are gone. Other threads of the child
 * run sessions on as many as in any process. A session that another thread was running at the fork
 * must not be used in the child.
 *
 * What OpenMP itself may still do: print a line about an environment variable that it does not
 * understand; and end the process when memory, or the permitted number of threads, runs out between
 * weft's trial and the use. The program's own parallel regions are not protected. */
#define WEFT_MAX_THREADS 1024
#define WEFT_STACK_BYTES 65536

/* The threads that a session has if it is not told: OpenMP's default (omp_get_max_threads), but no
 * more than the processors that the process may use. */
WEFT_API int weft_default_threads(void);

/* ---- The session ---------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

typedef struct weft_session_options {
    int threads;   /* 0: weft_default_threads(); at most WEFT_MAX_THREADS */
    uint64_t seed; /* of dropout and other random ops */
    void *arena;   /* NULL: the session allocates its own. 64-byte aligned; sessions may share one
                      arena if they do not run at the same time and fetch before the next; a feed
                      then lasts until another of them is fed or runs */
    size_t arena_bytes;
    void *workspace; /* what the kernels work in, likewise; nothing in it lasts from run to run */
    size_t workspace_bytes; /* at least weft_session_workspace */
    bool poison; /* fill buffers with 0xFF before their first writer: finds stale reads */
} weft_session_options;

/* Binds a plan to an arena and to the states of `params` (all must be there: weft_params_init).
 * The plan and the parameters must outlive the session. Returns NULL on failure. */
WEFT_API weft_session *weft_session_new(const weft_plan *plan, weft_params *params,
                                        const weft_session_options *options, weft_error *error);
WEFT_API void weft_session_free(weft_session *session);
/* The bytes of workspace that a session with `threads` of weft_session_options needs. */
WEFT_API size_t weft_session_workspace(const weft_plan *plan, int threads);

/* Copies contiguous data into an input; `bytes` must be its size. An input that the targets do not
 * need is accepted and ignored. A failing call of this section sets weft_session_error. */
WEFT_API weft_status weft_feed(weft_session *session, weft_value input, const void *data,
                               size_t bytes);
/* Runs the plan once. WEFT_NOT_FOUND, with the name of an input that was never fed and has no
 * default, before anything ran. On another failure (an index out of range in the data) nothing
 * later than the failing group has run: states are as before if no update came earlier. Adds one to
 * the step, unless an input was not fed. */
WEFT_API weft_status weft_run(weft_session *session);
/* Copies a target, an input, or a state as the store holds it out as contiguous data; `bytes` must
 * be its size. WEFT_NOT_FOUND if the value is none of them. */
WEFT_API weft_status weft_fetch(weft_session *session, weft_value target, void *data, size_t bytes);
/* The same without a copy: valid until the next run. False if the value is none of them. What is
 * written to the tensor of an input is its feed: the input counts as fed. */
WEFT_API bool weft_session_tensor(weft_session *session, weft_value value, weft_tensor *tensor);
/* Finds out where numbers stop being finite: runs the plan again on the same feeds and step, node
 * by node and without its updates, and looks at what each node reads of states and what it writes.
 * WEFT_OK if all is finite; WEFT_NOT_FINITE, and in *found (may be NULL) the first node's name and
 * the element, or the state's; WEFT_NOT_FOUND if an input was never fed. Infinities that an
 * attribute asks for, and what comes of them, are allowed; NaN never. What targets held is lost.
 * For use after a run that went wrong: it is slow.
 */
WEFT_API weft_status weft_session_find_nonfinite(weft_session *session, weft_error *found);
/* The number that random ops take their stream from: 0 at first, one more after each run. */
WEFT_API void weft_session_set_step(weft_session *session, uint64_t step);
WEFT_API const weft_error *weft_session_error(const weft_session *session);

/* ---- The profile ---------------------------------------------------------------------------- */

/* Where the time of a session's runs went. A thread reads the clock at the end of each stretch of a
 * step that it computed and after each barrier, so that all its time from the beginning of weft_run
 * to its end is one of
 *   compute: inside the kernels of a step;
 *   waiting: at the barrier behind a step (the end of the run is one), until the last thread came.
 *            Steps with no barrier between them share it in proportion to their compute time;
 *   start:   from the call of weft_run until the thread came to the first step.
 * Added up over the threads the three are exactly threads x duration, run by run. */
typedef struct weft_profile weft_profile;

typedef struct weft_profile_options {
    size_t trace_runs; /* runs, the latest ones, of which each stretch is kept for the trace */
} weft_profile_options;

/* Switches measuring on, from zero, or off. All memory is taken here and none in a run; switched
 * off a run does nothing for it. The results of runs are the same bits. `options` may be NULL. Not
 * while the session runs. WEFT_NO_MEMORY leaves all as it was; weft_session_error tells more. */
WEFT_API weft_status weft_session_profile(weft_session *session, bool on,
                                          const weft_profile_options *options);
/* What was measured; NULL if it was never switched on. It is the session's, until that is freed or
 * measuring is switched on again; read it between runs. */
WEFT_API const weft_profile *weft_session_get_profile(const weft_session *session);

/* Sums over all runs. compute + waiting + start = thread_seconds. */
typedef struct weft_profile_totals {
    size_t runs;           /* failed ones included */
    int threads;           /* of the last run */
    double wall_seconds;   /* of the runs, from the call of weft_run to its end */
    double thread_seconds; /* the same times the threads */
    double compute_seconds, waiting_seconds, start_seconds; /* over all threads */
    double flops, bytes;                                    /* as the ops count them */
} weft_profile_totals;
WEFT_API weft_profile_totals weft_profile_get_totals(const weft_profile *profile);

/* What the machine reaches at best on all threads: see <weft/measure.h>. */
typedef struct weft_peaks {
    double flops_per_second, bytes_per_second;
} weft_peaks;

typedef enum weft_profile_by {
    WEFT_PROFILE_BY_NODE, /* a row for each node of weft_plan_graph that computes */
    WEFT_PROFILE_BY_OP,
    WEFT_PROFILE_BY_SCOPE
} weft_profile_by;

typedef struct weft_profile_row {
    const char
        *name; /* of the node's value, or scope/op; of the op; of the scope, which may be "" */
    const char *op, *scope; /* of a node; "" in other rows, but for the one that gives the name */
    const char *shape;      /* of a node: of its first output, "f32 [2, 3]"; else "" */
    size_t node;            /* of a node: its index in weft_plan_graph; else SIZE_MAX */
    size_t nodes;           /* in this row */
    uint64_t calls;         /* runs of its nodes */
    double compute_seconds, waiting_seconds; /* over all threads */
    double flops, bytes;                     /* of all calls, as the ops count them */
    /* What all calls would take with all threads at the peaks: of each the longer of flops and
     * bytes over its rate (the roofline, Williams et al. 2009). 0 without peaks. */
    double roofline_seconds;
} weft_profile_row;

/* Rows in order of first appearance in the schedule. `depth` > 0 keeps that many components of a
 * scope ("enc.0" of "enc.0.attn.q" for 2). `peaks` may be NULL. The rows and their texts are one
 * block of memory, the caller's, to be given back to weft_profile_free_rows; they do not need the
 * profile any more. */
WEFT_API weft_status weft_profile_rows(const weft_profile *profile, weft_profile_by by, int depth,
                                       const weft_peaks *peaks, weft_profile_row **rows,
                                       size_t *count, weft_error *error);
WEFT_API void weft_profile_free_rows(weft_profile_row *rows);

/* Writes the kept runs as a trace for Perfetto or chrome://tracing: JSON of the Trace Event Format,
 * a track for each thread, an event for each stretch of a step. Gaps are waiting. */
WEFT_API weft_status weft_profile_trace(const weft_profile *profile, FILE *file, weft_error *error);
/* Draws the graph that was run: nodes that compute are the redder the larger their share of the
 * time (compute and waiting), and say time a run and share. */
WEFT_API weft_status weft_profile_dot(const weft_profile *profile, FILE *file, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
