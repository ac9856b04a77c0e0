/* Models whose attention and feed-forward layers are split among ranks, which are threads: results,
 * gradients and first parameters equal those of the model that is not split. */
#include "ranks.h"
#include "tests.h"

#include <weft/autograd.h>
#include <weft/parallel.h>

#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMS = 96, SEED = 5 };

/* ---- A model and its gradients ---- */

typedef struct built {
    weft_graph *g;
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
    weft_built model;
    size_t n; /* of the parameters, whose gradients are targets 2 ... */
    weft_value params[MAX_PARAMS], targets[MAX_PARAMS + 2];
    weft_tensor results[MAX_PARAMS + 2];
} built;

static void built_free(built *b)
{
    weft_session_free(b->session);
    weft_plan_free(b->plan);
    weft_params_free(b->store);
    weft_graph_free(b->g);
}

/* Builds the model that "MODEL key=value ..." names. */
static weft_status build_graph(weft_graph *g, const char *text, weft_ranks ranks, bool training,
                               weft_built *model, weft_error *error)
{
    char copy[256], *words[16], *rest = copy;
    size_t n = 0;
    weft_model_config config;
    snprintf(copy, sizeof copy, "%s", text);
    while (n < 16 && (words[n] = strtok_r(rest, " ", &rest))) n++;
    if (weft_model_parse(weft_model_find(words[0]), (const char *const *)words + 1, n - 1, &config,
                         error) != WEFT_OK)
        return error->status;
    config.build.tensor = ranks;
    config.build.training = training;
    *model = weft_model_build(g, &config);
    return weft_error_copy(error, weft_graph_error(g));
}

static weft_status feed_all(built *b)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < b->model.n_inputs; i++)
        status = feed_made_up(b->session, b->g, b->model.inputs[i], 0);
    return status;
}

/* Builds, runs twice, and finds the results: output, loss, gradients. */
static weft_status build(built *b, const char *text, weft_ranks ranks,
                         weft_communicator *communicator, int threads, bool training,
                         weft_error *error)
{
    *b = (built){.g = weft_graph_new(), .store = weft_params_new()};
    weft_status status = build_graph(b->g, text, ranks, training, &b->model, error);
    if (status != WEFT_OK) return status;
    b->n = test_params(b->g, b->params, MAX_PARAMS);
    b->targets[0] = b->model.outputs[0];
    b->targets[1] = b->model.loss;
    weft_grad(b->g, b->model.loss, b->params, b->n, b->targets + 2);
    const weft_session_options o = {.threads = threads,
                                    .communicators = &communicator,
                                    .n_communicators = communicator != NULL};
    status = weft_params_init(b->store, b->g, SEED, error);
    if (status == WEFT_OK)
        b->plan =
            weft_plan_new(b->g, b->targets, b->n + 2, &(weft_plan_options){.verify = true}, error);
    if (b->plan) b->session = weft_session_new(b->plan, b->store, &o, error);
    if (!b->session) return error->status;
    for (int i = 0; i < 2; i++)
        if (feed_all(b) != WEFT_OK || weft_session_run(b->session, error) != WEFT_OK)
            return error->status;
    for (size_t i = 0; i < b->n + 2; i++)
        weft_session_tensor(b->session, b->targets[i], &b->results[i], NULL);
    return WEFT_OK;
}

/* ---- Compared with the whole ---- */

typedef struct sample {
    const char *text;
    int size, forward, backward; /* ranks; all-reduces */
} sample;

typedef struct comparison {
    const sample *sample;
    const built *whole;
    double difference[MAX_RANKS][MAX_PARAMS + 2]; /* of each result, the largest */
    size_t parts[MAX_RANKS], sums[MAX_RANKS];
    bool same_start[MAX_RANKS], same_taken[MAX_RANKS], same_joined[MAX_RANKS];
    uint64_t hash[MAX_RANKS][2];
} comparison;

/* Where element i of a part is in the whole. */
static int64_t place_in_whole(weft_part part, weft_shape shape, int64_t i)
{
    if (!part.whole) return i;
    const int64_t n = shape.dim[part.axis];
    int64_t inner = 1;
    for (int d = part.axis + 1; d < shape.rank; d++) inner *= shape.dim[d];
    return (i / inner / n * part.whole + part.first + i / inner % n) * inner + i % inner;
}

static double difference(const weft_tensor *own, const weft_tensor *whole, weft_part part)
{
    double most = 0;
    for (int64_t i = 0; i < weft_shape_numel(own->shape); i++) {
        const double a = ((double *)own->data)[i];
        const double b = ((double *)whole->data)[place_in_whole(part, own->shape, i)];
        if (!(fabs(a - b) <= most)) most = fabs(a - b);
    }
    return most;
}

/* Whether all parameters of a rank are the parts of those of the whole. */
static bool are_parts(const built *b, const weft_params *store, const weft_params *whole)
{
    bool same = weft_params_count(store) == b->n;
    for (size_t i = 0; i < b->n; i++) {
        weft_tensor own, all;
        const char *name = weft_name_of(b->g, b->params[i]);
        same = same && weft_params_find(store, name, &own) && weft_params_find(whole, name, &all) &&
               difference(&own, &all, weft_part_of(b->g, b->params[i])) == 0;
    }
    return same;
}

static bool same_stores(const weft_params *a, const weft_params *b)
{
    bool same = weft_params_count(a) == weft_params_count(b);
    for (size_t i = 0; same && i < weft_params_count(a); i++) {
        weft_tensor x, y;
        same = weft_params_find(a, weft_params_name(a, i), &x) &&
               weft_params_find(b, weft_params_name(a, i), &y) &&
               weft_shape_equal(x.shape, y.shape) && test_same_tensors("x", &x, &y);
    }
    return same;
}

/* Takes the parts out of the whole, and joins them again. */
static void exchange_parts(comparison *c, int me, const built *b, rank *r)
{
    weft_params *taken = weft_params_new(), *joined = weft_params_new();
    if (weft_params_take_parts(taken, b->g, c->whole->store, &r->error) == WEFT_OK &&
        weft_params_join_parts(joined, b->g, taken, r->communicator, &r->error) == WEFT_OK) {
        c->same_taken[me] = are_parts(b, taken, c->whole->store);
        c->same_joined[me] = same_stores(joined, c->whole->store);
    }
    weft_params_free(taken);
    weft_params_free(joined);
}

static uint64_t hash_results(const built *b)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < b->n + 2; i++) {
        const weft_tensor *t = &b->results[i];
        for (size_t k = 0; k < weft_tensor_bytes(t->dtype, t->shape); k++)
            hash = (hash ^ ((unsigned char *)t->data)[k]) * 0x100000001b3u;
    }
    return hash;
}

static void compare(rank *r)
{
    comparison *c = r->shared;
    const int me = r->communicator->rank;
    for (int i = 0; i < 2; i++) {
        built b;
        if (build(&b, c->sample->text, (weft_ranks){0, me, c->sample->size}, r->communicator, 1 + i,
                  false, &r->error) == WEFT_OK)
            c->hash[me][i] = hash_results(&b);
        if (!i && r->error.status == WEFT_OK) {
            for (size_t k = 0; k < b.n + 2; k++) {
                const weft_part part =
                    k < 2 ? (weft_part){0, 0, 0} : weft_part_of(b.g, b.params[k - 2]);
                c->difference[me][k] = difference(&b.results[k], &c->whole->results[k], part);
                c->parts[me] += part.whole > 0;
            }
            for (size_t k = 0; k < weft_graph_node_count(b.g); k++)
                c->sums[me] += !strcmp(weft_graph_node(b.g, k).op->name, "sum_over_ranks");
            c->same_start[me] = are_parts(&b, b.store, c->whole->store);
            exchange_parts(c, me, &b, r);
        }
        built_free(&b);
    }
}

#define BLOCKS   "f64=1 d_model=16 heads=4 d_ff=24 batch=2 "
#define SEQUENCE "layers=2 length=5 vocab=13 "
#define PAIRS    "source_len=5 target_len=4 vocab=13 "

/* A backward all-reduce is left out where a layer reads the model's input. */
static const sample samples[] = {
    {"attention f64=1 d_model=16 heads=4 batch=2 length=5", 2, 1, 0},
    {"attention f64=1 d_model=16 heads=4 kv_heads=2 source_len=3 mask=both rotary_base=100", 2, 1,
     0},
    {"attention f64=1 d_model=16 heads=4 length=5 weights=1 out=1 bias=0", 4, 1, 0},
    {"feed-forward f64=1 d_model=6 d_ff=8", 2, 1, 0},
    {"feed-forward f64=1 d_model=6 d_ff=8 gated=1 activation=silu", 4, 1, 0},
    {"encoder length=5 layers=2 " BLOCKS, 2, 4, 3},
    {"encoder length=5 layers=1 projection=separate norm=pre " BLOCKS, 4, 2, 2},
    {"bert " BLOCKS SEQUENCE, 2, 4, 4},
    {"gpt " BLOCKS SEQUENCE, 2, 4, 4},
    {"gpt " BLOCKS SEQUENCE, 4, 4, 4},
    {"llama kv_heads=2 " BLOCKS SEQUENCE, 2, 4, 4},
    {"llama f64=1 d_model=16 heads=8 kv_heads=4 d_ff=8 batch=2 " SEQUENCE, 4, 4, 4},
    /* Each rank norms its own heads of q and k, and the gradients of gamma are summed. */
    {"llama kv_heads=2 head_dim=6 norm_qk=1 rotary_dim=4 " BLOCKS SEQUENCE, 2, 4, 8},
    {"llama kv_heads=2 norm_qk=1 gamma_plus_one=1 norm=both score_cap=2 window=2 global_every=2 "
     "local_rotary_base=9 " BLOCKS SEQUENCE,
     2, 4, 8},
    /* The memory's gradient is summed once for all layers. */
    {"transformer encoder_layers=1 decoder_layers=2 " BLOCKS PAIRS, 2, 8, 9},
    {"transformer encoder_layers=2 decoder_layers=1 projection=fused tied=0 " BLOCKS PAIRS, 4, 7,
     8},
};

static void check(const comparison *c, const rank *ranks)
{
    const sample *s = c->sample;
    expect_good(ranks, s->size);
    for (int r = 0; r < s->size; r++) {
        for (size_t k = 0; k < c->whole->n + 2; k++) {
            if (!(c->difference[r][k] <= ROUNDING_F64))
                printf("\n    %s on %d ranks: rank %d, %s: %g\n", s->text, s->size, r,
                       k == 0   ? "output"
                       : k == 1 ? "loss"
                                : weft_name_of(c->whole->g, c->whole->params[k - 2]),
                       c->difference[r][k]);
            CU_ASSERT_TRUE(c->difference[r][k] <= ROUNDING_F64);
        }
        CU_ASSERT_TRUE(c->parts[r] > 0);
        CU_ASSERT_EQUAL(c->sums[r], (size_t)(s->forward + s->backward));
        CU_ASSERT_TRUE(c->same_start[r] && c->same_taken[r] && c->same_joined[r]);
        CU_ASSERT_EQUAL(c->hash[r][0], c->hash[r][1]);
    }
}

static void test_split(void)
{
    rank ranks[MAX_RANKS];
    comparison *c = calloc(1, sizeof *c);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        weft_error error = WEFT_NO_ERROR;
        built whole;
        const weft_status status =
            build(&whole, samples[i].text, (weft_ranks){0, 0, 0}, NULL, 1, false, &error);
        if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        memset(c, 0, sizeof *c);
        c->sample = &samples[i];
        c->whole = &whole;
        run_ranks(samples[i].size, compare, c, ranks);
        check(c, ranks);
        built_free(&whole);
    }
    free(c);
}

/* ---- Dropout ---- */

#define DROPPED "transformer dropout=0.5 encoder_layers=1 decoder_layers=1 " BLOCKS PAIRS

/* Ranks draw other numbers for their own heads and hidden values, and the same for shared ones. */
static void test_keys(void)
{
    weft_graph *g[2] = {weft_graph_new(), weft_graph_new()};
    weft_built model;
    size_t same = 0, other = 0;
    for (int r = 0; r < 2; r++) {
        weft_error error = WEFT_NO_ERROR;
        CU_ASSERT_EQUAL_FATAL(
            build_graph(g[r], DROPPED, (weft_ranks){0, r, 2}, true, &model, &error), WEFT_OK);
    }
    CU_ASSERT_EQUAL_FATAL(weft_graph_node_count(g[0]), weft_graph_node_count(g[1]));
    for (size_t k = 0; k < weft_graph_node_count(g[0]); k++) {
        const weft_node_info a = weft_graph_node(g[0], k), b = weft_graph_node(g[1], k);
        if (!a.op->random) continue;
        if (memcmp(a.attr, b.attr, a.op->attr_size))
            other++;
        else
            same++;
    }
    CU_ASSERT_EQUAL(same, 7);  /* two of embeddings, five of results of sub-layers */
    CU_ASSERT_EQUAL(other, 5); /* three attentions, two feed-forward layers */
    weft_graph_free(g[0]);
    weft_graph_free(g[1]);
}

typedef struct dropped {
    double loss[MAX_RANKS];
} dropped;

static void drop(rank *r)
{
    const int me = r->communicator->rank;
    built b;
    if (build(&b, DROPPED, (weft_ranks){0, me, 2}, r->communicator, 1, true, &r->error) == WEFT_OK)
        ((dropped *)r->shared)->loss[me] = *(double *)b.results[1].data;
    built_free(&b);
}

static void test_dropout(void)
{
    rank ranks[MAX_RANKS];
    dropped d = {.loss = {0}};
    run_ranks(2, drop, &d, ranks);
    expect_good(ranks, 2);
    CU_ASSERT_TRUE(d.loss[0] > 0);
    CU_ASSERT_EQUAL(d.loss[0], d.loss[1]);
}

/* ---- Layers ---- */

typedef struct layers {
    double whole[96], split[MAX_RANKS][96];
} layers;

/* A mask that differs from head to head, and a step over states: [2, 3, 16]. */
static weft_value build_layers(weft_graph *g, weft_ranks ranks, weft_value x)
{
    bool mask[4 * 3 * 3];
    for (int i = 0; i < 36; i++) mask[i] = i % 4 == 1;
    const weft_cache cache = {.position = weft_cast(g, weft_scalar(g, WEFT_F64, 1), WEFT_I32),
                              .max_len = 4,
                              .key_len = 2};
    weft_nn_attention_options o = {.heads = 4, .kv_heads = 2, .tensor = ranks};
    weft_value step = weft_nn_attention_step(g, "step", weft_slice(g, x, 1, 0, 1, 1), &o, &cache);
    o.mask = weft_constant(g, WEFT_BOOL, WEFT_SHAPE(4, 3, 3), mask);
    return weft_add(g, weft_nn_attention(g, "masked", x, x, &o, NULL), step);
}

static weft_status run_layers(weft_ranks ranks, weft_communicator *communicator, double *out,
                              weft_error *error)
{
    built b = {.g = weft_graph_new(), .store = weft_params_new()};
    const weft_session_options o = {
        .threads = 1, .communicators = &communicator, .n_communicators = communicator != NULL};
    weft_value x = weft_input(b.g, "x", WEFT_F64, WEFT_SHAPE(2, 3, 16));
    weft_value y = build_layers(b.g, ranks, x);
    if (weft_params_init(b.store, b.g, SEED, error) == WEFT_OK)
        b.plan = weft_plan_new(b.g, &y, 1, NULL, error);
    if (b.plan) b.session = weft_session_new(b.plan, b.store, &o, error);
    if (b.session && feed_made_up(b.session, b.g, x, 0) == WEFT_OK &&
        weft_session_run(b.session, error) == WEFT_OK)
        weft_session_fetch(b.session, y, out, 96 * sizeof *out, error);
    built_free(&b);
    return error->status;
}

static void run_split_layers(rank *r)
{
    const int me = r->communicator->rank;
    run_layers((weft_ranks){0, me, 2}, r->communicator, ((layers *)r->shared)->split[me],
               &r->error);
}

static void test_layers(void)
{
    rank ranks[MAX_RANKS];
    layers l = {.whole = {0}};
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL_FATAL(run_layers((weft_ranks){0, 0, 0}, NULL, l.whole, &error), WEFT_OK);
    run_ranks(2, run_split_layers, &l, ranks);
    expect_good(ranks, 2);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 96; i++)
            CU_ASSERT_DOUBLE_EQUAL(l.split[r][i], l.whole[i], ROUNDING_F64);
}

/* ---- What cannot be split ---- */

static void test_refusals(void)
{
    static const struct {
        const char *text, *message;
        weft_ranks ranks;
    } refused[] = {
        {"attention d_model=9 heads=3", "must divide the heads", {0, 0, 2}},
        {"attention d_model=16 heads=4 kv_heads=1",
         "(4 heads, 1 of keys, d_model 16, 2 ranks)",
         {0, 0, 2}},
        {"attention out=0", "need the projection \"out\"", {0, 0, 2}},
        {"attention merge=as-written", "cannot be merged as rows", {0, 0, 2}},
        {"attention projection=shared", "separate or fused projections", {0, 0, 2}},
        {"feed-forward d_ff=9", "2 ranks do not divide d_ff 9", {0, 0, 2}},
        {"feed-forward", "rank 2 of 2 ranks", {0, 2, 2}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        weft_graph *g = weft_graph_new();
        weft_built model;
        weft_error error = WEFT_NO_ERROR;
        CU_ASSERT_EQUAL(build_graph(g, refused[i].text, refused[i].ranks, false, &model, &error),
                        WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, refused[i].message));
        if (!strstr(error.message, refused[i].message)) printf("\n    %s\n", error.message);
        weft_graph_free(g);
    }
}

void tensor_tests(void)
{
    CU_pSuite suite = CU_add_suite("tensor", NULL, NULL);
    CU_add_test(suite, "models on 2 and 4 ranks equal the whole", test_split);
    CU_add_test(suite, "keys of dropout", test_keys);
    CU_add_test(suite, "the same loss with dropout", test_dropout);
    CU_add_test(suite, "masks by head, and steps", test_layers);
    CU_add_test(suite, "what cannot be split", test_refusals);
}
