/* Making and opening vocabularies, and the ids of one that searches must not choose. */
#ifndef WEFT_TOOLS_VOCABULARY_H
#define WEFT_TOOLS_VOCABULARY_H

#include "spm.h"

/* spm_train, with a line on standard error about the vocabulary, and another if lines were left out
 * or read in pieces. */
weft_status vocabulary_make(const char *const *files, size_t n, const spm_options *options,
                            char **model, size_t *bytes, weft_error *error);

/* Opens a vocabulary: a tokenizer.json if the name ends with .json, otherwise one of SentencePiece. */
weft_tokenizer *vocabulary_open(const char *path, weft_error *error);
bool vocabulary_is_json(const char *path);

/* Ids that no search may choose: padding, unknown and begin, and those that only the source's
 * vocabulary has (a model has as many ids as the larger one). The caller frees the list; NULL when
 * memory is out. */
int32_t *vocabulary_banned(const weft_tokenizer *source, const weft_tokenizer *target, size_t *n);

#endif
