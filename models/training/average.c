/* The mean of the models of several checkpoints, without the states of training. All files are in
 * memory at once. */
#include "trainer.h"

#include "base/match.h"
#include "quantize/quantize.h"

#include <stdlib.h>
#include <string.h>

static bool is_model_state(void *context, const char *name)
{
    (void)context;
    return weft_state_key_read(name).kind == WEFT_STATE_MODEL;
}

const weft_params_filter weft_model_states = {.selects = is_model_state};

/* Whether two files are of the same model with the same options; each may lack these metadata. */
static bool same_model(const weft_params *a, const weft_params *b)
{
    char current[2][WEFT_OPTIONS_TEXT];
    const char *model = weft_params_meta(a, "model"), *other = weft_params_meta(b, "model");
    const char *x = weft_params_meta(a, "model_options"), *y = weft_params_meta(b, "model_options");
    if (!model != !other || !x != !y || (model && strcmp(model, other) != 0)) return false;
    return !x || !weft__options_differ(weft__options_current(model, x, current[0]),
                                       weft__options_current(model, y, current[1]), &x, &y);
}

/* Writes the mean of a floating-point tensor over the files into `to`; `sum` is scratch of its
 * number of elements. Other dtypes are copied from the last file. */
static void average(weft_tensor *to, const char *name, weft_params *const *files, size_t n,
                    double *sum)
{
    weft_tensor from;
    int64_t numel = weft_shape_numel(to->shape);
    if (!weft_dtype_is_float(to->dtype)) {
        weft_params_find(files[n - 1], name, &from);
        memcpy(to->data, from.data, weft_tensor_bytes(to->dtype, to->shape));
        return;
    }
    for (int64_t i = 0; i < numel; i++) sum[i] = 0;
    for (size_t k = 0; k < n; k++) {
        weft_params_find(files[k], name, &from);
        for (int64_t i = 0; i < numel; i++)
            sum[i] += from.dtype == WEFT_F32 ? (double)((const float *)from.data)[i]
                                             : ((const double *)from.data)[i];
    }
    for (int64_t i = 0; i < numel; i++)
        if (to->dtype == WEFT_F32)
            ((float *)to->data)[i] = (float)(sum[i] / (double)n);
        else
            ((double *)to->data)[i] = sum[i] / (double)n;
}

/* The names of a store's tensors without the states of training, which the caller frees; NULL when
 * out of memory. */
static const char **model_names(const weft_params *params, size_t *n)
{
    const char **names = malloc((weft_params_count(params) + 1) * sizeof *names);
    *n = 0;
    for (size_t i = 0; names && i < weft_params_count(params); i++) {
        if (weft_params_key(params, i).kind == WEFT_STATE_MODEL)
            names[(*n)++] = weft_params_name(params, i);
    }
    return names;
}

/* Fails unless a file has the tensors of the last one. */
static weft_status compare_names(const weft_params *file, const weft_params *last, const char *path,
                                 weft_error *error)
{
    char text[256];
    size_t n_wanted, n_found;
    name_match match = {NULL, NULL, NULL, 0, 0, 0};
    const char **wanted = model_names(last, &n_wanted), **found = model_names(file, &n_found);
    if (!wanted || !found || !weft__match_names(&match, wanted, n_wanted, found, n_found))
        weft_error_set(error, WEFT_NO_MEMORY, "average", "out of memory");
    if (match.n_missing || match.n_unexpected) {
        weft__match_text(&match, "tensors of the last file", text, sizeof text);
        weft_error_set(error, WEFT_BAD_ARGUMENT, path, "%s", text);
    }
    const bool same = match.matched && !match.n_missing && !match.n_unexpected;
    weft__match_free(&match);
    free(wanted);
    free(found);
    return same ? WEFT_OK : WEFT_BAD_ARGUMENT;
}

/* Fails unless a file has the same model as the last: the same options, and tensors of the same
 * shapes. */
static weft_status compare(const weft_params *file, const weft_params *last, const char *path,
                           weft_error *error)
{
    if (!same_model(file, last))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                              "has a different model from the last file's");
    weft_status status = compare_names(file, last, path, error);
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(last); i++) {
        const char *name = weft_params_name(last, i);
        weft_tensor a, b;
        if (weft_params_key(last, i).kind != WEFT_STATE_MODEL) continue;
        weft_params_find(last, name, &a);
        weft_params_find(file, name, &b);
        if (a.dtype != b.dtype || !weft_shape_equal(a.shape, b.shape))
            status = weft_error_set(error, WEFT_BAD_SHAPE, path,
                                    "%s has a different type from the last file's", name);
    }
    return status;
}

static weft_status average_all(weft_params *params, weft_params *const *files, size_t n,
                               weft_error *error)
{
    static const char *const metas[] = {"model",  "model_options",  "step",      "run",
                                        "recipe", "trained_length", "vocabulary"};
    weft_params *last = files[n - 1];
    for (size_t i = 0; i < weft_params_count(last); i++) {
        const char *name = weft_params_name(last, i);
        weft_tensor was, to;
        if (weft_params_key(last, i).kind != WEFT_STATE_MODEL) continue;
        weft_params_find(last, name, &was);
        weft_status status = weft_params_add(params, name, was.dtype, was.shape, &to, error);
        if (status != WEFT_OK) return status;
        double *sum = malloc((size_t)weft_shape_numel(to.shape) * sizeof *sum + 1);
        if (!sum) return weft_error_set(error, WEFT_NO_MEMORY, "average", "out of memory");
        average(&to, name, files, n, sum);
        free(sum);
    }
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++) {
        const char *text = weft_params_meta(last, metas[i]);
        if (text && weft_params_set_meta(params, metas[i], text, NULL) != WEFT_OK)
            return weft_error_set(error, WEFT_NO_MEMORY, "average", "out of memory");
    }
    return WEFT_OK;
}

weft_status weft_params_average(weft_params *params, const char *const *paths, size_t n,
                                weft_error *error)
{
    weft_error_clear(error);
    if (!params || !paths || !n)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "average", "expected at least one file");
    weft_params **files = calloc(n, sizeof *files);
    weft_status status =
        files ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "average", "out of memory");
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        files[i] = weft_params_new();
        status = files[i] ? weft_params_load(files[i], paths[i], error)
                          : weft_error_set(error, WEFT_NO_MEMORY, "average", "out of memory");
        if (status == WEFT_OK) status = weft__quantized_refuse(files[i], paths[i], error);
    }
    for (size_t i = 0; status == WEFT_OK && i + 1 < n; i++)
        status = compare(files[i], files[n - 1], paths[i], error);
    if (status == WEFT_OK) status = average_all(params, files, n, error);
    for (size_t i = 0; files && i < n; i++) weft_params_free(files[i]);
    free(files);
    return status;
}
