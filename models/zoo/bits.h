/* What the hashes of a file and of a listed model share. Not installed. */
#ifndef WEFT_ZOO_BITS_H
#define WEFT_ZOO_BITS_H

#include "base/private.h"

#include <weft/op.h>
#include <weft/session.h>
#include <weft/store.h>

/* Fills an input: ids are in [1, vocab) and the last one is 0, the padding; an eighth of truth values
 * is true; numbers are in [-1, 1); a scalar (a learning rate) is 1e-4. */
WEFT_PRIVATE_API void weft__synthetic_input(weft_type type, int64_t vocab, uint64_t seed,
                                            void *data);
/* Runs ten steps of a session that is fed, and hashes its parameters. */
WEFT_PRIVATE_API weft_status weft__ten_steps(weft_session *session, const weft_params *params,
                                             uint64_t *hash, weft_error *error);

#endif
