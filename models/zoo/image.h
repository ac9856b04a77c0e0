/* The common part of the models of images. */
#ifndef WEFT_MODELS_IMAGE_H
#define WEFT_MODELS_IMAGE_H

#include "registry.h"

/* Options that all of them have, of a struct with the field `image`; see registry.h. */
#define IMAGE_OPTIONS(type)                                                                        \
    MODEL_OPTION(type, classes, image.classes, 1000, NUMBER, "classes of the logits"),             \
        MODEL_OPTION(type, image_size, image.image_size, 224, NUMBER,                              \
                     "height and width of the images"),                                            \
        MODEL_OPTION(type, channels, image.channels, 3, NUMBER, "channels of the images"),         \
        MODEL_OPTION(type, label_smoothing, image.label_smoothing, 0, NUMBER,                      \
                     "fraction of the target spread over all classes"),                            \
        MODEL_OPTION(type, f64, image.dtype, 0, FLAG, "1: in double precision")

#define IMAGE_SIZES(n)                                                                             \
    {                                                                                              \
        SIZE(batch, rows, n, "images")                                                             \
    }

/* Fails the graph and returns false if the configuration or the values to fill are NULL. */
bool weft__image_begin(weft_graph *g, const char *function, const void *config,
                       const weft_build_options *build);
/* Declares the images, [rows, channels, image_size, image_size], the input `input`. */
weft_value weft__image_input(weft_graph *g, const weft_image_config *c,
                             const weft_build_options *build, weft_built *built);
/* Declares the labels, and sets output, losses, accuracy and vocab from the logits [rows, classes].
 */
void weft__image_losses(weft_graph *g, const weft_image_config *c, weft_value logits,
                        weft_built *built);
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
