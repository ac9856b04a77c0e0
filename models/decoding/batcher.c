/* The batcher: requests, and token steps in which each row is at a position of its own.
 *
 * Requests with slots have the rows 0 .. live - 1 of the decoder's states. A new one takes row 0,
 * whose request moves to the end, because the plans that read prompts in chunks write row 0. The
 * last row moves to the place of one that leaves. A row in the middle of its prompt takes part in
 * token steps with its next token. */
#include "batcher.h"

#include <stdlib.h>
#include <string.h>

#define READ_TOKENS 64 /* of prompts in a step, so that no answer waits for a long prompt */

/* Numbers of tokens that a plan reads at once; token steps read the rest. */
static const size_t chunks[] = {64, 16, 4};

/* ---- Making one ---- */

static bool refuse(weft_error *error, const char *message)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, "batcher", "%s", message);
    return false;
}

static bool no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "batcher", "no memory");
    return false;
}

/* The decoder, whose states must be keys and values by position. */
static bool make_decoder(weft_batcher *b, const weft_model_config *config,
                         const weft_params *params, const weft_batcher_options *o,
                         weft_error *error)
{
    const weft_decoder_options decoder = {
        .sentences = b->slots, .max_len = o->max_len, .cache = o->cache, .session = o->session};
    if (config && config->model && weft_model_traits_of(config).source_vocab > 0)
        return refuse(error, "the model reads a source: only language models can be batched");
    b->d = weft_decoder_new(config, params, &decoder, error);
    if (!b->d) return false;
    bool good = b->d->has_steps && b->d->n_states > 0;
    for (size_t i = 0; i < b->d->n_states; i++)
        good &= b->d->states[i].layout.positions == WEFT_CACHE_TARGET;
    return good ||
           refuse(
               error,
               "the states of the model are not keys and values by position: it cannot be batched");
}

static bool make_scratch(weft_batcher *b, weft_error *error)
{
    const size_t slots = (size_t)b->slots;
    b->rows = calloc(slots, sizeof *b->rows);
    b->fed = calloc(2 * slots, sizeof *b->fed);
    if (!b->rows || !b->fed) return no_memory(error);
    b->sampler = weft_sampler_new(b->d->traits.vocab, error);
    return b->sampler != NULL;
}

weft_batcher *weft_batcher_new(const weft_model_config *config, const weft_params *params,
                               const weft_batcher_options *options, weft_error *error)
{
    const weft_batcher_options o = options ? *options : (weft_batcher_options){.slots = 0};
    weft_error_clear(error);
    if (o.slots < 0 || o.max_len < 0) {
        refuse(error, "slots and max_len must be 0 or more");
        return NULL;
    }
    weft_batcher *b = calloc(1, sizeof *b);
    if (!b) {
        no_memory(error);
        return NULL;
    }
    b->slots = o.slots ? o.slots : 8;
    b->prefix_limit = o.prefix_bytes;
    b->last = &b->first;
    b->next_id = 1;
    if (make_decoder(b, config, params, &o, error) && make_scratch(b, error)) return b;
    weft_batcher_free(b);
    return NULL;
}

void weft_batcher_free(weft_batcher *batcher)
{
    weft_batcher *b = batcher;
    if (!b) return;
    for (size_t i = 0; i < b->live; i++) free(b->rows[i]);
    while (b->first) {
        batch_request *next = b->first->next;
        free(b->first);
        b->first = next;
    }
    weft__batch_free_prefixes(b);
    weft_decoder_free(b->d);
    free(b->rows);
    free(b->fed);
    weft_sampler_free(b->sampler);
    free(b);
}

/* ---- Requests ---- */

/* Fails if the batcher is NULL, or called by `take`. */
static bool begin(const weft_batcher *b, weft_error *error)
{
    weft_error_clear(error);
    if (!b) return refuse(error, "the batcher is NULL");
    return !b->inside || refuse(error, "`take` must not call functions of the batcher");
}

/* Positions of a request's row that may have been written. */
static size_t written(const weft_batcher *b, const batch_request *r)
{
    const size_t most = (size_t)b->d->o.max_len;
    return r->read + READ_TOKENS < most ? r->read + READ_TOKENS : most;
}

weft_status weft_batcher_add(weft_batcher *batcher, const weft_batcher_request *request,
                             uint64_t *id, weft_error *error)
{
    weft_batcher *b = batcher;
    weft_error why = WEFT_NO_ERROR;
    batch_request *r = NULL;
    weft_sampling_options filled = {.greedy = false};
    weft_error_clear(error);
    if (begin(b, &why) && weft__batch_check(b, request, &filled, &why)) {
        r = weft__batch_copy(request, &filled);
        if (!r) no_memory(&why);
    }
    if (!r) return weft_error_copy(error, &why);
    r->id = b->next_id++;
    *b->last = r;
    b->last = &r->next;
    b->waiting++;
    if (id) *id = r->id;
    return WEFT_OK;
}

/* Removes the request of a row, with a copy in the prefix cache if `retain`. The last row takes its
 * place. Its positions are zeroed, so that nothing of a request outlives it; a step that has failed
 * may have written some that do not count as read. */
static void leave(weft_batcher *b, size_t row, bool retain)
{
    const size_t last = b->live - 1;
    batch_request *r = b->rows[row], *moved = b->rows[last];
    if (retain) weft__batch_retain_prefix(b, row);
    weft__batch_clear_row(b, row, written(b, r));
    if (row != last) {
        weft__batch_copy_row(b, last, row, moved->read);
        weft__batch_clear_row(b, last, written(b, moved));
    }
    b->rows[row] = moved;
    b->rows[last] = NULL;
    b->live = last;
    free(r);
}

weft_status weft_batcher_cancel(weft_batcher *batcher, uint64_t id, weft_error *error)
{
    weft_batcher *b = batcher;
    if (!begin(b, error)) return WEFT_BAD_ARGUMENT;
    for (size_t i = 0; i < b->live; i++) {
        if (b->rows[i]->id != id) continue;
        leave(b, i, true);
        return WEFT_OK;
    }
    for (batch_request **at = &b->first; *at; at = &(*at)->next) {
        batch_request *r = *at;
        if (r->id != id) continue;
        *at = r->next;
        if (!r->next) b->last = at;
        b->waiting--;
        free(r);
        return WEFT_OK;
    }
    return weft_error_set(error, WEFT_NOT_FOUND, "batcher",
                          "unknown request %llu: it has ended, or was never added",
                          (unsigned long long)id);
}

/* Moves the first of the queue to row 0. */
static void admit(weft_batcher *b)
{
    batch_request *r = b->first;
    b->first = r->next;
    if (!b->first) b->last = &b->first;
    r->next = NULL;
    b->waiting--;
    if (b->live) {
        batch_request *moved = b->rows[0];
        weft__batch_copy_row(b, 0, b->live, moved->read);
        weft__batch_clear_row(b, 0, written(b, moved));
        b->rows[b->live] = moved;
    }
    b->rows[0] = r;
    b->live++;
    weft__batch_reuse_prefix(b, r);
}

/* ---- Reading prompts ---- */

/* Tokens of a prompt that are read without logits. */
static size_t unread(const batch_request *r)
{
    const size_t end = r->prefix_len - 1;
    return r->read < end ? end - r->read : 0;
}

/* Ends a run of a plan: a failure becomes the caller's, and the next run tries again. */
static bool done(weft_batcher *b, bool good, weft_error *error)
{
    if (good) return true;
    weft_error_copy(error, &b->d->error);
    b->d->error = (weft_error){.status = WEFT_OK};
    return false;
}

static bool read_chunk(weft_batcher *b, size_t count, weft_error *error)
{
    batch_request *r = b->rows[0];
    const int32_t position = (int32_t)r->read, parent = 0;
    const int64_t n = (int64_t)count;
    decode_plan *p = weft__decoder_plan(
        b->d, (decode_sizes){.key_len = weft__decoder_keys_for(b->d, position + n),
                             .sentences = 1,
                             .beams = 1,
                             .reads = n});
    const bool good = p && weft__decoder_feed(b->d, p, p->token, r->tokens + r->read, n) &&
                      weft__decoder_feed(b->d, p, p->position, &position, 1) &&
                      weft__decoder_feed(b->d, p, p->parents, &parent, 1) &&
                      weft__decoder_run(b->d, p);
    if (!done(b, good, error)) return false;
    r->read += count;
    b->read_tokens += count;
    return true;
}

/* Fills free slots, and reads prompts in chunks. */
static bool read_prompts(weft_batcher *b, weft_error *error)
{
    for (size_t budget = READ_TOKENS;;) {
        const size_t left = b->live ? unread(b->rows[0]) : 0;
        const size_t most = left < budget ? left : budget;
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            if (chunks[i] > most) continue;
            if (!read_chunk(b, chunks[i], error)) return false;
            budget -= chunks[i];
            break;
        }
        if (most >= chunks[2]) continue;
        if (left >= chunks[2] || !b->first || b->live == (size_t)b->slots) return true;
        admit(b);
    }
}

/* ---- Token steps ---- */

static bool is_end(const batch_request *r, int32_t token)
{
    for (size_t i = 0; i < r->options.n_ends; i++)
        if (r->options.ends[i] == token) return true;
    return false;
}

/* The next token of a row, and what ends it. */
static weft_batcher_event choose(weft_batcher *b, size_t row, weft_error *why)
{
    batch_request *r = b->rows[row];
    const weft_sampling_row at = {.log_probs = &b->logs,
                                  .row = (int64_t)row,
                                  .tokens = r->tokens,
                                  .length = r->n,
                                  .found = r->n - r->prefix_len,
                                  .key = r->key,
                                  .sample = r->sample};
    weft_batcher_event event = {.request = r->id, .token = -1, .end = WEFT_BATCHER_FAILED};
    weft_sampled_token chosen;
    event.status = weft_sampler_choose(b->sampler, &r->options, &at, &chosen, why);
    if (event.status != WEFT_OK) {
        event.message = why->message;
        return event;
    }
    event.end = WEFT_BATCHER_NO_TOKEN;
    if (chosen.id < 0) return event;
    event.token = chosen.id;
    event.log_prob = chosen.log_prob;
    event.end = is_end(r, chosen.id) ? WEFT_BATCHER_ENDED : WEFT_BATCHER_GOES_ON;
    b->new_tokens++;
    if (event.end == WEFT_BATCHER_ENDED) return event;
    r->tokens[r->n++] = event.token;
    if ((int64_t)(r->n - r->prefix_len) >= r->max_len) event.end = WEFT_BATCHER_LENGTH;
    return event;
}

/* Chooses a token for a row, and hands it out. False if the request ends; *failed: because none
 * could be chosen. */
static bool take_token(weft_batcher *b, size_t row, bool *failed)
{
    const batch_request *r = b->rows[row];
    const weft_tensor *logs = &b->logs;
    weft_error why = WEFT_NO_ERROR;
    weft_batcher_event event = choose(b, row, &why);
    const weft_tensor one = weft_tensor_dense(
        (char *)logs->data + row * (size_t)logs->stride[0] * weft_dtype_bytes(logs->dtype),
        logs->dtype, WEFT_SHAPE(logs->shape.dim[1]));
    if (event.token >= 0) event.log_probs = &one;
    *failed = event.end == WEFT_BATCHER_FAILED;
    return (!r->take || r->take(r->context, &event)) && event.end == WEFT_BATCHER_GOES_ON;
}

/* Computes the next position of every row, into b->logs. */
static bool run_rows(weft_batcher *b, weft_error *error)
{
    const int64_t rows = weft__decoder_sentences_for(b->d, (int64_t)b->live);
    int32_t *tokens = b->fed, *positions = b->fed + b->slots, last = 0;
    memset(b->fed, 0, 2 * (size_t)b->slots * sizeof *b->fed);
    for (size_t i = 0; i < b->live; i++) {
        const batch_request *r = b->rows[i];
        tokens[i] = r->tokens[r->read];
        positions[i] = (int32_t)r->read;
        if (positions[i] > last) last = positions[i];
    }
    decode_plan *p = weft__decoder_plan(
        b->d, (decode_sizes){.key_len = weft__decoder_keys_for(b->d, (int64_t)last + 1),
                             .sentences = rows,
                             .beams = 1,
                             .own_positions = true});
    b->d->last = p;
    const bool good = p && weft__decoder_feed(b->d, p, p->token, tokens, rows) &&
                      weft__decoder_feed(b->d, p, p->position, positions, rows) &&
                      weft__decoder_run(b->d, p);
    return done(b, good, error) &&
           weft_session_tensor(p->plan.session, p->log_probs, &b->logs, error) == WEFT_OK;
}

/* A token step. Rows leave from the last on, so that those that take their places stay. */
static bool step_rows(weft_batcher *b, weft_error *error)
{
    if (!run_rows(b, error)) return false;
    b->steps++;
    for (size_t i = b->live; i-- > 0;) {
        batch_request *r = b->rows[i];
        bool failed = false;
        if (r->read < r->prefix_len) b->read_tokens++;
        if (++r->read < r->n || take_token(b, i, &failed)) continue;
        leave(b, i, !failed);
    }
    return true;
}

weft_status weft_batcher_step(weft_batcher *batcher, weft_error *error)
{
    weft_batcher *b = batcher;
    weft_error why = WEFT_NO_ERROR;
    weft_error_clear(error);
    if (!begin(b, &why)) return weft_error_copy(error, &why);
    b->inside = true;
    if (read_prompts(b, &why) && b->live) step_rows(b, &why);
    b->inside = false;
    return weft_error_copy(error, &why);
}

weft_batcher_info weft_batcher_info_of(const weft_batcher *batcher)
{
    const weft_batcher *b = batcher;
    if (!b) return (weft_batcher_info){.slots = 0};
    const weft_decoder_info d = weft_decoder_info_of(b->d);
    return (weft_batcher_info){.slots = b->slots,
                               .max_len = b->d->o.max_len,
                               .vocab = d.vocab,
                               .waiting = b->waiting,
                               .live = b->live,
                               .steps = b->steps,
                               .read_tokens = b->read_tokens,
                               .reused_tokens = b->reused_tokens,
                               .new_tokens = b->new_tokens,
                               .prefixes = b->n_prefixes,
                               .prefix_bytes = b->prefix_bytes,
                               .plans = d.plans,
                               .arena_bytes = d.arena_bytes,
                               .state_bytes = d.state_bytes};
}
