/* ONNX files: reading and checking them, their inputs and outputs, and their graphs. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/wire.h"

#include "base/file.h"
#include "base/log.h"
#include "base/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

static weft_status no_memory(const char *path, weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for the model");
}

/* `mapped` if the data are a mapped file. */
static weft_status unpack(weft_onnx *m, const void *data, size_t bytes, void *mapped,
                          weft_error *error)
{
    const weft_status status = weft__wire_check(&weft_onnx__model_proto__descriptor, data, bytes);
    if (status == WEFT_TOO_LARGE)
        return weft_error_set(error, status, m->path,
                              "its messages are over %d levels deep, or too many for its size",
                              WIRE_MAX_DEPTH);
    bool failed = false;
    m->bytes = bytes;
    if (status == WEFT_OK)
        m->proto = (WeftOnnx__ModelProto *)weft__wire_unpack(&weft_onnx__model_proto__descriptor,
                                                             data, bytes, mapped, &failed);
    if (m->proto && m->proto->graph) return WEFT_OK;
    if (failed) return no_memory(m->path, error);
    return weft_error_set(error, WEFT_BAD_FILE, m->path,
                          m->proto ? "has no graph" : "is not an ONNX model, or is cut off");
}

static weft_status check_size(const weft_onnx *m, uint64_t bytes, weft_error *error)
{
    return bytes > 0 && bytes <= INT32_MAX
               ? WEFT_OK
               : weft_error_set(error, WEFT_BAD_FILE, m->path, "is not a file of 1 to %d bytes",
                                INT32_MAX);
}

static weft_status read_file(weft_onnx *m, weft_error *error)
{
    os_facts facts;
    const int file = weft__file_open(m->path);
    weft_status status = WEFT_OK;
    if (file < 0 || !weft__os_facts_of(file, &facts))
        status = weft_error_set(error, weft__file_status(errno), m->path, "cannot be opened: %s",
                                weft__file_error(errno));
    else
        status = check_size(m, facts.bytes, error);
    if (status == WEFT_OK) {
        void *data = weft__os_map(file, (size_t)facts.bytes);
        if (!data) {
            status =
                weft_error_set(error, WEFT_IO, m->path, "cannot be mapped: %s", strerror(errno));
        } else {
            status = unpack(m, data, (size_t)facts.bytes, data, error);
            weft__os_unmap(data, (size_t)facts.bytes);
        }
    }
    if (file >= 0) weft__os_close(file);
    return status;
}

/* Reads the file `from` in memory or, if that is NULL, the one of the model's path. */
static weft_status read_model(weft_onnx *m, const weft_memory_file *from, weft_error *error)
{
    if (!from) return read_file(m, error);
    const weft_status status = check_size(m, from->bytes, error);
    return status == WEFT_OK ? unpack(m, from->data, from->bytes, NULL, error) : status;
}

/* Sets the path, and the folder of external data, which a model in memory does not have. */
static weft_status set_paths(weft_onnx *m, const char *path, bool in_memory, weft_error *error)
{
    m->path = weft__arena_text(&m->memory, path);
    if (m->path && in_memory) return WEFT_OK;
    char *folder = weft__arena_alloc(&m->memory, strlen(path) + 2);
    if (!m->path || !folder) return no_memory(path, error);
    const size_t length = (size_t)(weft__os_name(path) - path); /* with the separator */
    if (length)
        memcpy(folder, path, length > 1 ? length - 1 : 1);
    else
        folder[0] = '.';
    m->files.folder = folder;
    return WEFT_OK;
}

/* ---- Inputs ---- */

static bool open_dimension(const weft_onnx *m, const char *input, int axis, const char *param,
                           int64_t batch, int64_t *size)
{
    for (size_t i = 0; i < m->options.n_dims; i++) {
        const weft_onnx_dim *d = &m->options.dims[i];
        if (d->input ? !strcmp(d->input, input) && d->axis == axis : !strcmp(d->name, param)) {
            *size = d->size;
            return true;
        }
    }
    *size = batch;
    return axis == 0;
}

static bool input_type(onnx_import *import, const WeftOnnx__ValueInfoProto *info, int64_t batch,
                       weft_dtype *dtype, weft_shape *shape)
{
    const char *name = onnx_text(info->name);
    if (!info->type || !info->type->tensor_type) {
        weft__import_fail(import, WEFT_BAD_DTYPE, name, "is an input that is not a tensor");
        return false;
    }
    const WeftOnnx__TypeProto__Tensor *type = info->type->tensor_type;
    if (weft__onnx_value_dtype(type->elem_type, name, dtype, &import->error) != WEFT_OK)
        return false;
    if (!type->shape || type->shape->n_dim > WEFT_MAX_RANK) {
        weft__import_fail(import, WEFT_BAD_SHAPE, name, "is an input without a rank of 0 to %d",
                          WEFT_MAX_RANK);
        return false;
    }
    *shape = (weft_shape){.rank = (int32_t)type->shape->n_dim};
    for (int i = 0; i < shape->rank; i++) {
        const WeftOnnx__TensorShapeProto__Dimension *d = type->shape->dim[i];
        shape->dim[i] = d->dim_value;
        if (d->has_dim_value && d->dim_value >= 0) continue;
        if (!open_dimension(import->model, name, i, onnx_text(d->dim_param), batch,
                            &shape->dim[i])) {
            weft__import_fail(import, WEFT_BAD_ARGUMENT, name,
                              "has an open dimension %d (\"%s\"): its size must be given", i,
                              onnx_text(d->dim_param));
            return false;
        }
    }
    return true;
}

static bool is_initializer(const onnx_scope *scope, const char *name)
{
    const onnx_value *v = weft__scope_find(scope, name);
    return v && (v->initializer || v->weight);
}

static const weft_onnx_constant *constant_of(const weft_onnx *m, const char *name)
{
    for (size_t i = 0; i < m->options.n_constants; i++)
        if (!strcmp(m->options.constants[i].input, name)) return &m->options.constants[i];
    return NULL;
}

/* The names of initializers, which older files list among the inputs. */
static bool initializer_names(onnx_import *import, onnx_scope *names)
{
    const WeftOnnx__GraphProto *g = import->model->proto->graph;
    for (size_t i = 0; i < g->n_initializer; i++) {
        onnx_value *v = weft__scope_add(import, names, onnx_text(g->initializer[i]->name));
        if (!v) return false;
        v->initializer = g->initializer[i];
    }
    return true;
}

static bool add_inputs(onnx_import *import, onnx_scope *scope, int64_t batch, weft_value *inputs)
{
    const WeftOnnx__GraphProto *g = import->model->proto->graph;
    onnx_scope names = {.outer = NULL};
    size_t n = 0;
    if (!initializer_names(import, &names)) return false;
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = onnx_text(g->input[i]->name);
        const weft_onnx_constant *constant = constant_of(import->model, name);
        weft_dtype dtype;
        weft_shape shape;
        if (is_initializer(&names, name)) continue;
        onnx_value *v = weft__scope_add(import, scope, name);
        if (!v) return false;
        if (g->input[i]->type && g->input[i]->type->tensor_type)
            v->type = g->input[i]->type->tensor_type->elem_type;
        if (constant) {
            if (weft__onnx_value_dtype(v->type, name, &dtype, &import->error) != WEFT_OK)
                return false;
            if (!constant->texts != (v->type != ONNX_STRING)) {
                weft__import_fail(
                    import, WEFT_BAD_DTYPE, name, "is %s, its constant contents are %s",
                    weft__onnx_type_name(v->type), constant->texts ? "texts" : "numbers");
                return false;
            }
            if (dtype != constant->dtype) {
                weft__import_fail(import, WEFT_BAD_DTYPE, name,
                                  "is %s, its constant contents are %s", weft_dtype_name(dtype),
                                  weft_dtype_name(constant->dtype));
                return false;
            }
            v->known = true;
            v->tensor = (onnx_tensor){constant->dtype, constant->shape, constant->data};
            if (constant->texts &&
                !weft__texts_constant(import->model, &import->memory, constant, &v->tensor.data)) {
                weft__import_fail(import, WEFT_NO_MEMORY, name, "no memory for its texts");
                return false;
            }
            continue;
        }
        if (!input_type(import, g->input[i], batch, &dtype, &shape)) return false;
        v->value = inputs[n++] = weft_input(import->graph, name, dtype, shape);
    }
    return !weft__import_failed(import);
}

/* ---- Building ---- */

/* Bytes of constants that may be computed to recognise ops, besides a multiple of the file's. */
#define RECOGNISED_BYTES ((size_t)1 << 26)

/* Output i with zeros where positions do not count, and its size, an output after all others. */
static bool take_size(onnx_import *import, const onnx_value *v, size_t i, weft_value *outputs)
{
    const weft_onnx *m = import->model;
    weft_graph *g = import->graph;
    const weft_shape s = weft_shape_of(g, outputs[i]);
    const size_t last = m->n_output_names + import->n_sized;
    if (m->outputs && last >= m->n_outputs) {
        weft__import_fail(import, WEFT_BAD_SHAPE, m->output_names[i],
                          "has a size that data decide, which it had not when the file was read");
        return false;
    }
    const weft_value counted =
        weft__counted(g, v->size, s.dim[v->sized_axis], v->sized_axis, s.rank);
    const weft_value zero = weft_cast(g, weft_scalar(g, WEFT_F64, 0), weft_dtype_of(g, outputs[i]));
    outputs[i] = weft_where(g, counted, outputs[i], zero);
    outputs[last] = v->size;
    if (import->sized) {
        import->sized[import->n_sized] = i;
        import->sized[m->n_output_names + import->n_sized] = (size_t)v->sized_axis;
    }
    import->n_sized++;
    return true;
}

static bool take_outputs(onnx_import *import, const onnx_scope *scope, weft_value *outputs)
{
    const weft_onnx *m = import->model;
    for (size_t i = 0; i < m->n_output_names; i++) {
        const char *name = m->output_names[i];
        onnx_value *v = weft__scope_find(scope, name);
        if (!v && i >= m->proto->graph->n_output) {
            weft__import_fail(
                import, WEFT_NOT_FOUND, name,
                "is to be an output, but it is not a value of the model's main graph");
            return false;
        }
        if (!v) {
            weft__import_fail(import, WEFT_BAD_FILE, name, "is an output that no node computes");
            return false;
        }
        outputs[i] = weft__import_value(import, v);
        if (weft__import_failed(import)) return false;
        if (weft_is_value(v->size) && !take_size(import, v, i, outputs)) return false;
        if (!weft_name_of(import->graph, outputs[i])[0] && name[0] &&
            !weft_is_value(weft_graph_find(import->graph, name)))
            outputs[i] = weft_name(import->graph, outputs[i], name);
    }
    if (m->outputs && m->n_output_names + import->n_sized != m->n_outputs)
        weft__import_fail(import, WEFT_BAD_SHAPE, m->path,
                          "data decide the sizes of %zu outputs, and of %zu when it was read",
                          import->n_sized, m->n_outputs - m->n_output_names);
    return !weft__import_failed(import);
}

/* Leaves out a branch that data choose and that failed because of its sizes. False if there is none.
 */
static bool leave_out(weft_onnx *m, const onnx_import *import)
{
    const weft_status status = import->error.status;
    if (!import->failed_branch || m->n_left_out == ONNX_MAX_LEFT_OUT ||
        (status != WEFT_BAD_SHAPE && status != WEFT_BAD_ARGUMENT && status != WEFT_BAD_INDEX))
        return false;
    m->left_out[m->n_left_out++] = import->failed_branch;
    weft__log(WEFT_LOG_WARNING, onnx_text(import->failed_choice->name),
              "one of its branches does not fit the inputs, so a run that chooses it will fail: "
              "%s: %s",
              import->error.where, import->error.message);
    return true;
}

/* `done`, unless it is NULL, has room for `sized`, and becomes the import. */
static weft_status build(const weft_onnx *m, weft_graph *graph, onnx_mode mode, int64_t batch,
                         weft_value *inputs, weft_value *outputs, onnx_import *done)
{
    onnx_import import = {.mappings = &weft__onnx_mappings,
                          .sized = done ? done->sized : NULL,
                          .model = m,
                          .mode = mode,
                          .graph = graph,
                          .budget = RECOGNISED_BYTES + 16 * m->bytes};
    onnx_scope scope = {.outer = NULL};
    import.memory.limit =
        ONNX_MEMORY + ONNX_MEMORY_RATIO * (m->bytes + weft__files_bytes(&m->files));
    if (!weft__import_failed(&import) && add_inputs(&import, &scope, batch, inputs) &&
        weft__import_graph(&import, &scope, m->proto->graph))
        take_outputs(&import, &scope, outputs);
    weft__import_failed(&import);
    weft__arena_free(&import.memory);
    if (done) *done = import;
    return weft_graph_status(graph);
}

weft_status weft_onnx_build(weft_graph *graph, const weft_onnx *model, int64_t batch,
                            weft_value *inputs, weft_value *outputs)
{
    if (!model || batch < 0) {
        weft_graph_fail_in(graph, "weft_onnx_build", WEFT_BAD_ARGUMENT,
                           "the model is NULL, or the batch is negative");
        return weft_graph_status(graph);
    }
    return build(model, graph, ONNX_AS_FILE, batch ? batch : model->options.batch, inputs, outputs,
                 NULL);
}

static weft_status build_batch(void *context, weft_graph *graph, const weft_build_options *options,
                               weft_built *built)
{
    const weft_onnx *m = context;
    *built = (weft_built){.n_inputs = 0};
    if (m->n_inputs > WEFT_BUILT_VALUES || m->n_outputs > WEFT_BUILT_VALUES) {
        weft_graph_fail_in(graph, "weft_onnx_builder", WEFT_TOO_LARGE,
                           "the model has %zu inputs and %zu outputs, a builder at most %d each",
                           m->n_inputs, m->n_outputs, WEFT_BUILT_VALUES);
        return weft_graph_status(graph);
    }
    for (; built->n_inputs < m->n_inputs; built->n_inputs++)
        built->input_names[built->n_inputs] = m->inputs[built->n_inputs].name;
    for (; built->n_outputs < m->n_outputs; built->n_outputs++)
        built->output_names[built->n_outputs] = m->outputs[built->n_outputs].name;
    if (options->shape.rows < 0) {
        weft_graph_fail_in(graph, "weft_onnx_builder", WEFT_BAD_ARGUMENT, "the batch is negative");
        return weft_graph_status(graph);
    }
    return build(m, graph, options->training ? ONNX_TRAINING : ONNX_EVALUATION,
                 options->shape.rows ? options->shape.rows : m->options.batch, built->inputs,
                 built->outputs, NULL);
}

weft_builder weft_onnx_builder(const weft_onnx *model)
{
    return (weft_builder){
        .name = "onnx", .build = model ? build_batch : NULL, .context = (void *)(uintptr_t)model};
}

/* ---- Lists ---- */

/* Lists values under their names; false if out of memory. */
static bool describe(weft_onnx *m, const weft_graph *g, weft_value value, const char *name,
                     weft_onnx_value *out)
{
    *out = (weft_onnx_value){.name = weft__arena_text(&m->memory, name),
                             .dtype = weft_dtype_of(g, value),
                             .shape = weft_shape_of(g, value)};
    return out->name != NULL;
}

/* Lists the outputs, and after them their sizes that data decide. */
static bool describe_outputs(weft_onnx *m, const weft_graph *g, const weft_value *outputs,
                             const onnx_import *import)
{
    for (; m->n_outputs < m->n_output_names; m->n_outputs++)
        if (!describe(m, g, outputs[m->n_outputs], m->output_names[m->n_outputs],
                      &m->outputs[m->n_outputs]))
            return false;
    for (size_t i = 0; i < import->n_sized; i++, m->n_outputs++) {
        weft_onnx_value *of = &m->outputs[import->sized[i]];
        char *name = weft__arena_alloc(&m->memory, strlen(of->name) + sizeof ".size");
        if (!name || !describe(m, g, outputs[m->n_outputs], strcat(strcpy(name, of->name), ".size"),
                               &m->outputs[m->n_outputs]))
            return false;
        of->size = m->n_outputs;
        of->axis = (int)import->sized[m->n_output_names + i];
    }
    return true;
}

/* Builds the graph once, and lists what it has. *again: it failed, but may succeed now. */
static weft_status try_build(weft_onnx *m, weft_graph *g, weft_value *values, bool *again,
                             weft_error *error)
{
    const WeftOnnx__GraphProto *proto = m->proto->graph;
    weft_value *outputs = values + proto->n_input;
    size_t *sized = weft__arena_alloc(&m->memory, (2 * m->n_output_names + 1) * sizeof *sized);
    onnx_import done = {.sized = sized};
    if (!sized) return no_memory(m->path, error);
    *again = false;
    for (size_t i = 0; i < m->n_weights; i++) m->weights[i].used = false;
    if (build(m, g, ONNX_AS_FILE, m->options.batch, values, outputs, &done) != WEFT_OK) {
        *again = leave_out(m, &done);
        return weft_error_copy(error, weft_graph_error(g));
    }
    m->inputs = weft__arena_alloc(&m->memory, (proto->n_input + 1) * sizeof *m->inputs);
    m->outputs = weft__arena_alloc(&m->memory, (2 * m->n_output_names + 1) * sizeof *m->outputs);
    m->params = weft__arena_alloc(&m->memory, (m->n_weights + 1) * sizeof *m->params);
    if (!m->inputs || !m->outputs || !m->params) return no_memory(m->path, error);
    for (; m->n_inputs < proto->n_input && weft_is_value(values[m->n_inputs]); m->n_inputs++) {
        const weft_value v = values[m->n_inputs];
        if (!describe(m, g, v, weft_name_of(g, v), &m->inputs[m->n_inputs]))
            return no_memory(m->path, error);
    }
    if (!describe_outputs(m, g, outputs, &done)) return no_memory(m->path, error);
    for (size_t i = 0; i < m->n_weights; i++) {
        const onnx_weight *w = &m->weights[i];
        if (w->used)
            m->params[m->n_params++] = (weft_onnx_value){
                .name = w->name, .dtype = w->tensor.dtype, .shape = w->tensor.shape};
    }
    return WEFT_OK;
}

static weft_status list_values(weft_onnx *m, weft_error *error)
{
    const WeftOnnx__GraphProto *proto = m->proto->graph;
    weft_value *values = weft__arena_alloc(
        &m->memory, (proto->n_input + 2 * m->n_output_names + 1) * sizeof *values);
    weft_status status = WEFT_OK;
    for (bool again = true; again;) {
        weft_graph *g = values ? weft_graph_new() : NULL;
        again = false;
        weft_error_clear(error);
        status = g ? try_build(m, g, values, &again, error) : no_memory(m->path, error);
        weft_graph_free(g);
    }
    return status;
}

static const weft_onnx_value *list(const weft_onnx_value *values, size_t n, size_t *count)
{
    if (count) *count = n;
    return values;
}

const weft_onnx_value *weft_onnx_inputs(const weft_onnx *model, size_t *count)
{
    return list(model ? model->inputs : NULL, model ? model->n_inputs : 0, count);
}

const weft_onnx_value *weft_onnx_outputs(const weft_onnx *model, size_t *count)
{
    return list(model ? model->outputs : NULL, model ? model->n_outputs : 0, count);
}

weft_status weft_onnx_output(const weft_onnx *model, weft_session *session,
                             const weft_value *outputs, size_t index, weft_tensor *tensor,
                             weft_error *error)
{
    weft_tensor size;
    weft_error_clear(error);
    if (!model || !outputs || !tensor || index >= model->n_outputs)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_onnx_output",
                              "an argument is NULL, or the model has no output %zu", index);
    const weft_onnx_value *v = &model->outputs[index];
    weft_status status = weft_session_tensor(session, outputs[index], tensor, error);
    if (status != WEFT_OK || !v->size) return status;
    status = weft_session_tensor(session, outputs[v->size], &size, error);
    if (status == WEFT_OK) tensor->shape.dim[v->axis] = *(const int32_t *)size.data;
    return status;
}

const weft_onnx_value *weft_onnx_params(const weft_onnx *model, size_t *count)
{
    return list(model ? model->params : NULL, model ? model->n_params : 0, count);
}

/* ---- Loading and freeing ---- */

/* Loads the file `from` in memory, whose name is `path`, or, if that is NULL, the file of a path. */
static weft_onnx *load(const char *path, const weft_memory_file *from,
                       const weft_onnx_options *options, weft_error *error)
{
    weft_onnx *m = calloc(1, sizeof *m);
    if (!m) {
        no_memory(path, error);
        return NULL;
    }
    m->texts.memory = m->texts.numbers.memory = &m->memory;
    m->files.texts = &m->texts;
    if (weft__texts_number(&m->texts, "", 0) != 0) {
        no_memory(path, error);
        weft_onnx_free(m);
        return NULL;
    }
    if (set_paths(m, path, from != NULL, error) == WEFT_OK &&
        weft__onnx_set_options(m, options, error) == WEFT_OK &&
        read_model(m, from, error) == WEFT_OK && weft__onnx_check_dims(m, error) == WEFT_OK &&
        ((weft__onnx_index_functions(m) && weft__onnx_list_outputs(m)) ||
         no_memory(m->path, error) == WEFT_OK) &&
        weft__onnx_find_weights(m, &weft__onnx_mappings, error) == WEFT_OK &&
        list_values(m, error) == WEFT_OK)
        return m;
    weft_onnx_free(m);
    return NULL;
}

weft_onnx *weft_onnx_load(const char *path, const weft_onnx_options *options, weft_error *error)
{
    weft_error local;
    if (!error) error = &local;
    weft_error_clear(error);
    if (path) return load(path, NULL, options, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_onnx_load", "the path is NULL");
    return NULL;
}

weft_onnx *weft_onnx_load_from_memory(weft_memory_file from, const weft_onnx_options *options,
                                      weft_error *error)
{
    weft_error local;
    const char *name = from.name ? from.name : "memory";
    if (!error) error = &local;
    weft_error_clear(error);
    if (from.data) return load(name, &from, options, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, name, "the data are NULL");
    return NULL;
}

const char *weft_onnx_data_file(const weft_onnx *model, size_t index)
{
    return model ? weft__files_location(&model->files, index) : NULL;
}

void weft_onnx_free(weft_onnx *model)
{
    if (!model) return;
    if (model->proto) weft__wire_free(&model->proto->base);
    weft__files_close(&model->files);
    weft__arena_free(&model->memory);
    free(model);
}
