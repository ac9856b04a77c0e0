/* The worked examples of five introductions, 000 to 004, and the numbers that these print. The
 * function of an introduction builds each system as a graph, says what is expected of its values,
 * runs it and reports rows. */
#ifndef WEFT_TOOLS_EXAMPLES_H
#define WEFT_TOOLS_EXAMPLES_H

#include "../tool.h"

/* The report: rows, printed as they come or kept for JSON. */
typedef struct report {
    cJSON *data; /* examples.json */
    cJSON *rows;
    bool json;
    int failures;
} report;

weft_status report_open(report *r, bool json, weft_error *error);
void report_close(report *r);
/* One figure: the printed value, weft's value, their largest difference. */
void report_row(report *r, const char *system, const char *figure, const char *seed,
                const char *ours, double difference, bool good);
/* A figure that cannot be had again, and why. Counts neither as good nor as failed. */
void report_left_out(report *r, const char *system, const char *figure, const char *why);

/* One system: a graph, its parameters, and what is expected of its values. Errors are sticky and
 * end as a failed row. */
#define LAB_EXPECTATIONS 48
typedef struct expectation {
    const char *what;
    weft_value value;
    const char *figure; /* a name in examples.json; NULL: a shape, or a number */
    bool is_shape;
    weft_shape shape;
    double number, tolerance; /* every element is the number */
} expectation;
typedef struct lab {
    report *report;
    const char *system; /* "000 single head" */
    weft_dtype dtype;
    weft_graph *g;
    weft_params *store;
    expectation expected[LAB_EXPECTATIONS];
    size_t n;
    weft_error error;
} lab;

lab lab_open(report *r, const char *system, weft_dtype dtype);
/* The input of that name in examples.json as a constant of this shape. */
weft_value lab_given(lab *l, const char *name, weft_shape shape);
/* Random numbers where a document draws some without a seed. */
weft_value lab_normal(lab *l, const char *name, weft_shape shape);
/* Fills a parameter [rows, columns] with the inputs `names`, beside each other. */
void lab_load(lab *l, const char *parameter, const char *const *names, size_t n);
/* The figure's digits, all of them; a shape; a number that every element must be. */
void lab_figure(lab *l, const char *what, weft_value value, const char *figure);
void lab_shape(lab *l, const char *what, weft_value value, weft_shape shape);
void lab_number(lab *l, const char *what, weft_value value, double number, double tolerance);
/* Feeds made-up data to inputs, runs, reports a row for each expectation, frees. */
void lab_close(lab *l);

/* softmax(scale q k^T) v over [..., length, width], for documents that give q, k and v themselves.
 * `hidden` is true where a query may not look, or WEFT_NO_VALUE. */
typedef struct attended {
    weft_value scores, scaled, weights, dropped, context;
} attended;
attended reproduce_attention(weft_graph *g, weft_value q, weft_value k, weft_value v,
                             weft_value hidden, double scale, double dropout);
/* Expects of attention weights and what dropout leaves of them: rows that sum to 1, exact zeros
 * where `hidden`, kept ones divided by 1 - p. */
void lab_weights(lab *l, weft_value weights, weft_value dropped, weft_value hidden, double p);

void example_000(report *r);
void example_001(report *r);
void example_002(report *r);
void example_003(report *r);
void example_004(report *r);

#endif
