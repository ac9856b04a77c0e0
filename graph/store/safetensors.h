/* Safetensors files inside: see weft/safetensors.h. */
#ifndef WEFT_GRAPH_SAFETENSORS_H
#define WEFT_GRAPH_SAFETENSORS_H

#include <weft/safetensors.h>

#include "base/private.h"

/* Limits of every file, on saving and on loading. The first is the format's own. */
#define SAFETENSORS_MAX_HEADER 100000000u
#define SAFETENSORS_MAX_METAS  (1u << 20)

/* The dtypes of the format: name, bytes, and the dtype that weft reads it as. */
typedef struct safetensors_dtype {
    const char *name;
    unsigned bytes;
    weft_dtype dtype; /* WEFT_DTYPES: none */
} safetensors_dtype;
/* NULL if the format has no such dtype. */
const safetensors_dtype *weft__safetensors_dtype_find(const char *name);
/* The name of weft's dtype in files. */
const char *weft__safetensors_dtype_name(weft_dtype dtype);

/* weft_safetensors_open, with the status. *file is NULL on failure. */
weft_status weft__safetensors_open(const char *path, weft_safetensors **file, weft_error *error);
/* weft_safetensors_from_memory, with the status. *file is NULL on failure. */
weft_status weft__safetensors_from_memory(weft_memory_file from, weft_safetensors **file,
                                          weft_error *error);
/* weft_safetensors_read, as another dtype: BF16, which weft_safetensors_read makes f32, as it is.
 */
weft_status weft__safetensors_read(const weft_safetensors *file, const weft_file_tensor *tensor,
                                   weft_dtype dtype, void *data, weft_error *error);
/* What the header of a file describes. */
typedef struct safetensors_contents {
    const weft_file_tensor *tensors; /* [n] */
    size_t n;
    const weft_params *metadata; /* NULL: none */
    const char *half;            /* the dtype of BF16 tensors in the file, such as "F16" */
} safetensors_contents;
/* The header of a file of these contents, which free() frees; NULL if out of memory. */
WEFT_PRIVATE_API char *weft__safetensors_header(const safetensors_contents *contents);
/* weft_safetensors_write. */
weft_status weft__safetensors_write(const char *path, const safetensors_contents *contents,
                                    weft_safetensors_data data, void *context, weft_error *error);
/* The metadata of an open file, in a store without tensors. */
weft_params *weft__safetensors_metadata(const weft_safetensors *file);

#endif
