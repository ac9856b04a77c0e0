/* Attributes as text, `axes=[0,2,1]`, from the table of fields that an op declares: for DOT and for
 * messages. O(length of the text). */
#include "ir/ir.h"

#include "base/text.h"

#include <string.h>

/* Bytes of a field of attributes; for a text, the minimum. */
static const size_t field_bytes[] = {
    [WEFT_ATTR_INT] = sizeof(int32_t),
    [WEFT_ATTR_INT64] = sizeof(int64_t),
    [WEFT_ATTR_BOOL] = sizeof(bool),
    [WEFT_ATTR_DOUBLE] = sizeof(double),
    [WEFT_ATTR_TEXT] = 1,
    [WEFT_ATTR_SHAPE] = sizeof(weft_shape),
    [WEFT_ATTR_DTYPE] = sizeof(weft_dtype),
    [WEFT_ATTR_INTS] = sizeof(int32_t) * (1 + WEFT_MAX_RANK),
    [WEFT_ATTR_INT64S] = sizeof(weft_shape),
};

size_t weft__attr_field_bytes(weft_attr_kind kind)
{
    return (size_t)kind < sizeof field_bytes / sizeof *field_bytes ? field_bytes[kind] : 0;
}

/* The number of elements in an array, from its count, which the shape rule may not have checked
 * yet. */
static int array_length(int32_t count)
{
    return count < 0 ? 0 : count > WEFT_MAX_RANK ? WEFT_MAX_RANK : (int)count;
}

static void print_ints(const void *at, bool wide, char *text, size_t size)
{
    const int32_t *ints = at;
    const int64_t *dims = ((const weft_shape *)at)->dim;
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < array_length(ints[0]) && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, i ? ",%lld" : "%lld",
                                 wide ? (long long)dims[i] : (long long)ints[1 + i]);
    if (used < size) snprintf(text + used, size - used, "]");
}

const char *weft_attr_text(const weft_attr_field *field, const void *attr, char *text, size_t size)
{
    if (size) text[0] = 0;
    if (!field || !attr) return text;
    const void *at = (const char *)attr + field->offset;
    switch (field->kind) {
    case WEFT_ATTR_INT:
        snprintf(text, size, "%d", *(const int32_t *)at);
        break;
    case WEFT_ATTR_INT64:
        snprintf(text, size, "%lld", (long long)*(const int64_t *)at);
        break;
    case WEFT_ATTR_BOOL:
        snprintf(text, size, "%s", *(const bool *)at ? "yes" : "no");
        break;
    case WEFT_ATTR_DOUBLE:
        weft__text_format(text, size, "%g", *(const double *)at);
        break;
    case WEFT_ATTR_TEXT:
        snprintf(text, size, "%s", (const char *)at);
        break;
    case WEFT_ATTR_SHAPE:
        weft_shape_text(*(const weft_shape *)at, text, size);
        break;
    case WEFT_ATTR_DTYPE:
        snprintf(text, size, "%s", weft_dtype_name(*(const weft_dtype *)at));
        break;
    case WEFT_ATTR_INTS:
    case WEFT_ATTR_INT64S:
        print_ints(at, field->kind == WEFT_ATTR_INT64S, text, size);
        break;
    }
    return text;
}

const char *weft__attr_field_text(const weft_attr_field *field, const void *attr, char *text,
                                  size_t size)
{
    const size_t used = (size_t)snprintf(text, size, "%s=", field->name);
    if (used < size) weft_attr_text(field, attr, text + used, size - used);
    return text;
}

const char *weft__attr_text(const weft_op *op, const void *attr, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (const weft_attr_field *f = op->attrs; f && f->name && used + 2 < size; f++) {
        if (used) text[used++] = ' ';
        weft__attr_field_text(f, attr, text + used, size - used);
        used += strlen(text + used);
    }
    return text;
}
