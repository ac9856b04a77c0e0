/* The model and the data of `weft fit`. Functions return false after an error in t->error. */
#ifndef WEFT_TOOLS_FIT_DATA_H
#define WEFT_TOOLS_FIT_DATA_H

#include "training.h"

#include <weft/fit.h>

typedef struct training_fit {
    onnx_args onnx;
    char *dims;      /* the text that `onnx` points into */
    char copy[4096]; /* path of the file in the folder of the run */
    weft_onnx *file; /* NULL: a model of the list */
    weft_fit fit;
    weft_builder model; /* which fit.model builds on, if it takes logits instead of an output */
    int64_t source_len, target_len; /* of a model of the list that has tokens */
    weft_graph *graph;              /* of a batch, without a loss */
    weft_built built;
    weft_params *base; /* the file's weights, if adapters are trained next to them */
    weft_params *data; /* the arrays */
    weft_arrays *train, *valid;
} training_fit;

/* Checks the options. */
bool fit_check(training *t);
/* Reads the file, or the options of a model of the list, into t->fit. */
bool fit_load_model(training *t);
/* Reads the arrays, and sets builder, sources of batches, groups and steps. */
bool fit_read_data(training *t);
/* Copies the file into the folder of a new run. */
bool fit_copy_model(training *t);
/* Checks the checkpoint of --from, before anything is written. */
bool fit_check_from(training *t);
/* Fills the parameters of a new run. */
bool fit_begin(training *t);
/* Replaces the output of the loss by its logits if it is a softmax of them, over the classes, and the
 * loss a cross entropy; or a sigmoid, and the loss bce. False for other outputs. */
bool fit_take_logits(training_fit *fit);
void fit_free(training_fit *fit);

/* Reads the loss from the recipe in the folder of a run's model.onnx. */
bool fit_read_loss(const char *onnx, file_loss *loss, weft_error *error);

#endif
