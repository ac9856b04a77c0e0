/* Headers of GGUF files as bytes that grow. O(bytes). */
#include "save.h"

#include <stdlib.h>
#include <string.h>

void weft__gguf_add(gguf_bytes *b, const void *data, size_t n)
{
    if (b->no_memory) return;
    if (b->capacity - b->n < n) {
        const size_t capacity = 2 * b->capacity + n + 4096;
        uint8_t *grown = realloc(b->at, capacity);
        if (!grown) {
            b->no_memory = true;
            return;
        }
        b->at = grown;
        b->capacity = capacity;
    }
    if (n) memcpy(b->at + b->n, data, n);
    b->n += n;
}

void weft__gguf_add_number(gguf_bytes *b, uint64_t number, size_t bytes)
{
    uint8_t lowest_first[8];
    for (int i = 0; i < 8; i++) lowest_first[i] = (uint8_t)(number >> 8 * i);
    weft__gguf_add(b, lowest_first, bytes);
}

void weft__gguf_add_f32(gguf_bytes *b, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    weft__gguf_add_number(b, bits, 4);
}

void weft__gguf_add_text(gguf_bytes *b, const char *text)
{
    weft__gguf_add_number(b, strlen(text), 8);
    weft__gguf_add(b, text, strlen(text));
}

void weft__gguf_align(gguf_bytes *b)
{
    static const uint8_t zeros[GGUF_ALIGNMENT];
    weft__gguf_add(b, zeros, (GGUF_ALIGNMENT - b->n % GGUF_ALIGNMENT) % GGUF_ALIGNMENT);
}

void weft__gguf_add_key(gguf_bytes *b, const char *key, weft_gguf_kind kind)
{
    weft__gguf_add_text(b, key);
    weft__gguf_add_number(b, kind, 4);
    b->values++;
}

void weft__gguf_add_array(gguf_bytes *b, const char *key, weft_gguf_kind items, size_t n)
{
    weft__gguf_add_key(b, key, WEFT_GGUF_ARRAY);
    weft__gguf_add_number(b, items, 4);
    weft__gguf_add_number(b, n, 8);
}

void weft__gguf_meta_u32(gguf_bytes *b, const char *key, uint64_t number)
{
    weft__gguf_add_key(b, key, WEFT_GGUF_U32);
    weft__gguf_add_number(b, number, 4);
}

void weft__gguf_meta_f32(gguf_bytes *b, const char *key, double number)
{
    weft__gguf_add_key(b, key, WEFT_GGUF_F32);
    weft__gguf_add_f32(b, (float)number);
}

void weft__gguf_meta_bool(gguf_bytes *b, const char *key, bool flag)
{
    weft__gguf_add_key(b, key, WEFT_GGUF_BOOL);
    weft__gguf_add_number(b, flag, 1);
}

void weft__gguf_meta_text(gguf_bytes *b, const char *key, const char *text)
{
    weft__gguf_add_key(b, key, WEFT_GGUF_TEXT);
    weft__gguf_add_text(b, text);
}
