/* Writing of safetensors files: 8 bytes of header length (little endian), a JSON header
 *     {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}},
 * and the data. O(bytes). */
#include "safetensors.h"
#include "params.h"

#include "base/byte_order.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const weft_file_tensor *t)
{
    return weft_tensor_bytes(t->dtype, t->shape);
}

/* A header that grows, or is only counted: `at` NULL. */
typedef struct header_text {
    char *at;
    size_t n;
} header_text;

static void put(header_text *h, const char *bytes, size_t n)
{
    if (h->at) memcpy(h->at + h->n, bytes, n);
    h->n += n;
}

static void put_word(header_text *h, const char *word)
{
    put(h, word, strlen(word));
}

static void put_text(header_text *h, const char *text)
{
    char character[JSON_CHARACTER];
    put_word(h, "\"");
    while (*text) {
        const size_t n = weft__json_put(&text, character);
        put(h, character, n);
    }
    put_word(h, "\"");
}

static void put_number(header_text *h, uint64_t number, const char *before)
{
    char text[TEXT_NUMBER_BYTES];
    snprintf(text, sizeof text, "%s%" PRIu64, before, number);
    put_word(h, text);
}

static void put_tensor(header_text *h, const weft_file_tensor *t, const char *half, size_t begin)
{
    put_text(h, t->name);
    put_word(h, ":{\"dtype\":");
    put_text(h, t->dtype == WEFT_BF16 ? half : weft__safetensors_dtype_name(t->dtype));
    put_word(h, ",\"shape\":[");
    for (int d = 0; d < t->shape.rank; d++) put_number(h, (uint64_t)t->shape.dim[d], d ? "," : "");
    put_word(h, "],\"data_offsets\":[");
    put_number(h, begin, "");
    put_number(h, begin + bytes_of(t), ",");
    put_word(h, "]}");
}

static void put_header(header_text *h, const safetensors_contents *c)
{
    size_t begin = 0, metas = c->metadata ? c->metadata->n_meta : 0;
    put_word(h, "{");
    if (metas) put_word(h, "\"__metadata__\":{");
    for (size_t i = 0; i < metas; i++) {
        if (i) put_word(h, ",");
        put_text(h, c->metadata->metas[i].key);
        put_word(h, ":");
        put_text(h, c->metadata->metas[i].text);
    }
    if (metas) put_word(h, c->n ? "}," : "}");
    for (size_t i = 0; i < c->n; i++) {
        if (i) put_word(h, ",");
        put_tensor(h, &c->tensors[i], c->half, begin);
        begin += bytes_of(&c->tensors[i]);
    }
    put_word(h, "}");
}

char *weft__safetensors_header(const safetensors_contents *c)
{
    header_text counted = {NULL, 0}, header = {NULL, 0};
    put_header(&counted, c);
    header.at = malloc(counted.n + 1);
    if (!header.at) return NULL;
    put_header(&header, c);
    header.at[header.n] = 0;
    return header.at;
}

/* Writes the numbers of a tensor. */
static void write_numbers(file_writer *file, const char *numbers, size_t bytes, size_t size)
{
    char block[4096];
    if (!byte_order_is_big()) {
        weft__file_write(file, numbers, bytes);
        return;
    }
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < sizeof block ? bytes - at : sizeof block;
        memcpy(block, numbers + at, n);
        byte_order_swap(block, n / size, size);
        weft__file_write(file, block, n);
    }
}

/* Writes everything; an error of `data` ends it. */
static weft_status write_contents(file_writer *file, const safetensors_contents *c,
                                  const char *header, weft_safetensors_data data, void *context,
                                  weft_error *error)
{
    size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    weft__file_write(file, prefix, sizeof prefix);
    weft__file_write(file, header, length);
    weft__file_write(file, "        ", padded - length);
    for (size_t i = 0; i < c->n; i++) {
        weft_error problem = {0};
        const size_t bytes = bytes_of(&c->tensors[i]);
        const void *from = bytes ? data(context, i, &problem) : NULL;
        if (bytes && !from) return weft_error_copy(error, &problem);
        write_numbers(file, from, bytes, weft_dtype_bytes(c->tensors[i].dtype));
    }
    return WEFT_OK;
}

/* Bytes of names and metadata, a lower bound of the header. */
static size_t names_bytes(const safetensors_contents *c)
{
    size_t bytes = 0, metas = c->metadata ? c->metadata->n_meta : 0;
    for (size_t i = 0; i < c->n; i++) bytes += strlen(c->tensors[i].name);
    for (size_t i = 0; i < metas; i++)
        bytes += strlen(c->metadata->metas[i].key) + strlen(c->metadata->metas[i].text);
    return bytes;
}

/* A file whose names differ from the store's would load into nothing. */
static weft_status check_names(const safetensors_contents *c, const char *path, weft_error *error)
{
    for (size_t i = 0; i < c->n; i++)
        if (!weft__text_is_utf8(c->tensors[i].name))
            return weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                                  "\"%s\" is not UTF-8, as the names of tensors in a file are",
                                  c->tensors[i].name);
    return WEFT_OK;
}

static weft_status check_limits(const safetensors_contents *c, size_t header_bytes,
                                const char *path, weft_error *error)
{
    const size_t metas = c->metadata ? c->metadata->n_meta : 0;
    if (metas > SAFETENSORS_MAX_METAS)
        return weft_error_set(error, WEFT_TOO_LARGE, path,
                              "has %zu entries of metadata, at most %u fit in a file", metas,
                              SAFETENSORS_MAX_METAS);
    if (header_bytes > SAFETENSORS_MAX_HEADER)
        return weft_error_set(error, WEFT_TOO_LARGE, path,
                              "names and metadata need a header of %zu bytes or more, at most %u "
                              "fit in a file",
                              header_bytes, SAFETENSORS_MAX_HEADER);
    return WEFT_OK;
}

weft_status weft_safetensors_write(const char *path, const weft_file_tensor *tensors, size_t n,
                                   const weft_params *metadata, weft_safetensors_data data,
                                   void *context, weft_error *error)
{
    weft_error_clear(error);
    const safetensors_contents contents = {tensors, n, metadata,
                                           weft__safetensors_dtype_name(WEFT_BF16)};
    return weft__safetensors_write(path, &contents, data, context, error);
}

weft_status weft__safetensors_write(const char *path, const safetensors_contents *contents,
                                    weft_safetensors_data data, void *context, weft_error *error)
{
    const safetensors_contents *c = contents;
    file_writer file;
    if (!path || !path[0] || (c->n && (!c->tensors || !data)))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "safetensors",
                              "writing needs a path, tensors and their data");
    if (weft__file_is_stream(path))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                              "is not a regular file: checkpoints are not written into folders, "
                              "pipes or devices");
    weft_status status = check_limits(c, names_bytes(c), path, error);
    if (status == WEFT_OK) status = check_names(c, path, error);
    if (status != WEFT_OK) return status;
    char *header = weft__safetensors_header(c);
    if (!header) return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for the header");
    status = check_limits(c, strlen(header), path, error);
    if (status != WEFT_OK) {
        free(header);
        return status;
    }
    bool good = weft__file_begin(&file, path);
    if (good) {
        status = write_contents(&file, c, header, data, context, error);
        if (status == WEFT_OK)
            good = weft__file_commit(&file);
        else
            weft__file_abandon(&file);
    }
    int problem = errno;
    free(header);
    if (good) return status;
    return weft_error_set(error, WEFT_IO, path, "cannot be written: %s", weft__file_error(problem));
}
