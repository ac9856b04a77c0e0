/* GGUF files that tests write into memory. */
#ifndef WEFT_TESTS_GGUF_MAKER_H
#define WEFT_TESTS_GGUF_MAKER_H

#include <weft/gguf.h>

typedef struct gguf_maker {
    uint8_t data[1 << 18];
    size_t n;
} gguf_maker;

void gguf_put(gguf_maker *m, const void *data, size_t n);
/* The `bytes` lowest bytes of a number, the lowest first. */
void gguf_put_number(gguf_maker *m, uint64_t number, size_t bytes);
void gguf_put_text(gguf_maker *m, const char *text);
/* Metadata. */
void gguf_put_u32(gguf_maker *m, const char *key, uint32_t number);
void gguf_put_f32(gguf_maker *m, const char *key, float number);
void gguf_put_string(gguf_maker *m, const char *key, const char *text);
/* The description of a tensor of one or two dimensions, in weft's order, dims[1] 0: one; of the type
 * with that number, whose contents of `bytes` come at *offset, which becomes that of the next
 * one. */
void gguf_put_blocks(gguf_maker *m, const char *name, const uint64_t dims[2], uint32_t type,
                     uint64_t bytes, size_t *offset);
/* The same of f32. */
void gguf_put_tensor(gguf_maker *m, const char *name, uint64_t rows, uint64_t columns,
                     size_t *offset);
weft_gguf *gguf_open_made(const gguf_maker *m, weft_error *error);

#endif
