/* Vision Transformer (Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words"): patches of an
 * image as a sequence, with the structure and, outside of the blocks, the parameter names of
 * torchvision. */
#include "image.h"

#define EPS 1e-6

/* The patches as vectors: [rows, patches, d_model]. */
static weft_value embed_patches(weft_graph *g, weft_value x, const weft_vit_config *c)
{
    const weft_nn_conv_options o = {.channels = c->d_model,
                                    .kernel = {c->patch, c->patch},
                                    .bias = true,
                                    .conv = {.stride = {c->patch, c->patch}}};
    x = weft_nn_conv(g, "conv_proj", x, &o);
    x = weft_reshape(g, x, WEFT_SHAPE(weft_dim_of(g, x, 0), c->d_model, -1));
    return weft_transpose(g, x, 1, 2);
}

/* Puts the class token before the patches, and adds the positions. */
static weft_value add_class_and_positions(weft_graph *g, weft_value patches,
                                          const weft_vit_config *c)
{
    const weft_init normal = {WEFT_INIT_NORMAL, 0, 0.02};
    const weft_dtype dtype = c->image.dtype;
    const int64_t rows = weft_dim_of(g, patches, 0), tokens = weft_dim_of(g, patches, 1) + 1;
    weft_value token =
        weft_param(g, "class_token", dtype, WEFT_SHAPE(1, 1, c->d_model), WEFT_INIT_ZEROS);
    const weft_value all[2] = {weft_broadcast_to(g, token, WEFT_SHAPE(rows, 1, c->d_model)),
                               patches};
    weft_value positions =
        weft_param(g, "encoder.pos_embedding", dtype, WEFT_SHAPE(1, tokens, c->d_model), normal);
    return weft_add(g, weft_concat(g, all, 2, 1), positions);
}

static weft_nn_block_options block_options(const weft_vit_config *c,
                                           const weft_build_options *build)
{
    const double dropout = build->training ? c->dropout : 0;
    return (weft_nn_block_options){
        .attention = {.heads = c->heads,
                      .projection = WEFT_PROJECT_FUSED,
                      .bias = true,
                      .out_bias = true,
                      .dropout = build->training ? c->attention_dropout : 0,
                      .expose_weights = build->expose_weights,
                      .tensor = build->tensor},
        .feed_forward = {.d_ff = c->d_ff,
                         .activation = WEFT_GELU,
                         .bias = true,
                         .dropout = dropout,
                         .tensor = build->tensor},
        .norm_position = WEFT_PRE_NORM,
        .eps = EPS,
        .dropout = dropout};
}

static bool good_config(weft_graph *g, const weft_vit_config *c)
{
    if (c->patch < 1 || c->image.image_size < 1 || c->image.image_size % c->patch)
        weft_graph_fail_in(g, "weft_vit_build", WEFT_BAD_ARGUMENT,
                           "patches of %lld must divide images of %lld", (long long)c->patch,
                           (long long)c->image.image_size);
    else if (c->d_model < 1)
        weft_graph_fail_in(g, "weft_vit_build", WEFT_BAD_ARGUMENT,
                           "d_model must be 1 or more, got %lld", (long long)c->d_model);
    return weft_graph_status(g) == WEFT_OK;
}

weft_built weft_vit_build(weft_graph *graph, const weft_vit_config *config,
                          const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!weft__image_begin(g, "weft_vit_build", config, build) || !good_config(g, config))
        return built;
    const weft_vit_config *c = config;
    const weft_nn_block_options block = block_options(c, build);
    weft_value x = embed_patches(g, weft__image_input(g, &c->image, build, &built), c);
    x = weft_dropout(g, add_class_and_positions(g, x, c), block.dropout);
    x = weft_nn_stack(g, "encoder.layers", c->layers, x, WEFT_NO_VALUE, WEFT_NO_VALUE, &block);
    x = weft_squeeze(g, weft_slice(g, x, 1, 0, 1, 1), 1);
    weft__image_losses(g, &c->image,
                       weft_nn_linear_transposed(g, "heads.head", x, c->image.classes, true),
                       &built);
    return built;
}

/* ---- In the list of models ---- */

FITS(weft_vit_config);

#define OPTION(...) MODEL_OPTION(weft_vit_config, __VA_ARGS__)
static const weft_model_option options[] = {
    OPTION(patch, patch, 16, NUMBER, "height and width of a patch"),
    OPTION(d_model, d_model, 768, NUMBER, "width"),
    OPTION(heads, heads, 12, NUMBER, "attention heads"),
    OPTION(d_ff, d_ff, 3072, NUMBER, "width inside the feed-forward layers"),
    OPTION(layers, layers, 12, NUMBER, "layers, at most 1000"),
    OPTION(dropout, dropout, 0, NUMBER,
           "of embeddings, sub-layers' results and hidden units, while training"),
    OPTION(attention_dropout, attention_dropout, 0, NUMBER,
           "of the attention weights, while training"),
    IMAGE_OPTIONS(weft_vit_config)};

static void traits(const void *values, weft_model_traits *t)
{
    const weft_vit_config *c = values;
    weft__image_traits(&c->image, t);
    t->d_model = c->d_model;
}

static weft_built build_vit(weft_graph *graph, const void *values, const weft_build_options *build)
{
    return weft_vit_build(graph, values, build);
}

const weft_model weft__model_vit = {
    .name = "vit",
    .doc = "Vision Transformer: an encoder over patches of an image and a class token",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .small = "patch=4 d_model=8 heads=2 d_ff=12 layers=1 classes=3 image_size=8 batch=2",
    .sizes = IMAGE_SIZES(8),
    .exposes_weights = true,
    .traits = traits,
    .build = build_vit,
};
