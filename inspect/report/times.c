/* The times of a report: of nodes, of the run, of intervals, and the timeline of the last run.
 * O(nodes + events). */
#include "parts.h"

#include <weft/inspect.h>

#include <math.h>
#include <stdlib.h>

/* ---- Nodes ---- */

static bool time_nodes(report_plan *p, const weft_report_plan_options *o, double *roofline)
{
    size_t n;
    const weft_profile_totals total = weft_profile_totals_of(o->profile);
    const double runs = (double)total.runs;
    weft_profile_table *table =
        weft_profile_table_new(o->profile, WEFT_PROFILE_BY_NODE, 0, o->peaks, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    *roofline = 0;
    for (size_t i = 0; i < n; i++) {
        report_node *node = &p->nodes[rows[i].node];
        if (!rows[i].calls) continue;
        node->timed = true;
        node->compute += rows[i].compute_seconds / runs;
        node->waiting += rows[i].waiting_seconds / runs;
        node->roofline += rows[i].roofline_seconds * total.threads / runs;
        *roofline += rows[i].roofline_seconds / runs;
    }
    weft_profile_table_free(table);
    return table != NULL;
}

static void add_summary(json_maker *m, const weft_report_plan_options *o, double roofline,
                        cJSON *summary)
{
    const weft_profile_totals total = weft_profile_totals_of(o->profile);
    const double runs = (double)total.runs;
    json_add_number(m, summary, "runs", runs);
    json_add_number(m, summary, "threads", total.threads);
    json_add_number(m, summary, "seconds",
                    (o->seconds > 0 ? o->seconds : total.wall_seconds) / runs);
    json_add_number(m, summary, "compute_seconds", total.compute_seconds / runs);
    json_add_number(m, summary, "waiting_seconds", total.waiting_seconds / runs);
    json_add_number(m, summary, "start_seconds", total.start_seconds / runs);
    if (!o->peaks) return;
    json_add_number(m, summary, "roofline_seconds", roofline);
    json_add_number(m, summary, "peak_flops", o->peaks->flops_per_second);
    json_add_number(m, summary, "peak_bytes", o->peaks->bytes_per_second);
}

/* ---- The timeline ---- */

typedef struct timeline {
    const report_plan *p;
    cJSON *events;
    uint64_t *end_ns; /* by interval: when its last step ended */
    uint64_t begin_ns, last_ns;
} timeline;

static void add_event(timeline *t, const weft_profile_event *e)
{
    const uint64_t begin = e->begin_ns - t->begin_ns, end = e->end_ns - t->begin_ns;
    const double times[4] = {e->thread, (double)e->node, 1e-3 * (double)begin,
                             1e-3 * (double)(end - begin)};
    const weft_plan_step *step = report_step(t->p, e->node);
    cJSON *event = json_add_array(t->p->maker, t->events, NULL);
    for (int i = 0; i < 4; i++)
        json_add_number(t->p->maker, event, NULL, round(1e3 * times[i]) / 1e3);
    if (step && end > t->end_ns[step->interval]) t->end_ns[step->interval] = end;
    if (end > t->last_ns) t->last_ns = end;
}

/* Adds the events of the last run, whose times begin at 0 then. */
static void add_events(timeline *t, const weft_profile_event *events, size_t n)
{
    size_t run = 0;
    t->begin_ns = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        if (events[i].run > run) run = events[i].run;
    for (size_t i = 0; i < n; i++)
        if (events[i].run == run && events[i].begin_ns < t->begin_ns)
            t->begin_ns = events[i].begin_ns;
    for (size_t i = 0; i < n; i++)
        if (events[i].run == run) add_event(t, &events[i]);
}

/* Intervals without a barrier between them overlap, so an interval's time goes from the end of the
 * intervals before it to its own end: the times add up to the run. */
static void add_intervals(const timeline *t, size_t n_intervals, cJSON *subject)
{
    cJSON *intervals = json_add_array(t->p->maker, subject, "interval_seconds");
    uint64_t before = 0;
    for (size_t i = 0; i < n_intervals; i++) {
        const uint64_t end = t->end_ns[i] > before ? t->end_ns[i] : before;
        json_add_number(t->p->maker, intervals, NULL, 1e-9 * (double)(end - before));
        before = end;
    }
}

static bool add_timeline(const report_plan *p, const weft_profile *profile, cJSON *subject)
{
    size_t n;
    const size_t n_intervals = weft_plan_stats_of(p->plan).intervals;
    weft_profile_events *events = weft_profile_events_new(profile, NULL);
    const weft_profile_event *list = weft_profile_events_list(events, &n);
    timeline t = {.p = p, .end_ns = calloc(n_intervals + 1, sizeof *t.end_ns)};
    const bool good = t.end_ns && events;
    if (good && n) {
        cJSON *json = json_add_object(p->maker, subject, "timeline");
        t.events = cJSON_CreateArray();
        add_events(&t, list, n);
        json_add_number(p->maker, json, "threads", weft_profile_totals_of(profile).threads);
        json_add_number(p->maker, json, "seconds", 1e-9 * (double)t.last_ns);
        weft__json_add(p->maker, json, "events", t.events);
        add_intervals(&t, n_intervals, subject);
    }
    weft_profile_events_free(events);
    free(t.end_ns);
    return good;
}

bool weft__report_add_times(report_plan *p, const weft_report_plan_options *o, cJSON *subject)
{
    double roofline;
    if (!time_nodes(p, o, &roofline)) return false;
    add_summary(p->maker, o, roofline, json_add_object(p->maker, subject, "summary"));
    return add_timeline(p, o->profile, subject);
}
