/* Recurrent encoder and decoder, with or without attention. */
#include "recurrent_states.h"
#include "registry.h"
#include "text.h"

#include "run/built.h"

#include <math.h>
#include <stdlib.h>

typedef struct seq2seq {
    weft_graph *g;
    const weft_seq2seq_config *c;
    double dropout;
    int64_t sentences, source_len, target_len;
    int64_t rows;       /* of the decoder; the rows of a sentence are adjacent */
    weft_value memory;  /* [sentences, source_len, hidden] */
    weft_value padding; /* bool [sentences, source_len] */
    weft_value weights; /* of the attention, [sentences, queries, source_len] */
    weft_recurrent_state first[WEFT_RECURRENT_LAYERS];
} seq2seq;

static void encode(seq2seq *m, weft_value x)
{
    weft_nn_recurrent_stack_options o = {.layers = m->c->layers,
                                         .bidirectional = m->c->bidirectional,
                                         .dropout = m->dropout,
                                         .mask = m->padding};
    x = weft_nn_recurrent_stack(m->g, "enc", m->c->kind, x, m->c->hidden, &o, m->first);
    m->memory = weft_contiguous(m->g, weft_dropout(m->g, x, m->dropout));
}

/* Softmax of scores [batch, queries, source_len] over the source; zeros if all of it is padding. */
static weft_value align(seq2seq *m, weft_value scores)
{
    weft_value mask = weft_expand_dims(m->g, m->padding, 1);
    return weft_softmax(m->g, weft_masked_fill(m->g, scores, mask, -INFINITY), -1);
}

/* tanh(W [states; context]), [rows, target_len, hidden]: the vectors that the logits are computed
 * from. */
static weft_value read_out(seq2seq *m, weft_value states, weft_value context)
{
    weft_value both = weft_concat(m->g, (weft_value[]){states, context}, 2, -1);
    return weft_tanh(m->g, weft_nn_linear(m->g, "readout", both, m->c->hidden, false));
}

/* Attention of states [sentences, queries, hidden] to the memory, and the readout, of the same
 * shape. */
static weft_value attend_after(seq2seq *m, weft_value states)
{
    weft_graph *g = m->g;
    weft_value query = states;
    if (m->c->attention == WEFT_ALIGN_GENERAL)
        query = weft_nn_linear(g, "attn.query", query, m->c->hidden, false);
    weft_value scores = weft_matmul(g, query, weft_transpose(g, m->memory, -1, -2));
    m->weights = weft_name(g, align(m, scores), "attention");
    return read_out(m, states, weft_matmul(g, m->weights, m->memory));
}

/* Attention after the steps: all recurrent steps are built first, and attend together. */
static weft_value decode_first(seq2seq *m, weft_value x)
{
    weft_graph *g = m->g;
    weft_nn_recurrent_stack_options o = {
        .layers = m->c->layers, .dropout = m->dropout, .initial = m->first};
    weft_value states = weft_nn_recurrent_stack(g, "dec", m->c->kind, x, m->c->hidden, &o, NULL);
    states = weft_contiguous(g, states);
    return m->c->attention == WEFT_ALIGN_NONE ? states : attend_after(m, states);
}

/* Values of additive attention that all steps share. */
typedef struct additive {
    weft_value keys, v; /* [batch, source_len, hidden], [hidden, 1] */
    weft_recurrent layers[WEFT_RECURRENT_LAYERS];
} additive;

/* Returns the context [rows, hidden] of one step, and sets *weights [sentences, rows / sentences,
 * source_len]. */
static weft_value attend_before(seq2seq *m, const additive *a, weft_value state,
                                weft_value *weights)
{
    weft_graph *g = m->g;
    const int64_t hidden = m->c->hidden, queries = m->rows / m->sentences;
    const bool shared = weft_graph_share(g, true); /* all steps have one matrix */
    weft_value query = weft_nn_linear(g, "attn.query", state, hidden, false);
    weft_graph_share(g, shared);
    weft_value keys = a->keys;
    if (queries == 1) {
        query = weft_expand_dims(g, query, 1);
    } else {
        query = weft_reshape(g, query, WEFT_SHAPE(m->sentences, queries, 1, hidden));
        keys = weft_expand_dims(g, keys, 1);
    }
    weft_value sum = weft_tanh(g, weft_add(g, keys, query));
    weft_value scores = weft_reshape(g, weft_matmul(g, sum, a->v),
                                     WEFT_SHAPE(m->sentences, queries, m->source_len));
    *weights = align(m, scores);
    return weft_reshape(g, weft_matmul(g, *weights, m->memory), WEFT_SHAPE(m->rows, hidden));
}

static weft_value attention_keys(seq2seq *m)
{
    return weft_nn_linear(m->g, "attn.key", m->memory, m->c->hidden, true);
}

static void declare_decoder(seq2seq *m, additive *a)
{
    const weft_seq2seq_config *c = m->c;
    for (int64_t i = 0; i < c->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "dec.%lld", (long long)i);
        a->layers[i] = weft_nn_recurrent_declare(m->g, name, c->kind, c->dtype,
                                                 i ? c->hidden : c->width + c->hidden, c->hidden);
    }
    a->v = weft_param(m->g, "attn.v", c->dtype, WEFT_SHAPE(c->hidden, 1), WEFT_INIT_XAVIER);
}

/* One step through all layers, from the input projection of the first. */
static void take_step(seq2seq *m, const additive *a, weft_value projected,
                      weft_recurrent_state *states)
{
    for (int64_t i = 0; i < m->c->layers; i++) {
        if (i) {
            weft_value below = weft_dropout(m->g, states[i - 1].h, m->dropout);
            projected = weft_nn_recurrent_project(m->g, &a->layers[i], below);
        }
        states[i] = weft_nn_recurrent_step(m->g, &a->layers[i], projected, states[i]);
    }
}

/* Attention before each step: a step attends, then reads the token and the context. W_x is [tokens;
 * context], and one matrix product with its token half serves all steps. */
static weft_value decode_attending(seq2seq *m, weft_value x)
{
    weft_graph *g = m->g;
    const weft_seq2seq_config *c = m->c;
    int64_t len = m->target_len, batch = m->rows;
    additive a;
    weft_recurrent_state *states = m->first;
    weft_value *all = calloc((size_t)(3 * len), sizeof *all), x_weights[2];
    if (!all) {
        weft_graph_fail_in(g, "weft_seq2seq_build", WEFT_NO_MEMORY, "no memory for %lld steps",
                           (long long)len);
        return WEFT_NO_VALUE;
    }
    weft_value *weights = all + len, *contexts = weights + len;
    declare_decoder(m, &a);
    a.keys = attention_keys(m);
    weft_split(g, a.layers[0].weight_x, 0, (const int64_t[]){c->width, c->hidden}, 2, x_weights);
    weft_value rows =
        weft_reshape(g, weft_transpose(g, x, 0, 1), WEFT_SHAPE(len * batch, c->width));
    weft_value tokens = weft_add(g, weft_matmul(g, rows, x_weights[0]), a.layers[0].bias);
    for (int64_t t = 0; t < len && weft_graph_status(g) == WEFT_OK; t++) {
        contexts[t] = attend_before(m, &a, states[c->layers - 1].h, &weights[t]);
        weft_value token = weft_slice(g, tokens, 0, t * batch, (t + 1) * batch, 1);
        take_step(m, &a, weft_add(g, token, weft_matmul_shared(g, contexts[t], x_weights[1])),
                  states);
        all[t] = states[c->layers - 1].h;
    }
    m->weights = weft_name(g, weft_concat(g, weights, (size_t)len, 1), "attention");
    x = weft_stack(g, all, (size_t)len, 1);
    x = read_out(m, x, weft_stack(g, contexts, (size_t)len, 1));
    free(all);
    return x;
}

static bool target_fits(weft_graph *g, int64_t length)
{
    if (length < 1 || length > WEFT_MAX_NODES)
        weft_graph_fail_in(g, "weft_seq2seq_build", length < 1 ? WEFT_BAD_ARGUMENT : WEFT_TOO_LARGE,
                           "target_len must be 1 to %d, got %lld", WEFT_MAX_NODES,
                           (long long)length);
    return weft_graph_status(g) == WEFT_OK;
}

static bool config_fits(weft_graph *g, const weft_seq2seq_config *c)
{
    weft__recurrent_layers_fit(g, c->layers);
    if (c->tied && c->source_vocab != c->target_vocab)
        weft_graph_fail_in(g, "weft_seq2seq_build", WEFT_BAD_ARGUMENT,
                           "tied embeddings need one vocabulary, got %lld and %lld",
                           (long long)c->source_vocab, (long long)c->target_vocab);
    return weft__recurrent_tied_fits(g, c->tied, c->width, c->hidden);
}

static weft_value source_embeddings_of(weft_graph *g, const weft_seq2seq_config *c)
{
    return weft_nn_embedding_table(g, c->tied ? "embedding" : "source_embedding", c->dtype,
                                   c->source_vocab, c->width);
}

static weft_value target_embeddings_of(weft_graph *g, const weft_seq2seq_config *c)
{
    return weft_nn_embedding_table(g, c->tied ? "embedding" : "target_embedding", c->dtype,
                                   c->target_vocab, c->width);
}

static weft_value padding_of(seq2seq *m, weft_value source)
{
    weft_text_config text = {.pad_id = m->c->pad_id};
    return weft_reshape(m->g, weft__text_padding(m->g, &text, source),
                        WEFT_SHAPE(m->sentences, m->source_len));
}

weft_built weft_seq2seq_build(weft_graph *graph, const weft_seq2seq_config *c,
                              const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!c || !build) {
        weft__text_no_config(graph, "weft_seq2seq_build");
        return built;
    }
    const weft_batch_shape *shape = &build->shape;
    built.vocab = c->source_vocab < c->target_vocab ? c->source_vocab : c->target_vocab;
    if (!config_fits(g, c) || !target_fits(g, shape->target_len)) return built;
    weft_text_config text = {.dtype = c->dtype,
                             .tied = c->tied,
                             .label_smoothing = c->label_smoothing,
                             .pad_id = c->pad_id};
    seq2seq m = {.g = g,
                 .c = c,
                 .dropout = build->training ? c->dropout : 0,
                 .sentences = shape->rows,
                 .source_len = shape->source_len,
                 .target_len = shape->target_len,
                 .rows = shape->rows};
    const weft_value source = weft__text_input(g, "source", shape->rows, shape->source_len);
    const weft_value target_in = weft__text_input(g, "target_in", shape->rows, shape->target_len);
    const weft_value target_out = weft__text_input(g, "target_out", shape->rows, shape->target_len);
    weft__built_add_input(&built, "source", source);
    weft__built_add_input(&built, "target_in", target_in);
    const weft_value source_embeddings = source_embeddings_of(g, c),
                     target_embeddings = c->tied ? source_embeddings : target_embeddings_of(g, c);
    m.padding = padding_of(&m, source);
    encode(&m, weft_dropout(g, weft__recurrent_embed(g, source_embeddings, source), m.dropout));
    weft_value x =
        weft_dropout(g, weft__recurrent_embed(g, target_embeddings, target_in), m.dropout);
    x = c->attention == WEFT_ALIGN_ADDITIVE ? decode_attending(&m, x) : decode_first(&m, x);
    x = weft_dropout(g, x, m.dropout);
    x = weft__text_logits(g, &text, "output", x, target_embeddings, c->target_vocab);
    weft__text_losses(g, &text, x, target_out, &built);
    if (build->expose_weights && build->layer <= 1)
        weft__built_add_output(&built, "weights", m.weights);
    return built;
}

/* ---- The same, a step at a time ---- */

weft_decode_io weft_seq2seq_prepare(weft_graph *graph, const weft_seq2seq_config *c,
                                    const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    if (!c || !sizes) {
        weft__text_no_config(graph, "weft_seq2seq_prepare");
        return made;
    }
    weft_text_config text = {.dtype = c->dtype, .tied = c->tied};
    weft__text_prepare(graph, &text, target_embeddings_of(graph, c), io);
    return made;
}

/* States of the sources: ids, i32 [max_sentences, max_source_len], and vectors [max_sentences,
 * max_source_len, hidden]. */
static weft_value source_ids(weft_graph *g, const weft_decode_io *io)
{
    weft_shape shape = WEFT_SHAPE(io->max_sentences, io->max_source_len);
    return weft__text_declare(g, io,
                              weft_state(g, "cache.source", WEFT_I32, shape, WEFT_INIT_ZEROS),
                              (weft_cache_layout){false, WEFT_CACHE_SOURCE});
}

static weft_value source_state(weft_graph *g, const char *name, const weft_seq2seq_config *c,
                               const weft_decode_io *io)
{
    weft_shape shape = WEFT_SHAPE(io->max_sentences, io->max_source_len, c->hidden);
    return weft__text_declare(g, io, weft_state(g, name, c->dtype, shape, WEFT_INIT_ZEROS),
                              (weft_cache_layout){false, WEFT_CACHE_SOURCE});
}

static weft_value first_of(weft_graph *g, weft_value state, const weft_decode_io *io)
{
    state = weft_slice(g, state, 0, 0, io->sentences, 1);
    return weft_slice(g, state, 1, 0, io->source_len, 1);
}

static seq2seq decoding(weft_graph *g, const weft_seq2seq_config *c, const weft_decode_io *io)
{
    return (seq2seq){.g = g,
                     .c = c,
                     .sentences = io->sentences,
                     .source_len = io->source_len,
                     .rows = weft_shape_numel(WEFT_SHAPE(io->sentences, io->beams))};
}

weft_decode_io weft_seq2seq_encode(weft_graph *graph, const weft_seq2seq_config *c,
                                   const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    weft_graph *g = graph;
    if (!c || !sizes) {
        weft__text_no_config(graph, "weft_seq2seq_encode");
        return made;
    }
    if (!config_fits(g, c)) return made;
    seq2seq m = decoding(g, c, io);
    weft_value done[4] = {WEFT_NO_VALUE}, zero = weft__text_int(g, 0);
    size_t n = 0;
    io->source = weft_input(g, "source", WEFT_I32, WEFT_SHAPE(io->sentences, io->source_len));
    m.padding = padding_of(&m, io->source);
    encode(&m, weft__recurrent_embed(g, source_embeddings_of(g, c), io->source));
    done[n++] =
        weft__recurrent_store_states(g, io, c->kind, c->dtype, c->hidden, c->layers, m.first);
    if (c->attention != WEFT_ALIGN_NONE) {
        done[n++] = weft_cache_write(g, source_ids(g, io), io->source, zero);
        done[n++] = weft_cache_write(g, source_state(g, "cache.memory", c, io), m.memory, zero);
    }
    if (c->attention == WEFT_ALIGN_ADDITIVE) {
        const weft_value keys = source_state(g, "cache.keys", c, io);
        done[n++] = weft_cache_write(g, keys, attention_keys(&m), zero);
    }
    io->updated = weft_group(g, done, n);
    return made;
}

/* The vectors [rows, hidden] that the logits are computed from, with attention after the steps. */
static weft_value weft__step_first(seq2seq *m, weft_value x)
{
    weft_graph *g = m->g;
    const weft_seq2seq_config *c = m->c;
    weft_nn_recurrent_stack_options o = {.layers = c->layers, .initial = m->first};
    x = weft_nn_recurrent_stack(g, "dec", c->kind, x, c->hidden, &o, m->first);
    int64_t count = weft_dim_of(g, x, 1);
    x = weft_squeeze(g, weft_slice(g, x, 1, count - 1, count, 1), 1);
    if (c->attention == WEFT_ALIGN_NONE) return x;
    x = weft_reshape(g, x, WEFT_SHAPE(m->sentences, m->rows / m->sentences, c->hidden));
    return weft_reshape(g, attend_after(m, x), WEFT_SHAPE(m->rows, c->hidden));
}

/* The same with attention before each step. */
static weft_value step_attending(seq2seq *m, const weft_decode_io *io, weft_value x)
{
    weft_graph *g = m->g;
    const weft_seq2seq_config *c = m->c;
    additive a;
    weft_value weights, context = WEFT_NO_VALUE, x_weights[2];
    declare_decoder(m, &a);
    a.keys = first_of(g, source_state(g, "cache.keys", c, io), io);
    weft_split(g, a.layers[0].weight_x, 0, (const int64_t[]){c->width, c->hidden}, 2, x_weights);
    for (int64_t t = 0; t < io->count && weft_graph_status(g) == WEFT_OK; t++) {
        weft_value token = weft_squeeze(g, weft_slice(g, x, 1, t, t + 1, 1), 1);
        token = weft_add(g, weft_matmul(g, token, x_weights[0]), a.layers[0].bias);
        context = attend_before(m, &a, m->first[c->layers - 1].h, &weights);
        take_step(m, &a, weft_add(g, token, weft_matmul(g, context, x_weights[1])), m->first);
    }
    x = weft_expand_dims(g, m->first[c->layers - 1].h, 1);
    x = read_out(m, x, weft_expand_dims(g, context, 1));
    return weft_reshape(g, x, WEFT_SHAPE(m->rows, c->hidden));
}

weft_decode_io weft_seq2seq_step(weft_graph *graph, const weft_seq2seq_config *c,
                                 const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    weft_graph *g = graph;
    if (!c || !sizes) {
        weft__text_no_config(graph, "weft_seq2seq_step");
        return made;
    }
    if (!config_fits(g, c)) return made;
    weft_text_config text = {.dtype = c->dtype, .tied = c->tied};
    seq2seq m = decoding(g, c, io);
    weft__text_step_inputs(g, io);
    weft__recurrent_load_states(g, io, c->kind, c->dtype, c->hidden, c->layers, m.first);
    if (c->attention != WEFT_ALIGN_NONE) {
        m.padding = padding_of(&m, first_of(g, source_ids(g, io), io));
        m.memory = first_of(g, source_state(g, "cache.memory", c, io), io);
    }
    const weft_value embeddings = target_embeddings_of(g, c);
    weft_value x = weft__recurrent_embed(g, embeddings, io->token);
    x = c->attention == WEFT_ALIGN_ADDITIVE ? step_attending(&m, io, x) : weft__step_first(&m, x);
    io->updated =
        weft__recurrent_store_states(g, io, c->kind, c->dtype, c->hidden, c->layers, m.first);
    io->logits = weft__text_step_logits(g, &text, io, "output", x, embeddings, c->target_vocab);
    return made;
}

/* ---- In the list of models ---- */

#define CELLS      .choices = "rnn|lstm|gru"
#define ALIGNMENTS .choices = "none|additive|dot|general"

FITS(weft_seq2seq_config);

#define OPTION(...) MODEL_OPTION(weft_seq2seq_config, __VA_ARGS__)
static const weft_model_option options[] = {
    RECURRENT_OPTIONS(weft_seq2seq_config, target_vocab),
    OPTION(cell, kind, 2, CELLS, "kind of the recurrent layers"),
    OPTION(attention, attention, 1, ALIGNMENTS, "how the decoder attends to the source"),
    OPTION(bidirectional, bidirectional, 1, FLAG,
           "1: the encoder reads in both directions, each with half of hidden")};

static weft_seq2seq_config configure(const weft_seq2seq_config *o)
{
    weft_seq2seq_config c = *o;
    c.source_vocab = c.target_vocab;
    return c;
}

static void traits(const void *values, weft_model_traits *t)
{
    const weft_seq2seq_config c = configure(values);
    const weft_text_config text = {.dtype = c.dtype, .tied = c.tied, .pad_id = c.pad_id};
    weft__text_traits(&text, c.target_vocab, t);
    t->source_vocab = c.source_vocab;
    t->recurrent = true;
}

LISTED_BUILD(build, weft_seq2seq_config, configure, weft_seq2seq_build)
LISTED_DECODE(prepare, weft_seq2seq_config, configure, weft_seq2seq_prepare)
LISTED_DECODE(encode_sources, weft_seq2seq_config, configure, weft_seq2seq_encode)
LISTED_DECODE(step, weft_seq2seq_config, configure, weft_seq2seq_step)

const weft_model weft__model_seq2seq = {
    .name = "seq2seq",
    .doc = "recurrent encoder and decoder with additive, dot, general or no attention",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .small = RECURRENT_SMALL " source_len=5 target_len=4",
    .sizes = PAIR_SIZES(16, 32, 32),
    .exposes_weights = true,
    .traits = traits,
    .build = build,
    .step = step,
    .encode = encode_sources,
    .prepare = prepare,
};
