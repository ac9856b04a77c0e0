/* Greedy search and sampling: each row chooses its tokens independently (sampler.c). */
#include "search.h"

#include <stdlib.h>

typedef struct row_state {
    double log_prob; /* before penalties */
    double sum;      /* of penalised log probabilities */
    int64_t length;  /* number of new tokens */
    bool ended, over;
} row_state;

typedef struct row_search {
    search s;
    int64_t each;    /* rows per sentence that are used */
    row_state *rows; /* [rows] */
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
    const weft_sampling_row at = weft__search_row(s, row);
    const int64_t sentence = row / s->model->beams;
    weft_sampling_options sampling = s->sampling;
    weft_sampled_token chosen;
    if (!weft__search_scan_row(s, &at, sentence)) return false;
    if (s->o->allows)
        sampling.allows_context = s->o->allows_contexts[sentence * s->o->nbest + at.sample];
    if (weft__sampler_choose(s->sampler, &sampling, &at, &chosen, s->error) != WEFT_OK)
        return false;
    if (chosen.id < 0) {
        q->over = true;
        return true;
    }
    q->log_prob += chosen.log_prob;
    q->sum += chosen.penalised;
    s->token_logs[row * s->width + s->position] = chosen.log_prob;
    if (s->ending[chosen.id]) {
        q->ended = q->over = true;
        return true;
    }
    s->sequences[row * s->width + s->position] = chosen.id;
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
            const size_t from = (size_t)(row * s->width) + s->inputs[i].prefix_len;
            const weft_hypothesis h = {.tokens = s->sequences + from,
                                       .length = (size_t)q->length,
                                       .log_prob = q->log_prob,
                                       .score = q->sum / penalty,
                                       .ended = q->ended,
                                       .log_probs = s->token_logs + from};
            if (!weft__search_add(s, i, &h)) return false;
        }
    }
    return true;
}

static weft_search_result *search_rows(const weft_search_model *model,
                                       const weft_search_input *inputs, size_t n,
                                       const weft_search_options *o, bool samples,
                                       weft_error *error)
{
    row_search r = {.each = 1};
    bool good = weft__search_begin(&r.s, model, inputs, n, o, error);
    if (good) {
        if (samples) r.each = r.s.o->nbest;
        r.s.sampling.greedy = !samples;
        r.rows = weft__search_zeros((size_t)r.s.rows, sizeof *r.rows);
        good = r.rows != NULL;
        if (!good) weft_error_set(error, WEFT_NO_MEMORY, "search", "no memory");
    }
    good = good && run_rows(&r);
    free(r.rows);
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
    const weft_search_options none = {0};
    weft_sampling_options sampling = weft__search_sampling(options ? options : &none);
    sampling = weft__sampling_filled(&sampling);
    if (!weft__sampling_check_draws(&sampling, "search", error)) return NULL;
    return search_rows(model, inputs, n, options, true, error);
}
