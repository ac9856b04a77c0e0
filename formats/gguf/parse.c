/* The header of a GGUF file: its metadata and the list of its tensors. Every length, count and
 * offset is checked against the file before it is used; memory is proportional to the file. O(bytes
 * of the header), and O(n log n) to find tensors that overlap. */
#include "file.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH        8  /* of arrays in arrays */
#define MAX_RANK         4  /* GGML_MAX_DIMS */
#define MIN_VALUE_BYTES  13 /* bytes of a key's length, its kind and a value */
#define MIN_TENSOR_BYTES 24 /* bytes of a name's length, rank, type and offset */
#define MAX_NAME_BYTES   65535

/* A file while it is read. */
typedef struct reader {
    weft_gguf *file;
    size_t at;         /* in the file */
    char subject[128]; /* what is read, for messages */
    weft_error *error;
} reader;

static weft_status fail(reader *r, const char *format, ...) WEFT_PRINTF(2, 3);
static weft_status fail(reader *r, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path, "%s%s%s", r->subject,
                          r->subject[0] ? ": " : "", text);
}

static weft_status no_memory(reader *r)
{
    return weft_error_set(r->error, WEFT_NO_MEMORY, r->file->path, "no memory");
}

/* Zeroed memory for n elements, which the file has checked; NULL, and a failure, if there is none. */
static void *allocate(reader *r, size_t n, size_t size)
{
    void *memory =
        n <= SIZE_MAX / 2 / size ? weft__arena_alloc(&r->file->memory, n * size + 1) : NULL;
    if (!memory) no_memory(r);
    return memory;
}

/* ---- Bytes ---- */

/* The next bytes of the file; NULL, and a failure, if it has fewer. */
static const uint8_t *take(reader *r, uint64_t bytes, const char *what)
{
    const size_t left = r->file->bytes - r->at;
    if (bytes > left) {
        fail(r, "%s needs %llu bytes at byte %zu of the file, which has %zu more", what,
             (unsigned long long)bytes, r->at, left);
        return NULL;
    }
    const uint8_t *at = r->file->data + r->at;
    r->at += (size_t)bytes;
    return at;
}

static bool take_u32(reader *r, uint32_t *number, const char *what)
{
    const uint8_t *at = take(r, 4, what);
    if (at) *number = gguf_u32(at);
    return at;
}

static bool take_u64(reader *r, uint64_t *number, const char *what)
{
    const uint8_t *at = take(r, 8, what);
    if (at) *number = gguf_u64(at);
    return at;
}

/* A name of a key or a tensor, as a text with a zero at its end; NULL on failure. */
static const char *take_name(reader *r)
{
    uint64_t bytes;
    if (!take_u64(r, &bytes, "the length of the name")) return NULL;
    const uint8_t *at = take(r, bytes, "the name");
    if (!at) return NULL;
    if (bytes == 0 || bytes > MAX_NAME_BYTES || memchr(at, 0, (size_t)bytes)) {
        fail(r, "its name has %llu bytes; expected 1 to %d, none of them zero",
             (unsigned long long)bytes, MAX_NAME_BYTES);
        return NULL;
    }
    char *name = allocate(r, (size_t)bytes, 1); /* and a zero */
    if (name) memcpy(name, at, (size_t)bytes);
    return name;
}

/* ---- Metadata ---- */

static weft_status take_value(reader *r, int depth, weft_gguf_value *value);

/* Texts and arrays in an array, each of which has its own length. */
static weft_status take_items(reader *r, int depth, weft_gguf_value *value)
{
    const size_t least = value->items_kind == WEFT_GGUF_TEXT ? 8 : 12;
    const size_t left = r->file->bytes - r->at;
    if (depth == MAX_DEPTH) return fail(r, "has arrays in arrays more than %d deep", MAX_DEPTH);
    if (value->n_items > left / least)
        return fail(r, "has %zu items, but the file only %zu more bytes", value->n_items, left);
    weft_gguf_value *items = allocate(r, value->n_items, sizeof *items);
    if (!items) return r->error->status;
    value->items = items;
    for (size_t i = 0; i < value->n_items; i++) {
        items[i] = (weft_gguf_value){.key = "", .kind = value->items_kind};
        const weft_status status = take_value(r, depth + 1, &items[i]);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

static weft_status take_array(reader *r, int depth, weft_gguf_value *value)
{
    uint32_t kind;
    uint64_t n;
    if (!take_u32(r, &kind, "the kind of the items") || !take_u64(r, &n, "the number of items"))
        return r->error->status;
    if (kind >= WEFT_GGUF_KINDS)
        return fail(r, "its items have the kind %u; expected 0 to 12", (unsigned)kind);
    value->items_kind = (weft_gguf_kind)kind;
    value->n_items = (size_t)n;
    const size_t bytes = weft__gguf_kind_bytes(value->items_kind);
    if (n > r->file->bytes)
        return fail(r, "has %llu items, but the file only %zu bytes", (unsigned long long)n,
                    r->file->bytes);
    if (!bytes) return take_items(r, depth, value);
    const uint8_t *at = take(r, n * bytes, "the array");
    if (!at) return r->error->status;
    value->items = at;
    for (size_t i = 0; kind == WEFT_GGUF_BOOL && i < n; i++)
        if (at[i] > 1) return fail(r, "item %zu, a bool, is %d; expected 0 or 1", i, at[i]);
    return WEFT_OK;
}

/* Reads a value of a kind that is set. */
static weft_status take_value(reader *r, int depth, weft_gguf_value *value)
{
    if (value->kind == WEFT_GGUF_ARRAY) return take_array(r, depth, value);
    if (value->kind == WEFT_GGUF_TEXT) {
        uint64_t bytes;
        if (!take_u64(r, &bytes, "the length of the text")) return r->error->status;
        value->text = (const char *)take(r, bytes, "the text");
        value->text_bytes = (size_t)bytes;
        return value->text ? WEFT_OK : r->error->status;
    }
    const uint8_t *at = take(r, weft__gguf_kind_bytes(value->kind), "the value");
    if (!at) return r->error->status;
    if (value->kind == WEFT_GGUF_BOOL && at[0] > 1)
        return fail(r, "is a bool of %d; expected 0 or 1", at[0]);
    weft__gguf_number(value->kind, at, value);
    return WEFT_OK;
}

/* Puts a name into a table, in which it must be new. */
static weft_status add_name(reader *r, name_table *table, const char *name, size_t number)
{
    const size_t *found = weft__name_table_put(table, name, number);
    if (!found) return no_memory(r);
    return *found == number ? WEFT_OK
                            : fail(r, "appears twice, as number %zu and %zu", *found, number);
}

static weft_status read_value(reader *r, size_t i)
{
    uint32_t kind;
    weft_gguf_value *value = &r->file->meta[i];
    snprintf(r->subject, sizeof r->subject, "value %zu of %zu", i, r->file->n_meta);
    value->key = take_name(r);
    if (!value->key) return r->error->status;
    snprintf(r->subject, sizeof r->subject, "%.100s", value->key);
    if (!take_u32(r, &kind, "its kind")) return r->error->status;
    if (kind >= WEFT_GGUF_KINDS)
        return fail(r, "has the kind %u; expected 0 to 12", (unsigned)kind);
    value->kind = (weft_gguf_kind)kind;
    const weft_status status = take_value(r, 0, value);
    return status == WEFT_OK ? add_name(r, &r->file->meta_names, value->key, i) : status;
}

/* ---- Tensors ---- */

static weft_status read_shape(reader *r, weft_gguf_tensor *t)
{
    uint32_t rank;
    if (!take_u32(r, &rank, "its number of dimensions")) return r->error->status;
    if (rank > MAX_RANK)
        return fail(r, "has %u dimensions; expected at most %d", (unsigned)rank, MAX_RANK);
    t->shape.rank = (int32_t)rank;
    for (uint32_t d = rank; d--;) {
        uint64_t size;
        if (!take_u64(r, &size, "a dimension")) return r->error->status;
        if (size > INT64_MAX)
            return fail(r, "a dimension is %llu, which is too large", (unsigned long long)size);
        t->shape.dim[d] = (int64_t)size;
    }
    return weft_shape_numel(t->shape) < 0 ? fail(r, "its shape overflows") : WEFT_OK;
}

/* Sets the bytes of a tensor, from its shape and its type. */
static weft_status read_type(reader *r, gguf_tensor *t)
{
    uint32_t number;
    if (!take_u32(r, &number, "its type")) return r->error->status;
    t->type = weft__gguf_type_find(number);
    if (!t->type) return fail(r, "has the type %u, which weft does not know", (unsigned)number);
    t->tensor.type = t->type->name;
    t->tensor.readable = gguf_is_readable(t->type);
    const weft_shape *shape = &t->tensor.shape;
    const int64_t row = shape->rank ? shape->dim[shape->rank - 1] : 1;
    if (row % t->type->weights != 0)
        return fail(r, "its rows have %lld numbers, but a block of %s has %d", (long long)row,
                    t->type->name, t->type->weights);
    /* A number has at most 8 bytes, for which the product of the shape was checked. */
    const uint64_t bytes = (uint64_t)(weft_shape_numel(*shape) / t->type->weights) * t->type->bytes;
    if (bytes > r->file->bytes && !r->file->header)
        return fail(r, "has %llu bytes, but the file only %zu", (unsigned long long)bytes,
                    r->file->bytes);
    t->tensor.bytes = (size_t)bytes;
    return WEFT_OK;
}

static weft_status read_tensor(reader *r, size_t i, uint64_t *offset)
{
    gguf_tensor *t = &r->file->tensors[i];
    snprintf(r->subject, sizeof r->subject, "tensor %zu of %zu", i, r->file->n_tensors);
    t->tensor.name = take_name(r);
    if (!t->tensor.name) return r->error->status;
    snprintf(r->subject, sizeof r->subject, "%.100s", t->tensor.name);
    weft_status status = read_shape(r, &t->tensor);
    if (status == WEFT_OK) status = read_type(r, t);
    if (status == WEFT_OK && !take_u64(r, offset, "its offset")) status = r->error->status;
    return status == WEFT_OK ? add_name(r, &r->file->tensor_names, t->tensor.name, i) : status;
}

/* Finds the data of a tensor, after the header. */
static weft_status place_tensor(reader *r, gguf_tensor *t, uint64_t offset, size_t alignment)
{
    const weft_gguf *f = r->file;
    const size_t data = f->bytes - r->at;
    snprintf(r->subject, sizeof r->subject, "%.100s", t->tensor.name);
    if (offset % alignment != 0)
        return fail(r, "its offset %llu is not a multiple of the alignment %zu",
                    (unsigned long long)offset, alignment);
    if (f->header && (offset > data || t->tensor.bytes > data - offset)) return WEFT_OK;
    if (offset > data || t->tensor.bytes > data - offset)
        return fail(r, "its data, %zu bytes at offset %llu, lie outside the %zu bytes of data",
                    t->tensor.bytes, (unsigned long long)offset, data);
    t->tensor.data = f->data + r->at + offset;
    return WEFT_OK;
}

static int by_place(const void *left, const void *right)
{
    const weft_gguf_tensor *const *a = left, *const *b = right;
    const uintptr_t x = (uintptr_t)(*a)->data, y = (uintptr_t)(*b)->data;
    return x != y ? (x < y ? -1 : 1) : ((*a)->bytes > (*b)->bytes) - ((*a)->bytes < (*b)->bytes);
}

static weft_status check_overlaps(reader *r)
{
    const weft_gguf *f = r->file;
    const weft_gguf_tensor **sorted = allocate(r, f->n_tensors, sizeof(weft_gguf_tensor *));
    if (!sorted) return r->error->status;
    for (size_t i = 0; i < f->n_tensors; i++) sorted[i] = &f->tensors[i].tensor;
    if (f->n_tensors) qsort(sorted, f->n_tensors, sizeof(weft_gguf_tensor *), by_place);
    for (size_t i = 1; i < f->n_tensors; i++) {
        const weft_gguf_tensor *a = sorted[i - 1], *b = sorted[i];
        if ((const char *)a->data + a->bytes <= (const char *)b->data) continue;
        snprintf(r->subject, sizeof r->subject, "%.100s", b->name);
        return fail(r, "its data overlap those of %.100s", a->name);
    }
    return WEFT_OK;
}

static weft_status read_alignment(reader *r, size_t *alignment)
{
    const weft_gguf_value *value = weft_gguf_meta_find(r->file, "general.alignment");
    *alignment = GGUF_ALIGNMENT;
    if (!value) return WEFT_OK;
    snprintf(r->subject, sizeof r->subject, "%s", value->key);
    const int64_t n = value->integer;
    if (value->kind != WEFT_GGUF_U32 || n == 0 || (n & (n - 1)) != 0)
        return fail(r, "is %lld, a %s; expected a power of two, a u32", (long long)n,
                    weft_gguf_kind_name(value->kind));
    *alignment = (size_t)n;
    return WEFT_OK;
}

static weft_status read_tensors(reader *r)
{
    const weft_gguf *f = r->file;
    size_t alignment;
    uint64_t *offsets = allocate(r, f->n_tensors, sizeof *offsets);
    weft_status status = offsets ? WEFT_OK : r->error->status;
    for (size_t i = 0; i < f->n_tensors && status == WEFT_OK; i++)
        status = read_tensor(r, i, &offsets[i]);
    if (status == WEFT_OK) status = read_alignment(r, &alignment);
    if (status != WEFT_OK) return status;
    const size_t gap = (alignment - r->at % alignment) % alignment;
    r->at += gap < f->bytes - r->at ? gap : f->bytes - r->at;
    for (size_t i = 0; i < f->n_tensors && status == WEFT_OK; i++)
        status = place_tensor(r, &f->tensors[i], offsets[i], alignment);
    return status == WEFT_OK && !f->header ? check_overlaps(r) : status;
}

/* ---- The file ---- */

/* Magic and version. */
static weft_status read_magic(reader *r)
{
    weft_gguf *f = r->file;
    if (f->bytes < 24 || memcmp(f->data, "GGUF", 4) != 0)
        return fail(r, f->bytes < 24 ? "is too short for a GGUF file"
                                     : "does not begin with GGUF: it is not a GGUF file");
    f->version = gguf_u32(f->data + 4);
    r->at = 8;
    if ((f->version & 0xffff) == 0 && f->version)
        return fail(r, "its numbers have the highest byte first; expected the lowest, as almost "
                       "all GGUF files have");
    if (f->version != 2 && f->version != 3)
        return fail(r, "has version %u of the format; expected 2 or 3", (unsigned)f->version);
    return WEFT_OK;
}

/* The number of tensors or values, each of which has at least that many bytes. */
static weft_status take_count(reader *r, size_t least, size_t *n, const char *what)
{
    uint64_t count;
    if (!take_u64(r, &count, what)) return r->error->status;
    if (count > (r->file->bytes - r->at) / least)
        return fail(r, "%s is %llu, too many for a file of %zu bytes", what,
                    (unsigned long long)count, r->file->bytes);
    *n = (size_t)count;
    return WEFT_OK;
}

weft_status weft__gguf_parse(weft_gguf *f, weft_error *error)
{
    reader r = {.file = f, .error = error};
    f->meta_names.memory = f->tensor_names.memory = &f->memory;
    weft_status status = read_magic(&r);
    if (status == WEFT_OK)
        status = take_count(&r, MIN_TENSOR_BYTES, &f->n_tensors, "the number of tensors");
    if (status == WEFT_OK)
        status = take_count(&r, MIN_VALUE_BYTES, &f->n_meta, "the number of values");
    if (status != WEFT_OK) return status;
    f->meta = allocate(&r, f->n_meta, sizeof *f->meta);
    f->tensors = allocate(&r, f->n_tensors, sizeof *f->tensors);
    if (!f->meta || !f->tensors) return error->status;
    for (size_t i = 0; i < f->n_meta && status == WEFT_OK; i++) status = read_value(&r, i);
    return status == WEFT_OK ? read_tensors(&r) : status;
}
