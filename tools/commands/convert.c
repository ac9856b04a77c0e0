/* weft convert: Hugging Face models as checkpoints, and back; GGUF files as checkpoints. */
#include "text/text_files.h"

#include "base/platform.h"
#include "base/file.h"

#include <weft/gguf.h>
#include <weft/huggingface.h>
#include <weft/quantize.h>
#include <weft/saved.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *from, *out, *architecture;
    bool list, f32;
} arguments;

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (!a->list && (!a->from || !a->out))
        tool_usage_error(parser, "expected DIR, FILE.gguf or RUN, and -o");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option convert_options[] = {
    {TOOL_ONE(arguments, from, "DIR, FILE.gguf or RUN")},
    {"output", "FOLDER", FIELD(out), "the run, or the folder of transformers, to write",
     .letter = 'o'},
    {"architecture", "NAME", FIELD(architecture),
     "write as this architecture (default: the one that it was read as, or the first that has all "
     "options of the model)"},
    {"f32", NULL, FIELD(f32), "widen the matrices of a GGUF file, as training needs them"},
    {"list", NULL, FIELD(list), "list the architectures, and the model that computes each"},
    {0}};

static const tool_command command = {
    .options = convert_options,
    .usage = "DIR|FILE.gguf|RUN",
    .doc =
        "Converts a Hugging Face model (a folder with config.json and "
        "model.safetensors), or a GGUF file, to a run, or a run, or a checkpoint file, to such "
        "a folder. Fails if the other side cannot represent the model. The files of a tokeniser, "
        "chat template or sentence embedding are copied; the vocabulary of a GGUF file becomes "
        "RUN/tokenizer.json.",
    .check = check};

static int list(void)
{
    weft_huggingface_architecture a;
    for (size_t i = 0; weft_huggingface_at(i, &a); i++)
        tool_print_line(stdout, "%-32s %s", a.name, a.model);
    return EXIT_GOOD;
}

static bool is_there(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return weft__file_exists(path);
}

static void print_result(const arguments *a, const weft_params *params,
                         const weft_model_config *config)
{
    char options[TOOL_OPTIONS_TEXT], size[64];
    const char *left = weft_params_meta(params, WEFT_HUGGINGFACE_LEFT_OUT);
    double parameters = 0, bytes = 0;
    weft_graph *g = weft_graph_new();
    size_t n = 0;
    weft_model_build(g, config);
    const weft_value *values = weft_graph_params(g, &n);
    for (size_t i = 0; i < n; i++)
        parameters += (double)weft_shape_numel(weft_shape_of(g, values[i]));
    weft_graph_free(g);
    for (size_t i = 0; i < weft_params_count(params); i++) {
        weft_tensor t;
        weft_params_find(params, weft_params_name(params, i), &t);
        bytes += (double)weft_tensor_bytes(t.dtype, t.shape);
    }
    weft_model_options_text(config, options, sizeof options);
    snprintf(size, sizeof size, "%.1f MB in 8 and 4 bits, ", bytes / 1e6);
    tool_print_line(stdout, "%s %s", config->model->name, options);
    tool_print_line(stdout, "%s: %.0f parameters in %zu tensors, %ssaved in %s", a->from,
                    parameters, weft_params_count(params),
                    weft_params_are_quantized(params) ? size : "", a->out);
    if (left) tool_print_line(stdout, "ignored, no model of weft has them: %s", left);
}

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    FILE *file = weft__file_open_stdio(path);
    const bool read = file && fread(magic, 1, sizeof magic, file) == sizeof magic;
    if (file) fclose(file);
    return read && !memcmp(magic, "GGUF", sizeof magic);
}

static weft_status load_gguf(const arguments *a, weft_params *params, weft_model_config *config,
                             weft_error *error)
{
    weft_gguf *file = weft_gguf_open(a->from, error);
    if (file) weft_gguf_load(file, &(weft_gguf_options){.widen = a->f32}, params, config, error);
    weft_gguf_close(file);
    return error->status;
}

/* Reads a folder of transformers or a GGUF file and writes a run. */
static weft_status import_model(const arguments *a, weft_params *params, weft_model_config *config,
                                weft_error *error)
{
    char path[4096];
    if (a->architecture)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "--architecture",
                              "is for writing: config.json names the one that is read");
    const weft_status status = is_there(a->from, "config.json")
                                   ? weft_huggingface_load(params, config, a->from, error)
                                   : load_gguf(a, params, config, error);
    if (status != WEFT_OK) return status;
    if (!weft__os_make_folder(a->out) && errno != EEXIST)
        return weft_error_set(error, WEFT_IO, a->out, "cannot be made: %s", strerror(errno));
    snprintf(path, sizeof path, "%s/model.safetensors", a->out);
    return weft_params_save(params, path, NULL, error);
}

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return weft__file_replace(path, text, strlen(text));
}

/* Writes the vocabulary of a GGUF file into the run, or says why not. */
static int write_vocabulary(const arguments *a)
{
    weft_error error = {0};
    weft_gguf *file = weft_gguf_open(a->from, &error);
    char *tokenizer = file ? weft_gguf_tokenizer_json(file, &error) : NULL;
    char *config = tokenizer ? weft_gguf_tokenizer_config(file, &error) : NULL;
    weft_gguf_close(file);
    const bool written = config && write_text(a->out, "tokenizer.json", tokenizer) &&
                         write_text(a->out, "tokenizer_config.json", config);
    if (!config) tool_print_line(stdout, "without a tokeniser: %s", error.message);
    const bool good = !config || written;
    free(tokenizer);
    free(config);
    return good ? EXIT_GOOD : tool_fail_text(a->out, "tokenizer.json cannot be written");
}

static int import_run(const arguments *a)
{
    weft_error error = {0};
    weft_model_config config;
    weft_params *params = weft_params_new();
    if (!params) return tool_fail_text("convert", "out of memory");
    const weft_status status = import_model(a, params, &config, &error);
    if (status == WEFT_OK) print_result(a, params, &config);
    weft_params_free(params);
    if (status == WEFT_OK && is_gguf(a->from)) return write_vocabulary(a);
    if (status == WEFT_OK) text_files_copy(a->from, a->out, &error);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

static int export_run(const arguments *a)
{
    weft_error error = {0};
    weft_saved_model *m = weft_saved_open(a->from, NULL, &error);
    if (m &&
        weft_huggingface_save(m->params, &m->config, a->out, a->architecture, &error) == WEFT_OK &&
        text_files_copy(a->from, a->out, &error))
        print_result(a, m->params, &m->config);
    weft_saved_close(m);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

int cmd_convert(int argc, char **argv)
{
    arguments a = {.from = NULL};
    tool_parse(&command, argc, argv, &a);
    if (a.list) return list();
    if (is_there(a.out, "model.safetensors") || is_there(a.out, "config.json"))
        return tool_fail_text(a.out, "has a model already: choose another -o");
    return is_there(a.from, "config.json") || is_gguf(a.from) ? import_run(&a) : export_run(&a);
}
