/* Sizes, embeddings and decoding states of the recurrent models. */
#include "recurrent_states.h"
#include "text.h"

#include <stdio.h>

bool weft__recurrent_tied_fits(weft_graph *g, bool tied, int64_t width, int64_t hidden)
{
    if (tied && width != hidden)
        weft_graph_fail_in(
            g, "recurrent model", WEFT_BAD_ARGUMENT,
            "tied embeddings need the width of the states, got width %lld and hidden %lld",
            (long long)width, (long long)hidden);
    return weft_graph_status(g) == WEFT_OK;
}

bool weft__recurrent_layers_fit(weft_graph *g, int64_t layers)
{
    if (layers < 1 || layers > WEFT_RECURRENT_LAYERS)
        weft_graph_fail_in(g, "recurrent model", WEFT_BAD_ARGUMENT,
                           "takes 1 to %d layers, got %lld", WEFT_RECURRENT_LAYERS,
                           (long long)layers);
    return weft_graph_status(g) == WEFT_OK;
}

weft_value weft__recurrent_embed(weft_graph *g, weft_value embeddings, weft_value ids)
{
    return weft_transpose(g, weft_embedding(g, embeddings, weft_transpose(g, ids, 0, 1), -1), 0, 1);
}

/* ---- States of decoding ---- */

/* The state NAME.h or NAME.c: [max_sentences * max_beams, 1, hidden]. */
static weft_value state_of(weft_graph *g, const weft_decode_io *io, weft_dtype dtype,
                           int64_t hidden, int64_t layer, char suffix)
{
    char name[32];
    snprintf(name, sizeof name, "cache.%lld.%c", (long long)layer, suffix);
    int64_t rows = weft_shape_numel(WEFT_SHAPE(io->max_sentences, io->max_beams));
    weft_value state = weft_state(g, name, dtype, WEFT_SHAPE(rows, 1, hidden), WEFT_INIT_ZEROS);
    return weft__text_declare(g, io, state, (weft_cache_layout){true, WEFT_CACHE_WHOLE});
}

/* The rows of a state that the rows of this step continue, [rows, hidden]. Without a source, zeros
 * at position 0. */
static weft_value load_state(weft_graph *g, const weft_decode_io *io, weft_value state)
{
    if (io->own_positions)
        weft_graph_fail_in(g, "weft_model", WEFT_BAD_ARGUMENT,
                           "a recurrent model cannot have a position for each row");
    weft_value x = weft_embedding(g, weft_squeeze(g, state, 1), io->parents, -1);
    if (io->max_source_len) return x;
    weft_value zeros = weft_fill(g, weft_dtype_of(g, x), weft_shape_of(g, x), 0.0);
    return weft_where(g, weft_equal(g, io->position, weft__text_int(g, 0)), zeros, x);
}

static weft_value store_state(weft_graph *g, weft_value state, weft_value x)
{
    const weft_value row = weft_expand_dims(g, x, 1);
    return weft_cache_write(g, state, row, weft__text_int(g, 0));
}

void weft__recurrent_load_states(weft_graph *g, const weft_decode_io *io, weft_recurrent_kind kind,
                                 weft_dtype dtype, int64_t hidden, int64_t layers,
                                 weft_recurrent_state *states)
{
    for (int64_t i = 0; i < layers; i++) {
        states[i] = (weft_recurrent_state){WEFT_NO_VALUE, WEFT_NO_VALUE};
        states[i].h = load_state(g, io, state_of(g, io, dtype, hidden, i, 'h'));
        if (kind == WEFT_LSTM)
            states[i].c = load_state(g, io, state_of(g, io, dtype, hidden, i, 'c'));
    }
}

weft_value weft__recurrent_store_states(weft_graph *g, const weft_decode_io *io,
                                        weft_recurrent_kind kind, weft_dtype dtype, int64_t hidden,
                                        int64_t layers, const weft_recurrent_state *states)
{
    weft_value done[2 * WEFT_RECURRENT_LAYERS];
    size_t n = 0;
    for (int64_t i = 0; i < layers; i++) {
        done[n++] = store_state(g, state_of(g, io, dtype, hidden, i, 'h'), states[i].h);
        if (kind == WEFT_LSTM)
            done[n++] = store_state(g, state_of(g, io, dtype, hidden, i, 'c'), states[i].c);
    }
    return weft_group(g, done, n);
}
