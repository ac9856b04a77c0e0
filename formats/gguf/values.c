/* Values of the metadata of GGUF files. */
#include "file.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} kinds[] = {
#define ROW(upper, number, name, bytes) [number] = {name, bytes},
    WEFT_GGUF_KIND_MAP(ROW)
#undef ROW
};

size_t weft__gguf_kind_bytes(weft_gguf_kind kind)
{
    return kinds[kind].bytes;
}

const char *weft_gguf_kind_name(weft_gguf_kind kind)
{
    return (size_t)kind < sizeof kinds / sizeof *kinds ? kinds[kind].name : "?";
}

/* The integer of `bytes` bytes, with its sign. */
static int64_t integer_at(const uint8_t *at, size_t bytes, bool has_sign)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++) bits |= (uint64_t)at[i] << 8 * i;
    if (!has_sign) return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
    const uint64_t sign = (uint64_t)1 << (8 * bytes - 1);
    return (int64_t)((bits ^ sign) - sign);
}

void weft__gguf_number(weft_gguf_kind kind, const uint8_t *at, weft_gguf_value *value)
{
    const size_t bytes = kinds[kind].bytes;
    value->kind = kind;
    if (kind == WEFT_GGUF_F32) {
        const uint32_t bits = gguf_u32(at);
        float x;
        memcpy(&x, &bits, sizeof x);
        value->number = (double)x;
    } else if (kind == WEFT_GGUF_F64) {
        const uint64_t bits = gguf_u64(at);
        memcpy(&value->number, &bits, sizeof bits);
    } else {
        value->integer = integer_at(at, bytes, kinds[kind].name[0] == 'i');
        value->number = kind == WEFT_GGUF_U64 ? (double)gguf_u64(at) : (double)value->integer;
    }
}

size_t weft_gguf_meta_count(const weft_gguf *file)
{
    return file ? file->n_meta : 0;
}

const weft_gguf_value *weft_gguf_meta_at(const weft_gguf *file, size_t index)
{
    return index < weft_gguf_meta_count(file) ? &file->meta[index] : NULL;
}

const weft_gguf_value *weft_gguf_meta_find(const weft_gguf *file, const char *key)
{
    const size_t *index = file && key ? weft__name_table_find(&file->meta_names, key) : NULL;
    return index ? &file->meta[*index] : NULL;
}

bool weft_gguf_value_item(const weft_gguf_value *array, size_t index, weft_gguf_value *item)
{
    if (!array || !item || array->kind != WEFT_GGUF_ARRAY || index >= array->n_items) return false;
    const size_t bytes = kinds[array->items_kind].bytes;
    if (!bytes) {
        *item = ((const weft_gguf_value *)array->items)[index];
    } else {
        *item = (weft_gguf_value){.key = ""};
        weft__gguf_number(array->items_kind, (const uint8_t *)array->items + bytes * index, item);
    }
    return true;
}
