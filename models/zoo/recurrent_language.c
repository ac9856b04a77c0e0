/* Language models of recurrent layers: rnn, lstm, gru. */
#include "recurrent_states.h"
#include "registry.h"
#include "text.h"

weft_status weft_recurrent_language_model(weft_graph *graph,
                                          const weft_recurrent_language_config *c,
                                          weft_model_io *io)
{
    weft_graph *g = graph;
    if (!c || !io) return text_no_config(graph, "weft_recurrent_language_model");
    *io = (weft_model_io){.vocab = c->vocab};
    if (!recurrent_tied_fits(g, c->tied, c->width, c->hidden) ||
        !recurrent_layers_fit(g, c->layers))
        return weft_graph_status(g);
    weft_text_config text = {.dtype = c->dtype,
                             .tied = c->tied,
                             .label_smoothing = c->label_smoothing,
                             .pad_id = c->pad_id};
    double dropout = c->training ? c->dropout : 0;
    weft_recurrent_stack_options o = {.layers = c->layers, .dropout = dropout};
    io->target_in = weft_input(g, "target_in", WEFT_I32, WEFT_SHAPE(c->batch, c->length));
    io->target_out = weft_input(g, "target_out", WEFT_I32, WEFT_SHAPE(c->batch, c->length));
    weft_value table = weft_layer_table(g, "embedding", c->dtype, c->vocab, c->width);
    weft_value x = weft_dropout(g, recurrent_embed(g, table, io->target_in), dropout);
    x = weft_layer_recurrent_stack(g, "rnn", c->kind, x, c->hidden, &o, NULL);
    x = weft_contiguous(g, weft_dropout(g, x, dropout));
    text_losses(g, &text, text_logits(g, &text, "output", x, table, c->vocab), io);
    return weft_graph_status(g);
}

weft_status weft_recurrent_language_prepare(weft_graph *graph,
                                            const weft_recurrent_language_config *c,
                                            weft_decode_io *io)
{
    if (!c || !io) return text_no_config(graph, "weft_recurrent_language_prepare");
    weft_text_config text = {.dtype = c->dtype, .tied = c->tied};
    text_prepare(graph, &text, weft_layer_table(graph, "embedding", c->dtype, c->vocab, c->width),
                 io);
    return weft_graph_status(graph);
}

weft_status weft_recurrent_language_step(weft_graph *graph, const weft_recurrent_language_config *c,
                                         weft_decode_io *io)
{
    weft_graph *g = graph;
    if (!c || !io) return text_no_config(graph, "weft_recurrent_language_step");
    if (!recurrent_layers_fit(g, c->layers) ||
        !recurrent_tied_fits(g, c->tied, c->width, c->hidden))
        return weft_graph_status(g);
    weft_text_config text = {.dtype = c->dtype, .tied = c->tied};
    weft_recurrent_state states[WEFT_RECURRENT_LAYERS];
    weft_recurrent_stack_options o = {.layers = c->layers, .initial = states};
    io->vocab = c->vocab;
    text_step_inputs(g, io);
    recurrent_load_states(g, io, c->kind, c->dtype, c->hidden, c->layers, states);
    weft_value table = weft_layer_table(g, "embedding", c->dtype, c->vocab, c->width);
    weft_value x = weft_layer_recurrent_stack(
        g, "rnn", c->kind, recurrent_embed(g, table, io->token), c->hidden, &o, states);
    io->updated = recurrent_store_states(g, io, c->kind, c->dtype, c->hidden, c->layers, states);
    x = weft_squeeze(g, weft_slice(g, x, 1, io->count - 1, io->count, 1), 1);
    io->logits = text_step_logits(g, &text, "output", x, c->vocab);
    return weft_graph_status(g);
}

/* ---- In the list of models ---- */

#define LANGUAGE_OPTIONS(X)                                                                        \
    RECURRENT_OPTIONS(X)                                                                           \
    X(length, 64, WHOLE, "tokens of a sequence")

enum {
#define ID(name, value, kind, doc) AT_##name,
    LANGUAGE_OPTIONS(ID)
#undef ID
        N_LANGUAGE_OPTIONS
};

#define ROW(name, value, kind, doc) {#name, doc, value, kind},
static const weft_model_option language_options[] = {LANGUAGE_OPTIONS(ROW)};

static weft_recurrent_language_config configure_language(weft_recurrent_kind kind, const double *v,
                                                         bool training)
{
    return (weft_recurrent_language_config){
        .dtype = v[AT_f64] != 0 ? WEFT_F64 : WEFT_F32,
        .kind = kind,
        .vocab = (int64_t)v[AT_vocab],
        .width = (int64_t)v[AT_width],
        .hidden = (int64_t)v[AT_hidden],
        .layers = (int64_t)v[AT_layers],
        .batch = (int64_t)v[AT_batch],
        .length = (int64_t)v[AT_length],
        .pad_id = (int64_t)v[AT_pad_id],
        .dropout = v[AT_dropout],
        .label_smoothing = v[AT_label_smoothing],
        .tied = v[AT_tied] != 0,
        .training = training,
    };
}

/* The functions of the language model of one kind. */
#define LANGUAGE(name, kind)                                                                       \
    static weft_status build_##name(weft_graph *graph, const double *v, bool training,             \
                                    weft_model_io *io)                                             \
    {                                                                                              \
        weft_recurrent_language_config c = configure_language(kind, v, training);                  \
        return weft_recurrent_language_model(graph, &c, io);                                       \
    }                                                                                              \
    static weft_status prepare_##name(weft_graph *graph, const double *v, weft_decode_io *io)      \
    {                                                                                              \
        weft_recurrent_language_config c = configure_language(kind, v, false);                     \
        return weft_recurrent_language_prepare(graph, &c, io);                                     \
    }                                                                                              \
    static weft_status step_##name(weft_graph *graph, const double *v, weft_decode_io *io)         \
    {                                                                                              \
        weft_recurrent_language_config c = configure_language(kind, v, false);                     \
        return weft_recurrent_language_step(graph, &c, io);                                        \
    }
LANGUAGE(rnn, WEFT_RNN)
LANGUAGE(lstm, WEFT_LSTM)
LANGUAGE(gru, WEFT_GRU)

const weft_model model_rnn = {
    .name = "rnn",
    .doc = "language model of simple recurrent layers (tanh)",
    .options = language_options,
    .n_options = N_LANGUAGE_OPTIONS,
    .small = RECURRENT_SMALL " length=5",
    .build = build_rnn,
    .step = step_rnn,
    .prepare = prepare_rnn,
    .recurrent = true,
};
const weft_model model_lstm = {
    .name = "lstm",
    .doc = "language model of LSTM layers",
    .options = language_options,
    .n_options = N_LANGUAGE_OPTIONS,
    .small = RECURRENT_SMALL " length=5",
    .build = build_lstm,
    .step = step_lstm,
    .prepare = prepare_lstm,
    .recurrent = true,
};
const weft_model model_gru = {
    .name = "gru",
    .doc = "language model of GRU layers",
    .options = language_options,
    .n_options = N_LANGUAGE_OPTIONS,
    .small = RECURRENT_SMALL " length=5",
    .build = build_gru,
    .step = step_gru,
    .prepare = prepare_gru,
    .recurrent = true,
};
