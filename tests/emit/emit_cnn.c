/* Writes net_step.c, one training step of a depthwise separable CNN (Zhang et al. 2017, "Hello Edge") as C: a
 * convolution, blocks of a depthwise and a pointwise convolution, all with batch norm and ReLU, the mean of
 * each channel, and a linear layer. The step is plain gradient descent on one example.
 *
 *     emit_cnn ds-cnn|tiny FOLDER
 *
 * ds-cnn: keywords of 49 x 10 coefficients in 12 classes. The last block and the linear layer learn; all else is
 * constant. The arena has at most 256 KB. tiny: all of a network of one block learns. */
#include <weft/autograd.h>
#include <weft/emit.h>
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

static bool write_piece(void *context, bool header, const char *text, size_t n)
{
    FILE *const *files = context;
    return fwrite(text, 1, n, files[header]) == n;
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) perror(path);
    return file;
}

static bool emit(weft_graph *g, const weft_value targets[2], weft_value rate, const char *folder)
{
    weft_error error = {0};
    FILE *files[2] = {open_in(folder, "net_step.c"), open_in(folder, "net_step.h")};
    weft_params *params = weft_params_new();
    const weft_plan_options limits = {.memory_budget = 256000};
    weft_plan *plan = weft_plan_new(g, targets, 2, &limits, &error);
    const weft_emit_value loss = {targets[0], "loss"};
    const weft_emit_options options = {.name = "net_step",
                                       .outputs = &loss,
                                       .n_outputs = 1,
                                       .rate = rate,
                                       .params = params,
                                       .write = write_piece,
                                       .context = files};
    const bool good = files[0] && files[1] && plan &&
                      weft_params_init(params, g, 1, &error) == WEFT_OK &&
                      weft_emit(plan, &options, &error) == WEFT_OK;
    if (error.status != WEFT_OK) fprintf(stderr, "emit_cnn: %s: %s\n", error.where, error.message);
    weft_plan_free(plan);
    weft_params_free(params);
    const bool closed[2] = {files[0] && !fclose(files[0]), files[1] && !fclose(files[1])};
    return good && closed[0] && closed[1];
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
    const bool good = emit(g, (const weft_value[]){loss, step}, rate, argv[2]);
    weft_graph_free(g);
    return good ? 0 : 1;
}
