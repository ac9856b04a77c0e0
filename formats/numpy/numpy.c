/* Arrays in the format of NumPy's .npy files: 6 bytes "\x93NUMPY", two of the version, the length
 * of the header in 2 or 4 bytes (little endian), and the header, a Python literal
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * padded with spaces and a line end; then the elements. O(elements). */
#include "numpy.h"

#include "base/file.h"
#include "base/half.h"
#include "base/platform.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC            "\x93NUMPY"
#define MAGIC_BYTES      6
#define MAX_HEADER_BYTES 65536
#define ALIGNMENT        64

static weft_status damaged(const array_source *from, const char *what, weft_error *error)
{
    return weft_error_set(error, WEFT_BAD_FILE, from->where, "%s", what);
}

/* ---- The header ---- */

/* Skips blanks; returns the position. */
static const char *skip(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n') at++;
    return at;
}

/* Reads a text in quotes of at most size - 1 bytes; NULL if there is none. */
static const char *read_quoted(const char *at, char *text, size_t size)
{
    const char quote = *at++;
    size_t n = 0;
    if (quote != '\'' && quote != '"') return NULL;
    for (; *at && *at != quote; at++) {
        if (n + 1 == size) return NULL;
        text[n++] = *at;
    }
    text[n] = 0;
    return *at == quote ? at + 1 : NULL;
}

/* Reads "(3, 4)", "(3,)" or "()". */
static const char *read_shape(const char *at, weft_shape *shape)
{
    if (*at != '(') return NULL;
    at = skip(at + 1);
    shape->rank = 0;
    while (*at != ')') {
        if (*at < '0' || *at > '9' || shape->rank == WEFT_MAX_RANK) return NULL;
        char *end;
        errno = 0;
        const long long n = strtoll(at, &end, 10);
        if (errno) return NULL;
        shape->dim[shape->rank++] = n;
        at = skip(end);
        if (*at == ',')
            at = skip(at + 1);
        else if (*at != ')')
            return NULL;
    }
    return at + 1;
}

/* Reads the values of the three keys, in any order; false if something else is there. */
static bool read_literal(const char *at, char descr[16], bool *fortran, weft_shape *shape)
{
    enum { DESCR = 1, FORTRAN = 2, SHAPE = 4 } seen = 0;
    at = skip(at);
    if (*at != '{') return false;
    for (at = skip(at + 1); *at != '}';) {
        char key[16];
        at = read_quoted(at, key, sizeof key);
        if (!at || *(at = skip(at)) != ':') return false;
        at = skip(at + 1);
        if (!strcmp(key, "descr") && !(seen & DESCR)) {
            seen |= DESCR;
            at = read_quoted(at, descr, 16);
        } else if (!strcmp(key, "fortran_order") && !(seen & FORTRAN)) {
            seen |= FORTRAN;
            *fortran = !strncmp(at, "True", 4);
            at = *fortran ? at + 4 : !strncmp(at, "False", 5) ? at + 5 : NULL;
        } else if (!strcmp(key, "shape") && !(seen & SHAPE)) {
            seen |= SHAPE;
            at = read_shape(at, shape);
        } else {
            return false;
        }
        if (!at) return false;
        at = skip(at);
        if (*at == ',')
            at = skip(at + 1);
        else if (*at != '}')
            return false;
    }
    return !*skip(at + 1) && seen == (DESCR | FORTRAN | SHAPE);
}

static bool little_endian(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

/* Reads "<f4". */
static weft_status read_descr(const array_source *from, const char *descr, array_header *h,
                              weft_error *error)
{
    static const struct {
        const char *name;
        weft_dtype dtype;
    } kinds[] = {{"f2", WEFT_F32}, {"f4", WEFT_F32}, {"f8", WEFT_F64}, {"i1", WEFT_I32},
                 {"i2", WEFT_I32}, {"i4", WEFT_I32}, {"i8", WEFT_I32}, {"u1", WEFT_I32},
                 {"u2", WEFT_I32}, {"u4", WEFT_I32}, {"u8", WEFT_I32}, {"b1", WEFT_BOOL},
                 {"V2", WEFT_BF16}};
    const bool ordered = *descr && strchr("<>|=", *descr);
    const char *name = descr + ordered;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        h->kind = name[0];
        h->bytes = name[1] - '0';
        h->dtype = kinds[i].dtype;
        h->swapped =
            h->bytes > 1 && (*descr == '>' || *descr == '<') && (*descr == '<') != little_endian();
        return WEFT_OK;
    }
    return weft_error_set(error, WEFT_BAD_DTYPE, from->where,
                          "has elements of NumPy's dtype \"%s\": expected numbers of 1 to 8 bytes "
                          "(f, i, u) or b1",
                          descr);
}

/* Reads the bytes before the literal; sets *length to its bytes. */
static weft_status read_prefix(const array_source *from, uint32_t *length, uint64_t *used,
                               weft_error *error)
{
    unsigned char prefix[12] = {0};
    if (from->bytes < 10 || !from->read(from->context, prefix, 10) ||
        memcmp(prefix, MAGIC, MAGIC_BYTES) != 0)
        return damaged(from, "is not a .npy file: it does not begin with \\x93NUMPY", error);
    const int version = prefix[6];
    if (version < 1 || version > 3)
        return weft_error_set(error, WEFT_BAD_FILE, from->where,
                              "has version %d of NumPy's format, expected 1 to 3", version);
    *used = version == 1 ? 10 : 12;
    if (version > 1 && (from->bytes < 12 || !from->read(from->context, prefix + 10, 2)))
        return damaged(from, "ends within its header", error);
    *length = prefix[8] | (uint32_t)prefix[9] << 8 | (uint32_t)prefix[10] << 16 |
              (uint32_t)prefix[11] << 24;
    if (*length > MAX_HEADER_BYTES || *length > from->bytes - *used)
        return damaged(from, "has a header longer than the file, or than 64 KiB", error);
    return WEFT_OK;
}

weft_status weft__array_read_header(const array_source *from, array_header *h, weft_error *error)
{
    uint32_t length = 0;
    uint64_t used = 0;
    char descr[16] = "";
    *h = (array_header){.dtype = WEFT_F32};
    if (read_prefix(from, &length, &used, error) != WEFT_OK) return WEFT_BAD_FILE;
    char *text = malloc((size_t)length + 1);
    if (!text) return weft_error_set(error, WEFT_NO_MEMORY, from->where, "out of memory");
    const bool read = from->read(from->context, text, length);
    text[length] = 0;
    const bool good =
        read && strlen(text) == length && read_literal(text, descr, &h->fortran, &h->shape);
    free(text);
    if (!good)
        return damaged(from, "has a malformed header, expected descr, fortran_order and shape",
                       error);
    const weft_status status = read_descr(from, descr, h, error);
    if (status != WEFT_OK) return status;
    const int64_t elements = weft_shape_numel(h->shape);
    const uint64_t rest = from->bytes - used - length;
    if (elements < 0 || (uint64_t)elements > rest / (unsigned)h->bytes ||
        (uint64_t)elements * (unsigned)h->bytes != rest)
        return weft_error_set(error, WEFT_BAD_FILE, from->where,
                              "has %llu bytes of elements, which is not what its header describes",
                              (unsigned long long)rest);
    h->data_bytes = rest;
    return WEFT_OK;
}

/* ---- Elements ---- */

/* An integer of the file as 64 bits; *fits is whether an i32 has it. */
static int64_t integer_at(const array_header *h, const unsigned char *at, bool *fits)
{
    uint64_t bits = 0;
    for (int b = 0; b < h->bytes; b++)
        bits |= (uint64_t)at[little_endian() ? b : h->bytes - 1 - b] << (8 * b);
    const int unused = 64 - 8 * h->bytes;
    const int64_t value = (int64_t)(bits << unused) >> unused;
    if (h->kind == 'u') {
        *fits = bits <= INT32_MAX;
        return (int64_t)bits;
    }
    *fits = value >= INT32_MIN && value <= INT32_MAX;
    return value;
}

/* Stores one element, whose bytes are in this machine's order, as element i of `data`. */
static bool store(const array_header *h, const unsigned char *at, void *data, int64_t i)
{
    bool fits = true;
    uint16_t half;
    if (h->kind == 'b') {
        ((uint8_t *)data)[i] = *at != 0;
    } else if (h->kind == 'f' && h->bytes == 2) {
        memcpy(&half, at, 2);
        ((float *)data)[i] = half_from_f16(half);
    } else if (h->kind == 'f' || h->kind == 'V') {
        memcpy((char *)data + i * h->bytes, at, (size_t)h->bytes);
    } else {
        const int64_t value = integer_at(h, at, &fits);
        if (fits) ((int32_t *)data)[i] = (int32_t)value;
    }
    return fits;
}

/* The place in C order of an element whose place in Fortran order is i. */
static int64_t transposed(const weft_shape *shape, int64_t i)
{
    int64_t index[WEFT_MAX_RANK], at = 0;
    for (int d = 0; d < shape->rank; d++) {
        index[d] = i % shape->dim[d];
        i /= shape->dim[d];
    }
    for (int d = 0; d < shape->rank; d++) at = at * shape->dim[d] + index[d];
    return at;
}

weft_status weft__array_read_data(const array_source *from, const array_header *h, void *data,
                                  weft_error *error)
{
    enum { CHUNK = 512 };
    unsigned char chunk[8 * CHUNK], element[8];
    const int64_t n = weft_shape_numel(h->shape);
    for (int64_t first = 0; first < n; first += CHUNK) {
        const int64_t count = n - first < CHUNK ? n - first : CHUNK;
        if (!from->read(from->context, chunk, (size_t)(count * h->bytes)))
            return damaged(from, "ends within its elements, or cannot be read", error);
        for (int64_t i = 0; i < count; i++) {
            const unsigned char *at = chunk + i * h->bytes;
            for (int b = 0; h->swapped && b < h->bytes; b++) element[b] = at[h->bytes - 1 - b];
            const int64_t to = h->fortran ? transposed(&h->shape, first + i) : first + i;
            if (!store(h, h->swapped ? element : at, data, to))
                return weft_error_set(error, WEFT_TOO_LARGE, from->where,
                                      "element %lld does not fit into an i32",
                                      (long long)first + (long long)i);
        }
    }
    return WEFT_OK;
}

weft_status weft__array_read(weft_params *params, const char *name, const array_source *from,
                             weft_error *error)
{
    array_header h;
    weft_tensor to;
    weft_status status = weft__array_read_header(from, &h, error);
    if (status != WEFT_OK) return status;
    /* Read into separate memory first: a failure must not change the store. */
    void *data = malloc(weft_tensor_bytes(h.dtype, h.shape) + 1);
    if (!data)
        return weft_error_set(error, WEFT_NO_MEMORY, from->where, "no memory for %llu bytes",
                              (unsigned long long)h.data_bytes);
    status = weft__array_read_data(from, &h, data, error);
    if (status == WEFT_OK) status = weft_params_add(params, name, h.dtype, h.shape, &to, error);
    if (status == WEFT_OK) memcpy(to.data, data, weft_tensor_bytes(h.dtype, h.shape));
    free(data);
    return status;
}

/* ---- Files ---- */

static bool read_file(void *context, void *data, size_t n)
{
    return fread(data, 1, n, context) == n;
}

weft_status weft_npy_load(weft_params *params, const char *name, const char *path,
                          weft_error *error)
{
    weft_error_clear(error);
    os_facts about;
    if (!params || !name || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_npy_load",
                              "the store, the name or the path is NULL");
    FILE *file = weft__file_open_stdio(path);
    if (!file || !weft__os_facts_of(fileno(file), &about)) {
        const int was = errno;
        if (file) fclose(file);
        return weft_error_set(error, weft__file_status(was), path, "cannot be read: %s",
                              weft__file_error(was));
    }
    const array_source from = {path, about.bytes, read_file, file};
    const weft_status status = weft__array_read(params, name, &from, error);
    fclose(file);
    return status;
}

size_t weft__array_make_header(const weft_tensor *tensor, char text[ARRAY_HEADER_BYTES])
{
    static const char *const descrs[] = {[WEFT_F32] = "f4",  [WEFT_F64] = "f8",  [WEFT_I32] = "i4",
                                         [WEFT_BOOL] = "b1", [WEFT_BF16] = "V2", [WEFT_U8] = "u1"};
    const char order = weft_dtype_bytes(tensor->dtype) == 1 ? '|' : little_endian() ? '<' : '>';
    char *literal = text + 10, *at = literal;
    at += sprintf(at, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order,
                  descrs[tensor->dtype]);
    for (int d = 0; d < tensor->shape.rank; d++)
        at += sprintf(at, "%s%lld", d ? ", " : "", (long long)tensor->shape.dim[d]);
    at += sprintf(at, "%s), }", tensor->shape.rank == 1 ? "," : "");
    while ((at + 1 - text) % ALIGNMENT) *at++ = ' ';
    *at++ = '\n';
    const size_t length = (size_t)(at - literal);
    memcpy(text, MAGIC "\x01", MAGIC_BYTES + 2); /* version 1.0: the literal's NUL is the 0 */
    text[8] = (char)(length & 255);
    text[9] = (char)(length >> 8);
    return (size_t)(at - text);
}

weft_status weft_npy_save(const weft_tensor *tensor, const char *path, weft_error *error)
{
    weft_error_clear(error);
    char header[ARRAY_HEADER_BYTES];
    file_writer file;
    if (!tensor || !path || (unsigned)tensor->dtype >= WEFT_DTYPES)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_npy_save",
                              "the tensor or the path is NULL, or the dtype is invalid");
    if (!weft__file_begin(&file, path))
        return weft_error_set(error, WEFT_IO, path, "cannot be written: %s",
                              weft__file_error(errno));
    weft__file_write(&file, header, weft__array_make_header(tensor, header));
    weft__file_write(&file, tensor->data, weft_tensor_bytes(tensor->dtype, tensor->shape));
    if (weft__file_commit(&file)) return WEFT_OK;
    return weft_error_set(error, WEFT_IO, path, "cannot be written: %s", weft__file_error(errno));
}
