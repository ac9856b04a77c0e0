/* A trained language model on a text of token ids, which standard input has:
 *
 *     run_bench RUN THREADS PROMPT TOKENS <IDS
 *
 * Reads the first PROMPT ids as a prompt, and the next TOKENS one at a time. Prints one line of
 * JSON: the mean negative log probability of all ids but the first in nats, seconds of the prompt,
 * of a token, mean and least, and of everything up to the first new token, the model's opening
 * included, and the greatest resident memory of decoding. tests/bench/run_llama_cpp.py does the same with
 * llama.cpp. Not a test: nothing here fails because it is slow. */
#include <weft/decode.h>
#include <weft/saved.h>

#include "base/platform.h"
#include "system.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 3 };

typedef struct text {
    const int32_t *ids;
    size_t n, prompt, tokens;
} text;

typedef struct measured {
    double nll, prompt, mean, least, first, peak;
} measured;

/* Decodes once. */
static weft_status decode(weft_decoder *d, const text *t, size_t tokens, measured *m,
                          weft_error *error)
{
    const int32_t *ids = t->ids;
    const size_t prompt = t->prompt;
    weft_status status = weft_decoder_start(d, NULL, NULL, 0, error);
    double begin = clock_seconds(), sum = 0;
    if (status == WEFT_OK && prompt > 1) status = weft_decoder_read(d, ids, prompt - 1, error);
    m->least = 1e30;
    for (size_t i = prompt - 1; i < prompt + tokens && status == WEFT_OK; i++) {
        status = weft_decoder_step(d, ids + i, NULL, error);
        const double now = clock_seconds(), seconds = now - begin;
        begin = now;
        if (i == prompt - 1) {
            m->prompt = seconds;
            continue;
        }
        sum += seconds;
        m->least = seconds < m->least ? seconds : m->least;
    }
    m->mean = sum / (double)tokens;
    return status;
}

static weft_status score(const weft_saved_model *model, const text *t, int threads, double *nll,
                         weft_error *error)
{
    const size_t n = t->n;
    const weft_scorer_options o = {.context = (int64_t)n, .session.threads = threads};
    double *scores = calloc(n, sizeof *scores);
    weft_scorer *s = weft_scorer_new(&model->config, model->params, &o, error);
    const weft_scorer_row row = {.tokens = t->ids, .length = n, .scores = scores};
    if (s && weft_scorer_run(s, &row, 1, error) == WEFT_OK)
        for (size_t i = 0; i + 1 < n; i++) *nll -= scores[i] / (double)(n - 1);
    weft_scorer_free(s);
    free(scores);
    return error->status;
}

static weft_status run(const char *folder, const text *t, int threads, measured *best,
                       weft_error *error)
{
    const double begin = clock_seconds();
    weft_saved_model *model = weft_saved_open(folder, NULL, error);
    const weft_decoder_options o = {.max_len = (int64_t)(t->prompt + t->tokens),
                                    .session.threads = threads};
    weft_decoder *d = model ? weft_decoder_new(&model->config, model->params, &o, error) : NULL;
    for (int i = 0; d && i < ROUNDS && error->status == WEFT_OK; i++) {
        measured m = {0};
        decode(d, t, i ? t->tokens : 0, &m, error);
        if (!i) best->first = clock_seconds() - begin;
        if (i == 1 || (i && m.prompt < best->prompt)) best->prompt = m.prompt;
        if (i == 1 || (i && m.mean < best->mean)) best->mean = m.mean, best->least = m.least;
    }
    weft_decoder_free(d);
    best->peak = system_memory_peak();
    if (model && error->status == WEFT_OK) score(model, t, threads, &best->nll, error);
    weft_saved_close(model);
    return error->status;
}

int main(int argc, char **argv)
{
    weft_error error = {0};
    measured m = {0};
    int32_t *ids = NULL;
    size_t n = 0, room = 0;
    const int threads = argc == 5 ? atoi(argv[2]) : 0;
    const long prompt = argc == 5 ? atol(argv[3]) : 0, tokens = argc == 5 ? atol(argv[4]) : 0;
    for (long id; scanf("%ld", &id) == 1; ids[n++] = (int32_t)id) {
        if (n < room) continue;
        room = 2 * room + 64;
        int32_t *grown = realloc(ids, room * sizeof *ids);
        if (!grown) abort();
        ids = grown;
    }
    if (threads < 1 || prompt < 1 || tokens < 1 || (size_t)(prompt + tokens) > n) {
        fprintf(
            stderr,
            "Usage: run_bench RUN THREADS PROMPT TOKENS <IDS, PROMPT + TOKENS of them or more\n");
        free(ids);
        return 2;
    }
    const text t = {ids, n, (size_t)prompt, (size_t)tokens};
    if (run(argv[1], &t, threads, &m, &error) == WEFT_OK) {
        printf("{\"nll\": %.9g, \"prompt_seconds\": %.6g, \"token_seconds\": %.6g, "
               "\"token_seconds_min\": %.6g, \"first_seconds\": %.6g, \"peak_bytes\": %.0f}\n",
               m.nll, m.prompt, m.mean, m.least, m.first, m.peak);
    } else {
        fprintf(stderr, "run_bench: %s: %s\n", error.where, error.message);
    }
    free(ids);
    return error.status != WEFT_OK;
}
