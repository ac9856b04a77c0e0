/* 000: attention in NumPy, one head and three; then a Transformer encoder's parts in PyTorch. */
#include "examples.h"

#include <math.h>

static void single_head(report *r)
{
    lab l = lab_open(r, "000 single head", WEFT_F64);
    weft_attention_parts p;
    weft_attention_options o = {.heads = 1, .no_out = true};
    weft_value x = lab_given(&l, "000.single.x", WEFT_SHAPE(1, 4, 6));
    weft_value y = weft_layer_attention(l.g, "attn", x, x, &o, &p);
    lab_load(&l, "attn.q.weight", (const char *[]){"000.single.w_q"}, 1);
    lab_load(&l, "attn.k.weight", (const char *[]){"000.single.w_k"}, 1);
    lab_load(&l, "attn.v.weight", (const char *[]){"000.single.w_v"}, 1);
    lab_figure(&l, "X", x, "000.single.x");
    lab_figure(&l, "scores Q K^T", p.scores, "000.single.scores");
    lab_figure(&l, "scaled scores", p.scaled, "000.single.scaled");
    lab_figure(&l, "weights", p.weights, "000.single.weights");
    weft_value first = weft_slice(l.g, p.weights, 2, 0, 1, 1);
    lab_figure(&l, "sum of the first row", weft_sum(l.g, first, WEFT_ALL_AXES, false),
               "000.single.row_sum");
    lab_figure(&l, "output", y, "000.single.output");
    lab_weights(&l, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    lab_close(&l);
}

/* Separate matrices of each head are the columns of one matrix. */
static void three_heads(report *r)
{
    static const char *const names[3][3] = {{"000.heads.w_q0", "000.heads.w_q1", "000.heads.w_q2"},
                                            {"000.heads.w_k0", "000.heads.w_k1", "000.heads.w_k2"},
                                            {"000.heads.w_v0", "000.heads.w_v1", "000.heads.w_v2"}};
    lab l = lab_open(r, "000 three heads", WEFT_F64);
    weft_attention_parts p;
    weft_attention_options o = {.heads = 3};
    weft_value x = lab_given(&l, "000.heads.x", WEFT_SHAPE(1, 4, 12));
    weft_value y = weft_layer_attention(l.g, "attn", x, x, &o, &p);
    lab_load(&l, "attn.q.weight", names[0], 3);
    lab_load(&l, "attn.k.weight", names[1], 3);
    lab_load(&l, "attn.v.weight", names[2], 3);
    lab_load(&l, "attn.out.weight", (const char *[]){"000.heads.w_o"}, 1);
    lab_shape(&l, "Q, by heads", weft_squeeze(l.g, p.q, 0), WEFT_SHAPE(3, 4, 4));
    lab_shape(&l, "outputs of the heads", weft_squeeze(l.g, p.context, 0), WEFT_SHAPE(3, 4, 4));
    lab_figure(&l, "output", y, "000.heads.output");
    lab_weights(&l, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    lab_close(&l);
}

/* A mask of ones where a key is kept; the last `hidden` keys of the second sequence are not. */
static weft_value keep_mask(lab *l, weft_shape shape, int64_t keys, int64_t hidden)
{
    double keep[32];
    for (int64_t i = 0; i < 2 * keys; i++) keep[i] = i < 2 * keys - hidden ? 1 : 0;
    return weft_constant_data(l->g, WEFT_F64, shape, keep);
}

/* True where a key may not be seen. */
static weft_value not_kept(lab *l, weft_value keep)
{
    return weft_equal(l->g, keep, weft_fill(l->g, WEFT_F64, WEFT_SCALAR, 0));
}

static void scaled_dot_product(report *r)
{
    const double p = 0.1;
    const weft_shape shape = WEFT_SHAPE(2, 8, 10, 64);
    lab l = lab_open(r, "000 scaled dot product", WEFT_F64);
    weft_value q = lab_normal(&l, "q", shape), k = lab_normal(&l, "k", shape);
    weft_value v = lab_normal(&l, "v", shape), keep = keep_mask(&l, WEFT_SHAPE(2, 1, 1, 10), 10, 3);
    weft_value hidden = not_kept(&l, keep);
    attended a = reproduce_attention(l.g, q, k, v, hidden, 1 / sqrt(64), p);
    lab_shape(&l, "Q, K, V", q, shape);
    lab_shape(&l, "mask", keep, WEFT_SHAPE(2, 1, 1, 10));
    lab_shape(&l, "output", a.context, shape);
    lab_shape(&l, "weights", a.dropped, WEFT_SHAPE(2, 8, 10, 10));
    lab_weights(&l, a.weights, a.dropped, hidden, p);
    lab_close(&l);
    report_left_out(r, "000 scaled dot product", "weights of one query",
                    "left out: no seed stated");
}

static void multi_head(report *r)
{
    const double p = 0.1;
    const weft_shape shape = WEFT_SHAPE(2, 5, 512), by_heads = WEFT_SHAPE(2, 8, 5, 64);
    lab l = lab_open(r, "000 multi-head attention", WEFT_F64);
    weft_value x = lab_normal(&l, "x", shape);
    weft_value hidden = not_kept(&l, keep_mask(&l, WEFT_SHAPE(2, 1, 1, 5), 5, 2));
    weft_attention_parts parts;
    weft_attention_options o = {
        .heads = 8, .bias = true, .out_bias = true, .dropout = p, .mask = hidden};
    weft_value y = weft_layer_attention(l.g, "attn", x, x, &o, &parts);
    lab_shape(&l, "input", x, shape);
    lab_shape(&l, "Q, by heads", parts.q, by_heads);
    lab_shape(&l, "context, by heads", parts.context, by_heads);
    lab_shape(&l, "output", y, shape);
    lab_shape(&l, "weights", parts.dropped, WEFT_SHAPE(2, 8, 5, 5));
    lab_weights(&l, parts.weights, parts.dropped, hidden, p);
    lab_close(&l);
    report_left_out(r, "000 multi-head attention", "weights of one query",
                    "left out: no seed stated");
}

static void feed_forward(report *r)
{
    const weft_shape shape = WEFT_SHAPE(2, 5, 512);
    lab l = lab_open(r, "000 feed-forward", WEFT_F64);
    weft_value x = lab_normal(&l, "x", shape);
    weft_feed_forward_options o = {.d_ff = 2048, .bias = true, .dropout = 0.1};
    weft_value y = weft_layer_feed_forward(l.g, "ffn", x, &o);
    weft_value hidden = weft_find(l.g, "ffn.hidden"),
               zero = weft_fill(l.g, WEFT_F64, WEFT_SCALAR, 0);
    lab_shape(&l, "after the first layer and ReLU", hidden, WEFT_SHAPE(2, 5, 2048));
    lab_number(&l, "what of it is below zero",
               weft_sum(l.g, weft_minimum(l.g, hidden, zero), WEFT_ALL_AXES, false), 0, 0);
    lab_shape(&l, "output", y, shape);
    lab_close(&l);
}

/* Both lines before a norm are said in words only; they are the add and norm of the figure. */
static void encoder_layer(report *r)
{
    const weft_shape shape = WEFT_SHAPE(2, 5, 512);
    lab l = lab_open(r, "000 encoder layer", WEFT_F64);
    weft_value x = lab_normal(&l, "x", shape);
    weft_block_options o = {
        .attention = {.heads = 8, .bias = true, .out_bias = true, .dropout = 0.1},
        .feed_forward = {.d_ff = 2048, .bias = true, .dropout = 0.1},
        .norm_position = WEFT_POST_NORM,
        .eps = 1e-5,
        .dropout = 0.1};
    o.attention.mask = not_kept(&l, keep_mask(&l, WEFT_SHAPE(2, 1, 1, 5), 5, 2));
    weft_value y = weft_layer_block(l.g, x, WEFT_NO_VALUE, WEFT_NO_VALUE, &o);
    lab_shape(&l, "output", y, shape);
    lab_number(&l, "mean of every position", weft_mean(l.g, y, WEFT_AXES(-1), false), 0, 1e-12);
    lab_number(&l, "variance of every position", weft_variance(l.g, y, WEFT_AXES(-1), false, 0), 1,
               1e-4);
    lab_close(&l);
}

void example_000(report *r)
{
    single_head(r);
    three_heads(r);
    scaled_dot_product(r);
    multi_head(r);
    feed_forward(r);
    encoder_layer(r);
}
