/* A store whose quantised matrices are in f32 again. O(nodes) for each matrix, and O(elements). */
#include "quantize.h"

#include <string.h>

#define WHERE "weft_params_dequantize"

/* The quantised form of a matrix, n rows of k elements. */
typedef struct form {
    char names[3][QUANTIZED_NAME]; /* of q, of the scales, and of the zero points or minima */
    quantized_arrays arrays;
    int64_t n, k;
} form;

/* Finds a form and checks its shapes; q is its first tensor. */
static bool read_form(const quantized_change *c, const quantized_use *use, const weft_tensor *q,
                      form *f)
{
    const char *state = weft_name_of(c->graph, use->state);
    weft_tensor scale, other;
    weft__quantized_name(f->names[1], state, use->by_rows, "scale");
    weft__quantized_name(f->names[2], state, use->by_rows, "min");
    const bool minima = weft_params_find(c->params, f->names[2], &other);
    if (!minima) weft__quantized_name(f->names[2], state, use->by_rows, "zero");
    const bool found = weft_params_find(c->params, f->names[1], &scale) &&
                       weft_params_find(c->params, f->names[2], &other);
    const int64_t groups = found && scale.shape.rank == 2 ? scale.shape.dim[1] : 0;
    const int64_t bytes = q->shape.rank == 2 ? q->shape.dim[1] : 0;
    f->n = use->n, f->k = use->k;
    f->arrays = (quantized_arrays){
        .q = q->data, .bits = bytes == f->k ? 8 : 4, .group = groups > 0 ? f->k / groups : 0};
    if (f->arrays.group && f->arrays.group * groups == f->k && f->arrays.group % 32 == 0 &&
        (bytes == f->k || 2 * bytes == f->k) && q->dtype == WEFT_U8 && scale.dtype == WEFT_F32 &&
        other.dtype == (minima ? WEFT_F32 : WEFT_U8) &&
        weft_shape_equal(q->shape, WEFT_SHAPE(f->n, bytes)) &&
        weft_shape_equal(scale.shape, WEFT_SHAPE(f->n, groups)) &&
        weft_shape_equal(other.shape, scale.shape)) {
        f->arrays.scale = scale.data;
        if (minima)
            f->arrays.min = other.data;
        else
            f->arrays.zero = other.data;
        return true;
    }
    weft_error_set(c->error, WEFT_BAD_SHAPE, state,
                   "its quantised form is not one of %lld rows of %lld elements", (long long)f->n,
                   (long long)f->k);
    return false;
}

/* Adapters (passes/lora.h) next to a quantised matrix would be lost: nothing adds them to one in f32. */
static bool has_adapter(const quantized_change *c, const char *state)
{
    char name[QUANTIZED_NAME];
    if (!weft__quantized_name(name, state, false, "lora_a") ||
        !weft_params_find(c->params, name, NULL))
        return false;
    weft_error_set(c->error, WEFT_BAD_ARGUMENT, state,
                   "has an adapter already, expected a store without: call weft_params_dequantize "
                   "first, then weft_params_add_adapters");
    return true;
}

/* Widens the form that a node uses, unless an earlier one did. */
static bool take_use(quantized_change *c, const quantized_use *use)
{
    const char *state = weft_name_of(c->graph, use->state);
    form f;
    weft_tensor q, to;
    if (!weft__quantized_name(f.names[0], state, use->by_rows, "q") ||
        !weft_params_find(c->params, f.names[0], &q))
        return true;
    if (has_adapter(c, state) || !read_form(c, use, &q, &f)) return false;
    for (size_t i = 0; i < weft_params_count(c->params); i++)
        for (int k = 0; k < 3; k++)
            c->replaced[i] |= !strcmp(weft_params_name(c->params, i), f.names[k]);
    if (weft_params_find(c->params, state, NULL) || weft_params_find(c->out, state, NULL))
        return true;
    if (weft_params_add(c->out, state, WEFT_F32, weft_shape_of(c->graph, use->state), &to,
                        c->error) != WEFT_OK)
        return false;
    for (int64_t i = 0; i < f.n; i++)
        for (int64_t j = 0; j < f.k; j++)
            ((float *)to.data)[use->by_rows ? i * f.k + j : j * f.n + i] =
                quantized_element(&f.arrays, i * f.k + j);
    return true;
}

weft_params *weft_params_dequantize(const weft_params *params, const weft_graph *graph,
                                    const weft_params_filter *filter, weft_error *error)
{
    quantized_change change = {
        .params = params, .graph = graph, .filter = filter, .take = take_use, .error = error};
    weft_error_clear(error);
    weft_params *out = weft__quantized_change(&change, WHERE);
    if (!out || weft_params_are_quantized(out) || !weft_params_meta(out, "quantization") ||
        weft_params_set_meta(out, "quantization", "none", error) == WEFT_OK)
        return out;
    weft_params_free(out);
    return NULL;
}
