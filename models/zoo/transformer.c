/* The encoder-decoder Transformer: Vaswani et al., "Attention Is All You Need", 2017, and variants
 * of it. */
#include "registry.h"
#include "text.h"

#include "run/built.h"

#include <math.h>

/* Declares the embedding matrices; if tied, both are the same. */
static void declare_embeddings(weft_graph *g, const weft_transformer_config *c, weft_value *from,
                               weft_value *to)
{
    const weft_text_config *text = &c->text;
    *from = weft_nn_embedding_table(g, text->tied ? "embedding" : "source_embedding", text->dtype,
                                    c->source_vocab, text->d_model);
    *to = *from;
    if (!text->tied)
        *to = weft_nn_embedding_table(g, "target_embedding", text->dtype, c->target_vocab,
                                      text->d_model);
}

/* The layer norm NAME over embeddings, if the configuration has it. */
static weft_value embed_norm(weft_graph *g, const weft_transformer_config *c,
                             const weft_text_config *text, const char *name, weft_value x)
{
    const double eps = weft_option(text->block.eps, WEFT_NORM_EPS);
    return c->norm_embeddings ? weft_nn_layer_norm(g, name, x, eps) : x;
}

static weft_value encode(weft_graph *g, const weft_transformer_config *c,
                         const weft_text_config *text, weft_value embeddings, weft_value source,
                         weft_value padding)
{
    weft_nn_block_options encoder = text->block;
    encoder.attention.mask = padding;
    weft_value x = embed_norm(g, c, text, "source_norm_embedding",
                              weft__text_embed(g, text, embeddings, source, "source_positions"));
    return weft_nn_stack(g, "enc", c->encoder_layers, weft_dropout(g, x, text->dropout),
                         WEFT_NO_VALUE, WEFT_NO_VALUE, &encoder);
}

weft_built weft_transformer_build(weft_graph *graph, const weft_transformer_config *config,
                                  const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!config || !build) {
        weft__text_no_config(graph, "weft_transformer_build");
        return built;
    }
    const weft_transformer_config *c = config;
    const weft_batch_shape *shape = &build->shape;
    weft_value cross_weights[WEFT_MAX_LAYERS] = {WEFT_NO_VALUE};
    weft_text_config text = weft__text_config(&c->text, build);
    if (build->expose_weights) text.block.attention.expose_weights = true;
    built.vocab = c->source_vocab < c->target_vocab ? c->source_vocab : c->target_vocab;
    if (text.tied && c->source_vocab != c->target_vocab) {
        weft_graph_fail_in(g, "weft_transformer_build", WEFT_BAD_ARGUMENT,
                           "tied embeddings need one vocabulary, got %lld and %lld",
                           (long long)c->source_vocab, (long long)c->target_vocab);
        return built;
    }
    const weft_value source = weft__text_input(g, "source", shape->rows, shape->source_len);
    const weft_value target_in = weft__text_input(g, "target_in", shape->rows, shape->target_len);
    const weft_value target_out = weft__text_input(g, "target_out", shape->rows, shape->target_len);
    weft__built_add_input(&built, "source", source);
    weft__built_add_input(&built, "target_in", target_in);
    weft_value from, to;
    declare_embeddings(g, c, &from, &to);
    weft_nn_block_options decoder = text.block;
    weft_value padding = weft__text_padding(g, &text, source);
    decoder.attention.causal = true;
    decoder.cross_weights = cross_weights;
    weft_value memory = encode(g, c, &text, from, source, padding);
    weft_value x = embed_norm(g, c, &text, "target_norm_embedding",
                              weft__text_embed(g, &text, to, target_in, "target_positions"));
    x = weft_nn_stack(g, "dec", c->decoder_layers, weft_dropout(g, x, text.dropout), memory,
                      padding, &decoder);
    weft__text_losses(g, &text, weft__text_logits(g, &text, "output", x, to, c->target_vocab),
                      target_out, &built);
    weft__built_add_output(&built, "hidden", x);
    const int64_t layer = build->layer ? build->layer : c->decoder_layers;
    if (build->expose_weights && layer >= 1 && layer <= c->decoder_layers)
        weft__built_add_output(&built, "weights", cross_weights[layer - 1]);
    return built;
}

/* The state of the source ids, from which steps compute the padding mask: i32 [max_sentences,
 * max_source_len]. */
static weft_value source_state(weft_graph *g, const weft_decode_io *io)
{
    weft_shape shape = WEFT_SHAPE(io->max_sentences, io->max_source_len);
    return weft__text_declare(g, io,
                              weft_state(g, "cache.source", WEFT_I32, shape, WEFT_INIT_ZEROS),
                              (weft_cache_layout){false, WEFT_CACHE_SOURCE});
}

weft_decode_io weft_transformer_prepare(weft_graph *graph, const weft_transformer_config *config,
                                        const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    if (!config || !sizes) {
        weft__text_no_config(graph, "weft_transformer_prepare");
        return made;
    }
    weft_value from, to;
    declare_embeddings(graph, config, &from, &to);
    weft__text_prepare(graph, &config->text, to, io);
    return made;
}

weft_decode_io weft_transformer_encode(weft_graph *graph, const weft_transformer_config *config,
                                       const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    weft_graph *g = graph;
    if (!config || !sizes) {
        weft__text_no_config(graph, "weft_transformer_encode");
        return made;
    }
    const weft_transformer_config *c = config;
    weft_text_config text = weft__text_config(&c->text, NULL);
    weft_cache cache = weft__text_cache(io);
    weft_nn_block_options decoder = text.block;
    decoder.cache = &cache;
    io->source = weft_input(g, "source", WEFT_I32, WEFT_SHAPE(io->sentences, io->source_len));
    weft_value from, to;
    declare_embeddings(g, c, &from, &to);
    weft_value memory =
        encode(g, c, &text, from, io->source, weft__text_padding(g, &text, io->source));
    const weft_value state = source_state(g, io);
    const weft_value source = weft_cache_write(g, state, io->source, weft__text_int(g, 0));
    const weft_value caches =
        weft_nn_stack_prefill_cross_cache(g, "dec", c->decoder_layers, memory, &decoder);
    io->updated = weft_group(g, (weft_value[]){source, caches}, 2);
    return made;
}

weft_decode_io weft_transformer_step(weft_graph *graph, const weft_transformer_config *config,
                                     const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    weft_graph *g = graph;
    if (!config || !sizes) {
        weft__text_no_config(graph, "weft_transformer_step");
        return made;
    }
    const weft_transformer_config *c = config;
    weft_text_config text = weft__text_config(&c->text, NULL);
    weft__text_step_inputs(g, io);
    weft_cache cache = weft__text_cache(io);
    weft_nn_block_options decoder = text.block;
    decoder.cache = &cache;
    weft_value from, to;
    declare_embeddings(g, c, &from, &to);
    weft_value source = weft_slice(g, source_state(g, io), 0, 0, io->sentences, 1);
    source = weft_slice(g, source, 1, 0, io->source_len, 1);
    weft_value x =
        weft__text_embed_at(g, &text, to, io->token, "target_positions", io->position, io->key_len);
    x = embed_norm(g, c, &text, "target_norm_embedding", x);
    x = weft_nn_stack(g, "dec", c->decoder_layers, x, WEFT_NO_VALUE,
                      weft__text_padding(g, &text, source), &decoder);
    io->updated = x;
    x = weft_squeeze(g, weft_slice(g, x, 1, io->count - 1, io->count, 1), 1);
    io->logits = weft__text_step_logits(g, &text, io, "output", x, to, c->target_vocab);
    return made;
}

/* ---- In the list of models ---- */

#define PROJECTIONS .choices = "separate|fused|shared"
#define SCALES      .choices = "head-width|width"

/* name, field, defaults of transformer, transformer-base and transformer-shared, kind,
 * documentation */
#define OPTIONS(X)                                                                                 \
    X(vocab, c.target_vocab, 4000, 8000, 10, NUMBER, "tokens of each language's vocabulary")       \
    X(d_model, c.text.d_model, 256, 512, 256, NUMBER, "width")                                     \
    X(heads, c.text.block.attention.heads, 4, 8, 8, NUMBER, "attention heads")                     \
    X(d_ff, c.text.block.feed_forward.d_ff, 1024, 2048, 1024, NUMBER,                              \
      "width inside the feed-forward layers")                                                      \
    X(encoder_layers, c.encoder_layers, 3, 6, 6, NUMBER, "layers of the encoder, at most 1000")    \
    X(decoder_layers, c.decoder_layers, 3, 6, 6, NUMBER, "layers of the decoder, at most 1000")    \
    X(dropout, c.text.dropout, 0.1, 0.1, 0.1, NUMBER, "probability of dropping, while training")   \
    X(inner_dropout, inner_dropout, 1, 1, 0, FLAG,                                                 \
      "1: also drops attention weights and hidden units")                                          \
    X(label_smoothing, c.text.label_smoothing, 0.1, 0.1, 0, NUMBER,                                \
      "fraction of the target spread over all tokens")                                             \
    X(norm, c.text.block.norm_position, 0, 1, 2, NORM_POSITIONS,                                   \
      "before each sub-layer, after it, after it and dropped out, or both")                        \
    X(tied, c.text.tied, 1, 1, 0, FLAG, "1: one embedding matrix for source, target and output")   \
    X(scaled_embeddings, c.text.scaled_embeddings, 1, 1, 0, FLAG,                                  \
      "1: embeddings times sqrt(d_model)")                                                         \
    X(positions, c.text.positions, 1, 1, 2, POSITIONS,                                             \
      "positions that are added to the embeddings")                                                \
    X(max_positions, c.text.max_positions, 1024, 1024, 100, NUMBER, "number of learned positions") \
    X(position_offset, c.text.position_offset, 0, 0, 0, NUMBER,                                    \
      "rows of the learned positions before that of position 0")                                   \
    X(norm_embeddings, c.norm_embeddings, 0, 0, 0, FLAG,                                           \
      "1: a layer norm after embeddings and positions")                                            \
    X(activation, c.text.block.feed_forward.activation, 0, 0, 0, ACTIVATIONS,                      \
      "of the feed-forward layers")                                                                \
    X(eps, c.text.block.eps, 1e-5, 1e-5, 1e-5, NUMBER, "added to the variances of layer norms")    \
    X(output_bias, c.text.output_bias, 0, 0, 0, OUTPUT_BIASES,                                     \
      "of the logits; untied: unless the output is tied")                                          \
    X(projection, c.text.block.attention.projection, 0, 0, 2, PROJECTIONS,                         \
      "of q, k and v: one matrix each, or one for all heads")                                      \
    X(score_scale, score_scale, 0, 0, 1, SCALES, "scores are divided by the square root of it")    \
    X(attention_bias, c.text.block.attention.bias, 1, 1, 0, FLAG,                                  \
      "1: q, k, v and out have biases")                                                            \
    X(pad_id, c.text.pad_id, 0, 0, 0, NUMBER, "padding token id, ignored in the loss")             \
    X(f64, c.text.dtype, 0, 0, 0, FLAG, "1: in double precision")

typedef struct transformer_options {
    weft_transformer_config c;
    bool inner_dropout;
    unsigned score_scale; /* of SCALES */
} transformer_options;
FITS(transformer_options);

#define OPTION(...) MODEL_OPTION(transformer_options, __VA_ARGS__)

#define ROW_SMALL(name, field, small, base, shared, kind, doc)                                     \
    OPTION(name, field, small, kind, doc),
#define ROW_BASE(name, field, small, base, shared, kind, doc) OPTION(name, field, base, kind, doc),
#define ROW_SHARED(name, field, small, base, shared, kind, doc)                                    \
    OPTION(name, field, shared, kind, doc),
static const weft_model_option small_options[] = {OPTIONS(ROW_SMALL)};
static const weft_model_option base_options[] = {OPTIONS(ROW_BASE)};
static const weft_model_option shared_options[] = {OPTIONS(ROW_SHARED)};
#define N_OPTIONS (sizeof small_options / sizeof *small_options)

static weft_transformer_config configure(const transformer_options *o)
{
    weft_transformer_config c = o->c;
    weft_nn_block_options *block = &c.text.block;
    c.source_vocab = c.target_vocab;
    block->dropout = c.text.dropout;
    if (o->inner_dropout) block->attention.dropout = block->feed_forward.dropout = c.text.dropout;
    block->attention.out_bias = block->attention.bias;
    block->feed_forward.bias = true;
    if (block->eps == 0) block->eps = WEFT_ZERO;
    if (o->score_scale) block->attention.scale = 1 / sqrt((double)c.text.d_model);
    return c;
}

static void traits(const void *values, weft_model_traits *t)
{
    const weft_transformer_config c = configure(values);
    weft__text_traits(&c.text, c.target_vocab, t);
    t->source_vocab = c.source_vocab;
}

LISTED_BUILD(build, weft_transformer_config, configure, weft_transformer_build)
LISTED_DECODE(prepare, weft_transformer_config, configure, weft_transformer_prepare)
LISTED_DECODE(encode_sources, weft_transformer_config, configure, weft_transformer_encode)
LISTED_DECODE(step, weft_transformer_config, configure, weft_transformer_step)

#define SMALL                                                                                      \
    "vocab=13 d_model=8 heads=2 d_ff=12 batch=2 source_len=5 target_len=4 encoder_layers=1 "       \
    "decoder_layers=1 max_positions=8"

#define TRANSFORMER(name_, doc_, options_, sizes_)                                                 \
    {                                                                                              \
        .name = (name_), .doc = (doc_), .options = (options_), .n_options = N_OPTIONS,             \
        .sizes = sizes_, .small = SMALL, .exposes_weights = true, .traits = traits,                \
        .build = build, .step = step, .encode = encode_sources, .prepare = prepare,                \
    }

const weft_model weft__model_transformer = TRANSFORMER(
    "transformer", "encoder-decoder Transformer, small: 3+3 layers, width 256, pre-norm",
    small_options, PAIR_SIZES(32, 32, 32));
const weft_model weft__model_transformer_base = TRANSFORMER(
    "transformer-base", "encoder-decoder Transformer, the paper's base: 6+6 layers, width 512",
    base_options, PAIR_SIZES(16, 64, 64));
const weft_model weft__model_transformer_shared = TRANSFORMER(
    "transformer-shared",
    "encoder-decoder Transformer whose heads share one projection, with learned positions",
    shared_options, PAIR_SIZES(2, 9, 7));
