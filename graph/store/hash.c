/* Hashes of tensors: of their numbers, not of their bytes, so that byte orders agree. */
#include "params.h"

#include "base/hash.h"

#include <string.h>

/* The bits of element i; every NaN has those of one. */
static uint64_t element_bits(const weft_tensor *t, size_t bytes, int64_t i)
{
    const char *at = (const char *)t->data + (size_t)i * bytes;
    uint64_t eight;
    uint32_t four;
    uint16_t two;
    switch (bytes) {
    case 8:
        memcpy(&eight, at, 8);
        return t->dtype == WEFT_F64 && (eight & INT64_MAX) > 0x7ff0000000000000u ? INT64_MAX
                                                                                 : eight;
    case 4:
        memcpy(&four, at, 4);
        return t->dtype == WEFT_F32 && (four & INT32_MAX) > 0x7f800000u ? INT32_MAX : four;
    case 2:
        memcpy(&two, at, 2);
        return t->dtype == WEFT_BF16 && (two & INT16_MAX) > 0x7f80u ? INT16_MAX : two;
    default:
        return (unsigned char)*at;
    }
}

uint64_t weft__tensor_hash(uint64_t hash, const weft_tensor *tensor)
{
    const size_t bytes = weft_dtype_bytes(tensor->dtype);
    const int64_t n = weft_shape_numel(tensor->shape);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = element_bits(tensor, bytes, i);
        for (size_t b = 0; b < bytes; b++) {
            const unsigned char byte = (unsigned char)(bits >> 8 * b);
            hash = hash_bytes(hash, &byte, 1);
        }
    }
    return hash;
}

uint64_t weft_params_hash(const weft_params *params)
{
    uint64_t hash = HASH_START;
    for (size_t i = 0; params && i < params->n; i++) {
        const param *p = &params->params[i];
        if (p->key.kind != WEFT_STATE_MODEL || p->released) continue;
        hash = hash_bytes(hash, p->name, strlen(p->name) + 1);
        hash = weft__tensor_hash(hash, &p->tensor);
    }
    return hash;
}
