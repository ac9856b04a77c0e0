/* Models of vectors: one attention, one feed-forward layer, an encoder. Their loss is the mean
 * squared error to the input `target`. */
#include "registry.h"

#include "run/built.h"

#include <math.h>

static void finish(weft_graph *g, weft_value output, weft_built *built)
{
    output = weft__built_add_output(built, "output", weft_name(g, output, "output"));
    const weft_value target = weft__built_add_input(
        built, "target",
        weft_input(g, "target", weft_dtype_of(g, output), weft_shape_of(g, output)));
    built->loss = weft_name(g, weft_mse_loss(g, output, target, WEFT_REDUCE_MEAN), "loss");
    built->metric = built->loss;
}

/* Declares an input. */
static weft_value add_input(weft_graph *g, weft_built *built, const char *name, weft_dtype dtype,
                            weft_shape shape)
{
    return weft__built_add_input(built, name, weft_input(g, name, dtype, shape));
}

/* Not causal: the loss depends on all positions of the output. The options of all three begin with
 * the dtype. */
static void traits(const void *values, weft_model_traits *t)
{
    *t = (weft_model_traits){.dtype = *(const weft_dtype *)values, .max_positions = INT64_MAX};
}

#define PROJECTIONS .choices = "separate|fused|shared|none"
#define MERGES      .choices = "correct|as-written"

/* ---- One attention ---- */

#define MASKS .choices = "none|causal|padding|both"

typedef struct attention_model {
    weft_dtype dtype;
    int64_t d_model, out;
    unsigned mask; /* of MASKS */
    weft_nn_attention_options attention;
} attention_model;
FITS(attention_model);

#define OPTION(...) MODEL_OPTION(attention_model, __VA_ARGS__)
static const weft_model_option attention_options[] = {
    OPTION(d_model, d_model, 512, NUMBER, "width"),
    OPTION(heads, attention.heads, 8, NUMBER, "attention heads"),
    OPTION(kv_heads, attention.kv_heads, 0, NUMBER,
           "heads of keys and values, a divisor of heads; 0: heads"),
    OPTION(projection, attention.projection, 0, PROJECTIONS, "of q, k and v"),
    OPTION(bias, attention.bias, 1, FLAG, "1: q, k and v have biases"),
    OPTION(out, out, 2, NUMBER,
           "projection of the concatenated heads: 0 none, 1 without bias, 2 with"),
    OPTION(merge, attention.merge_as_rows, 0, MERGES,
           "how heads are concatenated: as-written mixes positions"),
    OPTION(mask, mask, 0, MASKS,
           "positions that are masked out; padding is the bool input `hidden` [batch, keys]"),
    OPTION(rotary_base, attention.rotary_base, 0, NUMBER, "of rotary positions; 0: none"),
    OPTION(window, attention.window, 0, NUMBER,
           "attends to the last N keys, its own position included; 0: all"),
    OPTION(dropout, attention.dropout, 0.1, NUMBER, "of the weights, while training"),
    OPTION(f64, dtype, 0, FLAG, "1: in double precision")};
#undef OPTION

enum { MASK_CAUSAL = 1, MASK_PADDING = 2 };

static weft_built build_attention(weft_graph *g, const void *values,
                                  const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    const attention_model *m = values;
    const weft_batch_shape *shape = &build->shape;
    const bool cross = shape->source_len != 0;
    const weft_value input = add_input(g, &built, "input", m->dtype,
                                       WEFT_SHAPE(shape->rows, shape->target_len, m->d_model));
    weft_value memory = input, weights = WEFT_NO_VALUE;
    if (cross)
        memory = add_input(g, &built, "memory", m->dtype,
                           WEFT_SHAPE(shape->rows, shape->source_len, m->d_model));
    weft_nn_attention_options o = m->attention;
    o.out_bias = m->out > 1;
    o.no_out = m->out == 0;
    if (!build->training) o.dropout = 0;
    o.causal = m->mask & MASK_CAUSAL;
    o.expose_weights = build->expose_weights;
    o.weights = &weights;
    o.tensor = build->tensor;
    if (m->mask & MASK_PADDING) {
        int64_t batch = shape->rows, keys = weft_dim_of(g, memory, 1);
        weft_value hidden = add_input(g, &built, "hidden", WEFT_BOOL, WEFT_SHAPE(batch, keys));
        o.mask = weft_reshape(g, hidden, WEFT_SHAPE(batch, 1, 1, keys));
    }
    finish(g, weft_nn_attention(g, "attn", input, memory, &o, NULL), &built);
    weft__built_add_output(&built, "weights", weights);
    return built;
}

const weft_model weft__model_attention = {
    .name = "attention",
    .doc = "one multi-head attention over vectors: self or cross, any mask, any projection",
    .options = attention_options,
    .n_options = sizeof attention_options / sizeof *attention_options,
    .small = "d_model=8 heads=2 length=5",
    .sizes = {SIZE(batch, rows, 2, "sequences"),
              SIZE(length, target_len, 10, "positions of the queries"),
              SIZE(source_len, source_len, 0,
                   "positions of keys and values; 0: they are of the queries themselves")},
    .exposes_weights = true,
    .traits = traits,
    .build = build_attention,
};

/* ---- One feed-forward layer ---- */

typedef struct feed_forward_model {
    weft_dtype dtype;
    int64_t d_model;
    weft_nn_feed_forward_options feed_forward;
} feed_forward_model;
FITS(feed_forward_model);

#define OPTION(...) MODEL_OPTION(feed_forward_model, __VA_ARGS__)
static const weft_model_option feed_forward_options[] = {
    OPTION(d_model, d_model, 512, NUMBER, "width"),
    OPTION(d_ff, feed_forward.d_ff, 2048, NUMBER, "width inside"),
    OPTION(activation, feed_forward.activation, 0, ACTIVATIONS, "between the two linear layers"),
    OPTION(gated, feed_forward.gated, 0, FLAG, "1: times another linear layer (with silu: SwiGLU)"),
    OPTION(dropout, feed_forward.dropout, 0.1, NUMBER, "of the hidden units, while training"),
    OPTION(f64, dtype, 0, FLAG, "1: in double precision")};
#undef OPTION

static weft_built build_feed_forward(weft_graph *g, const void *values,
                                     const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    const feed_forward_model *m = values;
    weft_nn_feed_forward_options o = m->feed_forward;
    o.bias = true;
    if (!build->training) o.dropout = 0;
    o.tensor = build->tensor;
    const weft_value input =
        add_input(g, &built, "input", m->dtype,
                  WEFT_SHAPE(build->shape.rows, build->shape.target_len, m->d_model));
    finish(g, weft_nn_feed_forward(g, "ffn", input, &o), &built);
    return built;
}

const weft_model weft__model_feed_forward = {
    .name = "feed-forward",
    .doc = "one position-wise feed-forward layer over vectors",
    .options = feed_forward_options,
    .n_options = sizeof feed_forward_options / sizeof *feed_forward_options,
    .small = "d_model=6 d_ff=10",
    .sizes = {SIZE(batch, rows, 2, "sequences"), SIZE(length, target_len, 5, "positions")},
    .traits = traits,
    .build = build_feed_forward,
};

/* ---- An encoder ---- */

typedef struct encoder_model {
    weft_dtype dtype;
    int64_t d_model, layers;
    weft_nn_block_options block;
} encoder_model;
FITS(encoder_model);

#define OPTION(...) MODEL_OPTION(encoder_model, __VA_ARGS__)
static const weft_model_option encoder_options[] = {
    OPTION(d_model, d_model, 512, NUMBER, "width"),
    OPTION(heads, block.attention.heads, 8, NUMBER, "attention heads"),
    OPTION(d_ff, block.feed_forward.d_ff, 2048, NUMBER, "width inside the feed-forward layers"),
    OPTION(layers, layers, 5, NUMBER, "layers, at most 1000"),
    OPTION(projection, block.attention.projection, 1, PROJECTIONS,
           "of q, k and v; fused: one matrix, columns grouped by head"),
    OPTION(merge, block.attention.merge_as_rows, 0, MERGES,
           "how heads are concatenated: as-written mixes positions"),
    OPTION(norm, block.norm_position, 1, NORM_POSITIONS,
           "before each sub-layer, after it, after it and dropped out, or both"),
    OPTION(dropout, block.dropout, 0.1, NUMBER,
           "of sub-layers' results and hidden units, while training"),
    OPTION(f64, dtype, 0, FLAG, "1: in double precision")};

static weft_built build_encoder(weft_graph *g, const void *values, const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    const encoder_model *m = values;
    weft_nn_block_options block = m->block;
    block.attention.bias = block.attention.out_bias = block.feed_forward.bias = true;
    block.attention.expose_weights = build->expose_weights;
    block.attention.tensor = block.feed_forward.tensor = build->tensor;
    block.eps = 1e-5;
    if (!build->training) block.dropout = 0;
    block.feed_forward.dropout = block.dropout;
    const weft_value input =
        add_input(g, &built, "input", m->dtype,
                  WEFT_SHAPE(build->shape.rows, build->shape.target_len, m->d_model));
    weft_value y =
        weft_nn_stack(g, "layer", m->layers, input, WEFT_NO_VALUE, WEFT_NO_VALUE, &block);
    finish(g, y, &built);
    return built;
}

const weft_model weft__model_encoder = {
    .name = "encoder",
    .doc = "Transformer encoder over vectors: fused q, k, v, post-norm, ReLU",
    .options = encoder_options,
    .n_options = sizeof encoder_options / sizeof *encoder_options,
    .small = "d_model=8 heads=2 d_ff=12 layers=1 batch=2 length=4",
    .sizes = {SIZE(batch, rows, 30, "sequences"), SIZE(length, target_len, 200, "positions")},
    .exposes_weights = true,
    .traits = traits,
    .build = build_encoder,
};
