/* Rows of a profile: the time of its steps by node, op or scope.
 *
 * The waiting time of a barrier belongs to the steps since the barrier before it. They share it in
 * proportion to their compute time, or evenly if the clock saw none. The nodes of a loop's body have
 * rows as well. A hash table maps ops and scopes to rows, so rows take O(threads x steps). */
#include <weft/inspect.h>

#include "run/profile.h"

#include "base/hash.h"
#include "base/text.h"
#include "node_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A plan, or the body of one of its loops. */
typedef struct part {
    const profile_plan *plan;
    const struct part *outer; /* that has the loop; NULL: none */
    uint32_t loop;            /* the loop's step there */
    size_t first;             /* of its steps in the list of all */
    node_names names;         /* by node only */
} part;

/* What was measured of one step. */
typedef struct step_sample {
    const part *part;
    uint32_t step;
    double compute, waiting; /* seconds, over all threads */
    weft_cost cost;          /* of one call */
    uint64_t calls;
    size_t row; /* the row that it is added to */
} step_sample;

/* All steps, those of a part together, and the order in which they are shown: the steps of a body
 * follow their loop. */
typedef struct samples {
    const weft_profile *profile;
    part *parts;
    size_t n_parts;
    step_sample *steps;
    uint32_t *order;
    size_t n;
} samples;

static const node_record *node_of(const step_sample *s)
{
    const weft_plan *plan = s->part->plan->plan;
    return &plan->graph->nodes[plan->steps[s->step].node];
}

/* ---- Steps ---- */

/* Measures the steps [first, end) of one superstep: their compute time, and their waiting
 * time: for other processes, and their parts of the superstep's. */
static void measure_superstep(const weft_profile *p, const part *of, step_sample *steps,
                              size_t first, size_t end)
{
    const uint32_t superstep = of->plan->plan->steps[first].superstep;
    const double waiting =
        PROFILE_NS * (double)weft__profile_superstep_waiting(p, of->plan, superstep);
    double busy = 0;
    for (size_t i = first; i < end; i++) {
        steps[i].compute = PROFILE_NS * (double)weft__profile_step_compute(p, of->plan, i);
        steps[i].cost = weft__profile_step_cost(of->plan, i);
        steps[i].waiting = PROFILE_NS * (double)weft__profile_step_exchange(p, of->plan, i);
        busy += steps[i].compute + steps[i].waiting;
    }
    for (size_t i = first; i < end; i++) {
        const double own = steps[i].compute + steps[i].waiting;
        steps[i].waiting += waiting * (busy > 0 ? own / busy : 1 / (double)(end - first));
    }
}

static void measure_part(const weft_profile *p, const part *of, step_sample *steps)
{
    const weft_plan *plan = of->plan->plan;
    for (uint32_t i = 0; i < plan->n_steps; i++) steps[i].part = of, steps[i].step = i;
    for (size_t g = 0; g < plan->n_intervals; g++)
        for (uint32_t k = 0; k < plan->intervals[g].n_steps; k++)
            steps[plan->intervals[g].first_step + k].calls =
                weft__profile_interval_runs(p, of->plan, g);
    for (size_t first = 0, end; first < plan->n_steps; first = end) {
        for (end = first; end < plan->n_steps; end++)
            if (plan->steps[end].superstep != plan->steps[first].superstep) break;
        measure_superstep(p, of, steps, first, end);
    }
}

/* Adds the part at index `at` and those in it to the order. */
static void put_in_order(samples *s, size_t at)
{
    const weft_plan *plan = s->parts[at].plan->plan;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        s->order[s->n++] = (uint32_t)s->parts[at].first + i;
        for (size_t k = at + 1; plan->steps[i].loop && k < s->n_parts; k++)
            if (s->parts[k].outer == &s->parts[at] && s->parts[k].loop == i) put_in_order(s, k);
    }
}

static void count(const profile_plan *p, size_t *n_parts, size_t *n_steps)
{
    ++*n_parts;
    *n_steps += p->plan->n_steps;
    for (size_t i = 0; i < p->plan->n_loops; i++) count(&p->bodies[i], n_parts, n_steps);
}

/* Lists a plan and the bodies in it as parts. */
static void list_parts(samples *s, const profile_plan *p, const part *outer, uint32_t loop,
                       size_t *first)
{
    part *own = &s->parts[s->n_parts++];
    *own = (part){.plan = p, .outer = outer, .loop = loop, .first = *first};
    *first += p->plan->n_steps;
    for (uint32_t i = 0; i < p->plan->n_steps; i++)
        if (p->plan->steps[i].loop)
            list_parts(s, &p->bodies[p->plan->steps[i].loop - p->plan->loops], own, i, first);
}

static void close_samples(samples *s)
{
    for (size_t i = 0; s->parts && i < s->n_parts; i++) weft__node_names_free(&s->parts[i].names);
    free(s->parts);
    free(s->steps);
    free(s->order);
}

/* False if out of memory. */
static bool open_samples(samples *s, const weft_profile *p, bool names)
{
    size_t n_parts = 0, n = 0, first = 0;
    count(&p->all, &n_parts, &n);
    *s = (samples){.profile = p};
    s->parts = calloc(n_parts, sizeof *s->parts);
    s->steps = calloc(n + 1, sizeof *s->steps);
    s->order = calloc(n + 1, sizeof *s->order);
    bool good = s->parts && s->steps && s->order;
    if (good) list_parts(s, &p->all, NULL, 0, &first);
    for (size_t i = 0; good && i < s->n_parts; i++) {
        part *one = &s->parts[i];
        good = !names || weft__node_names_make(&one->names, one->plan->plan->graph);
        measure_part(p, one, s->steps + one->first);
    }
    if (good) put_in_order(s, 0);
    return good;
}

/* ---- Rows ---- */

/* Length of the first `depth` components of a scope; of all if depth is 0. */
static size_t scope_prefix(const char *scope, int depth)
{
    if (depth <= 0) return strlen(scope);
    size_t n = 0;
    for (; depth > 0 && scope[n]; depth--) {
        if (n) n++; /* the dot */
        n += weft__text_component(scope + n);
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
    if (by == WEFT_PROFILE_BY_OP) return hash_text(node->op->name);
    char prefix[SCOPE_BYTES];
    snprintf(prefix, sizeof prefix, "%.*s", (int)scope_prefix(node->scope, depth), node->scope);
    return hash_text(prefix);
}

/* Assigns a row to each step; first[row] becomes the row's first step. Returns the number of rows.
 * `table` has `slots` zeros, a power of two. */
static size_t number_rows(samples *s, weft_profile_by by, int depth, uint32_t *first,
                          uint32_t *table, size_t slots)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        step_sample *one = &s->steps[s->order[i]];
        const node_record *node = node_of(one);
        size_t slot = 0;
        if (by != WEFT_PROFILE_BY_NODE) {
            slot = row_hash(by, depth, node) & (slots - 1);
            for (; table[slot]; slot = (slot + 1) & (slots - 1))
                if (same_row(by, depth, node, node_of(&s->steps[first[table[slot] - 1]]))) break;
            if (table[slot]) {
                one->row = table[slot] - 1;
                continue;
            }
        }
        one->row = n;
        first[n++] = s->order[i];
        table[slot] = (uint32_t)n;
    }
    return n;
}

/* Texts, one after another; if `at` is NULL, only their bytes are counted. */
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

/* The name of a node, after those of the loops that it lies in. */
static const char *add_name(texts *t, const step_sample *s)
{
    char name[512];
    size_t at = sizeof name - 1;
    const part *of = s->part;
    uint32_t step = s->step;
    name[at] = 0;
    for (; of; step = of->loop, of = of->outer) {
        const char *own = of->names.at[of->plan->plan->steps[step].node];
        const size_t n = strlen(own), slash = name[at] != 0;
        if (n + slash > at) break;
        if (slash) name[--at] = '/';
        at -= n;
        memcpy(name + at, own, n);
    }
    return add_text(t, name + at, strlen(name + at));
}

static void name_row(weft_profile_by by, int depth, const step_sample *s, weft_profile_row *row,
                     texts *t)
{
    const node_record *node = node_of(s);
    const weft_graph *g = s->part->plan->plan->graph;
    const value_record *value = &g->values[node->first_out];
    char shape[160];
    *row = (weft_profile_row){.name = "", .op = "", .scope = "", .shape = "", .node = SIZE_MAX};
    if (by == WEFT_PROFILE_BY_SCOPE) {
        row->name = row->scope = add_text(t, node->scope, scope_prefix(node->scope, depth));
        return;
    }
    row->op = add_text(t, node->op->name, strlen(node->op->name));
    row->name = row->op;
    if (by == WEFT_PROFILE_BY_OP) return;
    const part *of = s->part;
    uint32_t step = s->step;
    for (; of->outer; of = of->outer) step = of->loop;
    row->node = of->plan->plan->steps[step].node;
    row->name = add_name(t, s);
    row->scope = add_text(t, node->scope, strlen(node->scope));
    int n = snprintf(shape, sizeof shape, "%s ", weft_dtype_name(value->type.dtype));
    weft_shape_text(value->type.shape, shape + n, sizeof shape - (size_t)n);
    row->shape = add_text(t, shape, strlen(shape));
}

static void add_step(weft_profile_row *row, const step_sample *s, const weft_peaks *peaks)
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

struct weft_profile_table {
    size_t n;
    weft_profile_row rows[]; /* [n], and then their texts */
};

/* NULL if out of memory. */
static weft_profile_table *make_table(const weft_profile *p, weft_profile_by by, int depth,
                                      const weft_peaks *peaks)
{
    samples s;
    weft_profile_table *made = NULL;
    weft_profile_row unused;
    const bool good = open_samples(&s, p, by == WEFT_PROFILE_BY_NODE);
    size_t slots = 64;
    while (slots < 2 * s.n) slots *= 2;
    uint32_t *first = calloc(s.n + 1, sizeof *first), *table = calloc(slots, sizeof *table);
    if (good && first && table) {
        const size_t n = number_rows(&s, by, depth, first, table, slots);
        texts t = {NULL, 0};
        for (size_t r = 0; r < n; r++) name_row(by, depth, &s.steps[first[r]], &unused, &t);
        made = malloc(sizeof *made + n * sizeof *made->rows + t.bytes);
        if (made) made->n = n;
        if (made) t = (texts){(char *)(made->rows + n), 0};
        for (size_t r = 0; r < n && made; r++)
            name_row(by, depth, &s.steps[first[r]], &made->rows[r], &t);
        for (size_t i = 0; i < s.n && made; i++)
            add_step(&made->rows[s.steps[i].row], &s.steps[i], peaks);
    }
    free(first);
    free(table);
    close_samples(&s);
    return made;
}

/* Why there can be no table; NULL if there can. */
static const char *refusal(const weft_profile *profile, weft_profile_by by, int depth,
                           const weft_peaks *peaks)
{
    if (!profile) return "the profile is NULL";
    if ((unsigned)by > WEFT_PROFILE_BY_SCOPE || depth < 0)
        return "rows are by node, op or scope, and depth is at least 0";
    if (peaks && !(peaks->flops_per_second > 0 && peaks->bytes_per_second > 0))
        return "the peaks must be above 0";
    return NULL;
}

weft_profile_table *weft_profile_table_new(const weft_profile *profile, weft_profile_by by,
                                           int depth, const weft_peaks *peaks, weft_error *error)
{
    weft_error_clear(error);
    const char *wrong = refusal(profile, by, depth, peaks);
    if (wrong) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "profile", "%s", wrong);
        return NULL;
    }
    weft_profile_table *made = make_table(profile, by, depth, peaks);
    if (!made) weft_error_set(error, WEFT_NO_MEMORY, "profile", "no memory for the rows");
    return made;
}

const weft_profile_row *weft_profile_table_rows(const weft_profile_table *table, size_t *count)
{
    if (count) *count = table ? table->n : 0;
    return table ? table->rows : NULL;
}

void weft_profile_table_free(weft_profile_table *table)
{
    free(table);
}
