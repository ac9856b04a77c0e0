/* See profile_bench.h. */
#include "profile_bench.h"

#include "base/platform.h"

#include <string.h>

bench bench_open(int threads)
{
    static const char *const options[] = {"d_model=32", "heads=2",          "d_ff=64",
                                          "vocab=50",   "source_len=9",     "target_len=8",
                                          "batch=4",    "encoder_layers=1", "decoder_layers=1"};
    weft_error error = {0};
    weft_built built;
    bench b = {.graph = weft_graph_new(), .params = weft_params_new()};
    weft_model_build_text(b.graph, weft_model_find("transformer"), options, 9, true, &built,
                          &error);
    weft_value lr = weft_scalar(b.graph, WEFT_F32, 1e-3);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    for (size_t i = 0; i < built.n_inputs; i++) weft_input_default(b.graph, built.inputs[i], 0);
    weft_value targets[2] = {built.loss,
                             weft_train_update(b.graph, built.loss, NULL, 0, lr, &adam, NULL)};
    b.loss = built.loss;
    b.plan = weft_plan_new(b.graph, targets, 2, NULL, &error);
    if (b.plan && weft_params_init(b.params, b.graph, 1, &error) == WEFT_OK)
        b.session =
            weft_session_new(b.plan, b.params, &(weft_session_options){.threads = threads}, &error);
    CU_ASSERT_STRING_EQUAL(error.message, "");
    CU_ASSERT_PTR_NOT_NULL_FATAL(b.session);
    return b;
}

void bench_close(bench *b)
{
    weft_session_free(b->session);
    weft_plan_free(b->plan);
    weft_params_free(b->params);
    weft_graph_free(b->graph);
}

const weft_profile *profiled_runs(bench *b, size_t trace_runs)
{
    weft_profile_options options = {.trace_runs = trace_runs};
    CU_ASSERT_EQUAL(weft_session_run(b->session, NULL), WEFT_OK); /* not measured */
    CU_ASSERT_EQUAL(weft_session_profile(b->session, true, &options, NULL), WEFT_OK);
    for (int i = 0; i < RUNS; i++) CU_ASSERT_EQUAL(weft_session_run(b->session, NULL), WEFT_OK);
    return weft_profile_of(b->session);
}

size_t computing_nodes(const weft_graph *g)
{
    size_t n = 0;
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_op *op = weft_graph_node(g, i).op;
        n += op != &weft_op_input && op != &weft_op_state && op != &weft_op_constant &&
             op != &weft_op_group && !op->alias;
    }
    return n;
}

static bool infer_slow(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static void run_slow(const weft_call *call, int64_t tile)
{
    double begin = clock_seconds();
    (void)tile;
    memcpy(call->out[0].data, call->in[0].data, 8 * sizeof(float));
    while (clock_seconds() - begin < SLOW_SECONDS) {
    }
}

static int64_t one_tile(const weft_call *call)
{
    (void)call;
    return 1;
}

/* Enough for all threads to come. */
static void large_cost(const weft_call *call, weft_cost *cost)
{
    (void)call;
    *cost = (weft_cost){1e6, 1e6};
}

const weft_op slow = {.name = "slow\"\\\n",
                      .doc = "takes its time",
                      .min_in = 1,
                      .max_in = 1,
                      .n_out = 1,
                      .infer = infer_slow,
                      .tiles = one_tile,
                      .cost = large_cost,
                      .gradient = WEFT_GRADIENT_NONE,
                      .kernel = {{[WEFT_F32] = run_slow}}};
