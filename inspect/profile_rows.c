/* Rows of a profile: the time of its steps by node, op or scope.
 *
 * The waiting time of a barrier belongs to the steps since the barrier before it. They share it in
 * proportion to their compute time, or evenly if the clock saw none. A hash table maps ops and
 * scopes to rows, so rows take O(threads x steps). */
#include <weft/inspect.h>

#include "run/profile.h"

#include "base/hash.h"
#include "base/text.h"
#include "node_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What was measured of one step. */
typedef struct step_sample {
    double compute, waiting; /* seconds, over all threads */
    weft_cost cost;          /* of one call */
    uint64_t calls;
    size_t row; /* the row that it is added to */
} step_sample;

/* Measures the steps [first, end) of one superstep: their compute time, and their waiting
 * time: for other processes, and their parts of the superstep's. */
static void measure_superstep(const weft_profile *p, step_sample *steps, size_t first, size_t end)
{
    double busy = 0, waiting;
    waiting =
        PROFILE_NS * (double)weft__profile_superstep_waiting(p, p->plan->steps[first].superstep);
    for (size_t i = first; i < end; i++) {
        steps[i].compute = PROFILE_NS * (double)weft__profile_step_compute(p, i);
        steps[i].cost = weft__plan_step_cost(p->plan, &p->plan->steps[i]);
        steps[i].waiting = PROFILE_NS * (double)weft__profile_step_exchange(p, i);
        busy += steps[i].compute + steps[i].waiting;
    }
    for (size_t i = first; i < end; i++) {
        const double own = steps[i].compute + steps[i].waiting;
        steps[i].waiting += waiting * (busy > 0 ? own / busy : 1 / (double)(end - first));
    }
}

static void measure_steps(const weft_profile *p, step_sample *steps)
{
    const weft_plan *plan = p->plan;
    for (size_t g = 0; g < plan->n_intervals; g++)
        for (uint32_t k = 0; k < plan->intervals[g].n_steps; k++)
            steps[plan->intervals[g].first_step + k].calls = p->interval_runs[g];
    for (size_t first = 0, end; first < plan->n_steps; first = end) {
        for (end = first; end < plan->n_steps; end++)
            if (plan->steps[end].superstep != plan->steps[first].superstep) break;
        measure_superstep(p, steps, first, end);
    }
}

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
static size_t number_rows(const weft_profile *p, weft_profile_by by, int depth, step_sample *steps,
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

/* `names`: of the nodes; needed by node only. */
static void name_row(const weft_profile *p, weft_profile_by by, int depth, uint32_t step,
                     const char *const *names, weft_profile_row *row, texts *t)
{
    const weft_graph *g = p->plan->graph;
    const node_record *node = &g->nodes[p->plan->steps[step].node];
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
    row->node = p->plan->steps[step].node;
    row->name = add_text(t, names[row->node], strlen(names[row->node]));
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
    size_t n = p->plan->n_steps, count, slots = 64;
    while (slots < 2 * n) slots *= 2;
    step_sample *steps = calloc(n + 1, sizeof *steps);
    uint32_t *first = calloc(n + 1, sizeof *first), *table = calloc(slots, sizeof *table);
    weft_profile_table *made = NULL;
    weft_profile_row unused;
    node_names names = {.at = NULL};
    if (steps && first && table &&
        (by != WEFT_PROFILE_BY_NODE || weft__node_names_make(&names, p->plan->graph))) {
        measure_steps(p, steps);
        count = number_rows(p, by, depth, steps, first, table, slots);
        texts t = {NULL, 0};
        for (size_t r = 0; r < count; r++) name_row(p, by, depth, first[r], names.at, &unused, &t);
        made = malloc(sizeof *made + count * sizeof *made->rows + t.bytes);
        if (made) made->n = count;
        if (made) t = (texts){(char *)(made->rows + count), 0};
        for (size_t r = 0; r < count && made; r++)
            name_row(p, by, depth, first[r], names.at, &made->rows[r], &t);
        for (size_t i = 0; i < n && made; i++)
            add_step(&made->rows[steps[i].row], &steps[i], peaks);
    }
    free(steps);
    free(first);
    free(table);
    weft__node_names_free(&names);
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
