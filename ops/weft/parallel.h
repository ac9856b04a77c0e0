/* weft/parallel.h - graphs that run on several processes: exchanges of data as nodes.
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

/* Packs the elements of x[0..n-1], all of one dtype, one behind the other, and begins an exchange
 * of them. A receive sends nothing, but takes its dtype from x[0], which may be empty. */
WEFT_API weft_flight weft_exchange_begin(weft_graph *graph, weft_ranks ranks,
                                         weft_exchange_kind kind, const weft_exchange_sizes *sizes,
                                         const weft_value *x, size_t n);
/* Ends it: the received elements, of rank 1. The end of a send is empty; like all nodes it runs
 * only if a target depends on it. */
WEFT_API weft_value weft_exchange_end(weft_graph *graph, weft_flight flight);

#ifdef __cplusplus
}
#endif
#endif
