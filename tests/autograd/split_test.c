/* Training steps on a model whose parameters several processes have: norm, clipping, guard. */
#include "ranks.h"
#include "tests.h"

#include "sharding.h"

#include <math.h>
#include <string.h>

enum { ELEMENTS = 2 * WEFT_TILE + 77 };

/* Gradients are states, so that the store fills them. Process m of the model has `own.m`, unless it
 * is the fourth, and all have `shared`, which the first counts. `shares` processes have the same
 * parameters and own pieces of them. */
typedef struct split_case {
    int shares;
    int bad_rank; /* in the world: its loss or gradient is NaN; -1: none */
    bool bad_loss;
    double norm[MAX_RANKS];
    float shared[MAX_RANKS][100];
    weft_status status[MAX_RANKS];
} split_case;

static weft_value gradient_of(weft_graph *g, const char *name, int64_t n)
{
    char full[32];
    snprintf(full, sizeof full, "gradient.%s", name);
    return weft_state(g, full, WEFT_F32, WEFT_SHAPE(n), (weft_init){WEFT_INIT_UNIFORM, -1, 2});
}

/* The parameters of process m; returns how many. */
static size_t split_params(weft_graph *g, int m, weft_value *params, weft_value *grads)
{
    char name[16];
    size_t n = 0;
    snprintf(name, sizeof name, "own.%d", m);
    if (m < 3) {
        params[n] = weft_param(g, name, WEFT_F32, WEFT_SHAPE(ELEMENTS + 1000 * m), WEFT_INIT_ONES);
        grads[n++] = gradient_of(g, name, ELEMENTS + 1000 * m);
    }
    params[n] = weft_param(g, "shared", WEFT_F32, WEFT_SHAPE(100), WEFT_INIT_ONES);
    grads[n++] = gradient_of(g, "shared", 100);
    return n;
}

/* The step of process m of the model: adds nodes, and sets targets to the step and the norm. */
static void split_step(const split_case *c, weft_graph *g, int m, int models, int share,
                       weft_value *targets)
{
    weft_value params[2], grads[2], lr = weft_scalar(g, WEFT_F32, 0.1), loss = WEFT_NO_VALUE;
    const size_t n = split_params(g, m, params, grads);
    const bool counted[2] = {m < 3, m == 0}; /* the fourth has `shared` only */
    const weft_model_split split = weft__model_split_of((weft_ranks){1, m, models}, counted);
    static const weft_param_group elsewhere = {.names = "own.2", .lr_scale = 2};
    weft_optimizer o = {.max_norm = 0.5, .guard = true, .groups = &elsewhere, .n_groups = 1};
    weft_shards *s = NULL;
    o.model = &split;
    if (c->shares) {
        s = weft__shards_new(g, params, n, (weft_ranks){0, share, c->shares},
                             &(weft_shards_options){.optimizer = &o}, NULL);
        for (size_t i = 0; i < n; i++)
            grads[i] = weft__shards_slice(g, s, weft_name_of(g, params[i]), grads[i]);
    }
    o.shards = s;
    if (m == models - 1) {
        loss = weft_state(g, "loss", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ONES);
        loss = weft_add_scalar(g, loss, 1);
    }
    targets[0] = weft_apply_gradients(g, &(weft_gradients){params, grads, n, loss}, lr, &o,
                                      &targets[1], NULL);
    weft__shards_free(s);
}

static void spoil(weft_params *store, const char *name)
{
    weft_tensor t;
    if (weft_params_find(store, name, &t)) *(float *)t.data = NAN;
}

/* Communicators 0, of the processes with the same parameters, and 1, of those with one model. */
static void run_split(rank *r)
{
    split_case *c = r->shared;
    weft_communicator *world = r->communicator, *groups[2] = {NULL};
    const int me = world->rank, shares = c->shares ? c->shares : 1, models = world->size / shares;
    const int m = me % models;
    weft_value targets[2];
    weft_tensor shared;
    if (world->split(world->context, m, &groups[0], &r->error) != WEFT_OK ||
        world->split(world->context, me / models, &groups[1], &r->error) != WEFT_OK)
        return;
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    split_step(c, g, m, models, me / models, targets);
    weft_plan *plan = weft_plan_new(g, targets, 2, &(weft_plan_options){.verify = true}, &r->error);
    const weft_session_options o = {.communicators = groups, .n_communicators = 2};
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 1, &r->error) == WEFT_OK)
        s = weft_session_new(plan, store, &o, &r->error);
    if (c->bad_rank == me) spoil(store, c->bad_loss ? "loss" : "gradient.own.1");
    if (s) c->status[me] = weft_session_run(s, NULL);
    if (s && c->status[me] == WEFT_OK) {
        float norm;
        weft_session_fetch(s, targets[1], &norm, sizeof norm, NULL);
        c->norm[me] = (double)norm;
    }
    if (weft_params_find(store, "shared", &shared))
        memcpy(c->shared[me], shared.data, sizeof c->shared[me]);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    for (int i = 0; i < 2; i++) weft_communicator_free(groups[i]);
}

/* The norm of the gradients of n processes on one. */
static double whole_norm(int n)
{
    weft_graph *g = weft_graph_new();
    weft_graph_share(g, true);
    weft_params *store = weft_params_new();
    weft_value grads[8], params[8], norm;
    float x = 0;
    size_t k = 0;
    for (int m = n - 1; m >= 0; m--) {
        const size_t count = split_params(g, m, params + k, grads + k);
        k += m ? count - 1 : count;
    }
    norm = weft_global_norm(g, grads, k);
    weft_plan *plan = weft_plan_new(g, &norm, 1, NULL, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, NULL), WEFT_OK);
    weft_session *s = weft_session_new(plan, store, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_session_fetch(s, norm, &x, sizeof x, NULL);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return (double)x;
}

static void test_split_norm(void)
{
    rank ranks[MAX_RANKS];
    /* Shares 0: no shards. */
    for (int models = 2; models <= 4; models++)
        for (int shares = 0; shares <= (models == 3 ? 1 : 2); shares++) {
            split_case c = {.shares = shares, .bad_rank = -1};
            const int size = models * (shares ? shares : 1);
            const double expected = whole_norm(models);
            run_ranks(size, run_split, &c, ranks);
            expect_good(ranks, size);
            CU_ASSERT_TRUE(fabs(c.norm[0] - expected) <= ROUNDING_F32 * expected && expected > 100);
            for (int r = 0; r < size; r++) {
                CU_ASSERT_EQUAL(c.status[r], WEFT_OK);
                CU_ASSERT_EQUAL(c.norm[r], c.norm[0]);
                CU_ASSERT_EQUAL(memcmp(c.shared[r], c.shared[0], sizeof c.shared[0]), 0);
            }
            CU_ASSERT_TRUE(c.shared[0][0] != 1);
        }
}

/* A number that is none, on one process, ends the step of all. */
static void test_split_guard(void)
{
    rank ranks[MAX_RANKS];
    for (int shares = 0; shares <= 2; shares += 2)
        for (int bad_loss = 0; bad_loss < 2; bad_loss++) {
            const int size = shares ? 4 : 2;
            split_case c = {.shares = shares, .bad_rank = 1, .bad_loss = bad_loss};
            run_ranks(size, run_split, &c, ranks);
            expect_good(ranks, size);
            for (int r = 0; r < size; r++) {
                CU_ASSERT_EQUAL(c.status[r], WEFT_NOT_FINITE);
                CU_ASSERT_EQUAL(c.shared[r][0], 1);
            }
        }
}

void split_tests(void)
{
    CU_pSuite suite = CU_add_suite("split", NULL, NULL);
    CU_add_test(suite, "the norm of a split model", test_split_norm);
    CU_add_test(suite, "the guard of a split model", test_split_guard);
}
