/* One rule for all option structs: NULL is a zeroed struct, and a zero field its default. Each
 * function is called with NULL, with zeros and with the defaults that the header names; all three
 * must give the same bits. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING, ZEROS, DEFAULTS, WAYS };
#define CHOOSE(way, zeros, defaults)                                                               \
    ((way) == NOTHING ? NULL : (way) == ZEROS ? (zeros) : (defaults))

#define MOST 256

/* ---- Values of graphs ---- */

/* A pseudo-random constant. */
static weft_value constant(weft_graph *g, weft_shape shape, uint64_t seed)
{
    double data[MOST];
    int64_t n = weft_shape_numel(shape);
    CU_ASSERT_TRUE_FATAL(n <= MOST);
    for (int64_t i = 0; i < n; i++) data[i] = test_uniform(&seed, -1, 1);
    return weft_constant(g, WEFT_F64, shape, data);
}

/* Runs the plan of one value and copies it out; the status of the first failure. */
static weft_status evaluate(weft_graph *g, weft_value target, double *out, size_t n,
                            weft_error *error)
{
    weft_params *store = weft_params_new();
    *error = *weft_graph_error(g);
    weft_plan *plan = weft_plan_new(g, &target, 1, NULL, error);
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 1, error) == WEFT_OK)
        s = weft_session_new(plan, store, NULL, error);
    if (s && weft_session_run(s, error) == WEFT_OK)
        weft_session_fetch(s, target, out, n * sizeof *out, error);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    return error->status;
}

typedef weft_value (*built)(weft_graph *g, int way);

/* The value of n elements is the same whichever way the options are given. */
static void check_ways(built build, size_t n)
{
    double out[WAYS][MOST];
    for (int way = 0; way < WAYS; way++) {
        weft_error error;
        weft_graph *g = weft_graph_new();
        weft_value y = build(g, way);
        CU_ASSERT_EQUAL(weft_shape_numel(weft_shape_of(g, y)), (int64_t)n);
        weft_status status = evaluate(g, y, out[way], n, &error);
        if (status != WEFT_OK) printf("\n    way %d: %s: %s\n", way, error.where, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        weft_graph_free(g);
    }
    EXPECT_SAME_BITS(WEFT_F64, out[NOTHING], out[DEFAULTS], n);
    EXPECT_SAME_BITS(WEFT_F64, out[ZEROS], out[DEFAULTS], n);
}

/* ---- Ops ---- */

/* The cross entropy of two rows whose targets are class 0 and class 1. */
static weft_status entropy(const weft_cross_entropy_loss_options *options, double *loss,
                           weft_error *error)
{
    static const double logits[2][2] = {{1, 3}, {2, -1}};
    static const int32_t targets[2] = {0, 1};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_constant(g, WEFT_F64, WEFT_SHAPE(2, 2), logits);
    weft_value y = weft_constant(g, WEFT_I32, WEFT_SHAPE(2), targets);
    *loss = NAN;
    weft_status status = evaluate(g, weft_cross_entropy_loss(g, x, y, options), loss, 1, error);
    weft_graph_free(g);
    return status;
}

static void test_cross_entropy(void)
{
    const double rows[2] = {log1p(exp(2)), log1p(exp(3))};
    double loss;
    weft_error error;
    weft_cross_entropy_loss_options o = {0};
    CU_ASSERT_EQUAL(entropy(NULL, &loss, &error), WEFT_OK);
    CU_ASSERT_DOUBLE_EQUAL(loss, (rows[0] + rows[1]) / 2, ROUNDING_F64);
    CU_ASSERT_EQUAL(entropy(&o, &loss, &error), WEFT_OK);
    CU_ASSERT_DOUBLE_EQUAL(loss, (rows[0] + rows[1]) / 2, ROUNDING_F64);
    /* Class 0 is ignored if that is asked for. */
    o.has_ignore_index = true;
    CU_ASSERT_EQUAL(entropy(&o, &loss, &error), WEFT_OK);
    CU_ASSERT_DOUBLE_EQUAL(loss, rows[1], ROUNDING_F64);
    o.ignore_index = 1;
    CU_ASSERT_EQUAL(entropy(&o, &loss, &error), WEFT_OK);
    CU_ASSERT_DOUBLE_EQUAL(loss, rows[0], ROUNDING_F64);
    /* An index that would not be read is a mistake. */
    o.has_ignore_index = false;
    CU_ASSERT_EQUAL(entropy(&o, &loss, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "ignore_index is 1, but has_ignore_index is"));
}

static weft_value attend(weft_graph *g, int way)
{
    weft_sdpa_options zeros = {0}, defaults = {.scale = 0.5, .mask = WEFT_NO_VALUE};
    weft_value q = constant(g, WEFT_SHAPE(2, 3, 2, 4), 1),
               k = constant(g, WEFT_SHAPE(2, 3, 2, 4), 2);
    return weft_sdpa(g, q, k, k, CHOOSE(way, &zeros, &defaults));
}

static weft_value adam(weft_graph *g, int way)
{
    weft_adam_options zeros = {0}, defaults = {0.9, 0.98, 1e-9, 0, false, 0};
    weft_value state[3];
    for (int i = 0; i < 3; i++) {
        char name[2] = {(char)('a' + i), 0};
        state[i] = weft_state(g, name, WEFT_F64, WEFT_SHAPE(5),
                              (weft_init){WEFT_INIT_CONSTANT, 0.5 + i, 0});
    }
    weft_value lr = weft_scalar(g, WEFT_F64, 0.1), t = weft_scalar(g, WEFT_F64, 3);
    return weft_adam_update(g,
                            &(weft_adam_values){state[0], state[1], state[2],
                                                constant(g, WEFT_SHAPE(5), 3), lr, t,
                                                WEFT_NO_VALUE},
                            CHOOSE(way, &zeros, &defaults));
}

static weft_value sgd(weft_graph *g, int way)
{
    weft_sgd_options zeros = {0}, defaults = {.momentum = WEFT_ZERO, .weight_decay = WEFT_ZERO};
    weft_value w = weft_state(g, "w", WEFT_F64, WEFT_SHAPE(5), WEFT_INIT_ONES);
    return weft_sgd_update(g, w, WEFT_NO_VALUE, constant(g, WEFT_SHAPE(5), 3),
                           weft_scalar(g, WEFT_F64, 0.1), WEFT_NO_VALUE,
                           CHOOSE(way, &zeros, &defaults));
}

static void test_ops(void)
{
    check_ways(attend, 48);
    check_ways(adam, 5);
    check_ways(sgd, 5);
}

/* WEFT_ZERO is zero: with betas of zero the first step of Adam is lr g / (|g| + eps). */
static void test_real_zero(void)
{
    const double at[2] = {3, -0.5};
    double out[2];
    weft_error error;
    for (int zero_eps = 0; zero_eps < 2; zero_eps++) {
        weft_graph *g = weft_graph_new();
        weft_adam_options o = {.beta1 = WEFT_ZERO,
                               .beta2 = WEFT_ZERO,
                               .eps = zero_eps ? WEFT_ZERO : 0.25,
                               .weight_decay = WEFT_ZERO};
        weft_value w = weft_state(g, "w", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ZEROS);
        weft_value m = weft_state(g, "m", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ONES);
        weft_value v = weft_state(g, "v", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ONES);
        weft_value grad = weft_constant(g, WEFT_F64, WEFT_SHAPE(2), at);
        weft_value one = weft_scalar(g, WEFT_F64, 1);
        weft_value y =
            weft_adam_update(g, &(weft_adam_values){w, m, v, grad, one, one, WEFT_NO_VALUE}, &o);
        CU_ASSERT_EQUAL(evaluate(g, y, out, 2, &error), WEFT_OK);
        /* Nine roundings of 2^-53 of numbers up to 1. */
        for (int i = 0; i < 2; i++)
            CU_ASSERT_DOUBLE_EQUAL(out[i], -at[i] / (fabs(at[i]) + (zero_eps ? 0 : 0.25)), 1e-15);
        weft_graph_free(g);
    }
}

/* Each number but 0 is itself, -1 as well. */
static void test_option(void)
{
    CU_ASSERT_EQUAL(weft_option(0, 3), 3);
    CU_ASSERT_EQUAL(weft_option(WEFT_ZERO, 3), 0);
    CU_ASSERT_FALSE(signbit(weft_option(WEFT_ZERO, 3)));
    CU_ASSERT_EQUAL(weft_option(-1, 3), -1);
    CU_ASSERT_EQUAL(weft_option(0.5, 3), 0.5);
}

static void refuse_adam(weft_adam_options o, const char *message)
{
    weft_graph *g = weft_graph_new();
    weft_value w = weft_state(g, "w", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ZEROS);
    weft_value one = weft_scalar(g, WEFT_F64, 1);
    weft_adam_update(g, &(weft_adam_values){w, w, w, w, one, one, WEFT_NO_VALUE}, &o);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, message));
    weft_graph_free(g);
}

static void test_ranges(void)
{
    refuse_adam((weft_adam_options){.beta1 = -1}, "beta1 is -1, it must be in [0, 1)");
    refuse_adam((weft_adam_options){.beta1 = 1}, "beta1 is 1, it must be in [0, 1)");
    refuse_adam((weft_adam_options){.beta2 = -0.5}, "beta2 is -0.5");
    refuse_adam((weft_adam_options){.eps = NAN}, "eps is");
    refuse_adam((weft_adam_options){.weight_decay = -2}, "weight_decay is -2");
}

/* ---- Layers ---- */

static weft_value feed_forward(weft_graph *g, int way)
{
    weft_nn_feed_forward_options zeros = {0}, defaults = {.d_ff = 12, .activation = WEFT_RELU};
    return weft_nn_feed_forward(g, "ffn", constant(g, WEFT_SHAPE(2, 5, 3), 1),
                                CHOOSE(way, &zeros, &defaults));
}

static weft_value attention(weft_graph *g, int way)
{
    weft_nn_attention_options zeros = {0};
    weft_nn_attention_options defaults = {
        .heads = 1, .kv_heads = 1, .projection = WEFT_PROJECT_SEPARATE, .scale = 0.5};
    weft_value x = constant(g, WEFT_SHAPE(2, 5, 4), 1);
    return weft_nn_attention(g, "attn", x, x, CHOOSE(way, &zeros, &defaults), NULL);
}

static weft_value attention_step(weft_graph *g, int way)
{
    weft_nn_attention_options zeros = {0}, defaults = {.heads = 1, .scale = 0.5};
    weft_cache cache = {.position = weft_cast(g, weft_scalar(g, WEFT_F64, 1), WEFT_I32),
                        .parents = WEFT_NO_VALUE,
                        .max_len = 4,
                        .key_len = 3};
    return weft_nn_attention_step(g, "attn", constant(g, WEFT_SHAPE(2, 1, 4), 1),
                                  CHOOSE(way, &zeros, &defaults), &cache);
}

static const weft_nn_block_options block_defaults = {.attention = {.heads = 1},
                                                     .feed_forward = {.d_ff = 16},
                                                     .norm = WEFT_LAYER_NORM,
                                                     .norm_position = WEFT_PRE_NORM,
                                                     .eps = 1e-5};

static weft_value block(weft_graph *g, int way)
{
    weft_nn_block_options zeros = {0};
    weft_value x = constant(g, WEFT_SHAPE(2, 5, 4), 1),
               memory = constant(g, WEFT_SHAPE(2, 3, 4), 2);
    return weft_nn_block(g, x, memory, WEFT_NO_VALUE, CHOOSE(way, &zeros, &block_defaults));
}

static weft_value stack(weft_graph *g, int way)
{
    weft_nn_block_options zeros = {0};
    return weft_nn_stack(g, "enc", 2, constant(g, WEFT_SHAPE(2, 5, 4), 1), WEFT_NO_VALUE,
                         WEFT_NO_VALUE, CHOOSE(way, &zeros, &block_defaults));
}

static weft_value recurrent(weft_graph *g, int way)
{
    weft_nn_recurrent_options zeros = {0};
    weft_nn_recurrent_options defaults = {.initial = {WEFT_NO_VALUE, WEFT_NO_VALUE}};
    return weft_nn_recurrent(g, "l", WEFT_LSTM, constant(g, WEFT_SHAPE(2, 4, 3), 1), 5,
                             CHOOSE(way, &zeros, &defaults), NULL);
}

static weft_value recurrent_stack(weft_graph *g, int way)
{
    weft_nn_recurrent_stack_options zeros = {0}, defaults = {.layers = 1};
    return weft_nn_recurrent_stack(g, "s", WEFT_GRU, constant(g, WEFT_SHAPE(2, 4, 3), 1), 5,
                                   CHOOSE(way, &zeros, &defaults), NULL);
}

static void test_layers(void)
{
    check_ways(feed_forward, 30);
    check_ways(attention, 40);
    check_ways(attention_step, 8);
    check_ways(block, 40);
    check_ways(stack, 40);
    check_ways(recurrent, 40);
    check_ways(recurrent_stack, 40);
}

/* A norm without eps divides by zero where a row is constant; the default does not. */
static void test_zero_eps(void)
{
    double out[4];
    weft_error error;
    for (int zero = 0; zero < 2; zero++) {
        weft_graph *g = weft_graph_new();
        weft_nn_block_options o = {.eps = zero ? WEFT_ZERO : 0};
        weft_value x = weft_fill(g, WEFT_F64, WEFT_SHAPE(1, 1, 4), 2);
        weft_value y = weft_nn_stack(g, "enc", 0, x, WEFT_NO_VALUE, WEFT_NO_VALUE, &o);
        CU_ASSERT_EQUAL(evaluate(g, y, out, 4, &error), WEFT_OK);
        CU_ASSERT_EQUAL(isnan(out[0]), zero != 0);
        weft_graph_free(g);
    }
}

/* ---- Plans, sessions, packing, drawing ---- */

static void test_plans(void)
{
    double out[WAYS][48];
    size_t arena[WAYS], length[WAYS];
    for (int way = 0; way < WAYS; way++) {
        weft_plan_options plan_zeros = {0}, plan_defaults = {.skip = ""};
        weft_session_options zeros = {0}, defaults = {.threads = 0, .seed = 0};
        weft_profile_options profile_zeros = {0}, profile_defaults = {.trace_runs = 0};
        weft_dot_options dot_zeros = {0}, dot_defaults = {.decorate = NULL};
        char *text = NULL;
        weft_graph *g = weft_graph_new();
        weft_value y = weft_dropout(g, attend(g, way), 0.5);
        weft_plan *plan = weft_plan_new(g, &y, 1, CHOOSE(way, &plan_zeros, &plan_defaults), NULL);
        weft_session *s = weft_session_new(plan, NULL, CHOOSE(way, &zeros, &defaults), NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(
            weft_session_profile(s, true, CHOOSE(way, &profile_zeros, &profile_defaults), NULL),
            WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y, out[way], sizeof out[way], NULL), WEFT_OK);
        arena[way] = weft_plan_stats_of(plan).arena_bytes;
        FILE *file = open_memstream(&text, &length[way]);
        CU_ASSERT_EQUAL(weft_graph_write_dot(g, CHOOSE(way, &dot_zeros, &dot_defaults), file, NULL),
                        WEFT_OK);
        fclose(file);
        free(text);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
    for (int way = 1; way < WAYS; way++) {
        CU_ASSERT_EQUAL(memcmp(out[0], out[way], sizeof out[0]), 0);
        CU_ASSERT_EQUAL(arena[0], arena[way]);
        CU_ASSERT_EQUAL(length[0], length[way]);
    }
}

/* A list that best fit alone does not pack: zeros search. */
static void test_pack(void)
{
    weft_pack_options zeros = {0}, defaults = {0, 1, 100000, 0, false}, plain = {0};
    weft_pack_result result[WAYS], unsearched;
    weft_pack_item items[WAYS][30];
    uint64_t seed = 4;
    plain.best_fit_only = true;
    int searched = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 30; i++) {
            int64_t lower = (int64_t)(test_random(&seed) % 20);
            items[0][i] = (weft_pack_item){lower, lower + 1 + (int64_t)(test_random(&seed) % 6),
                                           1 + test_random(&seed) % 40, 0};
        }
        memcpy(items[1], items[0], sizeof items[0]);
        memcpy(items[2], items[0], sizeof items[0]);
        for (int way = 0; way < WAYS; way++)
            CU_ASSERT_EQUAL(
                weft_pack(items[way], 30, CHOOSE(way, &zeros, &defaults), &result[way], NULL),
                WEFT_OK);
        CU_ASSERT_EQUAL(memcmp(items[0], items[1], sizeof items[0]), 0);
        CU_ASSERT_EQUAL(memcmp(items[0], items[2], sizeof items[0]), 0);
        CU_ASSERT_TRUE(result[0].nodes == result[1].nodes && result[0].nodes == result[2].nodes);
        CU_ASSERT_EQUAL(weft_pack(items[0], 30, &plain, &unsearched, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(unsearched.nodes, 0);
        searched += result[0].nodes > 0;
    }
    CU_ASSERT_TRUE(searched > 0);
}

/* ---- Training ---- */

static weft_value trained(weft_graph *g, const weft_optimizer *o, const char *name)
{
    weft_value w = weft_param(g, name, WEFT_F64, WEFT_SHAPE(5), WEFT_INIT_ONES);
    weft_value grad = constant(g, WEFT_SHAPE(5), 3), updated = WEFT_NO_VALUE;
    weft_apply_gradients(g, &(weft_gradients){&w, &grad, 1, WEFT_NO_VALUE},
                         weft_scalar(g, WEFT_F64, 0.1), o, NULL, &updated);
    return updated;
}

static weft_value step_of_nothing(weft_graph *g, int way)
{
    weft_optimizer zeros = {0}, defaults = {.kind = WEFT_SGD};
    return trained(g, CHOOSE(way, &zeros, &defaults), "w");
}

/* The kinds' own defaults; there is no NULL of a kind. */
static weft_value step_of_adam(weft_graph *g, int way)
{
    weft_optimizer zeros = {.kind = WEFT_ADAM};
    weft_optimizer defaults = {.kind = WEFT_ADAM, .adam = {0.9, 0.98, 1e-9, 0, false, 0}};
    return trained(g, way == DEFAULTS ? &defaults : &zeros, "w");
}

static weft_value step_of_adamw(weft_graph *g, int way)
{
    weft_optimizer defaults = WEFT_ADAMW_DEFAULT, zeros = {.kind = WEFT_ADAMW};
    zeros.adam.weight_decay = 0.01;
    zeros.max_norm = 1;
    zeros.guard = true;
    return trained(g, way == DEFAULTS ? &defaults : &zeros, "w");
}

static void test_optimizers(void)
{
    check_ways(step_of_nothing, 5);
    check_ways(step_of_adam, 5);
    check_ways(step_of_adamw, 5);
    weft_optimizer adamw = WEFT_ADAMW_DEFAULT;
    CU_ASSERT_STRING_EQUAL(adamw.no_decay, WEFT_NO_DECAY_DEFAULT);
}

static weft_corpus *counting(void)
{
    weft_corpus *c = weft_corpus_new();
    for (int start = 0; start < 6; start++) {
        int32_t ids[5];
        for (int i = 0; i < 5; i++) ids[i] = 4 + (start + i) % 7;
        weft_corpus_add(c, NULL, 0, ids, 5, NULL);
    }
    return c;
}

static weft_batch_options batch_options(void)
{
    return (weft_batch_options){.mode = WEFT_BATCH_LINES,
                                .tokens = 24,
                                .lengths = {6},
                                .n_lengths = 1,
                                .bos = 2,
                                .eos = 3,
                                .vocab = 11};
}

static void refuse_batches(const weft_corpus *c, const weft_batch_options *o, const char *message)
{
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(weft_batches_new(c, o, &error));
    if (!strstr(error.message, message)) printf("\n    %s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
}

/* What has no default is asked for by name. */
static void test_batches(void)
{
    weft_corpus *c = counting();
    weft_batch_options o = {0};
    refuse_batches(c, NULL, "lengths are required");
    refuse_batches(c, &o, "lengths are required");
    o = batch_options();
    o.tokens = 0;
    refuse_batches(c, &o, "tokens");
    o = batch_options();
    o.vocab = 0;
    refuse_batches(c, &o, "vocab is required");
    o = batch_options();
    o.eos = o.pad;
    refuse_batches(c, &o, "eos and pad are the same token");
    weft_corpus_free(c);
}

static const char *const tiny[] = {"vocab=11", "d_model=8", "heads=2", "d_ff=12", "layers=1"};

static void test_trainer(void)
{
    weft_error error = {0};
    weft_corpus *c = counting();
    weft_batch_options rows = batch_options();
    weft_batches *batches = weft_batches_new(c, &rows, &error);
    weft_params *stores[2] = {weft_params_new(), weft_params_new()};
    weft_trainer_options zeros = {0};
    CU_ASSERT_PTR_NULL(test_new_trainer(NULL, batches, stores[0], &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "a trainer needs a model"));
    CU_ASSERT_PTR_NULL(test_new_trainer(&zeros, batches, stores[0], &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "a trainer needs a model"));
    zeros = (weft_trainer_options){.builder = test_builder("gpt", tiny, 5)};
    CU_ASSERT_PTR_NULL(test_new_trainer(&zeros, batches, stores[0], &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "schedule.peak, the learning rate, is required"));
    CU_ASSERT_EQUAL(weft_schedule_rate(NULL, 5, 0), 0);
    zeros.schedule.peak = 0.1;
    weft_trainer_options defaults = zeros;
    defaults.optimizer = (weft_optimizer){.kind = WEFT_SGD, .guard = true};
    defaults.schedule = (weft_schedule){WEFT_SCHEDULE_CONSTANT, 0.1, 0, 0, 0};
    defaults.accumulate = 1;
    double losses[2];
    for (int way = 0; way < 2; way++) {
        weft_trainer *t = test_new_trainer(way ? &defaults : &zeros, batches, stores[way], &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(test_evaluate(t, batches, 0, &losses[way], NULL), WEFT_OK);
        weft_trainer_free(t);
    }
    CU_ASSERT_EQUAL(losses[0], losses[1]);
    for (int way = 0; way < 2; way++) weft_params_free(stores[way]);
    weft_batches_free(batches);
    weft_corpus_free(c);
}

/* The optimiser's texts and groups are the trainer's own; frozen parameters stay, the others are
 * trained alike whether batches are summed or not. */
static void test_trainer_groups(void)
{
    weft_error error = {0};
    weft_corpus *c = counting();
    weft_batch_options rows = batch_options();
    weft_batches *batches = weft_batches_new(c, &rows, &error);
    for (uint32_t accumulate = 1; accumulate <= 2; accumulate++) {
        char frozen[] = "embedding,*positions", plain[] = "*.bias";
        weft_param_group groups[2] = {{.names = frozen, .frozen = true},
                                      {.names = plain, .lr_scale = 0.5}};
        weft_trainer_options o = {.builder = test_builder("gpt", tiny, 5),
                                  .optimizer = WEFT_ADAMW_DEFAULT,
                                  .schedule = {.peak = 0.1},
                                  .accumulate = accumulate,
                                  .ema = 0.5};
        o.optimizer.groups = groups;
        o.optimizer.n_groups = 2;
        o.optimizer.name = "mine";
        weft_params *store = weft_params_new();
        weft_trainer *t = test_new_trainer(&o, batches, store, &error);
        if (!t) printf("\n    %s: %s\n", error.where, error.message);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        memset(frozen, '*', sizeof frozen - 1);
        memset(plain, '*', sizeof plain - 1);
        memset(groups, 0, sizeof groups);
        weft_tensor table, average;
        CU_ASSERT_TRUE_FATAL(weft_params_find(store, "embedding", &table));
        float before = *(float *)table.data;
        for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(*(float *)table.data, before);
        CU_ASSERT_FALSE(weft_params_find(store, "ema.embedding", NULL));
        const weft_params *averaged = weft_trainer_model(t, NULL);
        CU_ASSERT_TRUE_FATAL(averaged && weft_params_find(averaged, "embedding", &average));
        CU_ASSERT_EQUAL(*(float *)average.data, before);
        CU_ASSERT_FALSE(weft_params_find(store, "opt.m.embedding", NULL));
        CU_ASSERT_TRUE(weft_params_find(store, "opt.m.layer.0.norm_ffn.gamma", NULL));
        weft_trainer_free(t);
        weft_params_free(store);
    }
    weft_batches_free(batches);
    weft_corpus_free(c);
}

/* ---- Decoding ---- */

static weft_decoder *open_decoder(const weft_params *params, const weft_model_config *config,
                                  const weft_decoder_options *o)
{
    weft_error error = {0};
    weft_decoder *d = weft_decoder_new(config, params, o, &error);
    if (!d) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    CU_ASSERT_EQUAL(weft_decoder_start(d, NULL, NULL, 1, NULL), WEFT_OK);
    return d;
}

typedef weft_search_result *(*searched)(const weft_search_model *, const weft_search_input *,
                                        size_t, const weft_search_options *, weft_error *);

/* One search of 40 tokens without an end. */
static void search(const weft_params *params, const weft_model_config *config, searched search_by,
                   const weft_decoder_options *d_options, const weft_search_options *options,
                   int32_t tokens[40])
{
    const int32_t begin = 2;
    weft_error error = {0};
    weft_decoder *d = open_decoder(params, config, d_options);
    weft_search_model model = weft_decoder_search_model(d);
    CU_ASSERT_TRUE(model.sentences == 1 && model.beams == 1);
    weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = 40, .key = 1};
    weft_search_result *r = search_by(&model, &in, 1, options, &error);
    if (!r) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT_EQUAL(r->first[1], 1);
    CU_ASSERT_EQUAL_FATAL(r->hypotheses[0].length, 40);
    CU_ASSERT_FALSE(r->hypotheses[0].ended);
    memcpy(tokens, r->hypotheses[0].tokens, 40 * sizeof *tokens);
    weft_search_result_free(r);
    weft_decoder_free(d);
}

static void test_decoding(void)
{
    static const searched searches[] = {weft_search_greedy, weft_search_beam, weft_search_sample};
    weft_model_config config;
    weft_error error = {0};
    weft_built values;
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    const weft_model *gpt = weft_model_find("gpt");
    CU_ASSERT_EQUAL(weft_model_parse(gpt, tiny, 5, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_model_build_text(g, gpt, tiny, 5, false, &values, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_graph_free(g);
    int64_t most = weft_model_traits_of(&config).max_positions;
    weft_decoder_options d_zeros = {0}, d_defaults = {.sentences = 1, .beams = 1};
    d_defaults.max_len = most < WEFT_DECODER_LEN ? most : WEFT_DECODER_LEN;
    weft_search_options zeros = {0};
    weft_search_options defaults = {.eos = -1,
                                    .nbest = 1,
                                    .repetition_penalty = 1,
                                    .penalty = WEFT_PENALTY_WU,
                                    .stop = WEFT_STOP_FIRST,
                                    .temperature = 1,
                                    .top_p = 1};
    for (int i = 0; i < 3; i++) {
        int32_t tokens[WAYS][40];
        int zeros_found = 0;
        for (int way = 0; way < WAYS; way++)
            search(params, &config, searches[i], CHOOSE(way, &d_zeros, &d_defaults),
                   CHOOSE(way, &zeros, &defaults), tokens[way]);
        CU_ASSERT_EQUAL(memcmp(tokens[0], tokens[1], sizeof tokens[0]), 0);
        CU_ASSERT_EQUAL(memcmp(tokens[0], tokens[2], sizeof tokens[0]), 0);
        for (int k = 0; k < 40; k++) zeros_found += tokens[0][k] == 0;
        if (i == 2) CU_ASSERT_TRUE(zeros_found > 0); /* token 0 ends nothing */
    }
    weft_params_free(params);
}

void options_tests(void)
{
    CU_pSuite suite = CU_add_suite("options", NULL, NULL);
    CU_add_test(suite, "cross entropy", test_cross_entropy);
    CU_add_test(suite, "attention and updates", test_ops);
    CU_add_test(suite, "zero where it is not the default", test_real_zero);
    CU_add_test(suite, "zero and other numbers", test_option);
    CU_add_test(suite, "ranges of Adam", test_ranges);
    CU_add_test(suite, "layers", test_layers);
    CU_add_test(suite, "norms without eps", test_zero_eps);
    CU_add_test(suite, "plans, sessions, profiles, pictures", test_plans);
    CU_add_test(suite, "packing", test_pack);
    CU_add_test(suite, "optimisers", test_optimizers);
    CU_add_test(suite, "batches", test_batches);
    CU_add_test(suite, "the trainer", test_trainer);
    CU_add_test(suite, "the trainer's groups", test_trainer_groups);
    CU_add_test(suite, "decoders and searches", test_decoding);
}
