/* What the files of the checks share. */
#ifndef WEFT_AUTOGRAD_CHECK_H
#define WEFT_AUTOGRAD_CHECK_H

#include <weft/autograd.h>

/* Number i in [0, 1) of a key. */
static inline double check_uniform(uint64_t key, uint64_t i)
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0x63686563u, 0};
    uint32_t r[4];
    weft_philox(counter, key, r);
    return weft_uniform(r);
}

/* Compares what an op computes from operands of several layouts with what it computes from dense
 * copies of them (check_layouts.c). A difference is in *result: worst_error and where. */
weft_status weft__check_layouts(const weft_op *op, const weft_sample *sample, uint64_t seed,
                                weft_check_result *result, weft_error *error);

#endif
