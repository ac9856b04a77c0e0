/* What the files of the checks share. */
#ifndef WEFT_AUTOGRAD_CHECK_H
#define WEFT_AUTOGRAD_CHECK_H

#include <weft/autograd.h>

/* Compares what an op computes from operands of several layouts with what it computes from dense
 * copies of them (check_layouts.c). A difference is in *result: worst_error and where. */
weft_status weft__check_layouts(const weft_op *op, const weft_sample *sample, uint64_t seed,
                                weft_check_result *result, weft_error *error);

#endif
