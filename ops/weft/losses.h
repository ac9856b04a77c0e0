/* weft/losses.h - losses beyond those of <weft/weft.h>. Each function adds a node (or a few) to the
 * graph and returns its value, as those of <weft/ops.h> do; what is said there of dtypes, errors
 * and accuracy holds here too.
 *
 * Unless a comment says otherwise, operands are f32 or f64 of one dtype and one shape, and the loss
 * is computed for each element and then reduced: to the mean or the sum, which are scalars, or not
 * at all. The mean over no elements is NaN.
 */
#ifndef WEFT_LOSSES_H
#define WEFT_LOSSES_H

#include <weft/weft.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Regression ----------------------------------------------------------------------------- */

/* |a - b|; the gradient at a = b is 0. */
WEFT_API weft_value weft_l1_loss(weft_graph *graph, weft_value a, weft_value b,
                                 weft_reduction reduction);
/* With d = |a - b|: d^2 / 2 where d <= delta, else delta (d - delta / 2), for delta > 0 (Huber
 * 1964). */
WEFT_API weft_value weft_huber_loss(weft_graph *graph, weft_value a, weft_value b, double delta,
                                    weft_reduction reduction);
/* weft_huber_loss divided by its delta, here beta >= 0: d^2 / (2 beta) where d <= beta, else
 * d - beta / 2 (Girshick 2015). With beta 0: weft_l1_loss. */
WEFT_API weft_value weft_smooth_l1_loss(weft_graph *graph, weft_value a, weft_value b, double beta,
                                        weft_reduction reduction);

/* ---- Classification and distributions ------------------------------------------------------- */

/* The terms p (ln p - log_q) of the Kullback-Leibler divergence of a distribution q from p, with
 * log_q as weft_log_softmax returns it and the probabilities p; a term of p = 0 is 0. The
 * divergence is their sum; divided by the number of rows it is PyTorch's `batchmean`. The mean is
 * over elements.
 */
WEFT_API weft_value weft_kl_divergence_loss(weft_graph *graph, weft_value log_q, weft_value p,
                                            weft_reduction reduction);
/* max(0, 1 - t x) of a score x and its class t, 1 or -1 (Cortes & Vapnik 1995). */
WEFT_API weft_value weft_hinge_loss(weft_graph *graph, weft_value scores, weft_value targets,
                                    weft_reduction reduction);

/* ---- Embeddings: of vectors along the last dimension ----------------------------------------- */

/* The cosine of the angle between a and b [..., features]: [...]. It is a b / (|a| |b|), where
 * norms are at least `eps`, and a smaller one has no gradient. a and b broadcast. */
WEFT_API weft_value weft_cosine_similarity(weft_graph *graph, weft_value a, weft_value b,
                                           double eps);
/* 1 - cosine where the target is 1, max(0, cosine - margin) where it is -1, for vectors a and b
 * [..., features] and targets [...]. The cosine is weft_cosine_similarity's with eps 1e-6. */
WEFT_API weft_value weft_cosine_embedding_loss(weft_graph *graph, weft_value a, weft_value b,
                                               weft_value targets, double margin,
                                               weft_reduction reduction);
typedef struct weft_triplet_margin_loss_options {
    double margin;            /* 0: 1; WEFT_ZERO: 0 */
    double p;                 /* of the norm; 0: 2 */
    double eps;               /* 0: 1e-6; WEFT_ZERO: 0 */
    bool swap;                /* the negative may be compared with the positive instead */
    weft_reduction reduction; /* over triplets */
} weft_triplet_margin_loss_options;
/* max(0, |anchor - positive| - |anchor - negative| + margin) for vectors [..., features], with the
 * p-norm of differences to which eps is added (Schroff et al. 2015). With `swap` the second norm is
 * the smaller one of |anchor - negative| and |positive - negative|. */
WEFT_API weft_value weft_triplet_margin_loss(weft_graph *graph, weft_value anchor,
                                             weft_value positive, weft_value negative,
                                             const weft_triplet_margin_loss_options *options);

/* ---- Sequences ------------------------------------------------------------------------------ */

/* Minus the logarithm of the probability of each target, [batch], summed over all alignments
 * (Graves et al. 2006): log_probs [frames, batch, classes], as weft_log_softmax returns them;
 * targets i32 [batch, labels]; how many frames and labels of each sequence count, i32 [batch] each.
 * `blank` is the class of no label. The loss is infinite, and its gradient 0, where no alignment
 * exists: a target needs a frame for each label and for each repetition of one. A length that is
 * larger than its dimension, or a label that counts and is the blank or outside [0, classes), ends
 * the run with WEFT_BAD_INDEX. */
WEFT_API weft_value weft_ctc(weft_graph *graph, weft_value log_probs, weft_value targets,
                             weft_value frames, weft_value lengths, int32_t blank);
typedef struct weft_ctc_loss_options {
    int32_t blank;            /* the class of no label */
    bool zero_infinity;       /* infinite losses become 0 */
    weft_reduction reduction; /* mean: each loss is divided by its number of labels, at least 1,
                                 before the mean over the batch (as in PyTorch) */
} weft_ctc_loss_options;
/* weft_ctc with a reduction. */
WEFT_API weft_value weft_ctc_loss(weft_graph *graph, weft_value log_probs, weft_value targets,
                                  weft_value frames, weft_value lengths,
                                  const weft_ctc_loss_options *options);

#ifdef __cplusplus
}
#endif
#endif
