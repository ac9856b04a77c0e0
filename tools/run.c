/* See run.h. */
#include "run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The folder ---- */

static bool there(const char *folder, const char *file, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/%s", folder, file);
    return access(path, F_OK) == 0;
}

static spm *load_vocabulary(const char *path, weft_error *error)
{
    char message[256] = "";
    spm *s = spm_load(path, message, sizeof message);
    if (!s) weft_error_set(error, WEFT_BAD_FILE, path, "%s", message);
    return s;
}

static bool load_vocabularies(trained_run *r, const char *folder, weft_error *error)
{
    char path[4096];
    bool shared = there(folder, "vocab.model", path, sizeof path) ||
                  !there(folder, "vocab.source.model", path, sizeof path);
    if (shared) {
        there(folder, "vocab.model", path, sizeof path);
        r->source = r->target = load_vocabulary(path, error);
        return r->source != NULL;
    }
    r->source = load_vocabulary(path, error);
    there(folder, "vocab.target.model", path, sizeof path);
    if (r->source) r->target = load_vocabulary(path, error);
    return r->target != NULL;
}

/* The model with the options that the checkpoint tells, and the vocabularies' size, of
 * the larger one, as `weft train` has it. */
static bool find_model(trained_run *r, const char *path, weft_error *error)
{
    const char *stored = weft_params_meta(r->params, "model_options");
    char texts[TOOL_OPTIONS_TEXT], vocab[32];
    const char *options[WEFT_MODEL_OPTIONS + 1];
    r->model = weft_model_find(weft_params_meta(r->params, "model"));
    if (!r->model || !stored) {
        weft_error_set(error, WEFT_BAD_FILE, path, "does not say which model it is of");
        return false;
    }
    int source = spm_size(r->source), target = spm_size(r->target);
    snprintf(vocab, sizeof vocab, "vocab=%d", source > target ? source : target);
    snprintf(texts, sizeof texts, "%s", stored);
    size_t n = tool_split_options(texts, options);
    options[n++] = vocab;
    return weft_model_parse(r->model, options, n, r->values, error) == WEFT_OK;
}

bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error)
{
    char path[4096];
    *run = (trained_run){.params = weft_params_new()};
    if (!run->params) {
        weft_error_set(error, WEFT_NO_MEMORY, folder, "out of memory");
        return false;
    }
    if (!load_vocabularies(run, folder, error)) return false;
    if (checkpoint)
        snprintf(path, sizeof path, "%s", checkpoint);
    else if (!there(folder, "best.safetensors", path, sizeof path))
        there(folder, "model.safetensors", path, sizeof path);
    return weft_params_load(run->params, path, error) == WEFT_OK && find_model(run, path, error);
}

void trained_close(trained_run *run)
{
    weft_params_free(run->params);
    if (run->target != run->source) spm_free(run->target);
    spm_free(run->source);
}

/* ---- Lines ---- */

bool text_lines_read(text_lines *lines, size_t most, size_t *number, FILE *file)
{
    char *text = NULL;
    size_t capacity = 0;
    while (lines->n < most && getline(&text, &capacity, file) >= 0) {
        if (lines->n == lines->capacity) {
            size_t wanted = lines->capacity ? 2 * lines->capacity : 64;
            text_line *grown = realloc(lines->line, wanted * sizeof *grown);
            if (!grown) {
                free(text);
                return false;
            }
            lines->line = grown;
            lines->capacity = wanted;
        }
        text[strcspn(text, "\r\n")] = 0;
        lines->line[lines->n++] = (text_line){.text = text, .number = (*number)++};
        text = NULL;
        capacity = 0;
    }
    free(text);
    return true;
}

void text_lines_clear(text_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        text_line *l = &lines->line[i];
        for (size_t k = 0; k < l->n_found; k++) free((void *)(uintptr_t)l->found[k].tokens);
        free(l->found);
        free(l->ids);
        free(l->text);
    }
    free(lines->line);
    *lines = (text_lines){NULL, 0, 0};
}

size_t text_line_encode(text_line *line, const spm *vocabulary, size_t most, int32_t end)
{
    bool ends = end >= 0;
    size_t room = most + 1, found;
    line->n_ids = 0;
    line->ids = calloc(room, sizeof *line->ids);
    if (!line->ids) return SIZE_MAX;
    found = spm_encode(vocabulary, line->text, line->ids, most);
    if (!found) return 0;
    size_t whole = found + ends;
    line->n_ids = whole < most ? whole : most;
    if (ends && line->n_ids) line->ids[line->n_ids - 1] = end;
    return whole;
}

bool text_line_keep(text_line *line, const weft_search_result *result, size_t sentence)
{
    size_t first = result->first[sentence], n = result->first[sentence + 1] - first;
    line->found = calloc(n + 1, sizeof *line->found);
    for (size_t k = 0; line->found && k < n; k++) {
        weft_hypothesis h = result->hypotheses[first + k];
        int32_t *tokens = calloc(h.length + 1, sizeof *tokens);
        if (!tokens) return false;
        memcpy(tokens, h.tokens, h.length * sizeof *tokens);
        h.tokens = tokens;
        line->found[line->n_found++] = h;
    }
    return line->found != NULL;
}

char *tool_decode(const spm *vocabulary, const int32_t *tokens, size_t n)
{
    size_t room = 64 * (n + 1); /* pieces are shorter, byte by byte; else grow until it fits */
    for (;;) {
        char *text = malloc(room);
        if (!text) return NULL;
        spm_decode(vocabulary, tokens, n, text, room);
        if (strlen(text) + 1 < room) return text;
        free(text);
        room *= 2;
    }
}

/* ---- Arguments ---- */

double tool_real(const char *text, const char *what, double least, double most,
                 struct argp_state *state)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= least && x <= most))
        argp_error(state, "%s must be a number from %g to %g, not \"%s\"", what, least, most, text);
    return x;
}

bool sampling_parse(sampling_args *args, int key, const char *text, struct argp_state *state)
{
    switch (key) {
    case KEY_TEMPERATURE:
        args->temperature = tool_real(text, "a temperature", 0, 1e6, state);
        return true;
    case KEY_TOP_K:
        args->top_k = tool_number(text, "a number of tokens", 0, INT32_MAX, state);
        return true;
    case KEY_TOP_P:
        args->top_p = tool_real(text, "a probability", 1e-9, 1, state);
        return true;
    case KEY_SEED:
        args->seed = tool_number(text, "a seed", 0, INT64_MAX, state);
        return true;
    case KEY_NO_REPEAT:
        args->no_repeat = tool_number(text, "a number of tokens", 0, 1000, state);
        return true;
    default:
        return false;
    }
}

weft_search_options sampling_options(const sampling_args *args)
{
    static const int32_t never[] = {SPM_PAD, SPM_UNK, SPM_BOS};
    return (weft_search_options){.eos = SPM_EOS,
                                 .banned = never,
                                 .n_banned = sizeof never / sizeof *never,
                                 .no_repeat_ngram = args->no_repeat,
                                 .temperature = args->temperature,
                                 .top_k = args->top_k,
                                 .top_p = args->top_p,
                                 .seed = (uint64_t)args->seed};
}
