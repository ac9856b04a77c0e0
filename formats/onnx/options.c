/* The options of an import: sizes of open dimensions, contents of inputs, and more outputs. */
#include "onnx/import.h"

#include <string.h>

static bool copy_dims(weft_onnx *m, const weft_onnx_options *o)
{
    weft_onnx_dim *dims = weft__arena_alloc(&m->memory, (o->n_dims + 1) * sizeof *dims);
    if (!dims) return false;
    for (size_t i = 0; i < o->n_dims; i++) {
        dims[i] = o->dims[i];
        if (dims[i].name && !(dims[i].name = weft__arena_text(&m->memory, dims[i].name)))
            return false;
        if (dims[i].input && !(dims[i].input = weft__arena_text(&m->memory, dims[i].input)))
            return false;
    }
    m->options.dims = dims;
    m->options.n_dims = o->n_dims;
    return true;
}

static bool copy_texts(weft_onnx *m, weft_onnx_constant *c)
{
    const size_t n = (size_t)weft_shape_numel(c->shape);
    const char **texts = weft__arena_alloc(&m->memory, (n + 1) * sizeof *texts);
    if (!texts) return false;
    for (size_t i = 0; i < n; i++)
        if (!(texts[i] = weft__arena_text(&m->memory, c->texts[i]))) return false;
    c->texts = texts;
    return true;
}

/* Whether the texts of a constant, if it has any, are all there. */
static bool has_texts(const weft_onnx_constant *c)
{
    for (int64_t i = 0; c->texts && i < weft_shape_numel(c->shape); i++)
        if (!c->texts[i]) return false;
    return !c->texts || (c->dtype == WEFT_I32 && !c->data);
}

static bool copy_constants(weft_onnx *m, const weft_onnx_options *o)
{
    weft_onnx_constant *constants =
        weft__arena_alloc(&m->memory, (o->n_constants + 1) * sizeof *constants);
    if (!constants) return false;
    for (size_t i = 0; i < o->n_constants; i++) {
        const weft_onnx_constant *from = &o->constants[i];
        const size_t bytes = weft_tensor_bytes(from->dtype, from->shape);
        void *data = weft__arena_alloc(&m->memory, bytes);
        constants[i] = *from;
        if (from->texts && !copy_texts(m, &constants[i])) return false;
        constants[i].input = weft__arena_text(&m->memory, from->input);
        if (!data || !constants[i].input) return false;
        constants[i].data = bytes && from->data ? memcpy(data, from->data, bytes) : data;
    }
    m->options.constants = constants;
    m->options.n_constants = o->n_constants;
    return true;
}

static bool copy_outputs(weft_onnx *m, const weft_onnx_options *o)
{
    const char **outputs = weft__arena_alloc(&m->memory, (o->n_outputs + 1) * sizeof *outputs);
    if (!outputs) return false;
    for (size_t i = 0; i < o->n_outputs; i++)
        if (!(outputs[i] = weft__arena_text(&m->memory, o->outputs[i]))) return false;
    m->options.outputs = outputs;
    m->options.n_outputs = o->n_outputs;
    return true;
}

weft_status weft__onnx_set_options(weft_onnx *m, const weft_onnx_options *o, weft_error *error)
{
    m->options.batch = o && o->batch ? o->batch : 1;
    for (size_t i = 0; o && i < o->n_dims; i++)
        if ((!o->dims[i].name && !o->dims[i].input) || o->dims[i].size < 0)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_onnx_load",
                                  "dimension %zu has no name and no input, or a negative size", i);
    for (size_t i = 0; o && i < o->n_constants; i++) {
        const weft_onnx_constant *c = &o->constants[i];
        if (!c->input || weft_shape_numel(c->shape) < 0 || weft_dtype_bytes(c->dtype) == 0 ||
            (!c->data && !c->texts && weft_shape_numel(c->shape) > 0) || !has_texts(c))
            return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_onnx_load",
                                  "constant %zu has no input, shape or data", i);
    }
    for (size_t i = 0; o && i < o->n_outputs; i++)
        if (!o->outputs || !o->outputs[i])
            return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_onnx_load",
                                  "output %zu has no name", i);
    if (m->options.batch < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_onnx_load", "the batch is negative");
    if (!o || (copy_dims(m, o) && copy_constants(m, o) && copy_outputs(m, o))) return WEFT_OK;
    return weft_error_set(error, WEFT_NO_MEMORY, "weft_onnx_load", "no memory for the options");
}

/* Whether a dimension of an input is the one whose size `d` sets. */
static bool fits_dimension(const weft_onnx_dim *d, const WeftOnnx__ValueInfoProto *input)
{
    if (!input->type || !input->type->tensor_type || !input->type->tensor_type->shape) return false;
    const WeftOnnx__TensorShapeProto *shape = input->type->tensor_type->shape;
    if (d->input) return !strcmp(d->input, onnx_text(input->name)) && d->axis < (int)shape->n_dim;
    for (size_t i = 0; i < shape->n_dim; i++)
        if (!strcmp(d->name, onnx_text(shape->dim[i]->dim_param))) return true;
    return false;
}

weft_status weft__onnx_check_dims(const weft_onnx *m, weft_error *error)
{
    const WeftOnnx__GraphProto *g = m->proto->graph;
    for (size_t i = 0; i < m->options.n_dims; i++) {
        const weft_onnx_dim *d = &m->options.dims[i];
        size_t k = 0;
        while (k < g->n_input && !fits_dimension(d, g->input[k])) k++;
        if (k < g->n_input) continue;
        if (d->input)
            return weft_error_set(error, WEFT_NOT_FOUND, d->input,
                                  "is not an input with a dimension %d, for which a size is given",
                                  d->axis);
        return weft_error_set(error, WEFT_NOT_FOUND, d->name,
                              "is not an open dimension of an input, but a size is given for it");
    }
    return WEFT_OK;
}

/* Whether the file, or the options before number i, have an output of that name. */
static bool has_output(const weft_onnx *m, size_t i, const char *name)
{
    const WeftOnnx__GraphProto *g = m->proto->graph;
    for (size_t k = 0; k < g->n_output; k++)
        if (!strcmp(onnx_text(g->output[k]->name), name)) return true;
    for (size_t k = 0; k < i; k++)
        if (!strcmp(m->options.outputs[k], name)) return true;
    return false;
}

bool weft__onnx_list_outputs(weft_onnx *m)
{
    const WeftOnnx__GraphProto *g = m->proto->graph;
    const size_t most = g->n_output + m->options.n_outputs;
    m->output_names = weft__arena_alloc(&m->memory, (most + 1) * sizeof *m->output_names);
    if (!m->output_names) return false;
    for (; m->n_output_names < g->n_output; m->n_output_names++)
        m->output_names[m->n_output_names] = onnx_text(g->output[m->n_output_names]->name);
    for (size_t i = 0; i < m->options.n_outputs; i++)
        if (!has_output(m, i, m->options.outputs[i]))
            m->output_names[m->n_output_names++] = m->options.outputs[i];
    return true;
}
