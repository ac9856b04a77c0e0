/* weft/saved.h - trained models in files: those of `weft train`, `weft convert`, `weft quantize`
 * and weft_trainer_save. Of the library weft-models. */
#ifndef WEFT_SAVED_H
#define WEFT_SAVED_H

#include <weft/models.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the path of the checkpoint of a run: RUN itself if it is a file, else
 * RUN/best.safetensors, else RUN/model.safetensors. WEFT_NOT_FOUND if there is none, WEFT_TOO_LARGE
 * if the path does not fit. */
WEFT_API weft_status weft_saved_path(const char *run, char *path, size_t capacity,
                                     weft_error *error);

/* *config becomes the listed model that the metadata of a store name, with its options. Fails
 * unless the store has all tensors of this model, quantised or not, and no others but states of
 * training: WEFT_BAD_FILE. Messages call the store `where`. */
WEFT_API weft_status weft_saved_config(const weft_params *params, const char *where,
                                       weft_model_config *config, weft_error *error);

/* A trained model. Its parameters and configuration are what weft_decoder_new, weft_scorer_new,
 * weft_forward_new and weft_trainer_new take. */
typedef struct weft_saved_model {
    weft_params *params; /* without states of training, and with the metadata of the file */
    weft_model_config config;
    const char *path; /* of the checkpoint */
    /* Of a checkpoint of adapters (weft/lora.h): that of their model. The parameters are those of
     * this model with the adapters (weft_params_add_adapters). NULL: the checkpoint has a whole model. */
    const char *base;
    /* Paths of the vocabularies of source and target in the run's folder: vocab.source.model and
     * vocab.target.model, or as that of the target, for both, vocab.model or else tokenizer.json
     * (weft/tokenizers.h). NULL: the file is missing. */
    const char *vocabulary[2];
    uint64_t updates; /* that training had made; 0: unknown */
    /* Tokens of the longest row that it was trained on; with adapters, itself or they. 0: unknown. */
    int64_t trained_length;
} weft_saved_model;

/* Opens the model of a run, a folder or a checkpoint in it. `checkpoint`, if it is not NULL, is
 * read instead of the run's. Fails if a vocabulary is not the one that the model was trained with:
 * WEFT_BAD_ARGUMENT; or if the model of adapters does not exist, or has changed: WEFT_NOT_FOUND,
 * WEFT_BAD_FILE. weft_saved_close frees the model and its parameters. NULL on failure. */
WEFT_API weft_saved_model *weft_saved_open(const char *run, const char *checkpoint,
                                           weft_error *error);
WEFT_API void weft_saved_close(weft_saved_model *model);

#ifdef __cplusplus
}
#endif
#endif
