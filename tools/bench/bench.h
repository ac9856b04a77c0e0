/* Benchmarks: the workloads, and how one is timed. */
#ifndef WEFT_TOOLS_BENCH_H
#define WEFT_TOOLS_BENCH_H

#include "tool.h"

#define BENCH_OPTIONS 12

/* What a run computes. */
typedef enum bench_kind {
    BENCH_FORWARD,  /* the output, without dropout */
    BENCH_BACKWARD, /* the loss and the gradients of it for all parameters; with a cotangent instead
                       of a loss, also that of the input */
    BENCH_STEP      /* gradients, clipping, Adam */
} bench_kind;

typedef struct workload {
    const char *name, *doc;
    bench_kind kind;
    const char *model;                      /* of the list of models; NULL: `build` */
    const char *options[BENCH_OPTIONS];     /* of the model, NULL at the end */
    weft_built (*build)(weft_graph *graph); /* with one input and one output */
} workload;

size_t workload_count(void);
const workload *workload_at(size_t index);
const workload *workload_find(const char *name); /* NULL if there is none */

/* Settings besides those of the workload. */
typedef struct bench_request {
    const model_args *given;    /* a model instead of the workload's; NULL: none. Its kind is
                                   BENCH_FORWARD or BENCH_STEP, and `options` and `exact` do not count */
    const char *const *options; /* of the model, after the workload's own; may be NULL */
    size_t n_options;
    weft_precision precision;
    int threads; /* 0: OpenMP's default */
    bool exact;  /* without dropout, and of a step only the gradients, so that other
                    programs can compute the same */
} bench_request;

/* A workload ready to run. */
typedef struct bench {
    const workload *workload;
    trial trial;
    weft_value *targets,
        *wrt; /* wrt: targets[1 ..] are gradients with respect to these; NULL without any */
    weft_value *relus; /* outputs of relu, if the bench is `exact` and computes gradients */
    size_t n_targets, n_wrt, n_relus;
    double tokens; /* positions that a run reads */
} bench;
/* Must be closed if that was WEFT_OK. */
weft_status bench_open(bench *b, const workload *w, const bench_request *request,
                       weft_error *error);
void bench_close(bench *b);

typedef struct bench_times {
    size_t n;
    double median, min; /* seconds of a run */
} bench_times;
/* Runs it `runs` times in a row, or for about a tenth of a second if that is longer, after one run
 * for warm-up. Appends the times to the *n *samples; the caller frees them. */
weft_status bench_row(bench *b, long runs, double **samples, size_t *n, weft_error *error);
/* Sorts the samples. */
bench_times bench_summary(double *samples, size_t n);

/* What is measured of a workload. */
typedef struct bench_result {
    bench_times times;
    weft_plan_stats plan;
    double gemm; /* flops per second: the best of those measured around and between the runs */
    double tokens, peak_bytes;
    int threads;
} bench_result;
/* Arena, states and the threads' workspaces. */
double bench_plan_bytes(const bench_result *r);
/* A new row of JSON, with what --against recognises a workload by. `given`: its model, if it is
 * that of the command line. */
cJSON *bench_describe(const workload *w, const model_args *given);
void bench_add_result(cJSON *row, const bench_result *r);
void bench_print_head(void);
void bench_print_result(const workload *w, const bench_result *r);

/* Writes parameters (param.NAME), inputs (input.NAME), output, loss and gradients (grad.NAME) of
 * one run as a safetensors file. With gradients, also where the outputs of relu are positive
 * (positive.N, N from 0 in the order of the graph): rounding decides that of inputs near 0, and
 * gradients depend on it. The bench must be `exact`. */
weft_status bench_dump(bench *b, const char *path, weft_error *error);

/* How time and arena grow with batch, length, layers and threads; returns the exit status. */
int bench_growth(long runs, bool json);

/* Prints the current measurement on stderr: one line that updates itself on a terminal. NULL ends
 * it. */
void bench_progress(const char *format, ...) WEFT_PRINTF(1, 2);

#endif
