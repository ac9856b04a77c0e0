/* 001: self-attention, masks, cross-attention, many heads. */
#include "examples.h"

enum { BATCH = 2, LENGTH = 10, WIDTH = 512, MEMORY = 7 };

static weft_value of_one_head(example *ex, weft_value weights)
{
    return weft_squeeze(ex->g, weights, 1);
}

static void self_attention(report *r)
{
    example ex = example_open(r, "001 self-attention", WEFT_F64);
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = 1, .no_out = true};
    weft_value x = example_normal(&ex, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value y = weft_nn_attention(ex.g, "attn", x, x, &o, &p);
    expect_shape(&ex, "input", x, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    expect_shape(&ex, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    expect_shape(&ex, "weights", of_one_head(&ex, p.weights), WEFT_SHAPE(BATCH, LENGTH, LENGTH));
    expect_weights(&ex, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    example_run(&ex);
}

/* The last b + 1 tokens of sequence b are padding. */
static weft_value padding(example *ex, int64_t keys)
{
    uint8_t hidden[BATCH * LENGTH];
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < keys; i++) hidden[b * keys + i] = i >= keys - 1 - b;
    return weft_constant(ex->g, WEFT_BOOL, WEFT_SHAPE(BATCH, 1, 1, keys), hidden);
}

enum { CAUSAL = 1, PADDING = 2 };

static void masked(report *r, const char *system, int kind)
{
    example ex = example_open(r, system, WEFT_F64);
    weft_graph *g = ex.g;
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = 1, .no_out = true, .causal = kind & CAUSAL};
    weft_value x = example_normal(&ex, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value causal = weft_causal_mask(g, LENGTH, LENGTH), hidden = causal;
    if (kind & PADDING) o.mask = hidden = padding(&ex, LENGTH);
    if (kind == (CAUSAL | PADDING)) hidden = weft_logical_or(g, causal, hidden);
    weft_value y = weft_nn_attention(g, "attn", x, x, &o, &p);
    expect_shape(&ex, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    expect_shape(&ex, "weights", of_one_head(&ex, p.weights), WEFT_SHAPE(BATCH, LENGTH, LENGTH));
    expect_weights(&ex, p.weights, p.dropped, hidden, 0);
    if (kind & CAUSAL) {
        weft_value above = weft_sub(g, p.weights, weft_tril(g, p.weights, 0));
        expect_number(&ex, "weights above the diagonal", above, 0, 0);
    }
    if (kind == CAUSAL) {
        static const double shown[25] = {0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0,
                                         1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
        weft_value corner = weft_slice(g, weft_slice(g, causal, 0, 0, 5, 1), 1, 0, 5, 1);
        weft_value wanted = weft_constant(g, WEFT_F64, WEFT_SHAPE(5, 5), shown);
        expect_number(&ex, "mask less the printed 5 x 5",
                      weft_sub(g, weft_cast(g, corner, WEFT_F64), wanted), 0, 0);
    }
    example_run(&ex);
    if (kind == CAUSAL)
        report_left_out(r, system, "weights of two queries", "left out: no seed stated");
}

static void cross_attention(report *r)
{
    example ex = example_open(r, "001 cross-attention", WEFT_F64);
    weft_nn_attention_parts p;
    weft_value x = example_normal(&ex, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value memory = example_normal(&ex, "memory", WEFT_SHAPE(BATCH, MEMORY, WIDTH));
    weft_value hidden = padding(&ex, MEMORY);
    weft_nn_attention_options o = {.heads = 1, .no_out = true, .mask = hidden};
    weft_value y = weft_nn_attention(ex.g, "attn", x, memory, &o, &p);
    expect_shape(&ex, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    expect_shape(&ex, "weights", of_one_head(&ex, p.weights), WEFT_SHAPE(BATCH, LENGTH, MEMORY));
    expect_weights(&ex, p.weights, p.dropped, hidden, 0);
    example_run(&ex);
}

/* Each mask against the same mask written out for every batch, head, query and key. */
static void multi_head(report *r)
{
    enum { HEADS = 8 };
    static const struct {
        const char *what;
        weft_shape shape;
    } masks[] = {{"mask (B,1,1,Lk), broadcast", {4, {BATCH, 1, 1, LENGTH}}},
                 {"mask (1,1,Lq,Lk), broadcast", {4, {1, 1, LENGTH, LENGTH}}},
                 {"mask (B,1,Lq,Lk), broadcast", {4, {BATCH, 1, LENGTH, LENGTH}}},
                 {"mask (Lq,Lk), broadcast", {2, {LENGTH, LENGTH}}},
                 {"mask (B,h,Lq,Lk)", {4, {BATCH, HEADS, LENGTH, LENGTH}}}};
    static uint8_t hidden[BATCH * HEADS * LENGTH * LENGTH];
    example ex = example_open(r, "001 multi-head attention", WEFT_F64);
    weft_graph *g = ex.g;
    weft_nn_attention_parts p;
    weft_nn_attention_options o = {.heads = HEADS, .out_bias = true};
    const weft_shape full = WEFT_SHAPE(BATCH, HEADS, LENGTH, LENGTH);
    weft_value x = example_normal(&ex, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value y = weft_nn_attention(g, "attn", x, x, &o, &p);
    expect_shape(&ex, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    expect_shape(&ex, "Q, by heads", p.q, WEFT_SHAPE(BATCH, HEADS, LENGTH, WIDTH / HEADS));
    expect_shape(&ex, "weights", p.weights, full);
    expect_weights(&ex, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    for (size_t i = 0; i < sizeof hidden; i++) hidden[i] = i * 7 % 11 < 4;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        weft_value mask = weft_constant(g, WEFT_BOOL, masks[i].shape, hidden);
        weft_nn_attention_options one = {
            .heads = HEADS, .projection = WEFT_PROJECT_NONE, .no_out = true, .mask = mask};
        weft_nn_attention_options other = one;
        other.mask = weft_contiguous(g, weft_broadcast_to(g, mask, full));
        weft_graph_push_scope(g, "mask.%zu", i);
        weft_value a = weft_nn_attention(g, "as_given", x, x, &one, NULL);
        weft_value b = weft_nn_attention(g, "spread_out", x, x, &other, NULL);
        weft_graph_pop_scope(g);
        expect_number(&ex, masks[i].what, weft_sub(g, a, b), 0, 0);
    }
    example_run(&ex);
}

void document_001(report *r)
{
    self_attention(r);
    masked(r, "001 attention, causal", CAUSAL);
    masked(r, "001 attention, padding", PADDING);
    masked(r, "001 attention, both masks", CAUSAL | PADDING);
    cross_attention(r);
    multi_head(r);
}
