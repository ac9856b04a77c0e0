/* weft/parallel.h - graphs that run on several processes: exchanges of data, and sums over
 * processes, as nodes.
 *
 * Every process builds its own graph, which knows its rank, and runs it in a session that is given
 * the communicators (weft_session_options). Exchanges of one group must be declared in the same
 * order by all its ranks.
 */
#ifndef WEFT_PARALLEL_H
#define WEFT_PARALLEL_H

#include <weft/communicator.h>
#include <weft/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One process of a group of processes. */
typedef struct weft_ranks {
    int32_t group; /* index of the communicator among those of the session */
    int32_t rank, size;
} weft_ranks;

/* ---- Exchanges in two nodes ----------------------------------------------------------------- */

/* An exchange under way. Nodes declared between its begin and its end run while data travel. */
typedef struct weft_flight {
    weft_value received, sent, number;
} weft_flight;

typedef struct weft_exchange_sizes {
    const int64_t *send;    /* [size], elements for each rank; all-to-all */
    const int64_t *receive; /* [size], elements from each rank; all-to-all, all-gather, receive */
    int32_t peer, tag;      /* as in weft_exchange */
} weft_exchange_sizes;

/* Packs the elements of x[0..n-1], all of one dtype, one after another, and begins an exchange of
 * them. A receive sends nothing, but takes its dtype from x[0], which may be empty. */
WEFT_API weft_flight weft_exchange_begin(weft_graph *graph, weft_ranks ranks,
                                         weft_exchange_kind kind, const weft_exchange_sizes *sizes,
                                         const weft_value *x, size_t n);
/* Ends it: the received elements, of rank 1. The end of a send is empty; like all nodes it runs
 * only if a target depends on it. */
WEFT_API weft_value weft_exchange_end(weft_graph *graph, weft_flight flight);

/* ---- Collectives ---------------------------------------------------------------------------- */

/* Each is one op, which autodiff sees, and expands into exchanges. All ranks of the group must
 * declare the same collectives in the same order, with x of the same shape and dtype, and must
 * differentiate through the same of them. x of another rank may be different; in a group of one
 * rank, each is x itself.
 *
 * What gradients mean: a value is either shared, which means that it has the same bits on all ranks
 * and is one variable, or each rank has its own. A shared loss is one loss; if each rank has a loss
 * of its own, gradients are those of their sum. The gradient of a shared value is shared, and that
 * of a rank's own value is its own. This holds as long as a shared value meets ranks' own values
 * only through weft_copy_to_ranks; without it, its gradient is only the part of this rank. */

/* The sum of the ranks' own x, a shared value; f32 or f64. The ranks' x are added in the order of
 * the ranks, each element on one rank, so all ranks have the same bits in every run. The gradient
 * is weft_copy_to_ranks. ("g" of Shoeybi et al., "Megatron-LM", 2019.) */
WEFT_API weft_value weft_sum_over_ranks(weft_graph *graph, weft_ranks ranks, weft_value x);
/* A shared x for use with ranks' own values. The gradient is weft_sum_over_ranks. ("f" of the same
 * paper.) */
WEFT_API weft_value weft_copy_to_ranks(weft_graph *graph, weft_ranks ranks, weft_value x);
/* The sum, for use with ranks' own values: weft_sum_over_ranks and then weft_copy_to_ranks. The
 * gradient is the same op on the gradients. */
WEFT_API weft_value weft_all_reduce(weft_graph *graph, weft_ranks ranks, weft_value x);

/* From here on x and the result are ranks' own values. */

/* The sum over ranks of x [rows, ...], f32 or f64, of which this rank gets its part of the rows:
 * [rows / size, ...]; size must divide them. The gradient is weft_all_gather. */
WEFT_API weft_value weft_reduce_scatter(weft_graph *graph, weft_ranks ranks, weft_value x);
/* The x [rows, ...] of all ranks, in their order: [size * rows, ...]. The gradient is
 * weft_reduce_scatter. */
WEFT_API weft_value weft_all_gather(weft_graph *graph, weft_ranks ranks, weft_value x);
/* x of rank `root`; the others' x have its shape and are not read. The gradient is
 * weft_sum_to_rank. */
WEFT_API weft_value weft_broadcast_ranks(weft_graph *graph, weft_ranks ranks, weft_value x,
                                         int32_t root);
/* The sum over ranks of x, f32 or f64, on rank `root`, and zeros on the others. The gradient is
 * weft_broadcast_ranks. */
WEFT_API weft_value weft_sum_to_rank(weft_graph *graph, weft_ranks ranks, weft_value x,
                                     int32_t root);

/* Sends x to rank `to` of the group. The result is empty, [0] of x's dtype; make it a target, since
 * like all nodes the send runs only if a target depends on it. It may wait until the other side
 * receives. `tag`: 0 to WEFT_MAX_TAG. The gradient is a weft_receive of the same tag: a rank that
 * only sends calls weft_grad_of with the empty result as an output, and an empty cotangent. */
WEFT_API weft_value weft_send(weft_graph *graph, weft_ranks ranks, weft_value x, int32_t to,
                              int32_t tag);
/* What rank `from` sends with this tag, which must have this dtype and shape. `after` is empty, [0]
 * of this dtype, such as the result of a send that must come first; WEFT_NO_VALUE: nothing. The
 * gradient of `after` is a weft_send of the same tag: differentiate with respect to `after` too,
 * and make its gradient a target. */
WEFT_API weft_value weft_receive(weft_graph *graph, weft_ranks ranks, weft_dtype dtype,
                                 weft_shape shape, int32_t from, int32_t tag, weft_value after);
#define WEFT_MAX_TAG 32767

#ifdef __cplusplus
}
#endif
#endif
