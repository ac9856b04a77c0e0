/* Choosing among the tokens that a rule of the caller allows.
 *
 * Tokens are tried one after another: drawn, or the most likely ones first, and left out if they are
 * refused. Drawing without the refused ones until one is allowed selects an allowed token with its
 * renormalised probability. Most tokens that a model finds likely are allowed, so a text costs few
 * calls of the rule. After TRIES all are checked at once. */
#include "sampler.h"

#include <math.h>

#define TRIES 64

typedef struct trial {
    weft_sampler *s;
    const weft_sampling_options *o;
    const weft_sampling_row *row;
    weft_error *error;
} trial;

/* Sets *allowed; a refused token gets the log probability -inf. */
static weft_status check(const trial *t, int64_t id, bool *allowed)
{
    const weft_sampling_row *row = t->row;
    *allowed = false;
    const weft_status status =
        t->o->allows(t->o->allows_context, row->tokens + (row->length - row->found), row->found,
                     (int32_t)id, allowed, t->error);
    if (status == WEFT_OK && !*allowed) t->s->log_probs[id] = -INFINITY;
    return status;
}

/* Checks all tokens that are left. */
static weft_status check_all(const trial *t)
{
    weft_status status = WEFT_OK;
    bool allowed;
    for (int64_t id = 0; id < t->s->vocab && status == WEFT_OK; id++)
        if (t->s->log_probs[id] > -INFINITY) status = check(t, id, &allowed);
    return status;
}

static weft_status greedy(const trial *t, int64_t *id)
{
    weft_status status = WEFT_OK;
    bool allowed = false;
    for (int tries = 0; !allowed && status == WEFT_OK; tries++) {
        if (tries == TRIES) status = check_all(t);
        allowed = tries == TRIES;
        *id = weft__sampler_argmax(t->s->log_probs, t->s->vocab);
        if (*id < 0) break;
        if (!allowed && status == WEFT_OK) status = check(t, *id, &allowed);
    }
    return status;
}

/* The place of a candidate that is drawn from those left, whose probability is above 0; -1: none. */
static int64_t draw_place(const trial *t, size_t n, uint64_t tries)
{
    const double *probs = t->s->probs;
    double total = 0, sum = 0;
    int64_t last = -1;
    for (size_t i = 0; i < n; i++) total += probs[i];
    /* With all of them, as without a rule. */
    const double u = weft__sampler_uniform(t->o, t->row, tries) * (tries ? total : 1);
    for (size_t i = 0; i < n; i++) {
        if (!(probs[i] > 0)) continue;
        last = (int64_t)i;
        sum += probs[i];
        if (u < sum) break;
    }
    return last;
}

/* Draws from n candidates until one is allowed; -1 if none is. */
static weft_status draw(const trial *t, size_t n, int64_t *id)
{
    weft_sampler *s = t->s;
    weft_status status = WEFT_OK;
    bool allowed = false;
    *id = -1;
    for (uint64_t tries = 0; !allowed && status == WEFT_OK; tries++) {
        for (size_t i = 0; tries == TRIES && i < n && status == WEFT_OK; i++) {
            if (!(s->probs[i] > 0)) continue;
            status = check(t, s->ids[i], &allowed);
            if (!allowed) s->probs[i] = 0;
        }
        const int64_t at = draw_place(t, n, tries);
        *id = at < 0 ? -1 : s->ids[at];
        if (at < 0 || status != WEFT_OK || tries == TRIES) break;
        status = check(t, *id, &allowed);
        if (!allowed) s->probs[at] = 0;
    }
    return status;
}

weft_status weft__sampler_choose_allowed(weft_sampler *s, const weft_sampling_options *o,
                                         const weft_sampling_row *row, int64_t *id,
                                         weft_error *error)
{
    const trial t = {s, o, row, error};
    if (o->greedy) return greedy(&t, id);
    size_t n = weft_search_candidates(s->log_probs, (size_t)s->vocab, o, s->ids, s->probs);
    weft_status status = draw(&t, n, id);
    if (status != WEFT_OK || *id >= 0) return status;
    /* None of the candidates is allowed. */
    status = check_all(&t);
    if (status != WEFT_OK) return status;
    n = weft_search_candidates(s->log_probs, (size_t)s->vocab, o, s->ids, s->probs);
    const int64_t at = draw_place(&t, n, TRIES + 1);
    *id = at < 0 ? -1 : s->ids[at];
    return WEFT_OK;
}
