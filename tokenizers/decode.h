/* decode.h - from tokens to a text. Not installed. */
#ifndef WEFT_TOKENIZERS_DECODE_H
#define WEFT_TOKENIZERS_DECODE_H

#include "state.h"

/* w->chain becomes the pieces of n ids. */
void weft__tk_begin_chain(const tk_state *s, tk_work *w, const int32_t *ids, size_t n);
/* w->next_chain becomes w->chain. */
void weft__tk_swap_chains(tk_work *w);

tk_decode weft__tk_decode_fallback, weft__tk_decode_fuse, weft__tk_decode_join,
    weft__tk_decode_level, weft__tk_decode_replace, weft__tk_decode_metaspace,
    weft__tk_decode_strip, weft__tk_decode_bpe, weft__tk_decode_wordpiece;

#endif
