/* Token steps of a decoder, tokens read before the first token step, and the decoder as a search
 * model.
 *
 * While all rows of each sentence have read the same tokens, one row per sentence is enough. The
 * decoder is `narrow`: row i of the states is sentence i. The first token step whose rows differ
 * copies the state of each sentence to all of its rows. */
#include "decoder.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of tokens that a plan reads at once, tried in this order. */
static const int64_t chunks[] = {64, 16, 4, 1};

/* Feeds a whole pass: reorders the earlier tokens, appends those of this position, and feeds the
 * first key_len. */
static bool feed_whole(weft_decoder *d, decode_plan *p, const int32_t *tokens)
{
    int64_t room = d->o.max_len, rows = d->rows;
    int32_t *old = d->tokens + rows * room;
    memcpy(old, d->tokens, (size_t)(rows * room) * sizeof *old);
    for (int64_t i = 0; i < rows; i++) {
        int32_t *row = d->tokens + i * room, *to = d->fed + i * p->sizes.key_len;
        memcpy(row, old + d->parents[i] * room, (size_t)d->position * sizeof *row);
        row[d->position] = tokens[i];
        for (int64_t j = 0; j < p->sizes.key_len; j++) to[j] = j <= d->position ? row[j] : 0;
    }
    if (!weft__decoder_feed(d, p, p->token, d->fed, rows * p->sizes.key_len)) return false;
    for (int64_t i = 0; i < rows; i++) d->fed[i] = (int32_t)(i * p->sizes.key_len + d->position);
    if (!weft__decoder_feed(d, p, p->position, d->fed, rows)) return false;
    return !d->has_source || weft__decoder_feed(d, p, p->source, d->source, rows * d->source_len);
}

/* Feeds tokens[rows of the plan][count] and d->parents. */
static bool feed_step(weft_decoder *d, decode_plan *p, const int32_t *tokens, int64_t count)
{
    int32_t position = (int32_t)d->position;
    int64_t rows = p->sizes.sentences * p->sizes.beams;
    return weft__decoder_feed(d, p, p->token, tokens, rows * count) &&
           weft__decoder_feed(d, p, p->position, &position, 1) &&
           weft__decoder_feed(d, p, p->parents, d->parents, rows);
}

/* Sets d->parents for a narrow plan, whose rows continue themselves. */
static void continue_themselves(weft_decoder *d)
{
    for (int64_t i = 0; i < d->rows; i++) d->parents[i] = (int32_t)i;
}

static bool same_tokens(const weft_decoder *d, const int32_t *tokens)
{
    for (int64_t i = 0; i < d->live * d->o.beams; i++)
        if (tokens[i] != tokens[i / d->o.beams * d->o.beams]) return false;
    return true;
}

/* Feeds one token of each row; idle rows read 0. A narrow token step has one row per sentence. The
 * first wide token step after it continues the rows of the sentences. */
static bool feed_tokens(weft_decoder *d, decode_plan *p, const int32_t *tokens)
{
    const int64_t beams = d->o.beams, step = p->sizes.beams == beams ? 1 : beams;
    const int64_t rows = d->live * p->sizes.beams;
    for (int64_t i = 0; i < p->sizes.sentences * p->sizes.beams; i++)
        d->step_tokens[i] = i < rows ? tokens[i * step] : 0;
    if (step > 1)
        continue_themselves(d);
    else if (d->narrow)
        for (int64_t i = 0; i < d->rows; i++) d->parents[i] /= (int32_t)beams;
    return feed_step(d, p, d->step_tokens, 1);
}

static bool set_parents(weft_decoder *d, const int32_t *parents)
{
    for (int64_t i = 0; i < d->rows; i++) {
        if (i >= d->live * d->o.beams) {
            d->parents[i] = (int32_t)i;
            continue;
        }
        d->parents[i] = parents ? parents[i] : (int32_t)i;
        int64_t first = i / d->o.beams * d->o.beams;
        if (d->parents[i] >= first && d->parents[i] < first + d->o.beams) continue;
        weft_error_set(&d->error, WEFT_BAD_INDEX, "decoder",
                       "row %lld cannot continue row %d: its sentence has rows %lld to %lld",
                       (long long)i, d->parents[i], (long long)first,
                       (long long)(first + d->o.beams - 1));
        return false;
    }
    return true;
}

static bool has_room(weft_decoder *d, const int32_t *tokens, size_t length)
{
    if (d->error.status != WEFT_OK) return false;
    if (tokens && length <= (size_t)(d->o.max_len - d->position) &&
        (!d->has_source || d->source_len))
        return true;
    weft_error_set(
        &d->error, WEFT_BAD_ARGUMENT, "decoder",
        "the tokens are NULL, the decoder is not started, or all %lld positions are used",
        (long long)d->o.max_len);
    return false;
}

/* One token step of all rows. If `narrow` allows it and the tokens of each sentence are equal, it
 * computes one row per sentence. */
static weft_status step(weft_decoder *d, const int32_t *tokens, const int32_t *parents, bool narrow)
{
    if (!has_room(d, tokens, 1) || !set_parents(d, parents)) return d->error.status;
    narrow = narrow && d->narrow && same_tokens(d, tokens);
    decode_plan *p =
        weft__decoder_plan(d, (decode_sizes){.source_len = d->source_len,
                                             .key_len = weft__decoder_keys_for(d, d->position + 1),
                                             .sentences = weft__decoder_sentences_for(d, d->live),
                                             .beams = narrow ? 1 : d->o.beams});
    if (!p || !(d->has_steps ? feed_tokens(d, p, tokens) : feed_whole(d, p, tokens)) ||
        !weft__decoder_run(d, p))
        return d->error.status;
    d->last = p;
    d->narrow = narrow;
    d->position++;
    return WEFT_OK;
}

weft_status weft_decoder_step(weft_decoder *decoder, const int32_t *tokens, const int32_t *parents,
                              weft_error *error)
{
    if (!weft__decoder_begin(decoder, error)) return WEFT_BAD_ARGUMENT;
    step(decoder, tokens, parents, false);
    return weft_error_copy(error, &decoder->error);
}

/* Reads `count` of the tokens[live][length], from index `at`. */
static bool read_chunk(weft_decoder *d, const int32_t *tokens, size_t length, size_t at,
                       int64_t count)
{
    const int64_t sentences = weft__decoder_sentences_for(d, d->live);
    int32_t *chunk = calloc((size_t)(sentences * count), sizeof *chunk);
    if (!chunk) return weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    for (int64_t i = 0; i < d->live; i++)
        memcpy(chunk + i * count, tokens + (size_t)i * length + at, (size_t)count * sizeof *chunk);
    continue_themselves(d);
    decode_plan *p = weft__decoder_plan(
        d, (decode_sizes){.source_len = d->source_len,
                          .key_len = weft__decoder_keys_for(d, d->position + count),
                          .sentences = sentences,
                          .beams = 1,
                          .reads = count});
    bool good = p && feed_step(d, p, chunk, count) && weft__decoder_run(d, p);
    free(chunk);
    if (good) d->position += count;
    return good;
}

/* Without token steps, tokens are only stored; the next whole pass reads them. */
static void append_tokens(weft_decoder *d, const int32_t *tokens, size_t length)
{
    for (int64_t row = 0; row < d->rows; row++)
        memcpy(d->tokens + row * d->o.max_len + d->position,
               tokens + (size_t)(row / d->o.beams) * length, length * sizeof *tokens);
    d->position += (int64_t)length;
}

static weft_status read_tokens(weft_decoder *d, const int32_t *tokens, size_t length)
{
    if (!has_room(d, tokens, length)) return d->error.status;
    if (d->o.beams > 1 && (d->has_steps ? !d->narrow : d->last != NULL))
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "a sentence of several beams can read tokens at once only before the "
                              "first step");
    if (length) d->last = NULL;
    if (!d->has_steps) append_tokens(d, tokens, length);
    for (size_t at = 0, i = 0; d->has_steps && at < length;) {
        while (chunks[i] > (int64_t)(length - at)) i++;
        if (!read_chunk(d, tokens, length, at, chunks[i])) return d->error.status;
        at += (size_t)chunks[i];
    }
    return WEFT_OK;
}

weft_status weft_decoder_read(weft_decoder *decoder, const int32_t *tokens, size_t length,
                              weft_error *error)
{
    if (!weft__decoder_begin(decoder, error)) return WEFT_BAD_ARGUMENT;
    read_tokens(decoder, tokens, length);
    return weft_error_copy(error, &decoder->error);
}

/* Whether each state of a row consists of positions. */
static bool has_positions(const weft_decoder *d)
{
    for (size_t i = 0; d->has_steps && i < d->n_states; i++)
        if (d->states[i].layout.by_row && d->states[i].layout.positions != WEFT_CACHE_TARGET)
            return false;
    return true;
}

static weft_status rewind_to(weft_decoder *d, int64_t position)
{
    if (d->error.status != WEFT_OK) return d->error.status;
    if (position < 0 || position > d->position)
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "cannot be rewound to position %lld: it has read %lld tokens",
                              (long long)position, (long long)d->position);
    if (position == d->position) return WEFT_OK;
    if (!has_positions(d))
        return weft_error_set(
            &d->error, WEFT_BAD_ARGUMENT, d->config.model->name,
            "has recurrent states and cannot be rewound: start again and read all "
            "tokens");
    if (position == 0) d->narrow = d->has_steps;
    d->last = NULL;
    d->position = position;
    return WEFT_OK;
}

weft_status weft_decoder_rewind(weft_decoder *decoder, int64_t position, weft_error *error)
{
    if (!weft__decoder_begin(decoder, error)) return WEFT_BAD_ARGUMENT;
    rewind_to(decoder, position);
    return weft_error_copy(error, &decoder->error);
}

/* The used rows of the last token step's logits or log probabilities. */
static bool result(const weft_decoder *d, bool log_probs, weft_tensor *tensor)
{
    if (!d || !d->last || !d->last->plan.session || !tensor ||
        weft_session_tensor(d->last->plan.session, log_probs ? d->last->log_probs : d->last->logits,
                            tensor, NULL) != WEFT_OK)
        return false;
    tensor->shape.dim[0] = d->live * (d->has_steps ? d->last->sizes.beams : d->o.beams);
    return true;
}

bool weft_decoder_logits(const weft_decoder *decoder, weft_tensor *logits)
{
    return result(decoder, false, logits);
}

bool weft_decoder_log_probs(const weft_decoder *decoder, weft_tensor *log_probs)
{
    return result(decoder, true, log_probs);
}

static weft_status weft__search_step(void *context, const int32_t *tokens, const int32_t *parents,
                                     weft_tensor *log_probs, weft_error *error)
{
    weft_decoder *d = context;
    if (step(d, tokens, parents, true) == WEFT_OK && weft_decoder_log_probs(d, log_probs))
        return WEFT_OK;
    weft_error_copy(error, &d->error);
    return weft_error_set(error, WEFT_INTERNAL, "decoder", "the step has no result");
}

static weft_status search_retain(void *context, const int32_t *sentences, size_t n,
                                 weft_error *error)
{
    return weft_decoder_retain(context, sentences, n, error);
}

static weft_status search_read(void *context, const int32_t *tokens, size_t length,
                               weft_error *error)
{
    return weft_decoder_read(context, tokens, length, error);
}

weft_search_model weft_decoder_search_model(weft_decoder *decoder)
{
    weft_search_model model = {.step = weft__search_step, .read = search_read, .context = decoder};
    if (!decoder) return model;
    if (decoder->has_steps) model.retain = search_retain;
    model.sentences = decoder->o.sentences;
    model.beams = decoder->o.beams;
    model.vocab = decoder->traits.vocab;
    model.max_len = decoder->o.max_len;
    return model;
}
