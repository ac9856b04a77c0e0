/* weft/lora.h - training a model whose matrices stay as they are, by small matrices next to them:
 * LoRA (Hu et al. 2021), and with a base in 8 or 4 bits QLoRA (Dettmers et al. 2023).
 *
 * weft_lora_builder changes the graphs of a builder. Each product x W with a matrix of the model
 * becomes x W + (alpha / rank) (x A) B, where A [k, rank] and B [rank, n] are new parameters,
 * W.lora_a and W.lora_b, and all others are states that training does not change. The trainer
 * (weft/train.h) does the rest: weft_trainer_options.base is the store of the model. */
#ifndef WEFT_LORA_H
#define WEFT_LORA_H

#include <weft/build.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_lora {
    weft_builder model; /* required */
    int64_t rank;       /* required, at least 1 */
    double alpha;       /* 0: rank, so that the sum has the factor 1 */
    /* Comma-separated patterns of the matrices, which match whole names, such as *.q.*,*.v.*. NULL:
     * all with which the graph has products. Those that other nodes read as well, such as a tied
     * embedding in which it looks up, never have adapters. */
    const char *on;
    double dropout; /* probability of dropping elements of x before A, while training */
    /* The store of the model, if it may be quantised: products and lookups then read its forms
     * (weft/quantize.h), and gradients pass through these, so no matrix is widened. NULL: all
     * matrices are in f32. */
    const weft_params *base;
} weft_lora;

/* A builder of the model with these additions. The lora must outlive it. A begins as uniform numbers
 * within 1 / sqrt(k), and B as zeros, so the model begins as it was. Name and options are the
 * model's. Errors of graphs: WEFT_BAD_ARGUMENT for a wrong option, for patterns that select no
 * product, or for layers that several processes divide; WEFT_BAD_DTYPE for a model in f64. */
WEFT_API weft_builder weft_lora_builder(const weft_lora *lora);

/* Records rank, alpha, dropout and patterns in the metadata "lora" of a store, with which its files
 * can be used. WEFT_BAD_ARGUMENT if it has other ones, as a checkpoint of another training has. */
WEFT_API weft_status weft_lora_note(const weft_lora *lora, weft_params *params, weft_error *error);

/* Adds what was trained, `adapters`, to the store of the model. `graph` is the model's, without
 * additions. To a matrix in f32 (alpha / rank) A B is added; sums over the rank are in order, in
 * f32. Next to a quantised one the store gets W.lora_a and
 * (alpha / rank) W.lora_b, which weft_quantized_pass uses.
 *
 * WEFT_BAD_FILE if the adapters lack the metadata "lora", one of two matrices, or have tensors of no
 * matrix of the graph; WEFT_BAD_SHAPE if one does not fit. Then the store does not change. WEFT_NO_MEMORY. */
WEFT_API weft_status weft_params_add_adapters(weft_params *params, const weft_params *adapters,
                                              const weft_graph *graph, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
