/* Inputs, losses and convolutions of the models of images. */
#include "image.h"

#include "run/built.h"

bool weft__image_begin(weft_graph *g, const char *function, const void *config,
                       const weft_build_options *build)
{
    if (!config || !build)
        weft_graph_fail_in(g, function, WEFT_BAD_ARGUMENT,
                           "the configuration or the build options are NULL");
    return weft_graph_status(g) == WEFT_OK;
}

weft_value weft__image_input(weft_graph *g, const weft_image_config *c,
                             const weft_build_options *build, weft_built *built)
{
    const weft_shape shape =
        WEFT_SHAPE(build->shape.rows, c->channels, c->image_size, c->image_size);
    return weft__built_add_input(built, "input", weft_input(g, "input", c->dtype, shape));
}

/* The fraction of images whose class has the largest logit. */
static weft_value accuracy(weft_graph *g, weft_value logits, weft_value labels)
{
    weft_value right = weft_equal(g, weft_argmax(g, logits, -1, false), labels);
    return weft_mean(g, weft_cast(g, right, weft_dtype_of(g, logits)), WEFT_ALL_AXES, false);
}

void weft__image_losses(weft_graph *g, const weft_image_config *c, weft_value logits,
                        weft_built *built)
{
    const weft_cross_entropy_loss_options smooth = {.label_smoothing = c->label_smoothing};
    built->vocab = c->classes;
    logits = weft__built_add_output(built, "logits", weft_name(g, logits, "logits"));
    const weft_value labels = weft__built_add_input(
        built, "labels", weft_input(g, "labels", WEFT_I32, WEFT_SHAPE(weft_dim_of(g, logits, 0))));
    built->metric = weft_name(g, weft_cross_entropy_loss(g, logits, labels, NULL), "nll");
    built->loss = built->metric;
    if (c->label_smoothing != 0)
        built->loss = weft_name(g, weft_cross_entropy_loss(g, logits, labels, &smooth), "loss");
    built->accuracy = weft_name(g, accuracy(g, logits, labels), "accuracy");
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
