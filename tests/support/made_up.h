/* A synthetic search model, whose probabilities follow from a hash, for tests of searches. */
#ifndef WEFT_TESTS_MADE_UP_H
#define WEFT_TESTS_MADE_UP_H

#include <weft/decode.h>

#define MAX_ROWS 4096
#define MAX_LEN  12

/* The probabilities of a row depend on all its tokens, by a hash. `broken`: step 2 fails. */
typedef struct made_up {
    int64_t rows, vocab, position;
    uint64_t seed, before[MAX_ROWS];
    double spread;
    double *logs;
    bool broken;
} made_up;

/* The hash of a sequence of tokens, continued by one token. It begins with the model's seed. */
uint64_t hash_on(uint64_t h, int32_t token);
/* Writes logs[vocab]: the log softmax of pseudo-random numbers that follow from the hash. */
void made_up_row(const made_up *m, uint64_t h, double *logs);
/* The model's step, see weft_search_model; the context is a made_up. */
weft_status made_up_step(void *context, const int32_t *tokens, const int32_t *parents,
                         weft_tensor *log_probs, weft_error *error);
/* Resets *m and returns a search model over it. The caller frees m->logs. */
weft_search_model made_up_model(made_up *m, int64_t sentences, int64_t beams, int64_t vocab,
                                uint64_t seed);

/* Whether two hypotheses have the same tokens and the same bits. */
bool same_hypothesis(const weft_hypothesis *a, const weft_hypothesis *b);

#endif
