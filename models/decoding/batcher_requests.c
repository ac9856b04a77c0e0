/* Requests of a batcher: checks and copies. */
#include "batcher.h"

#include <stdlib.h>
#include <string.h>

static bool refuse(weft_error *error, const char *message)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, "batcher", "%s", message);
    return false;
}

bool weft__batch_check(const weft_batcher *b, const weft_batcher_request *r,
                       weft_sampling_options *filled, weft_error *error)
{
    const int64_t vocab = b->d->traits.vocab, positions = b->d->o.max_len;
    if (!r) return refuse(error, "the request is NULL");
    if (!r->prefix || !r->prefix_len || r->max_len < 1 || r->sample < 0)
        return refuse(error,
                      "a request needs a prompt of at least one token, max_len of at least 1, "
                      "and a sample of 0 or more");
    for (size_t i = 0; i < r->prefix_len; i++)
        if (r->prefix[i] < 0 || r->prefix[i] >= vocab)
            return refuse(error, "a token of the prompt is outside the vocabulary");
    if (r->prefix_len > (size_t)positions || r->max_len - 1 > positions - (int64_t)r->prefix_len) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "batcher",
                       "a prompt of %zu and %lld tokens to find: a request has %lld positions",
                       r->prefix_len, (long long)r->max_len, (long long)positions);
        return false;
    }
    *filled = weft__sampling_filled(r->options);
    return weft__sampling_check(filled, vocab, "batcher", error) &&
           (filled->greedy || weft__sampling_check_draws(filled, "batcher", error));
}

batch_request *weft__batch_copy(const weft_batcher_request *in, const weft_sampling_options *o)
{
    const size_t n = in->prefix_len + (size_t)in->max_len;
    batch_request *r = calloc(1, sizeof *r + (n + o->n_ends + o->n_banned) * sizeof *r->tokens);
    if (!r) return NULL;
    *r = (batch_request){.tokens = (int32_t *)(void *)(r + 1),
                         .n = in->prefix_len,
                         .prefix_len = in->prefix_len,
                         .max_len = in->max_len,
                         .sample = in->sample,
                         .key = in->key,
                         .options = *o,
                         .take = in->take,
                         .context = in->context};
    int32_t *ends = r->tokens + n, *banned = ends + o->n_ends;
    memcpy(r->tokens, in->prefix, in->prefix_len * sizeof *in->prefix);
    if (o->n_ends) memcpy(ends, o->ends, o->n_ends * sizeof *ends);
    if (o->n_banned) memcpy(banned, o->banned, o->n_banned * sizeof *banned);
    r->options.ends = ends;
    r->options.banned = banned;
    return r;
}
