/* The corpus and options of token_batches.h. */
#include "token_batches.h"

#include "tests.h"

weft_corpus *make_corpus(size_t n, size_t max_len, bool pairs, uint64_t seed)
{
    weft_corpus *c = weft_corpus_new();
    for (size_t i = 0; i < n; i++) {
        int32_t ids[2][64];
        size_t length[2];
        for (int side = 0; side < 2; side++) {
            length[side] = 1 + test_random(&seed) % max_len;
            for (size_t k = 0; k < length[side]; k++)
                ids[side][k] = FIRST + (int32_t)(test_random(&seed) % (VOCAB - FIRST));
        }
        ids[1][0] = FIRST + (int32_t)(i % (VOCAB - FIRST));
        weft_corpus_add(c, pairs ? ids[0] : NULL, pairs ? length[0] : 0, ids[1], length[1], NULL);
    }
    return c;
}

weft_batch_options batch_options(weft_batch_mode mode, int64_t tokens)
{
    return (weft_batch_options){.mode = mode,
                                .tokens = tokens,
                                .lengths = {8, 12, 16},
                                .n_lengths = 3,
                                .pad = PAD,
                                .bos = BOS,
                                .eos = EOS,
                                .mask = MASK,
                                .first_id = FIRST,
                                .vocab = VOCAB,
                                .seed = 7};
}
