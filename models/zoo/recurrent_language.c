/* Language models of recurrent layers: rnn, lstm, gru. */
#include "recurrent_states.h"
#include "registry.h"
#include "text.h"

#include "run/built.h"

weft_built weft_recurrent_language_build(weft_graph *graph, const weft_recurrent_language_config *c,
                                         const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!c || !build) {
        weft__text_no_config(graph, "weft_recurrent_language_build");
        return built;
    }
    const weft_batch_shape *shape = &build->shape;
    built.vocab = c->vocab;
    if (!weft__recurrent_tied_fits(g, c->tied, c->width, c->hidden) ||
        !weft__recurrent_layers_fit(g, c->layers))
        return built;
    weft_text_config text = {.dtype = c->dtype,
                             .tied = c->tied,
                             .label_smoothing = c->label_smoothing,
                             .pad_id = c->pad_id};
    double dropout = build->training ? c->dropout : 0;
    weft_nn_recurrent_stack_options o = {.layers = c->layers, .dropout = dropout};
    const weft_value ids = weft__text_input(g, "target_in", shape->rows, shape->target_len);
    const weft_value target_out = weft__text_input(g, "target_out", shape->rows, shape->target_len);
    weft__built_add_input(&built, "target_in", ids);
    weft_value embeddings = weft_nn_embedding_table(g, "embedding", c->dtype, c->vocab, c->width);
    weft_value x = weft_dropout(g, weft__recurrent_embed(g, embeddings, ids), dropout);
    x = weft_nn_recurrent_stack(g, "rnn", c->kind, x, c->hidden, &o, NULL);
    x = weft_contiguous(g, weft_dropout(g, x, dropout));
    weft__text_losses(g, &text, weft__text_logits(g, &text, "output", x, embeddings, c->vocab),
                      target_out, &built);
    return built;
}

weft_decode_io weft_recurrent_language_prepare(weft_graph *graph,
                                               const weft_recurrent_language_config *c,
                                               const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    if (!c || !sizes) {
        weft__text_no_config(graph, "weft_recurrent_language_prepare");
        return made;
    }
    weft_text_config text = {.dtype = c->dtype, .tied = c->tied};
    weft__text_prepare(graph, &text,
                       weft_nn_embedding_table(graph, "embedding", c->dtype, c->vocab, c->width),
                       io);
    return made;
}

weft_decode_io weft_recurrent_language_step(weft_graph *graph,
                                            const weft_recurrent_language_config *c,
                                            const weft_decode_io *sizes)
{
    weft_decode_io made = sizes ? *sizes : (weft_decode_io){.sentences = 0}, *io = &made;
    weft_graph *g = graph;
    if (!c || !sizes) {
        weft__text_no_config(graph, "weft_recurrent_language_step");
        return made;
    }
    if (!weft__recurrent_layers_fit(g, c->layers) ||
        !weft__recurrent_tied_fits(g, c->tied, c->width, c->hidden))
        return made;
    weft_text_config text = {.dtype = c->dtype, .tied = c->tied};
    weft_recurrent_state states[WEFT_RECURRENT_LAYERS];
    weft_nn_recurrent_stack_options o = {.layers = c->layers, .initial = states};
    weft__text_step_inputs(g, io);
    weft__recurrent_load_states(g, io, c->kind, c->dtype, c->hidden, c->layers, states);
    weft_value embeddings = weft_nn_embedding_table(g, "embedding", c->dtype, c->vocab, c->width);
    weft_value x = weft_nn_recurrent_stack(
        g, "rnn", c->kind, weft__recurrent_embed(g, embeddings, io->token), c->hidden, &o, states);
    io->updated =
        weft__recurrent_store_states(g, io, c->kind, c->dtype, c->hidden, c->layers, states);
    x = weft_squeeze(g, weft_slice(g, x, 1, io->count - 1, io->count, 1), 1);
    io->logits = weft__text_step_logits(g, &text, io, "output", x, embeddings, c->vocab);
    return made;
}

/* ---- In the list of models ---- */

FITS(weft_recurrent_language_config);

static const weft_model_option options[] = {
    RECURRENT_OPTIONS(weft_recurrent_language_config, vocab)};

/* The traits of all three kinds are the same. */
static void traits(const void *values, weft_model_traits *t)
{
    const weft_recurrent_language_config *c = values;
    const weft_text_config text = {.dtype = c->dtype, .tied = c->tied, .pad_id = c->pad_id};
    weft__text_traits(&text, c->vocab, t);
    t->recurrent = true;
}

/* Defines the listed model of one kind. */
#define LANGUAGE_MODEL(name_, which, doc_)                                                         \
    static weft_recurrent_language_config configure_##name_(                                       \
        const weft_recurrent_language_config *o)                                                   \
    {                                                                                              \
        weft_recurrent_language_config c = *o;                                                     \
        c.kind = which;                                                                            \
        return c;                                                                                  \
    }                                                                                              \
    LISTED_BUILD(build_##name_, weft_recurrent_language_config, configure_##name_,                 \
                 weft_recurrent_language_build)                                                    \
    LISTED_DECODE(prepare_##name_, weft_recurrent_language_config, configure_##name_,              \
                  weft_recurrent_language_prepare)                                                 \
    LISTED_DECODE(step_##name_, weft_recurrent_language_config, configure_##name_,                 \
                  weft_recurrent_language_step)                                                    \
    const weft_model weft__model_##name_ = {                                                       \
        .name = #name_,                                                                            \
        .doc = doc_,                                                                               \
        .options = options,                                                                        \
        .n_options = sizeof options / sizeof *options,                                             \
        .sizes = SEQUENCE_SIZES(16, 64),                                                           \
        .small = RECURRENT_SMALL " length=5",                                                      \
        .traits = traits,                                                                          \
        .build = build_##name_,                                                                    \
        .step = step_##name_,                                                                      \
        .prepare = prepare_##name_,                                                                \
    };
LANGUAGE_MODEL(rnn, WEFT_RNN, "language model of simple recurrent layers (tanh)")
LANGUAGE_MODEL(lstm, WEFT_LSTM, "language model of LSTM layers")
LANGUAGE_MODEL(gru, WEFT_GRU, "language model of GRU layers")
