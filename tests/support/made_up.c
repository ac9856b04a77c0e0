/* The synthetic search model of made_up.h. */
#include "made_up.h"

#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t hash_on(uint64_t h, int32_t token)
{
    uint64_t state = h * 31 + (uint64_t)token + 1;
    return test_random(&state);
}

void made_up_row(const made_up *m, uint64_t h, double *logs)
{
    double sum = 0;
    for (int64_t i = 0; i < m->vocab; i++) {
        logs[i] = test_uniform(&h, 0, m->spread);
        sum += exp(logs[i]);
    }
    for (int64_t i = 0; i < m->vocab; i++) logs[i] -= log(sum);
}

weft_status made_up_step(void *context, const int32_t *tokens, const int32_t *parents,
                         weft_tensor *log_probs, weft_error *error)
{
    made_up *m = context;
    static uint64_t old[MAX_ROWS];
    if (m->broken && m->position == 2)
        return weft_error_set(error, WEFT_IO, "made up", "does not go on");
    for (int64_t i = 0; i < m->rows; i++) old[i] = m->position ? m->before[i] : m->seed;
    for (int64_t i = 0; i < m->rows; i++) {
        m->before[i] = hash_on(old[m->position ? parents[i] : i], tokens[i]);
        made_up_row(m, m->before[i], m->logs + i * m->vocab);
    }
    m->position++;
    *log_probs = weft_tensor_dense(m->logs, WEFT_F64, WEFT_SHAPE(m->rows, m->vocab));
    return WEFT_OK;
}

weft_search_model made_up_model(made_up *m, int64_t sentences, int64_t beams, int64_t vocab,
                                uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->rows = sentences * beams;
    m->vocab = vocab;
    m->seed = seed;
    m->spread = 3;
    m->logs = calloc((size_t)(m->rows * vocab), sizeof *m->logs);
    return (weft_search_model){.step = made_up_step,
                               .context = m,
                               .sentences = sentences,
                               .beams = beams,
                               .vocab = vocab,
                               .max_len = MAX_LEN};
}

bool same_hypothesis(const weft_hypothesis *a, const weft_hypothesis *b)
{
    return a->length == b->length && a->ended == b->ended && a->log_prob == b->log_prob &&
           a->score == b->score && !memcmp(a->tokens, b->tokens, a->length * sizeof(int32_t)) &&
           !memcmp(a->log_probs, b->log_probs, (a->length + a->ended) * sizeof(double));
}
