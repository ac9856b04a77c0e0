/* The decoder: setup, sources, and retained sentences.
 *
 * The states hold the maximum numbers of positions and rows. A plan attends to the first 32, 48,
 * 64, ... positions and has rows for 1 to 8, 10, 12, 14, 16, 20, ... sentences. So a token step
 * computes few positions and rows beyond those in use. */
#include "decoder.h"

#include "zoo/text.h"

#include <weft/quantize.h>

#include <stdlib.h>
#include <string.h>

#define MIN_KEYS   32
#define MIN_SOURCE 8

/* ---- Lengths ---- */

int64_t weft__decoder_keys_for(const weft_decoder *d, int64_t length)
{
    return weft__text_bucket(MIN_KEYS, length, d->o.max_len);
}

static int64_t source_for(const weft_decoder *d, int64_t length)
{
    return d->has_source ? weft__text_bucket(MIN_SOURCE, length, d->o.max_source_len) : 0;
}

int64_t weft__decoder_sentences_for(const weft_decoder *d, int64_t n)
{
    n = weft__text_rows(n);
    return d->has_steps && n < d->o.sentences ? n : d->o.sentences;
}

int64_t weft_decoder_padded(const weft_decoder *decoder, int64_t length)
{
    if (!decoder || !decoder->has_source) return 0;
    return source_for(decoder, length);
}

/* ---- The decoder ---- */

/* Returns the options with defaults for zeros. */
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
                              "is not autoregressive: it does not predict the next token");
    if (o->sentences < 1 || o->beams < 1 || o->max_len < 1 || o->sentences > INT32_MAX / o->beams ||
        o->max_len > INT32_MAX / (o->sentences * o->beams) ||
        (has_source && (o->max_source_len < 1 || o->max_source_len > INT32_MAX)))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                              "sentences, beams and lengths must be 1 or more and fit into memory, "
                              "got %lld, %lld, %lld positions, %lld of a source",
                              (long long)o->sentences, (long long)o->beams, (long long)o->max_len,
                              (long long)o->max_source_len);
    if (o->cache != WEFT_F32 && o->cache != WEFT_BF16 && o->cache != WEFT_U8)
        return weft_error_set(error, WEFT_BAD_DTYPE, "decoder",
                              "keys and values as %s, expected f32, bf16 or u8",
                              weft_dtype_name(o->cache));
    if (o->max_len > limit || (has_source && o->max_source_len > limit))
        return weft_error_set(
            error, WEFT_BAD_ARGUMENT, model->name,
            "has %lld learned positions, fewer than %lld or, for the source, %lld",
            (long long)limit, (long long)o->max_len,
            (long long)(has_source ? o->max_source_len : 0));
    return WEFT_OK;
}

static bool make(weft_decoder *d, const weft_params *params)
{
    int64_t rows = d->rows, sources = d->has_steps ? d->o.sentences : rows;
    d->store = weft__plans_store(&d->plans, &d->error);
    d->parents = calloc((size_t)rows, sizeof *d->parents);
    d->step_tokens = calloc((size_t)rows, sizeof *d->step_tokens);
    if (d->has_source)
        d->source = calloc((size_t)(sources * d->o.max_source_len), sizeof *d->source);
    if (!d->has_steps) {
        d->tokens = calloc((size_t)(2 * rows * d->o.max_len), sizeof *d->tokens);
        d->fed = calloc((size_t)(rows * d->o.max_len), sizeof *d->fed);
    }
    if (!d->store || !d->parents || !d->step_tokens || (d->has_source && !d->source) ||
        (!d->has_steps && (!d->tokens || !d->fed)))
        return weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    if (weft_params_share(d->store, params, &d->error) != WEFT_OK) return false;
    d->quantized = weft_params_are_quantized(d->store);
    if (!weft__decoder_check_params(d)) return false;
    if (d->has_steps && d->config.model->prepare && !weft__decoder_prepare(d)) return false;
    decode_sizes first = {.source_len = source_for(d, 1),
                          .key_len = weft__decoder_keys_for(d, 1),
                          .sentences = d->o.sentences,
                          .beams = d->o.beams};
    return weft__decoder_plan(d, first) != NULL;
}

weft_decoder *weft_decoder_new(const weft_model_config *config, const weft_params *params,
                               const weft_decoder_options *options, weft_error *error)
{
    weft_error_clear(error);
    if (!config || !config->model || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                       "the model's configuration or the parameters are NULL");
        return NULL;
    }
    const weft_model *model = config->model;
    const weft_model_traits traits = weft_model_traits_of(config);
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
    d->rows = o.sentences * o.beams;
    d->live = o.sentences;
    d->has_source = traits.source_vocab > 0;
    d->has_steps = !o.recompute && model->step && (!d->has_source || model->encode);
    if (weft__plans_init(&d->plans, &o.session, "decoder", &d->error) == WEFT_OK && make(d, params))
        return d;
    weft_error_copy(error, &d->error);
    weft_decoder_free(d);
    return NULL;
}

void weft_decoder_free(weft_decoder *decoder)
{
    if (!decoder) return;
    weft__plans_free(&decoder->plans);
    weft_params_free(decoder->store);
    free(decoder->states);
    free(decoder->source);
    free(decoder->parents);
    free(decoder->step_tokens);
    free(decoder->tokens);
    free(decoder->fed);
    free(decoder);
}

weft_decoder_info weft_decoder_info_of(const weft_decoder *decoder)
{
    weft_decoder_info info = {.rows = 0};
    if (!decoder) return info;
    info.rows = decoder->live * decoder->o.beams;
    info.vocab = decoder->traits.vocab;
    info.has_source = decoder->has_source;
    info.has_steps = decoder->has_steps;
    info.position = decoder->position;
    info.plans = decoder->plans.count;
    info.arena_bytes = weft__plans_arena_bytes(&decoder->plans);
    if (decoder->last) info.step = weft_plan_stats_of(decoder->last->plan.plan);
    info.state_bytes = info.step.state_bytes;
    return info;
}

bool weft__decoder_begin(const weft_decoder *d, weft_error *error)
{
    weft_error_clear(error);
    if (!d) weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder", "the decoder is NULL");
    return d != NULL;
}

/* ---- Running ---- */

/* Copies the sources into d->source [sentences][source_len], padded; without token steps, each row
 * of a sentence has a copy. */
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

static weft_status start(weft_decoder *d, const int32_t *const *sources, const size_t *lengths,
                         size_t n)
{
    d->error = (weft_error){.status = WEFT_OK};
    d->position = 0;
    d->live = d->o.sentences;
    d->narrow = d->has_steps;
    d->last = NULL;
    if (!d->has_source) return WEFT_OK;
    size_t longest = 1;
    if (n > (size_t)d->o.sentences || (n && (!sources || !lengths)))
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "the sources are NULL, or %zu sources for %lld sentences", n,
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
    int64_t sentences = weft__decoder_sentences_for(d, n ? (int64_t)n : 1);
    decode_plan *p = weft__decoder_plan(
        d, (decode_sizes){.source_len = d->source_len, .sentences = sentences, .beams = 1});
    if (p && weft__decoder_feed(d, p, p->source, d->source, sentences * d->source_len))
        weft__decoder_run(d, p);
    return d->error.status;
}

weft_status weft_decoder_start(weft_decoder *decoder, const int32_t *const *sources,
                               const size_t *lengths, size_t n, weft_error *error)
{
    if (!weft__decoder_begin(decoder, error)) return WEFT_BAD_ARGUMENT;
    start(decoder, sources, lengths, n);
    return weft_error_copy(error, &decoder->error);
}

/* ---- Fewer sentences ---- */

/* Copies the used part of a state from one sentence to another. */
static void move_state(weft_decoder *d, const decode_state *state, int64_t from, int64_t to)
{
    weft_tensor t;
    if (!weft_params_find(d->store, state->name, &t)) return;
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

weft_status weft_decoder_retain(weft_decoder *decoder, const int32_t *sentences, size_t n,
                                weft_error *error)
{
    weft_decoder *d = decoder;
    if (!weft__decoder_begin(d, error)) return WEFT_BAD_ARGUMENT;
    if (d->error.status != WEFT_OK) return weft_error_copy(error, &d->error);
    bool good = sentences && n >= 1 && n <= (size_t)d->live;
    for (size_t i = 0; good && i < n; i++)
        good = sentences[i] >= (int32_t)i && sentences[i] < d->live;
    if (!good || !d->has_steps) {
        weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                       "needs 1 to %lld sentences, sentences[i] >= i, and a model with steps",
                       (long long)d->live);
        return weft_error_copy(error, &d->error);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; sentences[i] != (int32_t)i && k < d->n_states; k++)
            move_state(d, &d->states[k], sentences[i], (int64_t)i);
    d->live = (int64_t)n;
    return WEFT_OK;
}
