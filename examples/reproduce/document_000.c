/* 000: attention in NumPy, one head and three; then a Transformer encoder's parts in PyTorch. */
#include "examples.h"

#include <math.h>

static void single_head(report *r)
{
    example ex = example_open(r, "000 single head", WEFT_F64);
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = 1, .no_out = true};
    weft_value x = example_input(&ex, "000.single.x", WEFT_SHAPE(1, 4, 6));
    weft_value y = weft_nn_attention(ex.g, "attn", x, x, &o, &p);
    example_load(&ex, "attn.q.weight", (const char *[]){"000.single.w_q"}, 1);
    example_load(&ex, "attn.k.weight", (const char *[]){"000.single.w_k"}, 1);
    example_load(&ex, "attn.v.weight", (const char *[]){"000.single.w_v"}, 1);
    expect_figure(&ex, "X", x, "000.single.x");
    expect_figure(&ex, "scores Q K^T", p.scores, "000.single.scores");
    expect_figure(&ex, "scaled scores", p.scaled, "000.single.scaled");
    expect_figure(&ex, "weights", p.weights, "000.single.weights");
    weft_value first = weft_slice(ex.g, p.weights, 2, 0, 1, 1);
    expect_figure(&ex, "sum of the first row", weft_sum(ex.g, first, WEFT_ALL_AXES, false),
                  "000.single.row_sum");
    expect_figure(&ex, "output", y, "000.single.output");
    expect_weights(&ex, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    example_run(&ex);
}

/* The separate matrices of the heads become the columns of one matrix. */
static void three_heads(report *r)
{
    static const char *const names[3][3] = {{"000.heads.w_q0", "000.heads.w_q1", "000.heads.w_q2"},
                                            {"000.heads.w_k0", "000.heads.w_k1", "000.heads.w_k2"},
                                            {"000.heads.w_v0", "000.heads.w_v1", "000.heads.w_v2"}};
    example ex = example_open(r, "000 three heads", WEFT_F64);
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = 3};
    weft_value x = example_input(&ex, "000.heads.x", WEFT_SHAPE(1, 4, 12));
    weft_value y = weft_nn_attention(ex.g, "attn", x, x, &o, &p);
    example_load(&ex, "attn.q.weight", names[0], 3);
    example_load(&ex, "attn.k.weight", names[1], 3);
    example_load(&ex, "attn.v.weight", names[2], 3);
    example_load(&ex, "attn.out.weight", (const char *[]){"000.heads.w_o"}, 1);
    expect_shape(&ex, "Q, by heads", weft_squeeze(ex.g, p.q, 0), WEFT_SHAPE(3, 4, 4));
    expect_shape(&ex, "outputs of the heads", weft_squeeze(ex.g, p.context, 0),
                 WEFT_SHAPE(3, 4, 4));
    expect_figure(&ex, "output", y, "000.heads.output");
    expect_weights(&ex, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    example_run(&ex);
}

/* A mask of ones; zero for the last `hidden` keys of the second sequence. */
static weft_value keep_mask(example *ex, weft_shape shape, int64_t keys, int64_t hidden)
{
    double keep[32];
    for (int64_t i = 0; i < 2 * keys; i++) keep[i] = i < 2 * keys - hidden ? 1 : 0;
    return weft_constant(ex->g, WEFT_F64, shape, keep);
}

/* True where a key is masked out. */
static weft_value not_kept(example *ex, weft_value keep)
{
    return weft_equal(ex->g, keep, weft_fill(ex->g, WEFT_F64, WEFT_SCALAR, 0));
}

static void scaled_dot_product(report *r)
{
    const double p = 0.1;
    const weft_shape shape = WEFT_SHAPE(2, 8, 10, 64);
    example ex = example_open(r, "000 scaled dot product", WEFT_F64);
    weft_value q = example_normal(&ex, "q", shape), k = example_normal(&ex, "k", shape);
    weft_value v = example_normal(&ex, "v", shape),
               keep = keep_mask(&ex, WEFT_SHAPE(2, 1, 1, 10), 10, 3);
    weft_value hidden = not_kept(&ex, keep);
    attended a = reproduce_attention(ex.g, q, k, v, hidden, 1 / sqrt(64), p);
    expect_shape(&ex, "Q, K, V", q, shape);
    expect_shape(&ex, "mask", keep, WEFT_SHAPE(2, 1, 1, 10));
    expect_shape(&ex, "output", a.context, shape);
    expect_shape(&ex, "weights", a.dropped, WEFT_SHAPE(2, 8, 10, 10));
    expect_weights(&ex, a.weights, a.dropped, hidden, p);
    example_run(&ex);
    report_left_out(r, "000 scaled dot product", "weights of one query",
                    "left out: no seed stated");
}

static void multi_head(report *r)
{
    const double p = 0.1;
    const weft_shape shape = WEFT_SHAPE(2, 5, 512), by_heads = WEFT_SHAPE(2, 8, 5, 64);
    example ex = example_open(r, "000 multi-head attention", WEFT_F64);
    weft_value x = example_normal(&ex, "x", shape);
    weft_value hidden = not_kept(&ex, keep_mask(&ex, WEFT_SHAPE(2, 1, 1, 5), 5, 2));
    weft_nn_attention_parts parts;
    weft_nn_attention_options o = {
        .heads = 8, .bias = true, .out_bias = true, .dropout = p, .mask = hidden};
    weft_value y = weft_nn_attention(ex.g, "attn", x, x, &o, &parts);
    expect_shape(&ex, "input", x, shape);
    expect_shape(&ex, "Q, by heads", parts.q, by_heads);
    expect_shape(&ex, "context, by heads", parts.context, by_heads);
    expect_shape(&ex, "output", y, shape);
    expect_shape(&ex, "weights", parts.dropped, WEFT_SHAPE(2, 8, 5, 5));
    expect_weights(&ex, parts.weights, parts.dropped, hidden, p);
    example_run(&ex);
    report_left_out(r, "000 multi-head attention", "weights of one query",
                    "left out: no seed stated");
}

static void feed_forward(report *r)
{
    const weft_shape shape = WEFT_SHAPE(2, 5, 512);
    example ex = example_open(r, "000 feed-forward", WEFT_F64);
    weft_value x = example_normal(&ex, "x", shape);
    weft_nn_feed_forward_options o = {.d_ff = 2048, .bias = true, .dropout = 0.1};
    weft_value y = weft_nn_feed_forward(ex.g, "ffn", x, &o);
    weft_value hidden = weft_graph_find(ex.g, "ffn.hidden"),
               zero = weft_fill(ex.g, WEFT_F64, WEFT_SCALAR, 0);
    expect_shape(&ex, "after the first layer and ReLU", hidden, WEFT_SHAPE(2, 5, 2048));
    expect_number(&ex, "its values below zero",
                  weft_sum(ex.g, weft_minimum(ex.g, hidden, zero), WEFT_ALL_AXES, false), 0, 0);
    expect_shape(&ex, "output", y, shape);
    example_run(&ex);
}

/* The document describes the two residual sums in words only; the figure calls them add and norm.
 */
static void encoder_layer(report *r)
{
    const weft_shape shape = WEFT_SHAPE(2, 5, 512);
    example ex = example_open(r, "000 encoder layer", WEFT_F64);
    weft_value x = example_normal(&ex, "x", shape);
    weft_nn_block_options o = {
        .attention = {.heads = 8, .bias = true, .out_bias = true, .dropout = 0.1},
        .feed_forward = {.d_ff = 2048, .bias = true, .dropout = 0.1},
        .norm_position = WEFT_POST_NORM,
        .eps = 1e-5,
        .dropout = 0.1};
    o.attention.mask = not_kept(&ex, keep_mask(&ex, WEFT_SHAPE(2, 1, 1, 5), 5, 2));
    weft_value y = weft_nn_block(ex.g, x, WEFT_NO_VALUE, WEFT_NO_VALUE, &o);
    expect_shape(&ex, "output", y, shape);
    expect_number(&ex, "mean of every position", weft_mean(ex.g, y, WEFT_AXES(-1), false), 0,
                  1e-12);
    expect_number(&ex, "variance of every position",
                  weft_variance(ex.g, y, WEFT_AXES(-1), false, 0), 1, 1e-4);
    example_run(&ex);
}

void document_000(report *r)
{
    single_head(r);
    three_heads(r);
    scaled_dot_product(r);
    multi_head(r);
    feed_forward(r);
    encoder_layer(r);
}
