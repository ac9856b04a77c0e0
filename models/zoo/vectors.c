/* Models of vectors: one attention, one feed-forward layer, an encoder. Their loss is the mean
 * squared error to the input `target`. */
#include "registry.h"

#include <math.h>

static weft_status finish(weft_graph *g, weft_value output, weft_model_io *io)
{
    io->output = weft_name(g, output, "output");
    io->target = weft_input(g, "target", weft_dtype_of(g, output), weft_shape_of(g, output));
    io->loss = weft_name(g, weft_mse(g, io->output, io->target, WEFT_REDUCE_MEAN), "loss");
    io->nll = io->loss;
    return weft_graph_status(g);
}

/* An input of vectors [rows, length, width]. */
static weft_value vectors(weft_graph *g, const char *name, double f64, int64_t rows, int64_t length,
                          double width)
{
    return weft_input(g, name, f64 != 0 ? WEFT_F64 : WEFT_F32,
                      WEFT_SHAPE(rows, length, (int64_t)width));
}

/* Not causal: the loss depends on all positions of the output. */
static void traits_of(double f64, weft_model_traits *traits)
{
    *traits =
        (weft_model_traits){.dtype = f64 != 0 ? WEFT_F64 : WEFT_F32, .max_positions = INT64_MAX};
}

#define PROJECTIONS .choices = "separate|fused|shared|none"
#define MERGES      .choices = "correct|as-written"

/* ---- One attention ---- */

#define MASKS .choices = "none|causal|padding|both"

#define ATTENTION_OPTIONS(X)                                                                       \
    X(d_model, 512, WHOLE, "width")                                                                \
    X(heads, 8, WHOLE, "attention heads")                                                          \
    X(kv_heads, 0, WHOLE, "heads of keys and values, each for several; 0: as many")                \
    X(projection, 0, PROJECTIONS, "of q, k and v")                                                 \
    X(bias, 1, FLAG, "1: q, k and v have biases")                                                  \
    X(out, 2, WHOLE, "projection of the concatenated heads: 0 none, 1 without bias, 2 with")       \
    X(merge, 0, MERGES, "how heads are concatenated: as-written mixes positions")                  \
    X(mask, 0, MASKS,                                                                              \
      "positions that are masked out; padding is the bool input `hidden` [batch, keys]")           \
    X(rotary_base, 0, REAL, "of rotary positions; 0: none")                                        \
    X(window, 0, WHOLE, "attends to the last N keys, its own position included; 0: all")           \
    X(dropout, 0.1, REAL, "of the weights, while training")                                        \
    X(f64, 0, FLAG, "1: in double precision")

enum {
#define ID(name, value, kind, doc) ATTENTION_##name,
    ATTENTION_OPTIONS(ID)
#undef ID
        N_ATTENTION
};
#define ROW(name, value, kind, doc) {#name, doc, value, kind},
static const weft_model_option attention_options[] = {ATTENTION_OPTIONS(ROW)};

enum { MASK_CAUSAL = 1, MASK_PADDING = 2 };

static void traits_attention(const double *v, weft_model_traits *traits)
{
    traits_of(v[ATTENTION_f64], traits);
}

static weft_status build_attention(weft_graph *g, const double *v, const weft_build_options *build,
                                   weft_model_io *io)
{
#define V(name) v[ATTENTION_##name]
    *io = (weft_model_io){.source = WEFT_NO_VALUE};
    const weft_batch_shape *shape = &build->shape;
    bool cross = shape->source_len != 0;
    io->input = vectors(g, "input", V(f64), build->shape.rows, build->shape.target_len, V(d_model));
    if (cross)
        io->memory = vectors(g, "memory", V(f64), shape->rows, shape->source_len, V(d_model));
    weft_value memory = cross ? io->memory : io->input;
    int mask = (int)V(mask);
    weft_attention_options o = {.heads = (int64_t)V(heads),
                                .kv_heads = (int64_t)V(kv_heads),
                                .projection = (weft_projection)V(projection),
                                .bias = V(bias) != 0,
                                .out_bias = V(out) > 1,
                                .no_out = V(out) == 0,
                                .merge_as_rows = V(merge) != 0,
                                .rotary_base = V(rotary_base),
                                .window = (int64_t)V(window),
                                .dropout = build->training ? V(dropout) : 0,
                                .causal = mask & MASK_CAUSAL,
                                .expose_weights = build->expose_weights,
                                .weights = &io->weights,
                                .tensor = build->tensor};
    if (mask & MASK_PADDING) {
        int64_t batch = shape->rows, keys = weft_dim(g, memory, 1);
        weft_value hidden = weft_input(g, "hidden", WEFT_BOOL, WEFT_SHAPE(batch, keys));
        o.mask = weft_reshape(g, hidden, WEFT_SHAPE(batch, 1, 1, keys));
    }
#undef V
    return finish(g, weft_layer_attention(g, "attn", io->input, memory, &o, NULL), io);
}

const weft_model weft__model_attention = {
    .name = "attention",
    .doc = "one multi-head attention over vectors: self or cross, any mask, any projection",
    .options = attention_options,
    .n_options = N_ATTENTION,
    .small = "d_model=8 heads=2 length=5",
    .sizes = {SIZE("batch", rows, 2, "sequences"),
              SIZE("length", target_len, 10, "positions of the queries"),
              SIZE("source_len", source_len, 0,
                   "positions of keys and values; 0: they are of the queries themselves")},
    .exposes_weights = true,
    .traits = traits_attention,
    .build = build_attention,
};

/* ---- One feed-forward layer ---- */

#define FEED_FORWARD_OPTIONS(X)                                                                    \
    X(d_model, 512, WHOLE, "width")                                                                \
    X(d_ff, 2048, WHOLE, "width inside")                                                           \
    X(activation, 0, ACTIVATIONS, "between the two linear layers")                                 \
    X(gated, 0, FLAG, "1: times another linear layer (with silu: SwiGLU)")                         \
    X(dropout, 0.1, REAL, "of the hidden units, while training")                                   \
    X(f64, 0, FLAG, "1: in double precision")

enum {
#define ID(name, value, kind, doc) FEED_FORWARD_##name,
    FEED_FORWARD_OPTIONS(ID)
#undef ID
        N_FEED_FORWARD
};
static const weft_model_option feed_forward_options[] = {FEED_FORWARD_OPTIONS(ROW)};

static void traits_feed_forward(const double *v, weft_model_traits *traits)
{
    traits_of(v[FEED_FORWARD_f64], traits);
}

static weft_status build_feed_forward(weft_graph *g, const double *v,
                                      const weft_build_options *build, weft_model_io *io)
{
#define V(name) v[FEED_FORWARD_##name]
    *io = (weft_model_io){.source = WEFT_NO_VALUE};
    weft_feed_forward_options o = {.d_ff = (int64_t)V(d_ff),
                                   .activation = (weft_activation)V(activation),
                                   .gated = V(gated) != 0,
                                   .bias = true,
                                   .dropout = build->training ? V(dropout) : 0,
                                   .tensor = build->tensor};
    io->input = vectors(g, "input", V(f64), build->shape.rows, build->shape.target_len, V(d_model));
#undef V
    return finish(g, weft_layer_feed_forward(g, "ffn", io->input, &o), io);
}

const weft_model weft__model_feed_forward = {
    .name = "feed-forward",
    .doc = "one position-wise feed-forward layer over vectors",
    .options = feed_forward_options,
    .n_options = N_FEED_FORWARD,
    .small = "d_model=6 d_ff=10",
    .sizes = {SIZE("batch", rows, 2, "sequences"), SIZE("length", target_len, 5, "positions")},
    .traits = traits_feed_forward,
    .build = build_feed_forward,
};

/* ---- An encoder ---- */

#define ENCODER_OPTIONS(X)                                                                         \
    X(d_model, 512, WHOLE, "width")                                                                \
    X(heads, 8, WHOLE, "attention heads")                                                          \
    X(d_ff, 2048, WHOLE, "width inside the feed-forward layers")                                   \
    X(layers, 5, WHOLE, "layers, at most 1000")                                                    \
    X(projection, 1, PROJECTIONS, "of q, k and v; fused: one matrix, columns grouped by head")     \
    X(merge, 0, MERGES, "how heads are concatenated: as-written mixes positions")                  \
    X(norm, 1, NORM_POSITIONS, "before each sub-layer, after it, or after it and dropped out")     \
    X(dropout, 0.1, REAL, "of sub-layers' results and hidden units, while training")               \
    X(f64, 0, FLAG, "1: in double precision")

enum {
#define ID(name, value, kind, doc) ENCODER_##name,
    ENCODER_OPTIONS(ID)
#undef ID
        N_ENCODER
};
static const weft_model_option encoder_options[] = {ENCODER_OPTIONS(ROW)};

static void traits_encoder(const double *v, weft_model_traits *traits)
{
    traits_of(v[ENCODER_f64], traits);
}

static weft_status build_encoder(weft_graph *g, const double *v, const weft_build_options *build,
                                 weft_model_io *io)
{
#define V(name) v[ENCODER_##name]
    *io = (weft_model_io){.source = WEFT_NO_VALUE};
    double dropout = build->training ? V(dropout) : 0;
    weft_block_options block = {.attention = {.heads = (int64_t)V(heads),
                                              .projection = (weft_projection)V(projection),
                                              .bias = true,
                                              .out_bias = true,
                                              .merge_as_rows = V(merge) != 0,
                                              .expose_weights = build->expose_weights,
                                              .tensor = build->tensor},
                                .feed_forward = {.d_ff = (int64_t)V(d_ff),
                                                 .bias = true,
                                                 .dropout = dropout,
                                                 .tensor = build->tensor},
                                .norm_position = (weft_norm_position)V(norm),
                                .eps = 1e-5,
                                .dropout = dropout};
    io->input = vectors(g, "input", V(f64), build->shape.rows, build->shape.target_len, V(d_model));
    weft_value y = weft_layer_stack(g, "layer", (int64_t)V(layers), io->input, WEFT_NO_VALUE,
                                    WEFT_NO_VALUE, &block);
#undef V
    return finish(g, y, io);
}

const weft_model weft__model_encoder = {
    .name = "encoder",
    .doc = "Transformer encoder over vectors: fused q, k, v, post-norm, ReLU",
    .options = encoder_options,
    .n_options = N_ENCODER,
    .small = "d_model=8 heads=2 d_ff=12 layers=1 batch=2 length=4",
    .sizes = {SIZE("batch", rows, 30, "sequences"), SIZE("length", target_len, 200, "positions")},
    .exposes_weights = true,
    .traits = traits_encoder,
    .build = build_encoder,
};
