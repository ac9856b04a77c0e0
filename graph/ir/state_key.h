/* ir/state_key.h - declares states by key. Not installed. */
#ifndef WEFT_IR_STATE_KEY_H
#define WEFT_IR_STATE_KEY_H

#include <weft/graph.h>
#include <weft/state_key.h>

#include "base/private.h"

/* Whether a text names a whole state of a model, and not a state of training or a piece. */
WEFT_PRIVATE_API bool weft__names_model_state(const char *name);
/* Declares a state of zeros, named by the text of its key (weft_state). */
WEFT_PRIVATE_API weft_value weft__state_of_key(weft_graph *graph, const weft_state_key *key,
                                               weft_dtype dtype, weft_shape shape);

#endif
