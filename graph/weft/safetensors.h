/* weft/safetensors.h - safetensors files (github.com/huggingface/safetensors) tensor by tensor.
 *
 * weft_params_load and weft_params_save (weft/store.h) read and write whole stores. These functions
 * serve files whose tensors have other names, dtypes or layouts in weft: they need no memory for
 * more than one tensor at a time. */
#ifndef WEFT_SAFETENSORS_H
#define WEFT_SAFETENSORS_H

#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of a file. */
typedef struct weft_file_tensor {
    const char *name;
    weft_dtype dtype; /* in weft: f32 for F16 and BF16. WEFT_DTYPES: none, reading fails */
    weft_shape shape;
    const char *stored; /* the dtype in the file: "F32", "F16", "I64", ... Not used on writing */
} weft_file_tensor;

/* An open file. */
typedef struct weft_safetensors weft_safetensors;

/* Opens a file and checks its whole header against its size; reads no data. Errors as those of
 * weft_params_load. NULL on failure. weft_safetensors_close accepts NULL. */
WEFT_API weft_safetensors *weft_safetensors_open(const char *path, weft_error *error);
/* The same for a file in memory, whose bytes must stay as they are until weft_safetensors_close. */
WEFT_API weft_safetensors *weft_safetensors_from_memory(weft_memory_file from, weft_error *error);
WEFT_API void weft_safetensors_close(weft_safetensors *file);
WEFT_API size_t weft_safetensors_count(const weft_safetensors *file);
/* Tensor `index`, in the order of the data, or the one of that name; NULL if there is none. The
 * file owns it. The first takes O(1), the second O(log n). */
WEFT_API const weft_file_tensor *weft_safetensors_at(const weft_safetensors *file, size_t index);
WEFT_API const weft_file_tensor *weft_safetensors_find(const weft_safetensors *file,
                                                       const char *name);
/* Reads a tensor of this file into `data`, weft_tensor_bytes(dtype, shape) bytes. F16 and BF16
 * become f32, which is exact. WEFT_BAD_FILE if weft has no dtype for it, WEFT_IO if the file cannot
 * be read. */
WEFT_API weft_status weft_safetensors_read(const weft_safetensors *file,
                                           const weft_file_tensor *tensor, void *data,
                                           weft_error *error);

/* Returns the contents of tensor `index`, which must stay as they are until the next call. NULL
 * after an error, which it has set. */
typedef const void *(*weft_safetensors_data)(void *context, size_t index, weft_error *error);
/* Writes a file of n tensors, whose contents it asks for in order, and the metadata of the store
 * `metadata` (NULL: none). PATH is replaced as weft_params_save does it. */
WEFT_API weft_status weft_safetensors_write(const char *path, const weft_file_tensor *tensors,
                                            size_t n, const weft_params *metadata,
                                            weft_safetensors_data data, void *context,
                                            weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
