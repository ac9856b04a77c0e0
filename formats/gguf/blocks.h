/* Types of tensors in GGUF files, and their blocks as floats. Not installed. */
#ifndef WEFT_FORMATS_GGUF_BLOCKS_H
#define WEFT_FORMATS_GGUF_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

/* A row of a tensor is whole blocks of `weights` numbers, each of `bytes` bytes. */
typedef struct gguf_type {
    const char *name;
    uint32_t number; /* in files */
    uint16_t weights, bytes;
    void (*widen)(const uint8_t *blocks, float *y, size_t n); /* n blocks; NULL: weft cannot */
} gguf_type;

/* NULL if the number is unknown. */
const gguf_type *weft__gguf_type_find(uint32_t number);

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
