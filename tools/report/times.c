/* The times of a report: of nodes, of the run, of intervals, and the timeline of the last run.
 * O(nodes + events). */
#include "report.h"

#include <math.h>
#include <stdlib.h>

/* ---- Nodes ---- */

static weft_status time_nodes(report_plan *p, const weft_profile *profile, const weft_peaks *peaks,
                              double *roofline, weft_error *error)
{
    size_t n;
    const weft_profile_totals total = weft_profile_totals_of(profile);
    const double runs = (double)total.runs;
    weft_profile_table *table =
        weft_profile_table_new(profile, WEFT_PROFILE_BY_NODE, 0, peaks, error);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    *roofline = 0;
    for (size_t i = 0; i < n; i++) {
        report_node *node = &p->nodes[rows[i].node];
        if (!rows[i].calls) continue;
        node->timed = true;
        node->compute = rows[i].compute_seconds / runs;
        node->waiting = rows[i].waiting_seconds / runs;
        node->roofline = rows[i].roofline_seconds * total.threads / runs;
        *roofline += rows[i].roofline_seconds / runs;
    }
    weft_profile_table_free(table);
    return table ? WEFT_OK : error->status;
}

static void add_summary(const weft_profile *profile, const weft_peaks *peaks, double seconds,
                        double roofline, cJSON *summary)
{
    const weft_profile_totals total = weft_profile_totals_of(profile);
    const double runs = (double)total.runs;
    cJSON_AddNumberToObject(summary, "runs", runs);
    cJSON_AddNumberToObject(summary, "threads", total.threads);
    cJSON_AddNumberToObject(summary, "seconds", seconds / runs);
    cJSON_AddNumberToObject(summary, "compute_seconds", total.compute_seconds / runs);
    cJSON_AddNumberToObject(summary, "waiting_seconds", total.waiting_seconds / runs);
    cJSON_AddNumberToObject(summary, "start_seconds", total.start_seconds / runs);
    cJSON_AddNumberToObject(summary, "roofline_seconds", roofline);
    cJSON_AddNumberToObject(summary, "peak_flops", peaks->flops_per_second);
    cJSON_AddNumberToObject(summary, "peak_bytes", peaks->bytes_per_second);
}

/* ---- The timeline ---- */

typedef struct timeline {
    const report_plan *p;
    cJSON *events;
    uint64_t *end_ns; /* by interval: when its last step ended */
    uint64_t last_ns;
} timeline;

static void add_event(timeline *t, const weft_profile_event *e)
{
    const double times[4] = {e->thread, (double)e->node, 1e-3 * (double)e->begin_ns,
                             1e-3 * (double)(e->end_ns - e->begin_ns)};
    const weft_plan_step *step = report_step(t->p, e->node);
    cJSON *event = cJSON_CreateArray();
    for (int i = 0; i < 4; i++)
        cJSON_AddItemToArray(event, cJSON_CreateNumber(round(1e3 * times[i]) / 1e3));
    cJSON_AddItemToArray(t->events, event);
    if (step && e->end_ns > t->end_ns[step->interval]) t->end_ns[step->interval] = e->end_ns;
    if (e->end_ns > t->last_ns) t->last_ns = e->end_ns;
}

/* Intervals without a barrier between them overlap, so an interval's time goes from the end of the
 * intervals before it to its own end: the times add up to the run. */
static void add_intervals(const timeline *t, size_t n_intervals, cJSON *subject)
{
    cJSON *intervals = cJSON_AddArrayToObject(subject, "group_seconds");
    uint64_t before = 0;
    for (size_t g = 0; g < n_intervals; g++) {
        const uint64_t end = t->end_ns[g] > before ? t->end_ns[g] : before;
        cJSON_AddItemToArray(intervals, cJSON_CreateNumber(1e-9 * (double)(end - before)));
        before = end;
    }
}

static weft_status add_timeline(const report_plan *p, const weft_profile *profile, cJSON *subject,
                                weft_error *error)
{
    const size_t n_intervals = weft_plan_stats_of(p->plan).intervals;
    cJSON *json = cJSON_AddObjectToObject(subject, "timeline");
    timeline t = {
        .p = p, .end_ns = calloc(n_intervals + 1, sizeof *t.end_ns), .events = cJSON_CreateArray()};
    size_t n;
    weft_profile_events *events = weft_profile_events_new(profile, NULL);
    const weft_profile_event *list = weft_profile_events_list(events, &n);
    for (size_t i = 0; t.end_ns && i < n; i++) add_event(&t, &list[i]);
    cJSON_AddNumberToObject(json, "threads", weft_profile_totals_of(profile).threads);
    cJSON_AddNumberToObject(json, "seconds", 1e-9 * (double)t.last_ns);
    cJSON_AddItemToObject(json, "events", t.events);
    if (t.end_ns) add_intervals(&t, n_intervals, subject);
    const bool good = t.end_ns && events;
    weft_profile_events_free(events);
    free(t.end_ns);
    return good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "report", "out of memory");
}

weft_status report_measure(report_plan *p, trial *t, long runs, int threads, cJSON *subject,
                           weft_error *error)
{
    double seconds = 0, roofline;
    weft_peaks peaks;
    weft_status status = trial_peaks(t, threads, &peaks, error);
    if (status == WEFT_OK) status = trial_profile(t, runs, 1, &seconds, error);
    if (status != WEFT_OK) return status;
    const weft_profile *profile = weft_profile_of(t->session);
    status = time_nodes(p, profile, &peaks, &roofline, error);
    if (status != WEFT_OK) return status;
    cJSON *summary = cJSON_AddObjectToObject(subject, "summary");
    add_summary(profile, &peaks, seconds, roofline, summary);
    return add_timeline(p, profile, subject, error);
}
