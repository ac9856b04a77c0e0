/* See vocabulary.h. */
#include "vocabulary.h"

#include "tool.h"

#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/tokenizers.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool vocabulary_is_json(const char *path)
{
    return tool_ends_with(path, ".json");
}

weft_tokenizer *vocabulary_open(const char *path, weft_error *error)
{
    if (!vocabulary_is_json(path)) return spm_load(path, error);
#ifdef WEFT_HAVE_TOKENIZERS
    return weft_tokenizer_load_json(path, error);
#else
    weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                   "cannot be read: weft was built without PCRE2 and utf8proc");
    return NULL;
#endif
}

int32_t *vocabulary_banned(const weft_tokenizer *source, const weft_tokenizer *target, size_t *n)
{
    static const int32_t special[] = {SPM_PAD, SPM_UNK, SPM_BOS};
    const size_t specials = sizeof special / sizeof *special;
    int32_t pieces = spm_size(target), all = spm_size(source);
    *n = specials + (all > pieces ? (size_t)(all - pieces) : 0);
    int32_t *banned = calloc(*n, sizeof *banned);
    if (!banned) return NULL;
    memcpy(banned, special, sizeof special);
    for (size_t i = specials; i < *n; i++) banned[i] = pieces + (int32_t)(i - specials);
    return banned;
}
