/* 002: an encoder of five layers over [30, 200, 512] with fused projections. Heads are concatenated
 * once as the text describes, and once as its code does. */
#include "examples.h"

enum { BATCH = 30, LENGTH = 200, WIDTH = 512, HEADS = 8, HEAD = 64 };

static const weft_shape whole = {3, {BATCH, LENGTH, WIDTH}};

/* Every intermediate shape of one layer, in f32 as in the document. */
static void one_layer(report *r, const char *system, bool as_rows)
{
    const weft_shape by_heads = WEFT_SHAPE(BATCH, HEADS, LENGTH, HEAD);
    example ex = example_open(r, system, WEFT_F32);
    weft_graph *g = ex.g;
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = HEADS,
                                   .projection = WEFT_PROJECT_FUSED,
                                   .bias = true,
                                   .out_bias = true,
                                   .merge_as_rows = as_rows};
    weft_nn_feed_forward_options f = {.d_ff = 2048, .bias = true, .dropout = 0.1};
    weft_value x = example_normal(&ex, "x", whole);
    weft_value y = weft_nn_attention(g, "attn", x, x, &o, &p);
    weft_value qkv = weft_graph_find(g, "attn.qkv");
    expect_shape(&ex, "x", x, whole);
    expect_shape(&ex, "qkv", qkv, WEFT_SHAPE(BATCH, LENGTH, 3 * WIDTH));
    weft_value split = weft_reshape(g, qkv, WEFT_SHAPE(BATCH, LENGTH, HEADS, 3 * HEAD));
    expect_shape(&ex, "qkv by heads", split, WEFT_SHAPE(BATCH, LENGTH, HEADS, 3 * HEAD));
    expect_shape(&ex, "heads first", weft_permute(g, split, WEFT_AXES(0, 2, 1, 3)),
                 WEFT_SHAPE(BATCH, HEADS, LENGTH, 3 * HEAD));
    expect_shape(&ex, "q", p.q, by_heads);
    expect_shape(&ex, "k", p.k, by_heads);
    expect_shape(&ex, "v", p.v, by_heads);
    expect_shape(&ex, "scaled", p.scaled, WEFT_SHAPE(BATCH, HEADS, LENGTH, LENGTH));
    expect_shape(&ex, "attention", p.weights, WEFT_SHAPE(BATCH, HEADS, LENGTH, LENGTH));
    expect_shape(&ex, "values", p.context, by_heads);
    expect_shape(&ex, "values, concatenated", weft_graph_find(g, "attn.merged"), whole);
    expect_shape(&ex, "out", y, whole);
    weft_value sum = weft_add(g, x, weft_dropout(g, y, 0.1));
    expect_shape(&ex, "mean", weft_mean(g, sum, WEFT_AXES(-1), true), WEFT_SHAPE(BATCH, LENGTH, 1));
    expect_shape(
        &ex, "standard deviation",
        weft_sqrt(g, weft_add_scalar(g, weft_variance(g, sum, WEFT_AXES(-1), true, 0), 1e-5)),
        WEFT_SHAPE(BATCH, LENGTH, 1));
    weft_value normed = weft_nn_layer_norm(g, "norm", sum, 1e-5);
    expect_shape(&ex, "gamma", weft_graph_find(g, "norm.gamma"), WEFT_SHAPE(WIDTH));
    expect_shape(&ex, "beta", weft_graph_find(g, "norm.beta"), WEFT_SHAPE(WIDTH));
    expect_shape(&ex, "normed", normed, whole);
    expect_shape(&ex, "after the feed-forward", weft_nn_feed_forward(g, "ffn", normed, &f), whole);
    expect_shape(&ex, "inside it", weft_graph_find(g, "ffn.hidden"),
                 WEFT_SHAPE(BATCH, LENGTH, 2048));
    example_run(&ex);
}

/* The model of the list, whose defaults are the document's sizes, with dropout. */
static void encoder(report *r, const char *system, const char *merge)
{
    example ex = example_open(r, system, WEFT_F32);
    weft_built built = {0};
    weft_model_config config;
    const weft_model *model = weft_model_find("encoder");
    if (weft_model_parse(model, &merge, 1, &config, &ex.error) == WEFT_OK) {
        weft_graph *g = ex.g;
        config.build.training = true;
        built = weft_model_build(g, &config);
        ex.input = weft_built_input(&built, "input");
        expect_shape(&ex, "output", built.outputs[0], whole);
        expect_number(&ex, "mean of every position",
                      weft_mean(g, built.outputs[0], WEFT_AXES(-1), false), 0, 1e-5);
    }
    example_run(&ex);
}

/* The first form concatenates the heads' results of one position. The second mixes positions, so
 * the two differ unless there is one head. */
static void merges(report *r)
{
    example ex = example_open(r, "002 both ways to concatenate", WEFT_F64);
    weft_graph *g = ex.g;
    for (int64_t heads = 1; heads <= 2; heads++) {
        weft_nn_attention_options o = {
            .heads = heads, .projection = WEFT_PROJECT_NONE, .no_out = true};
        weft_graph_push_scope(g, "heads.%lld", (long long)heads);
        weft_value x = example_normal(&ex, "x", WEFT_SHAPE(1, 3, 4));
        weft_value a = weft_nn_attention(g, "a", x, x, &o, NULL);
        o.merge_as_rows = true;
        weft_value b = weft_nn_attention(g, "b", x, x, &o, NULL);
        weft_graph_pop_scope(g);
        weft_value off = weft_max(g, weft_abs(g, weft_sub(g, a, b)), WEFT_ALL_AXES, false);
        weft_value differ =
            weft_cast(g, weft_greater(g, off, weft_scalar(g, WEFT_F64, 1e-3)), WEFT_F64);
        expect_number(&ex, heads == 1 ? "differ with one head" : "differ with two heads", differ,
                      heads == 1 ? 0 : 1, 0);
    }
    example_run(&ex);
}

void document_002(report *r)
{
    one_layer(r, "002 encoder layer", false);
    one_layer(r, "002 encoder layer, as written", true);
    encoder(r, "002 encoder", "merge=correct");
    encoder(r, "002 encoder, as written", "merge=as-written");
    merges(r);
}
