/* Profiles as files: a trace of the last runs, and a picture of the graph. O(events) and O(nodes).
 */
#include <weft/inspect.h>

#include "node_names.h"

#include "base/json.h"
#include "base/text.h"
#include "run/profile.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The trace ---- */

static void json_text(FILE *file, const char *text)
{
    char character[JSON_CHARACTER];
    fputc('"', file);
    while (*text) {
        const size_t n = weft__json_put(&text, character);
        fwrite(character, 1, n, file);
    }
    fputc('"', file);
}

struct weft_profile_events {
    size_t n;
    weft_profile_event list[]; /* [n] */
};

/* Writes the events of the recorded runs to list[], if it is not NULL, and returns their number. */
static size_t list_events(const weft_profile *p, weft_profile_event *list)
{
    if (!p->trace_runs) return 0;
    const size_t first = p->runs > p->trace_runs ? p->runs - p->trace_runs : 0;
    size_t n = 0;
    uint64_t origin = UINT64_MAX;
    for (int t = 0; t < p->team; t++) {
        const profile_run *run = &p->all.threads[t]->runs[first % p->trace_runs];
        if (run->n && run->events[0].begin_ns < origin) origin = run->events[0].begin_ns;
    }
    for (size_t r = first; r < p->runs; r++)
        for (int t = 0; t < p->capacity; t++) {
            const profile_run *run = &p->all.threads[t]->runs[r % p->trace_runs];
            for (size_t i = 0; list && i < run->n; i++) {
                const profile_event *e = &run->events[i];
                list[n + i] = (weft_profile_event){.node = p->all.plan->steps[e->step].node,
                                                   .run = r,
                                                   .thread = t,
                                                   .phase = e->phase,
                                                   .begin_ns = e->begin_ns - origin,
                                                   .end_ns = e->end_ns - origin};
            }
            n += run->n;
        }
    return n;
}

weft_profile_events *weft_profile_events_new(const weft_profile *profile, weft_error *error)
{
    weft_error_clear(error);
    if (!profile) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "profile", "the profile is NULL");
        return NULL;
    }
    const size_t n = list_events(profile, NULL);
    weft_profile_events *made = malloc(sizeof *made + n * sizeof *made->list);
    if (made)
        made->n = list_events(profile, made->list);
    else
        weft_error_set(error, WEFT_NO_MEMORY, "profile", "no memory for %zu events", n);
    return made;
}

const weft_profile_event *weft_profile_events_list(const weft_profile_events *events, size_t *count)
{
    if (count) *count = events ? events->n : 0;
    return events ? events->list : NULL;
}

void weft_profile_events_free(weft_profile_events *events)
{
    free(events);
}

typedef struct trace {
    FILE *file;
    const weft_graph *g;
    const char *const *names; /* of nodes */
} trace;

static void trace_event(const trace *to, const weft_profile_event *e)
{
    const weft_graph *g = to->g;
    FILE *file = to->file;
    const node_record *node = &g->nodes[e->node];
    const value_record *value = &g->values[node->first_out];
    char text[160];
    const uint64_t at = e->begin_ns, took = e->end_ns - e->begin_ns;
    fputs(",\n{\"ph\":\"X\",\"cat\":\"step\",\"name\":", file);
    json_text(file, node->op->name);
    fprintf(file, ",\"pid\":1,\"tid\":%d,\"ts\":%llu.%03u,\"dur\":%llu.%03u,\"args\":{\"node\":",
            e->thread, (unsigned long long)(at / 1000), (unsigned)(at % 1000),
            (unsigned long long)(took / 1000), (unsigned)(took % 1000));
    json_text(file, to->names[e->node]);
    fprintf(file, ",\"shape\":\"%s %s\",\"phase\":%d,\"run\":%zu}}",
            weft_dtype_name(value->type.dtype),
            weft_shape_text(value->type.shape, text, sizeof text), e->phase, e->run);
}

weft_status weft_profile_write_trace(const weft_profile *p, FILE *file, weft_error *error)
{
    weft_error_clear(error);
    if (!p || !file)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trace", "the profile or the file is NULL");
    if (!p->trace_runs)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trace",
                              "no run was recorded: switch measuring on with trace_runs above 0");
    node_names names;
    weft_profile_events *events = weft_profile_events_new(p, error);
    if (!weft__node_names_make(&names, p->all.plan->graph) || !events) {
        weft_profile_events_free(events);
        weft__node_names_free(&names);
        return weft_error_set(error, WEFT_NO_MEMORY, "trace", "no memory for the names");
    }
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"weft\"}}",
          file);
    for (int t = 0; t < p->team; t++)
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,"
                "\"args\":{\"name\":\"thread %d\"}}",
                t, t);
    const trace to = {file, p->all.plan->graph, names.at};
    for (size_t i = 0; i < events->n; i++) trace_event(&to, &events->list[i]);
    weft_profile_events_free(events);
    weft__node_names_free(&names);
    fputs("\n]}\n", file);
    /* A full disk shows only when the stream is flushed. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "trace", "the file cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}

/* ---- The picture ---- */

typedef struct overlay {
    double *seconds; /* by node, over all threads; -1: the node does not compute */
    double whole, largest, runs, threads;
} overlay;

static void decorate(void *user, const weft_graph *graph, size_t index, weft_dot_node *node)
{
    const overlay *o = user;
    (void)graph;
    if (o->seconds[index] < 0 || o->whole <= 0) return;
    /* From white to red by the square root of the fraction: on a linear scale most nodes stay
     * white. */
    double heat = o->largest > 0 ? sqrt(o->seconds[index] / o->largest) : 0;
    int rest = 255 - (int)(190 * heat);
    snprintf(node->color, sizeof node->color, "#ff%02x%02x", (unsigned)rest & 255,
             (unsigned)rest & 255);
    weft__text_format(node->line, sizeof node->line, "%.4g ms, %.2g %%",
                      1e3 * o->seconds[index] / (o->runs * o->threads),
                      100 * o->seconds[index] / o->whole);
}

weft_status weft_profile_write_dot(const weft_profile *profile, FILE *file, weft_error *error)
{
    weft_error own, *e = error ? error : &own;
    size_t n;
    weft_profile_table *table = weft_profile_table_new(profile, WEFT_PROFILE_BY_NODE, 0, NULL, e);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    if (!table) return e->status;
    const weft_graph *g = profile->all.plan->graph;
    weft_profile_totals total = weft_profile_totals_of(profile);
    overlay o = {calloc(g->n_nodes + 1, sizeof(double)), total.thread_seconds, 0,
                 (double)total.runs, (double)total.threads};
    if (!o.seconds) {
        weft_profile_table_free(table);
        return weft_error_set(error, WEFT_NO_MEMORY, "dot", "no memory for the picture");
    }
    for (size_t i = 0; i < g->n_nodes; i++) o.seconds[i] = -1;
    for (size_t i = 0; i < n; i++) {
        double seconds = rows[i].compute_seconds + rows[i].waiting_seconds;
        o.seconds[rows[i].node] = seconds;
        o.largest = fmax(o.largest, seconds);
    }
    weft_profile_table_free(table);
    const weft_status status =
        weft_graph_write_dot(g, &(weft_dot_options){.decorate = decorate, .user = &o}, file, error);
    free(o.seconds);
    return status;
}
