/* Batching rules (weft_op.batch) that several ops share. */
#ifndef WEFT_OPS_BATCH_H
#define WEFT_OPS_BATCH_H

#include <weft/op.h>

/* For an op that treats leading dimensions alike: it runs on all inputs with the batch in front. */
void weft__batch_front(weft_batch *b);
/* The same with other attributes, whose axes are one further back. */
void weft__batch_with(weft_batch *b, const void *attr);
/* For an op along the axis of its attribute `axis`, which is one further back. */
void weft__batch_axis(weft_batch *b);
/* For an op on [rows, ...] whose rows do not depend on each other, in each input: the rows of all
 * examples are one list. */
void weft__batch_rows(weft_batch *b);
/* The same for input 0, such as the images of a convolution or the rows of a product, where all
 * examples share the other inputs; elsewhere as weft__batch_each. */
void weft__batch_first(weft_batch *b);
/* For an op that takes any leading dimensions in the inputs of `mask` (bit i: input i), where all
 * examples share the others; elsewhere as weft__batch_each. */
void weft__batch_leading(weft_batch *b, unsigned mask);
/* A node for each example, for an op without a better rule. */
void weft__batch_each(weft_batch *b);

/* ---- Parts of rules ---- */

/* Input i with the batch in front, repeated if all examples share it. */
weft_value weft__batch_in(const weft_batch *b, size_t i);
/* [size, a, ...] as [size a, ...], and back to [size, the shape of one]. */
weft_value weft__batch_fold(weft_graph *graph, weft_value x);
weft_value weft__batch_unfold(const weft_batch *b, weft_value x, weft_value one);
/* [size, ...] with dimensions of size 1 after the batch, so that it broadcasts with values of `rank`
 * dimensions in each example. */
weft_value weft__batch_align(weft_graph *graph, weft_value x, int rank);
/* The sums over all elements of each example, [size]. */
weft_value weft__batch_sums(weft_graph *graph, weft_value x);
/* The product of two dimensions; too large to be one of a tensor if it overflows. */
static inline int64_t weft__batch_product(int64_t a, int64_t b)
{
    int64_t result;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}
/* The shape with the batch in front. */
weft_shape weft__batch_shape(const weft_batch *b, weft_shape one);

#endif
