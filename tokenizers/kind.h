/* kind.h - the kind of tokenisers of Hugging Face. Not installed. */
#ifndef WEFT_TOKENIZERS_KIND_H
#define WEFT_TOKENIZERS_KIND_H

#include "state.h"

extern const weft_tokenizer_kind weft__tk_kind;

#endif
