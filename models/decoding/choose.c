/* Choosing the next token of a row: by its rules (sampler.c), and, if the caller has one, by a rule of its
 * own (allowed.c). */
#include "sampler.h"

#include <math.h>

static int64_t draw(weft_sampler *s, const weft_sampling_options *o, const weft_sampling_row *row)
{
    const size_t n = weft_search_candidates(s->log_probs, (size_t)s->vocab, o, s->ids, s->probs);
    double u = weft__sampler_uniform(o, row, 0), sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += s->probs[i];
        if (u < sum) return s->ids[i];
    }
    return n ? s->ids[n - 1] : -1;
}

weft_status weft__sampler_choose(weft_sampler *s, const weft_sampling_options *o,
                                 const weft_sampling_row *row, weft_sampled_token *chosen,
                                 weft_error *error)
{
    weft_status status = WEFT_OK;
    int64_t id;
    weft__sampler_bar(s, o, row);
    for (int64_t i = 0; i < s->vocab; i++)
        s->log_probs[i] =
            s->barred[i] ? -INFINITY : sampling_penalised(s, o, sampling_log_prob(row, i), i);
    if (o->allows)
        status = weft__sampler_choose_allowed(s, o, row, &id, error);
    else
        id = o->greedy ? weft__sampler_argmax(s->log_probs, s->vocab) : draw(s, o, row);
    if (status != WEFT_OK) id = -1;
    *chosen = (weft_sampled_token){.id = (int32_t)id};
    if (id < 0) return status;
    chosen->log_prob = sampling_log_prob(row, id);
    chosen->penalised = s->log_probs[id];
    return WEFT_OK;
}

static bool check_row(const weft_sampler *s, const weft_sampling_row *row, weft_error *error)
{
    const weft_tensor *t = row->log_probs;
    if (!t || !t->data || !weft_dtype_is_float(t->dtype) || t->shape.rank != 2 ||
        t->shape.dim[1] != s->vocab || t->stride[1] != 1 || row->row < 0 ||
        row->row >= t->shape.dim[0])
        return sampling_refuse(
            "sampler",
            "needs log probabilities [rows, vocab] of the sampler's vocabulary, and a row "
            "of them",
            error);
    if (row->found > row->length)
        return sampling_refuse("sampler", "the row has fewer tokens than new ones", error);
    if (row->length && !row->tokens)
        return sampling_refuse("sampler", "the tokens are NULL", error);
    if (sampling_are_ids(row->tokens, row->length, s->vocab)) return true;
    return sampling_refuse("sampler", "a token of the row is outside the vocabulary", error);
}

weft_status weft_sampler_choose(weft_sampler *sampler, const weft_sampling_options *options,
                                const weft_sampling_row *row, weft_sampled_token *chosen,
                                weft_error *error)
{
    weft_error_clear(error);
    if (!sampler || !row || !chosen)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "sampler",
                              "the sampler, the row or the token is NULL");
    const weft_sampling_options o = weft__sampling_filled(options);
    int64_t bad;
    *chosen = (weft_sampled_token){.id = -1};
    if (!weft__sampling_check(&o, sampler->vocab, "sampler", error) ||
        (!o.greedy && !weft__sampling_check_draws(&o, "sampler", error)) ||
        !check_row(sampler, row, error))
        return WEFT_BAD_ARGUMENT;
    if (!weft__sampler_scan(sampler, row, &bad))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "sampler",
                              "the log probability of id %lld is %g; the model is damaged or "
                              "diverged in training",
                              (long long)bad, sampling_log_prob(row, bad));
    return weft__sampler_choose(sampler, &o, row, chosen, error);
}
