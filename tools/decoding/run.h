/* What `weft train` left in a folder: a checkpoint, the model that it is of, its vocabulary. */
#ifndef WEFT_TOOLS_RUN_H
#define WEFT_TOOLS_RUN_H

#include "text/spm.h"
#include "tool.h"

/* The hashes of vocabulary files as the metadata "vocabulary" of checkpoints keep them: that of the
 * one, or those of source and target; `source` is NULL if there is one only. */
#define VOCABULARY_TEXT 40
bool vocabulary_text(const char *source, const char *target, char text[VOCABULARY_TEXT],
                     weft_error *error);
/* Holds the files against those metadata of a checkpoint that messages call `checkpoint`, and names
 * the one that differs. Old checkpoints say nothing, and any vocabulary will do. */
bool vocabulary_fits(const weft_params *params, const char *source, const char *target,
                     const char *checkpoint, weft_error *error);

typedef struct trained_run {
    weft_params *params;
    const weft_model *model; /* NULL until it is known */
    weft_model_config config;
    weft_model_traits traits;
    bool documents;       /* its texts are of several lines (data.unit) */
    int64_t trained_len;  /* tokens of the longest row that it was trained on; 0: unknown */
    spm *source, *target; /* the same if they share FOLDER/vocab.model */
    bool shared;
    char vocabulary_path[2][4096]; /* of source and target; that of the source unless shared */
} trained_run;

/* Reads FOLDER/vocab.model, or vocab.source.model and vocab.target.model, and the checkpoint: the
 * file that is named, or else FOLDER/best.safetensors, or else FOLDER/model.safetensors. A
 * vocabulary that the checkpoint was not trained with is an error. */
bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error);
void trained_close(trained_run *run);

#endif
