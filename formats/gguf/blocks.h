/* Types of tensors in GGUF files, and their blocks as floats. Not installed. */
#ifndef WEFT_FORMATS_GGUF_BLOCKS_H
#define WEFT_FORMATS_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 32 numbers: scale (q - zero), or scale q + minimum. */
typedef struct gguf_group {
    uint8_t q[32], zero;
    float scale, minimum;
} gguf_group;

/* A row of a tensor is whole blocks of `weights` numbers, each of `bytes` bytes. A type that weft
 * reads has one of the functions. */
typedef struct gguf_type {
    const char *name;
    uint32_t number; /* in files */
    uint16_t weights, bytes;
    void (*widen)(const uint8_t *blocks, float *y, size_t n);       /* n blocks as floats */
    void (*split)(const uint8_t *block, int group, gguf_group *to); /* 32 numbers of a block */
    int bits;                                                       /* of q: 4, or up to 8 */
    bool minima;                                                    /* instead of zero points */
} gguf_type;

/* NULL if the number is unknown. */
const gguf_type *weft__gguf_type_find(uint32_t number);

static inline bool gguf_is_readable(const gguf_type *type)
{
    return type->widen || type->split;
}

/* The numbers of n blocks of a readable type. */
void weft__gguf_widen(const gguf_type *type, const uint8_t *blocks, float *y, size_t n);

/* Numbers of files, lowest byte first, on any processor. */
static inline uint16_t gguf_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t gguf_u32(const uint8_t *at)
{
    return gguf_u16(at) | (uint32_t)gguf_u16(at + 2) << 16;
}

static inline uint64_t gguf_u64(const uint8_t *at)
{
    return gguf_u32(at) | (uint64_t)gguf_u32(at + 4) << 32;
}

#endif
