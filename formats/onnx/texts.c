/* The texts of a model. weft has no strings, so a tensor of strings is one of i32: the numbers of
 * its texts in a table. Equal texts have equal numbers. */
#include "onnx/import.h"

#include <stdlib.h>
#include <string.h>

/* Adds a text that is not in the table; -1 if out of memory. */
static int32_t add(onnx_texts *t, const char *text)
{
    const char *copy = weft__arena_text(t->memory, text);
    if (t->n == t->capacity) {
        const size_t capacity = 2 * t->capacity + 16;
        const char **texts = weft__arena_alloc(t->memory, capacity * sizeof *texts);
        if (!texts) return -1;
        if (t->n) memcpy(texts, t->texts, t->n * sizeof *texts);
        t->texts = texts;
        t->capacity = capacity;
    }
    if (!copy || t->n == INT32_MAX || !weft__name_table_put(&t->numbers, copy, t->n)) return -1;
    t->texts[t->n] = copy;
    return (int32_t)t->n++;
}

int32_t weft__texts_number(onnx_texts *t, const char *text, size_t bytes)
{
    char *whole = bytes && memchr(text, 0, bytes) ? NULL : malloc(bytes + 1);
    if (!whole) return -1;
    if (bytes) memcpy(whole, text, bytes);
    whole[bytes] = 0;
    const size_t *known = weft__name_table_find(&t->numbers, whole);
    const int32_t number = known ? (int32_t)*known : add(t, whole);
    free(whole);
    return number;
}

const char *weft__texts_at(const onnx_texts *t, int64_t number)
{
    return number >= 0 && number < (int64_t)t->n ? t->texts[number] : NULL;
}

bool weft__texts_constant(const weft_onnx *m, arena *memory, const weft_onnx_constant *constant,
                          const void **numbers)
{
    const size_t n = (size_t)weft_shape_numel(constant->shape);
    int32_t *all = weft__arena_alloc(memory, (n + 1) * sizeof *all);
    for (size_t i = 0; all && i < n; i++) {
        const char *text = constant->texts[i];
        all[i] = weft__texts_number(m->files.texts, text, strlen(text));
        if (all[i] < 0) return false;
    }
    *numbers = all;
    return all != NULL;
}

bool weft__texts_allowed(const char *op)
{
    static const char *const ops[] = {
        "Compress",
        "Concat",
        "DepthToSpace",
        "Equal",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "LabelEncoder",
        "Reshape",
        "ReverseSequence",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i], op)) return true;
    return false;
}

int32_t weft_onnx_text_number(weft_onnx *model, const char *text)
{
    return model && text ? weft__texts_number(&model->texts, text, strlen(text)) : -1;
}

const char *weft_onnx_text(const weft_onnx *model, int32_t number)
{
    return model ? weft__texts_at(&model->texts, number) : NULL;
}
