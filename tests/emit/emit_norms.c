/* Writes net_step.c, a training step of a small network whose parts need doubles for more than sums: layer norm, RMS
 * norm and batch norm, log softmax, clipping by the global norm, and Adam. It learns on a processor that has none.
 *
 *     emit_norms FOLDER */
#include "emit_step.h"

#include <weft/models.h>
#include <weft/weft.h>

#include <stdio.h>

enum { INPUTS = 12, HIDDEN = 6, CHANNELS = 2, CLASSES = 3 };

/* x [1, INPUTS] -> log probabilities [1, CLASSES]. */
static weft_value log_probabilities(weft_graph *g, weft_value x)
{
    const weft_nn_batch_norm_options training = {.training = true};
    x = weft_nn_linear(g, "first", x, HIDDEN, true);
    x = weft_relu(g, weft_nn_layer_norm(g, "layer", x, 1e-5));
    x = weft_reshape(g, x, WEFT_SHAPE(1, CHANNELS, HIDDEN / CHANNELS));
    x = weft_nn_batch_norm(g, "batch", x, &training);
    x = weft_reshape(g, x, WEFT_SHAPE(1, HIDDEN));
    x = weft_nn_rms_norm(g, "rms", x, 1e-6);
    return weft_log_softmax(g, weft_nn_linear(g, "out", x, CLASSES, true), -1);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: emit_norms FOLDER\n");
        return 2;
    }
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, INPUTS));
    const weft_value target = weft_input(g, "target", WEFT_I32, WEFT_SHAPE(1));
    const weft_value rate = weft_input(g, "rate", WEFT_F32, WEFT_SCALAR);
    const weft_value loss = weft_cross_entropy_loss(g, log_probabilities(g, x), target, NULL);
    const weft_value step = weft_train_update(g, loss, NULL, 0, rate, &WEFT_ADAM_DEFAULT, NULL);
    const bool good = emit_step(g, (const weft_value[]){loss, step}, rate, 0, argv[1]);
    weft_graph_free(g);
    return good ? 0 : 1;
}
