/* States that are parts of wholes: wrong declarations, parts that do not fit each other. The suite
 * `tensor` has those of models. */
#include "ranks.h"
#include "tests.h"

#include <string.h>

static weft_status declare_part(weft_part part, weft_part again)
{
    weft_graph *g = weft_graph_new();
    weft_param_part(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_XAVIER, part);
    weft_graph_share(g, true);
    if (again.whole) weft_param_part(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_XAVIER, again);
    const weft_status status = weft_graph_status(g);
    weft_graph_free(g);
    return status;
}

static void test_parts(void)
{
    const weft_part none = {0, 0, 0}, good = {1, 3, 6};
    CU_ASSERT_EQUAL(declare_part(good, good), WEFT_OK);
    CU_ASSERT_EQUAL(declare_part(good, (weft_part){1, 0, 6}), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(declare_part(none, good), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(declare_part((weft_part){1, 4, 6}, none), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(declare_part((weft_part){1, -1, 6}, none), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(declare_part((weft_part){2, 0, 6}, none), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(declare_part((weft_part){0, 0, -6}, none), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(declare_part((weft_part){0, 0, INT64_MAX}, none), WEFT_BAD_SHAPE);
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1));
    CU_ASSERT_EQUAL(weft_part_of(g, x).whole, 0);
    CU_ASSERT_EQUAL(weft_part_of(g, WEFT_NO_VALUE).whole, 0);
    weft_graph_free(g);
}

/* What each rank declares of the same state, and what joining it says. */
typedef struct declared {
    weft_part part[2];
    weft_shape shape[2];
    bool initialised[2]; /* the store has the state */
} declared;

static void join(rank *r)
{
    const declared *d = r->shared;
    const int me = r->communicator->rank;
    weft_graph *g = weft_graph_new();
    weft_params *own = weft_params_new(), *whole = weft_params_new();
    weft_param_part(g, "w", WEFT_F32, d->shape[me], WEFT_INIT_ONES, d->part[me]);
    if (d->initialised[me]) weft_params_init(own, g, 5, &r->error);
    weft_params_join_parts(whole, g, own, r->communicator, &r->error);
    weft_params_free(own);
    weft_params_free(whole);
    weft_graph_free(g);
}

static void expect_joined(const declared *d, weft_status first, weft_status second,
                          const char *text)
{
    rank ranks[MAX_RANKS];
    declared copy = *d;
    run_ranks(2, join, &copy, ranks);
    CU_ASSERT_EQUAL(ranks[0].error.status, first);
    CU_ASSERT_EQUAL(ranks[1].error.status, second);
    for (int r = 0; r < 2; r++) CU_ASSERT_PTR_NOT_NULL(strstr(ranks[r].error.message, text));
}

static void test_joining(void)
{
    /* Parts of different sizes. */
    declared d = {{{1, 0, 5}, {1, 2, 5}}, {{2, {3, 2}}, {2, {3, 3}}}, {true, true}};
    expect_joined(&d, WEFT_OK, WEFT_OK, "");
    d.initialised[1] = false;
    expect_joined(&d, WEFT_PEER, WEFT_NOT_FOUND, "is missing in the store");
    d.initialised[1] = true;
    d.part[1].first = 1;
    expect_joined(&d, WEFT_BAD_SHAPE, WEFT_BAD_SHAPE, "rank 1 has elements 1 to 4 of axis 1");
    d.part[1].first = 2;
    d.shape[1].dim[1] = 2;
    expect_joined(&d, WEFT_BAD_SHAPE, WEFT_BAD_SHAPE, "the ranks have 4 elements of axis 1");

    weft_graph *g = weft_graph_new();
    weft_params *own = weft_params_new(), *whole = weft_params_new();
    weft_error error = WEFT_NO_ERROR;
    weft_param_part(g, "w", WEFT_F32, WEFT_SHAPE(3, 2), WEFT_INIT_ONES, (weft_part){1, 0, 5});
    CU_ASSERT_EQUAL(weft_params_take_parts(own, g, whole, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(own), 0);
    CU_ASSERT_EQUAL(weft_params_add(whole, "w", WEFT_F32, WEFT_SHAPE(3, 4), NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_take_parts(own, g, whole, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "[3, 4] in the store, expected f32 [3, 5]"));
    CU_ASSERT_EQUAL(weft_params_take_parts(NULL, g, whole, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_params_join_parts(whole, g, own, NULL, NULL), WEFT_BAD_ARGUMENT);
    weft_params_free(own);
    weft_params_free(whole);
    weft_graph_free(g);
}

static bool is_opt(void *context, const char *name)
{
    (void)context;
    return !strncmp(name, "opt.", 4);
}

/* A store of a whole becomes that of a part. */
static void test_keeping(void)
{
    const weft_params_filter also = {.selects = is_opt};
    weft_graph *g = weft_graph_new(), *h = weft_graph_new();
    weft_params *store = weft_params_new(), *copy = weft_params_new();
    weft_error error = WEFT_NO_ERROR;
    weft_tensor t;
    weft_param(h, "w", WEFT_F32, WEFT_SHAPE(2, 6), WEFT_INIT_XAVIER);
    weft_param(h, "other", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_state(h, "opt.m.w", WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ONES);
    CU_ASSERT_EQUAL(test_count_params(h), 2);
    CU_ASSERT_EQUAL(test_count_states(h), 3);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, h, 1, NULL), WEFT_OK);
    weft_params_set_meta(store, "key", "text", NULL);
    weft_param_part(g, "w", WEFT_F32, WEFT_SHAPE(2, 2), WEFT_INIT_ONES, (weft_part){1, 3, 6});
    weft_params_find(store, "w", &t);
    const float *whole = t.data;
    const float expected[] = {whole[3], whole[4], whole[9], whole[10]};
    CU_ASSERT_EQUAL(weft_params_keep_parts(store, g, &also, &error), WEFT_OK);
    CU_ASSERT_TRUE(weft_params_count(store) == 2 && !weft_params_find(store, "other", NULL));
    CU_ASSERT_TRUE(weft_params_find(store, "w", &t) && t.shape.dim[1] == 2);
    CU_ASSERT_EQUAL(memcmp(t.data, expected, sizeof expected), 0);
    CU_ASSERT_TRUE(weft_params_find(store, "opt.m.w", &t) && ((double *)t.data)[2] == 1);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(store, "key"), "text");
    /* The part does not say of which whole. */
    CU_ASSERT_EQUAL(weft_params_keep_parts(store, g, NULL, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(weft_params_count(store), 2);
    CU_ASSERT_EQUAL(weft_params_keep_parts(NULL, g, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_params_copy_meta(copy, store, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(copy, "key"), "text");
    CU_ASSERT_EQUAL(weft_params_copy_meta(NULL, store, NULL), WEFT_BAD_ARGUMENT);
    weft_params_free(copy);
    weft_params_free(store);
    weft_graph_free(g);
    weft_graph_free(h);
}

void parts_tests(void)
{
    CU_pSuite suite = CU_add_suite("parts", NULL, NULL);
    CU_add_test(suite, "declarations of parts", test_parts);
    CU_add_test(suite, "parts are taken and joined", test_joining);
    CU_add_test(suite, "a store keeps its parts", test_keeping);
}
