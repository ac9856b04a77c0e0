/* weft/huggingface.h - models in the folders of Hugging Face's library transformers: config.json
 * and model.safetensors.
 *
 * A table for each architecture (formats/huggingface/tables.c) maps the keys of config.json to the
 * options of a listed model, and the names of tensors to names of parameters. Both directions use
 * it. If a model of weft cannot represent a key, the error names the key and its value. Nothing
 * that changes the results is ignored. */
#ifndef WEFT_HUGGINGFACE_H
#define WEFT_HUGGINGFACE_H

#include <weft/embed.h>
#include <weft/models.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An architecture: the name of its class in transformers, and the listed model that computes it. */
typedef struct weft_huggingface_architecture {
    const char *name, *model;
} weft_huggingface_architecture;
/* The architecture `index`; false beyond the end. */
WEFT_API bool weft_huggingface_at(size_t index, weft_huggingface_architecture *architecture);

/* Metadata that weft_huggingface_load sets, besides `model` and `model_options`: the text of
 * config.json, and names of tensors that the model does not use, separated by spaces. */
#define WEFT_HUGGINGFACE_CONFIG   "huggingface.config"
#define WEFT_HUGGINGFACE_LEFT_OUT "huggingface.left_out"

/* Reads FOLDER/config.json and the tensors of FOLDER/model.safetensors, or of the files that
 * FOLDER/model.safetensors.index.json names, into an empty store, and sets *config to the model and
 * its options. Tensors are f32 in the store and F32, F16 or BF16 in the files; memory is needed for
 * the store and one tensor. Errors: WEFT_NOT_FOUND if a file, a key or a tensor is missing;
 * WEFT_BAD_FILE if a file is malformed, or has a tensor that the architecture lacks;
 * WEFT_BAD_ARGUMENT if no model of weft has this architecture or a value of its configuration;
 * WEFT_BAD_SHAPE if a tensor has another shape than the configuration says. On failure the store
 * may have some of the tensors. */
WEFT_API weft_status weft_huggingface_load(weft_params *params, weft_model_config *config,
                                           const char *folder, weft_error *error);

/* What only models with LongRoPE (rope_type "longrope") depend on. Their configuration has two lists
 * of factors, for texts of up to original_max_position_embeddings tokens and for longer ones; weft's
 * model has one of them. */
typedef struct weft_huggingface_options {
    int64_t context; /* tokens of the longest text. The short factors are taken up to the original
                        positions, and then are a limit of the model; else the long ones, for up to
                        max_position_embeddings. 0: the original positions */
} weft_huggingface_options;
/* weft_huggingface_load with options, which may be NULL. WEFT_BAD_ARGUMENT also if the model has
 * LongRoPE and fewer positions than the context. */
WEFT_API weft_status weft_huggingface_load_with(weft_params *params, weft_model_config *config,
                                                const char *folder,
                                                const weft_huggingface_options *options,
                                                weft_error *error);
/* The same for a model in memory: the text of config.json, and n safetensors files. Their bytes may
 * be freed afterwards. Messages about the model have the name of the first file of tensors. */
WEFT_API weft_status weft_huggingface_load_from_memory(weft_params *params,
                                                       weft_model_config *config,
                                                       weft_memory_file config_json,
                                                       const weft_memory_file *tensors, size_t n,
                                                       weft_error *error);

/* Writes the parameters of a model, f32, as FOLDER/config.json and FOLDER/model.safetensors, which
 * transformers can read. The folder is made if it is missing. `architecture`: NULL for that of
 * WEFT_HUGGINGFACE_CONFIG, or else the first that has all options of the model. Of
 * WEFT_HUGGINGFACE_CONFIG, keys that no option determines are kept. Errors: WEFT_NOT_FOUND if there
 * is no such architecture, or a parameter is missing; WEFT_BAD_ARGUMENT, with the option, if the
 * architecture does not have its value; WEFT_IO. */
WEFT_API weft_status weft_huggingface_save(const weft_params *params,
                                           const weft_model_config *config, const char *folder,
                                           const char *architecture, weft_error *error);

/* ---- Adapters (weft/lora.h) in the format of Hugging Face's library PEFT ---- */

/* Writes `adapters`, which were trained next to the model of `base` and `config`, as
 * FOLDER/adapter_config.json and FOLDER/adapter_model.safetensors. Names of modules are those of the
 * architecture that weft_huggingface_save would choose. Where this has several matrices in one, such
 * as qkv_proj, its rank is the sum of theirs, or, if all have the same A, their rank. Exact.
 * `base` may be quantised: only its metadata count. `architecture` may be NULL, as there. Errors:
 * those of weft_huggingface_save; WEFT_BAD_FILE if the adapters lack the metadata "lora", or have a
 * tensor of no module, which the error names, or none; WEFT_BAD_SHAPE if one does not fit. */
WEFT_API weft_status weft_huggingface_save_adapters(const weft_params *adapters,
                                                    const weft_params *base,
                                                    const weft_model_config *config,
                                                    const char *folder, const char *architecture,
                                                    weft_error *error);
/* Reads such a folder, also as PEFT writes it, into an empty store: adapters for the model of `base`,
 * of which only the metadata count, and `config`, with the metadata "lora". Names of modules are
 * those of `architecture`, or, if this is NULL, of the one that weft_huggingface_save would choose.
 * Where weft has several matrices for one of theirs, each gets the module's A and its part of B. The
 * factor of a module that differs from the others' is multiplied into its B. Errors: WEFT_NOT_FOUND
 * if a file is missing or the architecture is unknown; WEFT_BAD_FILE for a malformed file or an
 * unexpected tensor; WEFT_BAD_ARGUMENT for what weft's adapters lack (DoRA, biases, modules_to_save, a module that weft does not adapt), for
 * a key of adapter_config.json with a value of another type or outside its range, or if the
 * architecture does not have all options of the model; WEFT_BAD_SHAPE if a tensor does not fit its
 * module; WEFT_TOO_LARGE for a path or a name that is too long; WEFT_IO; WEFT_NO_MEMORY. On failure
 * the store may have some of the tensors. */
WEFT_API weft_status weft_huggingface_load_adapters(weft_params *adapters, const weft_params *base,
                                                    const weft_model_config *config,
                                                    const char *folder, const char *architecture,
                                                    weft_error *error);

/* How a published encoder makes one vector of a text, for weft_embedder_options. */
typedef struct weft_huggingface_embedding {
    weft_pooling pooling;
    bool normalize;
    int64_t max_len; /* tokens; 0: as many as the model has positions */
} weft_huggingface_embedding;
/* Reads it from modules.json of sentence-transformers in the folder of a model or of a run, the
 * config.json of the module Pooling, and sentence_bert_config.json. Without these files it is the
 * mean, not normalised. WEFT_BAD_ARGUMENT for a module or a key that weft does not have,
 * WEFT_BAD_FILE for a malformed file. */
WEFT_API weft_status weft_huggingface_read_embedding(const char *folder,
                                                     weft_huggingface_embedding *embedding,
                                                     weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
