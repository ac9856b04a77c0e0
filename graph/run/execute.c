/* The executor: one parallel region a run, in which every thread walks all intervals of the plan.
 *
 * The tiles of an interval form one sequence in which each takes up its estimated work. A short
 * sequence is split evenly among the threads. From a long one, threads claim slices, which shrink
 * towards the end, so that all threads finish at about the same time. A barrier separates two
 * supersteps (intervals that need none between them), and the two phases of an interval. It opens
 * when the work before it is finished, by whichever threads (progress.h). Tiles depend on shapes
 * alone and compute the same wherever they run, so results do not depend on the number of threads.
 * A run allocates nothing. */
#include "loop.h"
#include "team.h"

#include "base/float_env.h"
#include "base/openmp.h"

#include "ir/isa.h"

#include <stdlib.h>
#include <string.h>

/* ---- Tiles ---- */

/* The functions marked INLINE are compiled twice: with a profile's record, and for NULL without any
 * trace of it. */
#define INLINE static inline __attribute__((always_inline))

static void run_loop(const executor *e, uint32_t index);
static void run_loop_profiled(const executor *e, profile_thread *record, uint32_t index);

void weft__executor_run_step(const executor *e, uint32_t index)
{
    const plan_step *step = &e->plan->steps[index];
    if (step->loop) {
        run_loop(e, index);
        return;
    }
    const node_record *node = &e->plan->graph->nodes[step->node];
    const weft_tensor *out = &e->calls[2 * (size_t)index].out[0];
    if (!step->widens) {
        weft__call_run(node->op, step->kernel, &e->calls[2 * (size_t)index]);
        return;
    }
    weft_block all = {0, 1, 0, out->shape.rank ? out->shape.dim[out->shape.rank - 1] : 1};
    for (int d = 0; d < out->shape.rank - 1; d++) all.rows *= out->shape.dim[d];
    weft__run_block(e, step, &all);
}

/* The block of a fused group that a tile of its head computes. */
static weft_block fused_block(const plan_step *head, const weft_op *op, const weft_call *call,
                              int64_t tile)
{
    weft_block b;
    if (op->block) {
        op->block(call, tile, &b);
        return b;
    }
    int64_t across = (head->columns + head->block_columns - 1) / head->block_columns;
    b.row = tile / across * head->block_rows;
    b.column = tile % across * head->block_columns;
    b.rows = head->rows - b.row < head->block_rows ? head->rows - b.row : head->block_rows;
    b.columns = head->columns - b.column < head->block_columns ? head->columns - b.column
                                                               : head->block_columns;
    return b;
}

/* Runs tiles [from, to) of a head, and after each tile all fused steps on its block. */
INLINE void run_fused(const executor *e, profile_thread *record, uint32_t head, int phase,
                      int64_t from, int64_t to)
{
    const plan_step *steps = e->plan->steps, *first = &steps[head];
    const weft_op *op = e->plan->graph->nodes[first->node].op;
    const weft_call *call = &e->calls[2 * (size_t)head + (size_t)phase];
    const uint64_t begin = record ? record->now_ns : 0;
    for (int64_t tile = from; tile < to; tile++) {
        weft_block b = fused_block(first, op, call, tile);
        if (op->block)
            first->kernel(call, tile);
        else
            weft__run_block(e, first, &b);
        if (record) profile_charge(record, head);
        for (uint32_t i = head + 1; i <= head + first->n_fused; i++) {
            weft__run_block(e, &steps[i], &b);
            if (record) profile_charge(record, i);
        }
    }
    if (record) profile_fused(record, head, phase, begin);
}

/* The first tile of a step that begins at or after `work`, where tile 0 begins at `before`. */
static inline int64_t tile_after(const plan_step *step, int phase, int64_t before, int64_t work)
{
    if (work <= before || !step->tiles[phase]) return 0;
    int64_t each = step->tile_work[phase], tile = (work - before + each - 1) / each;
    return tile < step->tiles[phase] ? tile : step->tiles[phase];
}

/* Runs the tiles of an interval that begin in [begin, end) of its sequence, in nanoseconds of
 * work. */
INLINE void run_tiles(const executor *e, profile_thread *record, const plan_interval *interval,
                      int phase, int64_t begin, int64_t end)
{
    int64_t before = 0;
    for (uint32_t i = interval->first_step;
         i < interval->first_step + interval->n_steps && before < end; i++) {
        const plan_step *step = &e->plan->steps[i];
        if (phase >= step->phases || step->fused) continue;
        int64_t from = tile_after(step, phase, before, begin);
        int64_t to = tile_after(step, phase, before, end);
        const weft_call *call = &e->calls[2 * (size_t)i + (size_t)phase];
        if (e->run.workspace && from < to) *weft_call_panel_tag(call) = 0;
        if (step->by_block && phase == step->phases - 1) {
            run_fused(e, record, i, phase, from, to);
        } else {
            if (step->loop && from < to && record)
                run_loop_profiled(e, record, i);
            else if (step->loop && from < to)
                run_loop(e, i);
            for (int64_t tile = from; tile < to && step->kernel; tile++) step->kernel(call, tile);
            if (record && from < to) profile_computed(record, i, phase);
        }
        before += step->tile_work[phase] * step->tiles[phase];
    }
}

/* From this many nanoseconds of work on, threads claim slices of an interval, so that none waits
 * long for a slower one; and the work of the smallest slice. */
#define SLICED_WORK 200000
#define MIN_SLICE   10000

/* A thread of a run, and what it works on. */
typedef struct worker {
    executor *e;
    profile_thread *record; /* NULL unless a profile is on */
    int thread, threads;
    uint64_t spin_ns;  /* how long it spins when it waits: see weft__progress_spin */
    uint64_t slept_ns; /* how long it has slept in this run */
    bool loops;        /* in the body of a loop, which all threads share */
    uint64_t turn;     /* of that loop; otherwise 0 */
} worker;

static inline phase_progress *progress_of(executor *e, uint32_t g, int phase)
{
    return &e->progress[N_PHASES * (size_t)g + (size_t)phase];
}

/* Chunks of a short phase: a serial interval is one, which belongs to thread 0. */
static inline int chunks_of(const worker *w, const plan_interval *interval)
{
    if (interval->serial) return 1;
    const int most = w->loops ? MAX_TURN_CHUNKS : MAX_CHUNKS;
    return w->threads < most ? w->threads : most;
}

static inline bool is_sliced(const plan_interval *interval, int phase)
{
    return interval->work[phase] >= SLICED_WORK && !interval->serial;
}

/* Runs chunk `chunk` of a short phase, unless another thread has taken it. */
INLINE bool run_chunk(const worker *w, uint32_t g, int phase, int chunk)
{
    executor *e = w->e;
    const plan_interval *interval = &e->plan->intervals[g];
    const int64_t total = interval->work[phase], chunks = chunks_of(w, interval);
    const int64_t begin = total * chunk / chunks, end = total * (chunk + 1) / chunks;
    phase_progress *p = progress_of(e, g, phase);
    if (!(w->loops ? progress_take_in(p, chunk, w->turn) : progress_take(p, chunk))) return false;
    run_tiles(e, w->record, interval, phase, begin, end);
    weft__progress_add(&e->sleepers, &p->finished, (uint64_t)(end - begin),
                       (uint64_t)total * (w->turn + 1));
    return true;
}

/* Runs slices of a long phase until none is left. */
INLINE void run_slices(const worker *w, uint32_t g, int phase)
{
    executor *e = w->e;
    const plan_interval *interval = &e->plan->intervals[g];
    const uint64_t before = (uint64_t)interval->work[phase] * w->turn; /* of earlier turns */
    const uint64_t total = before + (uint64_t)interval->work[phase];
    phase_progress *p = progress_of(e, g, phase);
    unsigned long long begin = atomic_load_explicit(&p->taken, memory_order_relaxed);
    while (begin < total) {
        uint64_t slice = (total - begin) / (2 * (uint64_t)w->threads);
        uint64_t end = begin + (slice > MIN_SLICE ? slice : MIN_SLICE);
        if (end > total) end = total;
        if (!atomic_compare_exchange_weak_explicit(&p->taken, &begin, end, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        run_tiles(e, w->record, interval, phase, (int64_t)(begin - before),
                  (int64_t)(end - before));
        weft__progress_add(&e->sleepers, &p->finished, end - begin, total);
        begin = atomic_load_explicit(&p->taken, memory_order_relaxed);
    }
}

/* Runs one chunk of a phase that its own thread has not begun; false if there is none. While a
 * profile is on, OpenMP's threads run only their own chunks, so that runs are alike and a step has
 * one event on each thread. Some threads of a pool may never run. */
static __attribute__((noinline)) bool run_left_chunk(const worker *w, uint32_t g, int phase)
{
    const plan_interval *interval = &w->e->plan->intervals[g];
    const int chunks = chunks_of(w, interval);
    if ((w->record && !w->e->pool.run) || is_sliced(interval, phase)) return false;
    for (int chunk = 0; chunk < chunks; chunk++)
        if (run_chunk(w, g, phase, chunk)) return true;
    return false;
}

/* Returns when a phase is finished. */
INLINE void wait_for_phase(worker *w, uint32_t g, int phase)
{
    const uint64_t total = (uint64_t)w->e->plan->intervals[g].work[phase] * (w->turn + 1);
    const atomic_ullong *finished = &progress_of(w->e, g, phase)->finished;
    while (!progress_reached(finished, total) && !weft__progress_spin(finished, total, &w->spin_ns))
        if (!run_left_chunk(w, g, phase))
            w->slept_ns += weft__progress_sleep(&w->e->sleepers, finished, total);
}

/* Returns when an interval is finished. */
INLINE void wait_for_interval(worker *w, uint32_t g)
{
    if (w->threads == 1) return;
    for (int phase = 0; phase < w->e->plan->intervals[g].phases; phase++)
        wait_for_phase(w, g, phase);
}

/* One thread's chunk of a phase of an interval. */
INLINE void run_phase(const worker *w, uint32_t g, int phase)
{
    const plan_interval *interval = &w->e->plan->intervals[g];
    if (w->threads == 1)
        run_tiles(w->e, w->record, interval, phase, 0, interval->work[phase]);
    else if (is_sliced(interval, phase))
        run_slices(w, g, phase);
    else if (w->thread < chunks_of(w, interval))
        run_chunk(w, g, phase, w->thread);
}

/* ---- Intervals ---- */

/* Fills the buffers whose lifetimes begin in this interval, so that a read before the write is
 * detected. */
static void poison_interval(const executor *e, uint32_t g)
{
    const weft_plan *plan = e->plan;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        const weft_plan_buffer *b = &plan->buffers[i];
        if (b->first == g && !(g == 0 && b->last == plan->n_intervals) && !plan->given[i])
            memset(e->arena + b->offset, 0xFF, b->bytes);
    }
}

/* The same once for all threads, none of which begins the interval before. */
static void poison_once(const worker *w, uint32_t g)
{
    phase_progress *p = progress_of(w->e, g, POISON);
    if (w->loops ? progress_take_in(p, 0, w->turn) : progress_take(p, 0)) {
        poison_interval(w->e, g);
        weft__progress_add(&w->e->sleepers, &p->finished, 1, w->turn + 1);
    }
    weft__progress_sleep(&w->e->sleepers, &p->finished, w->turn + 1);
}

/* Whether the run ends before interval g: an earlier superstep has failed. All threads find the
 * same, because each waits for those supersteps first. */
static inline bool has_failed(const executor *e, uint32_t g)
{
    const weft_plan *plan = e->plan;
    const unsigned failed = atomic_load(&e->fault.step);
    return failed != NO_FAULT && plan->steps[failed].superstep < plan->intervals[g].superstep;
}

/* Thread 0 leaves the region last, so that it does not spin in OpenMP for a preempted thread. In a
 * pool another thread may not begin before this one has left. */
static void leave(worker *w)
{
    const uint64_t others = w->e->pool.run ? 0 : (uint64_t)w->threads - 1;
    atomic_ullong *left = &w->e->left;
    if (w->thread)
        weft__progress_add(&w->e->sleepers, left, 1, others);
    else if (!weft__progress_spin(left, others, &w->spin_ns))
        w->slept_ns += weft__progress_sleep(&w->e->sleepers, left, others);
    if (!w->thread) w->e->slept_ns = w->slept_ns;
}

/* Runs a thread's chunks of an interval. */
INLINE void run_phases(worker *w, uint32_t g)
{
    const plan_interval *interval = &w->e->plan->intervals[g];
    for (int phase = 0; phase < interval->phases; phase++) {
        if (phase && w->threads > 1 && interval->work[phase] && interval->work[0]) {
            if (!interval->serial || w->thread == 0) wait_for_phase(w, g, 0);
            if (w->record) profile_waited(w->record);
        }
        run_phase(w, g, phase);
    }
}

/* ---- Loops ---- */

static weft_status report_fault(const executor *e, unsigned step, weft_error *error);

/* Reports that a step of the loop has failed, as a failure of the scan. */
static void fail_loop(loop_run *l, int64_t step)
{
    weft_error cause = {.status = WEFT_OK}, error = {.status = WEFT_OK};
    report_fault(&l->body, atomic_load(&l->body.fault.step), &cause);
    weft_error_set(&error, cause.status, "scan", "step %lld, %s: %s", (long long)step, cause.where,
                   cause.message);
    weft__call_fail_with(l->call, &error);
}

static bool has_fault(const executor *e)
{
    return atomic_load(&e->fault.step) != NO_FAULT;
}

/* Runs a whole loop on the calling thread. `body` is the record of its body; NULL without a profile. */
INLINE void run_turns(const executor *e, profile_thread *record, profile_thread *body,
                      uint32_t index)
{
    loop_run *l = &e->loops[e->plan->steps[index].loop - e->plan->loops];
    const weft_plan *plan = l->body.plan;
    uint32_t first = 0; /* the interval that a step begins with */
    executor_clear_fault(&l->body);
    for (int64_t step = 0; (step = weft__loop_next(l, step)) < l->loop->scan->n; step++) {
        weft__loop_move(l, step);
        if (record) profile_loop(record, body, index);
        if (record) profile_turn(body, first == 0);
        for (uint32_t g = first; g < plan->n_intervals; g++) {
            const plan_interval *interval = &plan->intervals[g];
            if (l->body.poison) poison_interval(&l->body, g);
            for (int phase = 0; phase < interval->phases; phase++)
                run_tiles(&l->body, body, interval, phase, 0, interval->work[phase]);
        }
        first = plan->fixed_intervals;
        weft__loop_collect(l, step);
        if (!has_fault(&l->body)) continue;
        fail_loop(l, step);
        return;
    }
}

static __attribute__((noinline)) void run_loop(const executor *e, uint32_t index)
{
    run_turns(e, NULL, NULL, index);
}

static __attribute__((noinline)) void run_loop_profiled(const executor *e, profile_thread *record,
                                                        uint32_t index)
{
    const uint64_t begin = record->now_ns;
    profile_thread *body =
        profile_enter_body(record, (size_t)(e->plan->steps[index].loop - e->plan->loops));
    run_turns(e, record, body, index);
    profile_loop(record, body, index);
    profile_add_event(record, begin, index, 0);
}

/* Ends the turn before, and finds the step of the next one. */
static void change_turn(loop_run *l, bool first)
{
    const int64_t n = l->loop->scan->n;
    if (!first) weft__loop_collect(l, l->step);
    const bool failed = !first && has_fault(&l->body);
    if (failed) fail_loop(l, l->step);
    if (!failed) l->step = weft__loop_next(l, first ? 0 : l->step + 1);
    if (!failed && l->step < n)
        weft__loop_move(l, l->step);
    else
        atomic_store(&l->over, true);
}

/* Begins turn w->turn of a loop, once for all threads, when the turn before is finished: false if it
 * is not to run. A late thread goes on with the turn in which the others are. */
static bool begin_turn(worker *w, loop_run *l)
{
    phase_progress *p = &l->turn;
    const uint64_t begun = atomic_load_explicit(&p->finished, memory_order_acquire);
    if (begun > w->turn + 1) w->turn = begun - 1;
    if (progress_take_in(p, 0, w->turn)) {
        change_turn(l, w->turn == 0);
        if (w->record && !atomic_load(&l->over)) profile_turn(w->record, w->turn == 0);
        weft__progress_add(&w->e->sleepers, &p->finished, 1, w->turn + 1);
    }
    if (!progress_reached(&p->finished, w->turn + 1) &&
        !weft__progress_spin(&p->finished, w->turn + 1, &w->spin_ns))
        w->slept_ns += weft__progress_sleep(&w->e->sleepers, &p->finished, w->turn + 1);
    return !atomic_load(&l->over);
}

/* One thread's part of a loop whose steps the threads share. It ends when the loop is finished,
 * whichever threads ran it. */
INLINE void share_turns(worker *outer, loop_run *l, profile_thread *body, uint32_t index)
{
    const uint32_t n_intervals = (uint32_t)l->body.plan->n_intervals;
    worker w = {.e = &l->body,
                .record = body,
                .thread = outer->thread,
                .threads = outer->threads,
                .spin_ns = outer->spin_ns,
                .loops = true};
    for (; begin_turn(&w, l); w.turn++) {
        const uint32_t first = w.turn ? l->body.plan->fixed_intervals : 0;
        if (body) profile_loop(outer->record, body, index);
        for (uint32_t g = first; g < n_intervals; g++) {
            if (body) body->superstep = l->body.plan->intervals[g].superstep;
            if (g > first) wait_for_interval(&w, g - 1);
            if (w.e->poison) poison_once(&w, g);
            if (g > first && body) profile_waited(body);
            run_phases(&w, g);
        }
        if (first < n_intervals) wait_for_interval(&w, n_intervals - 1);
        if (body) profile_waited(body);
    }
    outer->slept_ns += w.slept_ns;
}

static __attribute__((noinline)) void share_loop(worker *outer, uint32_t index)
{
    executor *e = outer->e;
    const size_t loop = (size_t)(e->plan->steps[index].loop - e->plan->loops);
    if (outer->threads == 1) {
        run_loop(e, index);
        return;
    }
    share_turns(outer, &e->loops[loop], NULL, index);
}

static __attribute__((noinline)) void share_loop_profiled(worker *outer, uint32_t index)
{
    executor *e = outer->e;
    const size_t loop = (size_t)(e->plan->steps[index].loop - e->plan->loops);
    const uint64_t begin = outer->record->now_ns;
    if (outer->threads == 1) {
        run_loop_profiled(e, outer->record, index);
        return;
    }
    profile_thread *body = profile_enter_body(outer->record, loop);
    share_turns(outer, &e->loops[loop], body, index);
    profile_loop(outer->record, body, index);
    profile_add_event(outer->record, begin, index, 0);
}

/* ---- A thread ---- */

/* What each thread does. A thread enters an interval when all intervals before it are finished. */
INLINE void run_intervals(executor *e, weft_profile *profile, profile_thread *record, int thread,
                          int threads)
{
    const weft_plan *plan = e->plan;
    const float_env env = float_env_set();
    worker w = {e, record, thread, threads, e->spin_ns, 0, false, 0};
    uint32_t g = e->begin;
    for (; g < e->end; g++) {
        const plan_interval *interval = &plan->intervals[g];
        if (g > e->begin) {
            wait_for_interval(&w, g - 1);
            if (record) profile_waited(record);
        }
        if (g > e->begin && interval->superstep != plan->intervals[g - 1].superstep) {
            if (w.thread == 0 && e->run.exchanges) weft__exchanges_progress(&e->exchanges);
            if (has_failed(e, g)) break;
        }
        if (e->poison) {
            poison_once(&w, g);
            if (record) profile_waited(record);
        }
        if (record) profile_enter_interval(record, profile, g);
        if (interval->loop && record)
            share_loop_profiled(&w, interval->loop - 1);
        else if (interval->loop)
            share_loop(&w, interval->loop - 1);
        run_phases(&w, g);
    }
    if (g == e->end && g > e->begin) wait_for_interval(&w, g - 1);
    float_env_restore(env);
    leave(&w);
}

/* ---- A run ---- */

static void run_thread(void *data, int thread, int threads)
{
    run_intervals(data, NULL, NULL, thread, threads);
}

typedef struct profiled {
    executor *e;
    weft_profile *profile;
} profiled;

static void run_thread_profiled(void *data, int thread, int threads)
{
    const profiled *p = data;
    run_intervals(p->e, p->profile, weft__profile_thread_begin(p->profile, thread, threads), thread,
                  threads);
}

static weft_status run_team(executor *e, int team, weft_profile *profile, weft_error *error)
{
    profiled p = {e, profile};
    if (!profile) return weft__team_run(&e->pool, team, run_thread, e, error);
    weft__profile_run_begin(profile);
    const weft_status status = weft__team_run(&e->pool, team, run_thread_profiled, &p, error);
    weft__profile_run_end(profile);
    return status;
}

static weft_status report_fault(const executor *e, unsigned step, weft_error *error)
{
    const weft_graph *g = e->plan->graph;
    const size_t node = e->plan->steps[step].node;
    const fault *f = &e->fault;
    char where[256], producer[256];
    weft__graph_node_where(g, node, where, sizeof where);
    if (f->limit == FAULT_ERROR)
        return weft_error_set(error, f->error.status, where, "%s", f->error.message);
    if (f->limit >= 0)
        return weft_error_set(error, WEFT_BAD_INDEX, where, "index %lld is outside [0, %lld)",
                              (long long)f->index, (long long)f->limit);
    const value_record *input = &g->values[g->nodes[node].in[f->index]];
    const char *name = input->name;
    if (!name) name = weft__graph_node_where(g, input->node, producer, sizeof producer);
    return weft_error_set(error, WEFT_NOT_FINITE, where, "%s is not finite", name);
}

weft_status weft__executor_run(executor *e, uint32_t until, int team, weft_profile *profile,
                               weft_error *error)
{
    const bool resumed = executor_paused(e);
    /* A profile shows the team. */
    const bool whole = !resumed && until == e->plan->n_intervals && !profile;
    const bool alone = team > 1 && pace_team(&e->pace, team) == 1;
    const uint64_t begin = clock_ns();
    if (whole && alone) team = 1;
    e->begin = resumed ? e->end : e->first;
    e->end = until;
    executor_clear_fault(e);
    weft__loops_reset(e);
    if (!resumed) weft__exchanges_begin(&e->exchanges);
    e->spin_ns = team > omp_get_num_procs() ? MIN_SPIN_NS : SPIN_NS;
    atomic_init(&e->left, 0);
    executor_clear_progress(e, e->begin, e->end);
    weft_status status = run_team(e, team, profile, error);
    if (whole && (alone || team > 1))
        weft__pace_record(&e->pace, alone, clock_ns() - begin, e->slept_ns);
    const unsigned failed = atomic_load(&e->fault.step);
    if (failed == NO_FAULT && status == WEFT_OK) return WEFT_OK;
    e->end = 0;
    if (status == WEFT_OK) status = report_fault(e, failed, error);
    weft__exchanges_abandon(&e->exchanges, error);
    return status;
}
