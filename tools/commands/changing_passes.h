#ifndef WEFT_TOOLS_CHANGING_PASSES_H
#define WEFT_TOOLS_CHANGING_PASSES_H

/* Passes that change bits (docs/arithmetic.md): hashes are those of plans with them. */
static const char *const changing_passes[] = {"join_slices", "join_products", "fold_conv",
                                              "attention",   "channels_last", "pack_weights",
                                              "precision"};

#endif
