/* The common part of the recurrent models: checks of sizes, embeddings, states of decoding. */
#ifndef WEFT_MODELS_RECURRENT_STATES_H
#define WEFT_MODELS_RECURRENT_STATES_H

#include <weft/models.h>

/* Each fails the graph and returns false if the sizes are invalid. */
bool weft__recurrent_tied_fits(weft_graph *g, bool tied, int64_t width, int64_t hidden);
bool weft__recurrent_layers_fit(weft_graph *g, int64_t layers);
/* Embeds ids [rows, length]: returns [rows, length, width], time-major in memory as the recurrent
 * layers read it. */
weft_value weft__recurrent_embed(weft_graph *g, weft_value embeddings, weft_value ids);

/* Sets states[layers] to the states [rows, hidden] that the rows of this step continue. */
void weft__recurrent_load_states(weft_graph *g, const weft_decode_io *io, weft_recurrent_kind kind,
                                 weft_dtype dtype, int64_t hidden, int64_t layers,
                                 weft_recurrent_state *states);
/* Writes the states [rows, hidden] of all layers; returns the group of the updates. */
weft_value weft__recurrent_store_states(weft_graph *g, const weft_decode_io *io,
                                        weft_recurrent_kind kind, weft_dtype dtype, int64_t hidden,
                                        int64_t layers, const weft_recurrent_state *states);

/* Common options of the recurrent models, whose configurations have these fields; see registry.h.
 * `words` is the field of the vocabulary's size. */
#define RECURRENT_OPTIONS(type, words)                                                             \
    MODEL_OPTION(type, vocab, words, 8000, NUMBER, "tokens of the vocabulary"),                    \
        MODEL_OPTION(type, width, width, 256, NUMBER, "width of the embeddings"),                  \
        MODEL_OPTION(type, hidden, hidden, 256, NUMBER, "width of the states"),                    \
        MODEL_OPTION(type, layers, layers, 2, NUMBER, "stacked recurrent layers"),                 \
        MODEL_OPTION(type, dropout, dropout, 0.1, NUMBER,                                          \
                     "probability of dropping between layers, while training"),                    \
        MODEL_OPTION(type, label_smoothing, label_smoothing, 0, NUMBER,                            \
                     "fraction of the target spread over all tokens"),                             \
        MODEL_OPTION(type, tied, tied, 1, FLAG,                                                    \
                     "1: the embedding matrix also computes the logits; width = hidden"),          \
        MODEL_OPTION(type, pad_id, pad_id, 0, NUMBER, "padding token id, ignored in the loss"),    \
        MODEL_OPTION(type, f64, dtype, 0, FLAG, "1: in double precision")
#define RECURRENT_SMALL "vocab=13 width=6 hidden=6 layers=2 batch=2"

#endif
