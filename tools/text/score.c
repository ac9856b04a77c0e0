/* See score.h. Counts n-grams by sorting their positions: O(n log n) for a line of n tokens. */
#include "score.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

/* ---- UTF-8 ---- */

/* The character at *text, which advances; 0x110000 + byte for a byte that begins none. */
static int32_t next_character(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    int length = s[0] < 0x80       ? 1
                 : s[0] >> 5 == 6  ? 2
                 : s[0] >> 4 == 14 ? 3
                 : s[0] >> 3 == 30 ? 4
                                   : 0;
    static const int32_t min[5] = {0, 0, 0x80, 0x800, 0x10000};
    int32_t c = length == 1 ? s[0] : s[0] & (0xff >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (s[i] >> 6 != 2)
            length = 0;
        else
            c = c << 6 | (s[i] & 0x3f);
    }
    if (!length || c < min[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        (*text)++;
        return 0x110000 + s[0];
    }
    *text += length;
    return c;
}

static size_t put_character(char *to, int32_t c)
{
    if (c >= 0x110000 || c < 0x80) {
        to[0] = (char)(c >= 0x110000 ? c - 0x110000 : c);
        return 1;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const int first[4] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | c >> (6 * more));
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return (size_t)more + 1;
}

/* White space as defined by Unicode. */
static bool is_space(int32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

char *score_lowercase(const char *line)
{
    locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    char *out = malloc(4 * strlen(line) + 1);
    size_t n = 0;
    while (out && *line) {
        int32_t c = next_character(&line);
        if (c < 0x80)
            c = tolower(c);
        else if (c < 0x110000 && locale)
            c = (int32_t)towlower_l((wint_t)c, locale);
        n += put_character(out + n, c);
    }
    if (out) out[n] = 0;
    if (locale) freelocale(locale);
    return out;
}

/* ---- Tokens ---- */

/* Copies the text and replaces every `from` by `to`, which is not longer. */
static void replace_all(char *text, const char *from, const char *to)
{
    size_t length = strlen(from), other = strlen(to);
    char *out = text;
    while (*text) {
        if (!strncmp(text, from, length)) {
            memcpy(out, to, other);
            out += other;
            text += length;
        } else {
            *out++ = *text++;
        }
    }
    *out = 0;
}

static bool stands_apart(unsigned char c)
{
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

static bool is_point(char c)
{
    return c == '.' || c == ',';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The four rules of mteval-v13a. Each is applied to the result of the one before, from left to
 * right, to matches that do not overlap. They separate: 0, punctuation other than . , - '; 1, a
 * point after a character that is not a digit; 2, a point before one; 3, a hyphen after a digit. */
static size_t apply_rule(int rule, const char *x, size_t n, char *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool two = i + 1 < n;
        if (rule == 0 && stands_apart((unsigned char)x[i])) {
            out[at++] = ' ';
            out[at++] = x[i];
            out[at++] = ' ';
        } else if ((rule == 1 && two && !is_digit(x[i]) && is_point(x[i + 1])) ||
                   (rule == 3 && two && is_digit(x[i]) && x[i + 1] == '-')) {
            out[at++] = x[i++];
            out[at++] = ' ';
            out[at++] = x[i];
            out[at++] = ' ';
        } else if (rule == 2 && two && is_point(x[i]) && !is_digit(x[i + 1])) {
            out[at++] = ' ';
            out[at++] = x[i++];
            out[at++] = ' ';
            out[at++] = x[i];
        } else {
            out[at++] = x[i];
        }
    }
    return at;
}

/* Leaves one space between words, and none around them. */
static void squeeze(char *text)
{
    const char *from = text;
    char *to = text;
    bool pending = false;
    while (*from) {
        const char *begin = from;
        if (is_space(next_character(&from))) {
            pending = to != text;
            continue;
        }
        if (pending) *to++ = ' ';
        pending = false;
        memmove(to, begin, (size_t)(from - begin));
        to += from - begin;
    }
    *to = 0;
}

char *score_tokens_13a(const char *line)
{
    static const char *const entities[][2] = {
        {"<skipped>", ""}, {"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}};
    size_t room = 3 * (strlen(line) + 2) * 2 + 1, n;
    char *a = malloc(room), *b = malloc(room);
    if (!a || !b) {
        free(a);
        free(b);
        return NULL;
    }
    a[0] = ' ';
    strcpy(a + 1, line);
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        replace_all(a + 1, entities[i][0], entities[i][1]);
    strcat(a, " ");
    n = strlen(a);
    for (int rule = 0; rule < 4; rule++) {
        n = apply_rule(rule, a, n, b);
        char *swap = a;
        a = b;
        b = swap;
    }
    a[n] = 0;
    free(b);
    squeeze(a);
    return a;
}

/* ---- N-grams ---- */

typedef struct symbols {
    int32_t *ids;
    size_t n;
} symbols;

/* The distinct words of one line and its references; a word's id is its index. */
typedef struct words {
    char **word;
    size_t n, capacity;
} words;

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
    if (!(w->word[w->n] = strndup(text, length))) return -1;
    return (int32_t)w->n++;
}

static void free_words(words *w)
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
    for (const char *end = text + bytes; text < end; n++) next_character(&text);
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

static bool symbols_of_words(words *w, const char *text, bool apart, symbols *s)
{
    *s = (symbols){malloc((2 * strlen(text) + 1) * sizeof *s->ids), 0};
    bool good = s->ids != NULL;
    while (good && *text) {
        const char *begin = text, *end = text;
        while (*text) {
            end = text;
            if (is_space(next_character(&text))) break;
            end = text;
        }
        if (end > begin) good = add_word(w, s, begin, (size_t)(end - begin), apart);
    }
    return good;
}

static bool symbols_of_characters(const char *text, symbols *s)
{
    *s = (symbols){malloc((strlen(text) + 1) * sizeof *s->ids), 0};
    while (s->ids && *text) {
        int32_t c = next_character(&text);
        if (!is_space(c)) s->ids[s->n++] = c;
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
    qsort_r(g->at, g->n, sizeof *g->at, by_ngram, &order);
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

/* Matches of x's n-grams; each is clipped to the maximum count in any reference. */
static bool clipped_matches(const symbols *x, const symbols *references, size_t n, size_t order,
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

static size_t ngram_count(const symbols *s, size_t order)
{
    return s->n < order ? 0 : s->n - order + 1;
}

/* ---- BLEU ---- */

static bool tokens_of(words *w, const char *line, symbols *s)
{
    char *tokens = score_tokens_13a(line);
    bool good = tokens && symbols_of_words(w, tokens, false, s);
    free(tokens);
    return good;
}

static size_t distance(size_t a, size_t b)
{
    return a > b ? a - b : b - a;
}

bool bleu_add(bleu *b, const char *line, const char *const *references, size_t n)
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
    for (size_t k = 0; good && k < BLEU_ORDER; k++) {
        size_t matches;
        good = clipped_matches(&mine, theirs, n, k + 1, &matches);
        b->matches[k] += matches;
        b->ngrams[k] += ngram_count(&mine, k + 1);
    }
    b->length += mine.n;
    b->reference_length += closest;
    for (size_t r = 0; theirs && r < n; r++) free(theirs[r].ids);
    free(theirs);
    free(mine.ids);
    free_words(&w);
    return good;
}

/* BLEU over the orders up to 4, or up to the longest n-gram of the line. */
static bleu_result score_bleu(const bleu *b, bool effective_order)
{
    bleu_result r = {.brevity = 1};
    double logs = 0, smooth = 1, length = (double)b->length;
    size_t any = 0;
    int orders = 0;
    if (b->length < b->reference_length)
        r.brevity = b->length ? exp(1 - (double)b->reference_length / length) : 0;
    for (int k = 0; k < BLEU_ORDER; k++) any += b->matches[k];
    if (!any) return r;
    for (; orders < BLEU_ORDER && b->ngrams[orders]; orders++) {
        double matches = (double)b->matches[orders];
        if (!b->matches[orders]) matches = 1 / (smooth *= 2);
        r.precisions[orders] = 100 * matches / (double)b->ngrams[orders];
        logs += log(r.precisions[orders]);
    }
    if (orders == BLEU_ORDER || effective_order) r.score = r.brevity * exp(logs / orders);
    return r;
}

bleu_result bleu_of(const bleu *b)
{
    return score_bleu(b, false);
}

bleu_result bleu_of_sentence(const bleu *b)
{
    return score_bleu(b, true);
}

void bleu_sum(bleu *b, const bleu *other)
{
    for (int k = 0; k < BLEU_ORDER; k++) {
        b->matches[k] += other->matches[k];
        b->ngrams[k] += other->ngrams[k];
    }
    b->length += other->length;
    b->reference_length += other->reference_length;
}

/* ---- chrF ---- */

void chrf_sum(chrf *c, const chrf *other)
{
    for (int k = 0; k < CHRF_CHARACTERS + CHRF_MAX_WORDS; k++) {
        c->matches[k] += other->matches[k];
        c->ngrams[k] += other->ngrams[k];
        c->reference_ngrams[k] += other->reference_ngrams[k];
    }
}

bool chrf_add(chrf *c, const char *line, const char *const *references, size_t n)
{
    words w = {NULL, 0, 0};
    symbols mine[2] = {{NULL, 0}, {NULL, 0}};
    bool good = symbols_of_characters(line, &mine[0]) && symbols_of_words(&w, line, true, &mine[1]);
    chrf best = {.words = c->words};
    double best_score = -1;
    for (size_t r = 0; good && r < n; r++) {
        symbols theirs[2] = {{NULL, 0}, {NULL, 0}};
        chrf one = {.words = c->words};
        good = symbols_of_characters(references[r], &theirs[0]) &&
               symbols_of_words(&w, references[r], true, &theirs[1]);
        for (int k = 0; good && k < CHRF_CHARACTERS + c->words; k++) {
            int kind = k >= CHRF_CHARACTERS;
            size_t order = (size_t)(kind ? k - CHRF_CHARACTERS : k) + 1;
            good = clipped_matches(&mine[kind], &theirs[kind], 1, order, &one.matches[k]);
            one.reference_ngrams[k] = ngram_count(&theirs[kind], order);
            if (one.reference_ngrams[k]) one.ngrams[k] = ngram_count(&mine[kind], order);
        }
        double score = chrf_of(&one);
        if (score > best_score) {
            best_score = score;
            best = one;
        }
        free(theirs[0].ids);
        free(theirs[1].ids);
    }
    chrf_sum(c, &best);
    free(mine[0].ids);
    free(mine[1].ids);
    free_words(&w);
    return good;
}

double chrf_of(const chrf *c)
{
    const double beta_squared = 4;
    double precision = 0, recall = 0, orders = 0;
    for (int k = 0; k < CHRF_CHARACTERS + c->words; k++) {
        if (!c->ngrams[k] || !c->reference_ngrams[k]) continue;
        precision += (double)c->matches[k] / (double)c->ngrams[k];
        recall += (double)c->matches[k] / (double)c->reference_ngrams[k];
        orders++;
    }
    if (precision + recall == 0) return 0;
    precision /= orders;
    recall /= orders;
    return 100 * (1 + beta_squared) * precision * recall / (beta_squared * precision + recall);
}
