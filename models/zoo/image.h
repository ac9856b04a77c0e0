/* The common part of the models of images. */
#ifndef WEFT_MODELS_IMAGE_H
#define WEFT_MODELS_IMAGE_H

#include "registry.h"

/* Options that all of them have; see registry.h for the kinds. */
#define IMAGE_OPTIONS(X)                                                                           \
    X(classes, 1000, WHOLE, "classes of the logits")                                               \
    X(image_size, 224, WHOLE, "height and width of the images")                                    \
    X(channels, 3, WHOLE, "channels of the images")                                                \
    X(label_smoothing, 0, REAL, "fraction of the target spread over all classes")                  \
    X(f64, 0, FLAG, "1: in double precision")

/* These options of the values `v` of a model, whose enum of options names them AT_.... */
#define IMAGE_CONFIG(v)                                                                            \
    {                                                                                              \
        .dtype = (v)[AT_f64] != 0 ? WEFT_F64 : WEFT_F32,                                           \
        .image_size = (int64_t)(v)[AT_image_size], .channels = (int64_t)(v)[AT_channels],          \
        .classes = (int64_t)(v)[AT_classes], .label_smoothing = (v)[AT_label_smoothing]            \
    }

#define IMAGE_SIZES(batch)                                                                         \
    {                                                                                              \
        SIZE("batch", rows, batch, "images")                                                       \
    }

/* Fails the graph and returns false if the configuration or the values to fill are NULL. */
bool weft__image_begin(weft_graph *g, const char *function, const void *config,
                       const weft_build_options *build, weft_model_io *io);
/* Declares the images, [rows, channels, image_size, image_size], and sets io->input to them. */
weft_value weft__image_input(weft_graph *g, const weft_image_config *c,
                             const weft_build_options *build, weft_model_io *io);
/* Declares the labels and sets output, losses and vocab of io from the logits [rows, classes].
 * Returns the graph's status. */
weft_status weft__image_losses(weft_graph *g, const weft_image_config *c, weft_value logits,
                               weft_model_io *io);
/* The traits of a model of images. */
void weft__image_traits(const weft_image_config *c, weft_model_traits *traits);

/* What follows a convolution and its batch norm. */
typedef enum image_activation { IMAGE_LINEAR, IMAGE_RELU, IMAGE_RELU6 } image_activation;

typedef struct image_conv {
    const char *conv, *norm;                  /* names */
    int64_t channels, kernel, stride, groups; /* groups 0: 1 */
    image_activation activation;
} image_conv;
/* A square convolution without bias, padded by half its kernel, batch norm, activation. */
weft_value weft__image_conv_norm(weft_graph *g, weft_value x, const image_conv *c, bool training);

#endif
