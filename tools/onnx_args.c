/* ONNX files of the command line: the options that determine their shapes, and reading them. */
#include "tool.h"

#include <weft/numpy.h>

#include "base/text.h"
#include "base/platform.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Splits "NAME=REST" in place; NULL if the text has another form. */
static char *split(char *text)
{
    char *equals = strchr(text, '=');
    if (!equals || equals == text) return NULL;
    *equals = 0;
    return equals + 1;
}

void tool_take_named_file(const tool_option *option, void *into, char *text,
                          const tool_parser *parser)
{
    named_files *files = tool_field(option, into);
    named_file f = {.name = text, .path = split(text)};
    if (!f.path || !f.path[0]) tool_usage_error(parser, "expected NAME=FILE, got \"%s\"", text);
    if (files->n == TOOL_MAX_NAMED)
        tool_usage_error(parser, "more than %d files of arrays", TOOL_MAX_NAMED);
    files->at[files->n++] = f;
}

bool tool_add_dim(onnx_args *a, char *text)
{
    double n;
    char *equals = strchr(text, '=');
    if (!equals || equals == text || a->n_dims == TOOL_MAX_NAMED ||
        !weft__text_to_double(equals + 1, &n) || !(n >= 0 && n <= 0x1p40) || n != floor(n))
        return false;
    *equals = 0;
    char *colon = strrchr(text, ':');
    weft_onnx_dim d = {.name = text, .size = (int64_t)n};
    if (colon && colon[1] >= '0' && colon[1] <= '7' && !colon[2]) {
        *colon = 0;
        d = (weft_onnx_dim){.input = text, .axis = colon[1] - '0', .size = d.size};
    }
    a->dims[a->n_dims++] = d;
    return true;
}

static void take_dim(const tool_option *option, void *into, char *text, const tool_parser *parser)
{
    (void)option;
    if (!tool_add_dim(into, text))
        tool_usage_error(parser, "--dim expects NAME=N, at most %d times; got \"%s\"",
                         TOOL_MAX_NAMED, text);
}

static void check(void *into, const tool_parser *parser)
{
    const onnx_args *a = into;
    if (!a->path && (a->n_dims || a->batch || a->constants.n))
        tool_usage_error(parser, "--dim, --batch and --constant need FILE.onnx");
}

static const tool_option options[] = {
    {"dim", "NAME=N", TOOL_BY(take_dim),
     "size of the open dimensions called NAME in FILE.onnx, or of one: INPUT:AXIS=N"},
    {"batch", "N", TOOL_FIELD(onnx_args, batch), "size of other open first dimensions (default 1)",
     1, 0x1p40},
    {"constant", "NAME=FILE", TOOL_INTO(onnx_args, constants, tool_take_named_file),
     "contents, from FILE.npy or FILE.npz:ARRAY, of an input that shapes depend on: it is fixed "
     "when the graph is built"},
    {0}};

const tool_command tool_onnx_options = {.options = options, .check = check};

bool tool_array_archive(const char *path, char archive[4096])
{
    const char *colon = strrchr(path, ':');
    const size_t length = colon ? (size_t)(colon - path) : 0;
    if (length < 4 || length >= 4096 || memcmp(colon - 4, ".npz", 4) != 0) return false;
    snprintf(archive, 4096, "%.*s", (int)length, path);
    return true;
}

weft_status tool_read_array(weft_params *into, const char *name, const char *path,
                            weft_error *error)
{
    char archive[4096];
    if (!tool_array_archive(path, archive)) return weft_npy_load(into, name, path, error);
    return weft_npz_load_array(into, name, archive, strrchr(path, ':') + 1, error);
}

bool tool_read_arrays(weft_params *into, const named_files *files, weft_error *error)
{
    for (size_t i = 0; i < files->n; i++) {
        const named_file *f = &files->at[i];
        if ((f->name ? tool_read_array(into, f->name, f->path, error)
                     : weft_npz_load(into, f->path, error)) != WEFT_OK)
            return false;
    }
    return true;
}

static bool join(char path[4096], const char *folder, int length, const char *name)
{
    const int n = snprintf(path, 4096, "%.*s/%s", length, folder, name);
    return n > 0 && n < 4096 && weft__file_exists(path);
}

bool tool_find_fit(const char *run, char onnx[4096], char checkpoint[4096])
{
    const size_t length = strlen(run);
    if (tool_ends_with(run, ".safetensors")) {
        const int folder = (int)(weft__os_name(run) - run);
        if (length >= 4096 || !weft__file_exists(run)) return false;
        memcpy(checkpoint, run, length + 1);
        return folder ? join(onnx, run, folder - 1, "model.onnx")
                      : join(onnx, ".", 1, "model.onnx");
    }
    return length < 4096 && join(onnx, run, (int)length, "model.onnx") &&
           (join(checkpoint, run, (int)length, "best.safetensors") ||
            join(checkpoint, run, (int)length, "model.safetensors"));
}

/* Splits names with commas, of which `text` becomes a copy; false if there are too many. */
static bool split_names(const char *names, char **text, const char *list[TOOL_MAX_NAMED], size_t *n,
                        weft_error *error)
{
    char *rest = NULL;
    *n = 0;
    *text = strdup(names ? names : "");
    if (!*text) return weft_error_set(error, WEFT_NO_MEMORY, names, "no memory"), false;
    for (char *at = strtok_r(*text, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        if (*n == TOOL_MAX_NAMED) {
            weft_error_set(error, WEFT_TOO_LARGE, names, "has more than %d names", TOOL_MAX_NAMED);
            return false;
        }
        list[(*n)++] = at;
    }
    return true;
}

weft_onnx *tool_load_onnx(const onnx_args *a, weft_error *error)
{
    weft_onnx_constant constants[TOOL_MAX_NAMED];
    const char *outputs[TOOL_MAX_NAMED];
    char *text = NULL;
    size_t n_outputs = 0;
    weft_onnx *model = NULL;
    weft_params *arrays = weft_params_new();
    if (!arrays) weft_error_set(error, WEFT_NO_MEMORY, a->path, "no memory for its constants");
    if (arrays && tool_read_arrays(arrays, &a->constants, error) &&
        split_names(a->outputs, &text, outputs, &n_outputs, error)) {
        for (size_t i = 0; i < a->constants.n; i++) {
            weft_tensor t;
            weft_params_find(arrays, a->constants.at[i].name, &t);
            constants[i] =
                (weft_onnx_constant){a->constants.at[i].name, t.dtype, t.shape, t.data, NULL};
        }
        model = weft_onnx_load(a->path,
                               &(weft_onnx_options){.dims = a->dims,
                                                    .n_dims = a->n_dims,
                                                    .batch = a->batch,
                                                    .constants = constants,
                                                    .n_constants = a->constants.n,
                                                    .outputs = outputs,
                                                    .n_outputs = n_outputs},
                               error);
    }
    weft_params_free(arrays);
    free(text);
    if (model && a->out && tool_check_onnx_output(a->out, a, model, error) != WEFT_OK) {
        weft_onnx_free(model);
        return NULL;
    }
    return model;
}
