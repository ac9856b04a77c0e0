/* The passes of the folder passes/, for the ops that need them (weft_op.passes). */
#ifndef WEFT_OPS_PASSES_H
#define WEFT_OPS_PASSES_H

#include <weft/pass.h>

extern const weft_pass weft__pass_attention, weft__pass_channels_last, weft__pass_fold_conv,
    weft__pass_join_products, weft__pass_join_slices, weft__pass_pack_weights,
    weft__pass_reuse_dropout, weft__pass_tiles, weft__pass_winograd;

/* The passes of an op. */
#define PASSES(...)                                                                                \
    .passes = (const weft_pass *const[])                                                           \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

#endif
