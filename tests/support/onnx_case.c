/* Reading cases of ONNX's test data. See onnx_case.h. */
#include "onnx_case.h"

#include "onnx/wire.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Files ---- */

/* Reads a file; NULL if there is none. The caller frees it. */
static void *read_file(const char *path, size_t *bytes)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    void *data = NULL;
    if (file && fstat(fileno(file), &info) == 0 && (data = malloc((size_t)info.st_size + 1)))
        *bytes = fread(data, 1, (size_t)info.st_size, file);
    if (file) fclose(file);
    return data;
}

/* A message of a file; NULL if it is not one. */
static void *read_message(const char *path, const ProtobufCMessageDescriptor *type)
{
    size_t bytes = 0;
    void *data = read_file(path, &bytes), *message = NULL;
    if (data && weft__wire_check(type, data, bytes) == WEFT_OK)
        message = protobuf_c_message_unpack(type, NULL, bytes, data);
    free(data);
    return message;
}

/* ---- One case ---- */

void onnx_case_free(onnx_case *c)
{
    weft_onnx_free(c->model);
    for (size_t i = 0; i < c->n_messages; i++)
        protobuf_c_message_free_unpacked(&c->messages[i]->base, NULL);
    if (c->proto) protobuf_c_message_free_unpacked(&c->proto->base, NULL);
    weft__arena_free(&c->memory);
}

/* Whether all values are tensors. */
static bool are_tensors(WeftOnnx__ValueInfoProto *const *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!values[i]->type || !values[i]->type->tensor_type) return false;
    return true;
}

/* Reads a tensor of strings; their numbers are set once there is a model. */
static const char **read_texts(onnx_case *c, const WeftOnnx__TensorProto *message, onnx_tensor *t)
{
    const size_t n = message->n_string_data;
    const char **texts = weft__arena_alloc(&c->memory, (n + 1) * sizeof *texts);
    if (!texts || weft__onnx_tensor_type(message, "strings", t, &c->error) != WEFT_OK) return NULL;
    if (weft_shape_numel(t->shape) != (int64_t)n) {
        weft_error_set(&c->error, WEFT_BAD_FILE, "strings", "are not as many as the shape says");
        return NULL;
    }
    t->data = weft__arena_alloc(&c->memory, (n + 1) * sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        const ProtobufCBinaryData *data = &message->string_data[i];
        char *text = weft__arena_alloc(&c->memory, data->len + 1);
        if (!text || !t->data) return NULL;
        if (data->len) memcpy(text, data->data, data->len);
        texts[i] = text;
    }
    return texts;
}

/* The numbers of the texts, in the model. */
static void number_texts(onnx_case *c)
{
    for (size_t i = 0; i < 2 * ONNX_CASE_TENSORS; i++) {
        const bool in = i < ONNX_CASE_TENSORS;
        const char **texts = in ? c->input_texts[i] : c->output_texts[i - ONNX_CASE_TENSORS];
        const onnx_tensor *t = in ? &c->inputs[i] : &c->outputs[i - ONNX_CASE_TENSORS];
        int32_t *numbers = (int32_t *)(uintptr_t)t->data;
        for (int64_t k = 0; texts && k < weft_shape_numel(t->shape); k++)
            numbers[k] = weft_onnx_text_number(c->model, texts[k]);
    }
}

/* Reads SET/input_*.pb or output_*.pb; the number of them. */
static size_t read_tensors(onnx_case *c, const char *set, const char *kind, onnx_tensor *tensors)
{
    size_t n = 0;
    const WeftOnnx__GraphProto *g = c->proto->graph;
    if (!are_tensors(g->input, g->n_input) || !are_tensors(g->output, g->n_output)) {
        weft_error_set(&c->error, WEFT_BAD_DTYPE, kind,
                       "is a sequence, a map or an optional value");
        return 0;
    }
    for (; n < ONNX_CASE_TENSORS && c->error.status == WEFT_OK; n++) {
        char path[ONNX_CASE_PATH + 64];
        snprintf(path, sizeof path, "%s/%s_%zu.pb", set, kind, n);
        struct stat info;
        if (stat(path, &info) != 0) break;
        WeftOnnx__TensorProto *message = read_message(path, &weft_onnx__tensor_proto__descriptor);
        if (!message) {
            weft_error_set(&c->error, WEFT_BAD_DTYPE, kind, "is not a tensor");
            break;
        }
        c->messages[c->n_messages++] = message;
        if (message->data_type == ONNX_STRING) {
            (tensors == c->inputs ? c->input_texts : c->output_texts)[n] =
                read_texts(c, message, &tensors[n]);
            continue;
        }
        weft__onnx_tensor_read(message, kind, &c->memory, &(onnx_files){NULL, NULL, NULL},
                               &tensors[n], &c->error);
    }
    return n;
}

static void name_inputs(onnx_case *c)
{
    const WeftOnnx__GraphProto *g = c->proto->graph;
    size_t n = 0;
    for (size_t i = 0; i < g->n_input && n < ONNX_CASE_TENSORS; i++) {
        bool initialised = false;
        for (size_t k = 0; k < g->n_initializer; k++)
            initialised |= !strcmp(onnx_text(g->initializer[k]->name), g->input[i]->name);
        if (!initialised) c->names[n++] = onnx_text(g->input[i]->name);
    }
    if (n < c->n_inputs) c->n_inputs = n;
}

bool onnx_case_read(onnx_case *c, const char *folder, int set)
{
    char path[ONNX_CASE_PATH + 64];
    struct stat info;
    snprintf(c->folder, sizeof c->folder, "%s", folder);
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    c->proto = read_message(path, &weft_onnx__model_proto__descriptor);
    snprintf(path, sizeof path, "%s/test_data_set_%d", folder, set);
    if (stat(path, &info) != 0 || !c->proto || !c->proto->graph) return false;
    c->n_inputs = read_tensors(c, path, "input", c->inputs);
    c->n_outputs = read_tensors(c, path, "output", c->outputs);
    if (c->error.status == WEFT_OK) name_inputs(c);
    return true;
}

bool onnx_case_is_constant(const onnx_case *c, size_t i)
{
    return c->constants == 2 || (c->constants == 1 && !weft_dtype_is_float(c->inputs[i].dtype));
}

/* Loads the model, with as few constants as it needs. */
bool onnx_case_load(onnx_case *c)
{
    char path[ONNX_CASE_PATH + 16];
    weft_onnx_dim dims[ONNX_CASE_TENSORS * WEFT_MAX_RANK];
    snprintf(path, sizeof path, "%s/model.onnx", c->folder);
    for (c->constants = 0; c->constants < 3 && !c->model; c->constants++) {
        weft_onnx_constant constants[ONNX_CASE_TENSORS];
        weft_onnx_options o = {.dims = dims, .constants = constants};
        for (size_t i = 0; i < c->n_inputs; i++) {
            const onnx_tensor *t = &c->inputs[i];
            for (int k = 0; k < t->shape.rank; k++)
                dims[o.n_dims++] = (weft_onnx_dim){NULL, c->names[i], k, t->shape.dim[k]};
            if (onnx_case_is_constant(c, i))
                constants[o.n_constants++] =
                    (weft_onnx_constant){.input = c->names[i],
                                         .dtype = t->dtype,
                                         .shape = t->shape,
                                         .data = c->input_texts[i] ? NULL : t->data,
                                         .texts = c->input_texts[i]};
        }
        c->model = weft_onnx_load(path, &o, &c->error);
    }
    c->constants--;
    if (c->model) number_texts(c);
    return c->model != NULL;
}

weft_status onnx_case_feed(onnx_case *c, weft_session *session, const weft_value *inputs)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0, fed = 0; i < c->n_inputs && status == WEFT_OK; i++)
        if (!onnx_case_is_constant(c, i))
            status = weft_session_feed(session, inputs[fed++], c->inputs[i].data,
                                       onnx_case_bytes(&c->inputs[i]), &c->error);
    return status;
}

void onnx_case_copy(char *to, const weft_tensor *from)
{
    const size_t bytes = weft_dtype_bytes(from->dtype);
    for (int64_t i = 0; i < weft_shape_numel(from->shape); i++, to += bytes) {
        int64_t at = 0, left = i;
        for (int k = from->shape.rank - 1; k >= 0; k--) {
            at += left % from->shape.dim[k] * from->stride[k];
            left /= from->shape.dim[k];
        }
        memcpy(to, (const char *)from->data + at * (int64_t)bytes, bytes);
    }
}

/* ---- Folders ---- */

static int is_test(const struct dirent *entry)
{
    return strncmp(entry->d_name, "test_", 5) == 0;
}

int onnx_case_each(const char *root, const char *name,
                   void (*each)(void *context, const char *path), void *context)
{
    char folder[ONNX_CASE_PATH / 2], path[ONNX_CASE_PATH];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "%s/%s", root, name);
    const int n = scandir(folder, &entries, is_test, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        each(context, path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return n > 0 ? n : 0;
}
