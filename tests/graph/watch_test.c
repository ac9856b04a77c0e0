/* Watches: each value of a graph that a run shows is what a plan without passes computes for it;
 * the others are refused. Watches change no bit of a run, and end it where a callback says so. */
#include "tests.h"

#include <stdlib.h>
#include <string.h>

typedef struct model {
    weft_graph *g;
    weft_built built;
    weft_value rate, step;
    weft_plan *plan;
    weft_params *params;
    weft_session *session;
} model;

/* A small decoder with dropout and its training step. */
static void build(model *m)
{
    const weft_optimizer adam = {.kind = WEFT_ADAM, .max_norm = 1};
    weft_error error = WEFT_NO_ERROR;
    const char *const options[] = {"layers=1", "d_model=16", "heads=2", "dropout=0.1",
                                   "batch=3",  "length=20",  "vocab=90"};
    *m = (model){.g = weft_graph_new()};
    CU_ASSERT_EQUAL_FATAL(
        weft_model_build_text(m->g, weft_model_find("gpt"), options, 7, true, &m->built, &error),
        WEFT_OK);
    m->rate = weft_input(m->g, "rate", WEFT_F32, WEFT_SCALAR);
    m->step = weft_train_update(m->g, m->built.loss, NULL, 0, m->rate, &adam, NULL);
}

/* Plans the targets and feeds the inputs that they need. */
static void start(model *m, const weft_value *targets, size_t n, const weft_plan_options *o,
                  int threads)
{
    weft_error error = WEFT_NO_ERROR;
    const weft_session_options so = {.threads = threads, .seed = 5, .poison = true};
    const float rate = 0.01f;
    m->plan = weft_plan_new(m->g, targets, n, o, &error);
    m->params = weft_params_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->plan);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(m->params, m->g, 3, &error), WEFT_OK);
    m->session = weft_session_new(m->plan, m->params, &so, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->session);
    weft_session_feed(m->session, m->rate, &rate, sizeof rate, NULL);
    const weft_value *inputs = m->built.inputs;
    for (size_t i = 0; i < m->built.n_inputs; i++) {
        weft_tensor x;
        if (weft_session_tensor(m->session, inputs[i], &x, NULL) != WEFT_OK) continue;
        for (int64_t k = 0; k < weft_shape_numel(x.shape); k++)
            ((int32_t *)x.data)[k] = (int32_t)(1 + (k * 7 + 3) % 11);
    }
}

static void stop(model *m)
{
    weft_session_free(m->session);
    weft_plan_free(m->plan);
    weft_params_free(m->params);
}

/* What a watch saw last. */
typedef struct seen {
    void *data;
    weft_tensor tensor;
    char name[256];
    uint64_t step;
    int calls, last; /* how often; the calls after which it ends the run, 0: none */
} seen;

static bool see(void *context, const weft_watched *w)
{
    seen *s = context;
    const size_t bytes = weft_tensor_bytes(w->tensor.dtype, w->tensor.shape);
    s->data = realloc(s->data, bytes + 1);
    memcpy(s->data, w->tensor.data, bytes);
    s->tensor = w->tensor;
    s->step = w->run;
    snprintf(s->name, sizeof s->name, "%s", w->name);
    return ++s->calls != s->last;
}

static size_t max_id(const weft_graph *g)
{
    const weft_node_info last = weft_graph_node(g, weft_graph_node_count(g) - 1);
    return last.first_out + last.n_out - 1;
}

/* ---- Every value ---- */

static bool is_of_update(const weft_graph *g, uint32_t id)
{
    weft_node_info node = {0};
    for (size_t i = 0; node.first_out + node.n_out <= id; i++) node = weft_graph_node(g, i);
    return node.role.direction == WEFT_UPDATE;
}

static void check_value(weft_session *reference, weft_value value, const seen *s)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(reference, value, &t, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(t.dtype, s->tensor.dtype);
    CU_ASSERT_TRUE_FATAL(weft_shape_equal(t.shape, s->tensor.shape));
    CU_ASSERT_EQUAL(memcmp(t.data, s->data, weft_tensor_bytes(t.dtype, t.shape)), 0);
}

/* Compares with what a plan without passes computes: all values but those of the updates in one
 * run, so that states stay as they are; and some of the others each in a run of its own. */
static void check_values(const model *m, const seen *all, size_t n)
{
    static const weft_plan_options plain = {.skip = "all"};
    weft_value *targets = calloc(n + 1, sizeof *targets);
    size_t n_targets = 0, n_updates = 0;
    for (uint32_t id = 1; id <= n; id++) {
        weft_value value = weft_value_from_id(m->g, id);
        const bool update = is_of_update(m->g, id);
        if (!update) targets[n_targets++] = value;
        if (!update || !all[id].calls || n_updates++ % 8) continue;
        model alone = *m;
        start(&alone, &value, 1, &plain, 1);
        CU_ASSERT_EQUAL(weft_session_run(alone.session, NULL), WEFT_OK);
        check_value(alone.session, value, &all[id]);
        stop(&alone);
    }
    CU_ASSERT_TRUE(n_updates > 10);
    model reference = *m;
    start(&reference, targets, n_targets, &plain, 1);
    CU_ASSERT_EQUAL(weft_session_run(reference.session, NULL), WEFT_OK);
    for (size_t i = 0; i < n_targets; i++)
        if (all[targets[i].id].calls)
            check_value(reference.session, targets[i], &all[targets[i].id]);
    stop(&reference);
    free(targets);
}

/* Watches all values at once, on several threads. Returns how many can be seen. */
static size_t check_all(const weft_plan_options *o, int threads)
{
    model m;
    build(&m);
    start(&m, WEFT_VALUES(m.built.loss, m.step), o, threads);
    const size_t n = max_id(m.g);
    size_t can = 0;
    seen *all = calloc(n + 1, sizeof *all);
    for (uint32_t id = 1; id <= n; id++) {
        const weft_value v = weft_value_from_id(m.g, id);
        weft_error e;
        const weft_status status = weft_session_watch(m.session, v, see, &all[id], &e);
        CU_ASSERT_EQUAL(status, e.status);
        all[id].last = status == WEFT_OK ? 0 : -1;
        can += status == WEFT_OK;
        if (status == WEFT_OK) continue;
        CU_ASSERT_EQUAL(status, WEFT_NOT_FOUND);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "make "));
    }
    CU_ASSERT_EQUAL(weft_session_run(m.session, NULL), WEFT_OK);
    for (uint32_t id = 1; id <= n; id++) CU_ASSERT_EQUAL(all[id].calls, all[id].last == 0);
    check_values(&m, all, n);
    for (uint32_t id = 1; id <= n; id++) free(all[id].data);
    CU_ASSERT_EQUAL(weft_session_unwatch(m.session, WEFT_NO_VALUE), can);
    free(all);
    stop(&m);
    weft_graph_free(m.g);
    return can;
}

static void test_values(void)
{
    static const weft_plan_options unfused = {.skip = "fuse"}, fixed = {.fixed_states = true},
                                   plain = {.skip = "all", .no_reuse = true};
    const size_t fused = check_all(NULL, 3), separate = check_all(&unfused, 2);
    CU_ASSERT_TRUE(fused > 100);
    CU_ASSERT_TRUE(separate > fused);
    CU_ASSERT_TRUE(check_all(&fixed, 2) > 100);
    CU_ASSERT_TRUE(check_all(&plain, 2) >= separate);
}

/* ---- Runs ---- */

static uint64_t states(const model *m)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < weft_params_count(m->params); i++) {
        weft_tensor t;
        weft_params_find(m->params, weft_params_name(m->params, i), &t);
        const unsigned char *bytes = t.data;
        for (size_t k = 0; k < weft_tensor_bytes(t.dtype, t.shape); k++)
            hash = (hash ^ bytes[k]) * 1099511628211u;
    }
    return hash;
}

/* Three steps of training have the same bits, whether they are watched, stopped and profiled. */
static void test_runs(void)
{
    model plain, m;
    seen loss = {0}, weight = {0};
    build(&plain);
    start(&plain, WEFT_VALUES(plain.built.loss, plain.step), NULL, 1);
    build(&m);
    start(&m, WEFT_VALUES(m.built.loss, m.step), NULL, 3);
    const weft_value parameter = weft_graph_find(m.g, weft_params_name(m.params, 0));
    CU_ASSERT_EQUAL(weft_session_watch(m.session, m.built.loss, see, &loss, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_watch(m.session, parameter, see, &weight, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_profile(m.session, true, NULL, NULL), WEFT_OK);
    for (int i = 0; i < 3; i++) {
        float value = 0;
        if (i == 1)
            CU_ASSERT_EQUAL(weft_session_run_before(m.session, m.built.loss, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(m.session, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(plain.session, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(loss.calls, i + 1);
        CU_ASSERT_EQUAL(weight.calls, i + 1);
        CU_ASSERT_EQUAL(loss.step, (uint64_t)i);
        weft_session_fetch(plain.session, plain.built.loss, &value, sizeof value, NULL);
        CU_ASSERT_EQUAL(memcmp(&value, loss.data, sizeof value), 0);
        CU_ASSERT_EQUAL(states(&m), states(&plain));
    }
    CU_ASSERT_TRUE(weft_profile_totals_of(weft_profile_of(m.session)).runs > 3);
    CU_ASSERT_EQUAL(weft_session_unwatch(m.session, m.built.loss), 1);
    CU_ASSERT_EQUAL(weft_session_unwatch(m.session, m.built.loss), 0);
    CU_ASSERT_EQUAL(weft_session_run(m.session, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(loss.calls, 3);
    CU_ASSERT_EQUAL(weight.calls, 4);
    free(loss.data);
    free(weight.data);
    stop(&m);
    stop(&plain);
    weft_graph_free(m.g);
    weft_graph_free(plain.g);
}

/* A callback that says no ends the run before any update; the next run is complete again. */
static void test_cancelled(void)
{
    model m;
    seen loss = {.last = 1};
    weft_error error;
    build(&m);
    start(&m, WEFT_VALUES(m.built.loss, m.step), NULL, 2);
    const uint64_t before = states(&m);
    CU_ASSERT_EQUAL(weft_session_watch(m.session, m.built.loss, see, &loss, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(m.session, &error), WEFT_CANCELLED);
    CU_ASSERT_STRING_EQUAL(error.where, loss.name);
    CU_ASSERT_EQUAL(states(&m), before);
    CU_ASSERT_EQUAL(weft_session_run(m.session, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(loss.calls, 2);
    CU_ASSERT_NOT_EQUAL(states(&m), before);
    free(loss.data);
    stop(&m);
    weft_graph_free(m.g);
}

/* The session may not be used by a callback of its own. */
static bool use_session(void *context, const weft_watched *w)
{
    weft_session *s = context;
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_run_before(s, w->value, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_watch(s, w->value, use_session, s, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_unwatch(s, w->value), 0);
    return true;
}

static void test_refused(void)
{
    model m;
    seen none = {0};
    build(&m);
    start(&m, WEFT_VALUES(m.built.loss, m.step), NULL, 2);
    CU_ASSERT_EQUAL(weft_session_watch(NULL, m.built.loss, see, &none, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_watch(m.session, m.built.loss, NULL, NULL, NULL),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_watch(m.session, WEFT_NO_VALUE, see, &none, NULL), WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(weft_session_unwatch(NULL, m.built.loss), 0);
    CU_ASSERT_EQUAL(weft_session_watch(m.session, m.built.loss, use_session, m.session, NULL),
                    WEFT_OK);
    weft_error error;
    CU_ASSERT_EQUAL(weft_session_run(m.session, &error), WEFT_OK);
    CU_ASSERT_EQUAL(error.status, WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run_before(m.session, m.built.loss, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_watch(m.session, m.built.loss, see, &none, NULL),
                    WEFT_BAD_ARGUMENT);
    stop(&m);
    weft_graph_free(m.g);
}

void watch_tests(void)
{
    CU_pSuite suite = CU_add_suite("watch", NULL, NULL);
    CU_add_test(suite, "every value", test_values);
    CU_add_test(suite, "runs have the same bits", test_runs);
    CU_add_test(suite, "a callback ends a run", test_cancelled);
    CU_add_test(suite, "what is refused", test_refused);
}
