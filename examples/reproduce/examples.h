/* The worked examples of five introductions, 000 to 004, and the numbers printed in them. The
 * function of an introduction builds each example as a graph, states the expected values, runs the
 * graph and reports a row for each comparison. */
#ifndef REPRODUCE_EXAMPLES_H
#define REPRODUCE_EXAMPLES_H

#include <weft/models.h>
#include <weft/weft.h>

#include <cjson/cJSON.h>
#include <stdio.h>

/* The report: rows, printed at once or collected for JSON. */
typedef struct report {
    cJSON *data; /* examples.json */
    cJSON *rows;
    bool json;
    int failures;
} report;

/* `data` is the path of examples.json. */
weft_status report_open(report *r, const char *data, bool json, weft_error *error);
void report_close(report *r);
/* One figure: the printed value, weft's value, their largest difference. */
void report_row(report *r, const char *system, const char *figure, const char *printed,
                const char *ours, double difference, bool good);
/* A figure that cannot be recomputed, and why. Counts neither as good nor as failed. */
void report_left_out(report *r, const char *system, const char *figure, const char *why);

/* A worked example: a graph, its parameters, and the expectations of its values. The first error
 * sticks and becomes a failed row. */
#define MAX_EXPECTATIONS 48
typedef struct expectation {
    const char *what;
    weft_value value;
    const char *figure; /* a name in examples.json; NULL: a shape, or a number */
    bool is_shape;
    weft_shape shape;
    double number, tolerance; /* every element is the number */
} expectation;
typedef struct example {
    report *report;
    const char *system; /* "000 single head" */
    weft_dtype dtype;
    weft_graph *g;
    weft_params *store;
    weft_value input; /* fed with random numbers; WEFT_NO_VALUE: none */
    expectation expected[MAX_EXPECTATIONS];
    size_t n;
    weft_error error;
} example;

example example_open(report *r, const char *system, weft_dtype dtype);
/* The input of that name in examples.json, as a constant of this shape. */
weft_value example_input(example *ex, const char *name, weft_shape shape);
/* Random numbers, where a document draws some without stating a seed. */
weft_value example_normal(example *ex, const char *name, weft_shape shape);
/* Fills a parameter [rows, columns] with the inputs `names`, side by side. */
void example_load(example *ex, const char *parameter, const char *const *names, size_t n);
/* Expects the digits of a figure; a shape; that every element is the number. */
void expect_figure(example *ex, const char *what, weft_value value, const char *figure);
void expect_shape(example *ex, const char *what, weft_value value, weft_shape shape);
void expect_number(example *ex, const char *what, weft_value value, double number,
                   double tolerance);
/* Runs the graph, reports a row for each expectation, and frees all. */
void example_run(example *ex);

/* softmax(scale q k^T) v over [..., length, width], for documents with q, k and v as inputs.
 * `hidden` is true where attention is masked out, or WEFT_NO_VALUE. */
typedef struct attended {
    weft_value scores, scaled, weights, dropped, context;
} attended;
attended reproduce_attention(weft_graph *g, weft_value q, weft_value k, weft_value v,
                             weft_value hidden, double scale, double dropout);
/* Expects that rows of attention weights sum to 1, that they are exactly zero where `hidden`, and
 * that dropout divides the retained ones by 1 - p. */
void expect_weights(example *ex, weft_value weights, weft_value dropped, weft_value hidden,
                    double p);

void document_000(report *r);
void document_001(report *r);
void document_002(report *r);
void document_003(report *r);
void document_004(report *r);

#endif
