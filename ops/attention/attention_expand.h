/* The expansions of sdpa and sdpa_grad into simpler ops, for their descriptors. */
#ifndef WEFT_OPS_ATTENTION_EXPAND_H
#define WEFT_OPS_ATTENTION_EXPAND_H

#include <weft/op.h>

void weft__expand_sdpa(weft_expand *e);
void weft__expand_sdpa_grad(weft_expand *e);

#endif
