/* weft/report.h - the data of a report: plans, their times, and runs, as one JSON document; and the
 * page that shows it, as `weft report` writes it.
 *
 * Of the library weft-inspect. A report has subjects, such as a model. The functions that add
 * something add it to the subject that was added last, at most once each. If one fails, the report
 * stays as it was; but after WEFT_NO_MEMORY it can only be freed. docs/report.md describes the
 * document.
 */
#ifndef WEFT_REPORT_H
#define WEFT_REPORT_H

#include <weft/measure.h>
#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_report weft_report;

/* ---- Making a report ------------------------------------------------------------------------ */

typedef struct weft_report_options {
    bool compare; /* the page compares the second subject with the first */
} weft_report_options;

/* A report without subjects, which describes this machine. `options` may be NULL. NULL on failure:
 * WEFT_BAD_ARGUMENT, WEFT_NO_MEMORY, or an error of weft_instruction_set or weft_gemm_chosen.
 * weft_report_free accepts NULL. */
WEFT_API weft_report *weft_report_new(const char *title, const weft_report_options *options,
                                      weft_error *error);
WEFT_API void weft_report_free(weft_report *report);
/* Reads a document that weft_report_write_json wrote, and checks what the page relies on: kinds of
 * members, and that every reference has its target. NULL on failure: WEFT_BAD_FILE, or a file that
 * cannot be read. */
WEFT_API weft_report *weft_report_load(const char *path, weft_error *error);

typedef enum weft_report_kind {
    WEFT_REPORT_MODEL,
    WEFT_REPORT_ONNX,
    WEFT_REPORT_RUN
} weft_report_kind;

typedef struct weft_report_subject {
    const char *name;
    const char *command; /* that makes the report, for its reader; NULL: none */
    weft_report_kind kind;
    bool train; /* its plan is of an update, not only of the forward pass */
} weft_report_subject;

WEFT_API weft_status weft_report_add_subject(weft_report *report,
                                             const weft_report_subject *subject, weft_error *error);
/* Adds the subject of a saved document, which must have only one, with the machine that it is of.
 */
WEFT_API weft_status weft_report_add_saved(weft_report *report, const char *path,
                                           weft_error *error);

typedef struct weft_report_plan_options {
    /* Of a session of the plan, with at least one run; NULL: the plan has no times. The report has
     * a timeline if the profile has recorded runs (trace_runs); it shows the last one. */
    const weft_profile *profile;
    const weft_peaks *peaks; /* NULL: there is no roofline */
    double seconds;          /* the duration of all runs, by the clock; 0: the profile's */
} weft_report_plan_options;

/* Adds a plan: its statistics, layers, nodes, ops and buffers. `options` may be NULL. */
WEFT_API weft_status weft_report_add_plan(weft_report *report, const weft_plan *plan,
                                          const weft_report_plan_options *options,
                                          weft_error *error);
/* Adds what is in the files of a run's folder: recipe.json, metrics.jsonl, histograms.jsonl and
 * samples.jsonl, each if it is there, and whether the run is running. No model is built, so this
 * takes milliseconds. A last line that is being written is left out. WEFT_NOT_FOUND if the folder
 * is not a run's, WEFT_BAD_FILE if a file is not JSON. */
WEFT_API weft_status weft_report_add_run(weft_report *report, const char *folder,
                                         weft_error *error);
/* Adds a member that a program has made, as JSON text. A name "run.NAME" is a member of the run,
 * which must have been added. WEFT_BAD_ARGUMENT if the subject has that member, the text is not
 * JSON, or the page expects something else under this name. */
WEFT_API weft_status weft_report_add_json(weft_report *report, const char *name, const char *text,
                                          weft_error *error);

/* ---- Writing it ----------------------------------------------------------------------------- */

/* Writes the document as one line. WEFT_IO if the file cannot be written. */
WEFT_API weft_status weft_report_write_json(const weft_report *report, FILE *file,
                                            weft_error *error);
/* Whether weft was built with the page. */
WEFT_API bool weft_report_has_page(void);
/* Writes the page, one HTML file that needs no other. WEFT_NOT_FOUND if weft was built without it,
 * WEFT_IO if the file cannot be written. */
WEFT_API weft_status weft_report_write_page(const weft_report *report, FILE *file,
                                            weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
