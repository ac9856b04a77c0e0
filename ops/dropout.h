/* The mask of dropout, for the op itself and for ops that drop inside: element i of a value is kept
 * where word i % 4 of philox(counter (i / 4, step), stream) is at or above p 2^32. */
#ifndef WEFT_OPS_DROPOUT_H
#define WEFT_OPS_DROPOUT_H

#include <weft/op.h>

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;

static inline uint64_t dropout_stream(uint64_t key, const weft_run_state *run)
{
    return key ^ (run->seed * 0xD1342543DE82EF95u);
}

static inline uint32_t dropout_limit(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

/* The words of elements 4 index .. 4 index + 3. */
static inline void dropout_words(uint64_t index, uint64_t stream, uint64_t step, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)step,
                                 (uint32_t)(step >> 32)};
    weft_philox(counter, stream, out);
}

#endif
