/* Reading of safetensors files. The header is read member by member, so that it takes no more
 * memory than what it describes; every number in it is checked against the file. O(bytes), and
 * O(n log n) to sort. */
#include "safetensors.h"
#include "params.h"

#include "base/byte_order.h"
#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/platform.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the description of one tensor. */
#define MAX_ENTRY_BYTES (64u << 10)

/* ---- Dtypes ---- */

/* weft's own, then those that it converts, then those of which it knows only the size. */
static const safetensors_dtype dtypes[] = {
#define ROW(upper, lower, bytes, file) {file, bytes, WEFT_##upper},
    WEFT_DTYPE_MAP(ROW)
#undef ROW
        {"F16", 2, WEFT_F32},
    {"I64", 8, WEFT_DTYPES},
    {"I16", 2, WEFT_DTYPES},
    {"I8", 1, WEFT_DTYPES},
    {"U64", 8, WEFT_DTYPES},
    {"U32", 4, WEFT_DTYPES},
    {"U16", 2, WEFT_DTYPES},
    {"F8_E4M3", 1, WEFT_DTYPES},
    {"F8_E5M2", 1, WEFT_DTYPES},
};

const safetensors_dtype *weft__safetensors_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtypes[i].name, name)) return &dtypes[i];
    return NULL;
}

const char *weft__safetensors_dtype_name(weft_dtype dtype)
{
    return dtypes[dtype].name;
}

/* ---- Files ---- */

/* A tensor: its data are bytes [begin, end) of the data section. */
typedef struct entry {
    weft_file_tensor tensor; /* owns the name */
    const safetensors_dtype *stored;
    uint64_t begin, end;
    size_t position; /* in the header */
} entry;

struct weft_safetensors {
    char *path;       /* or the name of a file in memory */
    int descriptor;   /* -1: the file is in memory */
    const char *data; /* the file in memory, the caller's */
    uint64_t bytes;   /* of the whole file */
    uint64_t data_begin, data_bytes;
    entry *at; /* by offset */
    size_t n, capacity;
    entry **by_name;
    weft_params *meta;
};

/* A file while its header is read. */
typedef struct reader {
    weft_safetensors *file;
    const char *path, *header;
    weft_error *error;
} reader;

static weft_status bad(reader *r, const char *tensor, const char *what)
{
    return weft_error_set(r->error, WEFT_BAD_FILE, r->path, "%s%s%s", tensor ? tensor : "",
                          tensor ? ": " : "", what);
}

static weft_status no_memory(reader *r)
{
    return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory");
}

static weft_status not_json(reader *r, const char *at)
{
    return weft_error_set(r->error, WEFT_BAD_FILE, r->path,
                          "the header is not JSON, near byte %zu of the file",
                          (size_t)(at - r->header) + 8);
}

static bool read_at(const weft_safetensors *file, void *data, size_t bytes, uint64_t offset)
{
    if (file->descriptor < 0) {
        memcpy(data, file->data + offset, bytes);
        return true;
    }
    for (char *at = data; bytes;) {
        const ptrdiff_t n = weft__os_read(file->descriptor, at, bytes, offset);
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* The text of a JSON string, which the caller frees. */
static weft_status read_text(reader *r, json_span string, char **text)
{
    *text = malloc(string.length + 1);
    if (!*text) return no_memory(r);
    const char *wrong = weft__json_text(string, *text);
    if (!wrong) return WEFT_OK;
    free(*text);
    *text = NULL;
    return not_json(r, wrong);
}

/* Reads an array of at most `most` whole numbers. `what` is wrong if it is something else. */
static weft_status read_wholes(reader *r, const char *tensor, json_span array, uint64_t *numbers,
                               size_t most, size_t *n, const char *what)
{
    json_members items = {.rest = array};
    json_span item;
    *n = 0;
    if (*array.at != '[') return bad(r, tensor, what);
    for (;;) {
        const json_step step = weft__json_item(&items, &item);
        if (step == JSON_MALFORMED) return not_json(r, items.rest.at);
        if (step == JSON_END) return WEFT_OK;
        if (*n == most || !weft__json_whole(item, &numbers[(*n)++])) return bad(r, tensor, what);
    }
}

/* The members of an entry; `at` is NULL for one that is missing. */
typedef struct entry_members {
    json_span dtype, shape, offsets;
} entry_members;

static weft_status find_members(reader *r, const char *tensor, json_span text, entry_members *found)
{
    json_members walk = {.rest = text};
    json_span key, value;
    memset(found, 0, sizeof *found);
    if (*text.at != '{') return bad(r, tensor, "is not an object");
    for (;;) {
        const json_step step = weft__json_next(&walk, &key, &value);
        if (step == JSON_MALFORMED) return not_json(r, walk.rest.at);
        if (step == JSON_END) return WEFT_OK;
        char *name;
        const weft_status status = read_text(r, key, &name);
        if (status != WEFT_OK) return status;
        if (!strcmp(name, "dtype")) found->dtype = value;
        if (!strcmp(name, "shape")) found->shape = value;
        if (!strcmp(name, "data_offsets")) found->offsets = value;
        free(name);
    }
}

static weft_status read_dtype(reader *r, json_span text, entry *e)
{
    char *name;
    if (!text.at || *text.at != '"') return bad(r, e->tensor.name, "its dtype is missing");
    const weft_status status = read_text(r, text, &name);
    if (status != WEFT_OK) return status;
    e->stored = weft__safetensors_dtype_find(name);
    free(name);
    if (!e->stored) return bad(r, e->tensor.name, "its dtype is not supported");
    e->tensor.dtype = e->stored->dtype == WEFT_BF16 ? WEFT_F32 : e->stored->dtype;
    e->tensor.stored = e->stored->name;
    return WEFT_OK;
}

static weft_status read_shape(reader *r, json_span text, entry *e)
{
    uint64_t dim[WEFT_MAX_RANK];
    size_t rank;
    weft_shape *shape = &e->tensor.shape;
    *shape = WEFT_SCALAR;
    if (!text.at || *text.at != '[') return bad(r, e->tensor.name, "its shape is missing");
    const weft_status status = read_wholes(r, e->tensor.name, text, dim, WEFT_MAX_RANK, &rank,
                                           "its shape has an invalid size, or over 8 of them");
    if (status != WEFT_OK) return status;
    for (size_t d = 0; d < rank; d++) shape->dim[shape->rank++] = (int64_t)dim[d];
    return weft_shape_numel(*shape) < 0 ? bad(r, e->tensor.name, "its shape overflows") : WEFT_OK;
}

static weft_status read_offsets(reader *r, json_span text, entry *e)
{
    static const char *const what = "its data_offsets must be two whole numbers";
    uint64_t ends[2];
    size_t n;
    if (!text.at) return bad(r, e->tensor.name, what);
    const weft_status status = read_wholes(r, e->tensor.name, text, ends, 2, &n, what);
    if (status != WEFT_OK) return status;
    if (n != 2) return bad(r, e->tensor.name, what);
    e->begin = ends[0];
    e->end = ends[1];
    return WEFT_OK;
}

/* Reads dtype, shape and offsets of one entry and checks that they agree. */
static weft_status check_entry(reader *r, json_span text, entry *e)
{
    const char *name = e->tensor.name;
    entry_members m;
    weft_status status = find_members(r, name, text, &m);
    if (status != WEFT_OK) return status;
    if (!name[0]) return bad(r, "a tensor", "has no name");
    status = read_dtype(r, m.dtype, e);
    if (status == WEFT_OK) status = read_shape(r, m.shape, e);
    if (status == WEFT_OK) status = read_offsets(r, m.offsets, e);
    if (status != WEFT_OK) return status;
    if (e->begin > e->end || e->end > r->file->data_bytes)
        return bad(r, name, "its data lie outside the file");
    if (e->end - e->begin != (uint64_t)weft_shape_numel(e->tensor.shape) * e->stored->bytes)
        return bad(r, name, "the size of its data does not match its dtype and shape");
    return WEFT_OK;
}

/* Adds an entry. It owns the name, on failure too. */
static weft_status read_entry(reader *r, char *name, json_span text)
{
    weft_safetensors *f = r->file;
    if (f->n == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 64;
        entry *grown = realloc(f->at, capacity * sizeof *grown);
        if (!grown) {
            free(name);
            return no_memory(r);
        }
        f->at = grown;
        f->capacity = capacity;
    }
    entry *e = &f->at[f->n];
    *e = (entry){.tensor.name = name, .position = f->n};
    f->n++;
    if (text.length > MAX_ENTRY_BYTES) return bad(r, name, "its description is over 64 KiB long");
    const char *wrong = weft__json_check(text);
    if (wrong) return not_json(r, wrong);
    return check_entry(r, text, e);
}

static weft_status read_meta(reader *r, json_span key, json_span value)
{
    char *name, *text;
    weft_params *into = r->file->meta;
    if (*value.at != '"') return bad(r, "__metadata__", "has a value that is not text");
    weft_status status = read_text(r, key, &name);
    if (status != WEFT_OK) return status;
    status = read_text(r, value, &text);
    if (status == WEFT_OK && weft_params_set_meta(into, name, text, NULL) != WEFT_OK)
        status = no_memory(r);
    free(name);
    free(text);
    if (status == WEFT_OK && into->n_meta > SAFETENSORS_MAX_METAS)
        return weft_error_set(r->error, WEFT_TOO_LARGE, r->path,
                              "__metadata__: has more than %u entries", SAFETENSORS_MAX_METAS);
    return status;
}

static weft_status read_metadata(reader *r, json_span text)
{
    json_members members = {.rest = text};
    json_span key, value;
    if (*text.at != '{') return bad(r, "__metadata__", "is not an object");
    for (;;) {
        json_step step = weft__json_next(&members, &key, &value);
        if (step == JSON_MALFORMED) return not_json(r, members.rest.at);
        if (step == JSON_END) return WEFT_OK;
        weft_status status = read_meta(r, key, value);
        if (status != WEFT_OK) return status;
    }
}

/* Reads the header, member by member. */
static weft_status read_header(reader *r, json_span text)
{
    json_members members = {.rest = text};
    json_span key, value;
    bool has_metadata = false;
    const char *first = text.at + strspn(text.at, " \t\n\r");
    if (!weft__text_is_utf8(text.at)) return bad(r, NULL, "the header is not UTF-8, as JSON is");
    if (*first == '[' || *first == '"') return bad(r, NULL, "the header is not a JSON object");
    for (;;) {
        char *name = NULL;
        json_step step = weft__json_next(&members, &key, &value);
        if (step == JSON_MALFORMED) return not_json(r, members.rest.at);
        if (step == JSON_END) return WEFT_OK;
        weft_status status = read_text(r, key, &name);
        if (status != WEFT_OK) return status;
        if (strcmp(name, "__metadata__") != 0) {
            status = read_entry(r, name, value);
        } else {
            free(name);
            status =
                has_metadata ? bad(r, "__metadata__", "appears twice") : read_metadata(r, value);
            has_metadata = true;
        }
        if (status != WEFT_OK) return status;
    }
}

static int by_offset(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->position < b->position ? -1 : 1;
}

static int by_name(const void *left, const void *right)
{
    const entry *const *a = left, *const *b = right;
    return strcmp((*a)->tensor.name, (*b)->tensor.name);
}

/* Sorts the entries by offset, and checks that they cover the data without overlaps or gaps. */
static weft_status order_entries(reader *r)
{
    weft_safetensors *f = r->file;
    uint64_t covered = 0;
    if (f->n) qsort(f->at, f->n, sizeof *f->at, by_offset);
    for (size_t i = 0; i < f->n; i++) {
        if (f->at[i].begin != covered)
            return bad(r, f->at[i].tensor.name,
                       "its data overlap another tensor's, or leave a gap");
        covered = f->at[i].end;
    }
    if (covered != f->data_bytes)
        return bad(r, NULL, "the tensors leave a gap at the end of the data");
    return WEFT_OK;
}

/* Makes the index of names, which must be unique. */
static weft_status index_names(reader *r)
{
    weft_safetensors *f = r->file;
    f->by_name = malloc((f->n + 1) * sizeof(entry *));
    if (!f->by_name) return no_memory(r);
    for (size_t i = 0; i < f->n; i++) f->by_name[i] = &f->at[i];
    if (f->n) qsort(f->by_name, f->n, sizeof(entry *), by_name);
    for (size_t i = 1; i < f->n; i++)
        if (!by_name(&f->by_name[i - 1], &f->by_name[i]))
            return bad(r, f->by_name[i]->tensor.name, "appears twice");
    return WEFT_OK;
}

static weft_status read_file(reader *r)
{
    weft_safetensors *f = r->file;
    unsigned char prefix[8];
    uint64_t length = 0;
    if (f->bytes < 8 || !read_at(f, prefix, 8, 0))
        return bad(r, NULL, "is too short for a safetensors file");
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << (8 * i);
    if (length > f->bytes - 8 || length > SAFETENSORS_MAX_HEADER) {
        uint64_t turned = length;
        byte_order_swap(&turned, 1, sizeof turned);
        return bad(r, NULL,
                   turned <= f->bytes - 8
                       ? "its numbers have the highest byte first, safetensors files the lowest"
                       : "the header is longer than the file, or than 100,000,000 bytes");
    }
    char *text = malloc(length + 1);
    if (!text) return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory for the header");
    r->header = text;
    f->data_begin = 8 + length;
    f->data_bytes = f->bytes - f->data_begin;
    text[length] = 0;
    weft_status status = read_at(f, text, length, 8)
                             ? read_header(r, (json_span){text, length})
                             : weft_error_set(r->error, WEFT_IO, r->path, "cannot be read");
    if (status == WEFT_OK) status = order_entries(r);
    if (status == WEFT_OK) status = index_names(r);
    free(text);
    return status;
}

/* Reads the header of `from`, whose descriptor, data and size are set. On failure the descriptor is
 * closed. */
static weft_status begin_reading(weft_safetensors from, const char *path, weft_safetensors **file,
                                 weft_error *error)
{
    weft_safetensors *f = malloc(sizeof *f);
    if (!f) {
        if (from.descriptor >= 0) weft__os_close(from.descriptor);
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    }
    *f = from;
    f->path = weft__params_copy_text(path);
    f->meta = weft_params_new();
    reader r = {.file = f, .path = path, .error = error};
    weft_status status = f->path && f->meta ? read_file(&r) : no_memory(&r);
    if (status == WEFT_OK)
        *file = f;
    else
        weft_safetensors_close(f);
    return status;
}

weft_status weft__safetensors_open(const char *path, weft_safetensors **file, weft_error *error)
{
    os_facts facts;
    *file = NULL;
    if (!path) return weft_error_set(error, WEFT_BAD_ARGUMENT, "safetensors", "the path is NULL");
    const int descriptor = weft__file_open(path);
    if (descriptor < 0)
        return weft_error_set(error, weft__file_status(errno), path, "cannot be opened: %s",
                              weft__file_error(errno));
    if (!weft__os_facts_of(descriptor, &facts)) {
        const int problem = errno;
        weft__os_close(descriptor);
        return weft_error_set(error, WEFT_IO, path, "cannot be read: %s", strerror(problem));
    }
    return begin_reading((weft_safetensors){.descriptor = descriptor, .bytes = facts.bytes}, path,
                         file, error);
}

weft_safetensors *weft_safetensors_open(const char *path, weft_error *error)
{
    weft_error_clear(error);
    weft_safetensors *file;
    weft__safetensors_open(path, &file, error);
    return file;
}

weft_status weft__safetensors_from_memory(weft_memory_file from, weft_safetensors **file,
                                          weft_error *error)
{
    *file = NULL;
    const char *name = memory_file_name(&from);
    if (!from.data) return weft_error_set(error, WEFT_BAD_ARGUMENT, name, "the data are NULL");
    return begin_reading(
        (weft_safetensors){.descriptor = -1, .data = from.data, .bytes = from.bytes}, name, file,
        error);
}

weft_safetensors *weft_safetensors_from_memory(weft_memory_file from, weft_error *error)
{
    weft_error_clear(error);
    weft_safetensors *file;
    weft__safetensors_from_memory(from, &file, error);
    return file;
}

void weft_safetensors_close(weft_safetensors *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->n; i++) free((char *)(uintptr_t)file->at[i].tensor.name);
    free(file->at);
    free(file->by_name);
    free(file->path);
    weft_params_free(file->meta);
    if (file->descriptor >= 0) weft__os_close(file->descriptor);
    free(file);
}

/* ---- Tensors ---- */

size_t weft_safetensors_count(const weft_safetensors *file)
{
    return file ? file->n : 0;
}

const weft_file_tensor *weft_safetensors_at(const weft_safetensors *file, size_t index)
{
    return index < weft_safetensors_count(file) ? &file->at[index].tensor : NULL;
}

const weft_file_tensor *weft_safetensors_find(const weft_safetensors *file, const char *name)
{
    const entry key = {.tensor.name = name}, *wanted = &key;
    if (!name || !weft_safetensors_count(file)) return NULL;
    entry *const *found = bsearch(&wanted, file->by_name, file->n, sizeof(entry *), by_name);
    return found ? &(*found)->tensor : NULL;
}

weft_params *weft__safetensors_metadata(const weft_safetensors *file)
{
    return file->meta;
}

/* Widens n numbers of 16 bits, which are the upper half of the memory of n floats, in place. */
static void weft__widen(float *data, size_t n, float (*number)(uint16_t bits))
{
    const char *from = (const char *)data + 2 * n;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, 2);
        data[i] = number(bits);
    }
}

weft_status weft__safetensors_read(const weft_safetensors *file, const weft_file_tensor *tensor,
                                   weft_dtype dtype, void *data, weft_error *error)
{
    const entry *e = (const entry *)(const void *)tensor; /* its first field */
    const size_t bytes = (size_t)(e->end - e->begin), n = bytes / e->stored->bytes;
    const bool narrow = dtype == WEFT_F32 && e->stored->bytes == 2;
    char *from = (char *)data + (narrow ? bytes : 0);
    if (tensor->dtype == WEFT_DTYPES)
        return weft_error_set(error, WEFT_BAD_FILE, file->path, "%s: its dtype is not supported",
                              tensor->name);
    if (!read_at(file, from, bytes, file->data_begin + e->begin))
        return weft_error_set(error, WEFT_IO, file->path, "%s cannot be read", tensor->name);
    if (byte_order_is_big()) byte_order_swap(from, n, e->stored->bytes);
    if (narrow) weft__widen(data, n, *e->stored->name == 'B' ? half_from_bf16 : half_from_f16);
    weft__normalise_bools(dtype, data, bytes);
    return WEFT_OK;
}

weft_status weft_safetensors_read(const weft_safetensors *file, const weft_file_tensor *tensor,
                                  void *data, weft_error *error)
{
    weft_error_clear(error);
    if (!file || !tensor)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "safetensors",
                              "the file or the tensor is NULL");
    return weft__safetensors_read(file, tensor, tensor->dtype, data, error);
}
