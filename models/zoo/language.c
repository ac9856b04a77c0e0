/* Language models of one stack: BERT, GPT, LLaMA. */
#include "registry.h"
#include "text.h"

#include "run/built.h"

#include <math.h>

/* The layers between the last block and the logits of a masked language model (the code of Devlin
 * et al. 2019): linear, activation, norm. */
static weft_value transform(weft_graph *g, const weft_text_config *c, weft_value x)
{
    weft_graph_push_scope(g, "head");
    x = weft_nn_linear(g, "linear", x, c->d_model, true);
    x = weft_nn_layer_norm(g, "norm", weft_gelu(g, x), weft_option(c->block.eps, WEFT_NORM_EPS));
    weft_graph_pop_scope(g);
    return x;
}

/* Embeddings of ids at their positions, `at`, with what the model adds and its norm. */
static weft_value finish_embedding(weft_graph *g, const weft_language_config *c, weft_value ids,
                                   weft_value at, weft_value *types)
{
    weft_value x = at;
    if (c->token_types > 0) {
        weft_value rows = weft_nn_embedding_table(g, "token_type_embedding", c->text.dtype,
                                                  c->token_types, c->text.d_model);
        *types = weft_input(g, "token_types", WEFT_I32, weft_shape_of(g, ids));
        weft_input_default(g, *types, 0);
        x = weft_add(g, x, weft_embedding(g, rows, *types, -1));
    }
    const double eps = weft_option(c->text.block.eps, WEFT_NORM_EPS);
    return c->norm_embeddings ? weft_nn_layer_norm(g, "norm_embedding", x, eps) : x;
}

/* [rows, d_model] from x [rows, length, d_model] (the code of Devlin et al. 2019). */
static weft_value pool(weft_graph *g, const weft_text_config *c, weft_value x)
{
    weft_value first = weft_squeeze(g, weft_slice(g, x, 1, 0, 1, 1), 1);
    return weft_tanh(g, weft_nn_linear(g, "pooler", first, c->d_model, true));
}

weft_built weft_language_build(weft_graph *graph, const weft_language_config *config,
                               const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!config || !build) {
        weft__text_no_config(graph, "weft_language_build");
        return built;
    }
    const weft_language_config *c = config;
    const weft_batch_shape *shape = &build->shape;
    weft_text_config text = weft__text_config(&c->text, build);
    weft_nn_block_options block = text.block;
    built.vocab = c->vocab;
    const weft_value ids = weft__text_input(g, "target_in", shape->rows, shape->target_len);
    const weft_value target_out = weft__text_input(g, "target_out", shape->rows, shape->target_len);
    weft_value types = WEFT_NO_VALUE;
    if (build->expose_weights) block.attention.expose_weights = true;
    weft_value embeddings =
        weft_nn_embedding_table(g, "embedding", text.dtype, c->vocab, text.d_model);
    weft_value x = finish_embedding(
        g, c, ids, weft__text_embed(g, &text, embeddings, ids, "positions"), &types);
    weft__built_add_input(&built, "target_in", ids);
    weft__built_add_input(&built, "token_types", types);
    if (!block.attention.causal) block.attention.mask = weft__text_padding(g, &text, ids);
    x = weft_nn_stack(g, "layer", c->layers, weft_dropout(g, x, text.dropout), WEFT_NO_VALUE,
                      WEFT_NO_VALUE, &block);
    const weft_value hidden = x;
    const weft_value pooled = c->pooler ? weft_name(g, pool(g, &text, x), "pooled") : WEFT_NO_VALUE;
    if (c->transform_head) x = transform(g, &text, x);
    weft__text_losses(g, &text, weft__text_logits(g, &text, "output", x, embeddings, c->vocab),
                      target_out, &built);
    weft__built_add_output(&built, "hidden", hidden);
    weft__built_add_output(&built, "pooled", pooled);
    return built;
}

weft_decode_io weft_language_prepare(weft_graph *graph, const weft_language_config *config,
                                     const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    if (!config || !sizes) {
        weft__text_no_config(graph, "weft_language_prepare");
        return made;
    }
    const weft_text_config *text = &config->text;
    weft__text_prepare(
        graph, text,
        weft_nn_embedding_table(graph, "embedding", text->dtype, config->vocab, text->d_model), io);
    return made;
}

weft_decode_io weft_language_step(weft_graph *graph, const weft_language_config *config,
                                  const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    weft_graph *g = graph;
    if (!config || !sizes) {
        weft__text_no_config(graph, "weft_language_step");
        return made;
    }
    const weft_language_config *c = config;
    weft_text_config text = weft__text_config(&c->text, NULL);
    weft_nn_block_options block = text.block;
    if (!block.attention.causal)
        weft_graph_fail_in(g, "weft_language_step", WEFT_BAD_ARGUMENT,
                           "the attention is not causal: a bidirectional model has no steps");
    weft__text_step_inputs(g, io);
    weft_cache cache = weft__text_cache(io);
    block.cache = &cache;
    weft_value embeddings =
        weft_nn_embedding_table(g, "embedding", text.dtype, c->vocab, text.d_model);
    weft_value x = weft__text_embed_at(g, &text, embeddings, io->token, "positions", io->position,
                                       io->key_len);
    weft_value types = WEFT_NO_VALUE;
    x = finish_embedding(g, c, io->token, x, &types);
    x = weft_nn_stack(g, "layer", c->layers, x, WEFT_NO_VALUE, WEFT_NO_VALUE, &block);
    io->updated = x;
    x = weft_slice(g, x, 1, io->count - 1, io->count, 1);
    if (c->transform_head) x = transform(g, &text, x);
    io->logits =
        weft__text_step_logits(g, &text, io, "output", weft_squeeze(g, x, 1), embeddings, c->vocab);
    return made;
}

/* ---- In the list of models ---- */

/* name, field, defaults of bert, gpt and llama, kind, documentation */
#define OPTIONS(X)                                                                                 \
    X(vocab, c.vocab, 8000, 8000, 8000, NUMBER, "tokens of the vocabulary")                        \
    X(d_model, c.text.d_model, 256, 256, 256, NUMBER, "width")                                     \
    X(heads, c.text.block.attention.heads, 4, 4, 8, NUMBER, "attention heads")                     \
    X(kv_heads, c.text.block.attention.kv_heads, 0, 0, 4, NUMBER,                                  \
      "heads of keys and values, a divisor of heads; 0: heads")                                    \
    X(d_ff, c.text.block.feed_forward.d_ff, 1024, 1024, 688, NUMBER,                               \
      "width inside the feed-forward layers")                                                      \
    X(layers, c.layers, 4, 4, 4, NUMBER, "layers, at most 1000")                                   \
    X(dropout, c.text.dropout, 0.1, 0.1, 0, NUMBER, "probability of dropping, while training")     \
    X(label_smoothing, c.text.label_smoothing, 0, 0, 0, NUMBER,                                    \
      "fraction of the target spread over all tokens")                                             \
    X(norm, c.text.block.norm_position, 1, 0, 0, NORM_POSITIONS,                                   \
      "before each sub-layer, after it, after it and dropped out, or both")                        \
    X(activation, c.text.block.feed_forward.activation, 1, 1, 3, ACTIVATIONS,                      \
      "of the feed-forward layers")                                                                \
    X(tied, c.text.tied, 1, 1, 0, FLAG, "1: the embedding matrix also computes the logits")        \
    X(positions, c.text.positions, 2, 2, 0, POSITIONS,                                             \
      "positions that are added to the embeddings")                                                \
    X(max_positions, c.text.max_positions, 512, 512, 512, NUMBER, "number of learned positions")   \
    X(position_offset, c.text.position_offset, 0, 0, 0, NUMBER,                                    \
      "rows of the learned positions before that of position 0")                                   \
    X(token_types, c.token_types, 0, 0, 0, NUMBER,                                                 \
      "embeddings of the input token_types; 0: no such input")                                     \
    X(eps, c.text.block.eps, 1e-12, 1e-5, 1e-5, NUMBER, "added to the variances of norms")         \
    X(qkv_bias, c.text.block.attention.bias, 1, 1, 0, FLAG,                                        \
      "1: the projections to q, k and v have biases")                                              \
    X(out_bias, c.text.block.attention.out_bias, 1, 1, 0, FLAG,                                    \
      "1: the projection after attention has one")                                                 \
    X(ffn_bias, c.text.block.feed_forward.bias, 1, 1, 0, FLAG,                                     \
      "1: the feed-forward layers have biases")                                                    \
    X(output_bias, c.text.output_bias, 0, 0, 0, OUTPUT_BIASES,                                     \
      "of the logits; untied: unless the output is tied")                                          \
    X(transform_head, c.transform_head, 1, 0, 0, FLAG,                                             \
      "1: linear, GELU and layer norm before the logits")                                          \
    X(pooler, c.pooler, 0, 0, 0, FLAG,                                                             \
      "1: the value `pooled`, tanh of a linear layer of position 0")                               \
    X(rotary_base, c.text.block.attention.rotary_base, 0, 0, 10000, NUMBER,                        \
      "of rotary positions; 0: none")                                                              \
    X(window, c.text.block.attention.window, 0, 0, 0, NUMBER,                                      \
      "attends to the last N positions, itself included; 0: all")                                  \
    X(head_dim, c.text.block.attention.head_dim, 0, 0, 0, NUMBER,                                  \
      "width of a head; 0: d_model / heads")                                                       \
    X(norm_qk, c.text.block.attention.norm_qk, 0, 0, 0, FLAG,                                      \
      "1: RMS norm of each head of q and k")                                                       \
    X(rotary_dim, c.text.block.attention.rotary_dim, 0, 0, 0, NUMBER,                              \
      "elements of a head that rotate; 0: all")                                                    \
    X(rotary_scaling, c.text.block.attention.rotary_scaling.rule, 0, 0, 0, ROTARY_RULES,           \
      "of the angles of rotary positions")                                                         \
    X(rotary_factor, c.text.block.attention.rotary_scaling.factor, 0, 0, 0, NUMBER,                \
      "by which scaling divides frequencies; 0: 1")                                                \
    X(rotary_slow, c.text.block.attention.rotary_scaling.slow, 0, 0, 0, NUMBER,                    \
      "turns below which llama3 and yarn divide frequencies; 0: 1")                                \
    X(rotary_fast, c.text.block.attention.rotary_scaling.fast, 0, 0, 0, NUMBER,                    \
      "turns above which they do not; 0: 4 in llama3, 32 in yarn")                                 \
    X(rotary_positions, c.text.block.attention.rotary_scaling.positions, 0, 0, 0, NUMBER,          \
      "positions in which turns are counted; 0: max_positions")                                    \
    X(rotary_magnitude, c.text.block.attention.rotary_scaling.magnitude, 0, 0, 0, NUMBER,          \
      "of the cosines and sines of yarn, 0: 0.1 ln(rotary_factor) + 1, and of longrope, 0: 1")     \
    X(rotary_factors, c.text.block.attention.rotary_scaling.factors, 0, 0, 0, NUMBERS,             \
      "by which longrope divides the frequencies, for max_positions; 0: none")                     \
    X(gamma_plus_one, c.text.block.gamma_plus_one, 0, 0, 0, FLAG,                                  \
      "1: RMS norms multiply by 1 + gamma")                                                        \
    X(scaled_embeddings, c.text.scaled_embeddings, 0, 0, 0, FLAG,                                  \
      "1: embeddings times sqrt(d_model)")                                                         \
    X(score_width, score_width, 0, 0, 0, NUMBER,                                                   \
      "scores are divided by the square root of it; 0: by that of the width of a head")            \
    X(score_cap, c.text.block.attention.soft_cap, 0, 0, 0, NUMBER,                                 \
      "scores s are c tanh(s / c); 0: not capped")                                                 \
    X(logit_cap, c.text.logit_soft_cap, 0, 0, 0, NUMBER,                                           \
      "logits z are c tanh(z / c); 0: not capped")                                                 \
    X(global_every, c.text.block.global_every, 0, 0, 0, NUMBER,                                    \
      "every n-th layer attends without the window; 0: none does")                                 \
    X(local_rotary_base, c.text.block.local_rotary_base, 0, 0, 0, NUMBER,                          \
      "of layers with a window, without scaling; 0: as the others")                                \
    X(pad_id, c.text.pad_id, 0, 0, 0, NUMBER, "padding token id, ignored in the loss")             \
    X(f64, c.text.dtype, 0, 0, 0, FLAG, "1: in double precision")

typedef struct language_options {
    weft_language_config c;
    int64_t score_width;
} language_options;
FITS(language_options);

#define OPTION(...) MODEL_OPTION(language_options, __VA_ARGS__)

#define ROW_BERT(name, field, bert, gpt, llama, kind, doc)  OPTION(name, field, bert, kind, doc),
#define ROW_GPT(name, field, bert, gpt, llama, kind, doc)   OPTION(name, field, gpt, kind, doc),
#define ROW_LLAMA(name, field, bert, gpt, llama, kind, doc) OPTION(name, field, llama, kind, doc),
static const weft_model_option bert_options[] = {OPTIONS(ROW_BERT)};
static const weft_model_option gpt_options[] = {OPTIONS(ROW_GPT)};
static const weft_model_option llama_options[] = {OPTIONS(ROW_LLAMA)};
#define N_OPTIONS (sizeof gpt_options / sizeof *gpt_options)

static weft_language_config configure_gpt(const language_options *o)
{
    weft_language_config c = o->c;
    weft_nn_block_options *block = &c.text.block;
    block->attention.dropout = block->dropout = c.text.dropout;
    block->attention.causal = true;
    if (block->eps == 0) block->eps = WEFT_ZERO;
    block->attention.norm_eps = block->eps;
    block->attention.gamma_plus_one = block->gamma_plus_one;
    if (o->score_width != 0) block->attention.scale = 1 / sqrt((double)o->score_width);
    if (!block->attention.rotary_scaling.positions)
        block->attention.rotary_scaling.positions = c.text.max_positions;
    return c;
}

static weft_language_config configure_bert(const language_options *o)
{
    weft_language_config c = configure_gpt(o);
    c.text.block.attention.causal = false;
    c.norm_embeddings = true;
    return c;
}

static weft_language_config configure_llama(const language_options *o)
{
    weft_language_config c = configure_gpt(o);
    c.text.block.feed_forward.gated = true;
    c.text.block.norm = WEFT_RMS_NORM;
    return c;
}

static void traits_gpt(const void *values, weft_model_traits *t)
{
    const weft_language_config c = configure_gpt(values);
    weft__text_traits(&c.text, c.vocab, t);
}

static void traits_bert(const void *values, weft_model_traits *t)
{
    traits_gpt(values, t);
    t->causal = false;
}

LISTED_BUILD(build_bert, weft_language_config, configure_bert, weft_language_build)
LISTED_BUILD(build_gpt, weft_language_config, configure_gpt, weft_language_build)
LISTED_BUILD(build_llama, weft_language_config, configure_llama, weft_language_build)
LISTED_DECODE(step_gpt, weft_language_config, configure_gpt, weft_language_step)
LISTED_DECODE(step_llama, weft_language_config, configure_llama, weft_language_step)
/* The embedding matrices of gpt and llama are the same. */
LISTED_DECODE(prepare, weft_language_config, configure_gpt, weft_language_prepare)

#define SMALL "vocab=13 d_model=8 heads=2 d_ff=12 batch=2 length=5 layers=1 max_positions=8"

const weft_model weft__model_bert = {
    .name = "bert",
    .doc = "encoder with a head that predicts masked tokens: post-norm, GELU, learned positions",
    .options = bert_options,
    .n_options = N_OPTIONS,
    .small = SMALL,
    .sizes = SEQUENCE_SIZES(16, 64),
    .exposes_weights = true,
    .traits = traits_bert,
    .build = build_bert,
};
const weft_model weft__model_gpt = {
    .name = "gpt",
    .doc = "decoder-only language model: pre-norm, GELU, learned positions, tied embeddings",
    .options = gpt_options,
    .n_options = N_OPTIONS,
    .small = SMALL,
    .sizes = SEQUENCE_SIZES(16, 64),
    .exposes_weights = true,
    .traits = traits_gpt,
    .build = build_gpt,
    .step = step_gpt,
    .prepare = prepare,
};
const weft_model weft__model_llama = {
    .name = "llama",
    .doc = "decoder-only language model: RMS norm, rotary positions, SwiGLU, grouped-query "
           "attention",
    .options = llama_options,
    .n_options = N_OPTIONS,
    .small = SMALL " kv_heads=1",
    .sizes = SEQUENCE_SIZES(16, 64),
    .exposes_weights = true,
    .traits = traits_gpt,
    .build = build_llama,
    .step = step_llama,
    .prepare = prepare,
};
