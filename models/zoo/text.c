/* Embeddings, masks, logits and losses of the token models. */
#include "text.h"

#include <math.h>

weft_status text_no_config(weft_graph *g, const char *function)
{
    weft_graph_fail_in(g, function, WEFT_BAD_ARGUMENT,
                       "the configuration or the values to fill are NULL");
    return weft_graph_status(g);
}

void text_traits(const weft_text_config *c, int64_t vocab, weft_model_traits *traits)
{
    *traits = (weft_model_traits){
        .dtype = c->dtype,
        .vocab = vocab,
        .d_model = c->d_model,
        .tied = c->tied,
        .max_positions = c->positions == WEFT_POSITIONS_LEARNED ? c->max_positions : INT64_MAX,
        .pad_id = (int32_t)c->pad_id,
        .causal = true};
}

weft_text_config text_config(const weft_text_config *config, const weft_build_options *build)
{
    weft_text_config c = *config;
    if (!build || !build->training) {
        c.dropout = c.block.dropout = 0;
        c.block.attention.dropout = c.block.feed_forward.dropout = 0;
    }
    if (build) c.block.attention.tensor = c.block.feed_forward.tensor = build->tensor;
    return c;
}

weft_value text_embed(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                      weft_value ids, const char *positions)
{
    int64_t length = weft_dim(g, ids, 1);
    weft_value x = weft_embedding(g, embeddings, ids, -1), at = WEFT_NO_VALUE;
    if (c->scaled_embeddings) x = weft_scale(g, x, sqrt((double)c->d_model));
    if (c->positions == WEFT_POSITIONS_SINUSOIDAL)
        at = weft_layer_sinusoidal_positions(g, c->dtype, length, c->d_model);
    else if (c->positions == WEFT_POSITIONS_LEARNED)
        at = weft_layer_positions(g, positions, c->dtype, length, c->max_positions, c->d_model);
    return c->positions == WEFT_POSITIONS_NONE ? x : weft_add(g, x, at);
}

weft_value text_embed_at(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                         weft_value ids, const char *positions, weft_value position, int64_t limit)
{
    int64_t count = weft_dim(g, ids, 1);
    weft_value x = weft_embedding(g, embeddings, ids, -1), rows = WEFT_NO_VALUE;
    if (c->scaled_embeddings) x = weft_scale(g, x, sqrt((double)c->d_model));
    if (c->positions == WEFT_POSITIONS_NONE) return x;
    rows = c->positions == WEFT_POSITIONS_SINUSOIDAL
               ? weft_layer_sinusoidal_positions(g, c->dtype, limit, c->d_model)
               : weft_layer_positions(g, positions, c->dtype, limit, c->max_positions, c->d_model);
    return weft_add(g, x, weft_embedding(g, rows, weft_layer_positions_at(g, position, count), -1));
}

void text_step_inputs(weft_graph *g, weft_decode_io *io)
{
    int64_t rows = weft_shape_numel(WEFT_SHAPE(io->sentences, io->beams));
    io->token = weft_input(g, "token", WEFT_I32, WEFT_SHAPE(rows, io->count));
    io->position = weft_input(g, "position", WEFT_I32, WEFT_SCALAR);
    io->parents = weft_input(g, "parents", WEFT_I32, WEFT_SHAPE(rows));
}

weft_cache text_cache(const weft_decode_io *io)
{
    return (weft_cache){.position = io->position,
                        .parents = io->parents,
                        .max_rows = weft_shape_numel(WEFT_SHAPE(io->max_sentences, io->max_beams)),
                        .max_len = io->max_len,
                        .key_len = io->key_len,
                        .sources = io->max_source_len ? io->sentences : 0,
                        .max_sources = io->max_sentences,
                        .max_source_len = io->max_source_len,
                        .source_len = io->source_len,
                        .declare = io->declare,
                        .declare_context = io->declare_context};
}

weft_value text_declare(weft_graph *g, const weft_decode_io *io, weft_value state,
                        weft_cache_layout layout)
{
    if (io->declare) io->declare(io->declare_context, g, state, layout);
    return state;
}

weft_value text_int(weft_graph *g, int64_t x)
{
    return weft_cast(g, weft_scalar(g, WEFT_F64, (double)x), WEFT_I32);
}

weft_value text_padding(weft_graph *g, const weft_text_config *c, weft_value ids)
{
    return weft_reshape(g, weft_equal(g, ids, text_int(g, c->pad_id)),
                        WEFT_SHAPE(weft_dim(g, ids, 0), 1, 1, weft_dim(g, ids, 1)));
}

weft_value text_logits(weft_graph *g, const weft_text_config *c, const char *name, weft_value x,
                       weft_value embeddings, int64_t vocab)
{
    return c->tied ? weft_matmul(g, x, weft_transpose(g, embeddings, 0, 1))
                   : weft_layer_linear(g, name, x, vocab, true);
}

/* The state of the transposed tied embedding matrix: [d_model, vocab]. */
static weft_value transposed_embeddings(weft_graph *g, weft_dtype dtype, int64_t d_model,
                                        int64_t vocab)
{
    return weft_state(g, "cache.output", dtype, WEFT_SHAPE(d_model, vocab), WEFT_INIT_ZEROS);
}

weft_value text_step_logits(weft_graph *g, const weft_text_config *c, const char *name,
                            weft_value x, int64_t vocab)
{
    weft_value y =
        c->tied ? weft_matmul(g, x, transposed_embeddings(g, c->dtype, weft_dim(g, x, 1), vocab))
                : weft_layer_linear(g, name, x, vocab, true);
    return weft_name(g, y, "logits");
}

void text_prepare(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                  weft_decode_io *io)
{
    if (!c->tied) return;
    weft_value state =
        transposed_embeddings(g, c->dtype, weft_dim(g, embeddings, 1), weft_dim(g, embeddings, 0));
    io->updated = weft_cache_write(g, state, weft_transpose(g, embeddings, 0, 1), text_int(g, 0));
}

void text_losses(weft_graph *g, const weft_text_config *c, weft_value logits, weft_model_io *io)
{
    weft_cross_entropy_options o = {.ignore_index = c->pad_id, .has_ignore_index = true};
    io->output = weft_name(g, logits, "logits");
    io->nll = weft_name(g, weft_cross_entropy(g, io->output, io->target_out, &o), "nll");
    io->loss = io->nll;
    o.label_smoothing = c->label_smoothing;
    if (o.label_smoothing != 0)
        io->loss = weft_name(g, weft_cross_entropy(g, io->output, io->target_out, &o), "loss");
}

int64_t text_bucket(int64_t n, int64_t length, int64_t limit)
{
    int64_t size = n;
    while (size < length && size < limit) {
        if (size + size / 2 >= length)
            size += size / 2;
        else
            size *= 2;
    }
    return size < limit ? size : limit;
}

int64_t text_rows(int64_t n)
{
    int64_t step = 1;
    while (8 * step < n) step *= 2;
    return (n + step - 1) / step * step;
}
