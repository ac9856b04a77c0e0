/* Graphs with parameters in pieces (ZeRO, stage 3), whose ranks are threads: losses and gradients
 * have the bits of the whole graph, and no parameter has to stay in memory between the passes. */
#include "ranks.h"
#include "tests.h"

#include <weft/op.h>
#include "sharding.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 96, SEED = 5 };

/* ---- Models ---- */

/* "MODEL key=value ..." of the list. */
static weft_value build_listed(weft_graph *g, const char *text)
{
    char copy[256], *words[16], *rest = copy;
    size_t n = 0;
    weft_built built = {0};
    weft_model_config config;
    snprintf(copy, sizeof copy, "%s", text);
    while (n < 16 && (words[n] = strtok_r(rest, " ", &rest))) n++;
    if (weft_model_parse(weft_model_find(words[0]), (const char *const *)words + 1, n - 1, &config,
                         NULL) != WEFT_OK)
        return WEFT_NO_VALUE;
    config.build.training = true;
    built = weft_model_build(g, &config);
    return built.loss;
}

enum { LAYERS = 12, ROWS = 2, WIDTH = 128 };
#define LAYER_BYTES ((size_t)WIDTH * WIDTH * sizeof(double))

/* Layers of which almost all memory is that of their parameters. Each reads a transposed view, and
 * the last the parameter of the first. Nothing reads `unused`. */
static weft_value build_layers(weft_graph *g, const char *text)
{
    weft_value w[LAYERS] = {{0, 0}}, h = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(ROWS, WIDTH));
    (void)text;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        w[i] = w[0];
        if (i < LAYERS - 1)
            w[i] = weft_param(g, name, WEFT_F64, WEFT_SHAPE(WIDTH, WIDTH), WEFT_INIT_XAVIER);
        if (i == LAYERS / 2) weft_param(g, "unused", WEFT_F64, WEFT_SHAPE(100), WEFT_INIT_ONES);
        h = weft_tanh(g, weft_matmul(g, h, weft_transpose(g, w[i], 0, 1)));
    }
    return weft_mean(g, weft_square(g, h), WEFT_ALL_AXES, false);
}

/* ---- A pass and its results ---- */

/* The gradients of all parameters are contiguous. */
typedef struct results {
    double loss;
    double *gradients;
    size_t arena_bytes;
    int starts; /* exchanges that the plan begins */
} results;

typedef struct job {
    weft_value (*build)(weft_graph *g, const char *text);
    const char *text;
    weft_optimizer optimizer;
    size_t bucket_bytes;
    bool again;
    double *gradients;            /* of all ranks, each its pieces */
    results of[MAX_RANKS];        /* by rank, without gradients */
    const char *wrong[MAX_RANKS]; /* what a rank found wrong; only one thread may use CUnit */
} job;

/* A graph that is planned with its loss and gradients. */
typedef struct pass {
    weft_graph *g;
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
    size_t n;
    weft_value targets[MAX_PARAMS + 1]; /* gradients of trained parameters; the loss */
} pass;

static void pass_free(pass *p)
{
    weft_session_free(p->session);
    weft_plan_free(p->plan);
    weft_params_free(p->store);
    weft_graph_free(p->g);
}

static weft_status feed_all(const pass *p)
{
    weft_status status = WEFT_OK;
    for (size_t k = 0; status == WEFT_OK && k < weft_graph_node_count(p->g); k++) {
        const weft_node_info node = weft_graph_node(p->g, k);
        if (node.op == &weft_op_input)
            status = feed_made_up(p->session, p->g, weft_value_from_id(p->g, node.first_out), 0);
    }
    return status;
}

static int count_starts(const weft_plan *plan)
{
    const weft_graph *g = weft_plan_graph(plan);
    int n = 0;
    for (size_t k = 0; k < weft_graph_node_count(g); k++)
        n += !strcmp(weft_graph_node(g, k).op->name, "exchange_start");
    return n;
}

/* Plans and runs a pass whose store has the parameters. */
static weft_status run_pass(pass *p, weft_communicator *c, results *of, weft_error *error)
{
    const weft_session_options o = {
        .threads = 1, .communicators = &c, .n_communicators = c != NULL};
    p->plan =
        weft_plan_new(p->g, p->targets, p->n + 1, &(weft_plan_options){.verify = true}, error);
    if (p->plan) p->session = weft_session_new(p->plan, p->store, &o, error);
    if (!p->session) return error->status;
    if (feed_all(p) != WEFT_OK || weft_session_run(p->session, error) != WEFT_OK)
        return error->status;
    weft_session_fetch(p->session, p->targets[p->n], &of->loss, sizeof of->loss, NULL);
    of->starts = count_starts(p->plan);
    return WEFT_OK;
}

static size_t elements_of(const weft_graph *g, weft_value v)
{
    return (size_t)weft_shape_numel(weft_shape_of(g, v));
}

static void run_whole(const job *j, results *of)
{
    weft_error error = WEFT_NO_ERROR;
    size_t at = 0;
    pass p = {.g = weft_graph_new(), .store = weft_params_new()};
    *of = (results){.loss = 0};
    const weft_value loss = j->build(p.g, j->text);
    const weft_value *params = weft_graph_params(p.g, &p.n);
    CU_ASSERT_TRUE_FATAL(p.n > 1 && p.n <= MAX_PARAMS);
    weft_grad(p.g, loss, params, p.n, p.targets);
    p.targets[p.n] = loss;
    CU_ASSERT_EQUAL_FATAL(weft_params_init(p.store, p.g, SEED, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(run_pass(&p, NULL, of, &error), WEFT_OK);
    for (size_t i = 0; i < p.n; i++) at += elements_of(p.g, params[i]);
    of->gradients = calloc(at, sizeof(double));
    CU_ASSERT_PTR_NOT_NULL_FATAL(of->gradients);
    at = 0;
    for (size_t i = 0; i < p.n; at += elements_of(p.g, params[i++]))
        weft_session_fetch(p.session, p.targets[i], of->gradients + at,
                           elements_of(p.g, params[i]) * sizeof(double), NULL);
    pass_free(&p);
}

/* ---- One rank ---- */

/* Fills a store with this rank's pieces of parameters, and those that are not cut. */
static weft_status fill_store(weft_params *store, const weft_graph *whole,
                              const weft_shards *shards, const weft_graph *g, weft_error *error)
{
    weft_params *all = weft_params_new();
    size_t n;
    const weft_value *params = weft_graph_params(whole, &n);
    weft_status status = weft_params_init(all, whole, SEED, error);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        const char *name = weft_name_of(whole, params[i]);
        char piece[256];
        int64_t first, end;
        weft_tensor from, to;
        weft_params_find(all, name, &from);
        snprintf(piece, sizeof piece, "%s", name);
        first = 0;
        end = weft_shape_numel(from.shape);
        if (weft__shards_piece(shards, name, weft__shards_ranks(shards).rank, &first, &end))
            snprintf(piece, sizeof piece, "%s[%lld:%lld]", name, (long long)first, (long long)end);
        const weft_value state = weft_graph_find(g, piece);
        if (!weft_is_value(state)) {
            status = weft_error_set(error, WEFT_NOT_FOUND, piece, "is not a state of the graph");
            break;
        }
        status = weft_params_add(store, piece, from.dtype, weft_shape_of(g, state), &to, error);
        if (status == WEFT_OK)
            memcpy(to.data, (double *)from.data + first, (size_t)(end - first) * sizeof(double));
    }
    weft_params_free(all);
    return status;
}

/* What is wrong with the parameters of the copy, or NULL. */
static const char *check_params(const job *j, const weft_graph *whole, weft_gathered *x)
{
    size_t n, n_gathered;
    const weft_value *params = weft_graph_params(whole, &n);
    const weft_value *gathered = weft__gathered_params(x, &n_gathered);
    const weft_graph *g = weft__gathered_graph(x);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = weft_name_of(whole, params[i]);
        const weft_value value = weft__gathered_value(x, params[i]);
        const bool piece = weft_is_value(weft__gathered_piece(x, name));
        if (!weft_shape_equal(weft_shape_of(g, value), weft_shape_of(whole, params[i])))
            return "a parameter has another shape";
        if (strcmp(weft_name_of(g, value), name) != 0) return "a parameter has another name";
        const bool is_state = weft_graph_node(g, weft_producer_of(g, value)).op == &weft_op_state;
        if (weft_optimizer_freezes(&j->optimizer, name)) {
            if (piece || !is_state) return "a frozen parameter is not whole";
            continue;
        }
        if (!piece || is_state) return "a trained parameter is whole";
        if (k == n_gathered || gathered[k++].id != value.id) return "the order is another";
    }
    return k == n_gathered ? NULL : "there are more parameters";
}

static weft_value read_again(void *context, weft_value value)
{
    return weft__gathered_again(context, value);
}

/* Copies this rank's pieces of the gradients to their places among all. */
static void store_gradients(job *j, const pass *p, const weft_graph *whole,
                            const weft_shards *shards)
{
    size_t n;
    const weft_value *params = weft_graph_params(whole, &n);
    double *at = j->gradients;
    size_t k = 0;
    for (size_t i = 0; i < n; at += elements_of(whole, params[i++])) {
        int64_t first, end;
        if (weft__shards_piece(shards, weft_name_of(whole, params[i]),
                               weft__shards_ranks(shards).rank, &first, &end))
            weft_session_fetch(p->session, p->targets[k++], at + first,
                               (size_t)(end - first) * sizeof(double), NULL);
    }
}

static void run_copy(job *j, rank *r, const weft_graph *whole, weft_value loss,
                     const weft_shards *shards)
{
    const int me = r->communicator->rank;
    weft_gathered *x = weft__gathered_new(whole, shards, &r->error);
    if (!x) return;
    pass p = {.g = weft__gathered_graph(x), .store = weft_params_new()};
    j->wrong[me] = check_params(j, whole, x);
    const weft_value *params = weft__gathered_params(x, &p.n);
    p.targets[p.n] = weft__gathered_value(x, loss);
    const weft_value one = weft_scalar(p.g, WEFT_F64, 1);
    const weft_grad_hooks ready = {.context = x, .again = j->again ? read_again : NULL};
    weft_grad_each(p.g, &(weft_grad_values){&p.targets[p.n], &one, 1, params, p.n}, p.targets,
                   &ready);
    for (size_t i = 0; i < p.n; i++)
        p.targets[i] = weft__shards_slice(p.g, shards, weft_name_of(p.g, params[i]), p.targets[i]);
    weft__gathered_free(x);
    if (fill_store(p.store, whole, shards, p.g, &r->error) == WEFT_OK &&
        run_pass(&p, r->communicator, &j->of[me], &r->error) == WEFT_OK)
        store_gradients(j, &p, whole, shards);
    pass_free(&p);
}

static void run_gathered(rank *r)
{
    job *j = r->shared;
    const weft_ranks ranks = {0, r->communicator->rank, r->communicator->size};
    size_t n;
    weft_graph *whole = weft_graph_new();
    const weft_value loss = j->build(whole, j->text);
    const weft_value *params = weft_graph_params(whole, &n);
    weft_shards *shards = weft__shards_new(
        whole, params, n, ranks,
        &(weft_shards_options){.optimizer = &j->optimizer, .bucket_bytes = j->bucket_bytes},
        &r->error);
    if (shards) run_copy(j, r, whole, loss, shards);
    weft__shards_free(shards);
    weft_graph_free(whole);
}

/* ---- Compared with the whole ---- */

/* The number of elements of all parameters; gradients of frozen ones become zeros. */
static size_t drop_frozen(const job *j, double *gradients)
{
    weft_graph *g = weft_graph_new();
    j->build(g, j->text);
    size_t n, at = 0;
    const weft_value *params = weft_graph_params(g, &n);
    for (size_t i = 0; i < n; at += elements_of(g, params[i++]))
        if (weft_optimizer_freezes(&j->optimizer, weft_name_of(g, params[i])))
            memset(gradients + at, 0, elements_of(g, params[i]) * sizeof(double));
    weft_graph_free(g);
    return at;
}

/* Runs the job on `size` ranks, which must agree with the whole. */
static void expect_whole(job *j, int size)
{
    rank ranks[MAX_RANKS];
    results whole;
    run_whole(j, &whole);
    const size_t n = drop_frozen(j, whole.gradients);
    j->gradients = calloc(n, sizeof *j->gradients);
    CU_ASSERT_PTR_NOT_NULL_FATAL(j->gradients);
    run_ranks(size, run_gathered, j, ranks);
    expect_good(ranks, size);
    for (int r = 0; r < size; r++) {
        if (j->wrong[r]) printf("\n    rank %d: %s\n", r, j->wrong[r]);
        CU_ASSERT_PTR_NULL(j->wrong[r]);
        CU_ASSERT_EQUAL(j->of[r].loss, whole.loss);
        CU_ASSERT_EQUAL(j->of[r].starts, j->of[0].starts);
    }
    CU_ASSERT_TRUE(whole.loss > 0);
    EXPECT_SAME_BITS(WEFT_F64, j->gradients, whole.gradients, n);
    free(j->gradients);
    free(whole.gradients);
}

#define GPT "gpt f64=1 vocab=13 layers=4 d_model=32 heads=4 d_ff=64 batch=2 length=6 "

static void test_models(void)
{
    static const char *const texts[] = {GPT "tied=1", GPT "tied=0", GPT "dropout=0.2"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int size = 1; size <= 4; size++)
            for (int again = 0; again < 2; again++) {
                job j = {.build = build_listed,
                         .text = texts[i],
                         .bucket_bytes = size == 2 ? 0 : 20000,
                         .again = again};
                expect_whole(&j, size);
            }
}

static void test_frozen(void)
{
    static const weft_param_group groups[] = {{.names = "*embedding*,w3", .frozen = true}};
    for (int size = 2; size <= 3; size++) {
        job j = {.build = build_listed,
                 .text = GPT,
                 .optimizer = {.groups = groups, .n_groups = 1},
                 .bucket_bytes = 10000,
                 .again = true};
        expect_whole(&j, size);
        j = (job){.build = build_layers,
                  .optimizer = {.groups = groups, .n_groups = 1},
                  .bucket_bytes = 10000,
                  .again = true};
        expect_whole(&j, size);
    }
}

/* ---- Memory ---- */

/* A gradient is used up as soon as it is complete, as by a reducer. */
typedef struct consumer {
    weft_gathered *x;
    weft_value sums[LAYERS + 1]; /* and the loss */
    size_t n;
} consumer;

static void consume(void *context, size_t i, weft_value gradient)
{
    consumer *c = context;
    (void)i;
    c->sums[c->n++] = weft_sum(weft__gathered_graph(c->x), gradient, WEFT_ALL_AXES, false);
}

static weft_value consumer_again(void *context, weft_value value)
{
    return weft__gathered_again(((consumer *)context)->x, value);
}

/* Plans the layers as rank 1 of 2, with a bucket for each. */
static void plan_layers(bool again, results *of)
{
    weft_value grads[MAX_PARAMS];
    weft_graph *whole = weft_graph_new();
    const weft_value loss = build_layers(whole, NULL);
    size_t n;
    const weft_value *params = weft_graph_params(whole, &n);
    weft_shards *s = weft__shards_new(whole, params, n, (weft_ranks){0, 1, 2},
                                      &(weft_shards_options){.bucket_bytes = LAYER_BYTES}, NULL);
    consumer c = {.x = weft__gathered_new(whole, s, NULL)};
    CU_ASSERT_PTR_NOT_NULL_FATAL(c.x);
    weft_graph *g = weft__gathered_graph(c.x);
    const weft_value out = weft__gathered_value(c.x, loss), one = weft_scalar(g, WEFT_F64, 1);
    params = weft__gathered_params(c.x, &n);
    CU_ASSERT_EQUAL(n, LAYERS);
    const weft_grad_hooks ready = {consume, &c, again ? consumer_again : NULL};
    weft_grad_each(g, &(weft_grad_values){&out, &one, 1, params, n}, grads, &ready);
    CU_ASSERT_EQUAL(c.n, n);
    c.sums[c.n++] = out;
    weft_plan *plan = weft_plan_new(g, c.sums, c.n, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    *of = (results){.arena_bytes = weft_plan_stats_of(plan).arena_bytes,
                    .starts = count_starts(plan)};
    weft_plan_free(plan);
    weft__gathered_free(c.x);
    weft__shards_free(s);
    weft_graph_free(g);
    weft_graph_free(whole);
}

/* Without `again` each bucket is gathered once, and all of them are in memory when the forward pass
 * ends. With it the backward pass gathers them another time, one after the other. */
static void test_memory(void)
{
    enum { BUCKETS = LAYERS - 1 }; /* one also has `unused` */
    results once, twice;
    plan_layers(false, &once);
    plan_layers(true, &twice);
    CU_ASSERT_EQUAL(once.starts, BUCKETS);
    CU_ASSERT_EQUAL(twice.starts, 2 * BUCKETS);
    CU_ASSERT_TRUE(once.arena_bytes > BUCKETS * LAYER_BYTES);
    CU_ASSERT_TRUE(once.arena_bytes - twice.arena_bytes > BUCKETS * LAYER_BYTES / 2);
}

/* ---- Arguments ---- */

static void test_arguments(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new(), *failed = weft_graph_new();
    weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
    weft_shards *s = weft__shards_new(g, &w, 1, (weft_ranks){0, 0, 2}, NULL, NULL);
    CU_ASSERT_PTR_NULL(weft__gathered_new(NULL, s, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NULL(weft__gathered_new(g, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    error = WEFT_NO_ERROR;
    weft_graph_fail_in(failed, "builder", WEFT_BAD_SHAPE, "is wrong");
    CU_ASSERT_PTR_NULL(weft__gathered_new(failed, s, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_SHAPE);
    CU_ASSERT_STRING_EQUAL(error.message, "is wrong");
    weft_gathered *x = weft__gathered_new(g, s, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    weft_graph_free(weft__gathered_graph(x));
    CU_ASSERT_FALSE(weft_is_value(weft__gathered_piece(x, "v")));
    CU_ASSERT_FALSE(weft_is_value(weft__gathered_value(x, WEFT_NO_VALUE)));
    weft__gathered_free(x);
    weft__gathered_free(NULL);
    weft__shards_free(s);
    weft_graph_free(failed);
    weft_graph_free(g);
}

void gathered_tests(void)
{
    CU_pSuite suite = CU_add_suite("gathered", NULL, NULL);
    CU_add_test(suite, "models in pieces", test_models);
    CU_add_test(suite, "frozen parameters stay whole", test_frozen);
    CU_add_test(suite, "parameters are gathered twice and not kept", test_memory);
    CU_add_test(suite, "arguments that are refused", test_arguments);
}
