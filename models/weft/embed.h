/* weft/embed.h - embeddings: one vector for a text, of the hidden states that an encoder such as
 * BERT computes. Texts of similar meaning have vectors with a large cosine. Of the library
 * weft-models. */
#ifndef WEFT_EMBED_H
#define WEFT_EMBED_H

#include <weft/models.h>
#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Graphs --------------------------------------------------------------------------------- */

/* What the vector of a text is, of those of its tokens (Reimers & Gurevych 2019). */
typedef enum weft_pooling {
    WEFT_POOL_MEAN,
    WEFT_POOL_FIRST, /* that of the first token, such as [CLS] */
    WEFT_POOL_MAX,   /* the maximum of each element */
    WEFT_POOL_ROOT   /* their sum, divided by the square root of their number */
} weft_pooling;

/* [rows, width] from x [rows, length, width]. `padding`, bool [rows, length], is true at positions
 * that do not count; every row has one that does. */
WEFT_API weft_value weft_pool_tokens(weft_graph *graph, weft_value x, weft_value padding,
                                     weft_pooling pooling);
/* x / max(|x|, 1e-12), of the Euclidean norm over the last dimension. */
WEFT_API weft_value weft_unit_norm(weft_graph *graph, weft_value x);

/* ---- The embedder --------------------------------------------------------------------------- */

/* Computes the embeddings of token ids, and no logits: whole passes of the model without dropout,
 * over batches of rows of similar length. Each shape has a plan, made at its first use. The bits of
 * a row's embedding depend neither on the other rows nor on the number of threads. */
typedef struct weft_embedder weft_embedder;

typedef struct weft_embedder_options {
    weft_pooling pooling;
    bool normalize;  /* to a Euclidean norm of 1 */
    int64_t rows;    /* maximum per batch; long rows have smaller batches; 0: 32 */
    int64_t max_len; /* maximum tokens of a row; 0: the learned positions of the model */
    /* Of all sessions; weft/session.h says what may be set. Read by weft_embedder_new only. */
    weft_session_options session;
} weft_embedder_options;

/* A text to embed. */
typedef struct weft_embedder_row {
    const int32_t *tokens; /* with the ids that surround texts, such as [CLS] and [SEP] */
    size_t length;         /* at least 1 */
    float *embedding;      /* output: [weft_embedder_width], owned by the caller */
} weft_embedder_row;

/* `config` and `params` as for weft_decoder_new; `options` may be NULL. Returns NULL on failure:
 * the model is causal, reads a source or no tokens, max_len exceeds the learned positions, or out
 * of memory. */
WEFT_API weft_embedder *weft_embedder_new(const weft_model_config *config,
                                          const weft_params *params,
                                          const weft_embedder_options *options, weft_error *error);
WEFT_API void weft_embedder_free(weft_embedder *embedder);
/* Elements of an embedding. */
WEFT_API int64_t weft_embedder_width(const weft_embedder *embedder);
/* Maximum tokens of a row. */
WEFT_API int64_t weft_embedder_max_len(const weft_embedder *embedder);
/* Fills rows[i].embedding. Errors:
 * - WEFT_BAD_ARGUMENT: a row has no tokens, no room for the embedding, or padding as its only token
 * - WEFT_TOO_LARGE: a row is longer than max_len
 * - WEFT_BAD_INDEX: an id is outside the vocabulary
 * - WEFT_NOT_FOUND: a parameter is missing
 * After an error all embeddings are unspecified; the embedder can be used again. */
WEFT_API weft_status weft_embedder_run(weft_embedder *embedder, const weft_embedder_row *rows,
                                       size_t n, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
