/* weft/store.h - the parameter store: named tensors with metadata, and their files.
 *
 * A store outlives plans and sessions, so that several graphs can run on the same parameters. Its
 * functions are not synchronised: do not change a store while another thread uses it. */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H

#include <weft/communicator.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_params weft_params;

/* Creates an empty store; NULL only when memory is out. weft_params_free accepts NULL. */
WEFT_API weft_params *weft_params_new(void);
WEFT_API void weft_params_free(weft_params *params);
/* Adds every state that the graph declares and the store lacks. Its weft_init, the seed and its
 * name determine the contents, so the order of declarations does not matter. WEFT_BAD_SHAPE if the
 * store has a state with another dtype or shape; nothing is added then. */
WEFT_API weft_status weft_params_init(weft_params *params, const weft_graph *graph, uint64_t seed,
                                      weft_error *error);
/* Adds a tensor of zeros, or finds the one of that name; WEFT_BAD_SHAPE if that one has another
 * dtype or shape. Sets *tensor to the store's tensor; `tensor` may be NULL. */
WEFT_API weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                                     weft_shape shape, weft_tensor *tensor, weft_error *error);
/* Adds all tensors of `from` without copying their data, which `from` still owns: it must outlive
 * `params`. Use it for a store that has states of its own, such as caches, beside the parameters of
 * another. A name that both stores have is an error; nothing is added then. */
WEFT_API weft_status weft_params_share(weft_params *params, const weft_params *from,
                                       weft_error *error);
/* Sets *tensor to the tensor of that name; false if there is none. `tensor` may be NULL. The data
 * stay at the same address as long as the store lives. */
WEFT_API bool weft_params_get(const weft_params *params, const char *name, weft_tensor *tensor);
WEFT_API size_t weft_params_count(const weft_params *params);
/* The name of tensor `index`, in order of addition; NULL if there is none. The store owns it. */
WEFT_API const char *weft_params_name(const weft_params *params, size_t index);

/* Chooses tensors by name. */
typedef struct weft_params_filter {
    bool (*selects)(void *context, const char *name); /* NULL: all */
    void *context;
} weft_params_filter;

/* Copies from `whole`, the store of a model that is not split, to `params`, the store of one that
 * is: every state that the graph declares and `whole` has, of a state that is a part (weft_part)
 * this part. States that `params` lacks are added. WEFT_BAD_SHAPE if a tensor of `whole` has
 * another dtype or shape than the whole of the state. */
WEFT_API weft_status weft_params_take_parts(weft_params *params, const weft_graph *graph,
                                            const weft_params *whole, weft_error *error);
/* The same in one store, which may be that of a whole model: takes the parts, and removes all
 * tensors that the graph does not declare, except those that `also` selects (NULL: none). Tensors
 * of the store have other addresses afterwards. On failure the store does not change. */
WEFT_API weft_status weft_params_keep_parts(weft_params *params, const weft_graph *graph,
                                            const weft_params_filter *also, weft_error *error);
/* The inverse of weft_params_take_parts, which all ranks of the communicator must call with their
 * graphs and stores: copies every state that the graph declares to `whole`, and gathers the ranks'
 * parts, so that every rank has the store of the model that is not split. Fails on all ranks if it
 * fails on one: WEFT_NOT_FOUND if `params` lacks a state, WEFT_BAD_SHAPE if the ranks' parts, in
 * their order, do not make up the whole. */
WEFT_API weft_status weft_params_join_parts(weft_params *whole, const weft_graph *graph,
                                            const weft_params *params,
                                            weft_communicator *communicator, weft_error *error);

/* Metadata: texts by key, which the store's files contain too. Both are copied. Setting a key again
 * replaces its text. weft_params_meta returns NULL if there is no such key. */
WEFT_API weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text);
WEFT_API const char *weft_params_meta(const weft_params *params, const char *key);
/* Sets all metadata of `from` in `to`. */
WEFT_API weft_status weft_params_copy_meta(weft_params *to, const weft_params *from);

/* Saves the tensors that `filter` selects (NULL: all), and the metadata, as a safetensors file.
 * PATH is a complete file at any time, even while several threads or processes save to it: the data
 * go to a temporary file of a unique name, PATH.XXXXXXXXXXXX.tmp (hexadecimal digits), which is
 * synced and renamed to PATH. On failure PATH does not change, and the temporary file is removed.
 * If PATH is a symbolic link, the link is replaced and its target does not change. A folder, pipe
 * or device is refused. A process that is killed while it saves leaves its temporary file behind,
 * which may be deleted. */
WEFT_API weft_status weft_params_save(const weft_params *params, const char *path,
                                      const weft_params_filter *filter, weft_error *error);
/* Loads a safetensors file. Numbers of 16 bits (F16, BF16) become f32. Its tensors replace the
 * contents of those of the same name, whose dtype and shape must be equal; others are added. Every
 * number in the header is checked against the file. On failure the store does not change:
 * WEFT_NOT_FOUND if there is no such file, WEFT_BAD_FILE if it is malformed, WEFT_BAD_SHAPE if a
 * tensor does not fit the store's. Limits: 100,000,000 bytes of header, the limit of the format,
 * and 65,536 bytes for the description of one tensor (WEFT_BAD_FILE); 1,048,576 entries of metadata
 * (WEFT_TOO_LARGE). */
WEFT_API weft_status weft_params_load(weft_params *params, const char *path, weft_error *error);
/* The same for the tensors that `filter` selects, and all metadata. */
WEFT_API weft_status weft_params_load_some(weft_params *params, const char *path,
                                           const weft_params_filter *filter, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
