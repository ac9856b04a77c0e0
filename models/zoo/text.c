/* Embeddings, masks, logits and losses of the token models. */
#include "text.h"

#include "layers/shared.h"
#include "run/built.h"

#include <math.h>

void weft__text_no_config(weft_graph *g, const char *function)
{
    weft_graph_fail_in(g, function, WEFT_BAD_ARGUMENT, "the configuration or the sizes are NULL");
}

/* Learned positions, and factors of LongRoPE, are for a number of positions. */
static bool has_limit(const weft_text_config *c)
{
    const weft_nn_attention_options *a = &c->block.attention;
    return c->positions == WEFT_POSITIONS_LEARNED ||
           (a->rotary_base != 0 && a->rotary_scaling.rule == WEFT_ROTARY_LONGROPE);
}

void weft__text_traits(const weft_text_config *c, int64_t vocab, weft_model_traits *traits)
{
    *traits = (weft_model_traits){
        .dtype = c->dtype,
        .vocab = vocab,
        .d_model = c->d_model,
        .tied = c->tied,
        .max_positions = has_limit(c) ? c->max_positions : INT64_MAX,
        .pad_id = c->pad_id < vocab ? (int32_t)c->pad_id : 0, /* a label alone cannot fill rows */
        .causal = true};
}

weft_text_config weft__text_config(const weft_text_config *config, const weft_build_options *build)
{
    weft_text_config c = *config;
    if (!build || !build->training) {
        c.dropout = c.block.dropout = 0;
        c.block.attention.dropout = c.block.feed_forward.dropout = 0;
    }
    if (build) c.block.attention.tensor = c.block.feed_forward.tensor = build->tensor;
    return c;
}

/* Rows of positions 0 .. length - 1; WEFT_NO_VALUE if none are added. `name` is that of learned
 * positions. */
static weft_value position_rows(weft_graph *g, const weft_text_config *c, const char *name,
                                int64_t length)
{
    const int64_t offset = c->position_offset;
    switch (c->positions) {
    case WEFT_POSITIONS_NONE:
        break;
    case WEFT_POSITIONS_SINUSOIDAL:
        return weft_nn_sinusoidal_positions(g, c->dtype, length, c->d_model);
    case WEFT_POSITIONS_SINUSOIDAL_HALVES:
        return weft_nn_sinusoidal_halves(g, c->dtype, length, c->d_model);
    case WEFT_POSITIONS_LEARNED: {
        if (offset < 0 || offset > INT64_MAX - c->max_positions) {
            weft_graph_fail_in(g, name, WEFT_BAD_ARGUMENT, "invalid position_offset %lld",
                               (long long)offset);
            break;
        }
        weft_value rows = weft_nn_positions(g, name, c->dtype, offset + length,
                                            offset + c->max_positions, c->d_model);
        return offset ? weft_slice(g, rows, 0, offset, offset + length, 1) : rows;
    }
    }
    return WEFT_NO_VALUE;
}

weft_value weft__text_embed(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                            weft_value ids, const char *positions)
{
    weft_value x = weft_embedding(g, embeddings, ids, -1);
    if (c->scaled_embeddings) x = weft_mul_scalar(g, x, sqrt((double)c->d_model));
    if (c->positions == WEFT_POSITIONS_NONE) return x;
    return weft_add(g, x, position_rows(g, c, positions, weft_dim_of(g, ids, 1)));
}

weft_value weft__text_embed_at(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                               weft_value ids, const char *positions, weft_value position,
                               int64_t limit)
{
    int64_t count = weft_dim_of(g, ids, 1);
    weft_value x = weft_embedding(g, embeddings, ids, -1);
    if (c->scaled_embeddings) x = weft_mul_scalar(g, x, sqrt((double)c->d_model));
    if (c->positions == WEFT_POSITIONS_NONE) return x;
    weft_value rows = position_rows(g, c, positions, limit);
    return weft_add(g, x, weft_embedding(g, rows, weft_nn_positions_at(g, position, count), -1));
}

void weft__text_step_inputs(weft_graph *g, weft_decode_io *io)
{
    int64_t rows = weft_shape_numel(WEFT_SHAPE(io->sentences, io->beams));
    io->token = weft_input(g, "token", WEFT_I32, WEFT_SHAPE(rows, io->count));
    io->position =
        weft_input(g, "position", WEFT_I32, io->own_positions ? WEFT_SHAPE(rows) : WEFT_SCALAR);
    if (io->own_positions) return;
    io->parents = weft_input(g, "parents", WEFT_I32, WEFT_SHAPE(rows));
}

weft_cache weft__text_cache(const weft_decode_io *io)
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
                        .declare_context = io->declare_context,
                        .dtype = io->cache};
}

weft_value weft__text_declare(weft_graph *g, const weft_decode_io *io, weft_value state,
                              weft_cache_layout layout)
{
    if (io->declare) io->declare(io->declare_context, g, state, layout);
    return state;
}

weft_value weft__text_int(weft_graph *g, int64_t x)
{
    return weft_cast(g, weft_scalar(g, WEFT_F64, (double)x), WEFT_I32);
}

weft_value weft__text_padding(weft_graph *g, const weft_text_config *c, weft_value ids)
{
    return weft_reshape(g, weft_equal(g, ids, weft__text_int(g, c->pad_id)),
                        WEFT_SHAPE(weft_dim_of(g, ids, 0), 1, 1, weft_dim_of(g, ids, 1)));
}

static bool has_output_bias(const weft_text_config *c)
{
    return c->output_bias == WEFT_OUTPUT_BIAS_UNTIED ? !c->tied
                                                     : c->output_bias == WEFT_OUTPUT_BIAS_ALWAYS;
}

/* x times the matrix [d_model, vocab], or if it is WEFT_NO_VALUE times NAME.weight, and plus
 * NAME.bias if there is one; capped. */
static weft_value output(weft_graph *g, const weft_text_config *c, const char *name, weft_value x,
                         weft_value matrix, int64_t vocab)
{
    const bool bias = has_output_bias(c), own = !weft_is_value(matrix);
    weft_value y = own ? weft_nn_linear(g, name, x, vocab, bias) : weft_matmul(g, x, matrix);
    if (bias && !own) {
        weft_graph_push_scope(g, "%s", name);
        y = weft_add(g, y, weft_param(g, "bias", c->dtype, WEFT_SHAPE(vocab), WEFT_INIT_ZEROS));
        weft_graph_pop_scope(g);
    }
    return weft__soft_cap(g, y, c->logit_soft_cap);
}

weft_value weft__text_logits(weft_graph *g, const weft_text_config *c, const char *name,
                             weft_value x, weft_value embeddings, int64_t vocab)
{
    weft_value matrix = c->tied ? weft_transpose(g, embeddings, 0, 1) : WEFT_NO_VALUE;
    return output(g, c, name, x, matrix, vocab);
}

/* The state of the transposed tied embedding matrix: [d_model, vocab]. */
static weft_value transposed_embeddings(weft_graph *g, weft_dtype dtype, int64_t d_model,
                                        int64_t vocab)
{
    return weft_state(g, "cache.output", dtype, WEFT_SHAPE(d_model, vocab), WEFT_INIT_ZEROS);
}

weft_value weft__text_step_logits(weft_graph *g, const weft_text_config *c,
                                  const weft_decode_io *io, const char *name, weft_value x,
                                  weft_value embeddings, int64_t vocab)
{
    weft_value matrix = WEFT_NO_VALUE;
    if (c->tied && !io->quantized)
        matrix = transposed_embeddings(g, c->dtype, weft_dim_of(g, x, 1), vocab);
    else if (c->tied)
        matrix = weft_transpose(g, embeddings, 0, 1);
    return weft_name(g, output(g, c, name, x, matrix, vocab), "logits");
}

void weft__text_prepare(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                        weft_decode_io *io)
{
    if (!c->tied || io->quantized) return;
    weft_value state = transposed_embeddings(g, c->dtype, weft_dim_of(g, embeddings, 1),
                                             weft_dim_of(g, embeddings, 0));
    const weft_value columns = weft_transpose(g, embeddings, 0, 1);
    io->updated = weft_cache_write(g, state, columns, weft__text_int(g, 0));
}

weft_value weft__text_input(weft_graph *g, const char *name, int64_t rows, int64_t length)
{
    return weft_input(g, name, WEFT_I32, WEFT_SHAPE(rows, length));
}

void weft__text_losses(weft_graph *g, const weft_text_config *c, weft_value logits,
                       weft_value target_out, weft_built *built)
{
    weft_cross_entropy_loss_options o = {.ignore_index = c->pad_id, .has_ignore_index = true};
    logits = weft__built_add_output(built, "logits", weft_name(g, logits, "logits"));
    weft__built_add_input(built, "target_out", target_out);
    built->metric = weft_name(g, weft_cross_entropy_loss(g, logits, target_out, &o), "nll");
    built->loss = built->metric;
    o.label_smoothing = c->label_smoothing;
    if (o.label_smoothing != 0)
        built->loss = weft_name(g, weft_cross_entropy_loss(g, logits, target_out, &o), "loss");
}

int64_t weft__text_bucket(int64_t n, int64_t length, int64_t limit)
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

int64_t weft__text_rows(int64_t n)
{
    int64_t step = 1;
    while (8 * step < n) step *= 2;
    return (n + step - 1) / step * step;
}
