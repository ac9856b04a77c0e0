/* A run of `weft train`, read from its folder: checkpoint, model and vocabulary. */
#ifndef WEFT_TOOLS_RUN_H
#define WEFT_TOOLS_RUN_H

#include "text/spm.h"
#include "tool.h"

#include <weft/saved.h>

typedef struct trained_run {
    weft_saved_model *saved;
    weft_params *params;     /* of `saved` */
    const weft_model *model; /* NULL until it is known */
    weft_model_config config;
    weft_model_traits traits;
    bool documents;      /* its texts have several lines (data.unit) */
    int64_t trained_len; /* tokens of the longest row that it was trained on; 0: unknown */
    weft_tokenizer *source, *target; /* the same if they share FOLDER/vocab.model */
    bool shared;
    const char *vocabulary_path[2]; /* of source and target; NULL of the source if shared */
} trained_run;

/* weft_saved_open, and the tokenisers of its vocabularies, which must exist. */
bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error);
void trained_close(trained_run *run);

#endif
