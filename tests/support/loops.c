/* Loops as one node, and the same by hand. */
#include "loops.h"

#include "tests.h"
#include "value_pairs.h"

#include <stdlib.h>
#include <string.h>

/* h = tanh(x wx + h wh + b), stacked. */
static void build_rnn(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value x = weft_matmul(g, in[1], in[2]), h = weft_matmul(g, in[0], in[3]);
    const weft_value sum = weft_add(g, x, h);
    out[0] = out[1] = weft_tanh(g, weft_add(g, sum, in[4]));
}

/* An LSTM whose gates are in one product: carries h and c; h is stacked. */
static void build_lstm(weft_graph *g, const weft_value *in, weft_value *out)
{
    weft_value gates[4];
    const weft_value x = weft_matmul(g, in[2], in[3]), h = weft_matmul(g, in[0], in[4]);
    weft_chunk(g, weft_add(g, x, h), -1, 4, gates);
    const weft_value i = weft_sigmoid(g, gates[0]), f = weft_sigmoid(g, gates[1]);
    const weft_value o = weft_sigmoid(g, gates[2]), kept = weft_mul(g, f, in[1]);
    out[1] = weft_add(g, kept, weft_mul(g, i, weft_tanh(g, gates[3])));
    out[0] = out[2] = weft_mul(g, o, weft_tanh(g, out[1]));
}

/* A cumulative sum. */
static void build_sum(weft_graph *g, const weft_value *in, weft_value *out)
{
    out[0] = out[1] = weft_add(g, in[0], in[1]);
}

/* Carries that change places, one that stays, and stacks of a carry, a constant, a view and an
 * input. */
static void build_moves(weft_graph *g, const weft_value *in, weft_value *out)
{
    out[0] = in[1];
    out[1] = weft_add(g, in[0], in[3]);
    out[2] = in[2];
    out[3] = in[0];
    out[4] = weft_transpose(g, weft_mul(g, in[3], in[1]), 0, 1);
}

/* No carry: each step on its own. */
static void build_map(weft_graph *g, const weft_value *in, weft_value *out)
{
    const float two[3] = {2, 3, 4};
    const weft_dtype dtype = weft_dtype_of(g, in[0]);
    const weft_value c = weft_cast(g, weft_constant(g, WEFT_F32, WEFT_SHAPE(3), two), dtype);
    out[0] = weft_mul(g, in[0], c);
    out[1] = c;
}

/* A weight in several forms, of which one reads a slice that lies transposed, and a bias that is also
 * a factor. */
static void build_twice(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value x = weft_transpose(g, in[1], 0, 1), w = in[2],
                     half = weft_slice(g, w, 1, 1, 3, 1);
    const weft_value a = weft_tanh(g, weft_add(g, weft_matmul(g, x, w), in[3]));
    const weft_value row = weft_sum(g, weft_matmul(g, in[0], half), WEFT_AXES(1), true);
    const weft_value terms[] = {weft_matmul(g, a, weft_transpose(g, w, 0, 1)),
                                weft_matmul(g, in[0], w), weft_mul(g, in[3], x)};
    out[0] = out[1] = weft_tanh(g, weft_add(g, row, weft_add_n(g, terms, 3)));
}

/* A weight that goes from step to step, times one that all share. */
static void build_carried_weight(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value h = weft_matmul(g, in[0], in[1]), x = weft_matmul(g, in[2], in[3]);
    out[0] = out[2] = weft_tanh(g, weft_add(g, h, x));
    out[1] = weft_tanh(g, weft_add(g, in[1], weft_matmul(g, in[1], in[3])));
}

/* Weights for each of two heads, and one and a bias for both. */
static void build_heads(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value h = weft_matmul(g, in[0], in[2]), x = weft_matmul(g, in[1], in[3]);
    out[0] = out[1] = weft_tanh(g, weft_add(g, weft_add(g, h, x), in[4]));
}

/* What is computed of a weight alone: a factor, which is also a carry and stacked. */
static void build_same_in_all_steps(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value w = weft_softmax(g, weft_sin(g, in[2]), -1);
    out[0] = weft_tanh(g, weft_add(g, weft_matmul(g, in[0], w), weft_matmul(g, in[0], in[1])));
    out[1] = out[3] = w;
    out[2] = out[0];
}

/* More values than a scan can store. */
static void build_deep(weft_graph *g, const weft_value *in, weft_value *out)
{
    weft_value h = in[0];
    for (int i = 0; i < 12; i++)
        h = weft_tanh(g, weft_add(g, weft_matmul(g, weft_sin(g, h), in[2]), in[1]));
    out[0] = out[1] = h;
}

const loop_cell loop_cells[LOOP_CELLS] = {
    {"rnn",
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {3, 5}}, {2, {3, 4}}, {2, {4, 5}}, {2, {5, 5}}, {1, {5}}},
     false,
     0},
    {"rnn in reverse",
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {3, 5}}, {2, {3, 4}}, {2, {4, 5}}, {2, {5, 5}}, {1, {5}}},
     true,
     0},
    {"lstm",
     build_lstm,
     2,
     1,
     2,
     1,
     {{2, {2, 6}}, {2, {2, 6}}, {2, {2, 3}}, {2, {3, 24}}, {2, {6, 24}}},
     false,
     0},
    {"wide rnn",
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {64, 96}}, {2, {64, 48}}, {2, {48, 96}}, {2, {96, 96}}, {1, {96}}},
     false,
     0},
    {"sum", build_sum, 1, 1, 0, 1, {{1, {7}}, {1, {7}}}, false, 0},
    {"scalar sum", build_sum, 1, 1, 0, 1, {{0, {0}}, {0, {0}}}, true, 0},
    {"moves",
     build_moves,
     3,
     1,
     0,
     2,
     {{2, {2, 3}}, {2, {2, 3}}, {2, {2, 3}}, {2, {2, 3}}},
     false,
     0},
    {"map", build_map, 0, 1, 0, 2, {{1, {3}}}, false, 0},
    {"a weight used twice",
     build_twice,
     1,
     1,
     2,
     1,
     {{2, {3, 4}}, {2, {4, 3}}, {2, {4, 4}}, {1, {4}}},
     false,
     0},
    {"a weight that is carried",
     build_carried_weight,
     2,
     1,
     1,
     1,
     {{2, {3, 4}}, {2, {4, 4}}, {2, {3, 4}}, {2, {4, 4}}},
     false,
     0},
    {"heads",
     build_heads,
     1,
     1,
     3,
     1,
     {{3, {2, 3, 4}}, {3, {2, 3, 4}}, {3, {2, 4, 4}}, {2, {4, 4}}, {3, {2, 1, 4}}},
     true,
     0},
    {"deep", build_deep, 1, 1, 1, 1, {{2, {2, 3}}, {2, {2, 3}}, {2, {3, 3}}}, false, 0},
    {"tall rnn", /* whose gradients are larger than those of its weights */
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {1000, 5}}, {2, {1000, 4}}, {2, {4, 5}}, {2, {5, 5}}, {1, {5}}},
     false,
     0},
    {"the same in all steps",
     build_same_in_all_steps,
     2,
     0,
     1,
     2,
     {{2, {64, 96}}, {2, {96, 96}}, {2, {96, 96}}},
     false,
     0},
    {"lstm, recomputed",
     build_lstm,
     2,
     1,
     2,
     1,
     {{2, {2, 6}}, {2, {2, 6}}, {2, {2, 3}}, {2, {3, 24}}, {2, {6, 24}}},
     false,
     1},
};

#define INNER 3

/* One carry, a sequence of INNER slices and a weight: h = tanh(h w + x), INNER times. */
static void build_nested(weft_graph *g, const weft_value *in, weft_value *out)
{
    static const loop_cell inner = {"inner",
                                    build_rnn,
                                    1,
                                    1,
                                    3,
                                    1,
                                    {{2, {2, 3}}, {2, {2, 3}}, {2, {3, 3}}, {2, {3, 3}}, {1, {3}}},
                                    true,
                                    0};
    const weft_value values[] = {in[0], in[1], in[2], in[2], in[3]};
    loop_by_scan(g, &inner, INNER, values, out);
}

const loop_cell loop_nested = {"nested",
                               build_nested,
                               1,
                               1,
                               2,
                               1,
                               {{2, {2, 3}}, {3, {INNER, 2, 3}}, {2, {3, 3}}, {1, {3}}},
                               false,
                               0};

size_t loop_inputs(const loop_cell *c)
{
    return c->n_carry + c->n_each + c->n_shared;
}

size_t loop_outputs(const loop_cell *c)
{
    return c->n_carry + c->n_out;
}

static weft_shape stack_shape(weft_shape one, int64_t n)
{
    weft_shape all = {one.rank + 1, {n}};
    for (int d = 0; d < one.rank; d++) all.dim[d + 1] = one.dim[d];
    return all;
}

static weft_value numbered_input(weft_graph *g, size_t i, weft_dtype dtype, weft_shape shape)
{
    char name[32];
    snprintf(name, sizeof name, "in%zu", i);
    return weft_input(g, name, dtype, shape);
}

/* Declares what the loop reads. */
void loop_declare(weft_graph *g, const loop_cell *c, weft_dtype dtype, int64_t n, weft_value *in)
{
    for (size_t i = 0; i < loop_inputs(c); i++) {
        const bool each = i >= c->n_carry && i < c->n_carry + c->n_each;
        in[i] = numbered_input(g, i, dtype, each ? stack_shape(c->shape[i], n) : c->shape[i]);
    }
}

void loop_fill(weft_session *s, weft_graph *g, const weft_value *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        if (weft_session_tensor(s, in[i], &t, NULL) != WEFT_OK) continue; /* no target reads it */
        const weft_sample_input numbers = {t.dtype, weft_shape_of(g, in[i]), -1, 1, false};
        weft_sample_input_fill(&numbers, t.dtype, 100 + i, t.data);
    }
}

/* A body of the loop_cell in a graph that the caller frees. in[] and out[] have room for it. */
static weft_scan_body make_body(const loop_cell *c, weft_dtype dtype, weft_value *in,
                                weft_value *out)
{
    weft_graph *g = weft_graph_new();
    for (size_t i = 0; i < loop_inputs(c); i++) in[i] = numbered_input(g, i, dtype, c->shape[i]);
    c->build(g, in, out);
    const weft_scan_body body = {.graph = g,
                                 .n_carry = c->n_carry,
                                 .carry_in = in,
                                 .carry_out = out,
                                 .n_each = c->n_each,
                                 .each = in + c->n_carry,
                                 .n_shared = c->n_shared,
                                 .shared = in + c->n_carry + c->n_each,
                                 .n_out = c->n_out,
                                 .out = out + c->n_carry,
                                 .reverse = c->reverse,
                                 .segment = c->segment};
    return body;
}

void loop_by_scan(weft_graph *g, const loop_cell *c, int64_t n, const weft_value *in,
                  weft_value *out)
{
    weft_value body_in[LOOP_MAX_IN], body_out[LOOP_MAX_OUT];
    const weft_scan_body body = make_body(c, weft_dtype_of(g, in[0]), body_in, body_out);
    const weft_scan_inputs inputs = {in, in + c->n_carry, in + c->n_carry + c->n_each};
    weft_scan(g, &body, n, &inputs, out, out + c->n_carry);
    weft_graph_free(body.graph);
}

void loop_by_hand(weft_graph *g, const loop_cell *c, int64_t n, const weft_value *in,
                  weft_value *out)
{
    weft_value now[LOOP_MAX_IN], next[LOOP_MAX_OUT];
    weft_value *rows[LOOP_MAX_OUT] = {NULL};
    for (size_t k = 0; k < c->n_out; k++) rows[k] = calloc((size_t)n, sizeof **rows);
    memcpy(now, in, loop_inputs(c) * sizeof *now);
    for (int64_t step = 0; step < n; step++) {
        const int64_t t = c->reverse ? n - 1 - step : step;
        for (size_t i = c->n_carry; i < c->n_carry + c->n_each; i++) {
            const weft_value row = weft_slice(g, in[i], 0, t, t + 1, 1);
            now[i] = weft_reshape(g, row, c->shape[i]);
        }
        c->build(g, now, next);
        memcpy(now, next, c->n_carry * sizeof *now);
        for (size_t k = 0; k < c->n_out; k++) rows[k][t] = next[c->n_carry + k];
    }
    memcpy(out, now, c->n_carry * sizeof *out);
    for (size_t k = 0; k < c->n_out; k++) {
        out[c->n_carry + k] = weft_stack(g, rows[k], (size_t)n, 0);
        free(rows[k]);
    }
}

/* Runs a graph of pairs of targets and returns how far they are apart. */
double loop_run_pairs(weft_graph *g, const loop_cell *c, const weft_value *in,
                      const weft_value *targets, size_t n_pairs,
                      const weft_plan_options *plan_options,
                      const weft_session_options *session_options)
{
    weft_error e = {.status = WEFT_OK};
    double off = INFINITY;
    weft_plan *plan = weft_plan_new(g, targets, 2 * n_pairs, plan_options, &e);
    weft_session *s = plan ? weft_session_new(plan, NULL, session_options, &e) : NULL;
    if (s) {
        loop_fill(s, g, in, loop_inputs(c));
        for (int run = 0; run < 2 && e.status == WEFT_OK; run++) weft_session_run(s, &e);
        if (e.status == WEFT_OK) off = pairs_off(g, s, targets, n_pairs);
    }
    if (e.status != WEFT_OK) fprintf(stderr, "\n    %s: %s: %s\n", c->name, e.where, e.message);
    CU_ASSERT_EQUAL(e.status, WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    return off;
}

/* How far a scan is from its steps by hand. */
double loop_compare(const loop_cell *c, weft_dtype dtype, int64_t n,
                    const weft_plan_options *plan_options,
                    const weft_session_options *session_options)
{
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], scan[LOOP_MAX_OUT], hand[LOOP_MAX_OUT], targets[2 * LOOP_MAX_OUT];
    loop_declare(g, c, dtype, n, in);
    loop_by_scan(g, c, n, in, scan);
    loop_by_hand(g, c, n, in, hand);
    for (size_t k = 0; k < loop_outputs(c); k++) {
        targets[2 * k] = scan[k];
        targets[2 * k + 1] = hand[k];
    }
    CU_ASSERT_EQUAL(weft_graph_verify(g, NULL), WEFT_OK);
    const double off =
        loop_run_pairs(g, c, in, targets, loop_outputs(c), plan_options, session_options);
    weft_graph_free(g);
    return off;
}
/* A scalar that depends on all outputs: a sum of sums or means of squares. */
weft_value loop_loss(weft_graph *g, const weft_value *out, size_t n, bool mean)
{
    weft_value terms[LOOP_MAX_OUT];
    for (size_t k = 0; k < n; k++) {
        const weft_value square = weft_square(g, out[k]);
        terms[k] = mean ? weft_mean(g, square, WEFT_ALL_AXES, false)
                        : weft_sum(g, square, WEFT_ALL_AXES, false);
    }
    return weft_add_n(g, terms, n);
}
