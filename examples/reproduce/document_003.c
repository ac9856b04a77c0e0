/* 003: from recurrent networks to a Transformer layer, in NumPy. */
#include "examples.h"

#include <math.h>

/* ---- Recurrent cells ---- */

/* How far results of tanh lie outside [-1, 1]. */
static weft_value beyond_one(weft_graph *g, weft_value x)
{
    weft_value size = weft_abs(g, x);
    return weft_relu(g, weft_sub(g, size, weft_scalar(g, WEFT_F64, 1)));
}

static void count_parameters(example *ex, double expected)
{
    size_t n;
    const weft_value *params = weft_graph_params(ex->g, &n);
    int64_t count = 0;
    for (size_t i = 0; i < n; i++) count += weft_shape_numel(weft_shape_of(ex->g, params[i]));
    expect_number(ex, "parameters", weft_scalar(ex->g, WEFT_F64, (double)count), expected, 0);
}

static weft_value first_of_batch(weft_graph *g, weft_value x)
{
    return weft_squeeze(g, weft_slice(g, x, 0, 0, 1, 1), 0);
}

/* All states of a cell of width 3 over the sequence x [1, len, 4], [len, 3]. The batch also has 100
 * x, which saturates tanh. */
static weft_value cell_states(example *ex, weft_recurrent_kind kind, weft_value x,
                              weft_recurrent_state *last)
{
    weft_graph *g = ex->g;
    weft_value both = weft_concat(g, (weft_value[]){x, weft_mul_scalar(g, x, 100)}, 2, 0);
    weft_value states = weft_nn_recurrent(g, "cell", kind, both, 3, NULL, last);
    expect_number(ex, "states beyond [-1, 1]", beyond_one(g, states), 0, 0);
    return first_of_batch(g, states);
}

static void simple_rnn(report *r)
{
    example ex = example_open(r, "003 RNN", WEFT_F64);
    weft_graph *g = ex.g;
    weft_recurrent_state last;
    weft_value x = example_input(&ex, "003.rnn.x", WEFT_SHAPE(1, 3, 4));
    weft_value states = cell_states(&ex, WEFT_RNN, x, &last);
    example_load(&ex, "cell.weight_x", (const char *[]){"003.rnn.w_x"}, 1);
    example_load(&ex, "cell.weight_h", (const char *[]){"003.rnn.w_h"}, 1);
    count_parameters(&ex, 24);
    expect_shape(&ex, "W_xh (ours transposed)",
                 weft_transpose(g, weft_graph_find(g, "cell.weight_x"), 0, 1), WEFT_SHAPE(3, 4));
    expect_shape(&ex, "W_hh", weft_graph_find(g, "cell.weight_h"), WEFT_SHAPE(3, 3));
    expect_shape(&ex, "last state", first_of_batch(g, last.h), WEFT_SHAPE(3));
    expect_figure(&ex, "states (weights of NumPy)", states, "003.rnn.states");
    example_run(&ex);
    report_left_out(r, "003 RNN", "ranges of states", "left out: cut off, no seed stated");
}

static void lstm(report *r)
{
    static const char *const from_h[] = {"003.lstm.f_h", "003.lstm.i_h", "003.lstm.c_h",
                                         "003.lstm.o_h"};
    static const char *const from_x[] = {"003.lstm.f_x", "003.lstm.i_x", "003.lstm.c_x",
                                         "003.lstm.o_x"};
    example ex = example_open(r, "003 LSTM", WEFT_F64);
    weft_graph *g = ex.g;
    weft_recurrent_state last;
    weft_value x = example_input(&ex, "003.lstm.x", WEFT_SHAPE(1, 10, 4));
    weft_value states = cell_states(&ex, WEFT_LSTM, x, &last);
    example_load(&ex, "cell.weight_x", from_x, 4);
    example_load(&ex, "cell.weight_h", from_h, 4);
    count_parameters(&ex, 96);
    expect_shape(&ex, "hidden states", states, WEFT_SHAPE(10, 3));
    expect_shape(&ex, "cell state", first_of_batch(g, last.c), WEFT_SHAPE(3));
    expect_figure(&ex, "hidden states (weights of NumPy)", states, "003.lstm.states");
    expect_figure(&ex, "last cell state (weights of NumPy)", first_of_batch(g, last.c),
                  "003.lstm.cell");
    example_run(&ex);
    report_left_out(r, "003 LSTM", "gates and ranges of states", "left out: no seed stated");
}

/* A gradient that shrinks to 0.45 in each step, after N steps. */
static void vanishing(report *r)
{
    static const int steps[6] = {1, 5, 10, 20, 50, 100};
    example ex = example_open(r, "003 gradient through time", WEFT_F64);
    weft_graph *g = ex.g;
    weft_value x = example_normal(&ex, "x", WEFT_SCALAR), y = x, grads[6];
    for (int n = 1, i = 0; n <= 100; n++) {
        y = weft_mul_scalar(g, y, 0.45);
        if (n == steps[i]) weft_grad(g, y, &x, 1, &grads[i++]);
    }
    expect_figure(&ex, "after 1, 5, 10, 20, 50, 100 steps", weft_stack(g, grads, 6, 0),
                  "003.vanishing");
    example_run(&ex);
}

/* ---- Attention and the Transformer's layers ---- */

static void decoder_state(report *r)
{
    example ex = example_open(r, "003 attention of a decoder", WEFT_F64);
    weft_value states = example_input(&ex, "003.decoder.states", WEFT_SHAPE(5, 4));
    weft_value state = example_input(&ex, "003.decoder.state", WEFT_SHAPE(1, 4));
    attended a = reproduce_attention(ex.g, state, states, states, WEFT_NO_VALUE, 1, 0);
    expect_figure(&ex, "scores", a.scores, "003.decoder.scores");
    expect_figure(&ex, "weights", a.weights, "003.decoder.weights");
    expect_figure(&ex, "sum of the weights", weft_sum(ex.g, a.weights, WEFT_ALL_AXES, false),
                  "003.decoder.sum");
    expect_figure(&ex, "context", a.context, "003.decoder.context");
    expect_shape(&ex, "context", weft_squeeze(ex.g, a.context, 0), WEFT_SHAPE(4));
    example_run(&ex);
}

static void step_by_step(report *r)
{
    example ex = example_open(r, "003 self-attention", WEFT_F64);
    weft_graph *g = ex.g;
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = 1, .no_out = true};
    weft_value x = example_input(&ex, "003.steps.x", WEFT_SHAPE(1, 3, 4));
    weft_value y = weft_nn_attention(g, "attn", x, x, &o, &p);
    example_load(&ex, "attn.q.weight", (const char *[]){"003.steps.w_q"}, 1);
    example_load(&ex, "attn.k.weight", (const char *[]){"003.steps.w_k"}, 1);
    example_load(&ex, "attn.v.weight", (const char *[]){"003.steps.w_v"}, 1);
    weft_value ends[2];
    ends[0] = weft_min(g, p.scaled, WEFT_ALL_AXES, false);
    ends[1] = weft_max(g, p.scaled, WEFT_ALL_AXES, false);
    expect_figure(&ex, "raw scores", p.scores, "003.steps.scores");
    expect_figure(&ex, "range of the scaled scores", weft_stack(g, ends, 2, 0), "003.steps.range");
    expect_figure(&ex, "weights (cut off; NumPy)", p.weights, "003.steps.weights");
    expect_figure(&ex, "output (not printed; NumPy)", y, "003.steps.output");
    expect_shape(&ex, "Q", weft_squeeze(g, weft_squeeze(g, p.q, 0), 0), WEFT_SHAPE(3, 4));
    expect_shape(&ex, "scores", weft_squeeze(g, weft_squeeze(g, p.scores, 0), 0), WEFT_SHAPE(3, 3));
    example_run(&ex);
}

static void positions(report *r)
{
    example ex = example_open(r, "003 sinusoidal positions", WEFT_F64);
    weft_value table = weft_nn_sinusoidal_positions(ex.g, WEFT_F64, 50, 64);
    weft_value corner = weft_slice(ex.g, weft_slice(ex.g, table, 0, 0, 3, 1), 1, 0, 8, 1);
    expect_shape(&ex, "table", table, WEFT_SHAPE(50, 64));
    expect_figure(&ex, "three positions, 8 columns", corner, "003.positions");
    example_run(&ex);
}

/* [length, heads * width] as [heads, length, width]. */
static weft_value by_heads(weft_graph *g, weft_value x, int64_t heads)
{
    int64_t length = weft_dim_of(g, x, 0), width = weft_dim_of(g, x, 1) / heads;
    return weft_permute(g, weft_reshape(g, x, WEFT_SHAPE(length, heads, width)),
                        WEFT_AXES(1, 0, 2));
}

static void slices(report *r)
{
    example ex = example_open(r, "003 heads as slices", WEFT_F64);
    weft_graph *g = ex.g;
    weft_value q = example_input(&ex, "003.slices.q", WEFT_SHAPE(5, 16));
    weft_value k = example_input(&ex, "003.slices.k", WEFT_SHAPE(5, 16));
    weft_value v = example_input(&ex, "003.slices.v", WEFT_SHAPE(5, 16));
    weft_value qs = by_heads(g, q, 4), ks = by_heads(g, k, 4), vs = by_heads(g, v, 4);
    attended a = reproduce_attention(g, qs, ks, vs, WEFT_NO_VALUE, 0.5, 0);
    weft_value y =
        weft_reshape(g, weft_permute(g, a.context, WEFT_AXES(1, 0, 2)), WEFT_SHAPE(5, 16));
    weft_nn_attention_options o = {.heads = 4, .projection = WEFT_PROJECT_NONE, .no_out = true};
    weft_value x = weft_expand_dims(g, q, 0);
    expect_shape(&ex, "output", y, WEFT_SHAPE(5, 16));
    expect_figure(&ex, "output (not printed; NumPy)", y, "003.slices.output");
    expect_figure(&ex, "the layer on Q alone (NumPy)", weft_nn_attention(g, "attn", x, x, &o, NULL),
                  "003.slices.self");
    example_run(&ex);
}

static void feed_forward(report *r)
{
    example ex = example_open(r, "003 feed-forward", WEFT_F64);
    weft_nn_feed_forward_options o = {.d_ff = 256, .bias = true};
    weft_value x = example_normal(&ex, "x", WEFT_SHAPE(5, 64));
    weft_value y = weft_nn_feed_forward(ex.g, "ffn", x, &o);
    expect_shape(&ex, "hidden", weft_graph_find(ex.g, "ffn.hidden"), WEFT_SHAPE(5, 256));
    expect_shape(&ex, "output", y, WEFT_SHAPE(5, 64));
    example_run(&ex);
}

/* The norm without parameters. */
static weft_value plain_norm(weft_graph *g, weft_value x)
{
    weft_shape features = WEFT_SHAPE(weft_dim_of(g, x, -1));
    weft_dtype dtype = weft_dtype_of(g, x);
    weft_value gamma = weft_fill(g, dtype, features, 1), beta = weft_fill(g, dtype, features, 0);
    return weft_layer_norm(g, x, gamma, beta, 1e-6);
}

static void norm_and_residual(report *r)
{
    example ex = example_open(r, "003 layer norm", WEFT_F64);
    weft_graph *g = ex.g;
    weft_value y = plain_norm(g, example_input(&ex, "003.norm.x", WEFT_SHAPE(2, 4)));
    weft_value variance = weft_variance(g, y, WEFT_AXES(-1), false, 0);
    expect_figure(&ex, "normed (NumPy)", y, "003.norm.output");
    expect_figure(&ex, "means (cut off; NumPy)", weft_abs(g, weft_mean(g, y, WEFT_AXES(-1), false)),
                  "003.norm.mean");
    expect_figure(&ex, "deviations (cut off; NumPy)", weft_sqrt(g, variance), "003.norm.deviation");
    example_run(&ex);

    ex = example_open(r, "003 residual", WEFT_F64);
    weft_value x = example_input(&ex, "003.residual.x", WEFT_SHAPE(1, 4));
    expect_figure(&ex, "x + 0.1 x (cut off; NumPy)",
                  weft_add(ex.g, x, weft_mul_scalar(ex.g, x, 0.1)), "003.residual.output");
    example_run(&ex);
}

static void masked(report *r)
{
    const weft_shape shape = WEFT_SHAPE(4, 8);
    example ex = example_open(r, "003 masked self-attention", WEFT_F64);
    weft_value hidden = weft_causal_mask(ex.g, 4, 4);
    weft_value q = example_input(&ex, "003.masked.q", shape),
               k = example_input(&ex, "003.masked.k", shape);
    weft_value v = example_input(&ex, "003.masked.v", shape);
    attended a = reproduce_attention(ex.g, q, k, v, hidden, 1 / sqrt(8), 0);
    expect_figure(&ex, "weights", a.weights, "003.masked.weights");
    expect_figure(&ex, "output (not printed; NumPy)", a.context, "003.masked.output");
    expect_weights(&ex, a.weights, a.dropped, hidden, 0);
    example_run(&ex);
}

/* Scores are over the full width but scaled by the width of a head, as in the document; the norms
 * have no parameters. */
static void transformer_layer(report *r)
{
    example ex = example_open(r, "003 Transformer layer", WEFT_F64);
    weft_graph *g = ex.g;
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = 1, .scale = 1 / sqrt(8)};
    weft_nn_feed_forward_options f = {.d_ff = 256};
    weft_value x = example_normal(&ex, "x", WEFT_SHAPE(1, 5, 64));
    weft_value y = plain_norm(g, weft_add(g, x, weft_nn_attention(g, "attn", x, x, &o, &p)));
    y = plain_norm(g, weft_add(g, y, weft_nn_feed_forward(g, "ffn", y, &f)));
    expect_shape(&ex, "weights", weft_squeeze(g, weft_squeeze(g, p.weights, 0), 0),
                 WEFT_SHAPE(5, 5));
    expect_shape(&ex, "output", weft_squeeze(g, y, 0), WEFT_SHAPE(5, 64));
    expect_number(&ex, "mean of every position", weft_mean(g, y, WEFT_AXES(-1), false), 0, 1e-14);
    expect_number(&ex, "variance of every position", weft_variance(g, y, WEFT_AXES(-1), false, 0),
                  1, 1e-5);
    example_run(&ex);
}

/* The examples in the order of the document. */
void document_003(report *r)
{
    simple_rnn(r);
    vanishing(r);
    lstm(r);
    decoder_state(r);
    step_by_step(r);
    positions(r);
    slices(r);
    feed_forward(r);
    norm_and_residual(r);
    masked(r);
    transformer_layer(r);
}
