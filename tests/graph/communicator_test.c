/* The communicators of one process and of threads. */
#include "tests.h"

#include "exchange_checks.h"

#include <pthread.h>

#define MAX_RANKS 5
#define SECONDS   60 /* after which an exchange counts as hanging */

/* Calls run(communicator, result) in a thread for each rank, which frees its communicator. */
typedef struct rank_thread {
    weft_communicator *communicator;
    int (*run)(weft_communicator *communicator);
    int failures;
} rank_thread;

static void *run_rank(void *data)
{
    rank_thread *t = data;
    t->failures = t->run(t->communicator);
    weft_communicator_free(t->communicator);
    return NULL;
}

static int run_ranks(int size, int (*run)(weft_communicator *communicator))
{
    weft_communicator *all[MAX_RANKS];
    rank_thread ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL_FATAL(weft_communicator_new_threads(size, SECONDS, all, &error), WEFT_OK);
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank_thread){all[r], run, 0};
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    int failures = 0;
    for (int r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
        failures += ranks[r].failures;
    }
    return failures;
}

static void test_self(void)
{
    weft_communicator *self = weft_communicator_new_self();
    CU_ASSERT_PTR_NOT_NULL_FATAL(self);
    CU_ASSERT_EQUAL(exchange_checks(self), 0);
    weft_communicator_free(self);
    weft_communicator_free(NULL);
}

static void test_threads(void)
{
    CU_ASSERT_EQUAL(run_ranks(1, exchange_checks), 0);
    CU_ASSERT_EQUAL(run_ranks(2, exchange_checks), 0);
    CU_ASSERT_EQUAL(run_ranks(3, exchange_checks), 0);
    CU_ASSERT_EQUAL(run_ranks(5, exchange_checks), 0);
}

static void test_failure(void)
{
    for (int size = 2; size <= MAX_RANKS; size++)
        CU_ASSERT_EQUAL(run_ranks(size, exchange_checks_of_failure), 0);
}

static void test_silence(void)
{
    for (int size = 2; size <= MAX_RANKS; size++)
        CU_ASSERT_EQUAL(run_ranks(size, exchange_checks_of_silence), 0);
}

/* ---- Of threads alone: exchanges started by one thread, rank after rank ---- */

typedef struct three {
    weft_communicator *all[3];
    void *requests[3];
    weft_error error;
} three;

static three three_new(void)
{
    three t = {.error = WEFT_NO_ERROR};
    CU_ASSERT_EQUAL_FATAL(weft_communicator_new_threads(3, SECONDS, t.all, &t.error), WEFT_OK);
    return t;
}

static void three_free(three *t)
{
    for (int r = 0; r < 3; r++) weft_communicator_free(t->all[r]);
}

static void start(three *t, int rank, const weft_exchange *x)
{
    CU_ASSERT_EQUAL(weft_communicator_start(t->all[rank], x, &t->requests[rank], &t->error),
                    WEFT_OK);
}

/* Each of these ranks must find this error in its exchange. */
static void expect_error(three *t, int first, int last, weft_status status, const char *message)
{
    for (int r = first; r <= last; r++) {
        weft_error error = WEFT_NO_ERROR;
        CU_ASSERT_EQUAL(weft_communicator_wait(t->all[r], t->requests[r], &error), status);
        CU_ASSERT_STRING_EQUAL(error.where, "exchange");
        CU_ASSERT_STRING_EQUAL(error.message, message);
    }
}

static void test_mismatch(void)
{
    three t = three_new();
    char from[8] = "", to[3][16];
    const size_t sizes[3] = {2, 2, 2}, other[3] = {2, 2, 3};
    for (int r = 0; r < 3; r++)
        start(&t, r,
              &(weft_exchange){.kind = WEFT_ALL_GATHER,
                               .send = from,
                               .receive = to[r],
                               .receive_bytes = r == 1 ? other : sizes});
    expect_error(&t, 0, 2, WEFT_BAD_ARGUMENT, "rank 2 sends 2 bytes to rank 1, which expects 3");
    for (int r = 0; r < 3; r++)
        start(&t, r,
              &(weft_exchange){.kind = r == 2 ? WEFT_BROADCAST : WEFT_ALL_GATHER,
                               .send = from,
                               .receive = to[r],
                               .bytes = 2,
                               .receive_bytes = sizes});
    expect_error(&t, 0, 2, WEFT_BAD_ARGUMENT, "rank 0 began an all-gather, rank 2 a broadcast");
    for (int r = 0; r < 3; r++)
        start(&t, r,
              &(weft_exchange){.kind = WEFT_BROADCAST,
                               .send = from,
                               .receive = to[r],
                               .bytes = 2,
                               .peer = r == 1 ? 1 : 0});
    expect_error(&t, 0, 2, WEFT_BAD_ARGUMENT,
                 "rank 0 expects a broadcast of rank 0, rank 1 one of rank 1");
    start(&t, 0, &(weft_exchange){.kind = WEFT_SEND, .send = from, .bytes = 8, .peer = 1});
    start(&t, 1, &(weft_exchange){.kind = WEFT_RECEIVE, .receive = to[1], .bytes = 4, .peer = 0});
    expect_error(&t, 0, 1, WEFT_BAD_ARGUMENT, "rank 0 sends 8 bytes to rank 1, which expects 4");
    /* The communicator still works. */
    for (int r = 0; r < 3; r++)
        start(&t, r,
              &(weft_exchange){
                  .kind = WEFT_BROADCAST, .send = "word", .receive = to[r], .bytes = 5, .peer = 2});
    for (int r = 0; r < 3; r++) {
        CU_ASSERT_EQUAL(weft_communicator_wait(t.all[r], t.requests[r], &t.error), WEFT_OK);
        CU_ASSERT_STRING_EQUAL(to[r], "word");
    }
    three_free(&t);
}

static void test_gone(void)
{
    three t = three_new();
    char from[8] = "", to[3][16];
    const size_t sizes[3] = {2, 2, 2};
    const weft_exchange gather = {
        .kind = WEFT_ALL_GATHER, .send = from, .receive = to[0], .receive_bytes = sizes};
    start(&t, 0, &gather);
    start(&t, 1, &(weft_exchange){.kind = WEFT_RECEIVE, .receive = to[1], .bytes = 4, .peer = 2});
    char ranks[64] = "";
    t.all[0]->missing(t.all[0]->context, t.requests[0], ranks, sizeof ranks);
    CU_ASSERT_STRING_EQUAL(ranks, "ranks 1, 2");
    /* Rank 2 leaves with an exchange open. */
    start(&t, 2, &(weft_exchange){.kind = WEFT_RECEIVE, .receive = to[2], .bytes = 4, .peer = 0});
    weft_communicator_free(t.all[2]);
    t.all[2] = NULL;
    expect_error(&t, 0, 1, WEFT_PEER, "rank 2 has ended");
    /* So do exchanges that begin afterwards. */
    start(&t, 1, &(weft_exchange){.kind = WEFT_SEND, .send = from, .bytes = 4, .peer = 2});
    expect_error(&t, 1, 1, WEFT_PEER, "rank 2 has ended");
    three_free(&t);
}

/* A communicator without memory for exchanges, which records the failure that it reports to the
 * other ranks. */
static weft_status start_without_memory(void *context, const weft_exchange *exchange,
                                        void **request, weft_error *error)
{
    (void)context, (void)exchange, (void)request;
    return weft_error_set(error, WEFT_NO_MEMORY, "exchange", "no memory");
}

static void note_failure(void *context, const weft_error *error)
{
    *(weft_status *)context = error->status;
}

static void test_no_memory(void)
{
    weft_status reported = WEFT_OK;
    weft_error error = WEFT_NO_ERROR;
    weft_communicator c = {
        .size = 2, .context = &reported, .start = start_without_memory, .fail = note_failure};
    int all[2] = {0};
    CU_ASSERT_EQUAL(weft_communicator_gather(&c, &all[0], sizeof all[0], all, &error),
                    WEFT_NO_MEMORY);
    CU_ASSERT_TRUE(error.status == WEFT_NO_MEMORY && reported == WEFT_NO_MEMORY);
}

static void test_arguments(void)
{
    three t = three_new();
    weft_error error = WEFT_NO_ERROR;
    void *request = NULL;
    CU_ASSERT_EQUAL(weft_communicator_new_threads(0, 0, t.all, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_communicator_start(t.all[0], NULL, &request, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_communicator_start(
                        t.all[0], &(weft_exchange){.kind = WEFT_SEND, .peer = 3}, &request, NULL),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_communicator_start(t.all[0],
                                            &(weft_exchange){.kind = WEFT_SEND, .tag = 32768},
                                            &request, NULL),
                    WEFT_BAD_ARGUMENT);
    three_free(&t);
}

void communicator_tests(void)
{
    CU_pSuite suite = CU_add_suite("communicator", NULL, NULL);
    CU_add_test(suite, "one process", test_self);
    CU_add_test(suite, "threads: every exchange", test_threads);
    CU_add_test(suite, "threads: a rank that fails", test_failure);
    CU_add_test(suite, "threads: a rank that does not answer", test_silence);
    CU_add_test(suite, "threads: sizes and kinds that differ", test_mismatch);
    CU_add_test(suite, "threads: a rank that has ended", test_gone);
    CU_add_test(suite, "a rank without memory", test_no_memory);
    CU_add_test(suite, "arguments", test_arguments);
}
