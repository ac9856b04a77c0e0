/* Searches over a model that gives log probabilities a token at a time.
 *
 * A step costs O(rows vocab) here: beam search keeps the 2 beams best continuations of a sentence
 * in a sorted list while it passes over them (at most `beams` of these can be ends, so that `beams`
 * others remain), and looks into blocks of the vocabulary only whose maximum could enter the list;
 * sampling sorts what it may draw from. Sums are done in double precision and in order, so that
 * results depend on the log probabilities alone.
 *
 * A sentence that is done leaves the model, and the last one that is there takes its place; the
 * search's own rows stay where they are. */
#include <weft/decode.h>

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- What all searches share ---- */

/* Log probabilities that are looked at together. */
#define BLOCK 64

typedef struct search {
    const weft_search_model *model;
    const weft_search_input *inputs;
    const weft_search_options *o; /* &filled */
    weft_search_options filled;
    weft_error *error;
    int64_t rows, vocab, n; /* n: sentences that are there */
    int64_t width;          /* most tokens of a sequence, prefix included */
    int64_t position;       /* of the tokens that the next step reads */
    int32_t *sequences;     /* [rows][width], prefix included */
    int32_t *spare;         /* as much, to reorder into */
    int32_t *parents;       /* [rows], of the next step */
    int32_t *fed;           /* [2][rows]: tokens and parents as the model has its rows */
    int32_t *place;         /* [n]: of a sentence in the model; -1: it has left */
    int32_t *there;         /* [n_there]: the sentence at a place of the model; -1: none */
    int32_t *left;          /* [sentences], room to tell what stays */
    int64_t n_there;
    bool *done;        /* [n] */
    uint8_t *banned;   /* [vocab], always */
    uint8_t *barred;   /* [vocab], for the row at hand */
    uint8_t *held;     /* [vocab], tokens of the row at hand, if there is a repetition penalty */
    double *log_probs; /* [vocab], penalised, of the row at hand, -inf where barred */
    double *top;       /* [blocks of vocab], their maxima */
    weft_tensor logs;  /* of the last step */
    weft_search_result *result;
} search;

static bool refuse(weft_error *error, const char *message)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, "search", "%s", message);
    return false;
}

/* The options with what zeros stand for; `eos` is -1 if there is none. */
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
    if (o->repetition_penalty == 0) o->repetition_penalty = 1;
    if (o->temperature == 0) o->temperature = 1;
    if (o->top_p == 0) o->top_p = 1;
    s->o = o;
    return true;
}

static bool check(const weft_search_model *model, const weft_search_input *inputs, size_t n,
                  const weft_search_options *o, weft_error *error)
{
    if (!model || !model->step || (n && !inputs))
        return refuse(error, "the model or the inputs are NULL");
    if (model->sentences < 1 || model->beams < 1 || model->vocab < 1 || model->most_len < 1 ||
        n > (size_t)model->sentences)
        return refuse(error, "more inputs than the model takes sentences, or it takes none");
    if ((o->has_eos && o->eos < 0) || o->eos >= model->vocab || (o->n_banned && !o->banned))
        return refuse(error, "the end's id is not below the vocabulary");
    if (o->min_len < 0 || o->no_repeat_ngram < 0 || o->nbest < 0 || o->nbest > model->beams)
        return refuse(error, "a number is below 0, or nbest is more than the beams");
    if (!isfinite(o->alpha)) return refuse(error, "alpha is not finite");
    if (!(o->repetition_penalty > 0) || !isfinite(o->repetition_penalty)) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "search",
                       "the repetition penalty must be finite and above 0, got %g",
                       o->repetition_penalty);
        return false;
    }
    for (size_t i = 0; i < o->n_banned; i++)
        if (o->banned[i] < 0 || o->banned[i] >= model->vocab)
            return refuse(error, "a banned id is not below the vocabulary");
    for (size_t i = 0; i < n; i++) {
        const weft_search_input *in = &inputs[i];
        if (!in->prefix || !in->prefix_len || in->max_len < 1)
            return refuse(error, "an input needs a token to begin with and a length of 1 or more");
        for (size_t k = 0; k < in->prefix_len; k++)
            if (in->prefix[k] < 0 || in->prefix[k] >= model->vocab)
                return refuse(error, "a token to begin with is not below the vocabulary");
        if (in->prefix_len > (size_t)model->most_len ||
            in->max_len - 1 > model->most_len - (int64_t)in->prefix_len) {
            weft_error_set(error, WEFT_BAD_ARGUMENT, "search",
                           "input %zu: a prefix of %zu and %lld tokens to find, the model has %lld "
                           "positions",
                           i, in->prefix_len, (long long)in->max_len, (long long)model->most_len);
            return false;
        }
    }
    return true;
}

static void *zeros(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

static void end_search(search *s)
{
    free(s->sequences);
    free(s->spare);
    free(s->parents);
    free(s->fed);
    free(s->place);
    free(s->there);
    free(s->left);
    free(s->done);
    free(s->banned);
    free(s->barred);
    free(s->held);
    free(s->log_probs);
    free(s->top);
}

/* Lets the sentences that are done leave the model; from behind, others take their places. */
static bool drop_done(search *s)
{
    int64_t n = s->n_there;
    if (!s->model->keep) return true;
    for (int64_t i = 0; i < n; i++) s->left[i] = (int32_t)i;
    for (int64_t i = 0; i < n;) {
        if (s->there[i] >= 0 && !s->done[s->there[i]]) {
            i++;
            continue;
        }
        n--;
        s->left[i] = s->left[n];
        s->there[i] = s->there[n];
    }
    if (n == s->n_there || n == 0) return true;
    s->n_there = n;
    for (int64_t i = 0; i < s->n; i++) s->place[i] = -1;
    for (int64_t i = 0; i < n; i++) s->place[s->there[i]] = (int32_t)i;
    return s->model->keep(s->model->context, s->left, (size_t)n, s->error) == WEFT_OK;
}

/* Reads what all prefixes have before their last token at once. */
static bool read_ahead(search *s)
{
    size_t length = s->n ? s->inputs[0].prefix_len - 1 : 0;
    for (int64_t i = 1; i < s->n; i++)
        if (s->inputs[i].prefix_len <= length) length = s->inputs[i].prefix_len - 1;
    if (!length || !s->model->read) return true;
    if (!drop_done(s)) return false;
    int32_t *tokens = zeros((size_t)s->n_there * length, sizeof *tokens);
    if (!tokens) {
        weft_error_set(s->error, WEFT_NO_MEMORY, "search", "no memory");
        return false;
    }
    for (int64_t i = 0; i < s->n_there; i++)
        if (s->there[i] >= 0)
            memcpy(tokens + (size_t)i * length, s->inputs[s->there[i]].prefix,
                   length * sizeof *tokens);
    bool good = s->model->read(s->model->context, tokens, length, s->error) == WEFT_OK;
    free(tokens);
    s->position = (int64_t)length;
    return good;
}

/* Sets rows, vocab and width. Rows and tokens are i32, and so many tokens must have a size. */
static bool set_sizes(search *s)
{
    const weft_search_model *m = s->model;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t prefix = (int64_t)s->inputs[i].prefix_len, most = s->inputs[i].max_len;
        const int64_t width = most > INT64_MAX - prefix ? INT64_MAX : prefix + most;
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

static bool begin_search(search *s, const weft_search_model *model, const weft_search_input *inputs,
                         size_t n, const weft_search_options *options, weft_error *error)
{
    *s = (search){.model = model, .inputs = inputs, .error = error};
    if (!fill_options(s, options, error)) return false;
    const weft_search_options *o = s->o;
    if (!check(model, inputs, n, o, error)) return false;
    s->n = (int64_t)n;
    if (!set_sizes(s)) return false;
    size_t rows = (size_t)s->rows, vocab = (size_t)s->vocab, cells = rows * (size_t)s->width;
    size_t each = (size_t)o->nbest;
    s->sequences = zeros(cells, sizeof *s->sequences);
    s->spare = zeros(cells, sizeof *s->spare);
    s->parents = zeros(rows, sizeof *s->parents);
    s->fed = zeros(2 * rows, sizeof *s->fed);
    s->place = zeros(n, sizeof *s->place);
    s->there = zeros((size_t)model->sentences, sizeof *s->there);
    s->left = zeros((size_t)model->sentences, sizeof *s->left);
    s->done = zeros(n, sizeof *s->done);
    s->banned = zeros(vocab, 1);
    s->barred = zeros(vocab, 1);
    s->held = zeros(vocab, 1);
    s->log_probs = zeros(vocab, sizeof *s->log_probs);
    s->top = zeros(vocab / BLOCK + 1, sizeof *s->top);
    s->result = zeros(1, sizeof *s->result);
    if (s->result) {
        s->result->first = zeros(n + 1, sizeof *s->result->first);
        s->result->hypotheses = zeros(n * each, sizeof *s->result->hypotheses);
    }
    if (!s->sequences || !s->spare || !s->parents || !s->fed || !s->place || !s->there ||
        !s->left || !s->done || !s->banned || !s->barred || !s->held || !s->log_probs || !s->top ||
        !s->result || !s->result->first || !s->result->hypotheses) {
        weft_error_set(error, WEFT_NO_MEMORY, "search", "no memory");
        return false;
    }
    for (size_t i = 0; i < o->n_banned; i++) s->banned[o->banned[i]] = 1;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t b = 0; b < model->beams; b++)
            memcpy(s->sequences + (i * model->beams + b) * s->width, inputs[i].prefix,
                   inputs[i].prefix_len * sizeof *inputs[i].prefix);
    for (int64_t row = 0; row < s->rows; row++) s->parents[row] = (int32_t)row;
    s->n_there = model->sentences;
    for (int64_t i = 0; i < s->n_there; i++) s->there[i] = i < s->n ? (int32_t)i : -1;
    for (int64_t i = 0; i < s->n; i++) s->place[i] = (int32_t)i;
    return read_ahead(s);
}

/* Reads the tokens at the position of all rows; rows of done sentences that are still there read
 * what is there. */
static bool take_step(search *s)
{
    if (!drop_done(s)) return false;
    const int64_t beams = s->model->beams, rows = s->n_there * beams;
    int32_t *tokens = s->fed, *parents = s->fed + s->rows;
    for (int64_t at = 0; at < rows; at++) {
        int64_t sentence = s->there[at / beams], row = sentence * beams + at % beams;
        bool idle = sentence < 0 || s->done[sentence];
        tokens[at] = idle ? 0 : s->sequences[row * s->width + s->position];
        parents[at] = (int32_t)(idle ? at : at / beams * beams + s->parents[row] % beams);
    }
    if (s->model->step(s->model->context, tokens, parents, &s->logs, s->error) != WEFT_OK)
        return false;
    const weft_tensor *t = &s->logs;
    if (!weft_dtype_is_float(t->dtype) || t->shape.rank != 2 ||
        (t->shape.dim[0] != rows && t->shape.dim[0] != s->n_there) || t->shape.dim[1] != s->vocab ||
        t->stride[1] != 1)
        return refuse(s->error, "a step must give log probabilities [rows, vocab]");
    for (int64_t row = 0; row < s->rows; row++) s->parents[row] = (int32_t)row;
    s->position++;
    return true;
}

/* Where the log probabilities of a row begin, in elements. */
static int64_t row_of_logs(const search *s, int64_t row)
{
    const int64_t beams = s->model->beams, place = s->place[row / beams];
    bool narrow = s->logs.shape.dim[0] == s->n_there;
    return (narrow ? place : place * beams + row % beams) * s->logs.stride[0];
}

/* Tokens that a sentence has found before the one that the last step tells of. Below 0: the prefix
 * goes on. */
static int64_t found(const search *s, int64_t sentence)
{
    return s->position - (int64_t)s->inputs[sentence].prefix_len;
}

/* Bars what would repeat the last n - 1 tokens' continuation. */
static void bar_repeats(search *s, int64_t row)
{
    int64_t n = s->o->no_repeat_ngram, length = s->position;
    const int32_t *x = s->sequences + row * s->width;
    for (int64_t i = 0; n > 0 && i + n <= length; i++)
        if (!memcmp(x + i, x + length - n + 1, (size_t)(n - 1) * sizeof *x))
            s->barred[x[i + n - 1]] = 1;
}

/* Marks the tokens that the row holds. */
static void note_held(search *s, int64_t row)
{
    const int32_t *x = s->sequences + row * s->width;
    memset(s->held, 0, (size_t)s->vocab);
    for (int64_t i = 0; i < s->position; i++) s->held[x[i]] = 1;
}

static void bar(search *s, int64_t row)
{
    memcpy(s->barred, s->banned, (size_t)s->vocab);
    bar_repeats(s, row);
    if (s->o->repetition_penalty != 1) note_held(s, row);
    if (s->o->eos >= 0 && found(s, row / s->model->beams) < s->o->min_len) s->barred[s->o->eos] = 1;
}

/* The maximum of x[n]; false if one is NaN or above what the log of a probability can be. LANES
 * side by side, for the compiler to make vectors of. */
#define LANES 8
#define DEFINE_TOP(T, integer)                                                                     \
    static bool top_of_##T(const T *x, int64_t n, double *top)                                     \
    {                                                                                              \
        const T most = (T)1e-3;                                                                    \
        T tops[LANES];                                                                             \
        integer bad[LANES] = {0};                                                                  \
        int64_t i = 0;                                                                             \
        for (int k = 0; k < LANES; k++) tops[k] = (T)-INFINITY;                                    \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int k = 0; k < LANES; k++) {                                                      \
                tops[k] = x[i + k] > tops[k] ? x[i + k] : tops[k];                                 \
                bad[k] |= x[i + k] <= most ? 0 : -1;                                               \
            }                                                                                      \
        for (; i < n; i++) {                                                                       \
            tops[0] = x[i] > tops[0] ? x[i] : tops[0];                                             \
            bad[0] |= x[i] <= most ? 0 : -1;                                                       \
        }                                                                                          \
        for (int k = 1; k < LANES; k++) {                                                          \
            tops[0] = tops[k] > tops[0] ? tops[k] : tops[0];                                       \
            bad[0] |= bad[k];                                                                      \
        }                                                                                          \
        *top = (double)tops[0];                                                                    \
        return !bad[0];                                                                            \
    }
DEFINE_TOP(float, int32_t)
DEFINE_TOP(double, int64_t)

static double log_prob_at(const search *s, int64_t row, int64_t id)
{
    const int64_t at = row_of_logs(s, row) + id;
    return s->logs.dtype == WEFT_F64 ? ((const double *)s->logs.data)[at]
                                     : (double)((const float *)s->logs.data)[at];
}

/* Finds the maximum of each block of the row's log probabilities, into s->top. False if one is NaN
 * or above what a probability can be. */
static bool look_at_row(search *s, int64_t row)
{
    const int64_t sentence = row / s->model->beams, first = row_of_logs(s, row);
    const float *narrow = (const float *)s->logs.data + first;
    const double *wide = (const double *)s->logs.data + first;
    bool good = true;
    for (int64_t from = 0; from < s->vocab; from += BLOCK) {
        const int64_t n = s->vocab - from < BLOCK ? s->vocab - from : BLOCK;
        double *top = &s->top[from / BLOCK];
        good &= s->logs.dtype == WEFT_F64 ? top_of_double(wide + from, n, top)
                                          : top_of_float(narrow + from, n, top);
    }
    if (good) return true;
    int64_t bad = 0;
    while (bad + 1 < s->vocab && log_prob_at(s, row, bad) <= 1e-3) bad++;
    weft_error_set(s->error, WEFT_BAD_ARGUMENT, "search",
                   "sentence %lld, token %lld: the log probability of id %lld is %g; the model is "
                   "damaged or diverged in training",
                   (long long)sentence, (long long)found(s, sentence), (long long)bad,
                   log_prob_at(s, row, bad));
    return false;
}

/* A log probability of the row at hand after the repetition penalty. */
static double penalised(const search *s, double log_prob, int64_t id)
{
    return s->held[id] ? log_prob * s->o->repetition_penalty : log_prob;
}

/* The row's log probabilities, penalised, -inf where barred, into s->log_probs. */
static bool read_row(search *s, int64_t row)
{
    if (!look_at_row(s, row)) return false;
    bar(s, row);
    for (int64_t i = 0; i < s->vocab; i++)
        s->log_probs[i] = s->barred[i] ? -INFINITY : penalised(s, log_prob_at(s, row, i), i);
    return true;
}

double weft_length_penalty_value(weft_length_penalty penalty, double alpha, size_t length)
{
    if (alpha == 0 || length == 0) return 1;
    double x = penalty == WEFT_PENALTY_WU ? (5 + (double)length) / 6 : (double)length;
    return pow(x, alpha);
}

/* Gives the sentence its next hypothesis: a copy of the tokens. Sentences come in order. */
static bool give(search *s, int64_t sentence, const int32_t *tokens, int64_t length,
                 double log_prob, double score, bool ended)
{
    weft_search_result *r = s->result;
    int32_t *copy = zeros((size_t)length, sizeof *copy);
    if (!copy) {
        weft_error_set(s->error, WEFT_NO_MEMORY, "search", "no memory");
        return false;
    }
    if (length) memcpy(copy, tokens, (size_t)length * sizeof *copy);
    r->hypotheses[r->first[sentence + 1]++] =
        (weft_hypothesis){copy, (size_t)length, log_prob, score, ended};
    return true;
}

void weft_search_result_free(weft_search_result *result)
{
    if (!result) return;
    size_t n = result->first ? result->first[result->sentences] : 0;
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)result->hypotheses[i].tokens);
    free(result->first);
    free(result->hypotheses);
    free(result);
}

/* Takes the result if all went well. */
static weft_search_result *take_result(search *s, bool good)
{
    weft_search_result *result = s->result;
    end_search(s);
    if (good) return result;
    weft_search_result_free(result);
    return NULL;
}

/* ---- Greedy and sampling: each row for itself ---- */

typedef struct row_state {
    double log_prob; /* as the model has them */
    double sum;      /* of the penalised ones */
    int64_t length;  /* of tokens found */
    bool ended, over;
} row_state;

static int64_t most_likely(const double *log_probs, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (log_probs[i] > log_probs[best]) best = i;
    return log_probs[best] > -INFINITY ? best : -1;
}

/* By falling log probability; the tie goes to the lower id. */
static int by_probability(const void *a, const void *b, void *log_probs)
{
    const double *p = log_probs;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (p[x] != p[y]) return p[x] > p[y] ? -1 : 1;
    return (x > y) - (x < y);
}

size_t weft_sample_candidates(const double *log_probs, size_t n, double temperature, int64_t top_k,
                              double top_p, int32_t *ids, double *probs)
{
    size_t count = 0, kept = 0;
    double most = -INFINITY, sum = 0, reached = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(log_probs[i] > -INFINITY)) continue;
        ids[count++] = (int32_t)i;
        if (log_probs[i] > most) most = log_probs[i];
    }
    if (top_k > 0 || top_p < 1)
        qsort_r(ids, count, sizeof *ids, by_probability, (void *)(uintptr_t)log_probs);
    if (top_k > 0 && count > (size_t)top_k) count = (size_t)top_k;
    for (size_t i = 0; i < count; i++)
        sum += probs[i] = exp((log_probs[ids[i]] - most) / temperature);
    while (kept < count && (top_p >= 1 || kept == 0 || reached < top_p * sum))
        reached += probs[kept++];
    for (size_t i = 0; i < kept; i++) probs[i] /= reached;
    return kept;
}

/* A number in [0, 1) for token `at` of a row: the seed and the sentence's key tell it, not where
 * the row lies. */
static double uniform(const search *s, int64_t row, int64_t at)
{
    uint64_t key = s->inputs[row / s->model->beams].key;
    uint32_t words[4];
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(row % s->model->beams), (uint32_t)key,
                                 (uint32_t)(key >> 32)};
    weft_philox(counter, s->o->seed, words);
    return (double)(((uint64_t)words[0] << 21) ^ (words[1] >> 11)) * 0x1p-53;
}

static int64_t draw(const search *s, int64_t row, int32_t *ids, double *probs)
{
    size_t n = weft_sample_candidates(s->log_probs, (size_t)s->vocab, s->o->temperature,
                                      s->o->top_k, s->o->top_p, ids, probs);
    double u = uniform(s, row, found(s, row / s->model->beams)), sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += probs[i];
        if (u < sum) return ids[i];
    }
    return n ? ids[n - 1] : -1;
}

typedef struct row_search {
    search s;
    bool samples;
    int64_t each;    /* rows of a sentence that are used */
    row_state *rows; /* [rows] */
    int32_t *ids;    /* [vocab] */
    double *probs;   /* [vocab] */
} row_search;

/* Whether the caller wants more than the tokens that the row has found. */
static bool goes_on(const search *s, int64_t row, int64_t length)
{
    const int64_t sentence = row / s->model->beams;
    const int32_t *tokens = s->sequences + row * s->width + s->inputs[sentence].prefix_len;
    return !s->o->found || s->o->found(s->o->found_context, (size_t)sentence,
                                       (size_t)(row % s->model->beams), tokens, (size_t)length);
}

/* Adds a token to a row, or ends it. Where no token is possible, the row is cut. */
static bool choose(row_search *r, int64_t row)
{
    search *s = &r->s;
    row_state *q = &r->rows[row];
    if (!read_row(s, row)) return false;
    int64_t token =
        r->samples ? draw(s, row, r->ids, r->probs) : most_likely(s->log_probs, s->vocab);
    if (token < 0) {
        q->over = true;
        return true;
    }
    q->log_prob += log_prob_at(s, row, token);
    q->sum += s->log_probs[token];
    if (token == s->o->eos) {
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
    for (int64_t left = s->n; left > 0;) {
        if (!take_step(s)) return false;
        for (int64_t i = 0; i < s->n; i++) {
            if (s->done[i] || found(s, i) < 0) continue;
            bool open = false;
            for (int64_t row = i * s->model->beams; row < i * s->model->beams + r->each; row++) {
                if (!r->rows[row].over && !choose(r, row)) return false;
                open |= !r->rows[row].over;
            }
            s->done[i] = !open;
            left -= !open;
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
            if (!give(s, i, tokens, q->length, q->log_prob, q->sum / penalty, q->ended))
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
    bool good = begin_search(&r.s, model, inputs, n, o, error);
    if (good) {
        r.each = samples ? r.s.o->nbest : 1;
        r.rows = zeros((size_t)r.s.rows, sizeof *r.rows);
        r.ids = zeros((size_t)r.s.vocab, sizeof *r.ids);
        r.probs = zeros((size_t)r.s.vocab, sizeof *r.probs);
        good = r.rows && r.ids && r.probs;
        if (!good) weft_error_set(error, WEFT_NO_MEMORY, "search", "no memory");
    }
    good = good && run_rows(&r);
    free(r.rows);
    free(r.ids);
    free(r.probs);
    return take_result(&r.s, good);
}

weft_search_result *weft_search_greedy(const weft_search_model *model,
                                       const weft_search_input *inputs, size_t n,
                                       const weft_search_options *options, weft_error *error)
{
    return search_rows(model, inputs, n, options, false, error);
}

weft_search_result *weft_search_sample(const weft_search_model *model,
                                       const weft_search_input *inputs, size_t n,
                                       const weft_search_options *options, weft_error *error)
{
    if (options && (!(options->temperature >= 0) || !isfinite(options->temperature) ||
                    !(options->top_p >= 0) || options->top_p > 1 || options->top_k < 0)) {
        refuse(error,
               "sampling needs a temperature above 0, top_p in (0, 1] and top_k of 0 or more");
        return NULL;
    }
    return search_rows(model, inputs, n, options, true, error);
}

/* ---- Beam search ---- */

typedef struct finished {
    double log_prob, score;
    int64_t length;
    bool ended;
} finished;

/* The sums of the log probabilities of a hypothesis: as the model has them, and penalised, which
 * are those that the search compares. */
typedef struct sums {
    double log_prob, penalised;
} sums;
static const sums not_open = {-INFINITY, -INFINITY};

typedef struct extension {
    sums sum;
    int64_t row;
    int32_t token;
} extension;

typedef struct beam_search {
    search s;
    int64_t beams;
    sums *open;       /* [rows]; -inf: not open */
    sums *next;       /* [rows] */
    finished *ends;   /* [n][beams], best score first */
    int32_t *tokens;  /* [n][beams][width], theirs */
    int64_t *n_ends;  /* [n]: kept */
    int64_t *n_ended; /* [n]: ever */
    extension *best;  /* [2 beams], most likely first */
    int64_t n_best;
} beam_search;

/* Keeps x among the best; of equals the earlier stays ahead. */
static void keep(beam_search *b, extension x)
{
    int64_t most = 2 * b->beams, at = b->n_best;
    if (b->n_best == most && !(x.sum.penalised > b->best[most - 1].sum.penalised)) return;
    if (b->n_best < most)
        b->n_best++;
    else
        at--;
    while (at > 0 && x.sum.penalised > b->best[at - 1].sum.penalised) {
        b->best[at] = b->best[at - 1];
        at--;
    }
    b->best[at] = x;
}

/* The sum that an extension must pass to be among the best. */
static double least_sum(const beam_search *b)
{
    return b->n_best == 2 * b->beams ? b->best[b->n_best - 1].sum.penalised : -INFINITY;
}

/* The most that penalised log probabilities of a block can be: a penalty below 1 raises them. */
static double top_of_block(const search *s, int64_t block)
{
    double top = s->top[block], raised = top * s->o->repetition_penalty;
    return raised > top ? raised : top;
}

static bool extend_rows(beam_search *b, int64_t sentence)
{
    search *s = &b->s;
    b->n_best = 0;
    for (int64_t row = sentence * b->beams; row < (sentence + 1) * b->beams; row++) {
        const sums open = b->open[row];
        if (!(open.penalised > -INFINITY)) continue;
        if (!look_at_row(s, row)) return false;
        bar(s, row);
        double least = least_sum(b);
        for (int64_t from = 0; from < s->vocab; from += BLOCK) {
            if (!(open.penalised + top_of_block(s, from / BLOCK) > least)) continue;
            const int64_t end = from + BLOCK < s->vocab ? from + BLOCK : s->vocab;
            for (int64_t i = from; i < end; i++) {
                const double log_prob = log_prob_at(s, row, i);
                const sums sum = {open.log_prob + log_prob,
                                  open.penalised + penalised(s, log_prob, i)};
                if (!(sum.penalised > least) || s->barred[i]) continue;
                keep(b, (extension){sum, row, (int32_t)i});
                least = least_sum(b);
            }
        }
    }
    return true;
}

/* A hypothesis of `row` is finished. Keeps the best; of equals the earlier stays ahead. */
static void finish(beam_search *b, int64_t sentence, const int32_t *sequence, int64_t length,
                   sums sum, bool ended)
{
    search *s = &b->s;
    double score = sum.penalised /
                   weft_length_penalty_value(s->o->penalty, s->o->alpha, (size_t)(length + ended));
    finished *ends = b->ends + sentence * b->beams;
    int32_t *tokens = b->tokens + sentence * b->beams * s->width;
    int64_t at = b->n_ends[sentence];
    b->n_ended[sentence]++;
    if (at == b->beams && !(score > ends[at - 1].score)) return;
    if (at < b->beams)
        b->n_ends[sentence]++;
    else
        at--;
    while (at > 0 && score > ends[at - 1].score) {
        ends[at] = ends[at - 1];
        memcpy(tokens + at * s->width, tokens + (at - 1) * s->width,
               (size_t)s->width * sizeof *tokens);
        at--;
    }
    ends[at] = (finished){sum.log_prob, score, length, ended};
    if (length) memcpy(tokens + at * s->width, sequence, (size_t)length * sizeof *tokens);
}

/* The best score that an open hypothesis may reach yet. */
static double bound(const beam_search *b, int64_t sentence, int64_t length)
{
    const search *s = &b->s;
    double best = -INFINITY, most;
    for (int64_t row = sentence * b->beams; row < (sentence + 1) * b->beams; row++)
        if (b->open[row].penalised > best) best = b->open[row].penalised;
    int64_t last = s->inputs[sentence].max_len;
    most = best / weft_length_penalty_value(s->o->penalty, s->o->alpha, (size_t)(length + 1));
    double at_last = best / weft_length_penalty_value(s->o->penalty, s->o->alpha, (size_t)last);
    return most > at_last ? most : at_last;
}

static bool is_done(const beam_search *b, int64_t sentence, int64_t length)
{
    const weft_search_options *o = b->s.o;
    int64_t kept = b->n_ends[sentence], nbest = o->nbest;
    if (length >= b->s.inputs[sentence].max_len) return true;
    if (o->stop == WEFT_STOP_FIRST && b->n_ended[sentence] >= b->beams) return true;
    return kept >= nbest &&
           bound(b, sentence, length) <= b->ends[sentence * b->beams + nbest - 1].score;
}

/* From the best extensions to the beam of the next step. */
static void advance(beam_search *b, int64_t sentence)
{
    search *s = &b->s;
    const weft_search_input *in = &s->inputs[sentence];
    int64_t before = found(s, sentence), length = before + 1, filled = 0;
    int64_t first = sentence * b->beams;
    for (int64_t row = first; row < first + b->beams; row++) b->next[row] = not_open;
    for (int64_t i = 0; i < b->n_best && filled < b->beams; i++) {
        const extension *x = &b->best[i];
        const int32_t *old = s->sequences + x->row * s->width;
        if (x->token == s->o->eos) {
            finish(b, sentence, old + in->prefix_len, before, x->sum, true);
            continue;
        }
        int64_t row = first + filled++;
        int32_t *new = s->spare + row * s->width;
        memcpy(new, old, (size_t)s->position * sizeof *new);
        new[s->position] = x->token;
        s->parents[row] = (int32_t)x->row;
        b->next[row] = x->sum;
        if (length == in->max_len) finish(b, sentence, new + in->prefix_len, length, x->sum, false);
    }
    /* Where nothing is possible, what was open is cut. */
    for (int64_t row = first; row < first + b->beams && !b->n_best; row++)
        if (b->open[row].penalised > -INFINITY)
            finish(b, sentence, s->sequences + row * s->width + in->prefix_len, before,
                   b->open[row], false);
    for (int64_t row = first; row < first + b->beams; row++) {
        b->open[row] = b->next[row];
        memcpy(s->sequences + row * s->width, s->spare + row * s->width,
               (size_t)s->width * sizeof *s->spare);
    }
    s->done[sentence] = !filled || is_done(b, sentence, length);
}

static bool run_beams(beam_search *b)
{
    search *s = &b->s;
    for (int64_t row = 0; row < s->rows; row++)
        b->open[row] = row % b->beams ? not_open : (sums){0, 0};
    for (int64_t left = s->n; left > 0;) {
        if (!take_step(s)) return false;
        for (int64_t i = 0; i < s->n; i++) {
            if (s->done[i] || found(s, i) < 0) continue;
            if (!extend_rows(b, i)) return false;
            advance(b, i);
            left -= s->done[i];
        }
    }
    for (int64_t i = 0; i < s->n; i++) {
        int64_t each = s->o->nbest < b->n_ends[i] ? s->o->nbest : b->n_ends[i];
        s->result->sentences = (size_t)i + 1;
        s->result->first[i + 1] = s->result->first[i];
        for (int64_t k = 0; k < each; k++) {
            const finished *f = &b->ends[i * b->beams + k];
            if (!give(s, i, b->tokens + (i * b->beams + k) * s->width, f->length, f->log_prob,
                      f->score, f->ended))
                return false;
        }
    }
    return true;
}

static bool make_beams(beam_search *b)
{
    search *s = &b->s;
    size_t rows = (size_t)s->rows, n = (size_t)s->n, kept = n * (size_t)b->beams;
    b->open = zeros(rows, sizeof *b->open);
    b->next = zeros(rows, sizeof *b->next);
    b->ends = zeros(kept, sizeof *b->ends);
    b->tokens = zeros(kept * (size_t)s->width, sizeof *b->tokens);
    b->n_ends = zeros(n, sizeof *b->n_ends);
    b->n_ended = zeros(n, sizeof *b->n_ended);
    b->best = zeros(2 * (size_t)b->beams, sizeof *b->best);
    if (b->open && b->next && b->ends && b->tokens && b->n_ends && b->n_ended && b->best)
        return true;
    weft_error_set(s->error, WEFT_NO_MEMORY, "search", "no memory");
    return false;
}

weft_search_result *weft_search_beam(const weft_search_model *model,
                                     const weft_search_input *inputs, size_t n,
                                     const weft_search_options *options, weft_error *error)
{
    if (options && options->found) {
        refuse(error, "beam search has no `found`: its rows change places at each token");
        return NULL;
    }
    beam_search b = {.beams = model ? model->beams : 0};
    bool good =
        begin_search(&b.s, model, inputs, n, options, error) && make_beams(&b) && run_beams(&b);
    free(b.open);
    free(b.next);
    free(b.ends);
    free(b.tokens);
    free(b.n_ends);
    free(b.n_ended);
    free(b.best);
    return take_result(&b.s, good);
}
