/* Pairs of token sequences, and batches of equal shape made of them. */
#ifndef WEFT_TOOLS_CORPUS_H
#define WEFT_TOOLS_CORPUS_H

#include "spm.h"

#include <weft/graph.h>

/* Pair i: source ids with EOS, target ids with EOS (BOS goes in front when it is fed). */
typedef struct pair {
    int32_t *source, *target;
    int32_t source_len, target_len;
} pair;

typedef struct corpus {
    pair *pairs;
    size_t n;
    size_t too_long; /* pairs left out for their length */
    size_t empty;    /* and those with an empty side */
} corpus;

/* Reads two text files line by line; a pair with a side over most_len tokens is left out and
 * counted. Errors: a missing or empty file, files of unequal length. */
weft_status corpus_load(corpus *c, const char *source_path, const char *target_path,
                        const spm *vocabulary, int32_t most_len, weft_error *error);
void corpus_free(corpus *c);

/* Length classes: pairs of class b fit in lengths[b] tokens on both sides. */
#define BUCKETS 7
extern const int32_t bucket_lengths[BUCKETS];
int bucket_of(const pair *p);
/* Sentences of a batch of a class that holds about `tokens` target tokens. */
int64_t bucket_batch(int bucket, int64_t tokens);

/* An epoch: batches of pairs of one class in an order shuffled by the seed. A batch that the pairs
 * of its class do not fill is filled up from the start of the class. */
typedef struct batch {
    int bucket;
    size_t first;   /* in epoch.order */
    int64_t unique; /* rows before the filling up */
} batch;
typedef struct epoch {
    uint32_t *order;
    batch *batches;
    size_t n_batches;
} epoch;
weft_status epoch_make(epoch *e, const corpus *c, int64_t tokens, uint64_t seed);
void epoch_free(epoch *e);

/* Fills ids of [size, len] each: source, target_in (BOS first), target_out; the rest, and rows from
 * `rows` on, is padding. Returns the target tokens that are not padding. */
size_t batch_fill(const corpus *c, const uint32_t *order, int64_t rows, int64_t size, int32_t len,
                  int32_t *source, int32_t *target_in, int32_t *target_out);

/* Entropy in nats of the unigram distribution of `counted` (with add-one smoothing over the
 * vocabulary) on the target tokens of `measured`: what a model without any context reaches. */
double unigram_entropy(const corpus *counted, const corpus *measured, int vocab);

#endif
