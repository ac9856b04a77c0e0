/* What public functions do with NULL: a table that tests/api/null_calls.py makes of all headers
 * calls each of them with zeros, without a graph and on an empty one, in a child process, so that
 * one that crashes is named. And the rule of error records: a call empties the record that it is
 * given.
 */
#include "tests.h"

#include "pipeline.h"
#include "sharding.h"

#include <weft/batch.h>
#include <weft/lora.h>
#include <weft/pass.h>
#include <weft/report.h>
#include <weft/saved.h>
#include <weft/scan.h>
#include <weft/text.h>
#include <weft/transform.h>
#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/chat.h>
#include <weft/constraint.h>
#include <weft/tokenizers.h>
#endif

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct null_call {
    const char *name;
    bool has_record;                                   /* takes a weft_error */
    int (*call)(weft_graph *graph, weft_error *error); /* its status; -1: it returns none */
} null_call;

#include "null_calls.h"

static const weft_error earlier = {WEFT_CANCELLED, "earlier", "earlier"};

enum { GOOD, KEEPS_RECORD, OTHER_STATUS, SLOW_SECONDS = 20 };

/* The functions whose purpose is to keep the first error. */
static bool keeps_first(const char *name)
{
    return !strcmp(name, "weft_error_set") || !strcmp(name, "weft_error_copy");
}

/* In the child. */
static int call_with(const null_call *c, weft_graph *graph)
{
    weft_error error = earlier;
    alarm(SLOW_SECONDS);
    const int status = c->call(graph, &error);
    if (!c->has_record || keeps_first(c->name)) return GOOD;
    if (!strcmp(error.message, earlier.message)) return KEEPS_RECORD;
    return status >= 0 && status != (int)error.status ? OTHER_STATUS : GOOD;
}

static void expect_harmless(const null_call *c, bool with_graph)
{
    static const char *const wrong[] = {[KEEPS_RECORD] = "keeps the error of an earlier call",
                                        [OTHER_STATUS] = "returns a status other than it records"};
    int end = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        weft_graph *graph = with_graph ? weft_graph_new() : NULL;
        test_exit(call_with(c, graph));
    }
    CU_ASSERT_FATAL(child > 0 && waitpid(child, &end, 0) == child);
    if (WIFEXITED(end) && WEXITSTATUS(end) == GOOD) return;
    const char *how = WIFEXITED(end) ? wrong[WEXITSTATUS(end) & 3] : strsignal(WTERMSIG(end));
    printf("\n    %s, %s: %s", c->name, with_graph ? "zeros and an empty graph" : "zeros", how);
    CU_FAIL("a function does not accept zeros");
}

static void test_without_graph(void)
{
    CU_ASSERT_TRUE(sizeof null_calls / sizeof *null_calls > 400);
    for (size_t i = 0; i < sizeof null_calls / sizeof *null_calls; i++)
        expect_harmless(&null_calls[i], false);
}

static void test_empty_graph(void)
{
    for (size_t i = 0; i < sizeof null_calls / sizeof *null_calls; i++)
        if (strcmp(null_calls[i].name, "weft_graph_free") != 0)
            expect_harmless(&null_calls[i], true);
}

/* One record for several calls: it always has the error of the last one. */
static void test_record(void)
{
    weft_error error = earlier;
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(params, "no/such/file", &error), error.status);
    CU_ASSERT_PTR_NULL(weft_plan_new(NULL, NULL, 0, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NULL(strstr(error.where, "no/such/file"));
    weft_tensor tensor;
    CU_ASSERT_EQUAL(weft_params_add(params, "w", WEFT_F32, WEFT_SHAPE(2), &tensor, &error),
                    WEFT_OK);
    CU_ASSERT_EQUAL(error.status, WEFT_OK);
    CU_ASSERT_STRING_EQUAL(error.message, "");
    /* The rank's own error may lie in the record. */
    error = earlier;
    CU_ASSERT_EQUAL(weft_communicator_agree(NULL, &error, &error), WEFT_CANCELLED);
    CU_ASSERT_STRING_EQUAL(error.message, "earlier");
    weft_params_free(params);
}

static void expect_batches(uint32_t n, int rank, int size, uint32_t first, uint32_t end)
{
    const weft_sum_node got = weft__rank_batches(n, rank, size);
    CU_ASSERT_EQUAL(got.first, first);
    CU_ASSERT_EQUAL(got.end, end);
}

/* A rank outside of [0, size) has no batches. */
static void test_ranks(void)
{
    expect_batches(5, 0, 2, 0, 2);
    expect_batches(5, 1, 2, 2, 5);
    expect_batches(0, 0, 0, 0, 0);
    expect_batches(5, 0, 0, 0, 0);
    expect_batches(5, 0, -1, 0, 0);
    expect_batches(5, -1, 2, 0, 0);
    expect_batches(5, 2, 2, 0, 0);
}

void null_tests(void)
{
    CU_pSuite suite = CU_add_suite("null", NULL, NULL);
    CU_add_test(suite, "zeros for every function", test_without_graph);
    CU_add_test(suite, "zeros and an empty graph", test_empty_graph);
    CU_add_test(suite, "an error record that is used again", test_record);
    CU_add_test(suite, "batches of ranks that do not exist", test_ranks);
}
