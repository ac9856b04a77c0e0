/* Sessions: a plan bound to memory, and the executor.
 *
 * One parallel region a run. All threads walk the groups; the tiles of a group's nodes are laid end
 * to end and each thread takes a stretch of equal work, or slices of a long one as it gets free; a
 * barrier separates barrier intervals. The tiles come from shapes alone and each computes the same
 * wherever it runs, so the results do not depend on the number of threads. Everything a run needs
 * was made when the session was: it allocates nothing. */
#include "feeds.h"
#include "nonfinite.h"
#include "profile.h"
#include "team.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct weft_session {
    const weft_plan *plan;
    weft_params *params;
    weft_tensor *tensors; /* the plan's, with data */
    weft_call *calls;     /* two for each step: one a phase */
    char *arena, *workspace;
    bool owns_arena, owns_workspace, poison;
    int threads; /* that a run wakes if it can have them */
    weft_run_state run;
    atomic_llong *claimed; /* by group and phase: the work that threads have taken so far */
    fault fault;
    weft_profile *profile; /* NULL if there never was one */
    bool profiling;
    feeds feeds;
    weft_error error;
};

void weft_call_fail(const weft_call *call, int64_t index, int64_t limit)
{
    fault *f = call->run ? call->run->fault : NULL;
    if (!f) return;
    while (atomic_flag_test_and_set_explicit(&f->lock, memory_order_acquire)) {
    }
    unsigned step = atomic_load(&f->step);
    if (call->node < step || (call->node == step && index < f->index)) {
        f->index = index;
        f->limit = limit;
        atomic_store(&f->step, call->node);
    }
    atomic_flag_clear_explicit(&f->lock, memory_order_release);
}

void weft_call_not_finite(const weft_call *call, size_t input)
{
    weft_call_fail(call, (int64_t)input, -1);
}

int64_t *weft_call_panel_tag(const weft_call *call)
{
    const weft_run_state *run = call->run;
    return (int64_t *)(run->workspace + (size_t)omp_get_thread_num() * run->workspace_bytes);
}

void *weft_call_workspace(const weft_call *call)
{
    return (char *)weft_call_panel_tag(call) + PANEL_TAG_BYTES;
}

/* ---- Binding ---- */

static bool state_tensor(const weft_session *s, uint32_t root, weft_tensor *tensor,
                         weft_error *error)
{
    const value_record *v = &s->plan->graph->values[root];
    char have[128], want[128];
    if (!weft_params_get(s->params, v->name ? v->name : "", tensor)) {
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

static bool bind_operands(weft_session *s, weft_error *error)
{
    const weft_plan *plan = s->plan;
    for (size_t i = 0; i < plan->n_operands; i++) {
        const place *at = &plan->places[i];
        weft_tensor state;
        char *base = s->arena;
        s->tensors[i] = plan->tensors[i];
        if (at->kind == STORAGE_STATE) {
            if (!state_tensor(s, at->root, &state, error)) return false;
            base = state.data;
        } else if (at->kind == STORAGE_CONSTANT) {
            const value_record *v = &plan->graph->values[at->root];
            base = (char *)(uintptr_t)((const weft_constant_attr *)plan->graph->nodes[v->node].attr)
                       ->data;
        }
        s->tensors[i].data = base + at->offset;
    }
    for (size_t i = 0; i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        for (int phase = 0; phase < 2; phase++)
            s->calls[2 * i + (size_t)phase] =
                (weft_call){.attr = node->attr,
                            .in = s->tensors + step->first_operand,
                            .out = s->tensors + step->first_operand + node->n_in,
                            .n_in = node->n_in,
                            .n_out = node->op->n_out,
                            .scratch = s->arena + step->scratch,
                            .tiles = step->tiles[phase],
                            .phase = phase,
                            .run = &s->run,
                            .node = (uint32_t)i};
    }
    return true;
}

static bool take_arena(weft_session *s, const weft_session_options *o, weft_error *error)
{
    size_t bytes = s->plan->stats.arena_bytes;
    if (o->arena) {
        s->arena = o->arena;
        if (o->arena_bytes >= bytes && (uintptr_t)o->arena % 64 == 0) return true;
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       "the arena given has %zu bytes at %p; the plan needs %zu, 64-byte aligned",
                       o->arena_bytes, o->arena, bytes);
        return false;
    }
    s->owns_arena = true;
    s->arena = weft_alloc(bytes);
    if (!s->arena) {
        weft_error_set(error, WEFT_NO_MEMORY, "weft_session_new",
                       "no memory for an arena of %zu bytes", bytes);
        return false;
    }
    return true;
}

/* Tiles of a phase of a group: that many threads can have work. */
static int64_t group_tiles(const weft_plan *plan, const plan_group *group, int phase)
{
    int64_t tiles = 0;
    for (uint32_t i = 0; i < group->n_steps; i++) {
        const plan_step *step = &plan->steps[group->first_step + i];
        if (phase < step->phases && !step->fused) tiles += step->tiles[phase];
    }
    return tiles;
}

/* One thread where it would do everything anyway: waking the others takes longer than a tiny plan.
 * More than the processors as far as there are tiles. */
static int team_of(const weft_plan *plan, int threads)
{
    int64_t useful = 1, processors = omp_get_num_procs();
    if (threads <= 0) threads = weft_default_threads();
    for (size_t g = 0; g < plan->n_groups; g++) {
        const plan_group *group = &plan->groups[g];
        if (group->serial) continue;
        if (useful < processors) useful = processors;
        for (int phase = 0; phase < group->phases && useful < threads; phase++) {
            int64_t tiles = group_tiles(plan, group, phase);
            if (useful < tiles) useful = tiles;
        }
    }
    return threads < useful ? threads : (int)useful;
}

size_t weft_session_workspace(const weft_plan *plan, int threads)
{
    if (!plan) return 0;
    size_t each = plan->stats.workspace_bytes, n = (size_t)team_of(plan, threads);
    return each <= SIZE_MAX / n ? each * n : SIZE_MAX;
}

static bool take_workspace(weft_session *s, const weft_session_options *o, weft_error *error)
{
    size_t each = s->plan->stats.workspace_bytes;
    size_t bytes = weft_session_workspace(s->plan, s->threads);
    s->run.workspace_bytes = each;
    if (!bytes) return true;
    if (o->workspace) {
        s->workspace = s->run.workspace = o->workspace;
        if (o->workspace_bytes >= bytes && (uintptr_t)o->workspace % 64 == 0) return true;
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       "the workspace given has %zu bytes at %p; %d threads need %zu, 64-byte "
                       "aligned",
                       o->workspace_bytes, o->workspace, s->threads, bytes);
        return false;
    }
    s->owns_workspace = true;
    s->workspace = weft_alloc(bytes);
    s->run.workspace = s->workspace;
    if (s->workspace) return true;
    weft_error_set(error, WEFT_NO_MEMORY, "weft_session_new",
                   "no memory for %d workspaces of %zu bytes", s->threads, each);
    return false;
}

weft_session *weft_session_new(const weft_plan *plan, weft_params *params,
                               const weft_session_options *options, weft_error *error)
{
    static const weft_session_options defaults = {0};
    const weft_session_options *o = options ? options : &defaults;
    if (error) memset(error, 0, sizeof *error);
    if (!plan || o->threads < 0 || o->threads > WEFT_MAX_THREADS) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                       plan ? "%d threads; expected 0 (the default) to %d" : "the plan is NULL",
                       o->threads, WEFT_MAX_THREADS);
        return NULL;
    }
    weft_session *s = calloc(1, sizeof *s);
    bool good = s != NULL;
    int team;
    if (good) {
        s->plan = plan;
        s->params = params;
        s->threads = team_of(plan, o->threads);
        s->poison = o->poison;
        s->run = (weft_run_state){.seed = o->seed, .fault = &s->fault};
        atomic_flag_clear(&s->fault.lock);
        s->tensors = calloc(plan->n_operands + 1, sizeof *s->tensors);
        s->calls = calloc(2 * plan->n_steps + 1, sizeof *s->calls);
        s->claimed = calloc(2 * plan->n_groups + 1, sizeof *s->claimed);
        good = s->tensors && s->calls && s->claimed && feeds_init(&s->feeds, plan);
    }
    if (!good)
        weft_error_set(error, WEFT_NO_MEMORY, "weft_session_new", "no memory for the session");
    else
        good = take_arena(s, o, error) && take_workspace(s, o, error) && bind_operands(s, error) &&
               weft_team(s->threads, &team, error) == WEFT_OK;
    if (good) {
        feeds_fill_defaults(&s->feeds, plan, s->arena);
        return s;
    }
    weft_session_free(s);
    return NULL;
}

void weft_session_free(weft_session *session)
{
    if (!session) return;
    if (session->owns_arena) free(session->arena);
    if (session->owns_workspace) free(session->workspace);
    free(session->tensors);
    free(session->calls);
    free(session->claimed);
    free(session->feeds.state);
    profile_free(session->profile);
    free(session);
}

void weft_session_set_step(weft_session *session, uint64_t step)
{
    if (session) session->run.step = step;
}

const weft_error *weft_session_error(const weft_session *session)
{
    static const weft_error none = {WEFT_BAD_ARGUMENT, "session", "the session is NULL"};
    return session ? &session->error : &none;
}

/* ---- Data in and out ---- */

/* The plan's id of the user's value, 0 if the plan does not have it. */
static uint32_t planned_id(const weft_session *s, weft_value value)
{
    const weft_plan *plan = s->plan;
    return value.graph == plan->user_tag && value.id < plan->n_map ? plan->map[value.id] : 0;
}

/* What the program can read of a value, or write if it is an input. */
static bool find_tensor(const weft_session *session, weft_value value, weft_tensor *tensor)
{
    const weft_plan *plan = session->plan;
    uint32_t id = planned_id(session, value);
    if (!id) return false;
    const value_record *v = &plan->graph->values[id];
    const node_record *node = &plan->graph->nodes[v->node];
    const node_record *root = &plan->graph->nodes[plan->graph->values[v->root].node];
    /* A pass may have put a state in the place of what was computed from it: then it is not there
     * to be read, unless it is a target, of which the plan has seen to that. */
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

static bool tensor_for(weft_session *session, weft_value value, weft_tensor *tensor,
                       const char *function)
{
    memset(&session->error, 0, sizeof session->error);
    if (find_tensor(session, value, tensor)) return true;
    weft_error_set(
        &session->error, WEFT_NOT_FOUND, function,
        value.graph != session->plan->user_tag || !value.id || value.id >= session->plan->n_map
            ? "the value is none of the planned graph"
            : "the value cannot be read: expected a target of the plan, or an input or a "
              "state that it uses");
    return false;
}

bool weft_session_tensor(weft_session *session, weft_value value, weft_tensor *tensor)
{
    if (!session || !tensor || !tensor_for(session, value, tensor, "weft_session_tensor"))
        return false;
    if (session->plan->kinds[value.id] & VALUE_INPUT)
        feeds_give(&session->feeds, session->plan, planned_id(session, value), session->arena);
    return true;
}

static size_t tensor_bytes(const weft_tensor *t)
{
    return (size_t)weft_shape_numel(t->shape) * weft_dtype_bytes(t->dtype);
}

static weft_status wrong_bytes(weft_session *session, weft_value value, const weft_tensor *tensor,
                               const void *data, size_t bytes, const char *function)
{
    const weft_graph *g = session->plan->graph;
    const char *name = weft_name_of(g, graph_value(g, planned_id(session, value)));
    char text[128];
    return weft_error_set(&session->error, WEFT_BAD_ARGUMENT, function,
                          "\"%s\" is %s %s, %zu bytes; got %zu bytes%s",
                          name[0] ? name : "the value", weft_dtype_name(tensor->dtype),
                          weft_shape_text(tensor->shape, text, sizeof text), tensor_bytes(tensor),
                          bytes, data ? "" : " at NULL");
}

weft_status weft_feed(weft_session *session, weft_value input, const void *data, size_t bytes)
{
    if (!session) return WEFT_BAD_ARGUMENT;
    const weft_plan *plan = session->plan;
    weft_error *e = &session->error;
    memset(e, 0, sizeof *e);
    if (input.graph != plan->user_tag || !input.id || input.id >= plan->n_map)
        return weft_error_set(e, WEFT_BAD_ARGUMENT, "weft_feed",
                              "the value is none of the planned graph");
    uint32_t id = plan->map[input.id];
    if (!(plan->kinds[input.id] & VALUE_INPUT)) {
        const char *name = id ? weft_name_of(plan->graph, graph_value(plan->graph, id)) : "";
        return weft_error_set(e, WEFT_BAD_ARGUMENT, "weft_feed",
                              "\"%s\" is not an input of the graph", name[0] ? name : "the value");
    }
    weft_tensor tensor;
    if (!id) return WEFT_OK;
    if (!tensor_for(session, input, &tensor, "weft_feed")) return WEFT_INTERNAL;
    if (bytes != tensor_bytes(&tensor) || (!data && bytes))
        return wrong_bytes(session, input, &tensor, data, bytes, "weft_feed");
    feeds_give(&session->feeds, plan, id, session->arena);
    if (bytes) memcpy(tensor.data, data, bytes);
    normalise_bools(tensor.dtype, tensor.data, bytes);
    return WEFT_OK;
}

weft_status weft_fetch(weft_session *session, weft_value target, void *data, size_t bytes)
{
    weft_tensor tensor;
    if (!session) return WEFT_BAD_ARGUMENT;
    if (!tensor_for(session, target, &tensor, "weft_fetch")) return WEFT_NOT_FOUND;
    if (bytes != tensor_bytes(&tensor) || (!data && bytes))
        return wrong_bytes(session, target, &tensor, data, bytes, "weft_fetch");
    if (bytes) memcpy(data, tensor.data, bytes);
    return WEFT_OK;
}

/* ---- The profile ---- */

weft_status weft_session_profile(weft_session *session, bool on,
                                 const weft_profile_options *options)
{
    if (!session) return WEFT_BAD_ARGUMENT;
    memset(&session->error, 0, sizeof session->error);
    if (on) {
        size_t trace_runs = options ? options->trace_runs : 0;
        weft_profile *profile = profile_new(session->plan, session->threads, trace_runs);
        if (!profile)
            return weft_error_set(&session->error, WEFT_NO_MEMORY, "profile",
                                  "no memory for a profile with %zu runs traced", trace_runs);
        profile_free(session->profile);
        session->profile = profile;
    }
    session->profiling = on;
    return WEFT_OK;
}

const weft_profile *weft_session_get_profile(const weft_session *session)
{
    return session ? session->profile : NULL;
}

/* ---- The executor ---- */

/* What follows is compiled twice: with `notes`, and for NULL without a trace of them. */
#define INLINE static inline __attribute__((always_inline))

/* Runs a fused step, or a head whose op has no blocks of its own, on one block. */
static void run_block(const weft_session *s, const plan_step *step, const weft_block *b)
{
    const weft_plan *plan = s->plan;
    const node_record *node = &plan->graph->nodes[step->node];
    const weft_op *op = node->op;
    const unsigned by_row = op->elementwise ? ~0u : node_rows(node);
    const plan_matrix *m = plan->matrices + step->first_operand;
    weft_call call = s->calls[2 * (step - plan->steps)];
    weft_tensor t[MAX_FUSED_OPERANDS];
    for (size_t i = 0; i < call.n_in + call.n_out; i++) {
        const weft_tensor *whole = &call.in[i];
        if (i < call.n_in && !(by_row >> i & 1)) {
            t[i] = *whole;
            continue;
        }
        int64_t at = b->row * m[i].row + b->column * m[i].column;
        t[i] = (weft_tensor){.data =
                                 (char *)whole->data + at * (int64_t)weft_dtype_bytes(whole->dtype),
                             .dtype = whole->dtype,
                             .shape = {2, {b->rows, b->columns}},
                             .stride = {m[i].row, m[i].column}};
    }
    call.in = t;
    call.out = t + call.n_in;
    call.first = b->row * m[call.n_in].row + b->column;
    call.tiles = op_tiles(op, &call);
    for (int64_t tile = 0; tile < call.tiles; tile++) step->kernel(&call, tile);
}

/* The block of a fused group that a tile of its head stands for. */
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
INLINE void run_fused(const weft_session *s, profile_thread *notes, uint32_t head, int phase,
                      int64_t from, int64_t to)
{
    const plan_step *steps = s->plan->steps, *first = &steps[head];
    const weft_op *op = s->plan->graph->nodes[first->node].op;
    const weft_call *call = &s->calls[2 * (size_t)head + (size_t)phase];
    const uint64_t begin = notes ? notes->now_ns : 0;
    for (int64_t tile = from; tile < to; tile++) {
        weft_block b = fused_block(first, op, call, tile);
        if (op->block)
            first->kernel(call, tile);
        else
            run_block(s, first, &b);
        if (notes) profile_took_turn(notes, head);
        for (uint32_t i = head + 1; i <= head + first->n_fused; i++) {
            run_block(s, &steps[i], &b);
            if (notes) profile_took_turn(notes, i);
        }
    }
    if (notes) profile_fused(notes, head, phase, begin);
}

/* The first tile of a step that begins at or after `work`, where tile 0 begins at `before`. */
static inline int64_t tile_after(const plan_step *step, int phase, int64_t before, int64_t work)
{
    if (work <= before || !step->tiles[phase]) return 0;
    int64_t each = step->tile_work[phase], tile = (work - before + each - 1) / each;
    return tile < step->tiles[phase] ? tile : step->tiles[phase];
}

/* The tiles of a group lie end to end, each as long as its work: runs those that begin in
 * [begin, end). */
INLINE void run_tiles(const weft_session *s, profile_thread *notes, const plan_group *group,
                      int phase, int64_t begin, int64_t end)
{
    int64_t before = 0;
    for (uint32_t i = group->first_step; i < group->first_step + group->n_steps && before < end;
         i++) {
        const plan_step *step = &s->plan->steps[i];
        if (phase >= step->phases || step->fused) continue;
        int64_t from = tile_after(step, phase, before, begin);
        int64_t to = tile_after(step, phase, before, end);
        const weft_call *call = &s->calls[2 * (size_t)i + (size_t)phase];
        if (s->workspace && from < to) *weft_call_panel_tag(call) = 0;
        if (step->n_fused && phase == step->phases - 1) {
            run_fused(s, notes, i, phase, from, to);
        } else {
            for (int64_t tile = from; tile < to; tile++) step->kernel(call, tile);
            if (notes && from < to) profile_computed(notes, i, phase);
        }
        before += step->tile_work[phase] * step->tiles[phase];
    }
}

/* Work from which on threads take slices of a group as they get free, so that none waits long for
 * another that met slower tiles; below, each has its share from the start. In nanoseconds. */
#define SLICED_WORK 200000
#define MIN_SLICE   10000

/* One thread's share of a phase of a group. */
INLINE void run_share(weft_session *s, profile_thread *notes, uint32_t g, int phase, int thread,
                      int threads)
{
    const plan_group *group = &s->plan->groups[g];
    const int64_t total = group->work[phase];
    if (total < SLICED_WORK || threads == 1) {
        run_tiles(s, notes, group, phase, total * thread / threads, total * (thread + 1) / threads);
        return;
    }
    atomic_llong *claimed = &s->claimed[2 * (size_t)g + (size_t)phase];
    long long begin = atomic_load_explicit(claimed, memory_order_relaxed);
    while (begin < total) {
        long long slice = (total - begin) / (2 * threads), end;
        end = slice > MIN_SLICE ? begin + slice : begin + MIN_SLICE;
        if (!atomic_compare_exchange_weak_explicit(claimed, &begin, end, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        run_tiles(s, notes, group, phase, begin, end < total ? end : total);
        begin = atomic_load_explicit(claimed, memory_order_relaxed);
    }
}

/* Fills the buffers that begin to live in this group, so that a read before the write shows. */
static void poison_group(const weft_session *s, uint32_t g)
{
    const weft_plan *plan = s->plan;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        const weft_plan_buffer *b = &plan->buffers[i];
        if (b->first == g && !(g == 0 && b->last == plan->n_groups))
            memset(s->arena + b->offset, 0xFF, b->bytes);
    }
}

/* What each thread does. Every thread passes the same barriers: whether to stop is asked only just
 * after one, of steps that ran before it. */
INLINE void run_groups(weft_session *s, profile_thread *notes)
{
    const weft_plan *plan = s->plan;
    int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    if (threads == 1) omp_set_num_threads(1); /* see team_alone */
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const plan_group *group = &plan->groups[g];
        if (g && group->interval != plan->groups[g - 1].interval) {
#pragma omp barrier
            if (notes) profile_waited(notes);
            unsigned failed = atomic_load(&s->fault.step);
            if (failed != NO_FAULT && plan->steps[failed].interval < group->interval) break;
        }
        if (s->poison) {
#pragma omp barrier
            if (thread == 0) poison_group(s, g);
#pragma omp barrier
            if (notes) profile_waited(notes);
        }
        if (notes) profile_enter(notes, s->profile, g);
        for (int phase = 0; phase < group->phases; phase++) {
            if (group->serial) {
                if (thread == 0) run_tiles(s, notes, group, phase, 0, group->work[phase]);
                continue;
            }
            int64_t total = group->work[phase];
            if (phase && total && group->work[0]) {
#pragma omp barrier
                if (notes) profile_waited(notes);
            }
            run_share(s, notes, g, phase, thread, threads);
        }
    }
}

static void run_thread(weft_session *s)
{
    run_groups(s, NULL);
}

static void run_thread_profiled(weft_session *s)
{
    run_groups(s, profile_thread_begin(s->profile, omp_get_thread_num(), omp_get_num_threads()));
}

static void run_profiled(weft_session *s, int team)
{
    profile_run_begin(s->profile);
#pragma omp parallel num_threads(team)
    run_thread_profiled(s);
    profile_run_end(s->profile);
}

static void run_plain(weft_session *s, int team)
{
#pragma omp parallel num_threads(team)
    run_thread(s);
}

static weft_status report_not_finite(weft_session *s, unsigned step, const char *where)
{
    const weft_graph *g = s->plan->graph;
    uint32_t id = g->nodes[s->plan->steps[step].node].in[s->fault.index];
    char producer[256];
    const char *name = g->values[id].name;
    if (!name) name = graph_node_where(g, g->values[id].node, producer, sizeof producer);
    return weft_error_set(&s->error, WEFT_NOT_FINITE, where, "%s is not finite", name);
}

/* Defaults in an arena that is not the session's own may have been overwritten. */
static weft_status prepare_inputs(const weft_session *s, weft_error *error)
{
    if (!s->owns_arena) feeds_fill_defaults(&s->feeds, s->plan, s->arena);
    return feeds_check(&s->feeds, s->plan, error);
}

weft_status weft_run(weft_session *session)
{
    if (!session) return WEFT_BAD_ARGUMENT;
    fault *f = &session->fault;
    int team;
    memset(&session->error, 0, sizeof session->error);
    if (weft_team(session->threads, &team, &session->error) != WEFT_OK)
        return session->error.status;
    weft_status ready = prepare_inputs(session, &session->error);
    if (ready != WEFT_OK) return ready;
    atomic_store(&f->step, NO_FAULT);
    f->index = f->limit = 0;
    for (size_t i = 0; i < 2 * session->plan->n_groups; i++) atomic_init(&session->claimed[i], 0);
    if (session->profiling)
        run_profiled(session, team);
    else
        run_plain(session, team);
    session->run.step++;
    unsigned failed = atomic_load(&f->step);
    if (failed == NO_FAULT) return WEFT_OK;
    char where[256];
    graph_node_where(session->plan->graph, session->plan->steps[failed].node, where, sizeof where);
    if (f->limit < 0) return report_not_finite(session, failed, where);
    return weft_error_set(&session->error, WEFT_BAD_INDEX, where, "index %lld is outside [0, %lld)",
                          (long long)f->index, (long long)f->limit);
}

typedef struct nonfinite_run {
    const weft_session *session;
    weft_error *found;
    weft_status status;
} nonfinite_run;

static void find_nonfinite(void *data)
{
    nonfinite_run *r = data;
    r->status = nonfinite_find(r->session->plan, r->session->calls, r->found);
}

weft_status weft_session_find_nonfinite(weft_session *session, weft_error *found)
{
    if (!session) return WEFT_BAD_ARGUMENT;
    weft_error none = {0};
    nonfinite_run r = {session, found, WEFT_OK};
    if (found) *found = none;
    weft_status status = prepare_inputs(session, found);
    if (status != WEFT_OK) return status;
    session->run.step--; /* the run that went wrong has counted already */
    team_alone(find_nonfinite, &r);
    session->run.step++;
    return r.status;
}
