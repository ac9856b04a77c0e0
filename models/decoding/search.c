/* The common part of the searches: setup, token steps of the model, rules on tokens, results.
 *
 * A token step costs O(rows vocab) here. Beam search passes over the continuations of a sentence
 * and retains the 2 * beams best in a sorted list. (At most `beams` of them can be ends, so `beams`
 * others remain. With more end tokens the list is longer.) It skips blocks of the vocabulary whose maximum cannot enter the list. Sampling
 * sorts its candidates. Sums are in double precision and in order, so results depend on the log
 * probabilities only. */
#include "search.h"
#include "base/vmath_pow.h"

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool weft__search_refuse(weft_error *error, const char *message)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, "search", "%s", message);
    return false;
}

weft_sampling_options weft__search_sampling(const weft_search_options *o)
{
    return (weft_sampling_options){.temperature = o->temperature,
                                   .top_k = o->top_k,
                                   .top_p = o->top_p,
                                   .min_p = o->min_p,
                                   .seed = o->seed,
                                   .repetition_penalty = o->repetition_penalty,
                                   .no_repeat_ngram = o->no_repeat_ngram,
                                   .banned = o->banned,
                                   .n_banned = o->n_banned,
                                   .ends = o->ends,
                                   .n_ends = o->n_ends,
                                   .min_len = o->min_len,
                                   .allows = o->allows};
}

/* Sets s->o to the options with defaults for zeros; `eos` is -1 without has_eos. */
static bool fill_options(search *s, const weft_search_options *options, weft_error *error)
{
    weft_search_options *o = &s->filled;
    if (options) *o = *options;
    if (!o->has_eos && o->eos > 0) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "search", "eos is %d, but has_eos is false",
                       o->eos);
        return false;
    }
    if (!o->has_eos) o->eos = -1;
    if (!o->nbest) o->nbest = 1;
    const weft_sampling_options sampling = weft__search_sampling(o);
    s->sampling = weft__sampling_filled(&sampling);
    s->sampling.greedy = true;
    s->o = o;
    return true;
}

static bool check(const search *s, const weft_search_model *model, const weft_search_input *inputs,
                  size_t n, weft_error *error)
{
    const weft_search_options *o = s->o;
    if (!model || !model->step || (n && !inputs))
        return weft__search_refuse(error, "the model or the inputs are NULL");
    if (model->sentences < 1 || model->beams < 1 || model->vocab < 1 || model->max_len < 1 ||
        n > (size_t)model->sentences)
        return weft__search_refuse(error,
                                   "needs at least one sentence, beam, id and position, and no "
                                   "more inputs than sentences");
    if ((o->has_eos && o->eos < 0) || o->eos >= model->vocab)
        return weft__search_refuse(error, "eos is outside the vocabulary");
    if (o->nbest < 0 || o->nbest > model->beams)
        return weft__search_refuse(error, "nbest is negative or exceeds the beams");
    if (o->allows && !o->allows_contexts)
        return weft__search_refuse(error, "the contexts of `allows` are NULL");
    if (!isfinite(o->alpha)) return weft__search_refuse(error, "alpha is not finite");
    if (!weft__sampling_check(&s->sampling, model->vocab, "search", error)) return false;
    for (size_t i = 0; i < n; i++) {
        const weft_search_input *in = &inputs[i];
        if (!in->prefix || !in->prefix_len || in->max_len < 1)
            return weft__search_refuse(
                error, "an input needs a prefix of at least one token, and max_len of at least 1");
        for (size_t k = 0; k < in->prefix_len; k++)
            if (in->prefix[k] < 0 || in->prefix[k] >= model->vocab)
                return weft__search_refuse(error, "a token of a prefix is outside the vocabulary");
        if (in->prefix_len > (size_t)model->max_len ||
            in->max_len - 1 > model->max_len - (int64_t)in->prefix_len) {
            weft_error_set(error, WEFT_BAD_ARGUMENT, "search",
                           "input %zu: a prefix of %zu and %lld tokens to find, the model has %lld "
                           "positions",
                           i, in->prefix_len, (long long)in->max_len, (long long)model->max_len);
            return false;
        }
    }
    return true;
}

void *weft__search_zeros(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

static void search_end(search *s)
{
    free(s->sequences);
    free(s->token_logs);
    free(s->spare);
    free(s->parents);
    free(s->fed);
    free(s->slot);
    free(s->in_slot);
    free(s->retained);
    free(s->done);
    free(s->ending);
    free(s->ends);
    weft_sampler_free(s->sampler);
}

/* Removes finished sentences from the model; sentences of the last slots move to their slots. */
static bool retain_open(search *s)
{
    int64_t n = s->n_slots;
    if (!s->model->retain) return true;
    for (int64_t i = 0; i < n; i++) s->retained[i] = (int32_t)i;
    for (int64_t i = 0; i < n;) {
        if (s->in_slot[i] >= 0 && !s->done[s->in_slot[i]]) {
            i++;
            continue;
        }
        n--;
        s->retained[i] = s->retained[n];
        s->in_slot[i] = s->in_slot[n];
    }
    if (n == s->n_slots || n == 0) return true;
    s->n_slots = n;
    for (int64_t i = 0; i < s->n; i++) s->slot[i] = -1;
    for (int64_t i = 0; i < n; i++) s->slot[s->in_slot[i]] = (int32_t)i;
    return s->model->retain(s->model->context, s->retained, (size_t)n, s->error) == WEFT_OK;
}

/* Reads, in one call, the leading tokens that every prefix has before its last. */
static bool read_prefixes(search *s)
{
    size_t length = s->n ? s->inputs[0].prefix_len - 1 : 0;
    for (int64_t i = 1; i < s->n; i++)
        if (s->inputs[i].prefix_len <= length) length = s->inputs[i].prefix_len - 1;
    if (!length || !s->model->read) return true;
    if (!retain_open(s)) return false;
    int32_t *tokens = weft__search_zeros((size_t)s->n_slots * length, sizeof *tokens);
    if (!tokens) {
        weft_error_set(s->error, WEFT_NO_MEMORY, "search", "no memory");
        return false;
    }
    for (int64_t i = 0; i < s->n_slots; i++)
        if (s->in_slot[i] >= 0)
            memcpy(tokens + (size_t)i * length, s->inputs[s->in_slot[i]].prefix,
                   length * sizeof *tokens);
    bool good = s->model->read(s->model->context, tokens, length, s->error) == WEFT_OK;
    free(tokens);
    s->position = (int64_t)length;
    return good;
}

/* Sets rows, vocab and width; fails if rows or ids do not fit into i32, or the number of tokens not
 * into i64. */
static bool set_sizes(search *s)
{
    const weft_search_model *m = s->model;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t prefix = (int64_t)s->inputs[i].prefix_len, max_len = s->inputs[i].max_len;
        const int64_t width = max_len > INT64_MAX - prefix ? INT64_MAX : prefix + max_len;
        if (width > s->width) s->width = width;
    }
    s->rows = weft_shape_numel(WEFT_SHAPE(m->sentences, m->beams));
    s->vocab = m->vocab;
    if (s->rows >= 0 && s->rows <= INT32_MAX && s->vocab <= INT32_MAX &&
        weft_shape_numel(WEFT_SHAPE(s->rows, s->width)) >= 0)
        return true;
    weft_error_set(s->error, WEFT_TOO_LARGE, "search",
                   "%lld sentences of %lld beams of up to %lld tokens, of a vocabulary of %lld: "
                   "rows and ids must be below 2^31, and all tokens fit into memory",
                   (long long)m->sentences, (long long)m->beams, (long long)s->width,
                   (long long)m->vocab);
    return false;
}

/* Sets s->ending, s->ends and those of s->sampling: `eos` and the other ends. */
static void mark_ends(search *s)
{
    const weft_search_options *o = s->o;
    size_t n = 0;
    for (size_t i = 0; i < o->n_ends; i++) s->ends[n++] = o->ends[i];
    if (o->eos >= 0) s->ends[n++] = o->eos;
    for (size_t i = 0; i < n; i++) s->ending[s->ends[i]] = 1;
    s->sampling.ends = s->ends;
    s->sampling.n_ends = n;
}

bool weft__search_begin(search *s, const weft_search_model *model, const weft_search_input *inputs,
                        size_t n, const weft_search_options *options, weft_error *error)
{
    *s = (search){.model = model, .inputs = inputs, .error = error};
    if (!fill_options(s, options, error)) return false;
    const weft_search_options *o = s->o;
    if (!check(s, model, inputs, n, error)) return false;
    s->n = (int64_t)n;
    if (!set_sizes(s)) return false;
    size_t rows = (size_t)s->rows, vocab = (size_t)s->vocab, cells = rows * (size_t)s->width;
    size_t each = (size_t)o->nbest;
    s->sequences = weft__search_zeros(cells, sizeof *s->sequences);
    s->token_logs = weft__search_zeros(cells, sizeof *s->token_logs);
    s->spare = weft__search_zeros(cells, sizeof *s->spare);
    s->parents = weft__search_zeros(rows, sizeof *s->parents);
    s->fed = weft__search_zeros(2 * rows, sizeof *s->fed);
    s->slot = weft__search_zeros(n, sizeof *s->slot);
    s->in_slot = weft__search_zeros((size_t)model->sentences, sizeof *s->in_slot);
    s->retained = weft__search_zeros((size_t)model->sentences, sizeof *s->retained);
    s->done = weft__search_zeros(n, sizeof *s->done);
    s->ending = weft__search_zeros(vocab, 1);
    s->ends = weft__search_zeros(o->n_ends + 1, sizeof *s->ends);
    s->sampler = weft_sampler_new(s->vocab, NULL);
    s->result = weft__search_zeros(1, sizeof *s->result);
    if (s->result) {
        s->result->first = weft__search_zeros(n + 1, sizeof *s->result->first);
        s->result->hypotheses = weft__search_zeros(n * each, sizeof *s->result->hypotheses);
    }
    if (!s->sequences || !s->token_logs || !s->spare || !s->parents || !s->fed || !s->slot ||
        !s->in_slot || !s->retained || !s->done || !s->ending || !s->ends || !s->sampler ||
        !s->result || !s->result->first || !s->result->hypotheses) {
        weft_error_set(error, WEFT_NO_MEMORY, "search", "no memory");
        return false;
    }
    mark_ends(s);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t b = 0; b < model->beams; b++)
            memcpy(s->sequences + (i * model->beams + b) * s->width, inputs[i].prefix,
                   inputs[i].prefix_len * sizeof *inputs[i].prefix);
    for (int64_t row = 0; row < s->rows; row++) s->parents[row] = (int32_t)row;
    s->n_slots = model->sentences;
    for (int64_t i = 0; i < s->n_slots; i++) s->in_slot[i] = i < s->n ? (int32_t)i : -1;
    for (int64_t i = 0; i < s->n; i++) s->slot[i] = (int32_t)i;
    return read_prefixes(s);
}

bool weft__search_step(search *s)
{
    if (!retain_open(s)) return false;
    const int64_t beams = s->model->beams, rows = s->n_slots * beams;
    int32_t *tokens = s->fed, *parents = s->fed + s->rows;
    for (int64_t at = 0; at < rows; at++) {
        int64_t sentence = s->in_slot[at / beams], row = sentence * beams + at % beams;
        bool idle = sentence < 0 || s->done[sentence];
        tokens[at] = idle ? 0 : s->sequences[row * s->width + s->position];
        parents[at] = (int32_t)(idle ? at : at / beams * beams + s->parents[row] % beams);
    }
    if (s->model->step(s->model->context, tokens, parents, &s->logs, s->error) != WEFT_OK)
        return false;
    const weft_tensor *t = &s->logs;
    if (!weft_dtype_is_float(t->dtype) || t->shape.rank != 2 ||
        (t->shape.dim[0] != rows && t->shape.dim[0] != s->n_slots) || t->shape.dim[1] != s->vocab ||
        t->stride[1] != 1)
        return weft__search_refuse(s->error, "a step must return log probabilities [rows, vocab]");
    for (int64_t row = 0; row < s->rows; row++) s->parents[row] = (int32_t)row;
    s->position++;
    return true;
}

int64_t weft__search_found(const search *s, int64_t sentence)
{
    return s->position - (int64_t)s->inputs[sentence].prefix_len;
}

weft_sampling_row weft__search_row(const search *s, int64_t row)
{
    const int64_t beams = s->model->beams, sentence = row / beams, slot = s->slot[sentence];
    const bool narrow = s->logs.shape.dim[0] == s->n_slots;
    return (weft_sampling_row){.log_probs = &s->logs,
                               .row = narrow ? slot : slot * beams + row % beams,
                               .tokens = s->sequences + row * s->width,
                               .length = (size_t)s->position,
                               .found = (size_t)weft__search_found(s, sentence),
                               .key = s->inputs[sentence].key,
                               .sample = row % beams};
}

bool weft__search_scan_row(search *s, const weft_sampling_row *row, int64_t sentence)
{
    int64_t bad;
    if (weft__sampler_scan(s->sampler, row, &bad)) return true;
    weft_error_set(s->error, WEFT_BAD_ARGUMENT, "search",
                   "sentence %lld, token %lld: the log probability of id %lld is %g; the model is "
                   "damaged or diverged in training",
                   (long long)sentence, (long long)weft__search_found(s, sentence), (long long)bad,
                   sampling_log_prob(row, bad));
    return false;
}

double weft_length_penalty_value(weft_length_penalty penalty, double alpha, size_t length)
{
    if (alpha == 0 || length == 0) return 1;
    double x = penalty == WEFT_PENALTY_WU ? (5 + (double)length) / 6 : (double)length;
    return vm_pow_f64(x, alpha);
}

bool weft__search_add(search *s, int64_t sentence, const weft_hypothesis *h)
{
    weft_search_result *r = s->result;
    const size_t n = h->length + h->ended;
    /* One block: the log probabilities, then the tokens. */
    double *block =
        weft__search_zeros(1, n * sizeof *block + h->length * sizeof(int32_t) + sizeof *block);
    if (!block) {
        weft_error_set(s->error, WEFT_NO_MEMORY, "search", "no memory");
        return false;
    }
    int32_t *tokens = (int32_t *)(void *)(block + n);
    if (n) memcpy(block, h->log_probs, n * sizeof *block);
    if (h->length) memcpy(tokens, h->tokens, h->length * sizeof *tokens);
    weft_hypothesis *to = &r->hypotheses[r->first[sentence + 1]++];
    *to = *h;
    to->tokens = tokens;
    to->log_probs = block;
    return true;
}

void weft_search_result_free(weft_search_result *result)
{
    if (!result) return;
    size_t n = result->first ? result->first[result->sentences] : 0;
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)result->hypotheses[i].log_probs);
    free(result->first);
    free(result->hypotheses);
    free(result);
}

weft_search_result *weft__search_finish(search *s, bool good)
{
    weft_search_result *result = s->result;
    search_end(s);
    if (good) return result;
    weft_search_result_free(result);
    return NULL;
}
