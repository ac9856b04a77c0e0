/* Ranks that are threads of the test. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H

#include <weft/session.h>
#include <weft/train.h>

enum { MAX_RANKS = 8 };

typedef struct rank {
    weft_communicator *communicator;
    void (*run)(struct rank *rank);
    void *shared;
    weft_error error;
} rank;

/* Runs a function on `size` ranks, which have the errors that it leaves. Only the calling thread
 * may use CUnit. */
void run_ranks(int size, void (*run)(rank *rank), void *shared, rank *ranks);
/* Fails the test, and prints why, if a rank has an error. */
void expect_good(const rank *ranks, int size);

/* Batches of one random corpus, in pairs or lines, of 64 tokens at most, for each rank. They are
 * made before the ranks run, since only one thread may use CUnit. */
typedef struct rank_batches {
    weft_corpus *corpus;
    weft_batches *of[MAX_RANKS];
} rank_batches;
rank_batches make_rank_batches(bool pairs);
void free_rank_batches(rank_batches *batches);

/* Feeds an input of at most 1024 elements with numbers in [-1, 1), ids in [0, 12) or mostly false
 * bools, which depend on its name and the batch only. */
weft_status feed_made_up(weft_session *session, const weft_graph *graph, weft_value input,
                         int batch);

#endif
