/* encode.h - from texts to tokens. Not installed. */
#ifndef WEFT_TOKENIZERS_ENCODE_H
#define WEFT_TOKENIZERS_ENCODE_H

#include "state.h"

typedef struct tk_tokens {
    tk_token *tokens;
    size_t n;
} tk_tokens;

/* Applies the post-processors that change spans. */
void weft__tk_trim(const tk_state *s, const char *text, tk_token *tokens, size_t n);
/* Puts the tokens of a text, or of a pair, and those that are added to them into an encoding. */
weft_status weft__tk_assemble(const tk_state *s, const weft_encode_input *input,
                              const tk_tokens texts[2], weft_encoding *encoding, weft_error *error);

#endif
