/* weft/store.h - the parameter store: named tensors, their files, their metadata. */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_params weft_params;

WEFT_API weft_params *weft_params_new(void); /* NULL only when memory is out */
WEFT_API void weft_params_free(weft_params *params);
/* Adds each state that the graph declares and the store lacks, with the contents that its
 * weft_init gives for this seed and name: the same whatever the order of declaration. One that
 * the store has in another dtype or shape is an error, and then nothing is added. */
WEFT_API weft_status weft_params_init(weft_params *params, const weft_graph *graph, uint64_t seed,
                                      weft_error *error);
/* Adds a zeroed tensor, or finds the one of that name if dtype and shape are equal. */
WEFT_API weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                                     weft_shape shape, weft_tensor *tensor, weft_error *error);
/* Adds all tensors of `from` without a copy: both stores then name the same data, which stay those
 * of `from`; it must outlive `params`. A name that is in both is an error, and then nothing is
 * added. For a store with states of its own (caches) beside the parameters of another. */
WEFT_API weft_status weft_params_share(weft_params *params, const weft_params *from,
                                       weft_error *error);
/* False if there is none. The data stay the store's, at the same address while it lives. */
WEFT_API bool weft_params_get(const weft_params *params, const char *name, weft_tensor *tensor);
WEFT_API size_t weft_params_count(const weft_params *params);
/* In order of addition. */
WEFT_API const char *weft_params_name(const weft_params *params, size_t index);

/* Metadata: short strings that travel with the store in its files. NULL if there is none. */
WEFT_API weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text);
WEFT_API const char *weft_params_meta(const weft_params *params, const char *key);

/* Saves the store as a safetensors file. PATH is always a whole file, also while several threads or
 * processes save to it: a new file of a unique name, PATH.XXXXXXXXXXXX.tmp (hexadecimal digits), is
 * written, synced and renamed to PATH. On failure PATH is as it was and nothing is left. A symbolic
 * link PATH is replaced, its target is not touched; a folder, pipe or device is refused. A process
 * that is killed while it saves leaves its temporary file, which may be removed. */
WEFT_API weft_status weft_params_save(const weft_params *params, const char *path,
                                      weft_error *error);
/* Loads a safetensors file. Its tensors replace those of the same name (dtype and shape must be
 * equal), the others are added. Every number of the header is checked against the file before it is
 * believed; on failure the store is unchanged. The header has at most 100,000,000 bytes, as with
 * other readers of the format, of which the description of one tensor takes at most 65,536
 * (WEFT_BAD_FILE), and at most 1,048,576 entries of metadata (WEFT_TOO_LARGE). */
WEFT_API weft_status weft_params_load(weft_params *params, const char *path, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
