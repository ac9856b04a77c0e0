/* Collectives on 1 to 4 ranks, which are threads: values, gradients against differences of the loss
 * over all ranks, the order of sums, messages, and wrong arguments. */
#include "ranks.h"
#include "tests.h"

#include <weft/parallel.h>

#include <stdlib.h>
#include <string.h>

enum { TO = 4, NUMBERS = 16, RUNS = 1 + 2 * TO * NUMBERS };

/* One collective, and its definition. */
typedef struct collective {
    const char *name;
    bool shared_in, shared_out; /* x, y are shared values; else ranks' own */
    weft_shape shape;           /* of x; dimension 0 is that times `size` if `rows` */
    bool rows;
    weft_value (*build)(weft_graph *g, weft_ranks ranks, weft_value x);
    /* Element i of y on a rank; x[r] has n elements. */
    double (*define)(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i);
} collective;

static double define_sum(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i)
{
    double sum = 0;
    for (int r = 0; r < size; r++) sum += x[r][i];
    (void)n;
    (void)me;
    return sum;
}

static double define_copy(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i)
{
    (void)n;
    (void)size;
    return x[me][i];
}

static double define_scatter(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i)
{
    return define_sum(x, n, size, me, me * (n / size) + i);
}

static double define_gather(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i)
{
    (void)size;
    (void)me;
    return x[i / n][i % n];
}

static double define_broadcast(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i)
{
    (void)me;
    return define_copy(x, n, size, size - 1, i);
}

static double define_to_rank(double (*x)[NUMBERS], int64_t n, int size, int me, int64_t i)
{
    return me == size / 2 ? define_sum(x, n, size, me, i) : 0;
}

static weft_value build_broadcast(weft_graph *g, weft_ranks ranks, weft_value x)
{
    return weft_broadcast_ranks(g, ranks, x, ranks.size - 1);
}

static weft_value build_to_rank(weft_graph *g, weft_ranks ranks, weft_value x)
{
    return weft_sum_to_rank(g, ranks, x, ranks.size / 2);
}

/* clang-format off */
static const collective collectives[] = {
    {"sum_over_ranks", false, true, {1, {5}}, false, weft_sum_over_ranks, define_sum},
    {"sum of scalars", false, true, {0, {0}}, false, weft_sum_over_ranks, define_sum},
    {"copy_to_ranks", true, false, {2, {2, 3}}, false, weft_copy_to_ranks, define_copy},
    {"all_reduce", false, false, {2, {3, 2}}, false, weft_all_reduce, define_sum},
    {"reduce_scatter", false, false, {2, {1, 3}}, true, weft_reduce_scatter, define_scatter},
    {"all_gather", false, false, {2, {2, 2}}, false, weft_all_gather, define_gather},
    {"broadcast", false, false, {1, {5}}, false, build_broadcast, define_broadcast},
    {"sum_to_rank", false, false, {2, {2, 2}}, false, build_to_rank, define_to_rank},
    {"sum of nothing", false, true, {2, {0, 3}}, false, weft_sum_over_ranks, define_sum},
    {NULL, false, false, {0, {0}}, false, NULL, NULL},
};
/* clang-format on */

/* What the ranks compute with one of them. */
typedef struct trial {
    const collective *c;
    int size;
    int64_t n, n_out;
    double x[TO][NUMBERS], y[TO][NUMBERS], gradient[TO][NUMBERS];
    double loss[RUNS][TO];
} trial;

#define STEP 0.25

/* The x of a rank in a run: run 0 is without change, run 1 + 2 k changes number k of all ranks'. */
static void change(const trial *t, int run, int me, double *x)
{
    const int64_t k = (run - 1) / 2;
    memcpy(x, t->x[me], sizeof t->x[me]);
    if (run && (t->c->shared_in || k / t->n == me)) x[k % t->n] += run % 2 ? STEP : -STEP;
}

static int runs_of(const trial *t)
{
    return 1 + 2 * (int)t->n * (t->c->shared_in ? 1 : t->size);
}

/* A loss w y^2, whose weights are those of the rank, or the same on all ranks for a shared y. */
static weft_value loss_of(weft_graph *g, const trial *t, weft_ranks ranks, weft_value y)
{
    const double from = t->c->shared_out ? 1 : 1 + ranks.rank;
    const weft_shape shape = weft_shape_of(g, y);
    weft_value w = weft_arange(g, WEFT_F64, weft_shape_numel(shape), from, 0.5);
    w = weft_mul(g, weft_reshape(g, w, shape), weft_square(g, y));
    return weft_sum(g, w, WEFT_ALL_AXES, false);
}

static weft_status run_all(trial *t, int me, weft_session *s, weft_value x, const weft_value *out,
                           weft_error *error)
{
    double fed[NUMBERS];
    for (int run = 0; run < runs_of(t); run++) {
        change(t, run, me, fed);
        if (weft_session_feed(s, x, fed, (size_t)t->n * sizeof *fed, error) != WEFT_OK ||
            weft_session_run(s, error) != WEFT_OK ||
            weft_session_fetch(s, out[0], &t->loss[run][me], sizeof(double), error) != WEFT_OK)
            return error->status;
        if (run) continue;
        if (weft_session_fetch(s, out[1], t->y[me], (size_t)t->n_out * sizeof(double), error) !=
                WEFT_OK ||
            weft_session_fetch(s, out[2], t->gradient[me], (size_t)t->n * sizeof(double), error) !=
                WEFT_OK)
            return error->status;
    }
    return WEFT_OK;
}

static void try_it(rank *r)
{
    trial *t = r->shared;
    const int me = r->communicator->rank;
    const weft_ranks ranks = {1, me, t->size};
    weft_graph *g = weft_graph_new();
    weft_shape shape = t->c->shape;
    if (t->c->rows) shape.dim[0] *= t->size;
    weft_value x = weft_input(g, "x", WEFT_F64, shape), out[3];
    out[1] = t->c->build(g, ranks, x);
    out[0] = loss_of(g, t, ranks, out[1]);
    weft_grad(g, out[0], &x, 1, &out[2]);
    weft_plan *plan = weft_plan_new(g, out, 3, &(weft_plan_options){.verify = true}, &r->error);
    /* A group of one rank exchanges nothing. */
    weft_communicator *const all[2] = {NULL, r->communicator};
    const weft_session_options o = {
        .threads = 1, .communicators = all, .n_communicators = t->size > 1 ? 2 : 0, .poison = true};
    weft_session *s = plan ? weft_session_new(plan, NULL, &o, &r->error) : NULL;
    if (s) run_all(t, me, s, x, out, &r->error);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static double total_loss(const trial *t, int run)
{
    double sum = 0;
    for (int r = 0; r < (t->c->shared_out ? 1 : t->size); r++) sum += t->loss[run][r];
    return sum;
}

static void check_trial(trial *t)
{
    /* Both sides add up to four numbers below 1: six roundings of at most 2^-52 are 1.3e-15. */
    for (int r = 0; r < t->size; r++)
        for (int64_t i = 0; i < t->n_out; i++)
            CU_ASSERT_DOUBLE_EQUAL(t->y[r][i], t->c->define(t->x, t->n, t->size, r, i), 1e-14);
    /* The loss is quadratic, so its difference is exact but for rounding: 40 roundings of a loss
     * below 1000, over 2 STEP = 0.5, are 40 * 1000 * 2^-53 / 0.5 = 9e-12. */
    for (int k = 0; k < (runs_of(t) - 1) / 2; k++) {
        const double slope = (total_loss(t, 1 + 2 * k) - total_loss(t, 2 + 2 * k)) / (2 * STEP);
        const int64_t i = k % t->n;
        CU_ASSERT_DOUBLE_EQUAL(t->gradient[k / t->n][i], slope, 1e-11);
        for (int r = 0; t->c->shared_in && r < t->size; r++)
            CU_ASSERT_EQUAL(t->gradient[r][i], t->gradient[0][i]);
    }
}

static void test_each(void)
{
    rank ranks[MAX_RANKS];
    trial *t = calloc(1, sizeof *t);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (const collective *c = collectives; c->name; c++)
        for (int size = 1; size <= TO; size++) {
            uint64_t random = 7;
            memset(t, 0, sizeof *t);
            t->c = c;
            t->size = size;
            t->n = weft_shape_numel(c->shape) * (c->rows ? size : 1);
            t->n_out = c->define == define_gather    ? t->n * size
                       : c->define == define_scatter ? t->n / size
                                                     : t->n;
            for (int r = 0; r < size; r++)
                for (int64_t i = 0; i < t->n; i++)
                    t->x[r][i] = r && c->shared_in ? t->x[0][i] : test_uniform(&random, -1, 1);
            run_ranks(size, try_it, t, ranks);
            expect_good(ranks, size);
            check_trial(t);
        }
    free(t);
}

/* ---- The order of sums ---- */

enum { MANY = 1003 };

typedef struct ordered {
    int size, run;
    float x[TO][MANY], y[2][TO][MANY];
} ordered;

static void add_up(rank *r)
{
    ordered *o = r->shared;
    const int me = r->communicator->rank;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(MANY));
    weft_value y = weft_sum_over_ranks(g, (weft_ranks){0, me, o->size}, x);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &r->error);
    const weft_session_options options = {
        .threads = 1 + o->run, .communicators = &r->communicator, .n_communicators = 1};
    weft_session *s = plan ? weft_session_new(plan, NULL, &options, &r->error) : NULL;
    if (s && weft_session_feed(s, x, o->x[me], sizeof o->x[me], &r->error) == WEFT_OK &&
        weft_session_run(s, &r->error) == WEFT_OK)
        weft_session_fetch(s, y, o->y[o->run][me], sizeof o->y[0][0], &r->error);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ((x0 + x1) + x2) + x3 in f32, on every rank and in every run. */
static void test_order(void)
{
    rank ranks[MAX_RANKS];
    ordered *o = calloc(1, sizeof *o);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    for (o->size = 1; o->size <= TO; o->size++) {
        uint64_t random = 3;
        for (int r = 0; r < o->size; r++)
            for (int i = 0; i < MANY; i++) o->x[r][i] = (float)test_uniform(&random, -1, 1);
        for (o->run = 0; o->run < 2; o->run++) {
            run_ranks(o->size, add_up, o, ranks);
            expect_good(ranks, o->size);
            for (int r = 0; r < o->size; r++)
                for (int i = 0; i < MANY; i++) {
                    float sum = o->x[0][i];
                    for (int k = 1; k < o->size; k++) sum += o->x[k][i];
                    if (o->y[o->run][r][i] != sum) CU_FAIL("another order");
                }
        }
    }
    free(o);
}

/* ---- Messages ---- */

/* Rank r multiplies what rank r - 1 sends by its x. The loss is the product on the last rank. */
typedef struct pipeline {
    int size;
    double gradient[TO];
} pipeline;

static double factor(int me)
{
    return 2 + me;
}

static void run_stage(rank *r)
{
    pipeline *p = r->shared;
    const int me = r->communicator->rank;
    const weft_ranks ranks = {0, me, p->size};
    const bool first = !me, last = me == p->size - 1;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR), h = x, out[3];
    weft_value after = weft_fill(g, WEFT_F64, WEFT_SHAPE(0), 0), cotangent = after;
    if (!first) h = weft_mul(g, x, weft_receive(g, ranks, WEFT_F64, WEFT_SCALAR, me - 1, 5, after));
    if (last)
        cotangent = weft_scalar(g, WEFT_F64, 1);
    else
        h = weft_send(g, ranks, h, me + 1, 5);
    weft_grad_of(g, &h, &cotangent, 1, (weft_value[]){x, after}, 2, out);
    out[2] = h;
    weft_plan *plan = weft_plan_new(g, out, 3, NULL, &r->error);
    const weft_session_options o = {
        .threads = 1, .communicators = &r->communicator, .n_communicators = 1};
    weft_session *s = plan ? weft_session_new(plan, NULL, &o, &r->error) : NULL;
    const double fed = factor(me);
    if (s && weft_session_feed(s, x, &fed, sizeof fed, &r->error) == WEFT_OK &&
        weft_session_run(s, &r->error) == WEFT_OK)
        weft_session_fetch(s, out[0], &p->gradient[me], sizeof fed, &r->error);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_messages(void)
{
    rank ranks[MAX_RANKS];
    for (int size = 1; size <= TO; size++) {
        pipeline p = {.size = size};
        double product = 1;
        run_ranks(size, run_stage, &p, ranks);
        expect_good(ranks, size);
        for (int r = 0; r < size; r++) product *= factor(r);
        for (int r = 0; r < size; r++)
            CU_ASSERT_DOUBLE_EQUAL(p.gradient[r], product / factor(r), ROUNDING_F64);
    }
}

/* ---- Wrong arguments ---- */

static weft_value wrong(weft_graph *g, int k)
{
    const weft_ranks good = {0, 1, 3};
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4, 3));
    weft_value i = weft_input(g, "i", WEFT_I32, WEFT_SHAPE(3));
    weft_value scalar = weft_input(g, "scalar", WEFT_F32, WEFT_SCALAR);
    switch (k) {
    case 0:
        return weft_sum_over_ranks(g, (weft_ranks){0, 0, 0}, x);
    case 1:
        return weft_copy_to_ranks(g, (weft_ranks){0, 3, 3}, x);
    case 2:
        return weft_all_gather(g, (weft_ranks){-1, 0, 3}, x);
    case 3:
        return weft_all_reduce(g, good, i);
    case 4:
        return weft_reduce_scatter(g, good, x);
    case 5:
        return weft_reduce_scatter(g, good, scalar);
    case 6:
        return weft_all_gather(g, good, scalar);
    case 7:
        return weft_broadcast_ranks(g, good, x, 3);
    case 8:
        return weft_sum_to_rank(g, good, x, -1);
    case 9:
        return weft_send(g, good, x, 3, 0);
    case 10:
        return weft_send(g, good, x, 0, WEFT_MAX_TAG + 1);
    case 11:
        return weft_receive(g, good, WEFT_F32, WEFT_SHAPE(4), 0, -1, WEFT_NO_VALUE);
    case 12:
        return weft_receive(g, good, WEFT_F32, WEFT_SHAPE(4), 0, 0, x);
    case 13:
        return weft_all_gather(g, (weft_ranks){0, 0, 1 << 30},
                               weft_input(g, "long", WEFT_F32, WEFT_SHAPE(INT64_C(1) << 40)));
    default:
        return weft_receive(g, good, WEFT_F64, WEFT_SHAPE(4), 0, 0, weft_send(g, good, x, 0, 0));
    }
}

static void test_refusals(void)
{
    static const struct {
        weft_status status;
        const char *text;
    } expected[] = {
        {WEFT_BAD_ARGUMENT, "rank 0 of 0 ranks"},
        {WEFT_BAD_ARGUMENT, "rank 3 of 3 ranks"},
        {WEFT_BAD_ARGUMENT, "in group -1"},
        {WEFT_BAD_DTYPE, "i32"},
        {WEFT_BAD_SHAPE, "dimension 0 is 4, expected a multiple of the 3 ranks"},
        {WEFT_BAD_SHAPE, "rank"},
        {WEFT_BAD_SHAPE, "rank"},
        {WEFT_BAD_ARGUMENT, "rank 3 is outside of the 3 ranks"},
        {WEFT_BAD_ARGUMENT, "rank -1 is outside"},
        {WEFT_BAD_ARGUMENT, "rank 3 is outside"},
        {WEFT_BAD_ARGUMENT, "the tag must be 0 to 32767, got 32768"},
        {WEFT_BAD_ARGUMENT, "got -1"},
        {WEFT_BAD_SHAPE, "must be empty, [0], got [4, 3]"},
        {WEFT_TOO_LARGE, "overflow"},
        {WEFT_BAD_DTYPE, "f64"},
    };
    for (int k = 0; k < (int)(sizeof expected / sizeof *expected); k++) {
        weft_graph *g = weft_graph_new();
        CU_ASSERT_FALSE(weft_is_value(wrong(g, k)));
        const weft_error *e = weft_graph_error(g);
        CU_ASSERT_EQUAL(e->status, expected[k].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(e->message, expected[k].text));
        if (!strstr(e->message, expected[k].text)) printf("\n    %s: %s\n", e->where, e->message);
        weft_graph_free(g);
    }
}

void collectives_tests(void)
{
    CU_pSuite suite = CU_add_suite("collectives", NULL, NULL);
    CU_add_test(suite, "values and gradients on 1 to 4 ranks", test_each);
    CU_add_test(suite, "sums in the order of the ranks", test_order);
    CU_add_test(suite, "messages and their gradients", test_messages);
    CU_add_test(suite, "wrong arguments", test_refusals);
}
