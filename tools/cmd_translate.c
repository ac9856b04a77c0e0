/* weft translate: lines of standard input, translated greedily, to standard output in order. */
#include "spm.h"
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LINES 8
#define MOST_LEN   96

typedef struct arguments {
    const char *folder;
    int threads;
} arguments;

enum { KEY_THREADS = 256 };

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case KEY_THREADS: {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text || *end || n < 0 || n > 1024)
            argp_error(state, "\"%s\" is not a number of threads from 0 to 1024", text);
        a->threads = (int)n;
        return 0;
    }
    case ARGP_KEY_ARG:
        if (a->folder) argp_error(state, "one folder only");
        a->folder = text;
        return 0;
    case ARGP_KEY_END:
        if (!a->folder) argp_error(state, "FOLDER is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

typedef struct translator {
    spm *vocabulary;
    weft_params *params;
    built_model model;
    weft_plan *plan;
    weft_session *session;
    int32_t source[MOST_LINES * MOST_LEN], target[MOST_LINES * MOST_LEN];
    weft_error error;
} translator;

/* Builds the model with the options that the checkpoint tells. */
static bool build(translator *t, int threads)
{
    const char *name = weft_params_meta(t->params, "model");
    const char *stored = weft_params_meta(t->params, "model_options");
    const weft_model *model = weft_model_find(name);
    char texts[TOOL_OPTIONS_TEXT] = "", sizes[4][32], *rest = NULL;
    const char *options[WEFT_MODEL_OPTIONS + 4];
    size_t n = 0;
    if (!model || !stored) {
        weft_error_set(&t->error, WEFT_BAD_FILE, "checkpoint", "does not say which model it is of");
        return false;
    }
    snprintf(texts, sizeof texts, "%s", stored);
    for (char *o = strtok_r(texts, " ", &rest); o && n < WEFT_MODEL_OPTIONS;
         o = strtok_r(NULL, " ", &rest))
        options[n++] = o;
    snprintf(sizes[0], 32, "batch=%d", MOST_LINES);
    snprintf(sizes[1], 32, "source_len=%d", MOST_LEN);
    snprintf(sizes[2], 32, "target_len=%d", MOST_LEN);
    snprintf(sizes[3], 32, "vocab=%d", spm_size(t->vocabulary));
    for (int i = 0; i < 4; i++) options[n++] = sizes[i];
    if (tool_build(model, options, n, false, &t->model, &t->error) != WEFT_OK) return false;
    t->plan = weft_plan_new(t->model.graph, &t->model.io.output, 1, NULL, &t->error);
    weft_session_options o = {.threads = threads};
    if (t->plan) t->session = weft_session_new(t->plan, t->params, &o, &t->error);
    return t->session != NULL;
}

static bool load(translator *t, const arguments *a)
{
    char path[4096], message[256] = "";
    snprintf(path, sizeof path, "%s/vocab.model", a->folder);
    t->vocabulary = spm_load(path, message, sizeof message);
    if (!t->vocabulary) {
        weft_error_set(&t->error, WEFT_BAD_FILE, path, "%s", message);
        return false;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", a->folder);
    t->params = weft_params_new();
    if (weft_params_load(t->params, path, &t->error) != WEFT_OK) return false;
    return build(t, a->threads);
}

/* The most likely token after position `at` of a row. */
static int32_t best_token(const weft_tensor *logits, int64_t row, int64_t at)
{
    int64_t vocab = logits->shape.dim[2];
    const float *x = (const float *)logits->data + (row * MOST_LEN + at) * vocab;
    int32_t best = SPM_EOS;
    for (int64_t i = SPM_EOS; i < vocab; i++)
        if (x[i] > x[best]) best = (int32_t)i;
    return best;
}

static bool decode(translator *t, int lines)
{
    bool ended[MOST_LINES] = {false};
    int open = lines;
    memset(t->target, 0, sizeof t->target);
    for (int i = 0; i < MOST_LINES; i++) t->target[i * MOST_LEN] = SPM_BOS;
    weft_feed(t->session, t->model.io.source, t->source, sizeof t->source);
    for (int at = 0; at + 1 < MOST_LEN && open; at++) {
        weft_tensor logits;
        weft_feed(t->session, t->model.io.target_in, t->target, sizeof t->target);
        if (weft_run(t->session) != WEFT_OK ||
            !weft_session_tensor(t->session, t->model.io.output, &logits)) {
            t->error = *weft_session_error(t->session);
            return false;
        }
        for (int row = 0; row < lines; row++) {
            if (ended[row]) continue;
            int32_t token = best_token(&logits, row, at);
            t->target[row * MOST_LEN + at + 1] = token;
            if (token == SPM_EOS) {
                ended[row] = true;
                open--;
            }
        }
    }
    return true;
}

static bool translate_lines(translator *t, char **lines, int n)
{
    memset(t->source, 0, sizeof t->source);
    for (int i = 0; i < MOST_LINES; i++) {
        int32_t *row = t->source + i * MOST_LEN;
        size_t found = i < n ? spm_encode(t->vocabulary, lines[i], row, MOST_LEN - 1) : 0;
        if (found > MOST_LEN - 1) {
            fprintf(stderr, "weft: a line of %zu tokens is cut to %d\n", found, MOST_LEN - 1);
            found = MOST_LEN - 1;
        }
        row[found] = SPM_EOS;
    }
    if (!decode(t, n)) return false;
    for (int i = 0; i < n; i++) {
        char text[8192];
        const int32_t *row = t->target + i * MOST_LEN + 1;
        size_t length = 0;
        while (length < MOST_LEN - 1 && row[length] != SPM_EOS && row[length] != SPM_PAD) length++;
        spm_decode(t->vocabulary, row, length, text, sizeof text);
        if (printf("%s\n", text) < 0) {
            weft_error_set(&t->error, WEFT_IO, "output", "cannot be written");
            return false;
        }
    }
    if (fflush(stdout) == 0) return true;
    weft_error_set(&t->error, WEFT_IO, "output", "cannot be written: %s", strerror(errno));
    return false;
}

static bool translate_all(translator *t)
{
    char *lines[MOST_LINES] = {NULL};
    size_t capacity[MOST_LINES] = {0};
    bool good = true, more = true;
    while (good && more) {
        int n = 0;
        while (n < MOST_LINES && (more = getline(&lines[n], &capacity[n], stdin) >= 0)) {
            lines[n][strcspn(lines[n], "\r\n")] = 0;
            n++;
        }
        if (n) good = translate_lines(t, lines, n);
    }
    if (good && ferror(stdin)) {
        weft_error_set(&t->error, WEFT_IO, "input", "cannot be read: %s", strerror(errno));
        good = false;
    }
    for (int i = 0; i < MOST_LINES; i++) free(lines[i]);
    return good;
}

int cmd_translate(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"threads", KEY_THREADS, "N", 0, "threads (default: all)", 0}, {0}};
    arguments a = {0};
    struct argp argp = {options,
                        parse,
                        "FOLDER",
                        "Translates lines from standard input, greedily, with the model that `weft "
                        "train --out FOLDER` made.",
                        NULL,
                        NULL,
                        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &a);
    translator *t = calloc(1, sizeof *t);
    if (!t) return tool_fail_text("translate", "out of memory");
    int status = load(t, &a) && translate_all(t) ? EXIT_GOOD : tool_fail(&t->error);
    weft_session_free(t->session);
    weft_plan_free(t->plan);
    weft_graph_free(t->model.graph);
    weft_params_free(t->params);
    spm_free(t->vocabulary);
    free(t);
    return status;
}
