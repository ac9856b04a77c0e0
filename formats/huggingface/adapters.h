/* Adapters in the format of the library PEFT (huggingface/peft, peft/tuners/lora): what reading and
 * writing share. Not installed.
 *
 * A module NAME of transformers has base_model.model.NAME.lora_A.weight [rank, in] and
 * base_model.model.NAME.lora_B.weight [out, rank]: the transposes of weft's A and B. A fused module,
 * such as qkv_proj, is several matrices in weft. Each of these can have the module's A and its own
 * rows of B; the other way round the module's A has the rows of all, and its B their blocks. */
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

/* Reads and checks the text of adapter_config.json; messages call it `path`. The caller deletes
 * config->json, also after an error. */
weft_status weft__peft_read_config(const char *text, size_t length, const char *path,
                                   peft_config *config, weft_error *error);
/* The factor of the additions to a module, given the rank of its matrices. */
double weft__peft_scale(const peft_config *config, const char *module, double rank);

/* Writes NAME of their tensor NAME.weight of a parameter; false if it has none. */
bool weft__peft_module(const hf_architecture *a, const char *ours, char module[HF_NAME_BYTES]);

#endif
