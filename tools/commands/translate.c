/* weft translate: translates the lines of standard input to standard output, in order.
 *
 * Lines are read in chunks and sorted by length. All sentences of a batch have the same padded
 * length, which depends on no other sentence. The translations are put back in order. */
#include "decoding/alignment.h"
#include "decoding/share.h"
#include "parallel.h"
#include "picture.h"

#include <stdlib.h>
#include <string.h>

/* In the order of weft_length_penalty and weft_beam_stop. */
#define PENALTIES "wu|power"
#define STOPS     "first|bound"

typedef struct arguments {
    decoding_args shared;
    const char *picture, *alignments;
    int64_t beams, nbest, max_length, max_source_len, layer, head;
    double alpha, ratio;
    weft_length_penalty penalty;
    weft_beam_stop stop;
    bool sample;
} arguments;

static void check(void *into, const tool_parser *parser)
{
    arguments *a = into;
    if (a->picture) plot_check_name(a->picture, "--attention", parser);
    if (a->picture && !strcmp(a->picture, "-"))
        tool_usage_error(parser, "--attention needs a file: standard output has the translations");
    if (a->alignments && !strcmp(a->alignments, "-"))
        tool_usage_error(parser, "--alignments needs a file: standard output has the translations");
    if (a->beams && a->nbest > a->beams) tool_usage_error(parser, "--nbest is larger than --beam");
    if (a->beams && a->sample) tool_usage_error(parser, "--sample and --beam exclude each other");
    if (a->shared.sampling.draws && !a->sample)
        tool_usage_error(parser,
                         "--temperature, --top-k, --top-p, --min-p and --seed need --sample");
    if (a->sample && a->shared.sampling.temperature == 0)
        tool_usage_error(parser, "--sample needs a temperature over 0");
    if (a->picture && a->shared.with.n)
        tool_usage_error(parser, "--attention shows one model, so it excludes --with");
    if (a->shared.sampling.min_length >= a->max_length)
        tool_usage_error(parser, "--min-length must be below --max-length");
    if (!a->beams) a->beams = a->nbest ? a->nbest : 1;
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"beam", "N", FIELD(beams),
     "open hypotheses of beam search (default: those of --nbest; 1: greedy)", 1, 1024, .group = 1},
    {"length-penalty", "A", FIELD(alpha), "divide scores by the length penalty to the power of A",
     -100, 100, .group = 1},
    {"penalty", PENALTIES, FIELD(penalty),
     "length penalty: (5 + length) / 6 (wu), or the length (power)", .group = 1},
    {"stop", STOPS, FIELD(stop),
     "first: stop once as many hypotheses have ended as there are beams; bound: once none can "
     "become better",
     .group = 1},
    {"nbest", "N", FIELD(nbest),
     "print the N best texts, or N samples with --sample, as LINE ||| TEXT ||| SCORE", 1, 1024,
     .group = 1},
    {"max-length", "N", FIELD(max_length), "maximum tokens of a translation", 1, 1 << 20,
     .group = 1},
    {"max-ratio", "R", FIELD(ratio),
     "limit translations to R times the tokens of the source, plus 10; --min-length prevails", 0,
     1e6, .group = 1},
    {"max-source", "N", FIELD(max_source_len), "cut sources after N tokens", 2, 1 << 20,
     .group = 1},
    {"sample", NULL, FIELD(sample), "sample tokens by their probabilities", .group = 2},
    {"attention", "FILE", FIELD(picture),
     "draw the attention weights of the first line's translation over its source: FILE.svg or "
     "FILE.png",
     .group = 3},
    {"alignments", "FILE", FIELD(alignments),
     "write for each line pairs I-J: word J of the translation attends most to word I of the "
     "source, each from 0",
     .group = 3},
    {"layer", "N", FIELD(layer), "layer of picture and alignments, from 0 (default: the last)", 0,
     1000, .group = 3},
    {"head", "N", FIELD(head), "head of picture and alignments, from 0 (default: the mean of all)",
     0, 1000, .group = 3},
    {TOOL_INCLUDED(arguments, shared, decoding_options)},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "FOLDER",
    .doc =
        "Translates lines from standard input with the model in FOLDER, a run of `weft train` or "
        "`weft convert`. An empty line stays empty.",
    .check = check};

/* ---- Translating ---- */

typedef struct translator {
    const arguments *a;
    decoding d;
    bool drawn; /* the picture, if one is wanted */
    aligner pictured, aligned;
} translator;

/* Maximum tokens of a translation, by the tokens of its source. */
static int64_t max_tokens(const arguments *a, int64_t source)
{
    double max = a->ratio * (double)source + 10, min = (double)a->shared.sampling.min_length + 1;
    if (max < min) max = min;
    return max < (double)a->max_length ? (int64_t)max : a->max_length;
}

static bool load(translator *t)
{
    const arguments *a = t->a;
    decoding *d = &t->d;
    int64_t max = max_tokens(a, a->max_source_len);
    if (!decoding_open(d, &a->shared, a->beams, max, a->max_source_len)) return false;
    d->way = a->sample ? DECODING_SAMPLE : a->beams == 1 ? DECODING_GREEDY : DECODING_BEAM;
    d->options.nbest = a->nbest ? a->nbest : 1;
    d->options.penalty = a->penalty;
    d->options.alpha = a->alpha;
    d->options.stop = a->stop;
    if (weft_decoder_info_of(d->decoder).has_source) return true;
    return decoding_fail(d, WEFT_BAD_ARGUMENT, d->run.model->name,
                         "is a language model and cannot translate (see `weft generate`)");
}

/* Cuts a source that is too long. */
static bool encode(void *context, text_line *l)
{
    translator *t = context;
    size_t room = (size_t)t->d.max_source_len, whole;
    if (!text_line_encode(l, &t->d.run, TEXT_SOURCE, room, &whole, &t->d.error)) return false;
    t->d.counts.cut += whole > room;
    l->max_tokens = max_tokens(t->a, (int64_t)l->n_ids);
    if (l->max_tokens > t->d.max_len) l->max_tokens = t->d.max_len;
    return true;
}

/* ---- Attention weights and alignments ---- */

static bool draw_attention(translator *t, const text_line *l)
{
    const weft_hypothesis *h = &l->found[0];
    size_t rows = alignment_rows(l), columns = l->n_ids;
    double *weights = alignment_weights(&t->pictured, l);
    const char **labels = calloc(rows + columns, sizeof *labels);
    bool good = weights && labels;
    if (!labels) decoding_fail(&t->d, WEFT_NO_MEMORY, "attention", "out of memory");
    if (good) {
        for (size_t i = 0; i < columns; i++)
            labels[i] = weft_tokenizer_piece(t->d.run.source, l->ids[i]);
        for (size_t i = 0; i < rows; i++)
            labels[columns + i] = weft_tokenizer_piece(
                t->d.run.target, i < h->length ? h->tokens[i] : t->d.run.ends[0]);
        heat_map map = {.title = "attention weights of the source's tokens, for each target token",
                        .columns = labels,
                        .rows = labels + columns,
                        .n_columns = columns,
                        .n_rows = rows,
                        .values = weights};
        good = plot_write_heat(&map, t->a->picture) == EXIT_GOOD;
        if (!good) decoding_fail(&t->d, WEFT_IO, t->a->picture, "cannot be drawn");
    }
    free(weights);
    free(labels);
    return good;
}

/* Draws the first line that has a translation, on the rank that has this line. */
static bool draw_first(translator *t, const text_lines *lines)
{
    size_t i = 0;
    while (i < lines->n && !alignment_rows(&lines->line[i])) i++;
    const int rank = share_first(i < lines->n, &t->d.error);
    t->drawn = rank >= 0;
    const bool own = t->drawn && rank == (tool_world() ? tool_world()->rank : 0);
    return t->d.error.status == WEFT_OK && (!own || draw_attention(t, &lines->line[i]));
}

/* Draws the picture, once, and writes the alignments of all lines. */
static bool show_attention(void *context, const text_lines *lines)
{
    translator *t = context;
    if (t->a->picture && !t->drawn && !draw_first(t, lines)) return false;
    return !t->a->alignments || alignment_write(&t->aligned, lines);
}

/* Fails if an output is a file of the models. */
static bool check_outputs(translator *t)
{
    const decoding_args *shared = &t->a->shared;
    const char *outputs[] = {t->a->picture, t->a->alignments};
    for (size_t i = 0; i < 2; i++) {
        weft_status status = WEFT_OK;
        if (!outputs[i]) continue;
        if (shared->checkpoint)
            status = tool_check_output(outputs[i], shared->checkpoint, &t->d.error);
        if (status == WEFT_OK) status = tool_check_output(outputs[i], shared->folder, &t->d.error);
        for (size_t k = 0; k < shared->with.n && status == WEFT_OK; k++)
            status = tool_check_output(outputs[i], shared->with.at[k], &t->d.error);
        if (status != WEFT_OK) return false;
    }
    return true;
}

static bool open_attention(translator *t)
{
    const arguments *a = t->a;
    int threads = a->shared.threads;
    return check_outputs(t) &&
           (!a->picture || alignment_open(&t->pictured, &t->d.run, a->layer, a->head, threads, NULL,
                                          &t->d.error)) &&
           (!a->alignments || alignment_open(&t->aligned, &t->d.run, a->layer, a->head, threads,
                                             a->alignments, &t->d.error));
}

int cmd_translate(int argc, char **argv)
{
    arguments a = {.shared = DECODING_DEFAULT,
                   .max_length = 256,
                   .max_source_len = 256,
                   .ratio = 2,
                   .alpha = 0.6,
                   .layer = -1,
                   .head = -1};
    tool_parse(&command, argc, argv, &a);
    translator t = {.a = &a};
    const decoding_work work = {&t, encode, a.picture || a.alignments ? show_attention : NULL,
                                a.nbest > 0};
    /* The other ranks wait for rank 0, which may wait long for its input. */
    if (tool_world()) tool_world()->seconds = 0;
    bool good = load(&t) && open_attention(&t);
    good = share_agree(&t.d.error) && good && decoding_input(&t.d, &work);
    bool written = alignment_close(&t.aligned);
    good = good && written;
    alignment_close(&t.pictured);
    if (t.d.counts.cut)
        fprintf(stderr, "weft: %zu of %zu lines had more than %lld tokens and were cut\n",
                t.d.counts.cut, t.d.lines, (long long)t.d.max_source_len);
    decoding_print_notes(&t.d);
    if (good && a.picture && !t.drawn && tool_is_first())
        tool_fail_text(a.picture, "cannot be drawn: no line has a translation");
    if (good && a.shared.stats) decoding_print_stats(&t.d);
    int status = good ? EXIT_GOOD : tool_fail(&t.d.error);
    decoding_close(&t.d);
    return status;
}
