/* What `weft train` left in a folder: a checkpoint, the model that it is of, its vocabulary. */
#ifndef WEFT_TOOLS_RUN_H
#define WEFT_TOOLS_RUN_H

#include "spm.h"
#include "tool.h"

typedef struct trained_run {
    weft_params *params;
    const weft_model *model;
    double values[WEFT_MODEL_OPTIONS];
    bool documents;       /* its texts are of several lines (data.unit) */
    int64_t trained_len;  /* tokens of the longest row that it was trained on; 0: unknown */
    spm *source, *target; /* the same if FOLDER/vocab.model is shared */
} trained_run;

/* Reads FOLDER/vocab.model, or vocab.source.model and vocab.target.model, and the checkpoint: the
 * file that is named, or else FOLDER/best.safetensors, or else FOLDER/model.safetensors. */
bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error);
void trained_close(trained_run *run);

#endif
