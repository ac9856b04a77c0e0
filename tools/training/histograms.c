/* histograms.jsonl: the distribution of each parameter's weights and gradients, every N steps
 * (--histograms). A line is one tensor at one step. */
#include "training.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define BINS 32

typedef struct histogram {
    double low, high, sum, squares;
    size_t n, not_finite, counts[BINS];
} histogram;

static double element(const weft_tensor *x, int64_t i)
{
    return x->dtype == WEFT_F64 ? ((const double *)x->data)[i] : ((const float *)x->data)[i];
}

/* Two walks over a contiguous tensor: the range, then the counts of equal parts of it. */
static histogram measure(const weft_tensor *x)
{
    histogram h = {.low = INFINITY, .high = -INFINITY};
    const int64_t n = weft_shape_numel(x->shape);
    for (int64_t i = 0; i < n; i++) {
        const double e = element(x, i);
        if (!isfinite(e)) {
            h.not_finite++;
            continue;
        }
        h.n++;
        h.low = fmin(h.low, e);
        h.high = fmax(h.high, e);
        h.sum += e;
        h.squares += e * e;
    }
    const double width = (h.high - h.low) / BINS;
    for (int64_t i = 0; i < n; i++) {
        const double e = element(x, i);
        if (!isfinite(e)) continue;
        const int bin = width > 0 ? (int)((e - h.low) / width) : 0;
        h.counts[bin < BINS ? bin : BINS - 1]++;
    }
    return h;
}

/* One line; NULL if out of memory. */
static cJSON *line_of(double step, const char *name, const char *kind, const histogram *h)
{
    double counts[BINS];
    cJSON *line = cJSON_CreateObject();
    for (int i = 0; i < BINS; i++) counts[i] = (double)h->counts[i];
    cJSON *list = cJSON_CreateDoubleArray(counts, BINS);
    const bool good =
        line && list && cJSON_AddNumberToObject(line, "step", step) &&
        cJSON_AddStringToObject(line, "name", name) &&
        cJSON_AddStringToObject(line, "kind", kind) &&
        cJSON_AddNumberToObject(line, "low", h->low) &&
        cJSON_AddNumberToObject(line, "high", h->high) &&
        cJSON_AddNumberToObject(line, "mean", h->sum / (double)h->n) &&
        cJSON_AddNumberToObject(line, "rms", sqrt(h->squares / (double)h->n)) &&
        (!h->not_finite || cJSON_AddNumberToObject(line, "not_finite", (double)h->not_finite)) &&
        cJSON_AddItemToObject(line, "counts", list);
    if (good) return line;
    if (!line || !cJSON_GetObjectItemCaseSensitive(line, "counts")) cJSON_Delete(list);
    cJSON_Delete(line);
    return NULL;
}

/* A tensor without finite numbers, or of integers, has no line. */
static bool write_one(training *t, double step, const char *name, const char *kind,
                      const weft_tensor *x)
{
    if (x->dtype != WEFT_F32 && x->dtype != WEFT_F64) return true;
    const histogram h = measure(x);
    if (!h.n) return true;
    return tool_write_json_line(line_of(step, name, kind, &h), t->histograms, "histograms.jsonl",
                                &t->error);
}

bool training_write_histograms(training *t)
{
    const double step = (double)weft_trainer_progress_of(t->trainer).updates;
    for (size_t i = 0; t->histograms && i < weft_params_count(t->params); i++) {
        const char *name = weft_params_name(t->params, i);
        weft_tensor x;
        if (weft_params_key(t->params, i).kind != WEFT_STATE_MODEL ||
            !weft_params_find(t->params, name, &x))
            continue;
        if (!write_one(t, step, name, "weight", &x)) return false;
        if (weft_trainer_gradient(t->trainer, name, &x) &&
            !write_one(t, step, name, "gradient", &x))
            return false;
    }
    return !t->histograms || fflush(t->histograms) == 0 ||
           training_fail(t, WEFT_IO, "histograms.jsonl", strerror(errno));
}
