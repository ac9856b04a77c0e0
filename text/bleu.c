/* BLEU: clipped counts of n-grams of tokens, and the score of their sums. */
#include "ngrams.h"
#include "base/vmath.h"

#include <weft/text.h>

#include <math.h>
#include <stdlib.h>

static bool tokens_of(words *w, const char *line, symbols *s)
{
    char *tokens = weft_text_tokens_13a(line);
    bool good = tokens && weft__symbols_of_words(w, tokens, false, s);
    free(tokens);
    return good;
}

static size_t distance(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

/* False if memory is out. */
static bool count(weft_bleu *b, const char *line, const char *const *references, size_t n)
{
    words w = {NULL, 0, 0};
    symbols mine = {NULL, 0}, *theirs = calloc(n + 1, sizeof *theirs);
    bool good = theirs && tokens_of(&w, line, &mine);
    size_t closest = 0;
    for (size_t r = 0; good && r < n; r++) {
        good = tokens_of(&w, references[r], &theirs[r]);
        size_t length = theirs[r].n, was = distance(closest, mine.n), is = distance(length, mine.n);
        if (r == 0 || is < was || (is == was && length < closest)) closest = length;
    }
    for (size_t k = 0; good && k < WEFT_BLEU_ORDER; k++) {
        size_t matches;
        good = weft__ngram_matches(&mine, theirs, n, k + 1, &matches);
        b->matches[k] += matches;
        b->ngrams[k] += weft__ngram_count(&mine, k + 1);
    }
    b->length += mine.n;
    b->reference_length += closest;
    for (size_t r = 0; theirs && r < n; r++) free(theirs[r].ids);
    free(theirs);
    free(mine.ids);
    weft__words_free(&w);
    return good;
}

weft_status weft_bleu_add(weft_bleu *bleu, const char *line, const char *const *references,
                          size_t n, weft_error *error)
{
    weft_error_clear(error);
    if (!bleu || !line || !references)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "BLEU", "needs a line and its references");
    return count(bleu, line, references, n)
               ? WEFT_OK
               : weft_error_set(error, WEFT_NO_MEMORY, "BLEU", "out of memory");
}

/* BLEU over the orders up to 4, or up to the longest n-gram of the line. */
static weft_bleu_result score(const weft_bleu *b, bool effective_order)
{
    weft_bleu_result r = {.brevity = 1};
    double logs = 0, smooth = 1, length = (double)b->length;
    size_t any = 0;
    int orders = 0;
    if (b->length < b->reference_length)
        r.brevity = b->length ? vm_exp_f64(1 - (double)b->reference_length / length) : 0;
    for (int k = 0; k < WEFT_BLEU_ORDER; k++) any += b->matches[k];
    if (!any) return r;
    for (; orders < WEFT_BLEU_ORDER && b->ngrams[orders]; orders++) {
        double matches = (double)b->matches[orders];
        if (!b->matches[orders]) matches = 1 / (smooth *= 2);
        r.precisions[orders] = 100 * matches / (double)b->ngrams[orders];
        logs += vm_log_f64(r.precisions[orders]);
    }
    if (orders == WEFT_BLEU_ORDER || effective_order)
        r.score = r.brevity * vm_exp_f64(logs / orders);
    return r;
}

weft_bleu_result weft_bleu_score(const weft_bleu *bleu)
{
    return bleu ? score(bleu, false) : (weft_bleu_result){.score = 0};
}

weft_bleu_result weft_bleu_score_sentence(const weft_bleu *bleu)
{
    return bleu ? score(bleu, true) : (weft_bleu_result){.score = 0};
}

void weft_bleu_sum(weft_bleu *bleu, const weft_bleu *other)
{
    if (!bleu || !other) return;
    for (int k = 0; k < WEFT_BLEU_ORDER; k++) {
        bleu->matches[k] += other->matches[k];
        bleu->ngrams[k] += other->ngrams[k];
    }
    bleu->length += other->length;
    bleu->reference_length += other->reference_length;
}
