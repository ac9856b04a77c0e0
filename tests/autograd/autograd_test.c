/* Autodiff by hand-computed cases, and the optimisers against their formulas. */
#include "tests.h"

#include <math.h>
#include <string.h>

/* Runs targets once on a store with x = data (f64 [n]) and fetches target 0. */
static bool evaluate(weft_graph *g, weft_value x, const double *data, size_t n, weft_value target,
                     double *out, size_t n_out)
{
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, &target, 1, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    bool good = s && weft_session_feed(s, x, data, n * sizeof *data, NULL) == WEFT_OK &&
                weft_session_run(s, NULL) == WEFT_OK &&
                weft_session_fetch(s, target, out, n_out * sizeof *out, NULL) == WEFT_OK;
    if (!good) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    weft_session_free(s);
    weft_plan_free(plan);
    return good;
}

/* x^3: first, second and third derivative. */
static void test_orders(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR), d[4];
    d[0] = weft_mul(g, weft_mul(g, x, x), x);
    for (int i = 0; i < 3; i++) weft_grad(g, d[i], &x, 1, &d[i + 1]);
    const double at = 1.5, expected[] = {at * at * at, 3 * at * at, 6 * at, 6};
    for (int i = 0; i < 4; i++) {
        double got = 0;
        CU_ASSERT_TRUE(evaluate(g, x, &at, 1, d[i], &got, 1));
        CU_ASSERT_DOUBLE_EQUAL(got, expected[i], ROUNDING_F64);
    }
    weft_graph_free(g);
}

/* A value read several times gets the sum; one that is not read gets zeros. */
static void test_sums(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2));
    weft_value y = weft_exp(g, x), unused = weft_mul_scalar(g, x, 3);
    weft_value all = weft_add(g, weft_add(g, weft_mul(g, y, y), y), x);
    weft_value loss = weft_sum(g, all, WEFT_ALL_AXES, false);
    weft_value wrt[3] = {x, y, unused}, grads[3];
    weft_grad(g, loss, wrt, 3, grads);
    const double at[2] = {0.3, -0.7};
    double got[2];
    CU_ASSERT_TRUE(evaluate(g, x, at, 2, grads[0], got, 2));
    for (int i = 0; i < 2; i++)
        CU_ASSERT_DOUBLE_EQUAL(got[i], 2 * exp(2 * at[i]) + exp(at[i]) + 1, ROUNDING_F64);
    CU_ASSERT_TRUE(evaluate(g, x, at, 2, grads[1], got, 2));
    for (int i = 0; i < 2; i++) CU_ASSERT_DOUBLE_EQUAL(got[i], 2 * exp(at[i]) + 1, ROUNDING_F64);
    CU_ASSERT_TRUE(evaluate(g, x, at, 2, grads[2], got, 2));
    CU_ASSERT_EQUAL(got[0], 0);
    weft_graph_free(g);
}

static void note_ready(void *context, size_t i, weft_value gradient)
{
    (void)gradient;
    char *order = context;
    order[strlen(order)] = (char)('0' + i);
}

/* Two outputs, y = e^x and z = 3 y, one of which the other depends on. */
static void test_outputs(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR);
    weft_value y = weft_exp(g, x), z = weft_mul_scalar(g, y, 3);
    weft_value outputs[2] = {y, z}, wrt[3] = {x, y, z}, grads[3];
    weft_value cotangents[2] = {weft_scalar(g, WEFT_F64, 5), weft_scalar(g, WEFT_F64, 7)};
    char order[4] = "";
    weft_grad_each(g, &(weft_grad_values){outputs, cotangents, 2, wrt, 3}, grads,
                   &(weft_grad_hooks){.ready = note_ready, .context = order});
    CU_ASSERT_STRING_EQUAL(order, "210");
    const double at = 0.3, expected[3] = {26 * exp(at), 26, 7};
    for (int i = 0; i < 3; i++) {
        double got = 0;
        CU_ASSERT_TRUE(evaluate(g, x, &at, 1, grads[i], &got, 1));
        CU_ASSERT_DOUBLE_EQUAL(got, expected[i], ROUNDING_F64);
    }
    weft_graph_free(g);
}

/* relu's gradient after a dropout of relu alone, and of a sum with it. */
static void test_dropped_relu(void)
{
    enum { N = 64 };
    for (int twice = 0; twice < 2; twice++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(N)), dx;
        weft_value y = weft_relu(g, x);
        weft_value d = weft_dropout(g, twice ? weft_add(g, x, y) : y, 0.5);
        weft_grad(g, weft_sum(g, weft_mul(g, d, x), WEFT_ALL_AXES, false), &x, 1, &dx);
        double at[N], dropped[N], got[N];
        for (int i = 0; i < N; i++) at[i] = i % 3 - 1 + 0.01 * i;
        CU_ASSERT_TRUE(evaluate(g, x, at, N, d, dropped, N));
        CU_ASSERT_TRUE(evaluate(g, x, at, N, dx, got, N));
        for (int i = 0; i < N; i++) {
            double before = fmax(at[i], 0) + (twice ? at[i] : 0);
            double factor = dropped[i] != 0 ? 2 : 0, slope = (at[i] > 0) + twice;
            if (before != 0)
                CU_ASSERT_DOUBLE_EQUAL(got[i], dropped[i] + factor * slope * at[i], ROUNDING_F64);
        }
        weft_graph_free(g);
    }
}

static void test_errors(void)
{
    weft_graph *g = weft_graph_new();
    weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ONES), grad;
    weft_value next = weft_assign(g, w, weft_mul_scalar(g, w, 2));
    weft_grad(g, weft_sum(g, next, WEFT_ALL_AXES, false), &w, 1, &grad);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_NO_GRADIENT);
    CU_ASSERT_STRING_EQUAL(weft_graph_error(g)->where, "grad/assign");
    CU_ASSERT_FALSE(weft_is_value(grad));
    weft_graph_free(g);

    g = weft_graph_new();
    w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_grad(g, w, &w, 1, &grad);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    weft_graph_free(g);

    g = weft_graph_new();
    weft_grad(g, WEFT_NO_VALUE, NULL, 1, NULL);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
    weft_grad(NULL, WEFT_NO_VALUE, NULL, 0, NULL);
}

/* Three steps on loss = sum w^2 / 2 * c, whose gradient is c w, compared with the formulas. */
static void check_optimizer(const weft_optimizer *o)
{
    const double lr = 0.1, c = 3;
    double p[2] = {1, -2}, m[2] = {0}, v[2] = {0}, buf[2] = {0};
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_value loss =
        weft_mul_scalar(g, weft_sum(g, weft_square(g, w), WEFT_ALL_AXES, false), c / 2);
    weft_value step = weft_train_update(g, loss, &w, 1, weft_scalar(g, WEFT_F64, lr), o, NULL);
    weft_params *store = weft_params_new();
    weft_tensor t;
    CU_ASSERT_EQUAL(weft_params_init(store, g, 1, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_params_find(store, "w", &t));
    memcpy(t.data, p, sizeof p);
    weft_plan *plan = weft_plan_new(g, &step, 1, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, store, NULL, &error);
    for (int k = 1; k <= 3; k++) {
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        double norm = c * hypot(p[0], p[1]);
        double scale = o->max_norm > 0 ? fmin(1, o->max_norm / (norm + 1e-6)) : 1;
        for (int i = 0; i < 2; i++) {
            double g0 = scale * c * p[i];
            if (o->kind == WEFT_SGD) {
                g0 += o->sgd.weight_decay * p[i];
                buf[i] = o->sgd.momentum * buf[i] + g0;
                p[i] -= lr * (o->sgd.nesterov ? g0 + o->sgd.momentum * buf[i] : buf[i]);
                continue;
            }
            if (o->kind == WEFT_ADAMW)
                p[i] -= lr * o->adam.weight_decay * p[i];
            else
                g0 += o->adam.weight_decay * p[i];
            m[i] = o->adam.beta1 * m[i] + (1 - o->adam.beta1) * g0;
            v[i] = o->adam.beta2 * v[i] + (1 - o->adam.beta2) * g0 * g0;
            p[i] -= lr * m[i] / (1 - pow(o->adam.beta1, k)) /
                    (sqrt(v[i] / (1 - pow(o->adam.beta2, k))) + o->adam.eps);
        }
        for (int i = 0; i < 2; i++)
            CU_ASSERT_DOUBLE_EQUAL(((double *)t.data)[i], p[i], ROUNDING_F64);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
}

static void test_optimizers(void)
{
    weft_optimizer adam = {.kind = WEFT_ADAM, .adam = {0.9, 0.98, 1e-9, 0.01, false, 0}};
    weft_optimizer adamw = {.kind = WEFT_ADAMW, .adam = {0.9, 0.999, 1e-8, 0.1, false, 0}};
    weft_optimizer sgd = {.kind = WEFT_SGD, .sgd = {.weight_decay = 0.1}};
    weft_optimizer momentum = {
        .kind = WEFT_SGD, .sgd = {.momentum = 0.9, .weight_decay = 0.01}, .max_norm = 1};
    weft_optimizer nesterov = {
        .kind = WEFT_SGD, .sgd = {.momentum = 0.9, .nesterov = true}, .max_norm = 100};
    weft_optimizer clipped = WEFT_ADAM_DEFAULT;
    check_optimizer(&adam);
    check_optimizer(&adamw);
    check_optimizer(&sgd);
    check_optimizer(&momentum);
    check_optimizer(&nesterov);
    check_optimizer(&clipped);
}

/* ---- Values that the backward pass computes again ---- */

/* The pass computes y = tanh(x) another time. */
typedef struct repeat {
    weft_graph *g;
    weft_value x, y;
    int times;
} repeat;

static weft_value compute_again(void *context, weft_value value)
{
    repeat *r = context;
    if (value.id != r->y.id) return value;
    r->times++;
    return weft_tanh(r->g, r->x);
}

/* The gradient of sum(t * t * y), where t is a view of y = tanh(x); *tanhs becomes how often the
 * plan computes y. */
static void differentiate_views(bool again, double *gradient, int *tanhs)
{
    enum { N = 12 };
    weft_error error = WEFT_NO_ERROR;
    repeat r = {.g = weft_graph_new()};
    weft_graph *g = r.g;
    double numbers[N];
    r.x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3, 4));
    r.y = weft_tanh(g, r.x);
    const weft_value view = weft_reshape(g, weft_transpose(g, r.y, 0, 1), WEFT_SHAPE(3, 4));
    const weft_value product = weft_mul(g, weft_mul(g, view, view), r.y);
    const weft_value loss = weft_sum(g, product, WEFT_ALL_AXES, false);
    const weft_value one = weft_scalar(g, WEFT_F64, 1);
    weft_value targets[1];
    const weft_grad_hooks ready = {.context = &r, .again = again ? compute_again : NULL};
    weft_grad_each(g, &(weft_grad_values){&loss, &one, 1, &r.x, 1}, targets, &ready);
    /* Equal nodes would be merged. */
    weft_plan *plan = weft_plan_new(g, targets, 1, &(weft_plan_options){.skip = "cse"}, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int i = 0; i < N; i++) numbers[i] = i * 0.3 - 1;
    weft_session_feed(s, r.x, numbers, sizeof numbers, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, targets[0], gradient, sizeof numbers, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(r.times > 1, again);
    *tanhs = 0;
    const weft_graph *planned = weft_plan_graph(plan);
    for (size_t k = 0; k < weft_graph_node_count(planned); k++)
        *tanhs += !strcmp(weft_graph_node(planned, k).op->name, "tanh");
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_again(void)
{
    double kept[12], computed[12];
    int tanhs;
    differentiate_views(false, kept, &tanhs);
    CU_ASSERT_EQUAL(tanhs, 1);
    differentiate_views(true, computed, &tanhs);
    CU_ASSERT_TRUE(tanhs > 1);
    CU_ASSERT_EQUAL(memcmp(kept, computed, sizeof kept), 0);
    CU_ASSERT_TRUE(kept[0] != 0);
}

void autograd_tests(void)
{
    CU_pSuite suite = CU_add_suite("autograd", NULL, NULL);
    CU_add_test(suite, "three orders of x^3", test_orders);
    CU_add_test(suite, "sums, unused and intermediate values", test_sums);
    CU_add_test(suite, "several outputs, and the order of gradients", test_outputs);
    CU_add_test(suite, "values that are computed again", test_again);
    CU_add_test(suite, "relu before a dropout", test_dropped_relu);
    CU_add_test(suite, "errors", test_errors);
    CU_add_test(suite, "optimisers equal their formulas", test_optimizers);
}
