/* Ranks that are threads: see ranks.h. */
#include "ranks.h"
#include "tests.h"
#include "token_batches.h"

#include "base/hash.h"

#include <weft/op.h>

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
    pthread_t threads[MAX_RANKS];
    weft_communicator *all[MAX_RANKS];
    CU_ASSERT_EQUAL_FATAL(weft_communicator_new_threads(size, 60, all, NULL), WEFT_OK);
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

rank_batches make_rank_batches(bool pairs)
{
    const weft_batch_options rows = batch_options(pairs ? WEFT_BATCH_PAIRS : WEFT_BATCH_LINES, 64);
    rank_batches b = {.corpus = make_corpus(60, 14, pairs, 5)};
    for (int r = 0; r < MAX_RANKS; r++) {
        b.of[r] = weft_batches_new(b.corpus, &rows, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(b.of[r]);
    }
    return b;
}

void free_rank_batches(rank_batches *batches)
{
    for (int r = 0; r < MAX_RANKS; r++) weft_batches_free(batches->of[r]);
    weft_corpus_free(batches->corpus);
}

weft_status feed_made_up(weft_session *session, const weft_graph *graph, weft_value input,
                         int batch)
{
    const weft_dtype dtype = weft_dtype_of(graph, input);
    const int64_t n = weft_shape_numel(weft_shape_of(graph, input));
    uint64_t random = hash_text(weft_name_of(graph, input)) + (uint64_t)batch;
    double numbers[1024];
    int32_t ids[1024];
    bool flags[1024];
    for (int64_t i = 0; i < n; i++) {
        numbers[i] = test_uniform(&random, -1, 1);
        ids[i] = (int32_t)test_uniform(&random, 0, 12);
        flags[i] = i % 5 == 4;
    }
    const void *data = dtype == WEFT_F64   ? (void *)numbers
                       : dtype == WEFT_I32 ? (void *)ids
                                           : flags;
    return weft_session_feed(session, input, data, (size_t)n * weft_dtype_bytes(dtype), NULL);
}
