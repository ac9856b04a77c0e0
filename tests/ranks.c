/* Ranks that are threads: see ranks.h. */
#include "ranks.h"
#include "tests.h"

#include <pthread.h>

static void *run_rank(void *data)
{
    rank *r = data;
    r->run(r);
    weft_communicator_free(r->communicator);
    return NULL;
}

void run_ranks(int size, void (*run)(rank *rank), void *shared, rank *ranks)
{
    pthread_t threads[MOST_RANKS];
    weft_communicator *all[MOST_RANKS];
    CU_ASSERT_EQUAL_FATAL(weft_communicator_threads(size, 60, all, NULL), WEFT_OK);
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank){.communicator = all[r], .run = run, .shared = shared};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
}

void expect_good(const rank *ranks, int size)
{
    for (int r = 0; r < size; r++) {
        if (ranks[r].error.status != WEFT_OK)
            printf("\n    rank %d: %s: %s\n", r, ranks[r].error.where, ranks[r].error.message);
        CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_OK);
    }
}
