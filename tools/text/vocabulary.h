/* Vocabularies that commands make. */
#ifndef WEFT_TOOLS_VOCABULARY_H
#define WEFT_TOOLS_VOCABULARY_H

#include "spm.h"

/* spm_train, with a line on standard error that says what is made, and one if lines were left out
 * or read in pieces. */
weft_status vocabulary_make(const char *const *files, size_t n, const spm_options *options,
                            char **model, size_t *bytes, weft_error *error);

#endif
