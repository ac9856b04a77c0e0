/* Counts n-grams by sorting their positions: O(n log n) for a line of n symbols. */
#include "ngrams.h"

#include "base/sort.h"
#include "characters.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int32_t id_of(words *w, const char *text, size_t length)
{
    for (size_t i = 0; i < w->n; i++)
        if (strlen(w->word[i]) == length && !memcmp(w->word[i], text, length)) return (int32_t)i;
    if (w->n == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 64;
        char **grown = realloc(w->word, capacity * sizeof *grown);
        if (!grown) return -1;
        w->word = grown;
        w->capacity = capacity;
    }
    if (!(w->word[w->n] = calloc(1, length + 1))) return -1;
    memcpy(w->word[w->n], text, length);
    return (int32_t)w->n++;
}

void weft__words_free(words *w)
{
    for (size_t i = 0; i < w->n; i++) free(w->word[i]);
    free(w->word);
}

static bool is_punctuation(char c)
{
    return (unsigned char)c < 0x80 && ispunct((unsigned char)c);
}

static size_t characters_of(const char *text, size_t bytes)
{
    size_t n = 0;
    for (const char *end = text + bytes; text < end; n++) weft__text_next(&text);
    return n;
}

/* Adds the ids of a word. With `apart`, punctuation at its end, or else at its beginning, is a word
 * of its own, as in chrF++. */
static bool add_word(words *w, symbols *s, const char *text, size_t length, bool apart)
{
    size_t cut = 0;
    if (apart && characters_of(text, length) > 1) {
        if (is_punctuation(text[length - 1]))
            cut = length - 1;
        else if (is_punctuation(text[0]))
            cut = 1;
    }
    if (cut) {
        int32_t id = id_of(w, text, cut);
        if (id < 0) return false;
        s->ids[s->n++] = id;
    }
    int32_t id = id_of(w, text + cut, length - cut);
    s->ids[s->n++] = id;
    return id >= 0;
}

bool weft__symbols_of_words(words *w, const char *text, bool apart, symbols *s)
{
    *s = (symbols){malloc((2 * strlen(text) + 1) * sizeof *s->ids), 0};
    bool good = s->ids != NULL;
    while (good && *text) {
        const char *begin = text, *end = text;
        while (*text) {
            end = text;
            if (weft__text_is_space(weft__text_next(&text))) break;
            end = text;
        }
        if (end > begin) good = add_word(w, s, begin, (size_t)(end - begin), apart);
    }
    return good;
}

bool weft__symbols_of_characters(const char *text, symbols *s)
{
    *s = (symbols){malloc((strlen(text) + 1) * sizeof *s->ids), 0};
    while (s->ids && *text) {
        int32_t c = weft__text_next(&text);
        if (!weft__text_is_space(c)) s->ids[s->n++] = c;
    }
    return s->ids != NULL;
}

static int compare_ngrams(const int32_t *a, const int32_t *b, size_t order)
{
    for (size_t i = 0; i < order; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int by_ngram(const void *a, const void *b, void *order)
{
    return compare_ngrams(*(const int32_t *const *)a, *(const int32_t *const *)b,
                          *(const size_t *)order);
}

typedef struct ngrams {
    const int32_t **at; /* sorted */
    size_t n;
} ngrams;

static bool ngrams_of(const symbols *s, size_t order, ngrams *g)
{
    g->n = s->n < order ? 0 : s->n - order + 1;
    g->at = malloc((g->n + 1) * sizeof *g->at);
    if (!g->at) return false;
    for (size_t i = 0; i < g->n; i++) g->at[i] = s->ids + i;
    weft__sort(g->at, g->n, sizeof *g->at, by_ngram, &order);
    return true;
}

/* Counts the occurrences of the n-gram at *index in sorted order, and advances *index past them. */
static size_t count_here(const ngrams *g, const int32_t *ngram, size_t order, size_t *index)
{
    size_t n = 0;
    while (*index < g->n && compare_ngrams(g->at[*index], ngram, order) < 0) (*index)++;
    while (*index < g->n && !compare_ngrams(g->at[*index], ngram, order)) {
        (*index)++;
        n++;
    }
    return n;
}

bool weft__ngram_matches(const symbols *x, const symbols *references, size_t n, size_t order,
                         size_t *matches)
{
    ngrams mine = {NULL, 0}, *theirs = calloc(n + 1, sizeof *theirs);
    size_t *indices = calloc(n + 1, sizeof *indices), at = 0;
    bool good = theirs && indices && ngrams_of(x, order, &mine);
    for (size_t r = 0; good && r < n; r++) good = ngrams_of(&references[r], order, &theirs[r]);
    *matches = 0;
    while (good && at < mine.n) {
        const int32_t *ngram = mine.at[at];
        size_t count = count_here(&mine, ngram, order, &at), max = 0;
        for (size_t r = 0; r < n; r++) {
            size_t have = count_here(&theirs[r], ngram, order, &indices[r]);
            if (have > max) max = have;
        }
        *matches += count < max ? count : max;
    }
    for (size_t r = 0; theirs && r < n; r++) free(theirs[r].at);
    free(theirs);
    free(indices);
    free(mine.at);
    return good;
}

size_t weft__ngram_count(const symbols *s, size_t order)
{
    return s->n < order ? 0 : s->n - order + 1;
}
