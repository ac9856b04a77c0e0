/* Writes net_step.c, one training step of a depthwise separable CNN (Zhang et al. 2017, "Hello Edge") as C: a
 * convolution, blocks of a depthwise and a pointwise convolution, all with batch norm and ReLU, the mean of
 * each channel, and a linear layer. The step is plain gradient descent on one example.
 *
 *     emit_cnn ds-cnn|tiny FOLDER
 *
 * ds-cnn: keywords of 49 x 10 coefficients in 12 classes. The last block and the linear layer learn; all else is
 * constant. The arena has at most 256 KB. tiny: all of a network of one block learns. */
#include "emit_step.h"

#include <weft/autograd.h>
#include <weft/models.h>
#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

typedef struct network {
    const char *name;
    int64_t height, width, channels, blocks, classes;
    int64_t kernel[2], stride; /* of the first convolution */
    const char *trained;       /* patterns */
} network;

static const network networks[] = {{"ds-cnn", 49, 10, 64, 4, 12, {10, 4}, 2, "block4.*,out.*"},
                                   {"tiny", 6, 5, 3, 1, 2, {3, 3}, 2, "*"}};

static bool is_frozen(void *context, const char *name)
{
    return weft_optimizer_freezes(context, name);
}

/* A convolution that keeps the size of its images if the stride is 1, batch norm and ReLU. */
static weft_value conv_norm(weft_graph *g, const char *name, weft_value x, int64_t channels,
                            const weft_nn_conv_options *o)
{
    const weft_nn_batch_norm_options norm = {.training = true};
    weft_nn_conv_options conv = *o;
    conv.channels = channels;
    for (int d = 0; d < 2; d++) {
        conv.conv.pad_begin[d] = (conv.kernel[d] - 1) / 2;
        conv.conv.pad_end[d] = conv.kernel[d] - 1 - conv.conv.pad_begin[d];
    }
    weft_graph_push_scope(g, "%s", name);
    const weft_value y = weft_nn_conv(g, "conv", x, &conv);
    const weft_value z = weft_relu(g, weft_nn_batch_norm(g, "norm", y, &norm));
    weft_graph_pop_scope(g);
    return z;
}

/* x [1, 1, height, width] -> logits [1, classes]. */
static weft_value logits_of(weft_graph *g, const network *n, weft_value x)
{
    const weft_nn_conv_options first = {.kernel = {n->kernel[0], n->kernel[1]},
                                        .conv = {.stride = {n->stride, n->stride}}};
    const weft_nn_conv_options deep = {.kernel = {3, 3}, .conv = {.groups = n->channels}};
    const weft_nn_conv_options point = {.kernel = {1, 1}};
    x = conv_norm(g, "first", x, n->channels, &first);
    for (int64_t i = 1; i <= n->blocks; i++) {
        weft_graph_push_scope(g, "block%d", (int)i);
        x = conv_norm(g, "deep", x, n->channels, &deep);
        x = conv_norm(g, "point", x, n->channels, &point);
        weft_graph_pop_scope(g);
    }
    x = weft_nn_global_average_pool(g, x);
    return weft_nn_linear_transposed(g, "out", x, n->classes, true);
}

int main(int argc, char **argv)
{
    const network *n = argc == 3 && !strcmp(argv[1], "ds-cnn") ? &networks[0] : &networks[1];
    if (argc != 3 || strcmp(argv[1], n->name)) {
        fprintf(stderr, "usage: emit_cnn ds-cnn|tiny FOLDER\n");
        return 2;
    }
    const weft_param_group groups[] = {{.names = n->trained}, {.names = "*", .frozen = true}};
    weft_optimizer descent = {.groups = groups, .n_groups = strcmp(n->trained, "*") ? 2 : 1};
    weft_graph *g = weft_graph_new();
    weft_graph_freeze(g, is_frozen, &descent);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 1, n->height, n->width));
    const weft_value target = weft_input(g, "fit.target", WEFT_I32, WEFT_SHAPE(1));
    const weft_value rate = weft_input(g, "rate", WEFT_F32, WEFT_SCALAR);
    const weft_value loss = weft_cross_entropy_loss(g, logits_of(g, n, x), target, NULL);
    const weft_value step = weft_train_update(g, loss, NULL, 0, rate, &descent, NULL);
    const bool good = emit_step(g, (const weft_value[]){loss, step}, rate, 256000, argv[2]);
    weft_graph_free(g);
    return good ? 0 : 1;
}
