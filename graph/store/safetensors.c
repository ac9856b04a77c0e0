/* Stores in safetensors files, whole. */
#include "safetensors.h"
#include "params.h"

#include <stdlib.h>
#include <string.h>

/* Whether a filter, or none, selects a tensor. */
static bool selects(const weft_params_filter *filter, const char *name)
{
    return !filter || !filter->selects || filter->selects(filter->context, name);
}

/* ---- Saving ---- */

typedef struct selection {
    const weft_params *params;
    size_t *index; /* of tensor i of the file */
} selection;

static const void *data_of(void *context, size_t i, weft_error *error)
{
    const selection *s = context;
    (void)error;
    return s->params->params[s->index[i]].tensor.data;
}

weft_status weft_params_save(const weft_params *params, const char *path,
                             const weft_params_filter *filter, weft_error *error)
{
    if (!params || !path || !path[0])
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "saving needs a store and a path");
    selection s = {params, malloc((params->n + 1) * sizeof *s.index)};
    weft_file_tensor *tensors = malloc((params->n + 1) * sizeof *tensors);
    weft_status status = WEFT_OK;
    size_t n = 0;
    if (!s.index || !tensors)
        status = weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for a list of tensors");
    for (size_t i = 0; status == WEFT_OK && i < params->n; i++) {
        const param *p = &params->params[i];
        if (!selects(filter, p->name)) continue;
        s.index[n] = i;
        tensors[n++] = (weft_file_tensor){p->name, p->tensor.dtype, p->tensor.shape, NULL};
    }
    if (status == WEFT_OK)
        status = weft_safetensors_write(path, tensors, n, params, data_of, &s, error);
    free(tensors);
    free(s.index);
    return status;
}

/* ---- Loading ---- */

/* Adds what was read to the store, or changes nothing: fails if dtypes or shapes differ from the
 * store's, or if memory is out. */
static weft_status merge(weft_params *params, weft_params *from, const char *path,
                         weft_error *error)
{
    char have[128], want[128];
    size_t before = params->n;
    for (size_t i = 0; i < from->n; i++) {
        const param *p = &from->params[i];
        weft_tensor old;
        if (weft_params_get(params, p->name, &old) &&
            (old.dtype != p->tensor.dtype || !weft_shape_equal(old.shape, p->tensor.shape)))
            return weft_error_set(
                error, WEFT_BAD_SHAPE, path, "%s is %s %s in the file, %s %s in the store", p->name,
                weft_dtype_name(p->tensor.dtype),
                weft_shape_text(p->tensor.shape, have, sizeof have), weft_dtype_name(old.dtype),
                weft_shape_text(old.shape, want, sizeof want));
    }
    for (size_t i = 0; i < from->n; i++) {
        const param *p = &from->params[i];
        weft_status status =
            weft_params_add(params, p->name, p->tensor.dtype, p->tensor.shape, NULL, error);
        if (status == WEFT_OK) continue;
        params_truncate(params, before);
        return status;
    }
    if (!params_reserve_metas(params, from->n_meta)) {
        params_truncate(params, before);
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    }
    params_move_metas(params, from);
    for (size_t i = 0; i < from->n; i++) {
        weft_tensor to;
        weft_params_get(params, from->params[i].name, &to);
        memcpy(to.data, from->params[i].tensor.data, weft_tensor_bytes(to.dtype, to.shape));
    }
    return WEFT_OK;
}

weft_status weft_params_load(weft_params *params, const char *path, weft_error *error)
{
    return weft_params_load_some(params, path, NULL, error);
}

/* Reads the tensors that the filter selects into a store of their own, with all metadata. Data are
 * allocated only after the whole header has been checked, so that a malformed file cannot cause
 * larger allocations than its own size (twice that for numbers of 16 bits). BF16 becomes f32,
 * except where the store `like`, which may be NULL, has it as bf16. */
static weft_status read_some(const weft_safetensors *file, const char *path,
                             const weft_params_filter *filter, const weft_params *like,
                             weft_params *into, weft_error *error)
{
    weft_params *metas = safetensors_metadata(file);
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < weft_safetensors_count(file); i++) {
        const weft_file_tensor *t = weft_safetensors_at(file, i);
        weft_tensor to = {.dtype = WEFT_F32}, old = {.dtype = WEFT_F32};
        weft_dtype dtype = t->dtype;
        if (!selects(filter, t->name)) continue;
        if (like && weft_params_get(like, t->name, &old) && old.dtype == WEFT_BF16 &&
            safetensors_dtype_find(t->stored)->dtype == WEFT_BF16)
            dtype = WEFT_BF16;
        if (dtype != WEFT_DTYPES)
            status = weft_params_add(into, t->name, dtype, t->shape, &to, error);
        if (status == WEFT_OK) status = safetensors_read(file, t, dtype, to.data, error);
    }
    if (status != WEFT_OK) return status;
    if (!params_reserve_metas(into, metas->n_meta))
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    params_move_metas(into, metas);
    return WEFT_OK;
}

/* Whether the store has a tensor of the file. */
static bool overlaps(const weft_params *params, const weft_safetensors *file,
                     const weft_params_filter *filter)
{
    for (size_t i = 0; i < weft_safetensors_count(file); i++) {
        const char *name = weft_safetensors_at(file, i)->name;
        if (weft_params_get(params, name, NULL) && selects(filter, name)) return true;
    }
    return false;
}

/* Reads tensors that the store has into a store of their own first, so that a failure changes
 * nothing. */
static weft_status replace(weft_params *params, const weft_safetensors *file, const char *path,
                           const weft_params_filter *filter, weft_error *error)
{
    weft_params *read = weft_params_new();
    weft_status status = read ? read_some(file, path, filter, params, read, error)
                              : weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    if (status == WEFT_OK) status = merge(params, read, path, error);
    weft_params_free(read);
    return status;
}

weft_status weft_params_load_some(weft_params *params, const char *path,
                                  const weft_params_filter *filter, weft_error *error)
{
    if (!params || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "loading needs a store and a path");
    weft_safetensors *file;
    weft_status status = safetensors_open(path, &file, error);
    if (status != WEFT_OK) return status;
    const size_t before = params->n;
    if (overlaps(params, file, filter)) {
        status = replace(params, file, path, filter, error);
    } else {
        status = read_some(file, path, filter, NULL, params, error);
        if (status != WEFT_OK) params_truncate(params, before);
    }
    weft_safetensors_close(file);
    return status;
}
