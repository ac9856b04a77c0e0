/* Beam search: ranks all continuations of the open hypotheses of a sentence at each step. O(rows
 * vocab) per token step, plus O(beams) for each continuation that enters the list of the best. */
#include "search.h"

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct finished {
    double log_prob, score;
    int64_t length;
    bool ended;
} finished;

/* Sums of the log probabilities of a hypothesis, before and after the repetition penalty. The
 * search compares penalised sums. */
typedef struct sums {
    double log_prob, penalised;
} sums;
static const sums not_open = {-INFINITY, -INFINITY};

typedef struct extension {
    sums sum;
    double log_prob; /* of the token */
    int64_t row;
    int32_t token;
} extension;

typedef struct beam_search {
    search s;
    int64_t beams;
    int64_t limit;    /* of `best`: all ends of each beam, and as many others as there are beams */
    sums *open;       /* [rows]; -inf: not open */
    sums *next;       /* [rows] */
    finished *ends;   /* [n][beams], best score first */
    int32_t *tokens;  /* [n][beams][width]: tokens of `ends` */
    double *logs;     /* [n][beams][width]: their log probabilities */
    double *spare;    /* [rows][width]: log probabilities of the beam of the next token step */
    int64_t *n_ends;  /* [n]: hypotheses in `ends` */
    int64_t *n_ended; /* [n]: hypotheses that have ended so far */
    extension *best;  /* [limit], most likely first */
    int64_t n_best;
} beam_search;

/* Inserts x into the sorted list of the best; the earlier of equals ranks first. */
static void retain(beam_search *b, extension x)
{
    int64_t at = b->n_best;
    if (b->n_best == b->limit && !(x.sum.penalised > b->best[at - 1].sum.penalised)) return;
    if (b->n_best < b->limit)
        b->n_best++;
    else
        at--;
    while (at > 0 && x.sum.penalised > b->best[at - 1].sum.penalised) {
        b->best[at] = b->best[at - 1];
        at--;
    }
    b->best[at] = x;
}

/* The sum that an extension must exceed to enter the list of the best. */
static double min_sum(const beam_search *b)
{
    return b->n_best == b->limit ? b->best[b->n_best - 1].sum.penalised : -INFINITY;
}

/* An upper bound of the penalised log probabilities of a block. A penalty below 1 raises them. */
static double top_of_block(const search *s, int64_t block)
{
    double top = s->sampler->top[block], raised = top * s->sampling.repetition_penalty;
    return raised > top ? raised : top;
}

static bool extend_rows(beam_search *b, int64_t sentence)
{
    search *s = &b->s;
    b->n_best = 0;
    for (int64_t row = sentence * b->beams; row < (sentence + 1) * b->beams; row++) {
        const sums open = b->open[row];
        if (!(open.penalised > -INFINITY)) continue;
        const weft_sampling_row r = weft__search_row(s, row);
        if (!weft__search_scan_row(s, &r, sentence)) return false;
        weft__sampler_bar(s->sampler, &s->sampling, &r);
        double threshold = min_sum(b);
        for (int64_t from = 0; from < s->vocab; from += BLOCK) {
            if (!(open.penalised + top_of_block(s, from / BLOCK) > threshold)) continue;
            const int64_t end = from + BLOCK < s->vocab ? from + BLOCK : s->vocab;
            for (int64_t i = from; i < end; i++) {
                const double log_prob = sampling_log_prob(&r, i);
                const double less = sampling_penalised(s->sampler, &s->sampling, log_prob, i);
                const sums sum = {open.log_prob + log_prob, open.penalised + less};
                if (!(sum.penalised > threshold) || s->sampler->barred[i]) continue;
                retain(b, (extension){sum, log_prob, row, (int32_t)i});
                threshold = min_sum(b);
            }
        }
    }
    return true;
}

/* The new tokens of a row, with their log probabilities; that of an end follows. */
typedef struct path {
    const int32_t *tokens;
    const double *logs;
    int64_t length;
} path;

/* Inserts a finished hypothesis into the sorted `ends` of its sentence, if it is among the `beams`
 * best; the earlier of equals ranks first. */
static void finish(beam_search *b, int64_t sentence, const path *p, sums sum, bool ended)
{
    search *s = &b->s;
    const int64_t length = p->length;
    double score = sum.penalised /
                   weft_length_penalty_value(s->o->penalty, s->o->alpha, (size_t)(length + ended));
    finished *ends = b->ends + sentence * b->beams;
    int32_t *tokens = b->tokens + sentence * b->beams * s->width;
    double *logs = b->logs + sentence * b->beams * s->width;
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
        memcpy(logs + at * s->width, logs + (at - 1) * s->width, (size_t)s->width * sizeof *logs);
        at--;
    }
    ends[at] = (finished){sum.log_prob, score, length, ended};
    const size_t n = (size_t)(length + ended);
    if (length) memcpy(tokens + at * s->width, p->tokens, (size_t)length * sizeof *tokens);
    if (n) memcpy(logs + at * s->width, p->logs, n * sizeof *logs);
}

/* An upper bound of the scores that the open hypotheses can still reach. */
static double bound(const beam_search *b, int64_t sentence, int64_t length)
{
    const search *s = &b->s;
    double best = -INFINITY;
    for (int64_t row = sentence * b->beams; row < (sentence + 1) * b->beams; row++)
        if (b->open[row].penalised > best) best = b->open[row].penalised;
    int64_t last = s->inputs[sentence].max_len;
    const double at_next =
        best / weft_length_penalty_value(s->o->penalty, s->o->alpha, (size_t)(length + 1));
    double at_last = best / weft_length_penalty_value(s->o->penalty, s->o->alpha, (size_t)last);
    return at_next > at_last ? at_next : at_last;
}

static bool is_done(const beam_search *b, int64_t sentence, int64_t length)
{
    const weft_search_options *o = b->s.o;
    int64_t retained = b->n_ends[sentence], nbest = o->nbest;
    if (length >= b->s.inputs[sentence].max_len) return true;
    if (o->stop == WEFT_STOP_FIRST && b->n_ended[sentence] >= b->beams) return true;
    return retained >= nbest &&
           bound(b, sentence, length) <= b->ends[sentence * b->beams + nbest - 1].score;
}

/* No extension is possible: cuts all open hypotheses. */
static void cut_open(beam_search *b, int64_t sentence, int64_t length)
{
    search *s = &b->s;
    for (int64_t row = sentence * b->beams; row < (sentence + 1) * b->beams; row++) {
        const size_t from = (size_t)(row * s->width) + s->inputs[sentence].prefix_len;
        const path cut = {s->sequences + from, s->token_logs + from, length};
        if (b->open[row].penalised > -INFINITY) finish(b, sentence, &cut, b->open[row], false);
    }
}

/* Makes the beam of the next token step from the best extensions. */
static void advance(beam_search *b, int64_t sentence)
{
    search *s = &b->s;
    const weft_search_input *in = &s->inputs[sentence];
    int64_t before = weft__search_found(s, sentence), length = before + 1, filled = 0;
    int64_t first = sentence * b->beams;
    for (int64_t row = first; row < first + b->beams; row++) b->next[row] = not_open;
    for (int64_t i = 0; i < b->n_best && filled < b->beams; i++) {
        const extension *x = &b->best[i];
        const int64_t from = x->row * s->width, prefix = (int64_t)in->prefix_len;
        if (s->ending[x->token]) {
            s->token_logs[from + s->position] = x->log_prob;
            finish(b, sentence,
                   &(path){s->sequences + from + prefix, s->token_logs + from + prefix, before},
                   x->sum, true);
            continue;
        }
        const int64_t row = first + filled++, to = row * s->width;
        memcpy(s->spare + to, s->sequences + from, (size_t)s->position * sizeof *s->spare);
        memcpy(b->spare + to, s->token_logs + from, (size_t)s->position * sizeof *b->spare);
        s->spare[to + s->position] = x->token;
        b->spare[to + s->position] = x->log_prob;
        s->parents[row] = (int32_t)x->row;
        b->next[row] = x->sum;
        if (length == in->max_len)
            finish(b, sentence, &(path){s->spare + to + prefix, b->spare + to + prefix, length},
                   x->sum, false);
    }
    if (!b->n_best) cut_open(b, sentence, before);
    for (int64_t row = first; row < first + b->beams; row++) {
        b->open[row] = b->next[row];
        memcpy(s->sequences + row * s->width, s->spare + row * s->width,
               (size_t)s->width * sizeof *s->spare);
        memcpy(s->token_logs + row * s->width, b->spare + row * s->width,
               (size_t)s->width * sizeof *b->spare);
    }
    s->done[sentence] = !filled || is_done(b, sentence, length);
}

static bool run_beams(beam_search *b)
{
    search *s = &b->s;
    for (int64_t row = 0; row < s->rows; row++)
        b->open[row] = row % b->beams ? not_open : (sums){0, 0};
    for (int64_t n_open = s->n; n_open > 0;) {
        if (!weft__search_step(s)) return false;
        for (int64_t i = 0; i < s->n; i++) {
            if (s->done[i] || weft__search_found(s, i) < 0) continue;
            if (!extend_rows(b, i)) return false;
            advance(b, i);
            n_open -= s->done[i];
        }
    }
    for (int64_t i = 0; i < s->n; i++) {
        int64_t each = s->o->nbest < b->n_ends[i] ? s->o->nbest : b->n_ends[i];
        s->result->sentences = (size_t)i + 1;
        s->result->first[i + 1] = s->result->first[i];
        for (int64_t k = 0; k < each; k++) {
            const finished *f = &b->ends[i * b->beams + k];
            const int64_t at = (i * b->beams + k) * s->width;
            const weft_hypothesis h = {.tokens = b->tokens + at,
                                       .length = (size_t)f->length,
                                       .log_prob = f->log_prob,
                                       .score = f->score,
                                       .ended = f->ended,
                                       .log_probs = b->logs + at};
            if (!weft__search_add(s, i, &h)) return false;
        }
    }
    return true;
}

static bool make_beams(beam_search *b)
{
    search *s = &b->s;
    size_t rows = (size_t)s->rows, n = (size_t)s->n, retained = n * (size_t)b->beams;
    b->limit = b->beams * (s->o->n_ends ? (int64_t)s->o->n_ends + 2 : 2);
    b->open = weft__search_zeros(rows, sizeof *b->open);
    b->next = weft__search_zeros(rows, sizeof *b->next);
    b->ends = weft__search_zeros(retained, sizeof *b->ends);
    b->tokens = weft__search_zeros(retained * (size_t)s->width, sizeof *b->tokens);
    b->logs = weft__search_zeros(retained * (size_t)s->width, sizeof *b->logs);
    b->spare = weft__search_zeros(rows * (size_t)s->width, sizeof *b->spare);
    b->n_ends = weft__search_zeros(n, sizeof *b->n_ends);
    b->n_ended = weft__search_zeros(n, sizeof *b->n_ended);
    b->best = weft__search_zeros((size_t)b->limit, sizeof *b->best);
    if (b->open && b->next && b->ends && b->tokens && b->logs && b->spare && b->n_ends &&
        b->n_ended && b->best)
        return true;
    weft_error_set(s->error, WEFT_NO_MEMORY, "search", "no memory");
    return false;
}

weft_search_result *weft_search_beam(const weft_search_model *model,
                                     const weft_search_input *inputs, size_t n,
                                     const weft_search_options *options, weft_error *error)
{
    weft_error_clear(error);
    if (options && (options->found || options->allows)) {
        weft__search_refuse(
            error,
            "beam search has no `found` and no `allows`: its rows are reordered at each token");
        return NULL;
    }
    beam_search b = {.beams = model ? model->beams : 0};
    bool good = weft__search_begin(&b.s, model, inputs, n, options, error) && make_beams(&b) &&
                run_beams(&b);
    free(b.open);
    free(b.next);
    free(b.ends);
    free(b.tokens);
    free(b.logs);
    free(b.spare);
    free(b.n_ends);
    free(b.n_ended);
    free(b.best);
    return weft__search_finish(&b.s, good);
}
