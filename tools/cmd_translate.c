/* weft translate: lines of standard input, translated, to standard output in their order.
 *
 * Lines are read in chunks and sorted by length, so that sentences of one batch are padded to one
 * length that does not depend on their company; what comes out is put back in order. */
#include "plot.h"
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    const char *folder, *checkpoint, *picture;
    int threads;
    int64_t beams, nbest, batch, max_length, min_length, max_source, chunk, layer, head;
    double alpha, ratio;
    weft_length_penalty penalty;
    weft_beam_stop stop;
    bool stats, recompute;
    sampling_args sampling;
} arguments;

enum {
    KEY_THREADS = 256,
    KEY_CHECKPOINT,
    KEY_BEAM,
    KEY_PENALTY,
    KEY_PENALTY_KIND,
    KEY_STOP,
    KEY_NBEST,
    KEY_BATCH,
    KEY_CHUNK,
    KEY_MAX_LENGTH,
    KEY_MAX_RATIO,
    KEY_MIN_LENGTH,
    KEY_MAX_SOURCE,
    KEY_SAMPLE,
    KEY_ATTENTION,
    KEY_LAYER,
    KEY_HEAD,
    KEY_STATS,
    KEY_RECOMPUTE
};

static const struct argp_option options[] = {
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0,
     "parameters (default: FOLDER/best.safetensors if it is there, else FOLDER/model.safetensors)",
     0},
    {"threads", KEY_THREADS, "N", 0, "threads (default: all)", 0},
    {"batch", KEY_BATCH, "N", 0, "sentences at a time (default 16)", 0},
    {"chunk", KEY_CHUNK, "N", 0,
     "lines to read before the first comes out (default: 1024, from a terminal 1)", 0},
    {"beam", KEY_BEAM, "N", 0, "open hypotheses of beam search (default 1: greedy)", 1},
    {"length-penalty", KEY_PENALTY, "A", 0,
     "scores are divided by the length's penalty to the power of A (default 0.6)", 1},
    {"penalty", KEY_PENALTY_KIND, "wu|power", 0, "(5 + length) / 6 (default), or the length", 1},
    {"stop", KEY_STOP, "first|bound", 0,
     "stop once as many hypotheses have ended as there are beams (default), or once none can "
     "become "
     "better",
     1},
    {"nbest", KEY_NBEST, "N", 0, "print the N best as LINE ||| TEXT ||| SCORE", 1},
    {"max-length", KEY_MAX_LENGTH, "N", 0, "most tokens of a translation (default 256)", 1},
    {"max-ratio", KEY_MAX_RATIO, "R", 0,
     "and at most R times those of its source, and 10 (default 2)", 1},
    {"min-length", KEY_MIN_LENGTH, "N", 0, "fewest tokens of a translation (default 0)", 1},
    {"max-source", KEY_MAX_SOURCE, "N", 0, "tokens of a source beyond N are left out (default 256)",
     1},
    {"sample", KEY_SAMPLE, NULL, 0, "draw tokens by their probabilities", 2},
    SAMPLING_OPTIONS,
    {"attention", KEY_ATTENTION, "FILE.svg", 0,
     "draw where the translation of the first line looks in its source", 3},
    {"layer", KEY_LAYER, "N", 0, "of the picture, from 0 (default: the last)", 3},
    {"head", KEY_HEAD, "N", 0, "of the picture, from 0 (default: the mean of all)", 3},
    {"stats", KEY_STATS, NULL, 0, "tell the speed on standard error", 3},
    {"recompute", KEY_RECOMPUTE, NULL, 0, "without caches: run the whole model for each token", 3},
    {0}};

static int one_of(const char *text, const char *first, const char *second, struct argp_state *state)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        argp_error(state, "\"%s\" is neither %s nor %s", text, first, second);
    return strcmp(text, first) != 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    if (sampling_parse(&a->sampling, key, text, state)) return 0;
    switch (key) {
    case KEY_THREADS:
        a->threads = (int)tool_number(text, "a number of threads", 0, 1024, state);
        return 0;
    case KEY_CHECKPOINT:
        a->checkpoint = text;
        return 0;
    case KEY_BEAM:
        a->beams = tool_number(text, "a number of beams", 1, 1024, state);
        return 0;
    case KEY_PENALTY:
        a->alpha = tool_real(text, "an exponent", -100, 100, state);
        return 0;
    case KEY_PENALTY_KIND:
        a->penalty = (weft_length_penalty)one_of(text, "wu", "power", state);
        return 0;
    case KEY_STOP:
        a->stop = (weft_beam_stop)one_of(text, "first", "bound", state);
        return 0;
    case KEY_NBEST:
        a->nbest = tool_number(text, "a number of hypotheses", 1, 1024, state);
        return 0;
    case KEY_BATCH:
        a->batch = tool_number(text, "a number of sentences", 1, 65536, state);
        return 0;
    case KEY_CHUNK:
        a->chunk = tool_number(text, "a number of lines", 1, INT32_MAX, state);
        return 0;
    case KEY_MAX_LENGTH:
        a->max_length = tool_number(text, "a length", 1, 1 << 20, state);
        return 0;
    case KEY_MAX_RATIO:
        a->ratio = tool_real(text, "a ratio", 0, 1e6, state);
        return 0;
    case KEY_MIN_LENGTH:
        a->min_length = tool_number(text, "a length", 0, 1 << 20, state);
        return 0;
    case KEY_MAX_SOURCE:
        a->max_source = tool_number(text, "a length", 2, 1 << 20, state);
        return 0;
    case KEY_SAMPLE:
        a->sampling.sample = true;
        return 0;
    case KEY_ATTENTION:
        a->picture = text;
        return 0;
    case KEY_LAYER:
        a->layer = tool_number(text, "a layer", 0, 1000, state);
        return 0;
    case KEY_HEAD:
        a->head = tool_number(text, "a head", 0, 1000, state);
        return 0;
    case KEY_STATS:
        a->stats = true;
        return 0;
    case KEY_RECOMPUTE:
        a->recompute = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->folder) argp_error(state, "one folder only");
        a->folder = text;
        return 0;
    case ARGP_KEY_END:
        if (!a->folder) argp_error(state, "FOLDER is missing");
        if (a->nbest > a->beams) a->beams = a->nbest;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- Translating ---- */

typedef struct translator {
    const arguments *a;
    trained_run run;
    weft_decoder *decoder;
    int64_t max_length, max_source;
    size_t lines, cut, tokens;
    double seconds;
    weft_error error;
} translator;

static bool fail(translator *t, weft_status status, const char *where, const char *message)
{
    weft_error_set(&t->error, status, where, "%s", message);
    return false;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool load(translator *t)
{
    const arguments *a = t->a;
    if (!trained_open(&t->run, a->folder, a->checkpoint, &t->error)) return false;
    int64_t most = weft_model_most_positions(t->run.model, t->run.values);
    t->max_length = least(a->max_length, most);
    t->max_source = least(a->max_source, most);
    weft_decoder_options o = {.sentences = a->batch,
                              .beams = a->beams,
                              .most_len = t->max_length,
                              .most_source = t->max_source,
                              .threads = a->threads,
                              .recompute = a->recompute};
    t->decoder = weft_decoder_new(t->run.model, t->run.values, t->run.params, &o, &t->error);
    if (!t->decoder) return false;
    if (weft_decoder_get_info(t->decoder).has_source) return true;
    return fail(t, WEFT_BAD_ARGUMENT, t->run.model->name,
                "translates nothing: it is a language model (see `weft generate`)");
}

/* Shorter first; of equals the earlier. */
static int by_length(const void *a, const void *b)
{
    const text_line *x = *(text_line *const *)a, *y = *(text_line *const *)b;
    if (x->n_ids != y->n_ids) return x->n_ids < y->n_ids ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static bool translate_batch(translator *t, text_line *const *lines, size_t n)
{
    static const int32_t begin = SPM_BOS;
    const arguments *a = t->a;
    const int32_t **sources = calloc(n, sizeof *sources);
    size_t *lengths = calloc(n, sizeof *lengths);
    weft_search_input *inputs = calloc(n, sizeof *inputs);
    weft_search_result *r = NULL;
    weft_search_options o = sampling_options(&a->sampling);
    o.min_len = a->min_length;
    o.nbest = a->nbest ? a->nbest : 1;
    o.penalty = a->penalty;
    o.alpha = a->alpha;
    o.stop = a->stop;
    double started = tool_seconds();
    if (sources && lengths && inputs) {
        for (size_t i = 0; i < n; i++) {
            double most = a->ratio * (double)lines[i]->n_ids + 10;
            sources[i] = lines[i]->ids;
            lengths[i] = lines[i]->n_ids;
            inputs[i] = (weft_search_input){
                &begin, 1, most < (double)t->max_length ? (int64_t)most : t->max_length,
                lines[i]->number};
        }
        weft_search_model model = weft_decoder_search_model(t->decoder);
        if (weft_decoder_start(t->decoder, sources, lengths, n) != WEFT_OK)
            t->error = *weft_decoder_error(t->decoder);
        else if (a->sampling.sample && a->sampling.temperature > 0)
            r = weft_search_sample(&model, inputs, n, &o, &t->error);
        else if (a->beams == 1)
            r = weft_search_greedy(&model, inputs, n, &o, &t->error);
        else
            r = weft_search_beam(&model, inputs, n, &o, &t->error);
    }
    bool good = r != NULL;
    t->seconds += tool_seconds() - started;
    for (size_t i = 0; good && i < n; i++) {
        good = text_line_keep(lines[i], r, i);
        for (size_t k = 0; k < lines[i]->n_found; k++)
            t->tokens += lines[i]->found[k].length + lines[i]->found[k].ended;
    }
    if (!good) fail(t, WEFT_NO_MEMORY, "translate", "out of memory");
    weft_search_result_free(r);
    free(sources);
    free(lengths);
    free(inputs);
    return good;
}

/* Batches of lines that are padded to one length. */
static bool translate_lines(translator *t, text_lines *lines)
{
    text_line **sorted = calloc(lines->n + 1, sizeof *sorted);
    size_t n = 0;
    bool good = sorted != NULL;
    for (size_t i = 0; good && i < lines->n; i++) {
        text_line *l = &lines->line[i];
        size_t whole = text_line_encode(l, t->run.source, (size_t)t->max_source, SPM_EOS);
        good = whole != SIZE_MAX;
        t->cut += good && whole > (size_t)t->max_source;
        if (good && l->n_ids) sorted[n++] = l;
    }
    if (!good) fail(t, WEFT_NO_MEMORY, "translate", "out of memory");
    if (good) qsort(sorted, n, sizeof *sorted, by_length);
    for (size_t i = 0, end; good && i < n; i = end) {
        int64_t padded = weft_decoder_padded(t->decoder, (int64_t)sorted[i]->n_ids);
        for (end = i + 1; end < n && end - i < (size_t)t->a->batch; end++)
            if (weft_decoder_padded(t->decoder, (int64_t)sorted[end]->n_ids) != padded) break;
        good = translate_batch(t, sorted + i, end - i);
    }
    free(sorted);
    return good;
}

static bool print_lines(translator *t, const text_lines *lines)
{
    bool good = true;
    for (size_t i = 0; good && i < lines->n; i++) {
        const text_line *l = &lines->line[i];
        if (!l->n_found && !t->a->nbest) good = putchar('\n') != EOF;
        for (size_t k = 0; good && k < l->n_found; k++) {
            const weft_hypothesis *h = &l->found[k];
            char *text = tool_decode(t->run.target, h->tokens, h->length);
            if (!text) return fail(t, WEFT_NO_MEMORY, "translate", "out of memory");
            good = t->a->nbest ? printf("%zu ||| %s ||| %.6f\n", l->number + 1, text, h->score) > 0
                               : printf("%s\n", text) > 0;
            free(text);
        }
    }
    if (good && fflush(stdout) == 0) return true;
    return fail(t, WEFT_IO, "output", strerror(errno));
}

/* ---- The picture of an attention ---- */

/* The weights that a model gives names to: those of a layer, all heads; or "attention", of one. */
static weft_value find_weights(translator *t, const weft_graph *g)
{
    char name[64];
    weft_value found = weft_find(g, "attention");
    if (weft_is_value(found)) return found;
    for (int64_t layer = t->a->layer < 0 ? 0 : t->a->layer;; layer++) {
        snprintf(name, sizeof name, "dec.%lld.cross.weights", (long long)layer);
        weft_value here = weft_find(g, name);
        if (!weft_is_value(here)) return found;
        found = here;
        if (t->a->layer >= 0) return found;
    }
}

/* [rows][columns] of weights [1, heads, rows, columns], of one head or of their mean. */
static bool pick_head(translator *t, const weft_tensor *w, double *out)
{
    int64_t heads = w->shape.rank == 4 ? w->shape.dim[1] : 1,
            n = weft_shape_numel(w->shape) / heads;
    if (t->a->head >= heads) return fail(t, WEFT_BAD_ARGUMENT, "attention", "no such head");
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t h = 0; h < heads; h++) {
            int64_t at = h * n + i;
            double x =
                w->dtype == WEFT_F64 ? ((const double *)w->data)[at] : ((const float *)w->data)[at];
            if (t->a->head < 0)
                out[i] += x / (double)heads;
            else if (h == t->a->head)
                out[i] = x;
        }
    }
    return true;
}

static void set_value(translator *t, double *values, const char *name, size_t value)
{
    for (size_t i = 0; i < t->run.model->n_options; i++)
        if (!strcmp(t->run.model->options[i].name, name)) values[i] = (double)value;
}

/* One pass of the whole model over a source and what it was translated to. */
static bool attention_of(translator *t, const text_line *l, const int32_t *target, size_t length,
                         double *out)
{
    double values[WEFT_MODEL_OPTIONS];
    weft_model_io io;
    weft_graph *g = weft_graph_new();
    weft_plan *plan = NULL;
    weft_session *s = NULL;
    weft_tensor tensor;
    memcpy(values, t->run.values, sizeof values);
    set_value(t, values, "batch", 1);
    set_value(t, values, "source_len", l->n_ids);
    set_value(t, values, "target_len", length);
    set_value(t, values, "keep_weights", 1);
    bool good = g && t->run.model->build(g, values, false, &io) == WEFT_OK;
    if (!good) fail(t, WEFT_INTERNAL, "attention", "the model cannot be built");
    weft_value weights = good ? find_weights(t, g) : WEFT_NO_VALUE;
    if (good && !weft_is_value(weights))
        good = fail(t, WEFT_NOT_FOUND, "attention",
                    "the model has no such layer that looks at a source");
    if (good) plan = weft_plan_new(g, &weights, 1, NULL, &t->error);
    if (plan) s = weft_session_new(plan, t->run.params, NULL, &t->error);
    good = s && weft_feed(s, io.source, l->ids, l->n_ids * sizeof *l->ids) == WEFT_OK &&
           weft_feed(s, io.target_in, target, length * sizeof *target) == WEFT_OK &&
           weft_run(s) == WEFT_OK && weft_session_tensor(s, weights, &tensor) &&
           pick_head(t, &tensor, out);
    if (s && !good) fail(t, WEFT_INTERNAL, "attention", weft_session_error(s)->message);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return good;
}

static bool draw_attention(translator *t, const text_line *l)
{
    const weft_hypothesis *h = &l->found[0];
    size_t rows = h->length + 1, columns = l->n_ids;
    int32_t *target = calloc(rows, sizeof *target);
    double *weights = calloc(rows * columns, sizeof *weights);
    const char **labels = calloc(rows + columns, sizeof *labels);
    bool good = target && weights && labels;
    if (!good) fail(t, WEFT_NO_MEMORY, "attention", "out of memory");
    if (good) {
        target[0] = SPM_BOS;
        memcpy(target + 1, h->tokens, h->length * sizeof *target);
        for (size_t i = 0; i < columns; i++) labels[i] = spm_piece(t->run.source, l->ids[i]);
        for (size_t i = 0; i < rows; i++)
            labels[columns + i] =
                spm_piece(t->run.target, i + 1 < rows ? h->tokens[i] : (int32_t)SPM_EOS);
        good = attention_of(t, l, target, rows, weights);
    }
    if (good) {
        heat_map map = {.title = "weights of the source's tokens for each token said",
                        .columns = labels,
                        .rows = labels + columns,
                        .n_columns = columns,
                        .n_rows = rows,
                        .values = weights};
        good = plot_heat_svg(&map, t->a->picture) == EXIT_GOOD;
        if (!good) fail(t, WEFT_IO, t->a->picture, "is not drawn");
    }
    free(target);
    free(weights);
    free(labels);
    return good;
}

/* ---- All lines ---- */

static bool translate_all(translator *t)
{
    bool good = true, drawn = false;
    int64_t chunk = t->a->chunk ? t->a->chunk : isatty(STDIN_FILENO) ? 1 : 1024;
    while (good) {
        text_lines lines = {NULL, 0, 0};
        good = text_lines_read(&lines, (size_t)chunk, &t->lines, stdin);
        if (!good) fail(t, WEFT_NO_MEMORY, "input", "out of memory");
        size_t n = lines.n;
        good = good && translate_lines(t, &lines) && print_lines(t, &lines);
        for (size_t i = 0; good && t->a->picture && !drawn && i < n; i++) {
            if (!lines.line[i].n_found) continue;
            good = draw_attention(t, &lines.line[i]);
            drawn = true;
        }
        text_lines_clear(&lines);
        if (!n) break;
    }
    if (good && ferror(stdin)) good = fail(t, WEFT_IO, "input", strerror(errno));
    if (t->cut)
        fprintf(stderr, "weft: %zu of %zu lines had more than %lld tokens and were cut\n", t->cut,
                t->lines, (long long)t->max_source);
    return good;
}

static void print_stats(const translator *t)
{
    weft_decoder_info info = weft_decoder_get_info(t->decoder);
    fprintf(stderr,
            "%zu lines, %zu tokens in %.2f s: %.0f tokens/s; %zu plans, arena %.1f MB, "
            "parameters and caches %.1f MB\n",
            t->lines, t->tokens, t->seconds, t->seconds > 0 ? (double)t->tokens / t->seconds : 0.0,
            info.plans, 1e-6 * (double)info.arena_bytes, 1e-6 * (double)info.state_bytes);
    if (!info.has_steps && !t->a->recompute)
        fprintf(stderr, "%s is run as a whole for each token: it has no steps over caches\n",
                t->run.model->name);
}

int cmd_translate(int argc, char **argv)
{
    arguments a = {.beams = 1,
                   .batch = 16,
                   .max_length = 256,
                   .max_source = 256,
                   .ratio = 2,
                   .alpha = 0.6,
                   .layer = -1,
                   .head = -1,
                   .sampling = SAMPLING_DEFAULT};
    struct argp argp = {options,
                        parse,
                        "FOLDER",
                        "Translates lines from standard input with the model that `weft train "
                        "--out FOLDER` made. An empty line stays one.",
                        NULL,
                        NULL,
                        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    translator t = {.a = &a};
    bool good = load(&t) && translate_all(&t);
    if (good && a.stats) print_stats(&t);
    int status = good ? EXIT_GOOD : tool_fail(&t.error);
    weft_decoder_free(t.decoder);
    trained_close(&t.run);
    return status;
}
