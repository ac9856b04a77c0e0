/* Inputs, losses and convolutions of the models of images. */
#include "image.h"

bool weft__image_begin(weft_graph *g, const char *function, const void *config,
                       const weft_build_options *build)
{
    if (!config || !build)
        weft_graph_fail_in(g, function, WEFT_BAD_ARGUMENT,
                           "the configuration or the build options are NULL");
    return weft_graph_status(g) == WEFT_OK;
}

weft_value weft__image_input(weft_graph *g, const weft_image_config *c,
                             const weft_build_options *build, weft_model_io *io)
{
    const weft_shape shape =
        WEFT_SHAPE(build->shape.rows, c->channels, c->image_size, c->image_size);
    io->input = weft_input(g, "input", c->dtype, shape);
    return io->input;
}

void weft__image_losses(weft_graph *g, const weft_image_config *c, weft_value logits,
                        weft_model_io *io)
{
    const weft_cross_entropy_loss_options smooth = {.label_smoothing = c->label_smoothing};
    io->vocab = c->classes;
    io->output = weft_name(g, logits, "logits");
    io->target_out = weft_input(g, "labels", WEFT_I32, WEFT_SHAPE(weft_dim_of(g, io->output, 0)));
    io->nll = weft_name(g, weft_cross_entropy_loss(g, io->output, io->target_out, NULL), "nll");
    io->loss = io->nll;
    if (c->label_smoothing != 0)
        io->loss =
            weft_name(g, weft_cross_entropy_loss(g, io->output, io->target_out, &smooth), "loss");
}

void weft__image_traits(const weft_image_config *c, weft_model_traits *traits)
{
    *traits =
        (weft_model_traits){.dtype = c->dtype, .classes = c->classes, .max_positions = INT64_MAX};
}

weft_value weft__image_conv_norm(weft_graph *g, weft_value x, const image_conv *c, bool training)
{
    const int64_t pad = (c->kernel - 1) / 2;
    const weft_nn_conv_options conv = {.channels = c->channels,
                                       .kernel = {c->kernel, c->kernel},
                                       .conv = {.stride = {c->stride, c->stride},
                                                .pad_begin = {pad, pad},
                                                .pad_end = {pad, pad},
                                                .groups = c->groups}};
    const weft_nn_batch_norm_options norm = {.training = training};
    x = weft_nn_conv(g, c->conv, x, &conv);
    x = weft_nn_batch_norm(g, c->norm, x, &norm);
    if (c->activation == IMAGE_RELU) return weft_relu(g, x);
    return c->activation == IMAGE_RELU6 ? weft_clamp(g, x, 0, 6) : x;
}
