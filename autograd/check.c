/* Gradient checks in f64 against central differences of fourth order,
 *     f'(x) = (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h + O(h^4),
 * of a loss that weighs every output with a random cotangent. A plain sum would hide errors of
 * softmax and layer norm, whose outputs sum to a constant. */
#include "check.h"

#include <weft/session.h>

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct checker {
    weft_graph *graph;
    weft_value loss;
    const weft_value *wrt;
    weft_value *grads;
    size_t n;
    weft_session *session;
    weft_error *error;
} checker;

/* The contents of a wanted value: in the store or among the feeds. */
static bool contents(const checker *c, size_t i, double **data, int64_t *numel)
{
    weft_tensor t;
    if (weft_session_tensor(c->session, c->wrt[i], &t, NULL) != WEFT_OK || t.dtype != WEFT_F64)
        return false;
    *data = t.data;
    *numel = weft_shape_numel(t.shape);
    return true;
}

static bool loss_at(checker *c, double *out)
{
    weft_session_set_run_number(c->session, 0);
    return weft_session_run(c->session, c->error) == WEFT_OK &&
           weft_session_fetch(c->session, c->loss, out, sizeof *out, c->error) == WEFT_OK;
}

/* d loss / d x by differences whose step is `factor` times the usual. */
static bool difference(checker *c, double *x, double factor, double *out)
{
    const double old = *x, h = factor * 1e-3 * fmax(0.25, fabs(old));
    static const double at[4] = {1, -1, 2, -2}, weight[4] = {8, -8, -1, 1};
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        double f;
        *x = old + at[k] * h;
        if (!loss_at(c, &f)) {
            *x = old;
            return false;
        }
        sum += weight[k] * f;
    }
    *x = old;
    *out = sum / (12 * h);
    return true;
}

/* The numeric derivative to compare with an analytic one. Where they differ, the steps may straddle
 * a kink, such as relu's; smaller steps do not. A wrong gradient is wrong for every step. */
static bool closest_difference(checker *c, double *x, double analytic, double *out)
{
    double off = INFINITY;
    for (double factor = 1; factor > 1e-3 && off > 1e-7; factor /= 16) {
        double numeric;
        if (!difference(c, x, factor, &numeric)) return false;
        if (factor < 1 && !(fabs(analytic - numeric) < off)) continue;
        off = fabs(analytic - numeric);
        *out = numeric;
    }
    return true;
}

/* Compares one value's gradient element by element. The error is relative to its largest numeric
 * derivative, or absolute where that is below 1. */
static bool check_value(checker *c, size_t i, const double *analytic, size_t per_value,
                        uint64_t seed, weft_check_result *result)
{
    double *data, scale = 1, worst = 0;
    int64_t numel, at = 0;
    if (!contents(c, i, &data, &numel)) {
        /* The loss does not depend on it: its gradient must be zero. */
        numel = weft_shape_numel(weft_shape_of(c->graph, c->wrt[i]));
        for (int64_t k = 0; k < numel; k++) worst = fmax(worst, fabs(analytic[k]));
        result->worst_error = fmax(result->worst_error, worst);
        return true;
    }
    int64_t count = per_value && (int64_t)per_value < numel ? (int64_t)per_value : numel;
    double numeric = 0, worst_analytic = 0, worst_numeric = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t e =
            count == numel ? k : (int64_t)(check_uniform(seed + i, (uint64_t)k) * (double)numel);
        if (!closest_difference(c, &data[e], analytic[e], &numeric)) return false;
        double off = fabs(analytic[e] - numeric);
        scale = fmax(scale, fabs(numeric));
        result->checked++;
        if (!(off <= worst)) {
            worst = off;
            at = e;
            worst_analytic = analytic[e];
            worst_numeric = numeric;
        }
    }
    worst = worst / scale;
    if (!(worst <= result->worst_error)) {
        const char *name = weft_name_of(c->graph, c->wrt[i]);
        result->worst_error = worst;
        weft__text_format(result->where, sizeof result->where,
                          "%s[%lld]: analytic %.10g, numeric %.10g", name, (long long)at,
                          worst_analytic, worst_numeric);
    }
    return true;
}

/* Runs once for the analytic gradients, copies them, then compares differences with them. */
static bool compare(checker *c, const weft_gradient_check *check, int flip,
                    weft_check_result *result)
{
    double loss;
    if (!loss_at(c, &loss)) return false;
    double **analytic = calloc(c->n + 1, sizeof *analytic);
    bool good = analytic != NULL;
    for (size_t i = 0; i < c->n && good; i++) {
        size_t numel = (size_t)weft_shape_numel(weft_shape_of(c->graph, c->grads[i]));
        analytic[i] = malloc((numel + 1) * sizeof **analytic);
        good = analytic[i] && (weft_session_fetch(c->session, c->grads[i], analytic[i],
                                                  numel * sizeof **analytic, c->error) == WEFT_OK);
        for (size_t k = 0; good && (int)i == flip && k < numel; k++) analytic[i][k] *= -1;
    }
    if (!good) weft_error_set(c->error, WEFT_NO_MEMORY, "check", "no memory");
    for (size_t i = 0; i < c->n && good; i++) {
        good = check_value(c, i, analytic[i], check->per_value, check->seed, result);
        if (good && check->progress) check->progress(check->context, i + 1, c->n);
    }
    for (size_t i = 0; analytic && i < c->n; i++) free(analytic[i]);
    free(analytic);
    return good;
}

/* `flip`: the index of a wanted value whose analytic gradient is negated, or -1. */
static weft_status run_check(weft_graph *graph, const weft_gradient_check *check, int flip,
                             weft_check_result *result, weft_error *error)
{
    const size_t n = check->n;
    weft_error own = {0};
    if (!error) error = &own;
    memset(error, 0, sizeof *error);
    memset(result, 0, sizeof *result);
    weft_value *targets = calloc(n + 1, sizeof *targets);
    checker c = {graph, check->loss, check->wrt, targets + 1, n, NULL, error};
    weft_plan *plan = NULL;
    bool good = targets != NULL;
    if (good) {
        targets[0] = check->loss;
        weft_grad(graph, check->loss, check->wrt, n, c.grads);
        good = weft_graph_status(graph) == WEFT_OK;
        if (!good) weft_error_copy(error, weft_graph_error(graph));
    }
    if (good) plan = weft_plan_new(graph, targets, n + 1, NULL, error);
    if (plan) c.session = weft_session_new(plan, check->params, NULL, error);
    good = c.session != NULL;
    for (size_t i = 0; i < check->n_feeds && good; i++) {
        const weft_check_feed *feed = &check->feeds[i];
        good = weft_session_feed(c.session, feed->input, feed->data, feed->bytes, error) == WEFT_OK;
    }
    good = good && compare(&c, check, flip, result);
    weft_session_free(c.session);
    weft_plan_free(plan);
    free(targets);
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, "check", "no memory");
    return good ? WEFT_OK : error->status;
}

weft_status weft_check_gradient(weft_graph *graph, const weft_gradient_check *check,
                                weft_check_result *result, weft_error *error)
{
    weft_error_clear(error);
    if (!check || !result || (!check->wrt && check->n) || (check->n_feeds && !check->feeds))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_check_gradient",
                              "the check, a list or the result is NULL");
    if (weft_graph_status(graph) != WEFT_OK) return weft_error_copy(error, weft_graph_error(graph));
    weft_gradient_check own = *check;
    if (!own.wrt) own.wrt = weft_graph_params(graph, &own.n);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < own.n && status == WEFT_OK; i++) {
        const char *name = weft_name_of(graph, own.wrt[i]);
        if (weft_dtype_of(graph, own.wrt[i]) != WEFT_F64)
            status = weft_error_set(error, WEFT_BAD_DTYPE, name[0] ? name : "weft_check_gradient",
                                    "gradients are checked in f64 only, wrt %zu is %s", i,
                                    weft_dtype_name(weft_dtype_of(graph, own.wrt[i])));
    }
    if (status == WEFT_OK) status = run_check(graph, &own, -1, result, error);
    return status;
}

/* ---- One op on one sample ---- */

/* sum over the floating values of sum(value * random constant) */
static weft_value weigh(weft_graph *g, const weft_value *values, size_t n, uint64_t seed)
{
    weft_value loss = weft_scalar(g, WEFT_F64, 0.0);
    for (size_t i = 0; i < n; i++) {
        weft_sample_input cotangent = {WEFT_F64, weft_shape_of(g, values[i]), -1, 1, false};
        int64_t numel = weft_shape_numel(cotangent.shape);
        if (weft_dtype_of(g, values[i]) != WEFT_F64 || weft_graph_status(g) != WEFT_OK) continue;
        double *data = malloc(((size_t)numel + 1) * sizeof *data);
        if (!data) {
            weft_graph_fail_in(g, "weft_check_op", WEFT_NO_MEMORY, "no memory");
            break;
        }
        weft_sample_input_fill(&cotangent, WEFT_F64, seed + i, data);
        weft_value weight = weft_constant(g, WEFT_F64, cotangent.shape, data);
        free(data);
        loss = weft_add(g, loss, weft_sum(g, weft_mul(g, values[i], weight), WEFT_ALL_AXES, false));
    }
    return loss;
}

weft_status weft_check_op(const weft_op *op, size_t sample_index, int order, int flip,
                          uint64_t seed, weft_check_result *result, weft_error *error)
{
    weft_error_clear(error);
    if (!op || !result || !op->samples || sample_index >= op->n_samples || order < 1 || order > 2)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "check", "unknown op, sample or order");
    const weft_sample *sample = &op->samples[sample_index];
    if (sample->n_in > WEFT_SAMPLE_INPUTS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, op->name ? op->name : "weft_check_op",
                              "sample %zu has %zu inputs, expected at most %d", sample_index,
                              sample->n_in, WEFT_SAMPLE_INPUTS);
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS], wrt[WEFT_SAMPLE_INPUTS];
    weft_value grads[WEFT_SAMPLE_INPUTS];
    size_t n_wrt = 0;
    int flip_wrt = -1;
    memset(result, 0, sizeof *result);
    if (order == 1 && flip < 0) {
        const weft_status laid = weft__check_layouts(op, sample, seed, result, error);
        if (laid != WEFT_OK || result->worst_error > 0) return laid;
    }
    if (op->gradient != WEFT_GRADIENT_VJP) return WEFT_OK;
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    for (size_t i = 0; i < sample->n_in; i++) {
        char name[32];
        weft_tensor t;
        weft_dtype dtype = sample->in[i].dtype == WEFT_FLOAT ? WEFT_F64 : sample->in[i].dtype;
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = weft_state(g, name, dtype, sample->in[i].shape, WEFT_INIT_ZEROS);
        if (params &&
            weft_params_add(params, name, dtype, sample->in[i].shape, &t, NULL) == WEFT_OK)
            weft_sample_input_fill(&sample->in[i], WEFT_F64, seed + 100 * i, t.data);
        if (!weft_dtype_is_float(dtype)) continue;
        if ((int)i == flip) flip_wrt = (int)n_wrt;
        wrt[n_wrt++] = in[i];
    }
    weft_apply(g, op, sample->attr, in, sample->n_in, out);
    bool differentiable = false;
    weft_status status = weft_graph_status(g);
    for (size_t i = 0; status == WEFT_OK && i < op->n_out; i++)
        differentiable |= weft_dtype_of(g, out[i]) == WEFT_F64;
    if (status != WEFT_OK) {
        weft_error_copy(error, weft_graph_error(g));
    } else if (n_wrt && differentiable) {
        weft_value loss = weigh(g, out, op->n_out, seed + 7);
        if (order == 2) {
            weft_grad(g, loss, wrt, n_wrt, grads);
            loss = weigh(g, grads, n_wrt, seed + 77);
        }
        const weft_gradient_check check = {
            .loss = loss, .wrt = wrt, .n = n_wrt, .params = params, .seed = seed};
        status = run_check(g, &check, flip_wrt, result, error);
    }
    weft_params_free(params);
    weft_graph_free(g);
    return status;
}
