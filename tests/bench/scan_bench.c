/* Recurrent layers as one loop (weft_scan) and with all steps as nodes: scan_bench [STEPS]
 *
 * Plans an LSTM, a GRU and an RNN of 32 units on 8 sequences of 32 numbers, STEPS steps each (default
 * 1000), forwards and with the gradients of a sum of squares by all weights; the loop's gradient also
 * with weft_scan_body.segment = 1. Runs of the forms alternate, on one thread, and the least time of
 * each counts, so that all see the same machine. With more steps than a graph has room for, only the
 * loops run. Not a test: nothing here fails because it is slow. */
#include <weft/autograd.h>
#include <weft/scan.h>
#include <weft/session.h>
#include <weft/weft.h>

#include "base/platform.h"

#include <stdio.h>
#include <stdlib.h>

enum { UNITS = 32, BATCH = 8, MAX_UNROLLED = 2000, N_SHARED = 4, MAX_IN = 7, MIN_ROUNDS = 15 };
#define SECONDS 4.0

/* in[]: the carry h and, for an LSTM, c; the slice x; then the weights. out[]: the next carries. */
typedef struct cell {
    const char *name;
    size_t n_carry, n_shared;
    int64_t gates;
    void (*step)(weft_graph *g, const weft_value *in, weft_value *out);
} cell;

/* x W_x + b and h W_h */
static weft_value project(weft_graph *g, const weft_value *shared, weft_value x)
{
    return weft_add(g, weft_matmul(g, x, shared[0]), shared[2]);
}

static void step_rnn(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value h = weft_matmul(g, in[0], in[3]);
    out[0] = weft_tanh(g, weft_add(g, project(g, in + 2, in[1]), h));
}

static void step_lstm(weft_graph *g, const weft_value *in, weft_value *out)
{
    weft_value gates[4];
    const weft_value h = weft_matmul(g, in[0], in[4]);
    weft_chunk(g, weft_add(g, project(g, in + 3, in[2]), h), -1, 4, gates);
    const weft_value i = weft_sigmoid(g, gates[0]), f = weft_sigmoid(g, gates[1]);
    const weft_value o = weft_sigmoid(g, gates[2]), kept = weft_mul(g, f, in[1]);
    out[1] = weft_add(g, kept, weft_mul(g, i, weft_tanh(g, gates[3])));
    out[0] = weft_mul(g, o, weft_tanh(g, out[1]));
}

/* n + z (h - n) with n = tanh(x W_n + r (h U_n + b_n)) */
static void step_gru(weft_graph *g, const weft_value *in, weft_value *out)
{
    weft_value x[2], h[2], gates[2];
    const int64_t sizes[2] = {2 * UNITS, UNITS};
    weft_split(g, project(g, in + 2, in[1]), -1, sizes, 2, x);
    weft_split(g, weft_matmul(g, in[0], in[3]), -1, sizes, 2, h);
    weft_chunk(g, weft_sigmoid(g, weft_add(g, x[0], h[0])), -1, 2, gates);
    const weft_value reset = weft_mul(g, gates[0], weft_add(g, h[1], in[5]));
    const weft_value next = weft_tanh(g, weft_add(g, x[1], reset));
    out[0] = weft_add(g, next, weft_mul(g, gates[1], weft_sub(g, in[0], next)));
}

static const cell cells[] = {
    {"lstm", 2, 3, 4, step_lstm}, {"gru", 1, 4, 3, step_gru}, {"rnn", 1, 3, 1, step_rnn}};

/* Declares what a step reads, or, with `steps`, the loop. */
static void declare(weft_graph *g, const cell *c, int64_t steps, weft_value *in)
{
    const weft_shape shared[N_SHARED] = {WEFT_SHAPE(UNITS, c->gates * UNITS),
                                         WEFT_SHAPE(UNITS, c->gates * UNITS),
                                         WEFT_SHAPE(c->gates * UNITS), WEFT_SHAPE(UNITS)};
    const weft_shape x = steps ? WEFT_SHAPE(steps, BATCH, UNITS) : WEFT_SHAPE(BATCH, UNITS);
    for (size_t i = 0; i < c->n_carry; i++)
        in[i] = weft_input(g, i ? "c" : "h", WEFT_F32, WEFT_SHAPE(BATCH, UNITS));
    in[c->n_carry] = weft_input(g, "x", WEFT_F32, x);
    for (size_t i = 0; i < c->n_shared; i++)
        in[c->n_carry + 1 + i] =
            weft_input(g, (const char *const[]){"w_x", "w_h", "b", "b_h"}[i], WEFT_F32, shared[i]);
}

/* h of all steps, by a loop. */
static weft_value by_scan(weft_graph *g, const cell *c, int64_t steps, bool recompute,
                          const weft_value *in)
{
    weft_graph *b = weft_graph_new();
    weft_value body_in[MAX_IN], out[2], last[2], stacked;
    declare(b, c, 0, body_in);
    c->step(b, body_in, out);
    const weft_scan_body body = {.graph = b,
                                 .n_carry = c->n_carry,
                                 .carry_in = body_in,
                                 .carry_out = out,
                                 .n_each = 1,
                                 .each = body_in + c->n_carry,
                                 .n_shared = c->n_shared,
                                 .shared = body_in + c->n_carry + 1,
                                 .n_out = 1,
                                 .out = out,
                                 .segment = recompute};
    const weft_scan_inputs inputs = {in, in + c->n_carry, in + c->n_carry + 1};
    weft_scan(g, &body, steps, &inputs, last, &stacked);
    weft_graph_free(b);
    return stacked;
}

/* The same by nodes. */
static weft_value by_steps(weft_graph *g, const cell *c, int64_t steps, const weft_value *in)
{
    weft_value now[MAX_IN], out[2], *rows = calloc((size_t)steps, sizeof *rows);
    if (!rows) abort();
    for (size_t i = 0; i < c->n_carry + 1 + c->n_shared; i++) now[i] = in[i];
    for (int64_t t = 0; t < steps; t++) {
        const weft_value row = weft_slice(g, in[c->n_carry], 0, t, t + 1, 1);
        now[c->n_carry] = weft_reshape(g, row, WEFT_SHAPE(BATCH, UNITS));
        c->step(g, now, out);
        for (size_t i = 0; i < c->n_carry; i++) now[i] = out[i];
        rows[t] = out[0];
    }
    const weft_value stacked = weft_stack(g, rows, (size_t)steps, 0);
    free(rows);
    return stacked;
}

/* One form of one layer. */
typedef enum form_kind { SCAN, RECOMPUTED, UNROLLED, FORMS } form_kind;
typedef struct form {
    form_kind kind;
    weft_graph *graph;
    weft_plan *plan;
    weft_session *session;
    double planning, least;
} form;

static bool open_form(form *f, const cell *c, int64_t steps, form_kind kind, bool gradients,
                      weft_error *error)
{
    weft_value in[MAX_IN], targets[N_SHARED];
    *f = (form){.kind = kind, .graph = weft_graph_new(), .least = 1e30};
    declare(f->graph, c, steps, in);
    const double begin = clock_seconds();
    targets[0] = kind == UNROLLED ? by_steps(f->graph, c, steps, in)
                                  : by_scan(f->graph, c, steps, kind == RECOMPUTED, in);
    if (gradients) {
        const weft_value square = weft_square(f->graph, targets[0]);
        weft_grad(f->graph, weft_sum(f->graph, square, WEFT_ALL_AXES, false), in + c->n_carry + 1,
                  c->n_shared, targets);
    }
    f->plan = weft_plan_new(f->graph, targets, gradients ? c->n_shared : 1, NULL, error);
    f->planning = clock_seconds() - begin;
    const weft_session_options o = {.threads = 1};
    if (f->plan) f->session = weft_session_new(f->plan, NULL, &o, error);
    for (size_t i = 0; f->session && i < c->n_carry + 1 + c->n_shared; i++) {
        weft_tensor t;
        if (weft_session_tensor(f->session, in[i], &t, error) != WEFT_OK) return false;
        const weft_sample_input numbers = {WEFT_F32, t.shape, -0.3, 0.3, false};
        weft_sample_input_fill(&numbers, WEFT_F32, i, t.data);
    }
    return f->session;
}

static void close_form(form *f)
{
    weft_session_free(f->session);
    weft_plan_free(f->plan);
    weft_graph_free(f->graph);
}

static void compare(const cell *c, int64_t steps, bool gradients, weft_error *error)
{
    static const char *const names[FORMS] = {"scan", "recomputed", "unrolled"};
    form forms[FORMS];
    int n = 0;
    bool good = true;
    for (int kind = 0; kind < FORMS; kind++)
        if ((kind != RECOMPUTED || gradients) && (kind != UNROLLED || steps <= MAX_UNROLLED))
            good &= open_form(&forms[n++], c, steps, (form_kind)kind, gradients, error);
    const double begin = clock_seconds();
    for (int round = 0; good && (round < MIN_ROUNDS || clock_seconds() - begin < SECONDS); round++)
        for (int i = 0; i < n; i++) {
            const double start = clock_seconds();
            good &= weft_session_run(forms[i].session, error) == WEFT_OK;
            const double seconds = clock_seconds() - start;
            if (seconds < forms[i].least) forms[i].least = seconds;
        }
    for (int i = 0; good && i < n; i++) {
        const weft_plan_stats s = weft_plan_stats_of(forms[i].plan);
        printf(
            "%-5s %-8s %-10s %7lld steps %6zu nodes %8.1f ms planning %8.2f MB %8.2f us a step\n",
            c->name, gradients ? "gradient" : "forward", names[forms[i].kind], (long long)steps,
            s.nodes, 1e3 * forms[i].planning, 1e-6 * (double)s.arena_bytes,
            1e6 * forms[i].least / (double)steps);
    }
    for (int i = 0; i < n; i++) close_form(&forms[i]);
}

int main(int argc, char **argv)
{
    weft_error error = WEFT_NO_ERROR;
    const long long steps = argc > 1 ? atoll(argv[1]) : 1000;
    if (argc > 2 || steps < 1) {
        fprintf(stderr, "Usage: scan_bench [STEPS]\n");
        return 2;
    }
    for (size_t i = 0; i < 2 * sizeof cells / sizeof *cells && error.status == WEFT_OK; i++)
        compare(&cells[i / 2], steps, i % 2, &error);
    if (error.status != WEFT_OK)
        fprintf(stderr, "scan_bench: %s: %s\n", error.where, error.message);
    return error.status != WEFT_OK;
}
