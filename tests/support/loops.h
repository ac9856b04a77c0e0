/* Loops as one node (weft_scan), and the same by hand. */
#ifndef WEFT_TESTS_LOOPS_H
#define WEFT_TESTS_LOOPS_H

#include <weft/scan.h>
#include <weft/weft.h>

/* A body: in[] are carries, slices and shared values, out[] the next carries, then what is stacked. */
typedef struct loop_cell {
    const char *name;
    void (*build)(weft_graph *g, const weft_value *in, weft_value *out);
    size_t n_carry, n_each, n_shared, n_out;
    weft_shape shape[6]; /* of in[] */
    bool reverse;
    int64_t segment; /* as in weft_scan_body */
} loop_cell;
#define LOOP_MAX_IN  6
#define LOOP_MAX_OUT 5

enum {
    LOOP_RNN,
    LOOP_RNN_REVERSE,
    LOOP_LSTM,
    LOOP_WIDE_RNN,
    LOOP_SUM,
    LOOP_SCALAR_SUM,
    LOOP_MOVES,
    LOOP_MAP,
    LOOP_TWICE,
    LOOP_CARRIED_WEIGHT,
    LOOP_HEADS,
    LOOP_DEEP,
    LOOP_TALL_RNN,
    LOOP_SAME_IN_ALL_STEPS,
    LOOP_LSTM_RECOMPUTED,
    LOOP_CELLS
};
extern const loop_cell loop_cells[LOOP_CELLS];
extern const loop_cell loop_nested; /* a loop in whose body is another */

size_t loop_inputs(const loop_cell *c);
size_t loop_outputs(const loop_cell *c);
/* Declares what a loop of n steps reads, and fills in[]. */
void loop_declare(weft_graph *g, const loop_cell *c, weft_dtype dtype, int64_t n, weft_value *in);
/* Gives the first n values in[] numbers, unless no target reads them. */
void loop_fill(weft_session *s, weft_graph *g, const weft_value *in, size_t n);
/* Adds the loop as a node; as its steps. */
void loop_by_scan(weft_graph *g, const loop_cell *c, int64_t n, const weft_value *in,
                  weft_value *out);
void loop_by_hand(weft_graph *g, const loop_cell *c, int64_t n, const weft_value *in,
                  weft_value *out);
/* A scalar that depends on n values: a sum of sums or means of squares. */
weft_value loop_loss(weft_graph *g, const weft_value *out, size_t n, bool mean);
/* Runs a graph of pairs of targets and returns how far they are apart. */
double loop_run_pairs(weft_graph *g, const loop_cell *c, const weft_value *in,
                      const weft_value *targets, size_t n_pairs,
                      const weft_plan_options *plan_options,
                      const weft_session_options *session_options);
/* How far a loop of n steps is from its steps by hand. */
double loop_compare(const loop_cell *c, weft_dtype dtype, int64_t n,
                    const weft_plan_options *plan_options,
                    const weft_session_options *session_options);

#endif
