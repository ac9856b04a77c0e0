/* Profiles: where the time of a session's runs went.
 *
 * The executor notes nanoseconds by thread and step, and by thread and barrier (profile.h); here
 * they are summed up when asked for. A barrier's waiting belongs to the steps since the barrier
 * before it; they share it in proportion to their compute time, or evenly if the clock saw none. */
#include "profile.h"

#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Taking notes ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* One block: the record, then its arrays, each from a cache line on. */
static profile_thread *thread_new(const weft_profile *p)
{
    const weft_plan *plan = p->plan;
    size_t stretches = 0;
    for (size_t i = 0; i < plan->n_steps; i++) stretches += plan->steps[i].phases;
    size_t head = padded(sizeof(profile_thread)), compute = padded(8 * plan->n_steps);
    size_t fixed = head + compute + padded(8 * p->n_segments);
    size_t ring = padded(sizeof(profile_run)), events = padded(stretches * sizeof(profile_event));
    if (p->trace_runs > (SIZE_MAX / 2 - fixed) / (ring + events)) return NULL;
    size_t bytes = fixed + p->trace_runs * (ring + events);
    char *memory = weft_alloc(bytes);
    if (!memory) return NULL;
    profile_thread *t = (profile_thread *)memory;
    t->compute_ns = (uint64_t *)(memory + head);
    t->waiting_ns = (uint64_t *)(memory + head + compute);
    t->runs = (profile_run *)(memory + fixed);
    for (size_t r = 0; r < p->trace_runs; r++)
        t->runs[r].events = (profile_event *)(memory + fixed + p->trace_runs * ring + r * events);
    return t;
}

weft_profile *profile_new(const weft_plan *plan, int threads, size_t trace_runs)
{
    weft_profile *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->plan = plan;
    p->trace_runs = trace_runs;
    p->n_segments = plan->n_groups ? (size_t)plan->groups[plan->n_groups - 1].interval + 1 : 0;
    p->threads = calloc((size_t)threads, sizeof(profile_thread *));
    p->group_runs = calloc(plan->n_groups + 1, sizeof *p->group_runs);
    bool good = p->threads && p->group_runs;
    for (int t = 0; t < threads && good; t++) {
        p->threads[t] = thread_new(p);
        p->capacity = t + 1;
        good = p->threads[t] != NULL;
    }
    if (good) return p;
    profile_free(p);
    return NULL;
}

void profile_free(weft_profile *profile)
{
    if (!profile) return;
    for (int t = 0; t < profile->capacity; t++) free(profile->threads[t]);
    free(profile->threads);
    free(profile->group_runs);
    free(profile);
}

void profile_run_begin(weft_profile *p)
{
    p->begin_ns = profile_clock();
}

profile_thread *profile_thread_begin(weft_profile *p, int thread, int team)
{
    profile_thread *t = p->threads[thread];
    if (thread == 0) p->team = team;
    t->now_ns = p->begin_ns;
    t->segment = PROFILE_START;
    t->run = p->trace_runs ? &t->runs[p->runs % p->trace_runs] : NULL;
    if (t->run) t->run->n = 0;
    profile_waited(t);
    return t;
}

void profile_run_end(weft_profile *p)
{
    uint64_t now = profile_clock();
    for (int t = 0; t < p->team; t++) profile_waited_until(p->threads[t], now);
    /* A smaller team than before leaves notes of an older run in this place of the ring. */
    for (int t = p->team; t < p->capacity && p->trace_runs; t++)
        p->threads[t]->runs[p->runs % p->trace_runs].n = 0;
    p->wall_ns += now - p->begin_ns;
    p->thread_ns += (now - p->begin_ns) * (uint64_t)p->team;
    p->runs++;
}

/* ---- Sums ---- */

static const double second = 1e-9; /* of a nanosecond */

static uint64_t step_compute(const weft_profile *p, size_t step)
{
    uint64_t sum = 0;
    for (int t = 0; t < p->capacity; t++) sum += p->threads[t]->compute_ns[step];
    return sum;
}

static uint64_t segment_waiting(const weft_profile *p, size_t segment)
{
    uint64_t sum = 0;
    for (int t = 0; t < p->capacity; t++) sum += p->threads[t]->waiting_ns[segment];
    return sum;
}

weft_profile_totals weft_profile_get_totals(const weft_profile *p)
{
    weft_profile_totals total = {0};
    if (!p) return total;
    uint64_t compute = 0, waiting = 0, start = 0;
    for (size_t i = 0; i < p->plan->n_steps; i++) compute += step_compute(p, i);
    for (size_t i = 0; i < p->n_segments; i++) waiting += segment_waiting(p, i);
    for (int t = 0; t < p->capacity; t++) start += p->threads[t]->start_ns;
    for (size_t g = 0; g < p->plan->n_groups; g++) {
        const plan_group *group = &p->plan->groups[g];
        for (uint32_t i = group->first_step; i < group->first_step + group->n_steps; i++) {
            weft_cost cost = plan_step_cost(p->plan, &p->plan->steps[i]);
            total.flops += cost.flops * (double)p->group_runs[g];
            total.bytes += cost.bytes * (double)p->group_runs[g];
        }
    }
    total.runs = p->runs;
    total.threads = p->team;
    total.wall_seconds = second * (double)p->wall_ns;
    total.thread_seconds = second * (double)p->thread_ns;
    total.compute_seconds = second * (double)compute;
    total.waiting_seconds = second * (double)waiting;
    total.start_seconds = second * (double)start;
    return total;
}

/* ---- Rows ---- */

/* One row for each step. */
typedef struct step_row {
    double compute, waiting;
    weft_cost cost; /* of one call */
    uint64_t calls;
    size_t row; /* that it goes into */
} step_row;

/* Fills in what a segment's steps [first, end) computed, and their shares of its waiting. */
static void measure_segment(const weft_profile *p, step_row *steps, size_t first, size_t end)
{
    double compute = 0, waiting;
    waiting = second * (double)segment_waiting(p, p->plan->steps[first].interval);
    for (size_t i = first; i < end; i++) {
        steps[i].compute = second * (double)step_compute(p, i);
        steps[i].cost = plan_step_cost(p->plan, &p->plan->steps[i]);
        compute += steps[i].compute;
    }
    for (size_t i = first; i < end; i++)
        steps[i].waiting =
            waiting * (compute > 0 ? steps[i].compute / compute : 1 / (double)(end - first));
}

static void measure_steps(const weft_profile *p, step_row *steps)
{
    const weft_plan *plan = p->plan;
    for (size_t g = 0; g < plan->n_groups; g++)
        for (uint32_t k = 0; k < plan->groups[g].n_steps; k++)
            steps[plan->groups[g].first_step + k].calls = p->group_runs[g];
    for (size_t first = 0, end; first < plan->n_steps; first = end) {
        for (end = first; end < plan->n_steps; end++)
            if (plan->steps[end].interval != plan->steps[first].interval) break;
        measure_segment(p, steps, first, end);
    }
}

/* The bytes of the first `depth` components of a scope; of all if depth is 0. */
static size_t scope_prefix(const char *scope, int depth)
{
    if (depth <= 0) return strlen(scope);
    size_t n = 0;
    for (; depth > 0 && scope[n]; depth--) {
        if (n) n++; /* the dot */
        n += strcspn(scope + n, ".");
    }
    return n;
}

static bool same_row(weft_profile_by by, int depth, const node_record *a, const node_record *b)
{
    if (by == WEFT_PROFILE_BY_OP) return !strcmp(a->op->name, b->op->name);
    size_t n = scope_prefix(a->scope, depth), m = scope_prefix(b->scope, depth);
    return n == m && !memcmp(a->scope, b->scope, n);
}

static uint64_t row_hash(weft_profile_by by, int depth, const node_record *node)
{
    if (by == WEFT_PROFILE_BY_OP) return weft_hash_text(node->op->name);
    char prefix[SCOPE_BYTES];
    snprintf(prefix, sizeof prefix, "%.*s", (int)scope_prefix(node->scope, depth), node->scope);
    return weft_hash_text(prefix);
}

/* Gives each step its row; first[row] is the row's first step. Returns the number of rows. `table`
 * has room for `slots` (a power of two) and is all zeros. */
static size_t number_rows(const weft_profile *p, weft_profile_by by, int depth, step_row *steps,
                          uint32_t *first, uint32_t *table, size_t slots)
{
    const weft_plan *plan = p->plan;
    size_t n = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const node_record *node = &plan->graph->nodes[plan->steps[i].node];
        size_t slot = 0;
        if (by != WEFT_PROFILE_BY_NODE) {
            slot = row_hash(by, depth, node) & (slots - 1);
            for (; table[slot]; slot = (slot + 1) & (slots - 1)) {
                uint32_t other = plan->steps[first[table[slot] - 1]].node;
                if (same_row(by, depth, node, &plan->graph->nodes[other])) break;
            }
            if (table[slot]) {
                steps[i].row = table[slot] - 1;
                continue;
            }
        }
        steps[i].row = n;
        first[n++] = i;
        table[slot] = (uint32_t)n;
    }
    return n;
}

/* Texts laid end to end; with `at` NULL they are only counted. */
typedef struct texts {
    char *at;
    size_t bytes;
} texts;

static const char *add_text(texts *t, const char *text, size_t n)
{
    char *copy = t->at ? t->at + t->bytes : NULL;
    t->bytes += n + 1;
    if (!copy) return NULL;
    memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

static void name_row(const weft_profile *p, weft_profile_by by, int depth, uint32_t step,
                     weft_profile_row *row, texts *t)
{
    const weft_graph *g = p->plan->graph;
    const node_record *node = &g->nodes[p->plan->steps[step].node];
    const value_record *value = &g->values[node->first_out];
    char where[SCOPE_BYTES + 64], shape[160];
    *row = (weft_profile_row){.name = "", .op = "", .scope = "", .shape = "", .node = SIZE_MAX};
    if (by == WEFT_PROFILE_BY_SCOPE) {
        row->name = row->scope = add_text(t, node->scope, scope_prefix(node->scope, depth));
        return;
    }
    row->op = add_text(t, node->op->name, strlen(node->op->name));
    row->name = row->op;
    if (by == WEFT_PROFILE_BY_OP) return;
    row->node = p->plan->steps[step].node;
    const char *name =
        value->name ? value->name : graph_node_where(g, row->node, where, sizeof where);
    row->name = add_text(t, name, strlen(name));
    row->scope = add_text(t, node->scope, strlen(node->scope));
    int n = snprintf(shape, sizeof shape, "%s ", weft_dtype_name(value->type.dtype));
    weft_shape_text(value->type.shape, shape + n, sizeof shape - (size_t)n);
    row->shape = add_text(t, shape, strlen(shape));
}

static void add_step(weft_profile_row *row, const step_row *s, const weft_peaks *peaks)
{
    double calls = (double)s->calls;
    row->nodes++;
    row->calls += s->calls;
    row->compute_seconds += s->compute;
    row->waiting_seconds += s->waiting;
    row->flops += calls * s->cost.flops;
    row->bytes += calls * s->cost.bytes;
    if (peaks)
        row->roofline_seconds += calls * fmax(s->cost.flops / peaks->flops_per_second,
                                              s->cost.bytes / peaks->bytes_per_second);
}

/* Rows and texts in one block; NULL when memory is out. */
static weft_profile_row *make_rows(const weft_profile *p, weft_profile_by by, int depth,
                                   const weft_peaks *peaks, size_t *count)
{
    size_t n = p->plan->n_steps, slots = 64;
    while (slots < 2 * n) slots *= 2;
    step_row *steps = calloc(n + 1, sizeof *steps);
    uint32_t *first = calloc(n + 1, sizeof *first), *table = calloc(slots, sizeof *table);
    weft_profile_row *rows = NULL, unused;
    if (steps && first && table) {
        measure_steps(p, steps);
        *count = number_rows(p, by, depth, steps, first, table, slots);
        texts t = {NULL, 0};
        for (size_t r = 0; r < *count; r++) name_row(p, by, depth, first[r], &unused, &t);
        rows = malloc((*count + 1) * sizeof *rows + t.bytes);
        t = (texts){(char *)(rows + *count + 1), 0};
        for (size_t r = 0; r < *count && rows; r++) name_row(p, by, depth, first[r], &rows[r], &t);
        for (size_t i = 0; i < n && rows; i++) add_step(&rows[steps[i].row], &steps[i], peaks);
    }
    free(steps);
    free(first);
    free(table);
    return rows;
}

weft_status weft_profile_rows(const weft_profile *profile, weft_profile_by by, int depth,
                              const weft_peaks *peaks, weft_profile_row **rows, size_t *count,
                              weft_error *error)
{
    if (rows) *rows = NULL;
    if (count) *count = 0;
    if (!profile || !rows || !count)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "profile",
                              "the profile or a result is NULL");
    if ((unsigned)by > WEFT_PROFILE_BY_SCOPE || depth < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "profile",
                              "rows are by node, op or scope, and depth is at least 0");
    if (peaks && !(peaks->flops_per_second > 0 && peaks->bytes_per_second > 0))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "profile", "a peak is not above 0");
    *rows = make_rows(profile, by, depth, peaks, count);
    if (*rows) return WEFT_OK;
    *count = 0;
    return weft_error_set(error, WEFT_NO_MEMORY, "profile", "no memory for the rows");
}

void weft_profile_free_rows(weft_profile_row *rows)
{
    free(rows);
}

/* ---- The trace ---- */

static void json_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void trace_event(FILE *file, const weft_profile *p, int thread, size_t run,
                        const profile_event *e, uint64_t origin_ns)
{
    const weft_graph *g = p->plan->graph;
    const plan_step *step = &p->plan->steps[e->step];
    const node_record *node = &g->nodes[step->node];
    const value_record *value = &g->values[node->first_out];
    char text[SCOPE_BYTES + 64];
    uint64_t at = e->begin_ns - origin_ns, took = e->end_ns - e->begin_ns;
    fputs(",\n{\"ph\":\"X\",\"cat\":\"step\",\"name\":", file);
    json_text(file, node->op->name);
    fprintf(file,
            ",\"pid\":1,\"tid\":%d,\"ts\":%llu.%03u,\"dur\":%llu.%03u,\"args\":{\"node\":", thread,
            (unsigned long long)(at / 1000), (unsigned)(at % 1000),
            (unsigned long long)(took / 1000), (unsigned)(took % 1000));
    json_text(file, value->name ? value->name : graph_node_where(g, step->node, text, sizeof text));
    fprintf(file, ",\"shape\":\"%s %s\",\"phase\":%d,\"run\":%zu}}",
            weft_dtype_name(value->type.dtype),
            weft_shape_text(value->type.shape, text, sizeof text), e->phase, run);
}

weft_status weft_profile_trace(const weft_profile *p, FILE *file, weft_error *error)
{
    if (!p || !file)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trace", "the profile or the file is NULL");
    if (!p->trace_runs)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trace",
                              "no run was kept: switch measuring on with trace_runs above 0");
    size_t first = p->runs > p->trace_runs ? p->runs - p->trace_runs : 0;
    uint64_t origin = UINT64_MAX;
    for (int t = 0; t < p->team; t++) {
        const profile_run *run = &p->threads[t]->runs[first % p->trace_runs];
        if (run->n && run->events[0].begin_ns < origin) origin = run->events[0].begin_ns;
    }
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"weft\"}}",
          file);
    for (int t = 0; t < p->team; t++)
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,"
                "\"args\":{\"name\":\"thread %d\"}}",
                t, t);
    for (size_t r = first; r < p->runs; r++)
        for (int t = 0; t < p->capacity; t++) {
            const profile_run *run = &p->threads[t]->runs[r % p->trace_runs];
            for (size_t i = 0; i < run->n; i++) trace_event(file, p, t, r, &run->events[i], origin);
        }
    fputs("\n]}\n", file);
    /* Only flushing tells of a full disk. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "trace", "the file cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}

/* ---- The picture ---- */

typedef struct overlay {
    double *seconds; /* by node, over all threads */
    double whole, largest, runs, threads;
} overlay;

static void decorate(void *user, const weft_graph *graph, size_t index, weft_dot_node *node)
{
    const overlay *o = user;
    (void)graph;
    if (o->seconds[index] < 0 || o->whole <= 0) return;
    /* From white to red by the root of the share: a linear scale leaves all but a few white. */
    double heat = o->largest > 0 ? sqrt(o->seconds[index] / o->largest) : 0;
    int rest = 255 - (int)(190 * heat);
    snprintf(node->color, sizeof node->color, "#ff%02x%02x", (unsigned)rest & 255,
             (unsigned)rest & 255);
    text_format(node->line, sizeof node->line, "%.4g ms, %.2g %%",
                1e3 * o->seconds[index] / (o->runs * o->threads),
                100 * o->seconds[index] / o->whole);
}

weft_status weft_profile_dot(const weft_profile *profile, FILE *file, weft_error *error)
{
    weft_profile_row *rows;
    size_t n;
    weft_status status =
        weft_profile_rows(profile, WEFT_PROFILE_BY_NODE, 0, NULL, &rows, &n, error);
    if (status != WEFT_OK) return status;
    const weft_graph *g = profile->plan->graph;
    weft_profile_totals total = weft_profile_get_totals(profile);
    overlay o = {calloc(g->n_nodes + 1, sizeof(double)), total.thread_seconds, 0,
                 (double)total.runs, (double)total.threads};
    if (!o.seconds) {
        weft_profile_free_rows(rows);
        return weft_error_set(error, WEFT_NO_MEMORY, "dot", "no memory for the picture");
    }
    for (size_t i = 0; i < g->n_nodes; i++) o.seconds[i] = -1; /* does not compute */
    for (size_t i = 0; i < n; i++) {
        double seconds = rows[i].compute_seconds + rows[i].waiting_seconds;
        o.seconds[rows[i].node] = seconds;
        o.largest = fmax(o.largest, seconds);
    }
    weft_profile_free_rows(rows);
    status = weft_graph_dot(g, file, &(weft_dot_options){decorate, &o}, error);
    free(o.seconds);
    return status;
}
