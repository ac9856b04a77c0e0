/* weft/communicator.h - exchanges of data among the processes that compute together.
 *
 * A communicator is a table of functions over a set of processes, its ranks 0 .. size-1. It moves
 * bytes and computes nothing: sums are nodes of the graph, added in an order that does not depend
 * on the number of processes. <weft/mpi.h>, a library of its own, has a communicator of MPI; below
 * are one of a single process and one of threads, for tests.
 */
#ifndef WEFT_COMMUNICATOR_H
#define WEFT_COMMUNICATOR_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_exchange_kind {
    WEFT_ALL_TO_ALL, /* piece r of `send` goes to rank r, piece r of `receive` comes from rank r */
    WEFT_ALL_GATHER, /* `send` goes to every rank, piece r of `receive` comes from rank r */
    WEFT_BROADCAST,  /* `send` of rank `peer` goes to `receive` of every rank, its own included */
    WEFT_SEND,       /* `send` goes to rank `peer` */
    WEFT_RECEIVE     /* `receive` comes from rank `peer` */
} weft_exchange_kind;

/* One exchange, as one rank sees it. Pieces are contiguous, in the order of the ranks; each may
 * have 0 bytes. Both sides of a piece must pass the same size. */
typedef struct weft_exchange {
    weft_exchange_kind kind;
    const void *send;            /* NULL if nothing is sent */
    void *receive;               /* NULL if nothing is received; must not overlap `send` */
    const size_t *send_bytes;    /* [size], of pieces; all-to-all */
    const size_t *receive_bytes; /* [size], of pieces; all-to-all and all-gather, where entry `rank`
                                    is also the size of `send` */
    size_t bytes;                /* broadcast, send, receive */
    int peer;
    int tag; /* send and receive: of the message, 0 .. 32767. A receive takes the earliest message
                of its peer and tag */
} weft_exchange;

typedef struct weft_communicator weft_communicator;

/* What a communicator has done. */
typedef struct weft_traffic {
    uint64_t exchanges;
    uint64_t sent_bytes; /* to other ranks */
    double in_flight;    /* seconds from the start of each exchange until it was found done */
    double waited;       /* seconds of these in which a thread waited for it */
} weft_traffic;

/* Any thread may call the functions, several at a time. All-to-alls, all-gathers and broadcasts are
 * matched by their order, which must therefore be the same on all ranks. */
struct weft_communicator {
    int rank, size;
    double seconds; /* an exchange that takes longer fails; 0: no limit. The program may set it */
    void *context;  /* passed to the functions */
    /* Begins an exchange and returns without waiting. The arrays of the exchange are read at once;
     * `send` and `receive` must not be touched until it is done. *request is what `test` takes. */
    weft_status (*start)(void *context, const weft_exchange *exchange, void **request,
                         weft_error *error);
    /* Sets *done to whether the exchange is done; if so, or on failure, the request is gone. Other
     * exchanges may advance too. WEFT_PEER if another rank failed or is gone, with its rank and its
     * message in *error. */
    weft_status (*test)(void *context, void *request, bool *done, weft_error *error);
    /* Writes which ranks the exchange still waits for, as "rank 2" or "ranks 1, 3". NULL: unknown.
     */
    void (*missing)(void *context, void *request, char *text, size_t size);
    /* Advances exchanges that were started. NULL: they need no help. */
    void (*progress)(void *context);
    /* Makes the communicator of the ranks that pass the same `part`, in the order of their ranks.
     * Every rank must call it. */
    weft_status (*split)(void *context, int part, weft_communicator **communicator,
                         weft_error *error);
    /* Reports to all ranks that this one cannot go on: their exchanges fail with WEFT_PEER. */
    void (*fail)(void *context, const weft_error *error);
    void (*free)(weft_communicator *communicator);
    /* Counted by graphs and by the functions below, which only one thread at a time may therefore
     * call. */
    weft_traffic traffic;
};

/* ---- Using one ------------------------------------------------------------------------------ */

/* Begins an exchange, after checking it. `request` as in the table. */
WEFT_API weft_status weft_communicator_start(weft_communicator *communicator,
                                             const weft_exchange *exchange, void **request,
                                             weft_error *error);
/* Waits until it is done. WEFT_PEER if another rank failed, or if it took longer than
 * communicator->seconds since this call; the message says which ranks are missing. */
WEFT_API weft_status weft_communicator_wait(weft_communicator *communicator, void *request,
                                            weft_error *error);
/* Starts an exchange and waits for it. If one rank is out of memory, all ranks fail. */
WEFT_API weft_status weft_communicator_run(weft_communicator *communicator,
                                           const weft_exchange *exchange, weft_error *error);
/* Gathers `bytes` bytes from every rank into all[rank * bytes]. If one rank is out of memory, here
 * or in weft_communicator_agree, all ranks fail. */
WEFT_API weft_status weft_communicator_gather(weft_communicator *communicator, const void *own,
                                              size_t bytes, void *all, weft_error *error);
/* Every rank calls it with its own error, WEFT_OK if it has none. Returns WEFT_OK on all ranks if
 * no rank has one. Otherwise all ranks return the status of the lowest rank that has an error;
 * *error is that error on the rank itself, and a WEFT_PEER that names the rank on the others.
 * Errors other than WEFT_PEER take precedence, since a WEFT_PEER only reports another rank's
 * error. */
WEFT_API weft_status weft_communicator_agree(weft_communicator *communicator, const weft_error *own,
                                             weft_error *error);
/* Frees a communicator; NULL is accepted. */
WEFT_API void weft_communicator_free(weft_communicator *communicator);

/* ---- A communicator without a network ------------------------------------------------------- */

/* A single process: every exchange is a copy. NULL if out of memory. */
WEFT_API weft_communicator *weft_communicator_new_self(void);

#ifdef __cplusplus
}
#endif
#endif
