/* The model of a run, and the options of its training step from the recipe. */
#ifndef WEFT_TOOLS_REPORT_RUN_MODEL_H
#define WEFT_TOOLS_REPORT_RUN_MODEL_H

#include "tool.h"

/* The source of the model: the metadata of the checkpoint, or the ONNX file. */
typedef struct run_model {
    weft_params *meta;
    char options[TOOL_OPTIONS_TEXT], sizes[WEFT_MODEL_SIZES][64], onnx[4096], checkpoint[4096];
    weft_batch_shape shape; /* of the largest batch that the recipe allows; rows 0: unknown */
    model_args args;        /* keep_f32 points into the recipe */
} run_model;

/* Finds the model of the run in a folder. `recipe` is its recipe.json; NULL if there is none. False
 * if the run has no checkpoint yet, or after an error. It must be closed in any case. */
bool run_model_open(run_model *m, const char *folder, const cJSON *recipe, weft_error *error);
void run_model_close(run_model *m);

#endif
