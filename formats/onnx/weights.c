/* The weights of an ONNX file: which tensors are parameters or running statistics, their names, and
 * their way to a store. */
#include "onnx/import.h"
#include "onnx/wire.h"

#include "store/params.h"

#include <stdio.h>
#include <string.h>

static weft_status no_memory(const char *path, weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for the weights");
}

/* A name for weft; if it is taken, a number is appended, from `number` on. `taken` has, by name,
 * the first number that was not yet tried. */
static const char *weight_name(weft_onnx *m, name_table *taken, const char *from, size_t number)
{
    char *name = weft__arena_alloc(&m->memory, strlen(from) + 24);
    if (!name || !weft__name_table_reserve(taken, 1)) return NULL;
    size_t n = 0;
    for (; from[n]; n++) {
        const char c = from[n];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || strchr("._-/", c);
        name[n] = plain ? c : '_';
    }
    if (n == 0) name[n++] = '_';
    size_t *next = weft__name_table_find(taken, name);
    if (next && *next < number) *next = number;
    while (next && weft__name_table_find(taken, name)) snprintf(name + n, 24, "_%zu", (*next)++);
    weft__name_table_put(taken, name, 0);
    return name;
}

onnx_weight *weft__onnx_weight(const weft_onnx *m, const char *output,
                               const WeftOnnx__TensorProto *proto)
{
    const size_t *i = weft__name_table_find(&m->weight_index, output);
    onnx_weight *w = i ? &m->weights[*i] : NULL;
    return w && w->proto == proto ? w : NULL;
}

/* Marks the weights that are running statistics of a node. */
static void find_statistics(weft_onnx *m, const onnx_mappings *mappings)
{
    const WeftOnnx__GraphProto *g = m->proto->graph;
    for (size_t k = 0; k < g->n_node; k++) {
        const WeftOnnx__NodeProto *node = g->node[k];
        const onnx_op *op = mappings->find("", onnx_text(node->op_type));
        const size_t *w;
        if (!op || !op->first_statistic) continue;
        for (size_t i = op->first_statistic; i < node->n_input && i < op->max_in; i++)
            if ((w = weft__name_table_find(&m->weight_index, node->input[i])))
                m->weights[*w].statistic = true;
    }
}

/* Whether a tensor may be a parameter. One without dimensions is a number of a formula, such as a
 * scale or a bound; floats of at most 8 bits are quantized numbers, which no training would keep. */
static bool is_weight(const WeftOnnx__TensorProto *proto)
{
    weft_dtype dtype;
    return weft__onnx_type_dtype(proto->data_type, "", &dtype, NULL) == WEFT_OK &&
           weft_dtype_is_float(dtype) && !weft__onnx_minifloat(proto->data_type) &&
           proto->n_dims > 0;
}

/* Adds the tensor, which the file calls `output`. `number` as for weight_name. */
static weft_status add_weight(weft_onnx *m, name_table *taken, const WeftOnnx__TensorProto *proto,
                              const char *output, size_t number, weft_error *error)
{
    onnx_weight *w = &m->weights[m->n_weights];
    *w = (onnx_weight){.proto = proto, .output = output};
    w->name = weight_name(m, taken, output, number);
    if (!w->name || !weft__name_table_put(&m->weight_index, output, m->n_weights++))
        return no_memory(m->path, error);
    return weft__onnx_tensor_read(proto, output, &m->memory, &m->files, &w->tensor, error);
}

/* The tensor of a node Constant that may be a parameter, or NULL. A single number is one of a
 * formula. */
static const WeftOnnx__TensorProto *constant_weight(const WeftOnnx__NodeProto *node)
{
    const WeftOnnx__TensorProto *t = NULL;
    if (strcmp(onnx_text(node->op_type), "Constant") != 0 || weft__onnx_domain(node->domain)[0] ||
        node->n_output != 1)
        return NULL;
    for (size_t i = 0; i < node->n_attribute && !t; i++)
        if (!strcmp(onnx_text(node->attribute[i]->name), "value")) t = node->attribute[i]->t;
    if (!t || !is_weight(t)) return NULL;
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] != 1) return t;
    return NULL;
}

weft_status weft__onnx_find_weights(weft_onnx *m, const onnx_mappings *mappings, weft_error *error)
{
    const WeftOnnx__GraphProto *g = m->proto->graph;
    name_table taken = {.memory = &m->memory};
    weft_status status = WEFT_OK;
    m->weight_index.memory = &m->memory;
    m->weights =
        weft__arena_alloc(&m->memory, (g->n_initializer + g->n_node + 1) * sizeof *m->weights);
    if (!m->weights) return no_memory(m->path, error);
    for (size_t i = 0; i < g->n_input; i++)
        if (!weft__name_table_put(&taken, onnx_text(g->input[i]->name), 0))
            return no_memory(m->path, error);
    for (size_t i = 0; i < g->n_initializer && status == WEFT_OK; i++)
        if (is_weight(g->initializer[i]))
            status = add_weight(m, &taken, g->initializer[i], onnx_text(g->initializer[i]->name), i,
                                error);
    const bool in_nodes = m->n_weights == 0 && !onnx_is_own(m);
    for (size_t i = 0; i < g->n_node && in_nodes && status == WEFT_OK; i++) {
        const WeftOnnx__TensorProto *t = constant_weight(g->node[i]);
        if (t) status = add_weight(m, &taken, t, onnx_text(g->node[i]->output[0]), i, error);
    }
    find_statistics(m, mappings);
    return status;
}

/* ---- In a store ---- */

static weft_status copy_weight(const onnx_weight *w, weft_params *params, weft_error *error)
{
    weft_tensor tensor;
    const weft_status status =
        weft_params_add(params, w->name, w->tensor.dtype, w->tensor.shape, &tensor, error);
    const size_t bytes = weft_tensor_bytes(w->tensor.dtype, w->tensor.shape);
    if (status == WEFT_OK && bytes) memcpy(tensor.data, w->tensor.data, bytes);
    return status;
}

/* Data that a store can read where they are. The store's type has no const. */
static weft_status share_weight(const onnx_weight *w, weft_params *params, weft_error *error)
{
    const weft_tensor t =
        weft_tensor_dense((void *)(uintptr_t)w->tensor.data, w->tensor.dtype, w->tensor.shape);
    if ((uintptr_t)t.data % WIRE_ALIGNMENT || weft_params_find(params, w->name, NULL) ||
        weft_tensor_bytes(t.dtype, t.shape) < WIRE_LARGE)
        return copy_weight(w, params, error);
    return weft__params_lend(params, w->name, &t, false, error);
}

static weft_status take_weights(const weft_onnx *model, weft_params *params, const char *where,
                                weft_status (*take)(const onnx_weight *, weft_params *,
                                                    weft_error *),
                                weft_error *error)
{
    weft_error_clear(error);
    if (!model || !params)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "the model or the store is NULL");
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < model->n_weights && status == WEFT_OK; i++)
        if (model->weights[i].used) status = take(&model->weights[i], params, error);
    return status;
}

weft_status weft_onnx_copy_weights(const weft_onnx *model, weft_params *params, weft_error *error)
{
    return take_weights(model, params, "weft_onnx_copy_weights", copy_weight, error);
}

weft_status weft_onnx_share_weights(weft_onnx *model, weft_params *params, weft_error *error)
{
    return take_weights(model, params, "weft_onnx_share_weights", share_weight, error);
}
