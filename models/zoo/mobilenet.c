/* MobileNetV2 (Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks"), with
 * the parameter names of torchvision. */
#include "image.h"

#include <math.h>
#include <stdio.h>

/* The stages of table 2: expansion factor inside a block, channels, blocks, stride of the first
 * block. */
static const struct {
    int64_t expansion, channels, blocks, stride;
} stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
enum { STAGES = sizeof stages / sizeof *stages, FIRST_CHANNELS = 32 };

/* The largest factor and number of channels that the configuration may ask for. */
#define LARGEST 1e9

static bool good_config(weft_graph *g, const weft_mobilenet_config *c)
{
    const double width = weft_option(c->width, 1), depth = weft_option(c->depth, 1);
    const bool good = width > 0 && width <= LARGEST && depth > 0 && depth <= LARGEST &&
                      c->round >= 0 && (double)c->round <= LARGEST && c->last >= 0 &&
                      (double)c->last <= LARGEST;
    if (!good)
        weft_graph_fail_in(g, "weft_mobilenet_build", WEFT_BAD_ARGUMENT,
                           "width %g and depth %g must be above 0, round %lld and last %lld not "
                           "negative, and none above %g",
                           width, depth, (long long)c->round, (long long)c->last, LARGEST);
    return good;
}

/* The multiple of `round` nearest to channels * width, but at least 0.9 times that and `round`. */
static int64_t scaled(const weft_mobilenet_config *c, double channels)
{
    const double wanted = channels * weft_option(c->width, 1);
    const int64_t round = c->round ? c->round : 8;
    int64_t n = (int64_t)(wanted + (double)round / 2) / round * round;
    if (n < round) n = round;
    return (double)n < 0.9 * wanted ? n + round : n;
}

/* A convolution with ReLU6, whose name is `scope`.0 and whose norm's is `scope`.1. */
static weft_value conv_relu6(weft_graph *g, const char *scope, weft_value x, image_conv conv,
                             bool training)
{
    conv.conv = "0";
    conv.norm = "1";
    conv.activation = IMAGE_RELU6;
    weft_graph_push_scope(g, "%s", scope);
    x = weft__image_conv_norm(g, x, &conv, training);
    weft_graph_pop_scope(g);
    return x;
}

/* Inverted residual: 1x1 to more channels, 3x3 of each channel alone, 1x1 to `channels`. */
static weft_value block(weft_graph *g, weft_value x, int64_t expansion, int64_t channels,
                        int64_t stride, bool training)
{
    const int64_t in = weft_dim_of(g, x, 1), inside = in * expansion;
    const image_conv wide = {"conv.2", "conv.3", channels, 1, 1, 0, IMAGE_LINEAR};
    const image_conv plain = {"conv.1", "conv.2", channels, 1, 1, 0, IMAGE_LINEAR};
    const image_conv deep = {.channels = inside, .kernel = 3, .stride = stride, .groups = inside};
    const image_conv widening = {.channels = inside, .kernel = 1, .stride = 1};
    const bool expands = expansion != 1;
    weft_value y = x;
    if (expands) y = conv_relu6(g, "conv.0", y, widening, training);
    y = conv_relu6(g, expands ? "conv.1" : "conv.0", y, deep, training);
    y = weft__image_conv_norm(g, y, expands ? &wide : &plain, training);
    return stride == 1 && in == channels ? weft_add(g, x, y) : y;
}

/* Blocks of a stage, or 0 after a failure. */
static int64_t count_blocks(weft_graph *g, const weft_mobilenet_config *c, int stage)
{
    const double n = ceil((double)stages[stage].blocks * weft_option(c->depth, 1));
    if (n > WEFT_MAX_LAYERS)
        weft_graph_fail_in(g, "weft_mobilenet_build", WEFT_TOO_LARGE,
                           "a stage of %g blocks, at most %d", n, WEFT_MAX_LAYERS);
    return weft_graph_status(g) == WEFT_OK ? (int64_t)n : 0;
}

weft_built weft_mobilenet_build(weft_graph *graph, const weft_mobilenet_config *config,
                                const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!weft__image_begin(g, "weft_mobilenet_build", config, build) || !good_config(g, config))
        return built;
    const weft_mobilenet_config *c = config;
    const bool training = build->training;
    const double last = (double)(c->last ? c->last : 1280);
    const double most = weft_option(c->width, 1) > 1 ? last : last / weft_option(c->width, 1);
    int64_t at = 0;
    weft_value x = weft__image_input(g, &c->image, build, &built);
    weft_graph_push_scope(g, "features");
    const image_conv stem = {.channels = scaled(c, FIRST_CHANNELS), .kernel = 3, .stride = 2};
    x = conv_relu6(g, "0", x, stem, training);
    for (int s = 0; s < STAGES; s++) {
        const int64_t n = count_blocks(g, c, s);
        for (int64_t i = 0; i < n; i++) {
            weft_graph_push_scope(g, "%lld", (long long)++at);
            x = block(g, x, stages[s].expansion, scaled(c, (double)stages[s].channels),
                      i ? 1 : stages[s].stride, training);
            weft_graph_pop_scope(g);
        }
    }
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)++at);
    const image_conv top = {.channels = scaled(c, most), .kernel = 1, .stride = 1};
    x = conv_relu6(g, name, x, top, training);
    weft_graph_pop_scope(g);
    x = weft_dropout(g, weft_nn_global_average_pool(g, x), training ? c->dropout : 0);
    weft__image_losses(g, &c->image,
                       weft_nn_linear_transposed(g, "classifier.1", x, c->image.classes, true),
                       &built);
    return built;
}

/* ---- In the list of models ---- */

FITS(weft_mobilenet_config);

#define OPTION(...) MODEL_OPTION(weft_mobilenet_config, __VA_ARGS__)
static const weft_model_option options[] = {
    OPTION(width, width, 1, NUMBER, "times the channels of the paper; 0: 1"),
    OPTION(depth, depth, 1, NUMBER, "times the blocks of each stage, rounded up; 0: 1"),
    OPTION(round, round, 8, NUMBER, "channels are multiples of it; 0: 8"),
    OPTION(last, last, 1280, NUMBER,
           "channels of the last convolution, times width above 1; 0: 1280"),
    OPTION(dropout, dropout, 0.2, NUMBER, "before the logits, while training"),
    IMAGE_OPTIONS(weft_mobilenet_config)};

static void traits(const void *values, weft_model_traits *t)
{
    const weft_mobilenet_config *c = values;
    weft__image_traits(&c->image, t);
}

static weft_built build_mobilenet(weft_graph *graph, const void *values,
                                  const weft_build_options *build)
{
    return weft_mobilenet_build(graph, values, build);
}

const weft_model weft__model_mobilenet = {
    .name = "mobilenet",
    .doc = "MobileNetV2 over images: inverted residuals of depthwise convolutions",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .small = "width=0.05 depth=0.25 round=2 last=8 classes=3 image_size=16 batch=3 dropout=0",
    .sizes = IMAGE_SIZES(8),
    .traits = traits,
    .build = build_mobilenet,
};
