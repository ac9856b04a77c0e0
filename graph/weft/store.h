/* weft/store.h - the parameter store: named tensors with metadata, and their files.
 *
 * A store outlives plans and sessions, so that several graphs can run on the same parameters. Its
 * functions are not synchronised: do not change a store while another thread uses it. */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H

#include <weft/communicator.h>
#include <weft/state_key.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_params_options {
    const weft_allocator *allocator; /* of the tensors, in blocks of at least 64 KiB. Copied; NULL:
                                        weft's own */
} weft_params_options;
/* weft_params_new with options, which may be NULL. WEFT_BAD_ARGUMENT if the allocator has one of
 * its two functions. */
WEFT_API weft_params *weft_params_new_with(const weft_params_options *options, weft_error *error);

/* The functions of <weft/weft.h> in full:
 *
 * weft_params_init: the order of declarations does not matter. WEFT_BAD_SHAPE if the store has a
 * state with another dtype or shape. WEFT_NOT_FOUND if the store was loaded from a file
 * (weft_params_source) and lacks a state: it does not invent what the file should contain. Nothing
 * is added on failure.
 *
 * weft_params_find: `tensor` may be NULL. The data stay at the same address as long as the store
 * lives.
 *
 * weft_params_save writes the metadata as well. PATH is a complete file at any time, even while
 * several threads or processes save to it: the data go to a temporary file of a unique name,
 * PATH.XXXXXXXXXXXX.tmp (hexadecimal digits), which is synced and renamed to PATH. On failure PATH
 * does not change, and the temporary file is removed. If PATH is a symbolic link, the link is
 * replaced and its target does not change. A folder, pipe or device is refused. A process that is
 * killed while it saves leaves its temporary file, which may be deleted.
 *
 * weft_params_load is weft_params_load_with without options. */

/* Adds a tensor of zeros, or finds the one of that name; WEFT_BAD_SHAPE if that one has another
 * dtype or shape. Sets *tensor to the store's tensor; `tensor` may be NULL. */
WEFT_API weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                                     weft_shape shape, weft_tensor *tensor, weft_error *error);
/* Adds all tensors of `from` without copying their data, which `from` still owns: it must outlive
 * `params`. Use it for a store that has states of its own, such as caches, in addition to another
 * store's parameters. A name that both stores have is an error; nothing is added then. */
WEFT_API weft_status weft_params_share(weft_params *params, const weft_params *from,
                                       weft_error *error);
WEFT_API size_t weft_params_count(const weft_params *params);
/* The name of tensor `index`, in order of addition; NULL if there is none. The store owns it. */
WEFT_API const char *weft_params_name(const weft_params *params, size_t index);
/* What that tensor is by its name, in which the key points; the key of NULL if there is none. */
WEFT_API weft_state_key weft_params_key(const weft_params *params, size_t index);
/* A hash (FNV-1a, 64 bits) of the names and numbers of the model's parameters, in order of addition,
 * without states of training. It is the same on every processor; every NaN counts as the same one.
 * It does not depend on shapes, and detects accidents, not attacks: numbers that differ by chance
 * have equal hashes with probability 2^-64. */
WEFT_API uint64_t weft_params_hash(const weft_params *params);

/* Chooses tensors by name. */
struct weft_params_filter {
    bool (*selects)(void *context, const char *name); /* NULL: all */
    void *context;
};

/* The same as weft_params_init, also for a store that was loaded, for the states that `filter`
 * selects (NULL: all), such as a new head or the states of an optimiser. WEFT_NOT_FOUND if the
 * store lacks another state that the graph declares; the message has the first names. */
WEFT_API weft_status weft_params_init_some(weft_params *params, const weft_graph *graph,
                                           const weft_params_filter *filter, uint64_t seed,
                                           weft_error *error);

/* Metadata: texts by key, which the store's files contain too. Both are copied. Setting a key again
 * replaces its text. weft_params_meta returns NULL if there is no such key. */
WEFT_API weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text,
                                          weft_error *error);
WEFT_API const char *weft_params_meta(const weft_params *params, const char *key);
/* Sets all metadata of `from` in `to`. */
WEFT_API weft_status weft_params_copy_meta(weft_params *to, const weft_params *from,
                                           weft_error *error);

/* What loading found: names, which weft_load_report_free frees. */
typedef struct weft_load_report {
    size_t n_loaded, n_missing, n_unexpected;
    char **loaded;     /* expected, and in the file */
    char **missing;    /* expected, but not in the file */
    char **unexpected; /* in the file, but not expected */
} weft_load_report;
WEFT_API void weft_load_report_free(weft_load_report *report);

typedef struct weft_load_options {
    const weft_graph *graph; /* its states are expected; NULL: the tensors of the store, or,
                              * if that is empty, whatever the file has */
    const weft_params_filter *filter; /* the tensors that count, expected or not; NULL: all */
    bool allow_missing;    /* the store keeps its own; weft_params_init adds what it then lacks */
    bool allow_unexpected; /* with a graph they are not loaded, otherwise they are added */
} weft_load_options;

/* The numbers of a file. */
typedef enum weft_save_format {
    WEFT_SAVE_EXACT, /* each tensor in its own dtype */
    WEFT_SAVE_BF16,  /* f32 as bf16 */
    WEFT_SAVE_F16    /* f32 and bf16 as f16 (IEEE 754 binary16) */
} weft_save_format;
/* weft_params_save in a file of half the size: each f32 becomes the nearest number of 16 bits, of
 * two the one with an even fraction. Other dtypes do not change. weft_params_load widens the
 * numbers to f32 again. WEFT_BAD_ARGUMENT if a finite number exceeds the format's range, which is
 * that of f32 for bf16, and -65504 to 65504 for f16. */
WEFT_API weft_status weft_params_save_as(const weft_params *params, const char *path,
                                         const weft_params_filter *filter, weft_save_format format,
                                         weft_error *error);
/* Loads a safetensors file. Numbers of 16 bits (F16, BF16) become f32. Its tensors replace the
 * contents of those of the same name, whose dtype and shape must be equal; a graph's states that
 * the store lacks are added, and an empty store takes all. Every number in the header is checked
 * against the file. `options` may be NULL: then the file must have exactly the tensors that the
 * store has, unless that is empty. `report` may be NULL; otherwise it is filled as soon as the file
 * could be read, also if the load then fails.
 *
 * On failure the store does not change: WEFT_NOT_FOUND if there is no such file; WEFT_BAD_FILE if
 * it is malformed, or has missing or unexpected tensors that the options do not allow;
 * WEFT_BAD_SHAPE if a tensor does not fit the graph's or the store's. Limits: 100,000,000 bytes of
 * header, the limit of the format, and 65,536 bytes for the description of one tensor
 * (WEFT_BAD_FILE); 1,048,576 entries of metadata (WEFT_TOO_LARGE). */
WEFT_API weft_status weft_params_load_with(weft_params *params, const char *path,
                                           const weft_load_options *options,
                                           weft_load_report *report, weft_error *error);
/* weft_params_load of the tensors that `filter` selects, and all metadata. */
WEFT_API weft_status weft_params_load_some(weft_params *params, const char *path,
                                           const weft_params_filter *filter, weft_error *error);

/* A file in memory: a model that is part of a program, or came over a network. */
typedef struct weft_memory_file {
    const void *data;
    size_t bytes;
    const char *name; /* for messages, instead of a path; NULL: "memory" */
} weft_memory_file;
/* weft_params_load_with for a safetensors file in memory: the same checks and the same errors. The
 * bytes are copied, and may be freed afterwards. WEFT_BAD_ARGUMENT if the data are NULL. */
WEFT_API weft_status weft_params_load_from_memory(weft_params *params, weft_memory_file from,
                                                  const weft_load_options *options,
                                                  weft_load_report *report, weft_error *error);
/* The path of the file that the store was loaded from last, or the name of a file in memory; NULL
 * if there is none, or it was loaded with allow_missing. The store owns it. */
WEFT_API const char *weft_params_source(const weft_params *params);

#ifdef __cplusplus
}
#endif
#endif
