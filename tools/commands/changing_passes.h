/* Passes that change bits: the hashes of `weft check --bits` are those of plans with them
 * (docs/arithmetic.md). The suite pass_bits compares plans without each. */
#ifndef WEFT_CHANGING_PASSES_H
#define WEFT_CHANGING_PASSES_H

static const char *const changing_passes[] = {"join_slices", "join_products", "fold_conv",
                                              "attention",   "channels_last", "pack_weights",
                                              "winograd",    "tiles",         "precision"};

#endif
