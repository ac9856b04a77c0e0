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

/* Common options of the recurrent models: name, default, kind, documentation. */
#define RECURRENT_OPTIONS(X)                                                                       \
    X(vocab, 8000, WHOLE, "tokens of the vocabulary")                                              \
    X(width, 256, WHOLE, "width of the embeddings")                                                \
    X(hidden, 256, WHOLE, "width of the states")                                                   \
    X(layers, 2, WHOLE, "recurrent layers one on another")                                         \
    X(dropout, 0.1, REAL, "probability of dropping between layers, while training")                \
    X(label_smoothing, 0, REAL, "fraction of the target spread over all tokens")                   \
    X(tied, 1, FLAG, "1: the embedding matrix also computes the logits; width = hidden")           \
    X(pad_id, 0, WHOLE, "padding token id, ignored in the loss")                                   \
    X(f64, 0, FLAG, "1: in double precision")
#define RECURRENT_SMALL "vocab=13 width=6 hidden=6 layers=2 batch=2"

#endif
