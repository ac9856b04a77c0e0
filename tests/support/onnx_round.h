/* Graphs that are written as ONNX files and read again: what the suites onnx_export and onnx_notes
 * share. */
#ifndef WEFT_TESTS_ONNX_ROUND_H
#define WEFT_TESTS_ONNX_ROUND_H

#include "onnx_writer.h"
#include "tests.h"

#include <weft/measure.h>

#define MAX_VALUES 16
#define MAX_EQUAL  2048

/* A folder for the files of one test. */
typedef struct fixture {
    char folder[64], path[96], data[104];
    weft_error error;
} fixture;

typedef void edit(WeftOnnx__ModelProto *model);

/* A small graph: y = rms_norm(x) gamma, of a parameter. */
typedef struct small {
    weft_graph *g;
    weft_value y;
    weft_params *params, *inputs;
} small;

/* round_close removes the folder and the files of these names. */
void round_open(fixture *f);
void round_close(fixture *f);
/* Adds synthetic contents of the graph's inputs to a store, by name. With a sample the input "xN"
 * gets the values of its input N, where the floating type is `dtype`; integers are below `vocab`.
 */
void fill_inputs(weft_params *inputs, const weft_graph *g, const weft_sample *sample,
                 weft_dtype dtype, int64_t vocab);
/* A graph, the outputs to compute, and the contents of its states and inputs. */
typedef struct example {
    const weft_graph *g;
    const weft_value *out; /* [n] */
    size_t n;
    weft_params *params; /* NULL: no states */
    const weft_params *inputs;
} example;
/* Runs it; output i becomes the tensor "i" of `results`. */
weft_status run_graph(const example *x, int threads, weft_params *results, weft_error *error);
bool same_results(const weft_params *a, const weft_params *b, size_t n);
/* Reads the file and runs it on the same inputs. Sets *nodes to the nodes of its graph. */
bool run_file(fixture *f, const weft_params *inputs, size_t n, int threads, weft_params *results,
              size_t *nodes);
void edit_file(const fixture *f, edit *change);
/* Whether results differ by at most 2e-6 of the norm of all. ONNX's attributes have the digits of
 * f32, so even in f64 each rounds by 2^-24 = 6e-8: 2e-6 is 33 of these. */
bool near_results(const weft_params *a, const weft_params *b, size_t n);
/* Whether values of a graph, written and read, have the same bits, and the same values when the
 * notes are removed. `label` is for files that are kept; it may be NULL. */
bool round_trip(fixture *f, const example *x, int opset, const char *label);
small small_open(void);
void small_close(small *s);
/* The outputs `first` and `second` of a file without inputs, of `count` floats, must be equal but
 * for rounding: some operations on numbers of about 1. */
void expect_equal(arena *p, written_graph *g, int64_t opset, size_t count);
/* How many nodes of an op the graph of the file has; -1 if it cannot be read. */
int count_op(fixture *f, const char *name);

#endif
