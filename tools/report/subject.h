/* The subject of a report, on one side of --against: a model of the list, an ONNX file, runs, or a
 * document that was saved. */
#ifndef WEFT_TOOLS_REPORT_SUBJECT_H
#define WEFT_TOOLS_REPORT_SUBJECT_H

#include "report.h"

#define REPORT_MAX_RUNS 8

typedef struct report_side {
    model_args model;
    bool train;
    const char *runs[REPORT_MAX_RUNS]; /* their folders */
    size_t n_runs;
    const char *saved; /* FILE.json; NULL: none */
} report_side;

typedef struct report_options {
    bool timed;      /* models and files are run */
    bool runs_timed; /* so are the models of runs */
    long runs;
    int threads;
} report_options;

/* Takes an argument of the command line. Ends the program on a usage error. */
void report_take_arg(report_side *side, char *text, const tool_parser *parser);
/* Whether there is a subject. */
bool report_has_subject(const report_side *side);
/* The subject in a line: "transformer-base batch=8 --train". */
#define REPORT_LABEL_BYTES 4096
const char *report_label(const report_side *side, char text[REPORT_LABEL_BYTES]);
/* Fails if `out` is a file that a side reads; its ONNX file is checked when it is read. */
weft_status report_check_output(report_side *side, const char *out, weft_error *error);
/* Adds the subjects of a side to the report. A saved document must have just one. */
weft_status report_add_side(const report_side *side, const report_options *options,
                            weft_report *report, weft_error *error);

#endif
