/* Adapters in the format of the library PEFT (huggingface/peft, peft/tuners/lora): what reading and
 * writing share. Not installed.
 *
 * A module NAME of transformers has base_model.model.NAME.lora_A.weight [rank, in] and
 * base_model.model.NAME.lora_B.weight [out, rank]: the transposes of weft's A and B. A fused module,
 * such as qkv_proj, is several matrices in weft. On reading, each of them gets the module's A and
 * its own rows of B. On writing, the rows of all their A become the module's A, and their B become
 * blocks of its B. */
#ifndef WEFT_FORMATS_HUGGINGFACE_ADAPTERS_H
#define WEFT_FORMATS_HUGGINGFACE_ADAPTERS_H

#include "tables.h"

#include "passes/lora.h"

#define PEFT_PREFIX  "base_model.model."
#define PEFT_CONFIG  "adapter_config.json"
#define PEFT_TENSORS "adapter_model.safetensors"

/* The factor of a module's additions. */
typedef struct peft_config {
    cJSON *json;
    double rank, alpha, dropout;
    bool by_root; /* rslora: alpha / sqrt(rank) instead of alpha / rank */
} peft_config;

/* Reads and checks adapter_config.json. The caller deletes config->json, also after an error. */
weft_status weft__peft_read_config(const char *path, peft_config *config, weft_error *error);
/* The factor of the additions to a module, given the rank of its matrices. */
double weft__peft_scale(const peft_config *config, const char *module, double rank);

/* Writes NAME of their tensor NAME.weight of a parameter; false if it has none. */
bool weft__peft_module(const hf_architecture *a, const char *ours, char module[HF_NAME_BYTES]);
/* Where the columns of our matrix lie among the outputs of their module. */
hf_place weft__peft_place(const hf_architecture *a, const weft_graph *graph, const char *ours);

#endif
