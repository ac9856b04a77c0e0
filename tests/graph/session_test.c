/* Sessions: inputs that must be fed before a run, defaults, runs in two parts, and the errors of
 * refused calls. */
#include "tests.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* y = x * lr in a session. */
typedef struct product {
    weft_graph *g;
    weft_value x, lr, y;
    weft_plan *plan;
    weft_session *s;
} product;

static product product_new(void)
{
    product p = {.g = weft_graph_new()};
    weft_error error = {0};
    p.x = weft_input(p.g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_graph_push_scope(p.g, "opt");
    p.lr = weft_input(p.g, "lr", WEFT_F32, WEFT_SCALAR);
    weft_graph_pop_scope(p.g);
    p.y = weft_mul(p.g, p.x, p.lr);
    p.plan = weft_plan_new(p.g, &p.y, 1, &(weft_plan_options){.verify = true}, &error);
    p.s = weft_session_new(p.plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p.s);
    return p;
}

static void product_free(product *p)
{
    weft_session_free(p->s);
    weft_plan_free(p->plan);
    weft_graph_free(p->g);
}

static void expect_unfed(weft_session *s, const char *input)
{
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(e.where, input);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "never fed"));
}

static void expect_refused_feed(weft_session *s, const char *input)
{
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(e.where, input);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "last feed was refused"));
}

/* A run without a feed names the input that lacks one, and changes nothing. */
static void test_unfed(void)
{
    const float x[2] = {3, 4}, lr = 0.5f;
    float y[2] = {0};
    product p = product_new();
    expect_unfed(p.s, "x");
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.x, x, sizeof x, NULL), WEFT_OK);
    expect_unfed(p.s, "opt.lr");
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &lr, 2, NULL), WEFT_BAD_ARGUMENT);
    expect_refused_feed(p.s, "opt.lr");
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &lr, sizeof lr, NULL), WEFT_OK);
    for (int run = 0; run < 2; run++) {
        CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.y, y, sizeof y, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(y[1], 2.0f);
    }
    product_free(&p);
}

/* After a refused feed a run would use the data before it, so there is none until a feed succeeds,
 * whichever way. */
static void test_refused_feed(void)
{
    const float x[2] = {3, 4}, lr = 0.5f;
    float y[2] = {0};
    product p = product_new();
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.x, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &lr, sizeof lr, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &lr, 2, NULL), WEFT_BAD_ARGUMENT);
    expect_refused_feed(p.s, "opt.lr");
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.x, NULL, sizeof x, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &lr, sizeof lr, NULL), WEFT_OK);
    expect_refused_feed(p.s, "x");
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(p.s, NULL), WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.x, y, sizeof y, NULL), WEFT_NOT_FOUND);
    weft_tensor tensor;
    CU_ASSERT_TRUE(weft_session_tensor(p.s, p.x, &tensor, NULL) ==
                   WEFT_OK); /* the program writes the feed there */
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    /* What is not an input of the plan has no feed that could be missing. */
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.y, y, sizeof y, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    product_free(&p);
}

static void expect_no_result(weft_session *s, weft_value y, size_t bytes, const char *reason)
{
    float got[2] = {-1, -1};
    weft_tensor tensor;
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, got, bytes, &e), WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(e.status, WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, reason));
    CU_ASSERT_EQUAL(got[0], -1);
    CU_ASSERT_FALSE(weft_session_tensor(s, y, &tensor, NULL) == WEFT_OK);
}

/* Only a run that succeeded has results. */
static void test_fetch_without_results(void)
{
    const float x[2] = {3, 4}, lr = 0.5f;
    float y[2] = {0};
    product p = product_new();
    expect_no_result(p.s, p.y, sizeof y, "has not run");
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_NOT_FOUND);
    expect_no_result(p.s, p.y, sizeof y, "last run failed");
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.x, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &lr, sizeof lr, NULL), WEFT_OK);
    expect_no_result(p.s, p.y, sizeof y, "last run failed");
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.y, y, sizeof y, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.x, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.y, y, sizeof y, NULL),
                    WEFT_OK); /* still of the last run */
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(p.s, NULL), WEFT_OK);
    expect_no_result(p.s, p.y, sizeof y, "weft_session_find_nonfinite");
    product_free(&p);
}

/* weft_session_find_nonfinite needs the feeds too. */
static void test_unfed_search(void)
{
    product p = product_new();
    weft_error found = {0};
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(p.s, &found), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(found.where, "x");
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(p.s, NULL), WEFT_NOT_FOUND);
    product_free(&p);
}

/* Writing through the tensor of an input feeds it; fetching an input does not. */
static void test_in_place(void)
{
    product p = product_new();
    weft_tensor x, lr;
    float got[2];
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.x, got, sizeof got, &e), WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "never fed"));
    expect_unfed(p.s, "x");
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(p.s, p.x, &x, NULL) == WEFT_OK &&
                         weft_session_tensor(p.s, p.lr, &lr, NULL) == WEFT_OK);
    ((float *)x.data)[0] = ((float *)x.data)[1] = 3;
    *(float *)lr.data = 4;
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.y, got, sizeof got, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(got[1], 12.0f);
    product_free(&p);
}

/* An input that the targets do not need, or that has no elements, need not be fed. */
static void test_not_needed(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_value none = weft_input(g, "none", WEFT_F32, WEFT_SHAPE(0, 2));
    weft_value y = weft_sum(g, none, WEFT_ALL_AXES, false);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, NULL, 0, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Defaults ---- */

/* sum(x) + a + b + c, of inputs with defaults of every dtype. */
typedef struct defaults {
    weft_graph *g;
    weft_value x, i, flag, y;
    weft_plan *plan;
} defaults;

static defaults defaults_new(void)
{
    defaults d = {.g = weft_graph_new()};
    weft_error error = {0};
    d.x = weft_input(d.g, "x", WEFT_F64, WEFT_SHAPE(3));
    d.i = weft_input(d.g, "i", WEFT_I32, WEFT_SHAPE(2));
    d.flag = weft_input(d.g, "flag", WEFT_BOOL, WEFT_SCALAR);
    weft_input_default(d.g, d.x, 0.25);
    weft_input_default(d.g, d.i, 7);
    weft_input_default(d.g, d.i, -5); /* replaces the earlier default */
    weft_input_default(d.g, d.flag, 1);
    weft_value terms[3] = {d.x, weft_cast(d.g, d.i, WEFT_F64), weft_cast(d.g, d.flag, WEFT_F64)};
    for (int k = 0; k < 3; k++) terms[k] = weft_sum(d.g, terms[k], WEFT_ALL_AXES, false);
    d.y = weft_add(d.g, weft_add(d.g, terms[0], terms[1]), terms[2]);
    d.plan = weft_plan_new(d.g, &d.y, 1, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d.plan);
    return d;
}

static void expect_result(weft_session *s, weft_value y, double expected)
{
    double got = NAN;
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, &got, sizeof got, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(got, expected);
}

static void test_defaults(void)
{
    const double x[3] = {1, 2, 3};
    defaults d = defaults_new();
    weft_session *s = weft_session_new(d.plan, NULL, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    expect_result(s, d.y, 0.75 - 10 + 1);
    CU_ASSERT_EQUAL(weft_session_feed(s, d.x, x, sizeof x, NULL), WEFT_OK);
    expect_result(s, d.y, 6 - 10 + 1);
    /* A refused feed does not bring the default back. */
    CU_ASSERT_EQUAL(weft_session_feed(s, d.i, x, 3, NULL), WEFT_BAD_ARGUMENT);
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(e.where, "i");
    weft_session_free(s);
    weft_plan_free(d.plan);
    weft_graph_free(d.g);
}

/* Sessions that share an arena overwrite each other's inputs; defaults are written again. */
static void test_shared_arena(void)
{
    const double x[3] = {1, 2, 3};
    defaults a = defaults_new(), b = defaults_new();
    weft_session_options o = {.arena_bytes = weft_plan_stats_of(a.plan).arena_bytes};
    o.arena = weft_alloc(o.arena_bytes);
    weft_session *s = weft_session_new(a.plan, NULL, &o, NULL);
    weft_session *t = weft_session_new(b.plan, NULL, &o, NULL);
    CU_ASSERT_TRUE_FATAL(s && t);
    for (int i = 0; i < 3; i++) {
        memset(o.arena, 0xFF, o.arena_bytes);
        CU_ASSERT_EQUAL(weft_session_feed(t, b.x, x, sizeof x, NULL), WEFT_OK);
        expect_result(t, b.y, 6 - 10 + 1);
        expect_result(s, a.y, 0.75 - 10 + 1);
    }
    /* The tensor of an input that was not fed holds its default. */
    weft_tensor tensor;
    memset(o.arena, 0xFF, o.arena_bytes);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, a.x, &tensor, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(((double *)tensor.data)[2], 0.25);
    weft_session_free(s);
    weft_session_free(t);
    weft_plan_free(a.plan);
    weft_plan_free(b.plan);
    weft_graph_free(a.g);
    weft_graph_free(b.g);
    weft_free(o.arena);
}

/* Sessions that share an arena and say so see that another one has overwritten their data. */
static void test_overwritten(void)
{
    const double x[3] = {1, 2, 3};
    double got;
    const void *user = NULL;
    defaults d = defaults_new();
    weft_session_options o = {.arena_bytes = weft_plan_stats_of(d.plan).arena_bytes,
                              .arena_user = &user};
    o.arena = weft_alloc(o.arena_bytes);
    weft_session *s = weft_session_new(d.plan, NULL, &o, NULL);
    weft_session *t = weft_session_new(d.plan, NULL, &o, NULL);
    CU_ASSERT_TRUE_FATAL(s && t);
    CU_ASSERT_EQUAL(weft_session_feed(s, d.x, x, sizeof x, NULL), WEFT_OK);
    expect_result(s, d.y, 6 - 10 + 1);
    expect_result(t, d.y, 0.75 - 10 + 1);
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_fetch(s, d.y, &got, sizeof got, &e), WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "another session"));
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(e.where, "x");
    CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "another session"));
    CU_ASSERT_EQUAL(weft_session_feed(s, d.x, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(t, d.y, &got, sizeof got, NULL), WEFT_NOT_FOUND);
    expect_result(s, d.y, 6 - 10 + 1);
    /* Of several inputs, each has to be fed again. */
    const int32_t i[2] = {3, 4};
    CU_ASSERT_EQUAL(weft_session_feed(s, d.i, i, sizeof i, NULL), WEFT_OK);
    expect_result(s, d.y, 6 + 7 + 1);
    expect_result(t, d.y, 0.75 - 10 + 1);
    CU_ASSERT_EQUAL(weft_session_feed(s, d.x, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(e.where, "i");
    CU_ASSERT_EQUAL(weft_session_feed(s, d.i, i, sizeof i, NULL), WEFT_OK);
    expect_result(s, d.y, 6 + 7 + 1);
    weft_session_free(s);
    CU_ASSERT_PTR_NULL(user);
    weft_session_free(t);
    weft_plan_free(d.plan);
    weft_graph_free(d.g);
    weft_free(o.arena);
}

/* ---- Runs in two parts ---- */

enum { WIDTH = 96, RUNS = 3 };

/* second = dropout(x w) w, out = dropout(second) * scale, and a state to which each run adds the
 * sum of out. */
typedef struct halves {
    weft_graph *g;
    weft_params *store;
    weft_plan *plan;
    weft_session *s;
    weft_value x, scale, state, second, out, total;
} halves;

static halves halves_new(int threads)
{
    halves h = {.g = weft_graph_new(), .store = weft_params_new()};
    const weft_shape square = WEFT_SHAPE(WIDTH, WIDTH);
    h.x = weft_input(h.g, "x", WEFT_F32, square);
    h.scale = weft_input(h.g, "scale", WEFT_F32, WEFT_SCALAR);
    weft_value w = weft_param(h.g, "w", WEFT_F32, square, WEFT_INIT_XAVIER);
    h.state = weft_state(h.g, "total", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ZEROS);
    weft_value first = weft_dropout(h.g, weft_matmul(h.g, h.x, w), 0.5);
    h.second = weft_matmul(h.g, first, w);
    h.out = weft_mul(h.g, weft_dropout(h.g, h.second, 0.5), h.scale);
    h.total = weft_assign(h.g, h.state,
                          weft_add(h.g, h.state, weft_sum(h.g, h.out, WEFT_ALL_AXES, false)));
    CU_ASSERT_EQUAL_FATAL(weft_params_init(h.store, h.g, 1, NULL), WEFT_OK);
    const weft_value targets[] = {h.out, h.total, h.second};
    h.plan = weft_plan_new(h.g, targets, 3, &(weft_plan_options){.verify = true}, NULL);
    h.s = weft_session_new(h.plan, h.store, &(weft_session_options){.threads = threads}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(h.s);
    static float x[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++) x[i] = (float)(i % 17) - 8;
    CU_ASSERT_EQUAL(weft_session_feed(h.s, h.x, x, sizeof x, NULL), WEFT_OK);
    return h;
}

static void halves_free(halves *h)
{
    weft_session_free(h->s);
    weft_plan_free(h->plan);
    weft_params_free(h->store);
    weft_graph_free(h->g);
}

static void feed_scale(halves *h, float scale)
{
    CU_ASSERT_EQUAL(weft_session_feed(h->s, h->scale, &scale, sizeof scale, NULL), WEFT_OK);
}

static void expect_equal(const halves *a, const halves *b)
{
    weft_tensor x, y;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(a->s, a->out, &x, NULL) == WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(b->s, b->out, &y, NULL) == WEFT_OK);
    EXPECT_SAME_BITS(WEFT_F32, x.data, y.data, WIDTH * WIDTH);
    float totals[2] = {-1, -2};
    weft_session_fetch(a->s, a->total, &totals[0], sizeof(float), NULL);
    weft_session_fetch(b->s, b->total, &totals[1], sizeof(float), NULL);
    CU_ASSERT_EQUAL(totals[0], totals[1]);
}

static weft_profile_totals profile_of(const halves *h)
{
    return weft_profile_totals_of(weft_profile_of(h->s));
}

static void test_two_parts(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        halves once = halves_new(1), parts = halves_new(threads);
        CU_ASSERT_EQUAL(weft_session_profile(parts.s, threads != 2, NULL, NULL), WEFT_OK);
        for (int run = 0; run < RUNS; run++) {
            feed_scale(&once, (float)(run + 2));
            CU_ASSERT_EQUAL(weft_session_run(once.s, NULL), WEFT_OK);
            feed_scale(&parts, 100);
            CU_ASSERT_EQUAL(weft_session_run_before(parts.s, parts.second, NULL), WEFT_OK);
            feed_scale(&parts, (float)(run + 2));
            CU_ASSERT_EQUAL(weft_session_run(parts.s, NULL), WEFT_OK);
            expect_equal(&once, &parts);
        }
        if (threads != 2) {
            const weft_profile_totals t = profile_of(&parts);
            const double sum = t.compute_seconds + t.waiting_seconds + t.start_seconds;
            CU_ASSERT_EQUAL(t.runs, 2 * RUNS);
            CU_ASSERT_EQUAL(t.flops, RUNS * weft_plan_stats_of(parts.plan).flops);
            CU_ASSERT_TRUE(fabs(sum - t.thread_seconds) <= ROUNDING_F64 * t.thread_seconds);
        }
        halves_free(&once);
        halves_free(&parts);
    }
}

static float state_of(const halves *h)
{
    float state = -1;
    CU_ASSERT_EQUAL(weft_session_fetch(h->s, h->state, &state, sizeof state, NULL), WEFT_OK);
    return state;
}

/* The update is in the rest. The halves of two sessions may alternate. */
static void test_first_part(void)
{
    halves once = halves_new(1), a = halves_new(2), b = halves_new(2);
    feed_scale(&once, 3);
    feed_scale(&a, 3);
    feed_scale(&b, 3);
    CU_ASSERT_EQUAL(weft_session_run(once.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run_before(a.s, a.second, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run_before(b.s, b.second, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(state_of(&a), 0);
    expect_no_result(a.s, a.total, sizeof(float), "middle of a run");
    CU_ASSERT_EQUAL(weft_session_feed(a.s, a.scale, NULL, 0, NULL), WEFT_BAD_ARGUMENT);
    expect_refused_feed(a.s, "scale");
    feed_scale(&a, 3);
    CU_ASSERT_EQUAL(weft_session_run_before(a.s, a.second, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(a.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(b.s, NULL), WEFT_OK);
    CU_ASSERT_NOT_EQUAL(state_of(&a), 0);
    expect_equal(&once, &a);
    expect_equal(&once, &b);
    halves_free(&once);
    halves_free(&a);
    halves_free(&b);
}

static void expect_refused(halves *h, weft_value value)
{
    weft_error e;
    CU_ASSERT_EQUAL(weft_session_run_before(h->s, value, &e), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(e.where, "weft_session_run_before");
}

static void test_part_errors(void)
{
    halves once = halves_new(1), h = halves_new(1);
    CU_ASSERT_EQUAL(weft_session_run_before(NULL, h.second, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_run_before(h.s, h.second, NULL),
                    WEFT_NOT_FOUND); /* a feed is missing */
    feed_scale(&once, 2);
    feed_scale(&h, 2);
    expect_refused(&h, WEFT_NO_VALUE);
    expect_refused(&h, once.second);
    expect_refused(&h, h.x);
    expect_refused(&h, h.state);
    CU_ASSERT_EQUAL(weft_session_run_before(h.s, h.second, NULL), WEFT_OK);
    expect_refused(&h, h.second);
    /* The refused calls changed nothing. */
    CU_ASSERT_EQUAL(weft_session_run(h.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(once.s, NULL), WEFT_OK);
    expect_equal(&once, &h);
    halves_free(&once);
    halves_free(&h);
}

/* A run rounds to nearest and keeps subnormal numbers, whatever the program has set, and leaves
 * what it has set. */
static void test_environment(void)
{
    const float x[2] = {1, 1e-38f}, third = 0.33333334f, tenth = 0.1f;
    float usual[2] = {0}, y[2] = {0};
    product p = product_new();
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.x, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &third, sizeof third, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.y, usual, sizeof usual, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &tenth, sizeof tenth, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(p.s, p.lr, &third, sizeof third, NULL), WEFT_OK);
    fesetround(FE_UPWARD);
#ifdef __SSE__
    const unsigned before = _mm_getcsr();
    _mm_setcsr(_mm_getcsr() | 0x8040); /* as -ffast-math does: subnormal numbers become zeros */
    const unsigned set = _mm_getcsr();
#endif
    CU_ASSERT_EQUAL(weft_session_run(p.s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(fegetround(), FE_UPWARD);
#ifdef __SSE__
    CU_ASSERT_EQUAL(_mm_getcsr() & ~0x3fu, set & ~0x3fu);
#endif
#ifdef __SSE__
    _mm_setcsr(before); /* MinGW's FE_DFL_ENV leaves that */
#endif
    fesetenv(FE_DFL_ENV);
    CU_ASSERT_EQUAL(weft_session_fetch(p.s, p.y, y, sizeof y, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(usual, y, sizeof y), 0);
    CU_ASSERT_NOT_EQUAL(y[1], 0);
    product_free(&p);
}

void session_tests(void)
{
    CU_pSuite suite = CU_add_suite("session", NULL, NULL);
    CU_add_test(suite, "a run needs its feeds", test_unfed);
    CU_add_test(suite, "a refused feed", test_refused_feed);
    CU_add_test(suite, "results before a run", test_fetch_without_results);
    CU_add_test(suite, "so does the search for NaN", test_unfed_search);
    CU_add_test(suite, "inputs that are filled in place", test_in_place);
    CU_add_test(suite, "inputs that need no feed", test_not_needed);
    CU_add_test(suite, "defaults", test_defaults);
    CU_add_test(suite, "defaults in a shared arena", test_shared_arena);
    CU_add_test(suite, "overwritten in a shared arena", test_overwritten);
    CU_add_test(suite, "a run in two parts", test_two_parts);
    CU_add_test(suite, "the first part alone", test_first_part);
    CU_add_test(suite, "parts that are refused", test_part_errors);
    CU_add_test(suite, "the floating-point environment", test_environment);
}
