/* Residual networks (He et al. 2015, "Deep Residual Learning for Image Recognition"), with the
 * parameter names of torchvision. */
#include "image.h"

/* A depth: the blocks of each of the four stages, and whether a block has three convolutions. */
typedef struct resnet_depth {
    int64_t blocks[4];
    bool bottleneck;
} resnet_depth;

/* In the order of DEPTHS. 18 to 152 are table 1 of the paper; 10 and 14 have one block a stage. */
#define DEPTHS .choices = "10|14|18|34|50|101|152"
static const resnet_depth depths[] = {
    {{1, 1, 1, 1}, false}, {{1, 1, 1, 1}, true},  {{2, 2, 2, 2}, false}, {{3, 4, 6, 3}, false},
    {{3, 4, 6, 3}, true},  {{3, 4, 23, 3}, true}, {{3, 8, 36, 3}, true}};
enum { DEPTH_50 = 4 };
static const int depth_layers[] = {10, 14, 18, 34, 50, 101, 152};

/* Beyond it the channels of the last stage could overflow. */
#define MAX_WIDTH ((int64_t)1 << 32)

static const resnet_depth *find_depth(weft_graph *g, int64_t layers, int64_t width)
{
    if (width < 1 || width > MAX_WIDTH) {
        weft_graph_fail_in(g, "weft_resnet_build", WEFT_BAD_ARGUMENT,
                           "width must be 1 to %lld, got %lld", (long long)MAX_WIDTH,
                           (long long)width);
        return NULL;
    }
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        if (depth_layers[i] == layers) return &depths[i];
    weft_graph_fail_in(g, "weft_resnet_build", WEFT_BAD_ARGUMENT,
                       "depth must be 10, 14, 18, 34, 50, 101 or 152, got %lld", (long long)layers);
    return NULL;
}

/* The input of a block as its output: projected where the shapes differ. */
static weft_value shortcut(weft_graph *g, weft_value x, int64_t channels, int64_t stride,
                           bool training)
{
    const image_conv project = {"downsample.0", "downsample.1", channels, 1, stride, 0,
                                IMAGE_LINEAR};
    if (stride == 1 && weft_dim_of(g, x, 1) == channels) return x;
    return weft__image_conv_norm(g, x, &project, training);
}

/* Two convolutions of 3x3, the first one with the stride. */
static weft_value basic_block(weft_graph *g, weft_value x, int64_t width, int64_t stride,
                              bool training)
{
    const image_conv first = {"conv1", "bn1", width, 3, stride, 0, IMAGE_RELU};
    const image_conv second = {"conv2", "bn2", width, 3, 1, 0, IMAGE_LINEAR};
    weft_value y = weft__image_conv_norm(g, x, &first, training);
    y = weft__image_conv_norm(g, y, &second, training);
    return weft_relu(g, weft_add(g, y, shortcut(g, x, width, stride, training)));
}

/* 1x1 to `width` channels, 3x3 with the stride, 1x1 to four times as many. */
static weft_value bottleneck_block(weft_graph *g, weft_value x, int64_t width, int64_t stride,
                                   bool training)
{
    const image_conv convs[] = {{"conv1", "bn1", width, 1, 1, 0, IMAGE_RELU},
                                {"conv2", "bn2", width, 3, stride, 0, IMAGE_RELU},
                                {"conv3", "bn3", 4 * width, 1, 1, 0, IMAGE_LINEAR}};
    weft_value y = x;
    for (int i = 0; i < 3; i++) y = weft__image_conv_norm(g, y, &convs[i], training);
    return weft_relu(g, weft_add(g, y, shortcut(g, x, 4 * width, stride, training)));
}

weft_built weft_resnet_build(weft_graph *graph, const weft_resnet_config *config,
                             const weft_build_options *build)
{
    weft_built built = {.n_inputs = 0};
    weft_graph *g = graph;
    if (!weft__image_begin(g, "weft_resnet_build", config, build)) return built;
    const resnet_depth *depth = find_depth(g, config->depth, config->width);
    if (!depth) return built;
    const bool training = build->training;
    const image_conv stem = {"conv1", "bn1", config->width, 7, 2, 0, IMAGE_RELU};
    const weft_pool_options pool = {
        .kernel = {3, 3}, .stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}};
    weft_value x = weft__image_input(g, &config->image, build, &built);
    x = weft_max_pool(g, weft__image_conv_norm(g, x, &stem, training), &pool, NULL);
    for (int stage = 0; stage < 4; stage++)
        for (int64_t i = 0; i < depth->blocks[stage] && weft_graph_status(g) == WEFT_OK; i++) {
            const int64_t width = config->width << stage, stride = i == 0 && stage > 0 ? 2 : 1;
            weft_graph_push_scope(g, "layer%d.%lld", stage + 1, (long long)i);
            x = depth->bottleneck ? bottleneck_block(g, x, width, stride, training)
                                  : basic_block(g, x, width, stride, training);
            weft_graph_pop_scope(g);
        }
    x = weft_nn_global_average_pool(g, x);
    weft__image_losses(g, &config->image,
                       weft_nn_linear_transposed(g, "fc", x, config->image.classes, true), &built);
    return built;
}

/* ---- In the list of models ---- */

FITS(weft_resnet_config);

#define OPTION(...) MODEL_OPTION(weft_resnet_config, __VA_ARGS__)
static const weft_model_option options[] = {
    OPTION(depth, depth, DEPTH_50, DEPTHS, "layers; from 50 on, and 14, of bottleneck blocks"),
    OPTION(width, width, 64, NUMBER,
           "channels of the first stage, doubled in each of the next three"),
    IMAGE_OPTIONS(weft_resnet_config)};

static void traits(const void *values, weft_model_traits *t)
{
    const weft_resnet_config *c = values;
    weft__image_traits(&c->image, t);
}

/* The depth of the options is an index. */
static weft_resnet_config configure(const weft_resnet_config *o)
{
    weft_resnet_config c = *o;
    c.depth = depth_layers[o->depth];
    return c;
}

LISTED_BUILD(build_resnet, weft_resnet_config, configure, weft_resnet_build)

const weft_model weft__model_resnet = {
    .name = "resnet",
    .doc = "residual network over images, with torchvision's parameter names",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .small = "depth=10 width=2 classes=3 image_size=16 batch=3",
    .sizes = IMAGE_SIZES(8),
    .traits = traits,
    .build = build_resnet,
};
