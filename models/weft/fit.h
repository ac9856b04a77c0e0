/* weft/fit.h - training a model that has no loss of its own, such as one from an ONNX file, on
 * arrays in memory.
 *
 * weft_fit_builder adds targets and a loss to a builder. weft_arrays are batches of arrays, as a
 * source for the trainer (weft/train.h), which does the rest. See docs/onnx.md.
 */
#ifndef WEFT_FIT_H
#define WEFT_FIT_H

#include <weft/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Losses --------------------------------------------------------------------------------- */

/* name; with outputs x and targets t, means over all elements:
 * cross-entropy: -log softmax(x)[t], x are logits, t (i32) are class indices;
 * mse: (x - t)^2; l1: |x - t|; huber: d^2 / 2 where d = |x - t| < 1, else d - 1/2 (Huber 1964);
 * bce: max(x, 0) - x t + log(1 + e^-|x|), x are logits, t is in [0, 1]. */
#define WEFT_LOSS_MAP(X)                                                                           \
    X(MODEL, "model")                                                                              \
    X(CROSS_ENTROPY, "cross-entropy")                                                              \
    X(MSE, "mse")                                                                                  \
    X(BCE, "bce")                                                                                  \
    X(L1, "l1")                                                                                    \
    X(HUBER, "huber")

typedef enum weft_loss_kind {
#define WEFT_LOSS_ENUM(name, text) WEFT_LOSS_##name,
    WEFT_LOSS_MAP(WEFT_LOSS_ENUM)
#undef WEFT_LOSS_ENUM
} weft_loss_kind;
/* The kind's name; NULL for an invalid kind. */
WEFT_API const char *weft_loss_kind_name(weft_loss_kind kind);

/* A model and the loss to train it with. */
typedef struct weft_fit {
    weft_builder model;  /* required: weft_onnx_builder, weft_model_builder, or the program's own */
    weft_loss_kind loss; /* 0: the model's own, whose inputs are then those of the model */
    size_t output;       /* the output that the loss is of, f32 or f64 */
    /* Of a cross entropy: the output's dimension of classes, which the targets lack; 0: the last.
     * Images of labels have [rows, classes, height, width] and 1. */
    int class_axis;
    double label_smoothing; /* of a cross entropy, in [0, 1]: see weft_cross_entropy_loss */
} weft_fit;

/* A builder of the model with the loss, which must outlive it. Its last input holds the targets,
 * `fit.target`: for a cross entropy i32 of the output's shape without the classes, else of the
 * output's dtype and shape. For cross-entropy and bce it has an accuracy (weft_built): the fraction
 * of targets that are the class of the largest logit, or on the same side of 1/2 as the
 * probability. The name is the model's. Checkpoints carry the model's options, and the loss. */
WEFT_API weft_builder weft_fit_builder(const weft_fit *fit);

/* ---- Arrays as batches ---------------------------------------------------------------------- */

/* One array of data, whose first dimension counts the rows. */
typedef struct weft_array {
    const char *name;   /* for messages, such as a file; NULL: the input's name */
    weft_tensor tensor; /* contiguous */
} weft_array;

typedef struct weft_array_options {
    int64_t rows; /* required: of a batch */
    /* The other sizes of a batch's shape, for builders that have them. */
    int64_t source_len, target_len;
    uint64_t seed;  /* of the order */
    bool in_order;  /* rows stay in their order, as for validation; false: shuffled each epoch */
    bool drop_last; /* an epoch leaves out its last rows if they do not fill a batch; false: the
                       last batch is smaller */
} weft_array_options;

/* Batches of rows of arrays. The order of an epoch depends on (seed, epoch) only: a shuffle by
 * Fisher and Yates, with numbers by Philox. */
typedef struct weft_arrays weft_arrays;
/* Array i is for input i of weft_fit_builder. It has the input's dtype or one that is converted:
 * any number to f32 and f64, bool to i32. Its shape is that of the input but for the number of rows
 * and dimensions of size 1. The arrays' data must outlive the result; names are copied. NULL on
 * failure: WEFT_BAD_ARGUMENT for a wrong option, or fewer rows than a batch unless `in_order`,
 * WEFT_BAD_DTYPE, WEFT_BAD_SHAPE, WEFT_BAD_INDEX for a label outside of the classes or a target of
 * bce outside [0, 1], or the error of the builder. */
WEFT_API weft_arrays *weft_arrays_new(const weft_fit *fit, const weft_array *arrays, size_t n,
                                      const weft_array_options *options, weft_error *error);
WEFT_API void weft_arrays_free(weft_arrays *arrays);
/* A source of these batches, which must outlive it. The weight of a batch is its number of rows. */
WEFT_API weft_batch_source weft_arrays_source(weft_arrays *arrays);

#ifdef __cplusplus
}
#endif
#endif
