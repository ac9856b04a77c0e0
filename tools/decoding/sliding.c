/* Generates texts longer than the context of a language model. When all positions are used, the
 * tokens of the last half become the prompt of a new search, and so on. A text depends only on the
 * seed, its line and its number, not on the other lines of its batch. */
#include "decoding.h"

#include <stdlib.h>
#include <string.h>

/* A text to continue. */
typedef struct open_text {
    const text_line *line;
    weft_hypothesis *found;
    growing_text *growing;         /* NULL: neither streamed nor with stop texts */
    weft_constrained_text *answer; /* NULL: there is no rule */
    int32_t *prefix;               /* the last of its tokens, the prompt's included */
    uint64_t key;                  /* of the next search */
    int64_t min_left;              /* minimum tokens before it may end */
    bool over;
} open_text;

static bool no_memory(decoding *d)
{
    return decoding_fail(d, WEFT_NO_MEMORY, "decoding", "out of memory");
}

/* Whether text k of the first window used all positions before it ended. */
static bool is_open(const decoding *d, const text_line *l, size_t k)
{
    const weft_hypothesis *h = &l->found[k];
    if (l->growing && l->growing[k].stopped) return false;
    return !h->ended && (int64_t)h->length < l->max_tokens &&
           (int64_t)(l->n_ids + h->length) > d->max_len;
}

/* Token i of the prompt and the generated tokens. */
static int32_t token_at(const open_text *t, size_t i)
{
    return i < t->line->n_ids ? t->line->ids[i] : t->found->tokens[i - t->line->n_ids];
}

static void refresh(const decoding *d, open_text *t, size_t prefix_len)
{
    size_t all = t->line->n_ids + t->found->length;
    int64_t left = d->a->sampling.min_length - (int64_t)t->found->length;
    for (size_t i = 0; i < prefix_len; i++) t->prefix[i] = token_at(t, all - prefix_len + i);
    t->min_left = left > 0 ? left : 0;
    t->key += (uint64_t)1 << 50;
}

/* Appends the result of a search to the text; false if out of memory. */
static bool append(open_text *t, const weft_hypothesis *more)
{
    weft_hypothesis *h = t->found;
    int32_t *tokens = (int32_t *)(uintptr_t)h->tokens;
    tokens = realloc(tokens, (h->length + more->length + 1) * sizeof *tokens);
    if (!tokens) return false;
    h->tokens = tokens;
    const size_t logs = more->length + more->ended;
    double *log_probs = (double *)(uintptr_t)h->log_probs;
    log_probs = realloc(log_probs, (h->length + logs + 1) * sizeof *log_probs);
    if (!log_probs) return false;
    h->log_probs = log_probs;
    if (logs) memcpy(log_probs + h->length, more->log_probs, logs * sizeof *log_probs);
    if (more->length) memcpy(tokens + h->length, more->tokens, more->length * sizeof *tokens);
    h->length += more->length;
    h->log_prob += more->log_prob;
    h->score += more->score;
    h->ended = more->ended;
    return true;
}

/* One search for n texts with the same minimum of tokens to come. */
static bool search_window(decoding *d, open_text *texts, size_t n, size_t prefix_len)
{
    const bool slider = d->slider != NULL;
    int64_t room = d->max_len + 1 - (int64_t)prefix_len;
    weft_search_input *inputs = calloc(n, sizeof *inputs);
    growing_text **growing = calloc(n, sizeof *growing);
    void **answers = calloc(n, sizeof *answers);
    if (!inputs || !growing || !answers) {
        free(answers);
        free(inputs);
        free(growing);
        return no_memory(d);
    }
    for (size_t i = 0; i < n; i++) {
        int64_t left = texts[i].line->max_tokens - (int64_t)texts[i].found->length;
        inputs[i] = (weft_search_input){texts[i].prefix, prefix_len, left < room ? left : room,
                                        texts[i].key};
        growing[i] = texts[i].growing;
        answers[i] = texts[i].answer;
    }
    weft_search_options all = d->options;
    d->options.nbest = 1;
    d->options.min_len = texts[0].min_left;
    weft_search_result *r = NULL;
    if (decoding_start(d, slider, NULL, NULL, 0))
        r = decoding_search(d, slider, inputs, n, growing[0] ? growing : NULL,
                            answers[0] ? answers : NULL);
    d->options = all;
    bool good = r != NULL;
    for (size_t i = 0; good && i < n; i++) {
        const weft_hypothesis *more = &r->hypotheses[r->first[i]];
        good = append(&texts[i], more) || no_memory(d);
        good = good && answer_rule_move(answers[i], more->tokens, more->length, &d->error);
        /* A text that stopped before its positions were used up is finished. */
        texts[i].over = more->ended || (int64_t)more->length < room ||
                        (int64_t)texts[i].found->length >= texts[i].line->max_tokens ||
                        (growing[i] && growing[i]->stopped);
    }
    weft_search_result_free(r);
    free(inputs);
    free(growing);
    free(answers);
    return good;
}

/* Decoders with several rows a sentence start them from one prefix. Different texts need decoders
 * with one row a sentence. */
static bool open_slider(decoding *d)
{
    if (d->slider || d->options.nbest == 1) return true;
    weft_decoder_options o = {.sentences = d->a->batch,
                              .beams = 1,
                              .max_len = d->max_len,
                              .session.threads = d->a->threads,
                              .recompute = d->a->recompute,
                              .cache = d->a->cache};
    return decoding_make(d, &o, true);
}

static int by_min_left(const void *a, const void *b)
{
    const open_text *x = a, *y = b;
    if (x->min_left != y->min_left) return x->min_left < y->min_left ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static bool slide_all(decoding *d, open_text *texts, size_t n, size_t prefix_len)
{
    while (n) {
        for (size_t i = 0; i < n; i++) refresh(d, &texts[i], prefix_len);
        qsort(texts, n, sizeof *texts, by_min_left);
        for (size_t i = 0, end; i < n; i = end) {
            for (end = i + 1; end < n && end - i < (size_t)d->a->batch; end++)
                if (texts[end].min_left != texts[i].min_left) break;
            if (!search_window(d, texts + i, end - i, prefix_len)) return false;
        }
        size_t left = 0;
        for (size_t i = 0; i < n; i++) {
            if (texts[i].over) continue;
            open_text swapped = texts[left];
            texts[left++] = texts[i];
            texts[i] = swapped;
        }
        n = left;
    }
    return true;
}

bool decoding_slide(decoding *d, text_line *const *lines, size_t n)
{
    size_t open = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < lines[i]->n_found; k++) open += is_open(d, lines[i], k);
    if (d->way == DECODING_BEAM) d->counts.stopped += open;
    if (!open || d->way == DECODING_BEAM) return true;
    size_t prefix_len = d->max_len > 1 ? (size_t)d->max_len / 2 : 1;
    open_text *texts = calloc(open, sizeof *texts);
    int32_t *prefixes = calloc(open, prefix_len * sizeof *prefixes);
    bool good = (texts && prefixes) || no_memory(d);
    for (size_t i = 0; good && i < n; i++)
        for (size_t k = 0; k < lines[i]->n_found; k++)
            if (is_open(d, lines[i], k)) {
                uint64_t key = lines[i]->number | (uint64_t)k << 40;
                int32_t *prefix = prefixes + at * prefix_len;
                growing_text *growing = lines[i]->growing ? &lines[i]->growing[k] : NULL;
                texts[at++] = (open_text){.line = lines[i],
                                          .found = &lines[i]->found[k],
                                          .growing = growing,
                                          .answer = lines[i]->answers ? lines[i]->answers[k] : NULL,
                                          .prefix = prefix,
                                          .key = key};
            }
    good = good && open_slider(d) && slide_all(d, texts, open, prefix_len);
    free(texts);
    free(prefixes);
    return good;
}
