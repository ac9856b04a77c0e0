/* weft generate: text that goes on from a prompt, by a language model. */
#include "run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    const char *folder, *checkpoint, *prompt;
    int threads;
    int64_t tokens, each, batch, beams, min_length;
    bool stats, recompute;
    sampling_args sampling;
} arguments;

enum {
    KEY_THREADS = 256,
    KEY_CHECKPOINT,
    KEY_PROMPT,
    KEY_TOKENS,
    KEY_EACH,
    KEY_BATCH,
    KEY_BEAM,
    KEY_MIN_LENGTH,
    KEY_STATS,
    KEY_RECOMPUTE
};

static const struct argp_option options[] = {
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0,
     "parameters (default: FOLDER/best.safetensors if it is there, else FOLDER/model.safetensors)",
     0},
    {"threads", KEY_THREADS, "N", 0, "threads (default: all)", 0},
    {"batch", KEY_BATCH, "N", 0, "prompts at a time (default 16)", 0},
    {"prompt", KEY_PROMPT, "TEXT", 0, "to go on from (default: each line of standard input)", 1},
    {"tokens", KEY_TOKENS, "N", 0, "most tokens to find (default 64)", 1},
    {"min-length", KEY_MIN_LENGTH, "N", 0, "fewest (default 0)", 1},
    {"n", KEY_EACH, "N", 0, "texts for each prompt, a line each (default 1)", 1},
    {"beam", KEY_BEAM, "N", 0, "beam search with N hypotheses instead of sampling", 1},
    SAMPLING_OPTIONS,
    {"stats", KEY_STATS, NULL, 0, "tell the speed on standard error", 3},
    {"recompute", KEY_RECOMPUTE, NULL, 0, "without caches: run the whole model for each token", 3},
    {0}};

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
    case KEY_PROMPT:
        a->prompt = text;
        return 0;
    case KEY_TOKENS:
        a->tokens = tool_number(text, "a number of tokens", 1, 1 << 20, state);
        return 0;
    case KEY_EACH:
        a->each = tool_number(text, "a number of texts", 1, 1024, state);
        return 0;
    case KEY_BATCH:
        a->batch = tool_number(text, "a number of prompts", 1, 65536, state);
        return 0;
    case KEY_BEAM:
        a->beams = tool_number(text, "a number of beams", 1, 1024, state);
        return 0;
    case KEY_MIN_LENGTH:
        a->min_length = tool_number(text, "a length", 0, 1 << 20, state);
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
        if (a->beams && a->each > a->beams) argp_error(state, "--n is more than --beam");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct generator {
    const arguments *a;
    trained_run run;
    weft_decoder *decoder;
    int64_t most_len; /* positions that the decoder has */
    size_t number, cut, tokens;
    double seconds;
    weft_error error;
} generator;

static bool fail(generator *t, weft_status status, const char *where, const char *message)
{
    weft_error_set(&t->error, status, where, "%s", message);
    return false;
}

static bool is_greedy(const arguments *a)
{
    return !a->beams && a->sampling.temperature == 0;
}

/* Prompts are at most as long as what is to be found, 256 at least, within the model's limit. */
static bool load(generator *t)
{
    const arguments *a = t->a;
    if (!trained_open(&t->run, a->folder, a->checkpoint, &t->error)) return false;
    int64_t most = weft_model_most_positions(t->run.model, t->run.values);
    t->most_len = a->tokens + (a->tokens > 256 ? a->tokens : 256);
    if (t->most_len > most) t->most_len = most;
    int64_t beams = a->beams ? a->beams : a->each;
    weft_decoder_options o = {.sentences = a->batch,
                              .beams = beams,
                              .most_len = t->most_len,
                              .most_source = 1,
                              .threads = a->threads,
                              .recompute = a->recompute};
    t->decoder = weft_decoder_new(t->run.model, t->run.values, t->run.params, &o, &t->error);
    if (!t->decoder) return false;
    if (!weft_decoder_get_info(t->decoder).has_source) return true;
    return fail(t, WEFT_BAD_ARGUMENT, t->run.model->name,
                "needs a source: it translates (see `weft translate`)");
}

/* The beginning of text and the prompt's ids; of a prompt that leaves no room its end. */
static bool encode(generator *t, text_line *l)
{
    size_t most = (size_t)t->most_len, whole = text_line_encode(l, t->run.target, 1 << 20, -1);
    if (whole == SIZE_MAX) return fail(t, WEFT_NO_MEMORY, "prompt", "out of memory");
    size_t kept = l->n_ids < most ? l->n_ids : most - 1;
    t->cut += kept < l->n_ids;
    int32_t *ids = calloc(kept + 1, sizeof *ids);
    if (!ids) return fail(t, WEFT_NO_MEMORY, "prompt", "out of memory");
    ids[0] = SPM_BOS;
    if (kept) memcpy(ids + 1, l->ids + l->n_ids - kept, kept * sizeof *ids);
    free(l->ids);
    l->ids = ids;
    l->n_ids = kept + 1;
    return true;
}

static int by_length(const void *a, const void *b)
{
    const text_line *x = *(text_line *const *)a, *y = *(text_line *const *)b;
    if (x->n_ids != y->n_ids) return x->n_ids < y->n_ids ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static bool generate_batch(generator *t, text_line *const *lines, size_t n)
{
    const arguments *a = t->a;
    weft_search_input *inputs = calloc(n, sizeof *inputs);
    weft_search_result *r = NULL;
    weft_search_options o = sampling_options(&a->sampling);
    o.min_len = a->min_length;
    o.nbest = is_greedy(a) ? 1 : a->each;
    double started = tool_seconds();
    for (size_t i = 0; inputs && i < n; i++) {
        int64_t room = t->most_len + 1 - (int64_t)lines[i]->n_ids;
        inputs[i] = (weft_search_input){lines[i]->ids, lines[i]->n_ids,
                                        a->tokens < room ? a->tokens : room, lines[i]->number};
    }
    if (inputs) {
        weft_search_model model = weft_decoder_search_model(t->decoder);
        weft_decoder_start(t->decoder, NULL, NULL, 0);
        r = is_greedy(a) ? weft_search_greedy(&model, inputs, n, &o, &t->error)
            : a->beams   ? weft_search_beam(&model, inputs, n, &o, &t->error)
                         : weft_search_sample(&model, inputs, n, &o, &t->error);
    }
    bool good = r != NULL;
    t->seconds += tool_seconds() - started;
    for (size_t i = 0; good && i < n; i++) {
        good = text_line_keep(lines[i], r, i);
        for (size_t k = 0; k < lines[i]->n_found; k++)
            t->tokens += lines[i]->found[k].length + lines[i]->found[k].ended;
    }
    if (!good) fail(t, WEFT_NO_MEMORY, "generate", "out of memory");
    weft_search_result_free(r);
    free(inputs);
    return good;
}

/* The prompt's tokens and those that were found, as one text. */
static bool print_line(generator *t, const text_line *l)
{
    for (size_t k = 0; k < l->n_found; k++) {
        const weft_hypothesis *h = &l->found[k];
        int32_t *all = calloc(l->n_ids + h->length, sizeof *all);
        char *text = NULL;
        if (all) {
            memcpy(all, l->ids, l->n_ids * sizeof *all);
            memcpy(all + l->n_ids, h->tokens, h->length * sizeof *all);
            text = tool_decode(t->run.target, all, l->n_ids + h->length);
        }
        free(all);
        if (!text) return fail(t, WEFT_NO_MEMORY, "generate", "out of memory");
        bool good = printf("%s\n", text) > 0;
        free(text);
        if (!good) return fail(t, WEFT_IO, "output", strerror(errno));
    }
    return true;
}

static bool generate_lines(generator *t, text_lines *lines)
{
    text_line **sorted = calloc(lines->n + 1, sizeof *sorted);
    bool good = sorted != NULL || fail(t, WEFT_NO_MEMORY, "generate", "out of memory");
    for (size_t i = 0; good && i < lines->n; i++) {
        sorted[i] = &lines->line[i];
        good = encode(t, sorted[i]);
    }
    if (good) qsort(sorted, lines->n, sizeof *sorted, by_length);
    for (size_t i = 0; good && i < lines->n; i += (size_t)t->a->batch) {
        size_t n = lines->n - i;
        good = generate_batch(t, sorted + i, n < (size_t)t->a->batch ? n : (size_t)t->a->batch);
    }
    for (size_t i = 0; good && i < lines->n; i++) good = print_line(t, &lines->line[i]);
    free(sorted);
    if (good && fflush(stdout) != 0) good = fail(t, WEFT_IO, "output", strerror(errno));
    return good;
}

static bool generate_all(generator *t)
{
    if (t->a->prompt) {
        text_line line = {.text = strdup(t->a->prompt)};
        text_lines one = {malloc(sizeof line), 1, 1};
        bool good = one.line && line.text;
        if (!good) {
            free(one.line);
            free(line.text);
            return fail(t, WEFT_NO_MEMORY, "prompt", "out of memory");
        }
        one.line[0] = line;
        good = generate_lines(t, &one);
        text_lines_clear(&one);
        return good;
    }
    bool good = true;
    size_t most = isatty(STDIN_FILENO) ? 1 : 1024;
    while (good) {
        text_lines lines = {NULL, 0, 0};
        good = text_lines_read(&lines, most, &t->number, stdin) ||
               fail(t, WEFT_NO_MEMORY, "input", "out of memory");
        size_t n = lines.n;
        good = good && generate_lines(t, &lines);
        text_lines_clear(&lines);
        if (!n) break;
    }
    if (good && ferror(stdin)) good = fail(t, WEFT_IO, "input", strerror(errno));
    return good;
}

int cmd_generate(int argc, char **argv)
{
    arguments a = {.tokens = 64, .each = 1, .batch = 16, .sampling = SAMPLING_DEFAULT};
    struct argp argp = {options,
                        parse,
                        "FOLDER",
                        "Goes on from prompts with the language model in FOLDER: draws tokens by "
                        "their probabilities, with temperature 0 takes the most likely. The same "
                        "seed gives the same text.",
                        NULL,
                        NULL,
                        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    if (a.prompt) a.batch = 1;
    generator t = {.a = &a};
    bool good = load(&t) && generate_all(&t);
    if (t.cut)
        fprintf(stderr, "weft: %zu prompts had more than %lld tokens; their beginning was cut\n",
                t.cut, (long long)t.most_len - 1);
    if (good && a.stats)
        fprintf(stderr, "%zu tokens in %.2f s: %.0f tokens/s\n", t.tokens, t.seconds,
                t.seconds > 0 ? (double)t.tokens / t.seconds : 0.0);
    int status = good ? EXIT_GOOD : tool_fail(&t.error);
    weft_decoder_free(t.decoder);
    trained_close(&t.run);
    return status;
}
