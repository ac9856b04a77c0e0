/* Greedy search and sampling: each row chooses its tokens independently. O(rows vocab) per token
 * step, and O(vocab log vocab) per row where sampling sorts. */
#include "search.h"
#include "base/sort.h"
#include "base/vmath.h"

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>

typedef struct row_state {
    double log_prob; /* before penalties */
    double sum;      /* of penalised log probabilities */
    int64_t length;  /* number of new tokens */
    bool ended, over;
} row_state;

static int64_t argmax(const double *log_probs, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (log_probs[i] > log_probs[best]) best = i;
    return log_probs[best] > -INFINITY ? best : -1;
}

/* By falling log probability; of equals the lower id is first. */
static int by_probability(const void *a, const void *b, void *log_probs)
{
    const double *p = log_probs;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (p[x] != p[y]) return p[x] > p[y] ? -1 : 1;
    return (x > y) - (x < y);
}

size_t weft_search_candidates(const double *log_probs, size_t n, double temperature, int64_t top_k,
                              double top_p, int32_t *ids, double *probs)
{
    size_t count = 0, n_candidates = 0;
    double max = -INFINITY, sum = 0, reached = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(log_probs[i] > -INFINITY)) continue;
        ids[count++] = (int32_t)i;
        if (log_probs[i] > max) max = log_probs[i];
    }
    if (count > 1 && (top_k > 0 || top_p < 1))
        weft__sort(ids, count, sizeof *ids, by_probability, (void *)(uintptr_t)log_probs);
    if (top_k > 0 && count > (size_t)top_k) count = (size_t)top_k;
    for (size_t i = 0; i < count; i++)
        sum += probs[i] = vm_exp_f64((log_probs[ids[i]] - max) / temperature);
    while (n_candidates < count && (top_p >= 1 || n_candidates == 0 || reached < top_p * sum))
        reached += probs[n_candidates++];
    for (size_t i = 0; i < n_candidates; i++) probs[i] /= reached;
    return n_candidates;
}

/* A random number in [0, 1) for new token `at` of a row. It depends on the seed, the sentence's key
 * and the row within the sentence. */
static double uniform(const search *s, int64_t row, int64_t at)
{
    uint64_t key = s->inputs[row / s->model->beams].key;
    uint32_t words[4];
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(row % s->model->beams), (uint32_t)key,
                                 (uint32_t)(key >> 32)};
    weft_philox(counter, s->o->seed, words);
    return weft_uniform(words);
}

static int64_t draw(const search *s, int64_t row, int32_t *ids, double *probs)
{
    size_t n = weft_search_candidates(s->log_probs, (size_t)s->vocab, s->o->temperature,
                                      s->o->top_k, s->o->top_p, ids, probs);
    double u = uniform(s, row, weft__search_found(s, row / s->model->beams)), sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += probs[i];
        if (u < sum) return ids[i];
    }
    return n ? ids[n - 1] : -1;
}

typedef struct row_search {
    search s;
    bool samples;
    int64_t each;    /* rows per sentence that are used */
    row_state *rows; /* [rows] */
    int32_t *ids;    /* [vocab] */
    double *probs;   /* [vocab] */
} row_search;

/* Whether the caller's `found` lets the row continue. */
static bool goes_on(const search *s, int64_t row, int64_t length)
{
    const int64_t sentence = row / s->model->beams;
    const int32_t *tokens = s->sequences + row * s->width + s->inputs[sentence].prefix_len;
    return !s->o->found || s->o->found(s->o->found_context, (size_t)sentence,
                                       (size_t)(row % s->model->beams), tokens, (size_t)length);
}

/* Appends a token to a row, or ends it. Cuts the row if no token is allowed. */
static bool choose(row_search *r, int64_t row)
{
    search *s = &r->s;
    row_state *q = &r->rows[row];
    if (!weft__search_read_row(s, row)) return false;
    int64_t token = r->samples ? draw(s, row, r->ids, r->probs) : argmax(s->log_probs, s->vocab);
    if (token < 0) {
        q->over = true;
        return true;
    }
    q->log_prob += search_log_prob(s, row, token);
    q->sum += s->log_probs[token];
    if (s->ending[token]) {
        q->ended = q->over = true;
        return true;
    }
    s->sequences[row * s->width + s->position] = (int32_t)token;
    q->over = ++q->length >= s->inputs[row / s->model->beams].max_len;
    if (!goes_on(s, row, q->length)) q->over = true;
    return true;
}

static bool run_rows(row_search *r)
{
    search *s = &r->s;
    for (int64_t n_open = s->n; n_open > 0;) {
        if (!weft__search_step(s)) return false;
        for (int64_t i = 0; i < s->n; i++) {
            if (s->done[i] || weft__search_found(s, i) < 0) continue;
            bool open = false;
            for (int64_t row = i * s->model->beams; row < i * s->model->beams + r->each; row++) {
                if (!r->rows[row].over && !choose(r, row)) return false;
                open |= !r->rows[row].over;
            }
            s->done[i] = !open;
            n_open -= !open;
        }
    }
    for (int64_t i = 0; i < s->n; i++) {
        s->result->sentences = (size_t)i + 1;
        s->result->first[i + 1] = s->result->first[i];
        for (int64_t row = i * s->model->beams; row < i * s->model->beams + r->each; row++) {
            const row_state *q = &r->rows[row];
            double penalty = weft_length_penalty_value(s->o->penalty, s->o->alpha,
                                                       (size_t)(q->length + q->ended));
            const int32_t *tokens = s->sequences + row * s->width + s->inputs[i].prefix_len;
            if (!weft__search_add(s, i, tokens, q->length, q->log_prob, q->sum / penalty, q->ended))
                return false;
        }
    }
    return true;
}

static weft_search_result *search_rows(const weft_search_model *model,
                                       const weft_search_input *inputs, size_t n,
                                       const weft_search_options *o, bool samples,
                                       weft_error *error)
{
    row_search r = {.samples = samples};
    bool good = weft__search_begin(&r.s, model, inputs, n, o, error);
    if (good) {
        r.each = samples ? r.s.o->nbest : 1;
        r.rows = weft__search_zeros((size_t)r.s.rows, sizeof *r.rows);
        r.ids = weft__search_zeros((size_t)r.s.vocab, sizeof *r.ids);
        r.probs = weft__search_zeros((size_t)r.s.vocab, sizeof *r.probs);
        good = r.rows && r.ids && r.probs;
        if (!good) weft_error_set(error, WEFT_NO_MEMORY, "search", "no memory");
    }
    good = good && run_rows(&r);
    free(r.rows);
    free(r.ids);
    free(r.probs);
    return weft__search_finish(&r.s, good);
}

weft_search_result *weft_search_greedy(const weft_search_model *model,
                                       const weft_search_input *inputs, size_t n,
                                       const weft_search_options *options, weft_error *error)
{
    weft_error_clear(error);
    return search_rows(model, inputs, n, options, false, error);
}

weft_search_result *weft_search_sample(const weft_search_model *model,
                                       const weft_search_input *inputs, size_t n,
                                       const weft_search_options *options, weft_error *error)
{
    weft_error_clear(error);
    if (options && (!(options->temperature >= 0) || !isfinite(options->temperature) ||
                    !(options->top_p >= 0) || options->top_p > 1 || options->top_k < 0)) {
        weft__search_refuse(
            error, "sampling needs a temperature above 0, top_p in (0, 1] and top_k of 0 or more");
        return NULL;
    }
    return search_rows(model, inputs, n, options, true, error);
}
