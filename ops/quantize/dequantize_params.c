/* A store whose quantised matrices are in f32 again. O(nodes) for each matrix, and O(elements). */
#include "quantize.h"

#include <stdlib.h>
#include <string.h>

#define WHERE "weft_params_dequantize"

/* The quantised form of a matrix, n rows of k elements. */
typedef struct form {
    char names[3][QUANTIZED_NAME]; /* of q, of the scales, and of the zero points or minima */
    weft_tensor q, scale, other;
    bool minima;
    int64_t n, k, group;
} form;

typedef struct widener {
    const weft_params *params;
    const weft_graph *graph;
    weft_params *out;
    const weft_params_filter *filter;
    bool *replaced; /* by index in params: the tensor is part of a widened form */
    weft_error *error;
} widener;

/* Finds a form; false if the store has none. */
static bool find_form(const widener *w, const char *state, const quantized_use *use, form *f)
{
    f->n = use->n;
    f->k = use->k;
    return weft__quantized_name(f->names[0], state, use->by_rows, "q") &&
           weft_params_find(w->params, f->names[0], &f->q);
}

/* Finds the other two tensors, and checks the shapes. */
static weft_status check_form(const widener *w, const char *state, bool by_rows, form *f)
{
    weft__quantized_name(f->names[1], state, by_rows, "scale");
    weft__quantized_name(f->names[2], state, by_rows, "min");
    f->minima = weft_params_find(w->params, f->names[2], &f->other);
    if (!f->minima) weft__quantized_name(f->names[2], state, by_rows, "zero");
    const bool found = weft_params_find(w->params, f->names[1], &f->scale) &&
                       weft_params_find(w->params, f->names[2], &f->other);
    const int64_t groups = found && f->scale.shape.rank == 2 ? f->scale.shape.dim[1] : 0;
    const int64_t bytes = f->q.shape.rank == 2 ? f->q.shape.dim[1] : 0;
    f->group = groups ? f->k / groups : 0;
    if (groups && f->group * groups == f->k && f->group % 32 == 0 &&
        (bytes == f->k || 2 * bytes == f->k) && f->q.dtype == WEFT_U8 &&
        f->scale.dtype == WEFT_F32 && f->other.dtype == (f->minima ? WEFT_F32 : WEFT_U8) &&
        weft_shape_equal(f->q.shape, WEFT_SHAPE(f->n, bytes)) &&
        weft_shape_equal(f->scale.shape, WEFT_SHAPE(f->n, groups)) &&
        weft_shape_equal(f->other.shape, f->scale.shape))
        return WEFT_OK;
    return weft_error_set(w->error, WEFT_BAD_SHAPE, state,
                          "its quantised form is not one of %lld rows of %lld elements",
                          (long long)f->n, (long long)f->k);
}

/* Element j of row i. */
static float element(const form *f, int64_t i, int64_t j)
{
    const int64_t at = i * f->k + j, g = at / f->group;
    const uint8_t *q = f->q.data;
    const bool bytes = f->q.shape.dim[1] == f->k;
    const int number = bytes ? q[at] : q[at / 2] >> at % 2 * 4 & 15;
    const float scale = ((const float *)f->scale.data)[g];
    if (f->minima) return scale * (float)number + ((const float *)f->other.data)[g];
    return scale * (float)(number - ((const uint8_t *)f->other.data)[g]);
}

/* Widens the form that a node uses, unless an earlier one did. */
static weft_status take_use(widener *w, const quantized_use *use)
{
    const char *state = weft_name_of(w->graph, use->state);
    form f;
    weft_tensor to;
    const weft_params_filter *filter = w->filter;
    if (filter && filter->selects && !filter->selects(filter->context, state)) return WEFT_OK;
    if (!find_form(w, state, use, &f)) return WEFT_OK;
    weft_status status = check_form(w, state, use->by_rows, &f);
    if (status != WEFT_OK) return status;
    for (size_t i = 0; i < weft_params_count(w->params); i++)
        for (int k = 0; k < 3; k++)
            w->replaced[i] |= !strcmp(weft_params_name(w->params, i), f.names[k]);
    if (weft_params_find(w->params, state, NULL) || weft_params_find(w->out, state, NULL))
        return WEFT_OK;
    status = weft_params_add(w->out, state, WEFT_F32, weft_shape_of(w->graph, use->state), &to,
                             w->error);
    if (status != WEFT_OK) return status;
    for (int64_t i = 0; i < f.n; i++)
        for (int64_t j = 0; j < f.k; j++)
            ((float *)to.data)[use->by_rows ? i * f.k + j : j * f.n + i] = element(&f, i, j);
    return WEFT_OK;
}

static weft_status copy_others(widener *w)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(w->params); i++) {
        const char *name = weft_params_name(w->params, i);
        weft_tensor from, to;
        if (w->replaced[i] || !weft_params_find(w->params, name, &from)) continue;
        const size_t bytes = weft_tensor_bytes(from.dtype, from.shape);
        status = weft_params_add(w->out, name, from.dtype, from.shape, &to, w->error);
        if (status == WEFT_OK && bytes) memcpy(to.data, from.data, bytes);
    }
    if (status == WEFT_OK) status = weft_params_copy_meta(w->out, w->params, w->error);
    if (status == WEFT_OK && !weft_params_are_quantized(w->out) &&
        weft_params_meta(w->out, "quantization"))
        status = weft_params_set_meta(w->out, "quantization", "none", w->error);
    return status;
}

weft_params *weft_params_dequantize(const weft_params *params, const weft_graph *graph,
                                    const weft_params_filter *filter, weft_error *error)
{
    weft_error problem = {0};
    weft_error_clear(error);
    if (!params || !graph) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, WHERE, "the store or the graph is NULL");
        return NULL;
    }
    if (weft_graph_status(graph) != WEFT_OK) {
        weft_error_copy(error, weft_graph_error(graph));
        return NULL;
    }
    widener w = {params, graph, weft_params_new(), filter, NULL, &problem};
    w.replaced = calloc(weft_params_count(params) + 1, sizeof *w.replaced);
    weft_status status = w.out && w.replaced
                             ? WEFT_OK
                             : weft_error_set(&problem, WEFT_NO_MEMORY, WHERE, "out of memory");
    for (size_t i = 0; status == WEFT_OK && i < weft_graph_node_count(graph); i++) {
        const weft_node_info node = weft_graph_node(graph, i);
        quantized_use use;
        if (weft__quantized_use_of(graph, &node, &use)) status = take_use(&w, &use);
    }
    if (status == WEFT_OK) status = copy_others(&w);
    free(w.replaced);
    if (status == WEFT_OK) return w.out;
    weft_params_free(w.out);
    weft_error_copy(error, &problem);
    return NULL;
}
