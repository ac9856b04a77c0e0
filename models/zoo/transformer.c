/* The encoder-decoder Transformer: Vaswani et al., "Attention Is All You Need", 2017, and variants
 * of it. */
#include "registry.h"
#include "text.h"

#include <math.h>

/* The tables of embeddings: one and the same if tied. */
static void declare_tables(weft_graph *g, const weft_transformer_config *c, weft_value *from,
                           weft_value *to)
{
    const weft_text_config *text = &c->text;
    *from = weft_layer_table(g, text->tied ? "embedding" : "source_embedding", text->dtype,
                             c->source_vocab, text->d_model);
    *to = *from;
    if (!text->tied)
        *to = weft_layer_table(g, "target_embedding", text->dtype, c->target_vocab, text->d_model);
}

static weft_value encode(weft_graph *g, const weft_transformer_config *c,
                         const weft_text_config *text, weft_value table, weft_value source,
                         weft_value padding)
{
    weft_block_options encoder = text->block;
    encoder.attention.mask = padding;
    weft_value x = text_embed(g, text, table, source, "source_positions");
    return weft_layer_stack(g, "enc", c->encoder_layers, weft_dropout(g, x, text->dropout),
                            WEFT_NO_VALUE, WEFT_NO_VALUE, &encoder);
}

weft_status weft_transformer(weft_graph *graph, const weft_transformer_config *config,
                             weft_model_io *io)
{
    weft_graph *g = graph;
    if (!config || !io) return text_no_config(graph, "weft_transformer");
    const weft_transformer_config *c = config;
    weft_text_config text = text_config(&c->text);
    *io = (weft_model_io){.vocab = c->source_vocab < c->target_vocab ? c->source_vocab
                                                                     : c->target_vocab};
    if (text.tied && c->source_vocab != c->target_vocab) {
        weft_graph_fail_in(g, "weft_transformer", WEFT_BAD_ARGUMENT,
                           "tied embeddings need one vocabulary, got %lld and %lld",
                           (long long)c->source_vocab, (long long)c->target_vocab);
        return WEFT_BAD_ARGUMENT;
    }
    weft_shape source = WEFT_SHAPE(text.batch, c->source_len);
    weft_shape target = WEFT_SHAPE(text.batch, c->target_len);
    io->source = weft_input(g, "source", WEFT_I32, source);
    io->target_in = weft_input(g, "target_in", WEFT_I32, target);
    io->target_out = weft_input(g, "target_out", WEFT_I32, target);
    weft_value from, to;
    declare_tables(g, c, &from, &to);
    weft_block_options decoder = text.block;
    weft_value padding = text_padding(g, &text, io->source);
    decoder.attention.causal = true;
    weft_value memory = encode(g, c, &text, from, io->source, padding);
    weft_value x = text_embed(g, &text, to, io->target_in, "target_positions");
    x = weft_layer_stack(g, "dec", c->decoder_layers, weft_dropout(g, x, text.dropout), memory,
                         padding, &decoder);
    text_losses(g, &text, text_logits(g, &text, "output", x, to, c->target_vocab), io);
    return weft_graph_status(g);
}

/* Where the ids of the sources wait, for their padding: i32 [sentences, max_source]. */
static weft_value source_state(weft_graph *g, const weft_decode_io *io)
{
    return weft_state(g, "cache.source", WEFT_I32, WEFT_SHAPE(io->max_sentences, io->max_source),
                      WEFT_INIT_ZEROS);
}

weft_status weft_transformer_prepare(weft_graph *graph, const weft_transformer_config *config,
                                     weft_decode_io *io)
{
    if (!config || !io) return text_no_config(graph, "weft_transformer_prepare");
    weft_value from, to;
    declare_tables(graph, config, &from, &to);
    text_prepare(graph, &config->text, to, io);
    return weft_graph_status(graph);
}

weft_status weft_transformer_encode(weft_graph *graph, const weft_transformer_config *config,
                                    weft_decode_io *io)
{
    weft_graph *g = graph;
    if (!config || !io) return text_no_config(graph, "weft_transformer_encode");
    const weft_transformer_config *c = config;
    weft_text_config text = text_config(&c->text);
    weft_cache cache = text_cache(io);
    weft_block_options decoder = text.block;
    decoder.cache = &cache;
    io->vocab = c->target_vocab;
    io->source = weft_input(g, "source", WEFT_I32, WEFT_SHAPE(io->sentences, io->source_len));
    weft_value from, to;
    declare_tables(g, c, &from, &to);
    weft_value memory = encode(g, c, &text, from, io->source, text_padding(g, &text, io->source));
    weft_value done[2] = {weft_cache_write(g, source_state(g, io), io->source, text_int(g, 0)),
                          weft_layer_stack_memorize(g, "dec", c->decoder_layers, memory, &decoder)};
    io->updated = weft_group(g, done, 2);
    return weft_graph_status(g);
}

weft_status weft_transformer_step(weft_graph *graph, const weft_transformer_config *config,
                                  weft_decode_io *io)
{
    weft_graph *g = graph;
    if (!config || !io) return text_no_config(graph, "weft_transformer_step");
    const weft_transformer_config *c = config;
    weft_text_config text = text_config(&c->text);
    text_step_inputs(g, io);
    weft_cache cache = text_cache(io);
    weft_block_options decoder = text.block;
    decoder.cache = &cache;
    io->vocab = c->target_vocab;
    weft_value from, to;
    declare_tables(g, c, &from, &to);
    weft_value source = weft_slice(g, source_state(g, io), 0, 0, io->sentences, 1);
    source = weft_slice(g, source, 1, 0, io->source_len, 1);
    weft_value x =
        text_embed_at(g, &text, to, io->token, "target_positions", io->position, io->key_len);
    x = weft_layer_stack(g, "dec", c->decoder_layers, x, WEFT_NO_VALUE,
                         text_padding(g, &text, source), &decoder);
    io->updated = x;
    x = weft_squeeze(g, weft_slice(g, x, 1, io->count - 1, io->count, 1), 1);
    io->logits = text_step_logits(g, &text, "output", x, c->target_vocab);
    return weft_graph_status(g);
}

/* ---- In the list of models ---- */

#define PROJECTIONS .choices = "separate|fused|shared"
#define SCALES      .choices = "head-width|width"

/* name, defaults of transformer, transformer-base and transformer-shared, kind, documentation */
#define OPTIONS(X)                                                                                 \
    X(vocab, 4000, 8000, 10, WHOLE, "tokens of each language's vocabulary")                        \
    X(d_model, 256, 512, 256, WHOLE, "width")                                                      \
    X(heads, 4, 8, 8, WHOLE, "attention heads")                                                    \
    X(d_ff, 1024, 2048, 1024, WHOLE, "width inside the feed-forward layers")                       \
    X(encoder_layers, 3, 6, 6, WHOLE, "layers of the encoder, at most 1000")                       \
    X(decoder_layers, 3, 6, 6, WHOLE, "layers of the decoder, at most 1000")                       \
    X(dropout, 0.1, 0.1, 0.1, REAL, "probability of dropping, while training")                     \
    X(inner_dropout, 1, 1, 0, FLAG, "1: attention weights and hidden units are dropped, too")      \
    X(label_smoothing, 0.1, 0.1, 0, REAL, "share of the target spread over all tokens")            \
    X(norm, 0, 1, 2, NORM_PLACES, "before each sub-layer, after it, or after it and dropped out")  \
    X(tied, 1, 1, 0, FLAG, "1: one embedding table for source, target and output")                 \
    X(scaled_embeddings, 1, 1, 0, FLAG, "1: embeddings times sqrt(d_model)")                       \
    X(positions, 1, 1, 2, POSITIONS, "what tells the positions")                                   \
    X(max_positions, 1024, 1024, 100, WHOLE, "rows of the learned positions")                      \
    X(projection, 0, 0, 2, PROJECTIONS, "of q, k and v: one matrix each, or one for all heads")    \
    X(score_scale, 0, 0, 1, SCALES, "scores are divided by the square root of it")                 \
    X(attention_bias, 1, 1, 0, FLAG, "1: q, k, v and out have biases")                             \
    X(batch, 32, 16, 2, WHOLE, "sentences")                                                        \
    X(source_len, 32, 64, 9, WHOLE, "tokens of a source sentence")                                 \
    X(target_len, 32, 64, 7, WHOLE, "tokens of a target sentence")                                 \
    X(keep_weights, 0, 0, 0, FLAG, "1: attention weights are kept as values, ...weights")          \
    X(pad_id, 0, 0, 0, WHOLE, "token that fills up")                                               \
    X(f64, 0, 0, 0, FLAG, "1: in double precision")

enum {
#define ID(name, small, base, shared, kind, doc) AT_##name,
    OPTIONS(ID)
#undef ID
        N_OPTIONS
};

#define ROW_SMALL(name, small, base, shared, kind, doc)  {#name, doc, small, kind},
#define ROW_BASE(name, small, base, shared, kind, doc)   {#name, doc, base, kind},
#define ROW_SHARED(name, small, base, shared, kind, doc) {#name, doc, shared, kind},
static const weft_model_option small_options[] = {OPTIONS(ROW_SMALL)};
static const weft_model_option base_options[] = {OPTIONS(ROW_BASE)};
static const weft_model_option shared_options[] = {OPTIONS(ROW_SHARED)};

static weft_transformer_config configure(const double *v, bool training)
{
    double inner = v[AT_inner_dropout] != 0 ? v[AT_dropout] : 0;
    weft_transformer_config c = {
        .text = {.dtype = v[AT_f64] != 0 ? WEFT_F64 : WEFT_F32,
                 .d_model = (int64_t)v[AT_d_model],
                 .batch = (int64_t)v[AT_batch],
                 .tied = v[AT_tied] != 0,
                 .scaled_embeddings = v[AT_scaled_embeddings] != 0,
                 .positions = (weft_positions)v[AT_positions],
                 .max_positions = (int64_t)v[AT_max_positions],
                 .dropout = v[AT_dropout],
                 .label_smoothing = v[AT_label_smoothing],
                 .pad_id = (int64_t)v[AT_pad_id],
                 .block = {.attention = {.heads = (int64_t)v[AT_heads],
                                         .projection = (weft_projection)v[AT_projection],
                                         .bias = v[AT_attention_bias] != 0,
                                         .out_bias = v[AT_attention_bias] != 0,
                                         .dropout = inner,
                                         .keep_weights = v[AT_keep_weights] != 0},
                           .feed_forward = {.d_ff = (int64_t)v[AT_d_ff],
                                            .activation = WEFT_RELU,
                                            .bias = true,
                                            .dropout = inner},
                           .place = (weft_norm_place)v[AT_norm],
                           .eps = 1e-5,
                           .dropout = v[AT_dropout]},
                 .training = training},
        .source_vocab = (int64_t)v[AT_vocab],
        .target_vocab = (int64_t)v[AT_vocab],
        .encoder_layers = (int64_t)v[AT_encoder_layers],
        .decoder_layers = (int64_t)v[AT_decoder_layers],
        .source_len = (int64_t)v[AT_source_len],
        .target_len = (int64_t)v[AT_target_len],
    };
    if (v[AT_score_scale] != 0) c.text.block.attention.scale = 1 / sqrt(v[AT_d_model]);
    return c;
}

static weft_status build(weft_graph *graph, const double *v, bool training, weft_model_io *io)
{
    weft_transformer_config c = configure(v, training);
    return weft_transformer(graph, &c, io);
}

static weft_status build_prepare(weft_graph *graph, const double *v, weft_decode_io *io)
{
    weft_transformer_config c = configure(v, false);
    return weft_transformer_prepare(graph, &c, io);
}

static weft_status build_encode(weft_graph *graph, const double *v, weft_decode_io *io)
{
    weft_transformer_config c = configure(v, false);
    return weft_transformer_encode(graph, &c, io);
}

static weft_status build_step(weft_graph *graph, const double *v, weft_decode_io *io)
{
    weft_transformer_config c = configure(v, false);
    return weft_transformer_step(graph, &c, io);
}

#define SMALL                                                                                      \
    "vocab=13 d_model=8 heads=2 d_ff=12 batch=2 source_len=5 target_len=4 encoder_layers=1 "       \
    "decoder_layers=1 max_positions=8"

const weft_model model_transformer = {
    .name = "transformer",
    .doc = "encoder-decoder Transformer, small: 3+3 layers, width 256, pre-norm",
    .options = small_options,
    .n_options = N_OPTIONS,
    .small = SMALL,
    .build = build,
    .step = build_step,
    .encode = build_encode,
    .prepare = build_prepare,
};
const weft_model model_transformer_base = {
    .name = "transformer-base",
    .doc = "encoder-decoder Transformer, the paper's base: 6+6 layers, width 512",
    .options = base_options,
    .n_options = N_OPTIONS,
    .small = SMALL,
    .build = build,
    .step = build_step,
    .encode = build_encode,
    .prepare = build_prepare,
};
const weft_model model_transformer_shared = {
    .name = "transformer-shared",
    .doc = "encoder-decoder Transformer whose heads share one projection, with learned positions",
    .options = shared_options,
    .n_options = N_OPTIONS,
    .small = SMALL,
    .build = build,
    .step = build_step,
    .encode = build_encode,
    .prepare = build_prepare,
};
