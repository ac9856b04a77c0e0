/* report/parts.h - the parts of weft/report.h. DESIGN.md names the parts of the document, and
 * tests/tools/report_data.py checks that they agree. Not installed. */
#ifndef WEFT_REPORT_PARTS_H
#define WEFT_REPORT_PARTS_H

#include "json/add.h"

#include <weft/report.h>

#define REPORT_FORMAT "weft-report 1"

struct weft_report {
    cJSON *document;
    json_maker maker;
};

/* ---- Documents ---- */

/* Reports that memory is out. */
weft_status weft__report_no_memory(weft_error *error);
/* Fails if a report is NULL, or lacks members because memory was out. */
weft_status weft__report_check(const weft_report *report, weft_error *error);
/* The list of subjects of a report. */
cJSON *weft__report_subjects(const weft_report *report);
/* The subject that was added last. Fails as well if there is none. */
weft_status weft__report_subject(const weft_report *report, cJSON **subject, weft_error *error);

/* What a check of a document says of it. */
typedef struct report_check {
    const char *where;  /* in messages */
    weft_status status; /* of what is wrong */
} report_check;
/* Checks what the page relies on: of a subject, `index` in messages, or of a whole document. */
weft_status weft__report_check_subject(const report_check *check, const cJSON *subject, int index,
                                       weft_error *error);
weft_status weft__report_check_document(const report_check *check, const cJSON *document,
                                        weft_error *error);

/* ---- A plan ---- */

/* The facts about a node of a plan's graph. */
typedef struct report_node {
    size_t step;    /* 1 + the index of its step; 0: it has none */
    bool trainable; /* a parameter */
    bool timed;
    weft_cost cost;                    /* of one call */
    double compute, waiting, roofline; /* seconds of one run, over all threads */
} report_node;

typedef struct report_plan {
    const weft_plan *plan;
    const weft_graph *graph;
    report_node *nodes; /* [n_nodes] */
    size_t n_nodes;
    const weft_plan_step *steps; /* [n_steps] */
    size_t n_steps;
    json_maker *maker;
} report_plan;

/* Adds the parts of a plan to a subject. False if memory is out; p->maker may report that as well.
 */
bool weft__report_add_nodes(const report_plan *p, cJSON *subject);
bool weft__report_add_buffers(const report_plan *p, cJSON *subject);
bool weft__report_add_layers(const report_plan *p, cJSON *subject);
/* Adds the times of a profile to p->nodes, and summary, timeline and times of intervals to the
 * subject. */
bool weft__report_add_times(report_plan *p, const weft_report_plan_options *options,
                            cJSON *subject);

/* The type of a value, as "f32 [2, 3]". */
#define REPORT_TYPE_BYTES 192
const char *weft__report_type(const weft_graph *graph, weft_value value,
                              char text[REPORT_TYPE_BYTES]);
/* Whether time passes in a node: a leaf, a view and a group have no step. */
static inline const weft_plan_step *report_step(const report_plan *p, size_t node)
{
    return p->nodes[node].step ? &p->steps[p->nodes[node].step - 1] : NULL;
}

#endif
