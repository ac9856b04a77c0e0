/* saved.h - saved models: what the program also needs. */
#ifndef WEFT_TRAINING_SAVED_H
#define WEFT_TRAINING_SAVED_H

#include <weft/saved.h>

#include "base/file.h"
#include "base/match.h"
#include "base/private.h"

/* A graph of the whole model, with rows no longer than it has positions; NULL if out of memory. */
WEFT_PRIVATE_API weft_graph *weft__saved_graph(const weft_model_config *config, const char *where,
                                               weft_error *error);
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

/* A hash of a file's bytes, FNV-1a. */
weft_status weft__file_hash(const char *path, char text[17], weft_error *error);

/* Metadata of adapters (weft/lora.h): a hash of the file of their model, a space, and its path. */
#define BASE_META "base"
#define BASE_HASH 16 /* characters */
#define BASE_TEXT (BASE_HASH + 2 + FILE_PATH_BYTES)
WEFT_PRIVATE_API weft_status weft__base_text(const char *path, char text[BASE_TEXT],
                                             weft_error *error);
/* Copies what the training of adapters, whose metadata `from` has, says about the whole: the model
 * `to`. trained_length becomes the longer of the two; a model without one stays without. */
WEFT_PRIVATE_API weft_status weft__base_copy_meta(weft_params *to, const weft_params *from,
                                                  weft_error *error);
/* If the parameters are adapters, they become those of the model with the adapters. */
weft_status weft__base_open(weft_saved_model *m, weft_error *error);

#endif
