/* See gguf_maker.h. */
#include "gguf_maker.h"

#include "tests.h"

#include <string.h>

void gguf_put(gguf_maker *m, const void *data, size_t n)
{
    CU_ASSERT_TRUE_FATAL(m->n + n <= sizeof m->data);
    if (n) memcpy(m->data + m->n, data, n);
    m->n += n;
}

void gguf_put_number(gguf_maker *m, uint64_t number, size_t bytes)
{
    uint8_t lowest_first[8];
    for (int i = 0; i < 8; i++) lowest_first[i] = (uint8_t)(number >> 8 * i);
    gguf_put(m, lowest_first, bytes);
}

void gguf_put_text(gguf_maker *m, const char *text)
{
    gguf_put_number(m, strlen(text), 8);
    gguf_put(m, text, strlen(text));
}

void gguf_put_u32(gguf_maker *m, const char *key, uint32_t number)
{
    gguf_put_text(m, key);
    gguf_put_number(m, WEFT_GGUF_U32, 4);
    gguf_put_number(m, number, 4);
}

void gguf_put_f32(gguf_maker *m, const char *key, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    gguf_put_text(m, key);
    gguf_put_number(m, WEFT_GGUF_F32, 4);
    gguf_put_number(m, bits, 4);
}

void gguf_put_string(gguf_maker *m, const char *key, const char *text)
{
    gguf_put_text(m, key);
    gguf_put_number(m, WEFT_GGUF_TEXT, 4);
    gguf_put_text(m, text);
}

void gguf_put_blocks(gguf_maker *m, const char *name, const uint64_t dims[2], uint32_t type,
                     uint64_t bytes, size_t *offset)
{
    gguf_put_text(m, name);
    gguf_put_number(m, dims[1] ? 2 : 1, 4);
    if (dims[1]) gguf_put_number(m, dims[1], 8);
    gguf_put_number(m, dims[0], 8);
    gguf_put_number(m, type, 4);
    gguf_put_number(m, *offset, 8);
    *offset += (bytes + 31) / 32 * 32;
}

void gguf_put_tensor(gguf_maker *m, const char *name, uint64_t rows, uint64_t columns,
                     size_t *offset)
{
    const uint64_t dims[2] = {rows, columns};
    gguf_put_blocks(m, name, dims, 0, rows * (columns ? columns : 1) * 4, offset);
}

weft_gguf *gguf_open_made(const gguf_maker *m, weft_error *error)
{
    return weft_gguf_from_memory((weft_memory_file){m->data, m->n, "made"}, error);
}
