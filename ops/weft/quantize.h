/* weft/quantize.h - matrices of 8 and 4 bits for inference: making them, a store that has them, and
 * the pass that uses them.
 *
 *     weft_params *small = weft_params_quantize(params, graph, NULL, NULL, &error);
 *     const weft_pass quantized = weft_quantized_pass(small);
 *     const weft_plan_options options = {.passes = &quantized, .n_passes = 1};
 *     weft_plan *plan = weft_plan_new(graph, &y, 1, &options, &error);
 *
 * A row of a matrix is cut into groups, each with a scale and a zero point: an element is
 * scale (q - zero). weft_matmul_quantized (weft/ops.h) multiplies with it. Matrices of other
 * programs may have minima instead of zero points: scale q + minimum. */
#ifndef WEFT_QUANTIZE_H
#define WEFT_QUANTIZE_H

#include <weft/pass.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One matrix ---- */

/* A quantised matrix [rows, columns]; the caller owns its arrays. */
typedef struct weft_quantized_matrix {
    int64_t rows, columns;
    int bits;      /* 8 or 4 */
    int group;     /* elements of a group, a multiple of 32 that divides columns */
    uint8_t *q;    /* [rows, columns * bits / 8] */
    float *scale;  /* [rows, columns / group] */
    uint8_t *zero; /* [rows, columns / group] */
} weft_quantized_matrix;

/* Quantises w [rows, columns]: fills the arrays of `matrix`.
 *
 * 8 bits: the largest element of a group is 127 steps from zero, whose number is 128. 4 bits: tries
 * ranges from that of the group's elements down to half of it, fits the scale of each by least
 * squares, and takes the one with the least sum of squared errors.
 *
 * WEFT_BAD_ARGUMENT for other bits or groups or a NULL, WEFT_NOT_FINITE for an infinity or a NaN,
 * WEFT_NO_MEMORY. */
WEFT_API weft_status weft_quantize(const float *w, const weft_quantized_matrix *matrix,
                                   weft_error *error);
/* The inverse: w [rows, columns] = scale (q - zero). */
WEFT_API weft_status weft_dequantize(const weft_quantized_matrix *matrix, float *w,
                                     weft_error *error);

/* ---- A store ---- */

typedef struct weft_quantize_options {
    int bits;                         /* 8 or 4; 0: 8 */
    int group;                        /* 0: 32 */
    const weft_params_filter *filter; /* the matrices, by name; NULL: all that the graph allows */
} weft_quantize_options;

typedef struct weft_quantize_report {
    size_t matrices;                  /* that are quantised, tables included */
    size_t left;                      /* that are not, because groups do not divide their rows */
    size_t kept;                      /* quantised ones whose f32 form is also needed */
    double bytes_before, bytes_after; /* of all tensors of the stores */
    double parameters;                /* elements of the quantised matrices */
    double max_error;                 /* the largest of their errors: the square root of the sum
                                         of squares, of the error over that of the elements */
    char max_error_name[128];         /* whose error that is */
} weft_quantize_report;

/* Returns a new store with the tensors and metadata of `params`, except that matrices of products
 * and tables of embeddings are quantised. Each f32 state NAME [k, n] which the graph, one for
 * inference, multiplies with on the right becomes NAME.q, NAME.scale and NAME.zero, of n rows of k
 * elements. A state [n, k] that is looked up in, or multiplied with transposed as a tied embedding
 * matrix is, becomes NAME.rows.q, .scale and .zero, with the same rows; one that is looked up in
 * only has 8 bits, whatever `bits` is. If other nodes read the state, NAME stays as well. A matrix
 * stays as it is if `group` does not divide k. The metadata entry "quantization" of the new store
 * is "bits=8 group=32".
 *
 * `options` and `report` may be NULL. NULL on failure: WEFT_BAD_ARGUMENT for other bits or groups,
 * or a store that is quantised already; WEFT_NOT_FOUND if the store lacks a matrix, WEFT_BAD_SHAPE
 * if it has another one, WEFT_NOT_FINITE, WEFT_NO_MEMORY. */
WEFT_API weft_params *weft_params_quantize(const weft_params *params, const weft_graph *graph,
                                           const weft_quantize_options *options,
                                           weft_quantize_report *report, weft_error *error);
/* Whether the store has quantised matrices, by their names. O(tensors). */
WEFT_API bool weft_params_are_quantized(const weft_params *params);

/* The inverse: returns a new store in which those quantised matrices of the graph that `filter`
 * selects, by their names in the graph (NULL: all), are in f32: scale (q - zero), or scale q +
 * minimum, rounded once for each operation. Other tensors and the metadata are copied; if no
 * quantised matrix remains, "quantization" is "none". To add adapters (weft/lora.h) to matrices in
 * f32, call weft_params_dequantize first, then weft_params_add_adapters. NULL on failure:
 * WEFT_BAD_SHAPE if a form does not fit the graph, WEFT_BAD_ARGUMENT for a NULL, or a selected
 * matrix that has an adapter next to its form, WEFT_NO_MEMORY. */
WEFT_API weft_params *weft_params_dequantize(const weft_params *params, const weft_graph *graph,
                                             const weft_params_filter *filter, weft_error *error);

/* ---- Using it ---- */

/* A pass for weft_plan_options.passes: products with states whose quantised forms `params` has
 * become matmul_quantized, and lookups in them embedding_quantized. A form has NAME.zero or, of
 * minima in f32, NAME.min. The plan then needs these
 * states instead. Loops (weft/scan.h) become their steps. `params` must live until the plan is made. If the store lacks a scale or a zero
 * point, weft_plan_new fails with WEFT_NOT_FOUND. Call weft_params_init with weft_plan_graph(plan)
 * instead of the graph: it would add the matrices that the plan no longer needs. */
WEFT_API weft_pass weft_quantized_pass(const weft_params *params);

#ifdef __cplusplus
}
#endif
#endif
