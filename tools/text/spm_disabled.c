/* Replaces SentencePiece in a program that was built without it: every call fails. */
#include "spm.h"

static const char reason[] = "weft was built without SentencePiece (-Dsentencepiece)";

weft_status spm_train(const char *const *files, size_t n, const spm_options *options,
                      spm_counts *counts, char **model, size_t *bytes, weft_error *error)
{
    (void)files, (void)n, (void)options;
    *counts = (spm_counts){0, 0, 0};
    *model = NULL;
    *bytes = 0;
    return weft_error_set(error, WEFT_NO_BACKEND, "vocabulary", "%s", reason);
}

weft_tokenizer *spm_parse(const char *model, size_t bytes, const char *where, weft_error *error)
{
    (void)model, (void)bytes;
    weft_error_set(error, WEFT_NO_BACKEND, where, "%s", reason);
    return NULL;
}

weft_tokenizer *spm_load(const char *path, weft_error *error)
{
    return spm_parse(NULL, 0, path, error);
}
