/* Memory: every allocation of a small training step, of scoring texts, of exchanges, parts,
 * stages and pieces, made to fail once, in turn. Each time there must be a status, no crash, and
 * nothing left allocated. The linker sends the library's allocations through the wrappers below
 * (--wrap). */
#include "tests.h"

#include <weft/parallel.h>
#include <weft/scan.h>
#include <weft/transform.h>
#include "pipeline.h"
#include "sharding.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);

static atomic_long live, calls, fail_at;
static _Thread_local long own_left; /* until one of this thread fails; 0: none does */

void test_fail_allocation(long n)
{
    own_left = n;
}

bool test_allocation_pending(void)
{
    return own_left > 0;
}

void test_every_allocation_fails(weft_status (*run)(weft_error *error), long least)
{
    bool pending = false;
    long n = 0;
    while (!pending && n < 1000) {
        weft_error error = {.status = WEFT_OK};
        test_fail_allocation(++n);
        const weft_status status = run(&error);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        CU_ASSERT_EQUAL(status, pending ? WEFT_OK : WEFT_NO_MEMORY);
        CU_ASSERT_EQUAL(error.status, status);
    }
    CU_ASSERT(pending && n > least);
}

static bool may(void)
{
    if (own_left && !--own_left) return false;
    long n = atomic_fetch_add(&calls, 1) + 1;
    return n != atomic_load(&fail_at);
}

static void *counted(void *memory)
{
    if (memory) atomic_fetch_add(&live, 1);
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return may() ? counted(__real_malloc(bytes)) : NULL;
}
void *__wrap_calloc(size_t n, size_t bytes)
{
    return may() ? counted(__real_calloc(n, bytes)) : NULL;
}
void *__wrap_realloc(void *old, size_t bytes)
{
    if (!may()) return NULL;
    void *memory = __real_realloc(old, bytes);
    return old ? memory : counted(memory);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return may() ? counted(__real_aligned_alloc(alignment, bytes)) : NULL;
}
void __wrap_free(void *memory)
{
    if (memory) atomic_fetch_sub(&live, 1);
    __real_free(memory);
}

/* Measures a run, reads the rows and draws them. */
static weft_status small_profile(weft_session *session)
{
    weft_error error = WEFT_NO_ERROR;
    weft_profile_table *table = NULL;
    weft_status status = weft_session_profile(session, true, &(weft_profile_options){1}, NULL);
    if (status == WEFT_OK) status = weft_session_run(session, NULL);
    const weft_profile *profile = weft_profile_of(session);
    if (status == WEFT_OK)
        table = weft_profile_table_new(profile, WEFT_PROFILE_BY_SCOPE, 1, NULL, &error);
    if (status == WEFT_OK) status = error.status;
    weft_profile_table_free(table);
    FILE *nothing = fopen("/dev/null", "w");
    if (status == WEFT_OK && nothing) status = weft_profile_write_dot(profile, nothing, NULL);
    if (nothing) fclose(nothing);
    return status;
}

/* Declares a two-layer network, its training step, plans it, runs and measures it, saves and loads
 * it.
 * Returns the first status that is not WEFT_OK. */
static weft_status small_train_step(const char *path)
{
    weft_error error = {0};
    weft_status status = WEFT_OK;
    weft_graph *g = weft_graph_new();
    weft_value ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(4));
    weft_value targets = weft_input(g, "targets", WEFT_I32, WEFT_SHAPE(4));
    weft_value table =
        weft_param(g, "table", WEFT_F32, WEFT_SHAPE(8, 6), (weft_init){WEFT_INIT_NORMAL, 0, 1});
    weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(6, 8), WEFT_INIT_XAVIER);
    weft_value h =
        weft_layer_norm(g, weft_embedding(g, table, ids, -1), WEFT_NO_VALUE, WEFT_NO_VALUE, 1e-5);
    weft_value logits = weft_einsum(g, "ij,jk->ik", weft_gelu(g, h), w);
    weft_value loss = weft_cross_entropy_loss(g, logits, targets, NULL);
    weft_value lr = weft_scalar(g, WEFT_F32, 0.01);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value params[2] = {table, w};
    weft_value step = weft_train_update(g, loss, params, 2, lr, &adam, NULL);
    weft_params *store = weft_params_new(), *copy = weft_params_new();
    weft_plan *plan = NULL;
    weft_session *session = NULL;
    static const int32_t data[4] = {1, 2, 3, 4};
    weft_value wanted[2] = {loss, step};

    status = g ? weft_graph_status(g) : WEFT_NO_MEMORY;
    if (status == WEFT_OK && (!store || !copy)) status = WEFT_NO_MEMORY;
    if (status == WEFT_OK) status = weft_params_init(store, g, 1, &error);
    if (status == WEFT_OK) {
        plan = weft_plan_new(g, wanted, 2, &(weft_plan_options){.verify = true}, &error);
        if (!plan) status = error.status;
    }
    if (status == WEFT_OK) {
        session = weft_session_new(plan, store, NULL, &error);
        if (!session) status = error.status;
    }
    /* Items whose packing takes a search. */
    weft_pack_item items[7] = {{0, 3, 2, 0}, {0, 1, 2, 0},  {1, 9, 1, 0}, {2, 7, 1, 0},
                               {3, 9, 1, 0}, {7, 11, 2, 0}, {9, 13, 2, 0}};
    weft_pack_result packed;
    if (status == WEFT_OK) status = weft_pack(items, 7, NULL, &packed, &error);
    if (status == WEFT_OK) status = weft_session_feed(session, ids, data, sizeof data, NULL);
    if (status == WEFT_OK) status = weft_session_feed(session, targets, data, sizeof data, NULL);
    for (int i = 0; i < 2 && status == WEFT_OK; i++) status = weft_session_run(session, NULL);
    if (status == WEFT_OK) status = small_profile(session);
    if (status == WEFT_OK) status = weft_params_save(store, path, NULL, &error);
    if (status == WEFT_OK) status = weft_params_load(copy, path, &error);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_params_free(copy);
    weft_graph_free(g);
    return status;
}

/* A token chosen from a few candidates. */
static weft_status small_choice(void)
{
    double logs[200];
    for (int i = 0; i < 200; i++) logs[i] = -0.01 * (i * 37 % 200) - 5;
    const weft_tensor t = weft_tensor_dense(logs, WEFT_F64, WEFT_SHAPE(1, 200));
    const weft_sampling_row row = {.log_probs = &t, .key = 3};
    weft_sampled_token chosen;
    weft_error error = {0};
    weft_sampler *sampler = weft_sampler_new(200, &error);
    weft_status status = error.status;
    if (sampler)
        status = weft_sampler_choose(sampler, &(weft_sampling_options){.top_k = 9}, &row, &chosen,
                                     &error);
    weft_sampler_free(sampler);
    return status;
}

/* Scores two texts of unlike lengths, each in passes of its own, and chooses a token. */
static weft_status small_score(const char *path)
{
    (void)path;
    static const char *const texts[] = {"vocab=13", "d_model=8",    "heads=2",
                                        "d_ff=8",   "batch=1",      "encoder_layers=1",
                                        "tied=0",   "target_len=8", "decoder_layers=1"};
    static const int32_t tokens[12] = {2, 5, 6, 7, 8, 9, 10, 11, 12, 4, 4, 3};
    double scores[24];
    weft_model_config config;
    const weft_scorer_row rows[2] = {{tokens, 2, tokens, 4, scores},
                                     {tokens, 2, tokens, 12, scores}};
    weft_error error = {0};
    weft_scorer *scorer = NULL;
    const weft_model *model = weft_model_find("transformer");
    weft_status status = weft_model_parse(model, texts, 9, &config, &error);
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    if (status == WEFT_OK) status = g && params ? WEFT_OK : WEFT_NO_MEMORY;
    if (status == WEFT_OK) weft_model_build(g, &config);
    if (status == WEFT_OK) status = weft_graph_status(g);
    if (status == WEFT_OK) status = weft_params_init(params, g, 1, &error);
    weft_graph_free(g);
    for (int weights = 0; weights < 2; weights++) {
        const weft_scorer_options o = {.weights = weights};
        if (status == WEFT_OK) {
            scorer = weft_scorer_new(&config, params, &o, &error);
            status = scorer ? weft_scorer_run(scorer, rows, 2, &error) : error.status;
        }
        weft_scorer_free(scorer);
        scorer = NULL;
    }
    if (status == WEFT_OK) status = small_choice();
    weft_params_free(params);
    return status;
}

/* Exchanges among five ranks, all started by this thread, and a part made of a communicator. */
static weft_status small_exchanges(const char *path)
{
    (void)path;
    enum { RANKS = 5, ROUNDS = 8 };
    static const size_t sizes[RANKS] = {1, 1, 1, 1, 1};
    static char from[RANKS], to[RANKS][RANKS];
    weft_communicator *all[RANKS] = {0}, *alone = NULL, *part = NULL;
    weft_error error = {0};
    weft_status status = weft_communicator_new_threads(RANKS, 0, all, &error);
    for (int i = 0; i < ROUNDS && status == WEFT_OK; i++) {
        void *requests[RANKS];
        for (int r = 0; r < RANKS && status == WEFT_OK; r++) {
            const weft_exchange x = {
                .kind = WEFT_ALL_TO_ALL,
                .send = from,
                .receive = to[r],
                .send_bytes = sizes,
                .receive_bytes = sizes,
            };
            status = weft_communicator_start(all[r], &x, &requests[r], &error);
        }
        for (int r = 0; r < RANKS && status == WEFT_OK; r++)
            status = weft_communicator_wait(all[r], requests[r], &error);
    }
    for (int r = 0; r < RANKS; r++) weft_communicator_free(all[r]);
    if (status == WEFT_OK) status = weft_communicator_new_threads(1, 0, &alone, &error);
    if (status == WEFT_OK) status = alone->split(alone->context, 0, &part, &error);
    weft_communicator_free(part);
    weft_communicator_free(alone);
    return status;
}

/* Every collective, as rank 1 of 2, and its gradient, planned. */
static weft_status small_collectives(weft_graph *g)
{
    const weft_ranks ranks = {0, 1, 2};
    weft_error error = {0};
    weft_value x = weft_param(g, "x", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_ONES);
    weft_value y = weft_reduce_scatter(g, ranks, weft_all_gather(g, ranks, x));
    y = weft_sum_to_rank(g, ranks, weft_broadcast_ranks(g, ranks, y, 0), 0);
    y = weft_all_reduce(g, ranks, y);
    weft_value received =
        weft_receive(g, ranks, WEFT_F32, WEFT_SHAPE(2, 3), 0, 1, weft_send(g, ranks, y, 0, 1));
    weft_value loss = weft_mse_loss(g, y, received, WEFT_REDUCE_MEAN), targets[2] = {loss};
    weft_grad(g, loss, &x, 1, &targets[1]);
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
    weft_plan_free(plan);
    return plan ? WEFT_OK : error.status;
}

/* The transforms of a small loss, planned. */
static weft_status small_transforms(const char *path)
{
    (void)path;
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value targets[5] = {{0, 0}};
    if (!g) return WEFT_NO_MEMORY;
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3));
    const weft_value xs = weft_input(g, "xs", WEFT_F32, WEFT_SHAPE(2, 3));
    const weft_value y = weft_softmax(g, weft_tanh(g, x), 0);
    const weft_value loss = weft_sum(g, weft_square(g, y), WEFT_ALL_AXES, false);
    weft_jvp(g, &y, 1, &x, &x, 1, &targets[0]);
    weft_hvp(g, loss, &x, &x, 1, &targets[1]);
    weft_jacobian(g, &y, 1, &x, 1, &targets[2]);
    weft_hessian(g, loss, &x, 1, &targets[3]);
    weft_vmap(g, &targets[1], 1, &x, &xs, 1, &targets[4]);
    weft_plan *plan = weft_plan_new(g, targets, 5, NULL, &error);
    weft_plan_free(plan);
    weft_graph_free(g);
    return plan ? WEFT_OK : error.status;
}

/* out = -out if its sum is positive. */
static void negate_positive(weft_graph *g, weft_graph *branch, weft_value *out)
{
    const weft_value all = weft_sum(g, *out, WEFT_ALL_AXES, false);
    const weft_value x = weft_input(branch, "x", WEFT_F32, WEFT_SHAPE(3)),
                     minus = weft_neg(branch, x);
    const weft_branch yes = {branch, 1, &x, out, &minus}, no = {branch, 1, &x, out, &x};
    weft_cond(g, weft_greater(g, all, weft_scalar(g, WEFT_F32, 0)), &yes, &no, 1, out);
}

/* A loop, a branch and their gradient, planned and run. */
static weft_status small_loop(const char *path)
{
    (void)path;
    weft_error error = {0};
    weft_graph *g = weft_graph_new(), *b = weft_graph_new(), *branch = weft_graph_new();
    weft_session *s = NULL;
    weft_plan *plan = NULL;
    if (g && b && branch) {
        const weft_value h = weft_input(b, "h", WEFT_F32, WEFT_SHAPE(3));
        const weft_value x = weft_input(b, "x", WEFT_F32, WEFT_SHAPE(3));
        const weft_value next = weft_tanh(b, weft_mul(b, h, x));
        const weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(3));
        const weft_value xs = weft_input(g, "xs", WEFT_F32, WEFT_SHAPE(4, 3));
        const weft_scan_body body = {
            .graph = b, .n_carry = 1, .carry_in = &h, .carry_out = &next, .n_each = 1, .each = &x};
        const weft_scan_inputs inputs = {.carry = &start, .each = &xs};
        const weft_value all = weft_sum(b, next, WEFT_ALL_AXES, false);
        const weft_value go_on = weft_greater(b, all, weft_scalar(b, WEFT_F32, 0));
        weft_value last = WEFT_NO_VALUE, targets[3] = {{0, 0}};
        weft_input_default(g, start, 0.5);
        weft_input_default(g, xs, 0.5);
        const weft_while_steps steps = {.most = 4, .go_on = go_on};
        weft_while(g, &body, &steps, &inputs, &last, NULL, &targets[2]);
        negate_positive(g, branch, &last);
        targets[1] = weft_sum(g, last, WEFT_ALL_AXES, false);
        weft_grad(g, targets[1], &xs, 1, &targets[0]);
        plan = weft_plan_new(g, targets, 3, NULL, &error);
    } else {
        error.status = WEFT_NO_MEMORY;
    }
    if (plan) s = weft_session_new(plan, NULL, NULL, &error);
    if (s) weft_session_run(s, &error);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(branch);
    weft_graph_free(b);
    weft_graph_free(g);
    return error.status;
}

/* The update of process 1 of 2 with parts of a model, and piece 0 of 2 of its parameters, planned.
 */
static weft_status small_split(const char *path)
{
    (void)path;
    weft_error error = {0};
    const bool counted[2] = {true, false};
    const weft_model_split model = weft__model_split_of((weft_ranks){1, 1, 2}, counted);
    weft_optimizer o = {.max_norm = 1, .guard = true, .model = &model};
    weft_value p[2], grads[2], step;
    weft_graph *g = weft_graph_new();
    if (!g) return WEFT_NO_MEMORY;
    p[0] =
        weft_param_part(g, "a", WEFT_F32, WEFT_SHAPE(3, 2), WEFT_INIT_ONES, (weft_part){1, 0, 4});
    p[1] = weft_param(g, "b", WEFT_F32, WEFT_SHAPE(5), WEFT_INIT_ONES);
    weft_shards *s =
        weft__shards_new(g, p, 2, (weft_ranks){0, 0, 2},
                         &(weft_shards_options){.alone = counted, .optimizer = &o}, &error);
    for (int i = 0; s && i < 2; i++)
        grads[i] = weft__shards_slice(g, s, weft_name_of(g, p[i]), p[i]);
    o.shards = s;
    if (s)
        step = weft_apply_gradients(g, &(weft_gradients){p, grads, 2, WEFT_NO_VALUE},
                                    weft_scalar(g, WEFT_F32, 0.1), &o, NULL, NULL);
    weft_plan *plan = s ? weft_plan_new(g, &step, 1, NULL, &error) : NULL;
    weft__shards_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return plan ? WEFT_OK : error.status;
}

/* Collectives, and a part that is taken and joined. */
static weft_status small_parts(const char *path)
{
    (void)path;
    weft_error error = {0};
    weft_graph *g = weft_graph_new(), *collectives = weft_graph_new();
    weft_params *whole = weft_params_new(), *own = weft_params_new(), *joined = weft_params_new();
    weft_communicator *alone = weft_communicator_new_self();
    weft_param_part(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_XAVIER, (weft_part){1, 0, 3});
    weft_status status = WEFT_NO_MEMORY;
    if (g && collectives && whole && own && joined && alone)
        status = small_collectives(collectives);
    if (status == WEFT_OK) status = weft_params_init(whole, g, 1, &error);
    if (status == WEFT_OK) status = weft_params_take_parts(own, g, whole, &error);
    if (status == WEFT_OK) status = weft_params_join_parts(joined, g, own, alone, &error);
    if (status == WEFT_OK) status = weft_params_set_meta(whole, "key", "text", NULL);
    if (status == WEFT_OK) status = weft_params_copy_meta(own, whole, NULL);
    if (status == WEFT_OK) status = weft_params_keep_parts(whole, g, &weft_model_states, &error);
    weft_communicator_free(alone);
    weft_params_free(joined);
    weft_params_free(own);
    weft_params_free(whole);
    weft_graph_free(collectives);
    weft_graph_free(g);
    return status;
}

/* Stage 1 of 3 of a small graph, with its backward pass, planned. */
static weft_status small_stage(weft_graph *whole)
{
    weft_error error = {0};
    weft_value pause, targets[2], w, y = weft_input(whole, "x", WEFT_F32, WEFT_SHAPE(2, 512));
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        w = weft_param(whole, name, WEFT_F32, WEFT_SHAPE(512, 512), WEFT_INIT_XAVIER);
        y = weft_tanh(whole, weft_matmul(whole, y, w));
    }
    weft_value loss = weft_sum(whole, y, WEFT_ALL_AXES, false);
    weft_stage *stage = weft__stage_new(whole, &loss, 1, true, (weft_ranks){0, 1, 3}, &error);
    if (!stage) return error.status;
    weft_graph *g = weft__stage_graph(stage);
    size_t n;
    const weft_value *params = weft_graph_params(g, &n);
    if (n) w = params[0];
    const weft_value none = WEFT_NO_VALUE;
    targets[0] = weft__stage_grad(stage, &(weft_grad_values){&loss, &none, 1, &w, 1}, &targets[1],
                                  NULL, &pause);
    weft__stage_free(stage);
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
    weft_plan_free(plan);
    weft_graph_free(g);
    return plan ? WEFT_OK : error.status;
}

static weft_status small_stages(const char *path)
{
    (void)path;
    weft_graph *whole = weft_graph_new();
    const weft_status status = whole ? small_stage(whole) : WEFT_NO_MEMORY;
    weft_graph_free(whole);
    return status;
}

static weft_value gathered_again(void *context, weft_value value)
{
    return weft__gathered_again(context, value);
}

/* The gradients of parameters in pieces, which both passes gather, as rank 1 of 2, planned. */
static weft_status small_copy(weft_gathered *x, weft_value whole_loss)
{
    weft_error error = {0};
    weft_value targets[3] = {{0, 0}};
    weft_graph *g = weft__gathered_graph(x);
    const weft_value loss = weft__gathered_value(x, whole_loss), one = weft_scalar(g, WEFT_F32, 1);
    const weft_grad_hooks ready = {.context = x, .again = gathered_again};
    size_t n;
    const weft_value *params = weft__gathered_params(x, &n);
    weft_grad_each(g, &(weft_grad_values){&loss, &one, 1, params, n}, targets, &ready);
    weft_plan *plan = weft_plan_new(g, targets, n, NULL, &error);
    weft_plan_free(plan);
    weft_graph_free(g);
    return plan ? WEFT_OK : error.status;
}

static weft_status small_gathered(const char *path)
{
    (void)path;
    weft_error error = {0};
    weft_value w[3], loss;
    weft_graph *g = weft_graph_new();
    if (!g) return WEFT_NO_MEMORY;
    loss = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 8));
    for (int i = 0; i < 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        w[i] = weft_param(g, name, WEFT_F32, WEFT_SHAPE(8, 8), WEFT_INIT_XAVIER);
        const weft_value view = weft_transpose(g, w[i], 0, 1);
        loss = weft_tanh(g, weft_matmul(g, loss, view));
    }
    loss = weft_sum(g, loss, WEFT_ALL_AXES, false);
    weft_shards *s = weft__shards_new(g, w, 3, (weft_ranks){0, 1, 2},
                                      &(weft_shards_options){.bucket_bytes = 256}, &error);
    weft_gathered *x = s ? weft__gathered_new(g, s, &error) : NULL;
    const weft_status status = x ? small_copy(x, loss) : error.status;
    weft__gathered_free(x);
    weft__shards_free(s);
    weft_graph_free(g);
    return status;
}

void test_fail_all(weft_status (*work)(const char *path))
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-memory-%ld.safetensors", (long)getpid());
    CU_ASSERT_EQUAL_FATAL(work(path), WEFT_OK);
    long before = atomic_load(&live), n = 0, unseen = 0;
    bool leaked = false;
    for (n = 1; n < 100000; n++) {
        atomic_store(&calls, 0);
        atomic_store(&fail_at, n);
        weft_status status = work(path);
        bool reached = atomic_load(&calls) >= n;
        atomic_store(&fail_at, 0);
        if (reached && status != WEFT_NO_MEMORY) {
            if (unseen++ < 5)
                fprintf(stderr, "\n    allocation %ld failed, the status was \"%s\"\n", n,
                        weft_status_text(status));
        }
        if (atomic_load(&live) != before) {
            if (!leaked) fprintf(stderr, "\n    leak after allocation %ld failed\n", n);
            leaked = true;
            before = atomic_load(&live);
        }
        if (!reached) break;
    }
    CU_ASSERT_TRUE(n > 50);
    CU_ASSERT_EQUAL(unseen, 0);
    CU_ASSERT_FALSE(leaked);
    unlink(path);
}

static void test_failing_allocations(void)
{
    test_fail_all(small_train_step);
}

static void test_failing_exchanges(void)
{
    test_fail_all(small_exchanges);
}

static void test_failing_parts(void)
{
    test_fail_all(small_parts);
}

static void test_failing_split(void)
{
    test_fail_all(small_split);
}

static void test_failing_stages(void)
{
    test_fail_all(small_stages);
}

static void test_failing_gathered(void)
{
    test_fail_all(small_gathered);
}

static void test_failing_transforms(void)
{
    test_fail_all(small_transforms);
}

static void test_failing_loop(void)
{
    test_fail_all(small_loop);
}

static void test_failing_scores(void)
{
    test_fail_all(small_score);
}

void memory_tests(void)
{
    CU_pSuite suite = CU_add_suite("memory", NULL, NULL);
    CU_add_test(suite, "every allocation fails once", test_failing_allocations);
    CU_add_test(suite, "every allocation of scoring fails once", test_failing_scores);
    CU_add_test(suite, "every allocation of transforms fails once", test_failing_transforms);
    CU_add_test(suite, "every allocation of a loop fails once", test_failing_loop);
    CU_add_test(suite, "every allocation of exchanges fails once", test_failing_exchanges);
    CU_add_test(suite, "every allocation of collectives and parts fails once", test_failing_parts);
    CU_add_test(suite, "every allocation of a split model's step fails once", test_failing_split);
    CU_add_test(suite, "every allocation of a stage fails once", test_failing_stages);
    CU_add_test(suite, "every allocation of parameters in pieces fails once",
                test_failing_gathered);
}
