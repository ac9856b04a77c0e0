/* weft/onnx.h - models from ONNX files, as graphs of weft, and graphs as ONNX files.
 *
 * weft_onnx_load reads a file and checks it. weft_onnx_build adds its operations to a graph,
 * weft_onnx_builder does so for everything that takes a builder, and weft_onnx_copy_weights fills a
 * parameter store. Floating-point initializers of the main graph become trainable parameters,
 * except for the running statistics of BatchNormalization, which become states. They have the
 * initializers' names, in which characters other than ASCII letters, digits and . _ - / become '_',
 * with a number appended to names that occur twice.
 *
 * Shapes are fixed when a graph is built. So the caller sets sizes for dimensions that the file
 * leaves open. The import computes whatever follows from shapes and constants, unrolls Loop and Scan,
 * and replaces functions of the model by their nodes. Where data choose the branch of an If, both
 * are computed, and the outputs, whose types must agree, are selected; a branch that does not fit
 * the inputs is left out, with a warning (weft/log.h), and a run that chooses it ends with
 * WEFT_BAD_INDEX. A trip count that depends on data is an error. Where data decide the size of a
 * dimension, as that of NonZero's result, the value has the largest possible size, and an i32 scalar
 * says how many positions count (weft_onnx_value.size); an op without support for it fails with
 * WEFT_NO_KERNEL.
 *
 * Dtypes: float is f32, double is f64 and bool is bool. float16 and bfloat16 become f32, and are
 * computed as such: results are not rounded to 16 bits. Floats of 4 and 8 bits, E8M0 included,
 * become f32 too, which has all their numbers; Cast, CastLike and QuantizeLinear round to them, with
 * a gradient of zero, and initializers of these types are constants, not parameters. What is fed and
 * fetched are the numbers as f32, not their codes. All integers become i32. One outside i32 is
 * an error, except that INT64_MIN and INT64_MAX, which mean an absent bound, become INT32_MIN and
 * INT32_MAX. Results of 8-bit and 16-bit arithmetic wrap around as ONNX defines. 32-bit and 64-bit
 * arithmetic saturates at the bounds of i32.
 *
 * Strings are numbers in a table of the model's texts, i32 (weft_onnx_text_number). Ops that move
 * elements, Equal and the keys of LabelEncoder work on numbers; other ops on strings need contents
 * that are known during the import.
 *
 * Limits: files of less than 2 GiB without their external data; 64 levels of nested messages;
 * 262144 nodes, counting those of unrolled bodies and of functions each time. The memory of an
 * import, besides its nodes: 256 MiB and 16 bytes for each byte of the file and its external data.
 *
 * A weft that was built without protobuf-c (`-Donnx=disabled`) fails in weft_onnx_load and
 * weft_onnx_save with WEFT_NO_BACKEND. */
#ifndef WEFT_ONNX_H
#define WEFT_ONNX_H

#include <weft/build.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_onnx weft_onnx;

/* The size of a dimension that the file leaves open: of all dimensions called `name`, or of one
 * axis of an input. A size in the file prevails. */
typedef struct weft_onnx_dim {
    const char *name;  /* NULL: `input` and `axis` say which */
    const char *input; /* NULL: `name` says which */
    int axis;          /* from 0 */
    int64_t size;
} weft_onnx_dim;

/* The contents of an input that are fixed when the graph is built, such as the new shape of a
 * Reshape. The input is a constant then, and is not fed. */
typedef struct weft_onnx_constant {
    const char *input;
    weft_dtype dtype; /* the input's: i32 for all integers, f32 for floats of 4 to 32 bits */
    weft_shape shape;
    const void *data; /* contiguous; copied */
    /* Of an input of strings, instead of data: one for each element, in UTF-8; copied. The dtype is
     * i32. */
    const char *const *texts;
} weft_onnx_constant;

typedef struct weft_onnx_options {
    const weft_onnx_dim *dims;
    size_t n_dims;
    int64_t batch; /* of open first dimensions that `dims` does not set; 0: 1 */
    const weft_onnx_constant *constants;
    size_t n_constants;
    /* Names of more values of the main graph, such as the logits before a softmax, that are outputs
     * after those of the file. One that is an output anyway is not added. */
    const char *const *outputs;
    size_t n_outputs;
} weft_onnx_options;

/* An input, an output or a parameter. */
typedef struct weft_onnx_value {
    const char *name;
    weft_dtype dtype;
    weft_shape shape;
    /* 0, or the index of the output, an i32 scalar called "NAME.size", that says how many positions
     * along `axis` this output has in a run. `shape` has the largest possible number, and the
     * positions from the size on are zero. */
    size_t size;
    int axis;
} weft_onnx_value;

/* Reads a file and builds its graph once, to check it. External data are read from files in the
 * folder of `path` or below. `options` may be NULL. NULL on failure: WEFT_NOT_FOUND if there is no
 * such file, no input has a dimension of the options, or no value has a name of theirs, WEFT_BAD_FILE if it is malformed,
 * WEFT_NO_KERNEL if it has an op that weft does not know, WEFT_BAD_DTYPE for a dtype or kind of
 * value without a counterpart, and WEFT_BAD_ARGUMENT if a shape or a size depends on data. The
 * message names the node and its op. */
WEFT_API weft_onnx *weft_onnx_load(const char *path, const weft_onnx_options *options,
                                   weft_error *error);
/* The same for a file in memory, whose bytes may be freed afterwards. External data are
 * WEFT_BAD_FILE. WEFT_BAD_ARGUMENT if the data are NULL. */
WEFT_API weft_onnx *weft_onnx_load_from_memory(weft_memory_file from,
                                               const weft_onnx_options *options, weft_error *error);
/* Frees a model; NULL is accepted. Graphs that were built from it stay valid. */
WEFT_API void weft_onnx_free(weft_onnx *model);

/* The files of external data that were read, as paths in the model's folder; NULL past the last
 * one. The model owns the text. */
WEFT_API const char *weft_onnx_data_file(const weft_onnx *model, size_t index);

/* Inputs that are to be fed, outputs and parameters, with the shapes that the options determine.
 * The model owns the array of *count. */
WEFT_API const weft_onnx_value *weft_onnx_inputs(const weft_onnx *model, size_t *count);
WEFT_API const weft_onnx_value *weft_onnx_outputs(const weft_onnx *model, size_t *count);
WEFT_API const weft_onnx_value *weft_onnx_params(const weft_onnx *model, size_t *count);

/* The number of a text, which becomes one of the model's if it is new: what is fed to an input of
 * strings. -1 if out of memory, or if an argument is NULL. The function changes the model, so other
 * threads must not use it at the same time. */
WEFT_API int32_t weft_onnx_text_number(weft_onnx *model, const char *text);
/* The text of a number that was fetched; NULL if there is none. The model owns it. */
WEFT_API const char *weft_onnx_text(const weft_onnx *model, int32_t number);

/* Adds the model to a graph. `batch` replaces the batch of the options, unless it is 0. Fills
 * inputs[] and outputs[], in the order of the lists above. Returns the graph's status. A build may
 * add texts to the model and map its data files, so two threads must not build from one model, or
 * read its texts during a build. */
WEFT_API weft_status weft_onnx_build(weft_graph *graph, const weft_onnx *model, int64_t batch,
                                     weft_value *inputs, weft_value *outputs);
/* Output `index` of the last run of a session, as weft_session_tensor returns it, with the size that
 * the run has given it. outputs[] are those of weft_onnx_build; this one and, if it has one, the
 * output of its size must be outputs of the session's plan. WEFT_BAD_ARGUMENT if the model has no
 * such output. */
WEFT_API weft_status weft_onnx_output(const weft_onnx *model, weft_session *session,
                                      const weft_value *outputs, size_t index, weft_tensor *tensor,
                                      weft_error *error);
/* A builder of a model with at most WEFT_BUILT_VALUES inputs and outputs each, without a loss
 * (weft/fit.h adds one). The rows of a shape are its batch. The model must outlive the builder.
 *
 * Whether a graph is for training (weft_build_options) prevails over what the file says. In
 * training, BatchNormalization uses mean and variance of the batch and tracks its running
 * statistics (weft_track: momentum is 1 minus that of ONNX; the variance is that of the population,
 * as ONNX defines it, where PyTorch takes the unbiased one), unless these are frozen; and Dropout
 * drops. In evaluation BatchNormalization uses the running statistics, and Dropout passes
 * everything. */
WEFT_API weft_builder weft_onnx_builder(const weft_onnx *model);
/* Writes the file's weights to `params`, adding tensors that it lacks. WEFT_BAD_SHAPE if the store
 * has one with another dtype or shape. */
WEFT_API weft_status weft_onnx_copy_weights(const weft_onnx *model, weft_params *params,
                                            weft_error *error);

/* The same without a copy of large weights: they belong to the model, which must outlive the store.
 * A training on the store changes the model's weights, but not the file. */
WEFT_API weft_status weft_onnx_share_weights(weft_onnx *model, weft_params *params,
                                             weft_error *error);

/* ---- Writing a graph as an ONNX file ---------------------------------------------------------
 *
 * Writes what some outputs of a graph need, as nodes of ONNX's default domain. Inputs keep their
 * names and the states that the outputs read become initializers of their names. Shapes are those
 * of the graph. f32, f64, i32 and bool are float, double, int32 and bool. Names of nodes begin with
 * the scope.
 *
 * An op of weft becomes one node or several, as its descriptor says (weft_op.onnx); an op without a
 * form in ONNX, such as an update of a state, is an error that names it. Dropout becomes Identity,
 * also inside of attention: the file is a model in use. Indices out of range, which end a run of
 * weft, and results of reductions over NaN are as the reader of the file defines them.
 *
 * The first node of an op that became several has a doc_string beginning with "weft: ", which names
 * the op and its options. An import finds the op again if the nodes are still those that weft
 * writes for it, so results are bit-identical. This applies to ops of the library; a program's own
 * op is imported as the nodes that it wrote.
 *
 * Equal graphs and contents make equal files. */

typedef struct weft_onnx_save_options {
    int opset;                       /* 17 to 23; 0: 17 */
    const char *const *output_names; /* [n_outputs]; NULL, or an entry NULL: the value's name, else
                                        "output", or "output_N" if there are several */
    bool external;                   /* the initializers are in a file of their own, PATH.data, as
                                        they always are if the model would exceed 2 GB */
} weft_onnx_save_options;

/* Writes a file. Both files are replaced as a whole when they are complete, PATH.data first.
 * `params` has the states; it may be NULL if the outputs need none. `options` may be NULL.
 * WEFT_NO_KERNEL if an op has no form in ONNX, WEFT_NOT_FOUND if `params` lacks a state,
 * WEFT_BAD_SHAPE if it has one of another dtype or shape, WEFT_BAD_ARGUMENT for an opset or a name
 * out of range, a value of another graph, or a part of a divided state, and WEFT_IO. */
WEFT_API weft_status weft_onnx_save(const weft_graph *graph, const weft_value *outputs,
                                    size_t n_outputs, const weft_params *params, const char *path,
                                    const weft_onnx_save_options *options, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
