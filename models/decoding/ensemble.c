/* Ensembles: several models as one, whose probabilities are the weighted mean of theirs.
 *
 * A token step costs the token steps of all models and, for each row and id, an exponential per
 * model and a logarithm. The maximum is subtracted from log probabilities first, so nothing
 * overflows, and the mean of equal log probabilities is bit-identical to them. */
#include "base/vmath.h"

#include <weft/decode.h>

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct weft_ensemble {
    size_t n;
    weft_search_model *models; /* [n] */
    double *weights;           /* [n], which add up to 1 */
    weft_tensor *logs;         /* [n], of the last token step */
    double *row;               /* [n], the log probabilities of one id */
    double *mean;              /* [rows][vocab] */
};

static bool refuse(weft_error *error, const char *message)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, "ensemble", "%s", message);
    return false;
}

static bool check(const weft_search_model *models, size_t n, const double *weights,
                  weft_error *error)
{
    if (!models || !n) return refuse(error, "expected at least one model");
    for (size_t i = 0; i < n; i++) {
        const weft_search_model *a = &models[0], *b = &models[i];
        if (!b->step) return refuse(error, "the step of a model is NULL");
        if (weights && (!(weights[i] > 0) || !isfinite(weights[i])))
            return refuse(error, "weights must be finite and above 0");
        if (a->sentences == b->sentences && a->beams == b->beams && a->vocab == b->vocab &&
            a->max_len == b->max_len)
            continue;
        weft_error_set(error, WEFT_BAD_ARGUMENT, "ensemble",
                       "model %zu has %lld sentences, %lld beams, a vocabulary of %lld and %lld "
                       "positions, the first %lld, %lld, %lld and %lld",
                       i, (long long)b->sentences, (long long)b->beams, (long long)b->vocab,
                       (long long)b->max_len, (long long)a->sentences, (long long)a->beams,
                       (long long)a->vocab, (long long)a->max_len);
        return false;
    }
    return true;
}

/* Sets weights that add up to 1. */
static void set_weights(weft_ensemble *e, const double *weights)
{
    double max = 0, sum = 0;
    for (size_t i = 0; i < e->n; i++)
        if (weights && weights[i] > max) max = weights[i];
    for (size_t i = 0; i < e->n; i++) sum += e->weights[i] = weights ? weights[i] / max : 1;
    for (size_t i = 0; i < e->n; i++) e->weights[i] /= sum;
}

weft_ensemble *weft_ensemble_new(const weft_search_model *models, size_t n, const double *weights,
                                 weft_error *error)
{
    weft_error_clear(error);
    if (!check(models, n, weights, error)) return NULL;
    const weft_search_model *first = &models[0];
    const int64_t cells =
        weft_shape_numel(WEFT_SHAPE(first->sentences, first->beams, first->vocab));
    if (cells < 1) {
        weft_error_set(error, WEFT_TOO_LARGE, "ensemble",
                       "%lld sentences of %lld beams, a vocabulary of %lld: 1 or more of each must "
                       "fit into memory",
                       (long long)first->sentences, (long long)first->beams,
                       (long long)first->vocab);
        return NULL;
    }
    weft_ensemble *e = calloc(1, sizeof *e);
    if (e) {
        e->n = n;
        e->models = calloc(n, sizeof *e->models);
        e->weights = calloc(n, sizeof *e->weights);
        e->logs = calloc(n, sizeof *e->logs);
        e->row = calloc(n, sizeof *e->row);
        e->mean = calloc((size_t)cells, sizeof *e->mean);
    }
    if (!e || !e->models || !e->weights || !e->logs || !e->row || !e->mean) {
        weft_error_set(error, WEFT_NO_MEMORY, "ensemble", "no memory");
        weft_ensemble_free(e);
        return NULL;
    }
    memcpy(e->models, models, n * sizeof *models);
    set_weights(e, weights);
    return e;
}

void weft_ensemble_free(weft_ensemble *ensemble)
{
    if (!ensemble) return;
    free(ensemble->models);
    free(ensemble->weights);
    free(ensemble->logs);
    free(ensemble->row);
    free(ensemble->mean);
    free(ensemble);
}

/* log(sum of weights[i] exp(x[i])); NaN if an x[i] is NaN. */
static double log_mean(const double *x, const double *weights, size_t n)
{
    double max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > max || isnan(x[i])) max = x[i];
    if (!(max > -INFINITY)) return max;
    for (size_t i = 0; i < n; i++) sum += weights[i] * (x[i] == max ? 1 : vm_exp_f64(x[i] - max));
    return max + vm_log_f64(sum);
}

static double at(const weft_tensor *t, int64_t row, int64_t id)
{
    const int64_t i = row * t->stride[0] + id;
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[i]
                                : (double)((const float *)t->data)[i];
}

/* Steps each model. Sets *rows to the maximum number of rows that a model returned: one per beam,
 * or one per sentence if every model returned that. */
static weft_status step_all(weft_ensemble *e, const int32_t *tokens, const int32_t *parents,
                            int64_t *rows, weft_error *error)
{
    const int64_t beams = e->models[0].beams, vocab = e->models[0].vocab;
    *rows = 0;
    for (size_t i = 0; i < e->n; i++) {
        weft_tensor *t = &e->logs[i];
        weft_status status = e->models[i].step(e->models[i].context, tokens, parents, t, error);
        if (status != WEFT_OK) return status;
        if (!weft_dtype_is_float(t->dtype) || t->shape.rank != 2 || t->shape.dim[1] != vocab ||
            t->stride[1] != 1 || t->shape.dim[0] > e->models[0].sentences * beams)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, "ensemble",
                                  "a step must return log probabilities [rows, vocab]");
        if (t->shape.dim[0] > *rows) *rows = t->shape.dim[0];
    }
    for (size_t i = 0; i < e->n; i++)
        if (e->logs[i].shape.dim[0] != *rows && e->logs[i].shape.dim[0] * beams != *rows)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, "ensemble",
                                  "steps returned %lld and %lld rows", (long long)*rows,
                                  (long long)e->logs[i].shape.dim[0]);
    return WEFT_OK;
}

static weft_status ensemble_step(void *context, const int32_t *tokens, const int32_t *parents,
                                 weft_tensor *log_probs, weft_error *error)
{
    weft_ensemble *e = context;
    const int64_t vocab = e->models[0].vocab;
    int64_t rows;
    weft_status status = step_all(e, tokens, parents, &rows, error);
    if (status != WEFT_OK) return status;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t id = 0; id < vocab; id++) {
            for (size_t i = 0; i < e->n; i++) {
                const weft_tensor *t = &e->logs[i];
                e->row[i] = at(t, row * t->shape.dim[0] / rows, id);
            }
            e->mean[row * vocab + id] = log_mean(e->row, e->weights, e->n);
        }
    *log_probs = weft_tensor_dense(e->mean, WEFT_F64, WEFT_SHAPE(rows, vocab));
    return WEFT_OK;
}

static weft_status ensemble_read(void *context, const int32_t *tokens, size_t length,
                                 weft_error *error)
{
    const weft_ensemble *e = context;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < e->n && status == WEFT_OK; i++)
        status = e->models[i].read(e->models[i].context, tokens, length, error);
    return status;
}

static weft_status ensemble_retain(void *context, const int32_t *sentences, size_t n,
                                   weft_error *error)
{
    const weft_ensemble *e = context;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < e->n && status == WEFT_OK; i++)
        status = e->models[i].retain(e->models[i].context, sentences, n, error);
    return status;
}

weft_search_model weft_ensemble_search_model(weft_ensemble *ensemble)
{
    if (!ensemble) return (weft_search_model){.step = NULL};
    weft_search_model model = ensemble->models[0];
    model.context = ensemble;
    model.step = ensemble_step;
    if (model.read) model.read = ensemble_read;
    if (model.retain) model.retain = ensemble_retain;
    for (size_t i = 1; i < ensemble->n; i++) {
        if (!ensemble->models[i].read) model.read = NULL;
        if (!ensemble->models[i].retain) model.retain = NULL;
    }
    return model;
}
