/* Saves stores as safetensors files. load.c loads them. */
#include "safetensors.h"
#include "params.h"

#include "base/half.h"

#include <stdlib.h>
#include <string.h>

typedef struct selection {
    const weft_params *params;
    size_t *index; /* of tensor i of the file */
    const char *path;
    weft_save_format format;
    uint16_t *rounded; /* room for the largest tensor that is rounded */
} selection;

static bool is_rounded(weft_dtype dtype, weft_save_format format)
{
    return (dtype == WEFT_F32 && format != WEFT_SAVE_EXACT) ||
           (dtype == WEFT_BF16 && format == WEFT_SAVE_F16);
}

/* The nearest numbers of the format; NULL after failing if one is too large for it. */
static const void *round_tensor(const selection *s, const param *p, weft_error *error)
{
    const bool f16 = s->format == WEFT_SAVE_F16, wide = p->tensor.dtype == WEFT_F32;
    const int64_t n = weft_shape_numel(p->tensor.shape);
    for (int64_t i = 0; i < n; i++) {
        const float x = wide ? ((const float *)p->tensor.data)[i]
                             : half_from_bf16(((const uint16_t *)p->tensor.data)[i]);
        const uint16_t y = f16 ? half_to_f16(x) : half_to_bf16(x);
        if (isfinite(x) && !isfinite(f16 ? half_from_f16(y) : half_from_bf16(y))) {
            weft_error_set(error, WEFT_BAD_ARGUMENT, s->path,
                           "%s has %g, which is out of the range of %s", p->name, (double)x,
                           f16 ? "f16, -65504 to 65504" : "bf16");
            return NULL;
        }
        s->rounded[i] = y;
    }
    return s->rounded;
}

static const void *data_of(void *context, size_t i, weft_error *error)
{
    const selection *s = context;
    const param *p = &s->params->params[s->index[i]];
    return is_rounded(p->tensor.dtype, s->format) ? round_tensor(s, p, error) : p->tensor.data;
}

/* Lists the tensors of the file, and makes room for rounding. Returns their number. */
static size_t list_tensors(selection *s, const weft_params_filter *filter,
                           weft_file_tensor *tensors)
{
    size_t n = 0, room = 0;
    for (size_t i = 0; i < s->params->n; i++) {
        const param *p = &s->params->params[i];
        if (!params_selects(filter, p->name)) continue;
        const bool rounded = is_rounded(p->tensor.dtype, s->format);
        const size_t numel = (size_t)weft_shape_numel(p->tensor.shape);
        if (rounded && numel > room) room = numel;
        s->index[n] = i;
        tensors[n++] = (weft_file_tensor){p->name, rounded ? WEFT_BF16 : p->tensor.dtype,
                                          p->tensor.shape, NULL};
    }
    s->rounded = malloc(room * sizeof *s->rounded + 1);
    return n;
}

/* The error of the first tensor whose numbers are gone. */
static weft_status find_released(const selection *s, size_t n, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < n; i++)
        status = weft__params_check(s->params, s->params->params[s->index[i]].name, error);
    return status;
}

weft_status weft_params_save_as(const weft_params *params, const char *path,
                                const weft_params_filter *filter, weft_save_format format,
                                weft_error *error)
{
    weft_error_clear(error);
    if (!params || !path || !path[0])
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "saving needs a store and a path");
    if ((unsigned)format > WEFT_SAVE_F16)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                              "invalid number format %d; expected a weft_save_format", (int)format);
    selection s = {params, malloc((params->n + 1) * sizeof *s.index), path, format, NULL};
    weft_file_tensor *tensors = malloc((params->n + 1) * sizeof *tensors);
    const size_t n = s.index && tensors ? list_tensors(&s, filter, tensors) : 0;
    const safetensors_contents contents = {tensors, n, params,
                                           format == WEFT_SAVE_F16 ? "F16" : "BF16"};
    weft_status status = find_released(&s, n, error);
    if (status == WEFT_OK)
        status = s.rounded ? weft__safetensors_write(path, &contents, data_of, &s, error)
                           : weft_error_set(error, WEFT_NO_MEMORY, path,
                                            "no memory for a list of tensors");
    free(tensors);
    free(s.index);
    free(s.rounded);
    return status;
}

weft_status weft_params_save(const weft_params *params, const char *path,
                             const weft_params_filter *filter, weft_error *error)
{
    return weft_params_save_as(params, path, filter, WEFT_SAVE_EXACT, error);
}
