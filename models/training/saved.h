/* saved.h - saved models: what the program also needs. */
#ifndef WEFT_TRAINING_SAVED_H
#define WEFT_TRAINING_SAVED_H

#include <weft/saved.h>

#include "base/match.h"
#include "base/private.h"

/* Fails unless the store has the tensors that the graph of a whole model declares, quantised or
 * not, and no others but states of training. The message has the first names. */
WEFT_PRIVATE_API weft_status weft__saved_check(const weft_params *params, const weft_graph *graph,
                                               const char *where, weft_error *error);
/* Fails if tensors are missing or unexpected. */
WEFT_PRIVATE_API weft_status weft__saved_judge(const name_match *match, const char *where,
                                               weft_error *error);

/* The hashes of vocabulary files, in the form of the metadata "vocabulary" of checkpoints: one
 * hash, or those of source and target. `source` is NULL if there is only one file. */
#define VOCABULARY_TEXT 40
WEFT_PRIVATE_API weft_status weft__vocabulary_text(const char *source, const char *target,
                                                   char text[VOCABULARY_TEXT], weft_error *error);
/* Compares the files with these metadata of a checkpoint and names the file that differs. Messages
 * call the checkpoint `where`. Old checkpoints have no hashes and accept any vocabulary. */
WEFT_PRIVATE_API weft_status weft__vocabulary_check(const weft_params *params, const char *source,
                                                    const char *target, const char *where,
                                                    weft_error *error);

#endif
