/* See alignment.h. weft_scorer computes the weights, for a few lines at a time. */
#include "alignment.h"

#include "parallel.h"
#include "share.h"
#include "base/file.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LINES 128 /* lines whose weights are in memory at a time */

static bool fail(aligner *a, weft_status status, const char *where, const char *message)
{
    weft_error_set(a->error, status, where, "%s", message);
    return false;
}

static bool no_memory(aligner *a)
{
    return fail(a, WEFT_NO_MEMORY, "alignment", "out of memory");
}

/* ---- Opening ---- */

/* After a failure that set errno. */
static bool cannot_write(aligner *a)
{
    weft_error_set(a->error, WEFT_IO, a->path, "cannot be written: %s", strerror(errno));
    return false;
}

/* Checks that the model has attention weights, with a source and a text of an end token each. */
static bool try_weights(aligner *a)
{
    static const int32_t ends[2] = {SPM_BOS, SPM_EOS};
    double weight;
    const weft_scorer_row row = {ends + 1, 1, ends, 2, &weight};
    return weft_scorer_run(a->scorer, &row, 1, a->error) == WEFT_OK;
}

bool alignment_open(aligner *a, const trained_run *run, int64_t layer, int64_t head, int threads,
                    const char *path, weft_error *error)
{
    *a = (aligner){.run = run, .path = path, .error = error};
    const weft_scorer_options o = {
        .session.threads = threads, .weights = true, .layer = layer + 1, .head = head + 1};
    if (run->published)
        return fail(a, WEFT_BAD_ARGUMENT, run->vocabulary_path[1],
                    "attention weights are shown for vocabularies of SentencePiece only");
    a->scorer = weft_scorer_new(&run->config, run->params, &o, error);
    if (!a->scorer || !try_weights(a)) return false;
    if (!path || !tool_is_first()) return true;
    a->writes = weft__file_begin_stream(&a->writer, path);
    return a->writes || cannot_write(a);
}

bool alignment_close(aligner *a)
{
    bool good = !a->writes || weft__file_commit(&a->writer) || cannot_write(a);
    a->writes = false;
    weft_scorer_free(a->scorer);
    a->scorer = NULL;
    return good;
}

/* ---- Weights ---- */

size_t alignment_rows(const text_line *line)
{
    return line->n_found ? line->found[0].length + line->found[0].ended : 0;
}

/* Begin token, hypothesis and end token, and memory for the weights. */
static bool make_row(aligner *a, const text_line *line, weft_scorer_row *row)
{
    const weft_hypothesis *h = &line->found[0];
    size_t n = alignment_rows(line);
    int32_t *tokens = calloc(n + 1, sizeof *tokens);
    double *weights = calloc(n * line->n_ids + 1, sizeof *weights);
    *row = (weft_scorer_row){line->ids, line->n_ids, tokens, n + 1, weights};
    if (!tokens || !weights) return no_memory(a);
    tokens[0] = SPM_BOS;
    if (h->length) memcpy(tokens + 1, h->tokens, h->length * sizeof *tokens);
    if (h->ended) tokens[n] = SPM_EOS;
    return true;
}

double *alignment_weights(aligner *a, const text_line *line)
{
    weft_scorer_row row;
    bool good = make_row(a, line, &row) && weft_scorer_run(a->scorer, &row, 1, a->error) == WEFT_OK;
    free((void *)(uintptr_t)row.tokens);
    if (good) return row.scores;
    free(row.scores);
    return NULL;
}

/* ---- Words ---- */

/* The bytes of a blank at the beginning of a text (white space, or a character that weft_text_clean
 * prints as a space); 0 if there is none. */
static size_t blank_bytes(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] && (c[0] <= ' ' || c[0] == 0x7F)) return 1;
    if (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) return 2;
    return c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9) ? 3 : 0;
}

/* Assigns each byte of a text its word, and each blank the next word; word_at[length] is the number
 * of words, which is returned. */
static size_t find_words(const char *text, size_t *word_at)
{
    size_t words = 0, at = 0;
    bool within = false;
    while (text[at]) {
        size_t blank = blank_bytes(text + at);
        words += within && blank;
        within = !blank;
        for (size_t k = blank ? blank : 1; k; k--) word_at[at++] = words;
    }
    return word_at[at] = words + within;
}

/* The word of each piece: that of its first byte that is not a blank, or the next word. `spans`
 * are those of the pieces. */
static void words_of_pieces(const char *text, const size_t *word_at, const weft_text_span *spans,
                            size_t n, size_t *word)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = spans[i].begin, blank;
        while (at < spans[i].end && (blank = blank_bytes(text + at))) at += blank;
        word[i] = word_at[at];
    }
}

/* The words of the n pieces of a text; *words becomes the number of words, which also marks pieces
 * without a word. NULL on failure. */
static size_t *word_list(aligner *a, const char *text, const weft_text_span *spans, size_t n,
                         size_t *words)
{
    size_t *word_at = calloc(strlen(text) + 1, sizeof *word_at);
    size_t *word = calloc(n + 1, sizeof *word);
    if (word_at && word) {
        *words = find_words(text, word_at);
        words_of_pieces(text, word_at, spans, n, word);
    } else {
        no_memory(a);
        free(word);
        word = NULL;
    }
    free(word_at);
    return word;
}

/* Words of the source's tokens, [n_ids]; the end token has none. */
static size_t *source_words(aligner *a, const text_line *line, size_t *words)
{
    size_t n = line->n_ids, found, *word = NULL;
    weft_text_span *spans = calloc(n + 1, sizeof *spans);
    if (!spans)
        no_memory(a);
    else if (weft_tokenizer_encode(a->run->source, line->text, NULL, spans, n, &found, a->error) ==
             WEFT_OK)
        word = word_list(a, line->text, spans, n, words);
    if (word) word[n - 1] = *words;
    free(spans);
    return word;
}

/* Words of the hypothesis's tokens, without the end token. */
static size_t *target_words(aligner *a, const weft_hypothesis *h, size_t *words)
{
    char *text = NULL;
    size_t *word = NULL;
    weft_text_span *spans = calloc(h->length + 1, sizeof *spans);
    if (!spans)
        no_memory(a);
    else if (weft_tokenizer_decode(a->run->target, h->tokens, h->length, &text, spans, a->error) ==
             WEFT_OK)
        word = word_list(a, text, spans, h->length, words);
    free(text);
    free(spans);
    return word;
}

/* ---- Alignments ---- */

/* The word of each of n tokens; a token whose word is `count` has none. */
typedef struct token_words {
    size_t *word, n, count;
} token_words;

/* Prints the pairs that follow from the weights [target.n][source.n]. */
static bool print_pairs(aligner *a, const double *weights, token_words source, token_words target)
{
    const size_t source_count = source.count, target_count = target.count;
    double *sum = calloc(target_count * (source_count + 1) + 1, sizeof *sum);
    const char *blank = "";
    if (!sum) return no_memory(a);
    for (size_t i = 0; i < target.n; i++)
        for (size_t k = 0; k < source.n && target.word[i] < target_count; k++)
            sum[target.word[i] * (source_count + 1) + source.word[k]] += weights[i * source.n + k];
    for (size_t j = 0; j < target_count; j++) {
        const double *of = sum + j * (source_count + 1);
        size_t best = 0;
        for (size_t k = 1; k <= source_count; k++)
            if (of[k] > of[best]) best = k;
        if (best == source_count) continue;
        fprintf(a->file, "%s%zu-%zu", blank, best, j);
        blank = " ";
    }
    free(sum);
    return true;
}

static bool write_line(aligner *a, const text_line *line, const double *weights)
{
    const weft_hypothesis *h = &line->found[0];
    token_words source = {.n = line->n_ids}, target = {.n = h->length};
    source.word = source_words(a, line, &source.count);
    if (source.word) target.word = target_words(a, h, &target.count);
    const bool good = target.word && print_pairs(a, weights, source, target);
    free(source.word);
    free(target.word);
    return good;
}

/* Aligns at most LINES lines. */
static bool write_lines(aligner *a, const text_line *lines, size_t n)
{
    weft_scorer_row rows[LINES] = {{.source = NULL}};
    size_t made = 0;
    bool good = true;
    for (size_t i = 0; good && i < n; i++)
        if (alignment_rows(&lines[i])) good = make_row(a, &lines[i], &rows[made++]);
    good = good && weft_scorer_run(a->scorer, rows, made, a->error) == WEFT_OK;
    for (size_t i = 0, k = 0; good && i < n; i++) {
        if (alignment_rows(&lines[i])) good = write_line(a, &lines[i], rows[k++].scores);
        if (good) putc('\n', a->file);
    }
    for (size_t i = 0; i < made; i++) {
        free((void *)(uintptr_t)rows[i].tokens);
        free(rows[i].scores);
    }
    return good;
}

bool alignment_write(aligner *a, const text_lines *lines)
{
    text_stream out;
    bool good = text_stream_open(&out) || no_memory(a);
    a->file = out.file;
    for (size_t i = 0; good && i < lines->n; i += LINES)
        good = write_lines(a, lines->line + i, lines->n - i < LINES ? lines->n - i : LINES);
    if (a->file && !text_stream_close(&out) && good) good = no_memory(a);
    good = share_text(&out.text, &out.bytes, false, a->error) && good;
    if (good && a->writes) weft__file_write(&a->writer, out.text, out.bytes);
    free(out.text);
    a->file = NULL;
    return good;
}
