/* See decoding.h. */
#include "decoding.h"
#include "parallel.h"
#include "share.h"
#include "text/line_numbers.h"

#include "text_file.h"

#include "base/text.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Opening ---- */

bool decoding_fail(decoding *d, weft_status status, const char *where, const char *message)
{
    weft_error_set(&d->error, status, where, "%s", message);
    return false;
}

static bool no_memory(decoding *d)
{
    return decoding_fail(d, WEFT_NO_MEMORY, "decoding", "out of memory");
}

/* Sets the options of the searches from the command line. */
static weft_search_options search_options(const sampling_args *a)
{
    return (weft_search_options){.min_len = a->min_length,
                                 .no_repeat_ngram = a->no_repeat,
                                 .repetition_penalty = a->repetition_penalty,
                                 .temperature = a->temperature,
                                 .top_k = a->top_k,
                                 .top_p = a->top_p,
                                 .min_p = a->min_p,
                                 .seed = (uint64_t)a->seed};
}

/* Sets the ids that end texts, and those that are banned. */
static bool set_ids(decoding *d)
{
    const trained_run *run = &d->run;
    d->options.has_eos = run->n_ends > 0;
    d->options.eos = run->n_ends ? run->ends[0] : 0;
    d->options.ends = run->ends + 1;
    d->options.n_ends = run->n_ends > 1 ? run->n_ends - 1 : 0;
    d->banned = trained_banned(run, &d->options.n_banned);
    d->options.banned = d->banned;
    return d->banned || no_memory(d);
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The positions that a text can use. A language model with positions is unreliable beyond those of
 * its training. Recurrent models, and models that translate, have no such limit. */
static int64_t context_of(const decoding *d, const trained_run *run)
{
    if (d->a->context) return d->a->context;
    bool goes_on = run->traits.source_vocab || run->traits.recurrent || !run->trained_len;
    return goes_on ? INT64_MAX : run->trained_len;
}

/* Lowers max_len and max_source_len to the limits of the run's model. */
static bool fit_positions(decoding *d, const trained_run *run)
{
    const int64_t limit = run->traits.max_positions;
    if (!trained_has_positions(run, d->a->context, &d->error)) return false;
    d->max_len = lesser(lesser(d->max_len, limit), context_of(d, run));
    d->max_source_len = lesser(d->max_source_len, limit);
    return true;
}

bool decoding_open(decoding *d, const decoding_args *a, int64_t beams, int64_t max_len,
                   int64_t max_source_len)
{
    *d = (decoding){.a = a,
                    .options = search_options(&a->sampling),
                    .max_len = max_len,
                    .max_source_len = max_source_len};
    if (!trained_open(&d->run, a->folder, a->checkpoint, &d->error) || !set_ids(d) ||
        !decoding_open_others(d))
        return false;
    d->keep_lines = d->run.documents;
    for (size_t i = 0; i < decoding_models(d); i++)
        if (!fit_positions(d, decoding_run(d, i))) return false;
    weft_decoder_options o = {.sentences = a->batch,
                              .beams = beams,
                              .max_len = d->max_len,
                              .max_source_len = d->max_source_len,
                              .session.threads = a->threads,
                              .recompute = a->recompute,
                              .cache = a->cache};
    return decoding_make(d, &o, false);
}

void decoding_close(decoding *d)
{
    answer_rule_close(&d->rule);
    decoding_close_all(d);
    free(d->banned);
}

/* ---- Lines ---- */

/* Reads up to `max` lines, without their ends, into an empty list. */
static bool read_lines(decoding *d, text_lines *lines, size_t max)
{
    char *text = NULL;
    size_t capacity = 0, length;
    while (lines->n < max && weft__text_read_line(stdin, &text, &capacity, &length)) {
        if (lines->n == lines->capacity) {
            size_t wanted = lines->capacity ? 2 * lines->capacity : 64;
            text_line *grown = realloc(lines->line, wanted * sizeof *grown);
            if (!grown) {
                free(text);
                return no_memory(d);
            }
            lines->line = grown;
            lines->capacity = wanted;
        }
        if (!weft_text_is_utf8(text, length)) weft__text_list_line(&d->invalid, d->lines + 1);
        for (size_t i = 0; i < length; i++)
            if (!text[i]) text[i] = ' ';
        lines->line[lines->n++] = (text_line){.text = text, .number = d->lines++};
        text = NULL;
        capacity = 0;
    }
    free(text);
    return lines->n == max || weft__text_at_end(stdin, "input", &d->error);
}

static void clear_lines(text_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        text_line *l = &lines->line[i];
        for (size_t k = 0; k < l->n_found; k++) {
            free((void *)(uintptr_t)l->found[k].tokens);
            free((void *)(uintptr_t)l->found[k].log_probs);
        }
        for (size_t k = 0; k < l->n_growing; k++) growing_close(&l->growing[k]);
        decoding_end_answers(l);
        free(l->growing);
        free(l->found);
        free(l->ids);
        free(l->text);
    }
    free(lines->line);
    *lines = (text_lines){NULL, 0, 0};
}

bool text_line_encode(text_line *line, const trained_run *run, text_part part, size_t max,
                      size_t *whole, weft_error *error)
{
    encoded_text e;
    if (!trained_encode(run, part, line->text, &e, error)) return false;
    const size_t around = e.before + e.after, extra = e.n > max ? e.n - max : 0;
    const size_t cut = extra < e.n - around ? extra : e.n - around;
    int32_t *from = part == TEXT_PROMPT ? e.ids + e.before : e.ids + e.n - e.after - cut;
    memmove(from, from + cut, (size_t)(e.ids + e.n - from - (ptrdiff_t)cut) * sizeof *from);
    *whole = part == TEXT_SOURCE && e.n == around ? 0 : e.n;
    line->ids = e.ids;
    line->n_ids = *whole ? e.n - cut : 0;
    return true;
}

/* Copies the hypotheses of one sentence from a result. */
static bool keep_found(text_line *line, const weft_search_result *result, size_t sentence)
{
    size_t first = result->first[sentence], n = result->first[sentence + 1] - first;
    line->found = calloc(n + 1, sizeof *line->found);
    for (size_t k = 0; line->found && k < n; k++) {
        weft_hypothesis h = result->hypotheses[first + k];
        int32_t *tokens = calloc(h.length + 1, sizeof *tokens);
        double *log_probs = calloc(h.length + 1, sizeof *log_probs);
        if (tokens) memcpy(tokens, h.tokens, h.length * sizeof *tokens);
        if (log_probs) memcpy(log_probs, h.log_probs, (h.length + h.ended) * sizeof *log_probs);
        h.tokens = tokens;
        h.log_probs = log_probs;
        line->found[line->n_found++] = h;
        if (!tokens || !log_probs) return false;
    }
    return line->found != NULL;
}

/* ---- Searching ---- */

static bool has_source(const decoding *d)
{
    return weft_decoder_info_of(d->decoder).has_source;
}

/* The growing texts of a search. */
typedef struct watch {
    decoding *d;
    growing_text *const *growing; /* [sentences][nbest] */
} watch;

/* Adds a token to its text; false where it ends, or after an error. */
static bool take_token(void *context, size_t sentence, size_t row, const int32_t *tokens, size_t n)
{
    const watch *w = context;
    decoding *d = w->d;
    growing_text *g = w->growing[sentence * (size_t)d->options.nbest + row];
    return growing_add(g, tokens[n - 1], &d->error) == WEFT_OK &&
           (!d->stream || growing_print(g, d->keep_lines, &d->error) == WEFT_OK) && !g->stopped;
}

weft_search_result *decoding_search(decoding *d, bool slider, const weft_search_input *inputs,
                                    size_t n, growing_text *const *growing, void *const *answers)
{
    weft_search_model model = decoding_model(d, slider);
    weft_search_options o = d->options;
    watch w = {d, growing};
    weft_search_result *r;
    if (growing) {
        o.found = take_token;
        o.found_context = &w;
    }
    if (answers) {
        o.allows = answer_rule_allows(&d->rule);
        o.allows_contexts = answers;
    }
    if (d->way == DECODING_SAMPLE)
        r = weft_search_sample(&model, inputs, n, &o, &d->error);
    else if (d->way == DECODING_BEAM)
        r = weft_search_beam(&model, inputs, n, &o, &d->error);
    else
        r = weft_search_greedy(&model, inputs, n, &o, &d->error);
    if (d->error.status == WEFT_OK) return r;
    weft_search_result_free(r);
    return NULL;
}

/* Begins the texts of a line, if they are streamed or have stop texts. */
static bool open_growing(decoding *d, text_line *l)
{
    if (!d->stops.n && !d->stream) return true;
    l->growing = calloc((size_t)d->options.nbest, sizeof *l->growing);
    if (!l->growing) return no_memory(d);
    while (l->n_growing < (size_t)d->options.nbest)
        if (growing_open(&l->growing[l->n_growing++], d->run.target, &d->stops, l->text, l->ids,
                         l->n_ids, &d->error) != WEFT_OK)
            return false;
    return true;
}

/* Searches a batch whose sources the decoders have read. */
static weft_search_result *search(decoding *d, text_line *const *lines, size_t n)
{
    const trained_run *run = &d->run;
    const size_t each = (size_t)d->options.nbest;
    weft_search_input *inputs = calloc(n, sizeof *inputs);
    growing_text **growing = calloc(n * each, sizeof *growing);
    void **answers = calloc(n * each, sizeof *answers);
    bool prompts = !has_source(d), good = (inputs && growing && answers) || no_memory(d);
    for (size_t i = 0; good && i < n; i++) {
        good = open_growing(d, lines[i]) && decoding_begin_answers(d, lines[i]);
        for (size_t k = 0; k < lines[i]->n_growing; k++)
            growing[i * each + k] = &lines[i]->growing[k];
        for (size_t k = 0; k < lines[i]->n_answers; k++)
            answers[i * each + k] = lines[i]->answers[k];
        size_t prefix = prompts ? lines[i]->n_ids : run->n_begins;
        int64_t room = d->max_len + 1 - (int64_t)prefix;
        inputs[i] = (weft_search_input){prompts ? lines[i]->ids : run->begins, prefix,
                                        lesser(lines[i]->max_tokens, room), lines[i]->number};
    }
    weft_search_result *r = NULL;
    if (good)
        r = decoding_search(d, false, inputs, n, lines[0]->growing ? growing : NULL,
                            lines[0]->answers ? answers : NULL);
    free(answers);
    free(inputs);
    free(growing);
    return r;
}

static bool start(decoding *d, text_line *const *lines, size_t n)
{
    if (!has_source(d)) return decoding_start(d, false, NULL, NULL, 0);
    const int32_t **sources = calloc(n, sizeof *sources);
    size_t *lengths = calloc(n, sizeof *lengths);
    bool good = (sources && lengths) || no_memory(d);
    for (size_t i = 0; good && i < n; i++) {
        sources[i] = lines[i]->ids;
        lengths[i] = lines[i]->n_ids;
    }
    good = good && decoding_start(d, false, sources, lengths, n);
    free(sources);
    free(lengths);
    return good;
}

static bool search_batch(decoding *d, text_line *const *lines, size_t n)
{
    double started = tool_seconds();
    weft_search_result *r = start(d, lines, n) ? search(d, lines, n) : NULL;
    bool good = r != NULL;
    for (size_t i = 0; good && i < n; i++) good = keep_found(lines[i], r, i) || no_memory(d);
    weft_search_result_free(r);
    for (size_t i = 0; good && i < n; i++) good = decoding_move_answers(d, lines[i]);
    good = good && (has_source(d) || decoding_slide(d, lines, n));
    for (size_t i = 0; good && i < n; i++) good = decoding_check_answers(d, lines[i]);
    d->counts.seconds += tool_seconds() - started;
    for (size_t i = 0; good && i < n; i++)
        for (size_t k = 0; k < lines[i]->n_found; k++)
            d->counts.tokens += lines[i]->found[k].length + lines[i]->found[k].ended;
    return good;
}

/* Shorter lines first, equal ones in order. */
static int by_length(const void *a, const void *b)
{
    const text_line *x = *(text_line *const *)a, *y = *(text_line *const *)b;
    if (x->n_ids != y->n_ids) return x->n_ids < y->n_ids ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Searches all lines, in batches of one padded length. */
static bool search_lines(decoding *d, text_lines *lines)
{
    text_line **sorted = calloc(lines->n + 1, sizeof *sorted);
    size_t n = 0;
    bool good = sorted || no_memory(d);
    for (size_t i = 0; good && i < lines->n; i++)
        if (lines->line[i].n_ids) sorted[n++] = &lines->line[i];
    if (good) qsort(sorted, n, sizeof *sorted, by_length);
    for (size_t i = 0, end; good && i < n; i = end) {
        int64_t padded = weft_decoder_padded(d->decoder, (int64_t)sorted[i]->n_ids);
        for (end = i + 1; end < n && end - i < (size_t)d->a->batch; end++)
            if (weft_decoder_padded(d->decoder, (int64_t)sorted[end]->n_ids) != padded) break;
        good = search_batch(d, sorted + i, end - i);
    }
    free(sorted);
    return good;
}

/* ---- All lines ---- */

static bool decode_lines(decoding *d, const decoding_work *work, text_lines *lines)
{
    bool good = true;
    for (size_t i = 0; good && i < lines->n; i++)
        good = work->encode(work->context, &lines->line[i]);
    good = good && search_lines(d, lines);
    if (!good) decoding_end_streamed(lines);
    return decoding_print(d, lines, work->scores) &&
           (!work->after || work->after(work->context, lines));
}

bool decoding_input(decoding *d, const decoding_work *work)
{
    const int64_t ranks = tool_world() ? tool_world()->size : 1;
    bool good = true;
    int64_t chunk = d->a->chunk ? d->a->chunk : system_is_terminal(stdin) ? 1 : 1024 * ranks;
    if (d->stream) chunk = 1;
    while (good) {
        text_lines lines = {NULL, 0, 0};
        size_t n;
        if (tool_is_first()) read_lines(d, &lines, (size_t)chunk);
        good = share_lines(&lines, &n, &d->error) && decode_lines(d, work, &lines);
        clear_lines(&lines);
        if (!n) break;
    }
    return good && share_counts(d);
}

bool decoding_text(decoding *d, const decoding_work *work, const char *text)
{
    text_lines one = {calloc(1, sizeof *one.line), 1, 1};
    if (!one.line) return no_memory(d);
    one.line->text = strdup(text);
    one.line->number = d->lines++;
    bool good = one.line->text ? decode_lines(d, work, &one) : no_memory(d);
    clear_lines(&one);
    return good;
}
