/* 001: self-attention, masks, cross-attention, many heads. */
#include "examples.h"

enum { BATCH = 2, LENGTH = 10, WIDTH = 512, MEMORY = 7 };

static weft_value of_one_head(lab *l, weft_value weights)
{
    return weft_squeeze(l->g, weights, 1);
}

static void self_attention(report *r)
{
    lab l = lab_open(r, "001 self-attention", WEFT_F64);
    weft_attention_parts p;
    weft_attention_options o = {.heads = 1, .no_out = true};
    weft_value x = lab_normal(&l, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value y = weft_layer_attention(l.g, "attn", x, x, &o, &p);
    lab_shape(&l, "input", x, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    lab_shape(&l, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    lab_shape(&l, "weights", of_one_head(&l, p.weights), WEFT_SHAPE(BATCH, LENGTH, LENGTH));
    lab_weights(&l, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    lab_close(&l);
}

/* Sequence b has its last b + 1 tokens filled up. */
static weft_value padding(lab *l, int64_t keys)
{
    uint8_t hidden[BATCH * LENGTH];
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < keys; i++) hidden[b * keys + i] = i >= keys - 1 - b;
    return weft_constant_data(l->g, WEFT_BOOL, WEFT_SHAPE(BATCH, 1, 1, keys), hidden);
}

enum { CAUSAL = 1, PADDING = 2 };

static void masked(report *r, const char *system, int kind)
{
    lab l = lab_open(r, system, WEFT_F64);
    weft_graph *g = l.g;
    weft_attention_parts p;
    weft_attention_options o = {.heads = 1, .no_out = true, .causal = kind & CAUSAL};
    weft_value x = lab_normal(&l, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value causal = weft_causal_mask(g, LENGTH, LENGTH), hidden = causal;
    if (kind & PADDING) o.mask = hidden = padding(&l, LENGTH);
    if (kind == (CAUSAL | PADDING)) hidden = weft_logical_or(g, causal, hidden);
    weft_value y = weft_layer_attention(g, "attn", x, x, &o, &p);
    lab_shape(&l, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    lab_shape(&l, "weights", of_one_head(&l, p.weights), WEFT_SHAPE(BATCH, LENGTH, LENGTH));
    lab_weights(&l, p.weights, p.dropped, hidden, 0);
    if (kind & CAUSAL) {
        weft_value above = weft_sub(g, p.weights, weft_tril(g, p.weights, 0));
        lab_number(&l, "weights above the diagonal", above, 0, 0);
    }
    if (kind == CAUSAL) {
        static const double shown[25] = {0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0,
                                         1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
        weft_value corner = weft_slice(g, weft_slice(g, causal, 0, 0, 5, 1), 1, 0, 5, 1);
        weft_value wanted = weft_constant_data(g, WEFT_F64, WEFT_SHAPE(5, 5), shown);
        lab_number(&l, "mask less the printed 5 x 5",
                   weft_sub(g, weft_cast(g, corner, WEFT_F64), wanted), 0, 0);
    }
    lab_close(&l);
    if (kind == CAUSAL)
        report_left_out(r, system, "weights of two queries", "left out: no seed stated");
}

static void cross_attention(report *r)
{
    lab l = lab_open(r, "001 cross-attention", WEFT_F64);
    weft_attention_parts p;
    weft_value x = lab_normal(&l, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value memory = lab_normal(&l, "memory", WEFT_SHAPE(BATCH, MEMORY, WIDTH));
    weft_value hidden = padding(&l, MEMORY);
    weft_attention_options o = {.heads = 1, .no_out = true, .mask = hidden};
    weft_value y = weft_layer_attention(l.g, "attn", x, memory, &o, &p);
    lab_shape(&l, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    lab_shape(&l, "weights", of_one_head(&l, p.weights), WEFT_SHAPE(BATCH, LENGTH, MEMORY));
    lab_weights(&l, p.weights, p.dropped, hidden, 0);
    lab_close(&l);
}

/* Each mask against the same mask written out for every batch, head, query and key. */
static void multi_head(report *r)
{
    enum { HEADS = 8 };
    static const struct {
        const char *what;
        weft_shape shape;
    } masks[] = {{"mask (B,1,1,Lk), spread out", {4, {BATCH, 1, 1, LENGTH}}},
                 {"mask (1,1,Lq,Lk), spread out", {4, {1, 1, LENGTH, LENGTH}}},
                 {"mask (B,1,Lq,Lk), spread out", {4, {BATCH, 1, LENGTH, LENGTH}}},
                 {"mask (Lq,Lk), spread out", {2, {LENGTH, LENGTH}}},
                 {"mask (B,h,Lq,Lk)", {4, {BATCH, HEADS, LENGTH, LENGTH}}}};
    static uint8_t hidden[BATCH * HEADS * LENGTH * LENGTH];
    lab l = lab_open(r, "001 multi-head attention", WEFT_F64);
    weft_graph *g = l.g;
    weft_attention_parts p;
    weft_attention_options o = {.heads = HEADS, .out_bias = true};
    const weft_shape full = WEFT_SHAPE(BATCH, HEADS, LENGTH, LENGTH);
    weft_value x = lab_normal(&l, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value y = weft_layer_attention(g, "attn", x, x, &o, &p);
    lab_shape(&l, "output", y, WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    lab_shape(&l, "Q, by heads", p.q, WEFT_SHAPE(BATCH, HEADS, LENGTH, WIDTH / HEADS));
    lab_shape(&l, "weights", p.weights, full);
    lab_weights(&l, p.weights, p.dropped, WEFT_NO_VALUE, 0);
    for (size_t i = 0; i < sizeof hidden; i++) hidden[i] = i * 7 % 11 < 4;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        weft_value mask = weft_constant_data(g, WEFT_BOOL, masks[i].shape, hidden);
        weft_attention_options one = {
            .heads = HEADS, .projection = WEFT_PROJECT_NONE, .no_out = true, .mask = mask};
        weft_attention_options other = one;
        other.mask = weft_contiguous(g, weft_broadcast_to(g, mask, full));
        weft_scope_push(g, "mask.%zu", i);
        weft_value a = weft_layer_attention(g, "as_given", x, x, &one, NULL);
        weft_value b = weft_layer_attention(g, "spread_out", x, x, &other, NULL);
        weft_scope_pop(g);
        lab_number(&l, masks[i].what, weft_sub(g, a, b), 0, 0);
    }
    lab_close(&l);
}

void example_001(report *r)
{
    self_attention(r);
    masked(r, "001 attention, causal", CAUSAL);
    masked(r, "001 attention, padding", PADDING);
    masked(r, "001 attention, both masks", CAUSAL | PADDING);
    cross_attention(r);
    multi_head(r);
}
