/* A corpus of random tokens, and options of batches, for tests of batches and of the trainer. */
#ifndef WEFT_TESTS_TOKEN_BATCHES_H
#define WEFT_TESTS_TOKEN_BATCHES_H

#include <weft/train.h>

/* Token ids; FIRST .. VOCAB - 1 are ordinary ones. */
enum { PAD = 0, BOS = 2, EOS = 3, MASK = 4, FIRST = 5, VOCAB = 40 };

/* n sequences, or pairs, of 1 .. max_len tokens (max_len <= 64). The first target token of sequence
 * i is FIRST + i % (VOCAB - FIRST). The caller frees the corpus. */
weft_corpus *make_corpus(size_t n, size_t max_len, bool pairs, uint64_t seed);
/* Options for rows of 8, 12 and 16 tokens, with at most `tokens` a batch. */
weft_batch_options batch_options(weft_batch_mode mode, int64_t tokens);

#endif
