/* The decoder: what a program calls.
 *
 * The states have room for the most positions and rows. A plan attends to the first 32, 48, 64, ...
 * positions and has rows for 1 to 8, 10, 12, 14, 16, 20, ... sentences, so that a step costs little
 * more than its position and its remaining sentences need.
 *
 * As long as the rows of a sentence have read the same, one row is enough: the decoder is `narrow`,
 * row i of the states is sentence i, and the step that makes the rows differ spreads them. */
#include "decoder.h"

#include "zoo/text.h"

#include <stdlib.h>
#include <string.h>

#define MIN_KEYS   32
#define MIN_SOURCE 8
/* Tokens that are read at once, where so many are known. */
static const int64_t chunks[] = {64, 16, 4, 1};

/* ---- Lengths ---- */

static int64_t keys_for(const weft_decoder *d, int64_t length)
{
    return text_bucket(MIN_KEYS, length, d->o.max_len);
}

static int64_t source_for(const weft_decoder *d, int64_t length)
{
    return d->has_source ? text_bucket(MIN_SOURCE, length, d->o.max_source_len) : 0;
}

/* Sentences of a plan that n of them run on. Models without steps always take all. */
static int64_t sentences_for(const weft_decoder *d, int64_t n)
{
    n = text_rows(n);
    return d->has_steps && n < d->o.sentences ? n : d->o.sentences;
}

int64_t weft_decoder_padded(const weft_decoder *decoder, int64_t length)
{
    if (!decoder || !decoder->has_source) return 0;
    return source_for(decoder, length);
}

/* ---- The decoder ---- */

/* The options with defaults for zeros. */
static weft_decoder_options filled(const weft_model_traits *traits,
                                   const weft_decoder_options *options)
{
    weft_decoder_options o = options ? *options : (weft_decoder_options){0};
    int64_t length =
        traits->max_positions < WEFT_DECODER_LEN ? traits->max_positions : WEFT_DECODER_LEN;
    if (!o.sentences) o.sentences = 1;
    if (!o.beams) o.beams = 1;
    if (!o.max_len) o.max_len = length;
    if (!o.max_source_len) o.max_source_len = length;
    return o;
}

static weft_status check_options(const weft_model *model, const weft_model_traits *traits,
                                 const weft_decoder_options *o, weft_error *error)
{
    const bool has_source = traits->source_vocab > 0;
    const int64_t limit = traits->max_positions;
    if (!traits->decodable)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                              "does not predict one token after another");
    if (o->sentences < 1 || o->beams < 1 || o->max_len < 1 || o->sentences > INT32_MAX / o->beams ||
        o->max_len > INT32_MAX / (o->sentences * o->beams) ||
        (has_source && (o->max_source_len < 1 || o->max_source_len > INT32_MAX)))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                              "needs sentences, beams and lengths of at least 1 and not too many, "
                              "got %lld, %lld, %lld positions, %lld of a source",
                              (long long)o->sentences, (long long)o->beams, (long long)o->max_len,
                              (long long)o->max_source_len);
    if (o->max_len > limit || (has_source && o->max_source_len > limit))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                              "has learned %lld positions, asked for %lld and %lld of a source",
                              (long long)limit, (long long)o->max_len,
                              (long long)(has_source ? o->max_source_len : 0));
    return WEFT_OK;
}

static bool make(weft_decoder *d, const weft_params *params)
{
    int64_t rows = d->rows, sources = d->has_steps ? d->o.sentences : rows;
    d->store = weft_params_new();
    d->parents = calloc((size_t)rows, sizeof *d->parents);
    d->few = calloc((size_t)rows, sizeof *d->few);
    if (d->has_source)
        d->source = calloc((size_t)(sources * d->o.max_source_len), sizeof *d->source);
    if (!d->has_steps) {
        d->tokens = calloc((size_t)(2 * rows * d->o.max_len), sizeof *d->tokens);
        d->fed = calloc((size_t)(rows * d->o.max_len), sizeof *d->fed);
    }
    if (!d->store || !d->parents || !d->few || (d->has_source && !d->source) ||
        (!d->has_steps && (!d->tokens || !d->fed)))
        return decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    if (!decoder_check_params(d, params)) return false;
    if (weft_params_share(d->store, params, &d->error) != WEFT_OK) return false;
    if (d->has_steps && d->config.model->prepare && !decoder_prepare(d)) return false;
    decode_sizes first = {.source_len = source_for(d, 1),
                          .key_len = keys_for(d, 1),
                          .sentences = d->o.sentences,
                          .beams = d->o.beams};
    return decoder_plan(d, first) != NULL;
}

weft_decoder *weft_decoder_new(const weft_model_config *config, const weft_params *params,
                               const weft_decoder_options *options, weft_error *error)
{
    if (!config || !config->model || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                       "the model's configuration or the parameters are NULL");
        return NULL;
    }
    const weft_model *model = config->model;
    const weft_model_traits traits = weft_model_get_traits(config);
    const weft_decoder_options o = filled(&traits, options);
    if (check_options(model, &traits, &o, error) != WEFT_OK) return NULL;
    weft_decoder *d = calloc(1, sizeof *d);
    if (!d) {
        weft_error_set(error, WEFT_NO_MEMORY, "decoder", "no memory");
        return NULL;
    }
    d->config = *config;
    d->traits = traits;
    d->o = o;
    d->plans.threads = o.threads;
    d->rows = o.sentences * o.beams;
    d->live = o.sentences;
    d->has_source = traits.source_vocab > 0;
    d->has_steps = !o.recompute && model->step && (!d->has_source || model->encode);
    if (make(d, params)) return d;
    weft_error_set(error, d->error.status, d->error.where, "%s", d->error.message);
    weft_decoder_free(d);
    return NULL;
}

void weft_decoder_free(weft_decoder *decoder)
{
    if (!decoder) return;
    plans_free(&decoder->plans);
    weft_params_free(decoder->store);
    free(decoder->states);
    free(decoder->source);
    free(decoder->parents);
    free(decoder->few);
    free(decoder->tokens);
    free(decoder->fed);
    free(decoder);
}

weft_decoder_info weft_decoder_get_info(const weft_decoder *decoder)
{
    weft_decoder_info info = {.rows = 0};
    if (!decoder) return info;
    info.rows = decoder->live * decoder->o.beams;
    info.vocab = decoder->traits.vocab;
    info.has_source = decoder->has_source;
    info.has_steps = decoder->has_steps;
    info.position = decoder->position;
    info.plans = decoder->plans.count;
    info.arena_bytes = decoder->plans.arena_bytes;
    if (decoder->last) info.step = weft_plan_get_stats(decoder->last->plan.plan);
    info.state_bytes = info.step.state_bytes;
    return info;
}

const weft_error *weft_decoder_error(const weft_decoder *decoder)
{
    static const weft_error none = {WEFT_BAD_ARGUMENT, "decoder", "the decoder is NULL"};
    return decoder ? &decoder->error : &none;
}

/* ---- Running ---- */

/* Copies sources into d->source, source_len apart and padded; without steps, each row of a sentence
 * has a copy. */
static void pad_sources(weft_decoder *d, const int32_t *const *sources, const size_t *lengths,
                        size_t n)
{
    int32_t pad = d->traits.pad_id;
    int64_t repeat = d->has_steps ? 1 : d->o.beams;
    for (int64_t row = 0; row < d->o.sentences * repeat; row++) {
        size_t i = (size_t)(row / repeat), length = i < n ? lengths[i] : 0;
        int32_t *to = d->source + row * d->source_len;
        if (length) memcpy(to, sources[i], length * sizeof *to);
        for (int64_t j = (int64_t)length; j < d->source_len; j++) to[j] = pad;
    }
}

weft_status weft_decoder_start(weft_decoder *decoder, const int32_t *const *sources,
                               const size_t *lengths, size_t n)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    d->error = (weft_error){.status = WEFT_OK};
    d->position = 0;
    d->live = d->o.sentences;
    d->narrow = d->has_steps;
    d->last = NULL;
    if (!d->has_source) return WEFT_OK;
    size_t longest = 1;
    if (n > (size_t)d->o.sentences || (n && (!sources || !lengths)))
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "%zu sources for %lld sentences, or none at all", n,
                              (long long)d->o.sentences);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] > longest) longest = lengths[i];
        if (lengths[i] > (size_t)d->o.max_source_len)
            return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                                  "source %zu has %zu tokens, at most %lld fit", i, lengths[i],
                                  (long long)d->o.max_source_len);
    }
    d->source_len = source_for(d, (int64_t)longest);
    pad_sources(d, sources, lengths, n);
    if (!d->has_steps) return WEFT_OK;
    int64_t sentences = sentences_for(d, n ? (int64_t)n : 1);
    decode_plan *p = decoder_plan(
        d, (decode_sizes){.source_len = d->source_len, .sentences = sentences, .beams = 1});
    if (p && decoder_feed(d, p, p->source, d->source, sentences * d->source_len)) decoder_run(d, p);
    return d->error.status;
}

/* ---- Fewer sentences ---- */

/* Copies a sentence of one state, as far as it is in use. */
static void move_state(weft_decoder *d, const decode_state *state, int64_t from, int64_t to)
{
    weft_tensor t;
    if (!weft_params_get(d->store, state->name, &t)) return;
    const int64_t rows = state->layout.by_row && !d->narrow ? d->o.beams : 1;
    int64_t all = 1, used = 0;
    for (int k = 1; k < t.shape.rank; k++) all *= t.shape.dim[k];
    if (state->layout.positions == WEFT_CACHE_TARGET) used = d->position;
    if (state->layout.positions == WEFT_CACHE_SOURCE) used = d->source_len;
    const int64_t in_use = used ? all / t.shape.dim[1] * used : all;
    const size_t bytes = weft_dtype_bytes(t.dtype);
    for (int64_t row = 0; row < rows; row++)
        memcpy((char *)t.data + (size_t)((to * rows + row) * all) * bytes,
               (const char *)t.data + (size_t)((from * rows + row) * all) * bytes,
               (size_t)in_use * bytes);
}

weft_status weft_decoder_retain(weft_decoder *decoder, const int32_t *sentences, size_t n)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    if (d->error.status != WEFT_OK) return d->error.status;
    bool good = sentences && n >= 1 && n <= (size_t)d->live;
    for (size_t i = 0; good && i < n; i++)
        good = sentences[i] >= (int32_t)i && sentences[i] < d->live;
    if (!good || !d->has_steps)
        return weft_error_set(
            &d->error, WEFT_BAD_ARGUMENT, "decoder",
            "retains 1 to %lld sentences in ascending order, of a model with steps",
            (long long)d->live);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; sentences[i] != (int32_t)i && k < d->n_states; k++)
            move_state(d, &d->states[k], sentences[i], (int64_t)i);
    d->live = (int64_t)n;
    return WEFT_OK;
}

/* ---- Steps ---- */

/* Reorders the tokens so far, adds those of this position and feeds the first key_len. */
static bool feed_whole(weft_decoder *d, decode_plan *p, const int32_t *tokens)
{
    int64_t room = d->o.max_len, rows = d->rows;
    int32_t *old = d->tokens + rows * room;
    memcpy(old, d->tokens, (size_t)(rows * room) * sizeof *old);
    for (int64_t i = 0; i < rows; i++) {
        int32_t *row = d->tokens + i * room, *to = d->fed + i * p->z.key_len;
        memcpy(row, old + d->parents[i] * room, (size_t)d->position * sizeof *row);
        row[d->position] = tokens[i];
        for (int64_t j = 0; j < p->z.key_len; j++) to[j] = j <= d->position ? row[j] : 0;
    }
    if (!decoder_feed(d, p, p->token, d->fed, rows * p->z.key_len)) return false;
    for (int64_t i = 0; i < rows; i++) d->fed[i] = (int32_t)(i * p->z.key_len + d->position);
    if (!decoder_feed(d, p, p->position, d->fed, rows)) return false;
    return !d->has_source || decoder_feed(d, p, p->source, d->source, rows * d->source_len);
}

/* Feeds tokens[rows of the stage][count] and d->parents. */
static bool feed_step(weft_decoder *d, decode_plan *p, const int32_t *tokens, int64_t count)
{
    int32_t position = (int32_t)d->position;
    int64_t rows = p->z.sentences * p->z.beams;
    return decoder_feed(d, p, p->token, tokens, rows * count) &&
           decoder_feed(d, p, p->position, &position, 1) &&
           decoder_feed(d, p, p->parents, d->parents, rows);
}

/* The rows of a narrow plan continue themselves. */
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

/* Feeds one token of each row; idle rows read 0. A narrow step needs one row of each sentence;
 * after narrow ones, the others go on from the rows of their sentences. */
static bool feed_tokens(weft_decoder *d, decode_plan *p, const int32_t *tokens)
{
    const int64_t beams = d->o.beams, step = p->z.beams == beams ? 1 : beams;
    const int64_t rows = d->live * p->z.beams;
    for (int64_t i = 0; i < p->z.sentences * p->z.beams; i++)
        d->few[i] = i < rows ? tokens[i * step] : 0;
    if (step > 1)
        continue_themselves(d);
    else if (d->narrow)
        for (int64_t i = 0; i < d->rows; i++) d->parents[i] /= (int32_t)beams;
    return feed_step(d, p, d->few, 1);
}

static bool take_parents(weft_decoder *d, const int32_t *parents)
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
                       "row %lld cannot go on from row %d: rows of its sentence are %lld to %lld",
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
    weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                   "no tokens, not started, or all %lld positions are taken",
                   (long long)d->o.max_len);
    return false;
}

/* A step of all rows, or, if that is allowed and does, of one for each sentence. */
static weft_status step(weft_decoder *d, const int32_t *tokens, const int32_t *parents, bool narrow)
{
    if (!has_room(d, tokens, 1) || !take_parents(d, parents)) return d->error.status;
    narrow = narrow && d->narrow && same_tokens(d, tokens);
    decode_plan *p = decoder_plan(d, (decode_sizes){.source_len = d->source_len,
                                                    .key_len = keys_for(d, d->position + 1),
                                                    .sentences = sentences_for(d, d->live),
                                                    .beams = narrow ? 1 : d->o.beams});
    if (!p || !(d->has_steps ? feed_tokens(d, p, tokens) : feed_whole(d, p, tokens)) ||
        !decoder_run(d, p))
        return d->error.status;
    d->last = p;
    d->narrow = narrow;
    d->position++;
    return WEFT_OK;
}

weft_status weft_decoder_step(weft_decoder *decoder, const int32_t *tokens, const int32_t *parents)
{
    return decoder ? step(decoder, tokens, parents, false) : WEFT_BAD_ARGUMENT;
}

/* Reads tokens[live][length] from `at` on, `count` of them. */
static bool read_chunk(weft_decoder *d, const int32_t *tokens, size_t length, size_t at,
                       int64_t count)
{
    const int64_t sentences = sentences_for(d, d->live);
    int32_t *chunk = calloc((size_t)(sentences * count), sizeof *chunk);
    if (!chunk) return decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    for (int64_t i = 0; i < d->live; i++)
        memcpy(chunk + i * count, tokens + (size_t)i * length + at, (size_t)count * sizeof *chunk);
    continue_themselves(d);
    decode_plan *p = decoder_plan(d, (decode_sizes){.source_len = d->source_len,
                                                    .key_len = keys_for(d, d->position + count),
                                                    .sentences = sentences,
                                                    .beams = 1,
                                                    .reads = count});
    bool good = p && feed_step(d, p, chunk, count) && decoder_run(d, p);
    free(chunk);
    if (good) d->position += count;
    return good;
}

/* Without steps, tokens only wait for the next whole pass. */
static void append_tokens(weft_decoder *d, const int32_t *tokens, size_t length)
{
    for (int64_t row = 0; row < d->rows; row++)
        memcpy(d->tokens + row * d->o.max_len + d->position,
               tokens + (size_t)(row / d->o.beams) * length, length * sizeof *tokens);
    d->position += (int64_t)length;
}

weft_status weft_decoder_read(weft_decoder *decoder, const int32_t *tokens, size_t length)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    if (!has_room(d, tokens, length)) return d->error.status;
    if (d->has_steps ? !d->narrow : d->last != NULL)
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "reads ahead only before the first step");
    if (!d->has_steps) append_tokens(d, tokens, length);
    for (size_t at = 0, i = 0; d->has_steps && at < length;) {
        while (chunks[i] > (int64_t)(length - at)) i++;
        if (!read_chunk(d, tokens, length, at, chunks[i])) return d->error.status;
        at += (size_t)chunks[i];
    }
    return WEFT_OK;
}

/* The rows of the last step that are in use. */
static bool result(const weft_decoder *d, bool log_probs, weft_tensor *tensor)
{
    if (!d || !d->last || !d->last->plan.session || !tensor ||
        !weft_session_tensor(d->last->plan.session,
                             log_probs ? d->last->log_probs : d->last->logits, tensor))
        return false;
    tensor->shape.dim[0] = d->live * (d->has_steps ? d->last->z.beams : d->o.beams);
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

static weft_status copy_error(const weft_decoder *d, weft_error *error)
{
    return weft_error_set(error, d->error.status ? d->error.status : WEFT_INTERNAL, d->error.where,
                          "%s", d->error.message);
}

static weft_status search_step(void *context, const int32_t *tokens, const int32_t *parents,
                               weft_tensor *log_probs, weft_error *error)
{
    weft_decoder *d = context;
    if (step(d, tokens, parents, true) == WEFT_OK && weft_decoder_log_probs(d, log_probs))
        return WEFT_OK;
    return copy_error(d, error);
}

static weft_status search_retain(void *context, const int32_t *sentences, size_t n,
                                 weft_error *error)
{
    return weft_decoder_retain(context, sentences, n) == WEFT_OK ? WEFT_OK
                                                                 : copy_error(context, error);
}

static weft_status search_read(void *context, const int32_t *tokens, size_t length,
                               weft_error *error)
{
    return weft_decoder_read(context, tokens, length) == WEFT_OK ? WEFT_OK
                                                                 : copy_error(context, error);
}

weft_search_model weft_decoder_search_model(weft_decoder *decoder)
{
    weft_search_model model = {.step = search_step, .read = search_read, .context = decoder};
    if (!decoder) return model;
    if (decoder->has_steps) model.retain = search_retain;
    model.sentences = decoder->o.sentences;
    model.beams = decoder->o.beams;
    model.vocab = decoder->traits.vocab;
    model.max_len = decoder->o.max_len;
    return model;
}
