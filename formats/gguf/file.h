/* An open GGUF file. Not installed. */
#ifndef WEFT_FORMATS_GGUF_FILE_H
#define WEFT_FORMATS_GGUF_FILE_H

#include <weft/gguf.h>

#include "base/arena.h"
#include "base/name_table.h"

#include "blocks.h"

#define GGUF_ALIGNMENT 32 /* of the data of tensors, without general.alignment */

typedef struct gguf_tensor {
    weft_gguf_tensor tensor;
    const gguf_type *type;
} gguf_tensor;

struct weft_gguf {
    const char *path;    /* or the name of a file in memory */
    const uint8_t *data; /* the file */
    size_t bytes;
    bool mapped; /* by us; else the memory is the caller's */
    bool header; /* the data of tensors need not be there: those that are missing are NULL */
    uint32_t version;
    weft_gguf_value *meta;
    size_t n_meta;
    gguf_tensor *tensors;
    size_t n_tensors;
    name_table meta_names, tensor_names;
    arena memory; /* all of the above but the file */
};

/* Reads a value of a kind that is a number or a bool. */
void weft__gguf_number(weft_gguf_kind kind, const uint8_t *at, weft_gguf_value *value);
/* Bytes of a value of that kind; 0 for those that say their length. */
size_t weft__gguf_kind_bytes(weft_gguf_kind kind);

/* Reads header, metadata and tensors of the file, whose path, data and size are set. */
weft_status weft__gguf_parse(weft_gguf *file, weft_error *error);

/* Opens the header of a file that is to be written, in memory that stays as it is. NULL on failure. */
weft_gguf *weft__gguf_open_header(const uint8_t *data, size_t bytes, const char *path,
                                  weft_error *error);

/* The type of a tensor of a file. */
static inline const gguf_type *gguf_type_of(const weft_gguf_tensor *tensor)
{
    return ((const gguf_tensor *)(const void *)tensor)->type; /* `tensor` is its first field */
}

#endif
