/* A network that learns on the device: this program declares a classifier and one step of its training
 * by plain gradient descent, and writes both as C files that need no library. device.c trains the
 * network with them.
 *
 *     cc emit.c $(pkg-config --cflags --libs weft-emit weft-models) -o emit
 *     ./emit . 64 32 4
 *     cc device.c net_step.c net.c -o device && ./device
 *
 * Usage: emit FOLDER INPUTS HIDDEN CLASSES. Writes net_step.c, one step on one example, and net.c, which
 * reads the same parameters and computes the logits. */
#include <weft/emit.h>
#include <weft/models.h>
#include <weft/weft.h>

#include <stdio.h>
#include <stdlib.h>

/* Where weft_emit writes its two files. */
typedef struct output {
    FILE *source, *header;
} output;

static bool write_piece(void *context, bool header, const char *text, size_t n)
{
    const output *to = context;
    return fwrite(text, 1, n, header ? to->header : to->source) == n;
}

static FILE *open_in(const char *folder, const char *name, const char *end)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    FILE *file = fopen(path, "w");
    if (!file) perror(path);
    return file;
}

typedef struct network {
    int64_t inputs, hidden, classes;
} network;

/* x [1, inputs] -> logits [1, classes]. */
static weft_value logits_of(weft_graph *g, const network *n, weft_value x)
{
    const weft_value hidden = weft_relu(g, weft_nn_linear(g, "hidden", x, n->hidden, true));
    return weft_nn_linear(g, "out", hidden, n->classes, true);
}

/* Writes the plan of the targets; `rate` is the learning rate of a step. */
static bool emit(weft_graph *g, const weft_value *targets, size_t n_targets, weft_value rate,
                 const char *folder, const char *name, const char *result)
{
    weft_error error = {0};
    output to = {open_in(folder, name, ".c"), open_in(folder, name, ".h")};
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, targets, n_targets, NULL, &error);
    const weft_emit_value value = {targets[0], result};
    const weft_emit_options options = {
        .name = name,
        .outputs = &value,
        .n_outputs = 1,
        .rate = rate,
        /* The parameters of net.c are those that net_step.c trains. */
        .params = weft_is_value(rate) ? params : NULL,
        .write = write_piece,
        .context = &to};
    bool good = to.source && to.header && plan &&
                weft_params_init(params, g, 1, &error) == WEFT_OK &&
                weft_emit(plan, &options, &error) == WEFT_OK;
    if (error.status != WEFT_OK) fprintf(stderr, "emit: %s: %s\n", error.where, error.message);
    weft_plan_free(plan);
    weft_params_free(params);
    if (to.source && fclose(to.source)) good = false;
    if (to.header && fclose(to.header)) good = false;
    return good;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: emit FOLDER INPUTS HIDDEN CLASSES\n");
        return 2;
    }
    const network n = {atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
    /* The step: the loss of one example, its gradient, and the update. The target is called as
     * `weft emit --loss` calls it. */
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, n.inputs));
    const weft_value target = weft_input(g, "fit.target", WEFT_I32, WEFT_SHAPE(1));
    const weft_value rate = weft_input(g, "rate", WEFT_F32, WEFT_SCALAR);
    const weft_value loss = weft_cross_entropy_loss(g, logits_of(g, &n, x), target, NULL);
    const weft_value step = weft_train_update(g, loss, NULL, 0, rate, NULL, NULL);
    bool good = emit(g, (const weft_value[]){loss, step}, 2, rate, argv[1], "net_step", "loss");
    weft_graph_free(g);
    /* The logits. */
    g = weft_graph_new();
    const weft_value logits =
        logits_of(g, &n, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, n.inputs)));
    good = good && emit(g, &logits, 1, WEFT_NO_VALUE, argv[1], "net", "logits");
    weft_graph_free(g);
    return good ? 0 : 1;
}
