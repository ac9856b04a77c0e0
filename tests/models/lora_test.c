/* Low-rank adapters: what a graph with them has, training next to bases in f32 and in 8 and 4 bits,
 * checkpoints without the base, and what was trained added to the model. */
#include "tests.h"
#include "token_batches.h"

#include <weft/lora.h>
#include <weft/pass.h>
#include <weft/quantize.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const small[] = {"vocab=40", "d_model=64", "heads=4", "kv_heads=2",
                                    "d_ff=96",  "layers=2",   "tied=1"};
#define N_SMALL (sizeof small / sizeof *small)

/* A model in f32, or in 8 or 4 bits, and adapters for it. */
typedef struct rig {
    weft_builder model;
    weft_graph *graph;
    weft_params *base, *params; /* params: of the adapters */
    weft_lora lora;
    weft_corpus *corpus;
    weft_batches *batches;
    weft_trainer_options o;
    weft_trainer *trainer;
} rig;

static void open_trainer(rig *r, const char *load)
{
    weft_error error = {0};
    r->params = weft_params_new();
    if (load) CU_ASSERT_EQUAL_FATAL(weft_params_load(r->params, load, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_lora_note(&r->lora, r->params, &error), WEFT_OK);
    r->trainer = test_new_trainer(&r->o, r->batches, r->params, &error);
    if (!r->trainer) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->trainer);
}

/* bits 32: f32. The rig must not move: the builder points into it. */
static void open_rig(rig *r, int bits, int threads)
{
    weft_error error = {0};
    memset(r, 0, sizeof *r);
    r->model = test_builder("llama", small, N_SMALL);
    r->graph = weft_graph_new();
    weft_built built;
    const weft_build_options shape = {.shape = {2, 0, 6}};
    CU_ASSERT_EQUAL_FATAL(r->model.build(r->model.context, r->graph, &shape, &built), WEFT_OK);
    weft_params *wide = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_params_init(wide, r->graph, 5, &error), WEFT_OK);
    r->base = wide;
    if (bits < 32) {
        const weft_quantize_options o = {.bits = bits};
        r->base = weft_params_quantize(wide, r->graph, &o, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r->base);
        weft_params_free(wide);
    }
    r->lora = (weft_lora){.model = r->model, .rank = 4, .alpha = 8, .base = r->base};
    r->corpus = make_corpus(24, 7, false, 2);
    weft_batch_options b = batch_options(WEFT_BATCH_LINES, 64);
    r->batches = weft_batches_new(r->corpus, &b, &error);
    r->o = (weft_trainer_options){.builder = weft_lora_builder(&r->lora),
                                  .optimizer = WEFT_ADAM_DEFAULT,
                                  .schedule = {WEFT_SCHEDULE_CONSTANT, 1e-2, 0, 0, 0},
                                  .base = r->base,
                                  .seed = 3,
                                  .session.threads = threads};
}

static void close_rig(rig *r)
{
    weft_trainer_free(r->trainer);
    weft_batches_free(r->batches);
    weft_corpus_free(r->corpus);
    weft_params_free(r->params);
    weft_params_free(r->base);
    weft_graph_free(r->graph);
}

static double take_steps(rig *r, int n)
{
    weft_update_report report = {0};
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(weft_trainer_update(r->trainer, 0, &report, NULL), WEFT_OK);
    return report.loss;
}

static double evaluate(rig *r)
{
    double loss = NAN;
    const weft_batch_source source = weft_batches_source(r->batches);
    CU_ASSERT_EQUAL(weft_trainer_evaluate(r->trainer, &source, 0, &loss, NULL, NULL), WEFT_OK);
    return loss;
}

/* Whether each tensor of `a` is in `b`, with the same bits. */
static bool within(const weft_params *a, const weft_params *b)
{
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor x, y;
        weft_params_find(a, weft_params_name(a, i), &x);
        if (!weft_params_find(b, weft_params_name(a, i), &y) ||
            memcmp(x.data, y.data, weft_tensor_bytes(x.dtype, x.shape)) != 0)
            return false;
    }
    return true;
}

/* ---- Graphs ---- */

static void test_graph(void)
{
    rig r;
    open_rig(&r, 32, 1);
    const weft_build_options shape = {.shape = {2, 0, 6}, .training = true};
    weft_built built;
    weft_graph *g = weft_graph_new();
    size_t n, states, before;
    CU_ASSERT_EQUAL(r.o.builder.build(r.o.builder.context, g, &shape, &built), WEFT_OK);
    const weft_value *params = weft_graph_params(g, &n);
    weft_graph_states(g, &states);
    weft_graph_states(r.graph, &before);
    /* q, k, v and out, and three of the feed-forward layer; the tied table has none. */
    CU_ASSERT_EQUAL(n, 2 * 2 * 7);
    CU_ASSERT_EQUAL(states, before + n);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(weft_name_of(g, params[i]), ".lora_"));
    CU_ASSERT_EQUAL(built.n_inputs, 2);
    CU_ASSERT_TRUE(weft_is_value(built.loss) &&
                   weft_value_from_id(g, built.loss.id).graph == built.loss.graph);
    CU_ASSERT_STRING_EQUAL(weft_name_of(g, weft_built_input(&built, "target_in")),
                           weft_name_of(g, built.inputs[0]));
    weft_graph_free(g);
    r.lora.on = "*.q.*";
    g = weft_graph_new();
    r.o.builder.build(r.o.builder.context, g, &shape, &built);
    weft_graph_params(g, &n);
    CU_ASSERT_EQUAL(n, 2 * 2);
    weft_graph_free(g);
    close_rig(&r);
}

static weft_status status_of(const weft_lora *lora, const weft_build_options *o)
{
    weft_built built;
    weft_graph *g = weft_graph_new();
    const weft_builder b = weft_lora_builder(lora);
    b.build(b.context, g, o, &built);
    const weft_status status = weft_graph_status(g);
    weft_graph_free(g);
    return status;
}

static void test_options(void)
{
    rig r;
    open_rig(&r, 32, 1);
    const weft_build_options o = {.shape = {2, 0, 6}};
    weft_build_options divided = o;
    divided.tensor = (weft_ranks){0, 0, 2};
    CU_ASSERT_EQUAL(status_of(&r.lora, &o), WEFT_OK);
    CU_ASSERT_EQUAL(status_of(&r.lora, &divided), WEFT_BAD_ARGUMENT);
    const weft_lora wrong[] = {{.rank = 0},
                               {.rank = -1},
                               {.rank = 2, .alpha = -1},
                               {.rank = 2, .alpha = NAN},
                               {.rank = 2, .dropout = 1},
                               {.rank = 2, .dropout = NAN},
                               {.rank = 2, .on = "nothing*"},
                               {.rank = 2, .on = "embedding"}}; /* is looked up in as well */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_lora lora = wrong[i];
        lora.model = r.model;
        CU_ASSERT_EQUAL(status_of(&lora, &o), WEFT_BAD_ARGUMENT);
    }
    CU_ASSERT_PTR_NULL(weft_lora_builder(NULL).build);
    CU_ASSERT_PTR_NULL(weft_lora_builder(&wrong[0]).build);
    close_rig(&r);
}

/* ---- Training ---- */

static void check_training(int bits, double margin)
{
    rig r;
    open_rig(&r, bits, 2);
    const uint64_t hash = weft_params_hash(r.base);
    open_trainer(&r, NULL);
    const double before = evaluate(&r);
    take_steps(&r, 40);
    const double after = evaluate(&r);
    if (!(after < before - margin)) printf("\n    %d bits: %g, %g\n", bits, before, after);
    CU_ASSERT_TRUE(after < before - margin);
    CU_ASSERT_EQUAL(weft_params_hash(r.base), hash);
    close_rig(&r);
}

/* The losses fall by 1.5 and more. */
static void test_training(void)
{
    check_training(32, 0.5);
    check_training(8, 0.5);
    check_training(4, 0.5);
}

/* Checkpoints have adapters and moments. A resumed training has the bits of an uninterrupted one,
 * and so has one on other threads. */
static void check_resume(int bits)
{
    static const char path[] = "lora_test.safetensors", model[] = "lora_test_model.safetensors";
    rig whole, parts;
    weft_error error = {0};
    open_rig(&whole, bits, 1);
    whole.lora.dropout = 0.1;
    whole.o.accumulate = 2;
    whole.o.ema = 0.9;
    open_trainer(&whole, NULL);
    take_steps(&whole, 5);
    open_rig(&parts, bits, 2);
    parts.lora.dropout = 0.1;
    parts.o.accumulate = 2;
    parts.o.ema = 0.9;
    open_trainer(&parts, NULL);
    take_steps(&parts, 2);
    CU_ASSERT_EQUAL(weft_trainer_save(parts.trainer, path, &error), WEFT_OK);
    weft_trainer_free(parts.trainer);
    weft_params_free(parts.params);
    open_trainer(&parts, path);
    take_steps(&parts, 3);
    CU_ASSERT_TRUE(within(whole.params, parts.params));
    CU_ASSERT_EQUAL(evaluate(&whole), evaluate(&parts));
    CU_ASSERT_EQUAL(weft_trainer_save_model(parts.trainer, model, &error), WEFT_OK);
    weft_params *saved = weft_params_new(), *of_model = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(saved, path, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(of_model, model, &error), WEFT_OK);
    /* Of each parameter: itself, two moments and the average; and the counter. */
    CU_ASSERT_EQUAL(weft_params_count(of_model), 28);
    CU_ASSERT_EQUAL(weft_params_count(saved), 4 * 28 + 1);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(of_model, "lora"),
                           "rank=4 alpha=8 dropout=0.10000000000000001 on=");
    parts.lora.rank = 3;
    CU_ASSERT_EQUAL(weft_lora_note(&parts.lora, saved, &error), WEFT_BAD_ARGUMENT);
    weft_params_free(saved);
    weft_params_free(of_model);
    close_rig(&whole);
    close_rig(&parts);
    unlink(path);
    unlink(model);
}

static void test_resume(void)
{
    check_resume(32);
    check_resume(8);
}

/* ---- Applying ---- */

/* The logits of two rows. */
static void logits_of(const weft_builder *builder, const weft_params *params, float logits[480])
{
    int32_t ids[12];
    weft_error error = {0};
    weft_tensor t;
    for (int i = 0; i < 12; i++) ids[i] = FIRST + i * 7 % (VOCAB - FIRST);
    weft_forward *f = weft_forward_new(builder, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    const weft_build_options o = {.shape = {2, 0, 6}};
    if (weft_forward_run(f, &o, (const void *[]){ids, NULL}, &error) != WEFT_OK)
        printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(f, 0, &t) && weft_shape_numel(t.shape) == 480);
    memcpy(logits, t.data, 480 * sizeof *logits);
    weft_forward_free(f);
}

static void check_applied(int bits)
{
    static const char path[] = "lora_test_applied.safetensors";
    float plain[480], trained[480], applied[480];
    double worst = 0, moved = 0;
    weft_error error = {0};
    rig r;
    open_rig(&r, bits, 1);
    logits_of(&r.model, r.base, plain);
    open_trainer(&r, NULL);
    take_steps(&r, 10);
    CU_ASSERT_EQUAL(weft_trainer_save_model(r.trainer, path, &error), WEFT_OK);
    weft_params *adapters = weft_params_new(), *both = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(adapters, path, &error), WEFT_OK);
    weft_params_share(both, r.base, NULL);
    weft_params_share(both, adapters, NULL);
    logits_of(&r.o.builder, both, trained);
    weft_params_free(both);
    if (weft_params_add_adapters(r.base, adapters, r.graph, &error) != WEFT_OK)
        printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    logits_of(&r.model, r.base, applied);
    for (int i = 0; i < 480; i++) {
        worst = fmax(worst, fabs((double)trained[i] - (double)applied[i]));
        moved = fmax(moved, fabs((double)trained[i] - (double)plain[i]));
    }
    CU_ASSERT_TRUE(moved > 0.1);
    /* Next to quantised matrices the same sums are computed; merged ones round elsewhere. */
    if (!(worst <= (bits < 32 ? 0 : 1e-5))) printf("\n    %d bits: %g of %g\n", bits, worst, moved);
    CU_ASSERT_TRUE(worst <= (bits < 32 ? 0 : 1e-5));
    weft_params_free(adapters);
    unlink(path);
    /* The trainer's store shares tensors of the base, whose contents do not matter any more. */
    close_rig(&r);
}

static void test_apply(void)
{
    check_applied(32);
    check_applied(8);
    check_applied(4);
}

/* y = x W^T, as in a model from a file. */
static weft_status build_transposed(void *context, weft_graph *g, const weft_build_options *o,
                                    weft_built *built)
{
    (void)context;
    *built = (weft_built){.n_inputs = 1, .n_outputs = 1};
    built->inputs[0] = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(o->shape.rows, 3));
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_XAVIER);
    built->outputs[0] = weft_matmul(g, built->inputs[0], weft_transpose(g, w, 0, 1));
    return weft_graph_status(g);
}

static void test_transposed(void)
{
    const weft_lora lora = {.model = {.name = "transposed", .build = build_transposed}, .rank = 1};
    const weft_builder builder = weft_lora_builder(&lora);
    const float a[3] = {1, 2, 3}, b[2] = {10, 20};
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_tensor w, t;
    weft_params *params = weft_params_new(), *adapters = weft_params_new();
    weft_error error = {0};
    const weft_build_options o = {.shape = {1, 0, 0}};
    build_transposed(NULL, g, &o, &built);
    weft_params_init(params, g, 1, NULL);
    weft_params_find(params, "w", &w);
    memset(w.data, 0, 6 * sizeof(float));
    CU_ASSERT_EQUAL(weft_params_add_adapters(params, adapters, g, &error), WEFT_BAD_FILE);
    weft_lora_note(&lora, adapters, NULL);
    weft_params_add(adapters, "w.lora_a", WEFT_F32, WEFT_SHAPE(3, 1), &t, NULL);
    memcpy(t.data, a, sizeof a);
    CU_ASSERT_EQUAL(weft_params_add_adapters(params, adapters, g, &error), WEFT_BAD_FILE);
    weft_params_add(adapters, "w.lora_b", WEFT_F32, WEFT_SHAPE(1, 2), &t, NULL);
    memcpy(t.data, b, sizeof b);
    CU_ASSERT_EQUAL(weft_params_add_adapters(params, adapters, g, &error), WEFT_OK);
    const float want[6] = {10, 20, 30, 20, 40, 60};
    CU_ASSERT_EQUAL(memcmp(w.data, want, sizeof want), 0);
    weft_params_add(adapters, "other.lora_a", WEFT_F32, WEFT_SHAPE(3, 1), NULL, NULL);
    CU_ASSERT_EQUAL(weft_params_add_adapters(params, adapters, g, &error), WEFT_BAD_FILE);
    weft_params *wrong = weft_params_new();
    weft_lora_note(&lora, wrong, NULL);
    weft_params_add(wrong, "w.lora_a", WEFT_F32, WEFT_SHAPE(2, 1), NULL, NULL);
    weft_params_add(wrong, "w.lora_b", WEFT_F32, WEFT_SHAPE(1, 2), NULL, NULL);
    CU_ASSERT_EQUAL(weft_params_add_adapters(params, wrong, g, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(memcmp(w.data, want, sizeof want), 0);
    weft_params_free(wrong);
    weft_graph *changed = weft_graph_new();
    CU_ASSERT_EQUAL(builder.build(builder.context, changed, &o, &built), WEFT_OK);
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(changed, "w.lora_a")));
    weft_graph_free(changed);
    weft_graph_free(g);
    weft_params_free(params);
    weft_params_free(adapters);
}

/* ---- Memory ---- */

/* Random contents for the adapters of a graph. */
static weft_params *make_adapters(rig *r, const weft_build_options *o)
{
    weft_built built;
    weft_tensor t;
    weft_graph *g = weft_graph_new();
    weft_params *adapters = weft_params_new();
    size_t n;
    r->o.builder.build(r->o.builder.context, g, o, &built);
    const weft_value *params = weft_graph_params(g, &n);
    for (size_t i = 0; i < n; i++)
        weft_params_add(adapters, weft_name_of(g, params[i]), WEFT_F32, weft_shape_of(g, params[i]),
                        &t, NULL);
    weft_lora_note(&r->lora, adapters, NULL);
    weft_graph_free(g);
    return adapters;
}

/* Every allocation of building a graph, and of adding adapters, made to fail in turn. */
static void test_memory(void)
{
    rig r;
    open_rig(&r, 8, 1);
    const weft_build_options o = {.shape = {1, 0, 3}};
    weft_params *adapters = make_adapters(&r, &o);
    weft_error error;
    bool pending = false;
    for (long n = 1; !pending; n += 7) {
        weft_built built;
        weft_graph *g = weft_graph_new();
        test_fail_allocation(n);
        r.o.builder.build(r.o.builder.context, g, &o, &built);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        CU_ASSERT_EQUAL(weft_graph_status(g), pending ? WEFT_OK : WEFT_NO_MEMORY);
        weft_graph_free(g);
    }
    pending = false;
    for (long n = 1; !pending; n++) {
        test_fail_allocation(n);
        const weft_status status = weft_params_add_adapters(r.base, adapters, r.graph, &error);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        CU_ASSERT_EQUAL(status, pending ? WEFT_OK : WEFT_NO_MEMORY);
    }
    weft_params_free(adapters);
    close_rig(&r);
}

/* ---- Rewriting ---- */

static bool double_relu(weft_rewrite *r)
{
    if (strcmp(r->node.op->name, "relu") != 0) return false;
    r->out[0] = weft_mul_scalar(r->graph, r->in[0], 2);
    return true;
}

static void test_rewrite(void)
{
    const weft_pass pass = {.name = "double", .visit = double_relu};
    weft_graph *from = weft_graph_new(), *to = weft_graph_new(), *third = weft_graph_new();
    const weft_value x = weft_input(from, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_value values[3] = {x, WEFT_NO_VALUE, weft_name(from, weft_relu(from, x), "y")};
    CU_ASSERT_EQUAL(weft_graph_rewrite(to, from, &pass, values, 3), WEFT_OK);
    CU_ASSERT_FALSE(weft_is_value(values[1]));
    CU_ASSERT_STRING_EQUAL(weft_name_of(to, values[0]), "x");
    CU_ASSERT_STRING_EQUAL(weft_name_of(to, values[2]), "y");
    const weft_node_info node = weft_graph_node(to, weft_producer_of(to, values[2]));
    CU_ASSERT_STRING_EQUAL(node.op->name, "mul");
    weft_value other = weft_input(third, "x", WEFT_F32, WEFT_SHAPE(2));
    CU_ASSERT_EQUAL(weft_graph_rewrite(third, from, &pass, &other, 1), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_graph_rewrite(to, to, &pass, NULL, 0), WEFT_BAD_ARGUMENT);
    weft_graph_free(from);
    weft_graph_free(to);
    weft_graph_free(third);
}

void lora_tests(void)
{
    CU_pSuite suite = CU_add_suite("lora", NULL, NULL);
    CU_add_test(suite, "graphs with adapters", test_graph);
    CU_add_test(suite, "wrong options", test_options);
    CU_add_test(suite, "training next to f32, 8 and 4 bits", test_training);
    CU_add_test(suite, "checkpoints without the base; same bits when resumed", test_resume);
    CU_add_test(suite, "adapters added to the model", test_apply);
    CU_add_test(suite, "transposed matrices, and wrong adapters", test_transposed);
    CU_add_test(suite, "allocations that fail", test_memory);
    CU_add_test(suite, "graphs rewritten into others", test_rewrite);
}
