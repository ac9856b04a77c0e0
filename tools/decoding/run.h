/* A run of `weft train`, read from its folder: checkpoint, model and vocabulary. */
#ifndef WEFT_TOOLS_RUN_H
#define WEFT_TOOLS_RUN_H

#include "text/spm.h"
#include "tool.h"

/* The hashes of vocabulary files, in the form of the metadata "vocabulary" of checkpoints: one
 * hash, or those of source and target. `source` is NULL if there is only one file. */
#define VOCABULARY_TEXT 40
bool vocabulary_text(const char *source, const char *target, char text[VOCABULARY_TEXT],
                     weft_error *error);
/* Compares the files with these metadata of a checkpoint and names the file that differs. Messages
 * call the checkpoint `checkpoint`. Old checkpoints have no hashes and accept any vocabulary. */
bool vocabulary_fits(const weft_params *params, const char *source, const char *target,
                     const char *checkpoint, weft_error *error);

typedef struct trained_run {
    weft_params *params;
    const weft_model *model; /* NULL until it is known */
    weft_model_config config;
    weft_model_traits traits;
    bool documents;      /* its texts have several lines (data.unit) */
    int64_t trained_len; /* tokens of the longest row that it was trained on; 0: unknown */
    weft_tokenizer *source, *target; /* the same if they share FOLDER/vocab.model */
    bool shared;
    char vocabulary_path[2][4096]; /* of source and target; that of the source unless shared */
} trained_run;

/* Reads FOLDER/vocab.model, or vocab.source.model and vocab.target.model, and the checkpoint: the
 * named file, else FOLDER/best.safetensors, else FOLDER/model.safetensors. Fails if the checkpoint
 * was trained with another vocabulary. */
bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error);
void trained_close(trained_run *run);

#endif
