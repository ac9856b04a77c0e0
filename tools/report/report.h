/* The document of `weft report`: a plan, its profile and a run as one JSON text, which the page
 * shows. DESIGN.md names its parts; tests/tools/report_data.py checks that they agree. */
#ifndef WEFT_TOOLS_REPORT_H
#define WEFT_TOOLS_REPORT_H

#include "tool.h"

#define REPORT_FORMAT "weft-report 1"

/* ---- Documents ---- */

/* A document without subjects. cJSON_Delete frees it; NULL after an error. */
cJSON *report_new(const char *title, weft_error *error);
/* Adds a subject, which the document owns then, whether that fails or not. `command` makes it, for
 * the reader. */
cJSON *report_add_subject(cJSON *document, const char *name, const char *kind, const char *command);
/* The document of the folder of a run, from its files alone: no model is built. NULL after an
 * error. It takes milliseconds, so that a server can make it again and again. */
cJSON *report_of_run(const char *folder, weft_error *error);
/* Whether weft was built with the page; else an error says so. */
bool report_has_page(weft_error *error);
/* Writes the page that shows the document, and frees the document. False, with an error, if it
 * cannot be written, making the document ran out of memory, or weft was built without the
 * page. */
bool report_write_page(FILE *file, cJSON *document, weft_error *error);
/* Reads a document that `weft report --json` wrote, and checks what the page relies on: kinds of
 * members, and that every reference has its target. NULL after an error. */
cJSON *report_load(const char *path, weft_error *error);

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
} report_plan;

/* Collects the facts about the nodes of a plan. It must be closed, even after an error. */
weft_status report_plan_open(report_plan *p, const weft_plan *plan, weft_error *error);
void report_plan_close(report_plan *p);

/* Adds summary, nodes, ops, buffers and layers to a subject. */
weft_status report_add_plan(const report_plan *p, cJSON *subject, weft_error *error);
/* The parts of it. */
weft_status report_add_nodes(const report_plan *p, cJSON *subject, weft_error *error);
weft_status report_add_buffers(const report_plan *p, cJSON *subject, weft_error *error);
weft_status report_add_layers(const report_plan *p, cJSON *subject, weft_error *error);

/* The type of a value, as "f32 [2, 3]". */
#define REPORT_TYPE_BYTES 192
const char *report_type(const weft_graph *graph, weft_value value, char text[REPORT_TYPE_BYTES]);
/* Whether time passes in a node: a leaf, a view and a group have no step. */
static inline const weft_plan_step *report_step(const report_plan *p, size_t node)
{
    return p->nodes[node].step ? &p->steps[p->nodes[node].step - 1] : NULL;
}

/* ---- Time ---- */

/* Runs the model `runs` times after a first run. Adds the times to p->nodes, and timeline, summary
 * and groups to the subject. */
weft_status report_measure(report_plan *p, trial *t, long runs, int threads, cJSON *subject,
                           weft_error *error);

/* ---- Runs ---- */

/* Adds the member "run" to a subject, from the files of its folder. */
weft_status report_add_run(const char *folder, cJSON *subject, weft_error *error);
/* Adds attention weights of some sentences of the validation text to the run, if its model has
 * them. */
weft_status report_add_attention(const char *folder, int threads, cJSON *run, weft_error *error);

#endif
