/* weft/transform.h - derivatives beyond the gradient: forward mode, products with the Hessian,
 * Jacobians and Hessians; and batches of a graph.
 *
 * All of them add ordinary nodes to the graph, which can be differentiated again and combined with
 * each other. Derivatives are of f32 or f64. Errors are the graph's; then every result is WEFT_NO_VALUE. A
 * value may be wanted in the middle of a graph (`wrt` is not only for inputs): derivatives are then
 * those of what follows it.
 */
#ifndef WEFT_TRANSFORM_H
#define WEFT_TRANSFORM_H

#include <weft/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forward mode, a Jacobian-vector product: derivatives[k] is the sum over i of d outputs[k] /
 * d wrt[i] times tangents[i], the rate at which outputs[k] changes when each wrt[i] moves along
 * tangents[i]. tangents[i] has the shape and dtype of wrt[i], derivatives[k] those of outputs[k];
 * it is zero where the output does not depend on any wrt.
 *
 * The rules are those of the gradient, transposed: the gradient is linear in the cotangents, and its
 * own gradient with respect to them is this product. So every op whose gradient can be
 * differentiated has a forward mode. Otherwise the error is WEFT_NO_GRADIENT, which names the op,
 * also where a rule is not linear in the cotangent, such as one that clips it. Each
 * derivative is computed right after the node that it belongs to, so a plan of outputs and
 * derivatives needs about twice the memory of one of the outputs, or three times if parameters
 * move as well (docs/transforms.md). */
WEFT_API void weft_jvp(weft_graph *graph, const weft_value *outputs, size_t n_outputs,
                       const weft_value *wrt, const weft_value *tangents, size_t n,
                       weft_value *derivatives);

/* The product of the Hessian of a scalar loss with a vector: products[i] is the sum over k of
 * d2 loss / (d wrt[i] d wrt[k]) times vectors[k], without the Hessian itself (Pearlmutter 1994).
 * vectors[i] and products[i] have the shape and dtype of wrt[i]. */
WEFT_API void weft_hvp(weft_graph *graph, weft_value loss, const weft_value *wrt,
                       const weft_value *vectors, size_t n, weft_value *products);

/* The largest number of rows or columns of weft_jacobian and weft_hessian, since each adds nodes. */
#define WEFT_MAX_JACOBIAN 1024

/* Whole Jacobians: jacobians[k * n + i] is d outputs[k] / d wrt[i], of the shape of outputs[k]
 * followed by that of wrt[i], of n_outputs * n in all. They are computed by rows, a gradient for
 * each element of the outputs, or by columns, a JVP for each element of wrt, whichever are fewer.
 * WEFT_TOO_LARGE if both are more than WEFT_MAX_JACOBIAN; WEFT_BAD_SHAPE if the two ranks add up
 * to more than WEFT_MAX_RANK; WEFT_BAD_DTYPE if an output and a wrt have different dtypes. */
WEFT_API void weft_jacobian(weft_graph *graph, const weft_value *outputs, size_t n_outputs,
                            const weft_value *wrt, size_t n, weft_value *jacobians);

/* The whole Hessian of a scalar loss: hessians[i * n + k] is d2 loss / (d wrt[i] d wrt[k]), of the
 * shape of wrt[i] followed by that of wrt[k]: the Jacobians of the gradients, with their limits. */
WEFT_API void weft_hessian(weft_graph *graph, weft_value loss, const weft_value *wrt, size_t n,
                           weft_value *hessians);

/* A batch of a graph: what outputs[] would be for each of some examples. inputs[i] is a value of the
 * graph of one example, and batches[i] holds it for all of them: its dtype and shape, with the
 * examples as a dimension in front, as many in each batch and at least one. results[k] is
 * outputs[k] of all examples, with the examples in front. Everything else, such as parameters, is
 * shared by the examples. inputs[] may be any values, also in the middle of the graph, and outputs[]
 * may be derivatives: batches of gradients are the gradients of each example. Results can be
 * differentiated and batched again. A plan of the results does not compute the graph of one example.
 *
 * Each op is built once for all examples by its batching rule (weft_op.batch). Errors:
 * WEFT_BAD_ARGUMENT names an op that has none, such as updates of states; WEFT_BAD_SHAPE if a batch
 * does not fit its input, or a value would have more than WEFT_MAX_RANK dimensions. Random numbers
 * belong to the graph, so all examples have the same; numbers that differ are a batched input. */
WEFT_API void weft_vmap(weft_graph *graph, const weft_value *outputs, size_t n_outputs,
                        const weft_value *inputs, const weft_value *batches, size_t n,
                        weft_value *results);

#ifdef __cplusplus
}
#endif
#endif
