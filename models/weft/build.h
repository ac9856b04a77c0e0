/* weft/build.h - builders, which build a graph for any shape of batch, and a runner of forward
 * passes.
 *
 * A builder is a function that builds one model's graph for a shape of batch. weft_forward (below)
 * and the trainer (weft/train.h) call it once for each new shape and plan the graph. All plans run
 * on one parameter store and one arena.
 */
#ifndef WEFT_BUILD_H
#define WEFT_BUILD_H

#include <weft/parallel.h>
#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of one batch, and so of one graph. The builder decides what they mean: a model of images
 * may use `rows` only; token models have rows of source_len and target_len tokens. */
typedef struct weft_batch_shape {
    int64_t rows, source_len, target_len; /* source_len 0: no source */
} weft_batch_shape;

/* The options of one graph of a model. */
typedef struct weft_build_options {
    weft_batch_shape shape;
    bool training;       /* with dropout; false: all dropout probabilities are 0 */
    bool expose_weights; /* attention weights are values, NAME.weights */
    int64_t layer;       /* the layer, from 1, of the output `weights`; 0: the last */
    /* The ranks that split attention and feed-forward layers (the layers' options `tensor`);
     * every rank computes all other layers. Outputs and loss are the same on all ranks. Zeros:
     * not split. */
    weft_ranks tensor;
} weft_build_options;

#define WEFT_BUILT_VALUES 8

/* Inputs and results of a built graph. Missing values are WEFT_NO_VALUE. */
typedef struct weft_built {
    weft_value inputs[WEFT_BUILT_VALUES]; /* in the order in which they are fed */
    size_t n_inputs;
    weft_value outputs[WEFT_BUILT_VALUES]; /* the main output first */
    size_t n_outputs;
    /* Names for weft_built_input and weft_built_output, valid as long as the builder; NULL: none.
     * They are the same in every graph, whatever the names of the values in it are. */
    const char *input_names[WEFT_BUILT_VALUES], *output_names[WEFT_BUILT_VALUES];
    weft_value
        loss; /* scalar, f32 or f64, to be minimised: a mean over the batch. Needed to train */
    weft_value metric; /* scalar of the loss's dtype that evaluation averages; WEFT_NO_VALUE: the
                          loss */
    /* The accuracy, a scalar of the loss's dtype, which evaluation also averages. WEFT_NO_VALUE:
     * none. */
    weft_value accuracy;
    /* Ids and classes of the integer inputs lie in [0, vocab). 0: no input has any. */
    int64_t vocab;
} weft_built;

/* The input or the output of this name; WEFT_NO_VALUE if there is none. */
WEFT_API weft_value weft_built_input(const weft_built *built, const char *name);
WEFT_API weft_value weft_built_output(const weft_built *built, const char *name);

typedef struct weft_builder {
    const char *name; /* of the model, for messages and checkpoints */
    /* Fills *built; returns the graph's status. Graphs of all shapes must declare the same
     * parameters. */
    weft_status (*build)(void *context, weft_graph *graph, const weft_build_options *options,
                         weft_built *built);
    /* Writes the hyperparameters as "key=value key=value ...", at most `capacity` bytes with the
     * NUL; false if they do not fit. Checkpoints carry this text, and a trainer refuses one with
     * other keys or values. NULL: there are none. */
    bool (*describe)(void *context, char *text, size_t capacity);
    void *context; /* of both functions; must outlive what uses the builder */
} weft_builder;

/* ---- Forward passes ------------------------------------------------------------------------- */

/* Computes a builder's outputs for any shape. Each shape has a plan, made at its first use. */
typedef struct weft_forward weft_forward;

/* Makes a runner that reads `params`. `params` must outlive it and have every parameter that the
 * graphs declare. Its sessions have `options`, of which weft/session.h says what may be set. NULL
 * on failure. */
WEFT_API weft_forward *weft_forward_new(const weft_builder *builder, const weft_params *params,
                                        const weft_session_options *options, weft_error *error);
WEFT_API void weft_forward_free(weft_forward *forward);
/* Runs one pass. inputs[i] is contiguous data for the builder's input i, of its dtype and shape;
 * NULL if the outputs do not need the input. Returns the graph's error if the shape cannot be
 * built, and WEFT_NOT_FOUND, with the name, if a parameter or the data of an input is missing. */
WEFT_API weft_status weft_forward_run(weft_forward *forward, const weft_build_options *options,
                                      const void *const *inputs, weft_error *error);
/* Output i of the last pass, owned by the runner and valid until the next pass. False if there is
 * none. */
WEFT_API bool weft_forward_output(const weft_forward *forward, size_t i, weft_tensor *output);
/* The number of plans made so far; *arena_bytes, if not NULL, becomes the size of their shared
 * arena. */
WEFT_API size_t weft_forward_plan_count(const weft_forward *forward, size_t *arena_bytes);

#ifdef __cplusplus
}
#endif
#endif
