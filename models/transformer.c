/* The encoder-decoder Transformer of Vaswani et al., "Attention Is All You Need", 2017. */
#include <weft/models.h>

#include <math.h>

typedef struct builder {
    weft_graph *g;
    const weft_transformer_config *c;
    double dropout;
} builder;

/* x + dropout(y), and the norm where it belongs. */
static weft_value join(builder *b, const char *norm, weft_value x, weft_value y)
{
    weft_value sum = weft_add(b->g, x, weft_dropout(b->g, y, b->dropout));
    return b->c->pre_norm ? sum : weft_layer_layer_norm(b->g, norm, sum);
}

static weft_value normed(builder *b, const char *norm, weft_value x)
{
    return b->c->pre_norm ? weft_layer_layer_norm(b->g, norm, x) : x;
}

/* One sub-layer of attention; memory WEFT_NO_VALUE: over x itself. */
static weft_value attend(builder *b, const char *name, const char *norm, weft_value x,
                         weft_value memory, weft_value mask)
{
    weft_attention_options o = {
        .heads = b->c->heads, .bias = true, .dropout = b->dropout, .mask = mask};
    weft_value q = normed(b, norm, x);
    weft_value y = weft_layer_attention(b->g, name, q, weft_is_value(memory) ? memory : q, &o);
    return join(b, norm, x, y);
}

static weft_value transform(builder *b, weft_value x)
{
    weft_value y = normed(b, "norm_ffn", x);
    return join(b, "norm_ffn", x, weft_layer_feed_forward(b->g, "ffn", y, b->c->d_ff, b->dropout));
}

/* Rows of the table times sqrt(d_model), plus positions, dropped out. */
static weft_value embed(builder *b, weft_value table, weft_value ids)
{
    weft_value x = weft_embedding(b->g, table, ids, -1);
    x = weft_scale(b->g, x, sqrt((double)b->c->d_model));
    weft_value positions =
        weft_layer_sinusoids(b->g, b->c->dtype, weft_dim(b->g, ids, 1), b->c->d_model);
    return weft_dropout(b->g, weft_add(b->g, x, positions), b->dropout);
}

static weft_value encoder(builder *b, weft_value x, weft_value mask)
{
    for (int64_t i = 0; i < b->c->encoder_layers; i++) {
        weft_scope_push(b->g, "enc.%lld", (long long)i);
        x = attend(b, "attn", "norm_attn", x, WEFT_NO_VALUE, mask);
        x = transform(b, x);
        weft_scope_pop(b->g);
    }
    return normed(b, "enc.norm", x);
}

static weft_value decoder(builder *b, weft_value x, weft_value memory, weft_value causal,
                          weft_value memory_mask)
{
    for (int64_t i = 0; i < b->c->decoder_layers; i++) {
        weft_scope_push(b->g, "dec.%lld", (long long)i);
        x = attend(b, "attn", "norm_attn", x, WEFT_NO_VALUE, causal);
        x = attend(b, "cross", "norm_cross", x, memory, memory_mask);
        x = transform(b, x);
        weft_scope_pop(b->g);
    }
    return normed(b, "dec.norm", x);
}

static weft_value table_of(builder *b, const char *name, int64_t vocab)
{
    weft_init init = {WEFT_INIT_NORMAL, 0, 1 / sqrt((double)b->c->d_model)};
    return weft_param(b->g, name, b->c->dtype, WEFT_SHAPE(vocab, b->c->d_model), init);
}

static weft_value loss_of(builder *b, const weft_model_io *io, double smoothing)
{
    weft_cross_entropy_options o = {
        .ignore_index = b->c->pad_id, .label_smoothing = smoothing, .reduction = WEFT_REDUCE_MEAN};
    return weft_cross_entropy(b->g, io->logits, io->target_out, &o);
}

weft_status weft_transformer(weft_graph *graph, const weft_transformer_config *c, weft_model_io *io)
{
    weft_graph *g = graph;
    if (!c || !io) return WEFT_BAD_ARGUMENT;
    *io = (weft_model_io){.loss = WEFT_NO_VALUE};
    if (c->tied && c->source_vocab != c->target_vocab) {
        weft_graph_fail(g, WEFT_BAD_ARGUMENT,
                        "tied embeddings need one vocabulary, got %lld and %lld",
                        (long long)c->source_vocab, (long long)c->target_vocab);
        return WEFT_BAD_ARGUMENT;
    }
    builder b = {g, c, c->training ? c->dropout : 0};
    io->source = weft_input(g, "source", WEFT_I32, WEFT_SHAPE(c->batch, c->source_len));
    io->target_in = weft_input(g, "target_in", WEFT_I32, WEFT_SHAPE(c->batch, c->target_len));
    io->target_out = weft_input(g, "target_out", WEFT_I32, WEFT_SHAPE(c->batch, c->target_len));
    weft_value source_table =
        table_of(&b, c->tied ? "embedding" : "source_embedding", c->source_vocab);
    weft_value target_table =
        c->tied ? source_table : table_of(&b, "target_embedding", c->target_vocab);

    weft_value pad = weft_cast(g, weft_scalar(g, WEFT_F64, (double)c->pad_id), WEFT_I32);
    weft_value source_pad =
        weft_reshape(g, weft_equal(g, io->source, pad), WEFT_SHAPE(c->batch, 1, 1, c->source_len));
    weft_value causal = weft_causal_mask(g, c->target_len, c->target_len);
    weft_value memory = encoder(&b, embed(&b, source_table, io->source), source_pad);
    weft_value x = decoder(&b, embed(&b, target_table, io->target_in), memory, causal, source_pad);
    io->logits = c->tied ? weft_matmul(g, x, weft_transpose(g, target_table, 0, 1))
                         : weft_layer_linear(g, "output", x, c->target_vocab, true);
    io->logits = weft_name(g, io->logits, "logits");
    io->nll = weft_name(g, loss_of(&b, io, 0), "nll");
    io->loss = c->label_smoothing > 0 ? weft_name(g, loss_of(&b, io, c->label_smoothing), "loss")
                                      : io->nll;
    return weft_graph_status(g);
}
