/* weft translate: lines of standard input, translated, to standard output in their order.
 *
 * Lines are read in chunks and sorted by length, so that sentences of one batch are padded to one
 * length that does not depend on their company; what comes out is put back in order. */
#include "decoding.h"
#include "plot.h"

#include <stdlib.h>
#include <string.h>

/* In the order of weft_length_penalty and weft_beam_stop. */
#define PENALTIES "wu|power"
#define STOPS     "first|bound"

typedef struct arguments {
    decoding_args shared;
    const char *picture;
    int64_t beams, nbest, max_length, max_source, layer, head;
    double alpha, ratio;
    weft_length_penalty penalty;
    weft_beam_stop stop;
    bool sample;
} arguments;

enum {
    KEY_BEAM = 256,
    KEY_PENALTY,
    KEY_PENALTY_KIND,
    KEY_STOP,
    KEY_NBEST,
    KEY_MAX_LENGTH,
    KEY_MAX_RATIO,
    KEY_MAX_SOURCE,
    KEY_SAMPLE,
    KEY_ATTENTION,
    KEY_LAYER,
    KEY_HEAD
};

static const struct argp_option options[] = {
    {"beam", KEY_BEAM, "N", 0,
     "open hypotheses of beam search (default: those of --nbest; 1: greedy)", 1},
    {"length-penalty", KEY_PENALTY, "A", 0,
     "scores are divided by the length's penalty to the power of A (default 0.6)", 1},
    {"penalty", KEY_PENALTY_KIND, PENALTIES, 0, "(5 + length) / 6 (default), or the length", 1},
    {"stop", KEY_STOP, STOPS, 0,
     "stop once as many hypotheses have ended as there are beams (default), or once none can "
     "become better",
     1},
    {"nbest", KEY_NBEST, "N", 0,
     "print the N best, or with --sample N draws, as LINE ||| TEXT ||| SCORE", 1},
    {"max-length", KEY_MAX_LENGTH, "N", 0, "most tokens of a translation (default 256)", 1},
    {"max-ratio", KEY_MAX_RATIO, "R", 0,
     "and at most R times those of its source, and 10, if not fewer than --min-length (default 2)",
     1},
    {"max-source", KEY_MAX_SOURCE, "N", 0, "tokens of a source beyond N are left out (default 256)",
     1},
    {"sample", KEY_SAMPLE, NULL, 0, "draw tokens by their probabilities", 2},
    {"attention", KEY_ATTENTION, "FILE", 0,
     "draw where the translation of the first line looks in its source: FILE.svg or FILE.png", 3},
    {"layer", KEY_LAYER, "N", 0, "of the picture, from 0 (default: the last)", 3},
    {"head", KEY_HEAD, "N", 0, "of the picture, from 0 (default: the mean of all)", 3},
    {0}};

static int one_of(const char *choices, const char *text, struct argp_state *state)
{
    int choice = tool_choice(choices, text);
    if (choice < 0) tool_usage_error(state, "\"%s\" is none of %s", text, choices);
    return choice;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->shared;
        return 0;
    case KEY_BEAM:
        a->beams = tool_number(text, "--beam", 1, 1024, state);
        return 0;
    case KEY_PENALTY:
        a->alpha = tool_real(text, "--length-penalty", -100, 100, state);
        return 0;
    case KEY_PENALTY_KIND:
        a->penalty = (weft_length_penalty)one_of(PENALTIES, text, state);
        return 0;
    case KEY_STOP:
        a->stop = (weft_beam_stop)one_of(STOPS, text, state);
        return 0;
    case KEY_NBEST:
        a->nbest = tool_number(text, "--nbest", 1, 1024, state);
        return 0;
    case KEY_MAX_LENGTH:
        a->max_length = tool_number(text, "--max-length", 1, 1 << 20, state);
        return 0;
    case KEY_MAX_RATIO:
        a->ratio = tool_real(text, "--max-ratio", 0, 1e6, state);
        return 0;
    case KEY_MAX_SOURCE:
        a->max_source = tool_number(text, "--max-source", 2, 1 << 20, state);
        return 0;
    case KEY_SAMPLE:
        a->sample = true;
        return 0;
    case KEY_ATTENTION:
        plot_check_name(text, "--attention", state);
        if (!strcmp(text, "-")) argp_error(state, "--attention needs a file: texts are printed");
        a->picture = text;
        return 0;
    case KEY_LAYER:
        a->layer = tool_number(text, "--layer", 0, 1000, state);
        return 0;
    case KEY_HEAD:
        a->head = tool_number(text, "--head", 0, 1000, state);
        return 0;
    case ARGP_KEY_END:
        if (a->beams && a->nbest > a->beams) argp_error(state, "--nbest is more than --beam");
        if (a->beams && a->sample) argp_error(state, "--sample draws, --beam searches: one only");
        if (a->shared.draws && !a->sample)
            argp_error(state, "temperature, top-k, top-p and seed are of --sample");
        if (a->sample && a->shared.temperature == 0)
            argp_error(state, "--sample needs a temperature over 0");
        if (a->shared.min_length >= a->max_length)
            argp_error(state, "--min-length is not below --max-length");
        if (!a->beams) a->beams = a->nbest ? a->nbest : 1;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- Translating ---- */

typedef struct translator {
    const arguments *a;
    decoding d;
    size_t cut; /* lines */
    bool drawn; /* the picture, if one is wanted */
} translator;

/* Tokens of a translation of so many of a source. */
static int64_t most_tokens(const arguments *a, int64_t source)
{
    double most = a->ratio * (double)source + 10, least = (double)a->shared.min_length + 1;
    if (most < least) most = least;
    return most < (double)a->max_length ? (int64_t)most : a->max_length;
}

static bool load(translator *t)
{
    const arguments *a = t->a;
    decoding *d = &t->d;
    int64_t most = most_tokens(a, a->max_source);
    if (!decoding_open(d, &a->shared, a->beams, most, a->max_source)) return false;
    d->way = a->sample ? DECODING_SAMPLE : a->beams == 1 ? DECODING_GREEDY : DECODING_BEAM;
    d->options.nbest = a->nbest ? a->nbest : 1;
    d->options.penalty = a->penalty;
    d->options.alpha = a->alpha;
    d->options.stop = a->stop;
    if (weft_decoder_get_info(d->decoder).has_source) return true;
    return decoding_fail(d, WEFT_BAD_ARGUMENT, d->run.model->name,
                         "translates nothing: it is a language model (see `weft generate`)");
}

/* A source that is too long loses its end. */
static bool encode(void *context, text_line *l)
{
    translator *t = context;
    size_t room = (size_t)t->d.most_source, whole;
    if (text_line_encode(l, t->d.run.source, room, SPM_EOS, &whole, &t->d.error) != WEFT_OK)
        return false;
    t->cut += whole > room;
    l->most = most_tokens(t->a, (int64_t)l->n_ids);
    if (l->most > t->d.most_len) l->most = t->d.most_len;
    return true;
}

/* ---- The picture of an attention ---- */

/* The weights that a model gives names to: those of a layer, all heads; or "attention", of one. */
static weft_value find_weights(translator *t, const weft_graph *g)
{
    char name[64];
    weft_value found = weft_find(g, "attention");
    if (weft_is_value(found)) return t->a->layer <= 0 ? found : WEFT_NO_VALUE;
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
    if (t->a->head >= heads)
        return decoding_fail(&t->d, WEFT_BAD_ARGUMENT, "attention", "no such head");
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
    for (size_t i = 0; i < t->d.run.model->n_options; i++)
        if (!strcmp(t->d.run.model->options[i].name, name)) values[i] = (double)value;
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
    memcpy(values, t->d.run.values, sizeof values);
    set_value(t, values, "batch", 1);
    set_value(t, values, "source_len", l->n_ids);
    set_value(t, values, "target_len", length);
    set_value(t, values, "keep_weights", 1);
    bool good = g && t->d.run.model->build(g, values, false, &io) == WEFT_OK;
    if (!good)
        decoding_fail(&t->d, WEFT_INTERNAL, "attention",
                      g ? weft_graph_error(g)->message : "out of memory");
    weft_value weights = good ? find_weights(t, g) : WEFT_NO_VALUE;
    if (good && !weft_is_value(weights))
        good = decoding_fail(&t->d, WEFT_NOT_FOUND, "attention",
                             "the model has no such layer that looks at a source");
    if (good) plan = weft_plan_new(g, &weights, 1, NULL, &t->d.error);
    if (plan) s = weft_session_new(plan, t->d.run.params, NULL, &t->d.error);
    good = s && weft_feed(s, io.source, l->ids, l->n_ids * sizeof *l->ids) == WEFT_OK &&
           weft_feed(s, io.target_in, target, length * sizeof *target) == WEFT_OK &&
           weft_run(s) == WEFT_OK && weft_session_tensor(s, weights, &tensor) &&
           pick_head(t, &tensor, out);
    if (s && !good)
        decoding_fail(&t->d, WEFT_INTERNAL, "attention", weft_session_error(s)->message);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return good;
}

static bool draw_attention(translator *t, const text_line *l)
{
    const weft_hypothesis *h = &l->found[0];
    size_t rows = h->length + h->ended, columns = l->n_ids;
    int32_t *target = calloc(rows, sizeof *target);
    double *weights = calloc(rows * columns, sizeof *weights);
    const char **labels = calloc(rows + columns, sizeof *labels);
    bool good = target && weights && labels;
    if (!good) decoding_fail(&t->d, WEFT_NO_MEMORY, "attention", "out of memory");
    if (good) {
        target[0] = SPM_BOS;
        memcpy(target + 1, h->tokens, (rows - 1) * sizeof *target);
        for (size_t i = 0; i < columns; i++) labels[i] = spm_piece(t->d.run.source, l->ids[i]);
        for (size_t i = 0; i < rows; i++)
            labels[columns + i] =
                spm_piece(t->d.run.target, i < h->length ? h->tokens[i] : (int32_t)SPM_EOS);
        good = attention_of(t, l, target, rows, weights);
    }
    if (good) {
        heat_map map = {.title = "weights of the source's tokens for each token said",
                        .columns = labels,
                        .rows = labels + columns,
                        .n_columns = columns,
                        .n_rows = rows,
                        .values = weights};
        good = plot_write_heat(&map, t->a->picture) == EXIT_GOOD;
        if (!good) decoding_fail(&t->d, WEFT_IO, t->a->picture, "is not drawn");
    }
    free(target);
    free(weights);
    free(labels);
    return good;
}

/* The first line that has a translation. */
static bool draw_first(void *context, const text_lines *lines)
{
    translator *t = context;
    for (size_t i = 0; i < lines->n && !t->drawn; i++) {
        const text_line *l = &lines->line[i];
        if (!l->n_found || l->found[0].length + l->found[0].ended == 0) continue;
        t->drawn = true;
        return draw_attention(t, l);
    }
    return true;
}

int cmd_translate(int argc, char **argv)
{
    static const struct argp_child shared[] = {{&decoding_argp, 0, NULL, 0}, {0}};
    arguments a = {.shared = DECODING_DEFAULT,
                   .max_length = 256,
                   .max_source = 256,
                   .ratio = 2,
                   .alpha = 0.6,
                   .layer = -1,
                   .head = -1};
    struct argp argp = {options,
                        parse,
                        "FOLDER",
                        "Translates lines from standard input with the model that `weft train "
                        "--out FOLDER` made. An empty line stays one.",
                        shared,
                        NULL,
                        NULL};
    tool_parse(&argp, argc, argv, &a);
    translator t = {.a = &a};
    const decoding_work work = {&t, encode, a.picture ? draw_first : NULL, a.nbest > 0};
    bool good = load(&t) && decoding_input(&t.d, &work);
    if (t.cut)
        fprintf(stderr, "weft: %zu of %zu lines had more than %lld tokens and were cut\n", t.cut,
                t.d.lines, (long long)t.d.most_source);
    decoding_print_notes(&t.d);
    if (good && a.picture && !t.drawn)
        tool_fail_text(a.picture, "not drawn, no line has a translation");
    if (good && a.shared.stats) decoding_print_stats(&t.d);
    int status = good ? EXIT_GOOD : tool_fail(&t.d.error);
    decoding_close(&t.d);
    return status;
}
