/* See vocabulary.h. */
#include "vocabulary.h"

#include <stdio.h>

weft_status vocabulary_make(const char *const *files, size_t n, const spm_options *options,
                            char **model, size_t *bytes, weft_error *error)
{
    spm_counts counts;
    fprintf(stderr, "making a vocabulary of %d pieces (%s) ...\n", options->size, options->type);
    weft_status status = spm_train(files, n, options, &counts, model, bytes, error);
    if (counts.invalid || counts.split)
        fprintf(stderr,
                "vocabulary: of %zu lines %zu are not UTF-8 (left out), %zu longer than %d bytes "
                "(read in pieces)\n",
                counts.lines, counts.invalid, counts.split, SPM_LINE_BYTES);
    return status;
}
