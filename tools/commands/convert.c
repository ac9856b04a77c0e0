/* weft convert: Hugging Face models and GGUF files as checkpoints, and back; adapters of PEFT, and
 * adapters that become part of their model (convert_adapters.c). */
#include "convert.h"

#include "text/text_files.h"

#include "base/platform.h"
#include "training/saved.h"

#include <weft/gguf.h>
#include <weft/huggingface.h>
#include <weft/quantize.h>
#include <weft/saved.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FORMATS "transformers|gguf|peft"
#define TYPES   "same|f32|f16|bf16|q8_0|q4_0|q4_1"
enum { TO_TRANSFORMERS, TO_GGUF, TO_PEFT };

static void check(void *into, const tool_parser *parser)
{
    const convert_args *a = into;
    if (!a->list && (!a->from || !a->out))
        tool_usage_error(parser, "expected DIR, FILE.gguf or RUN, and -o");
    if (a->type && a->to != TO_GGUF) tool_usage_error(parser, "--type is for --to gguf");
    if (a->merge && a->to) tool_usage_error(parser, "--merge writes a run, without --to");
    if (a->merge && a->architecture)
        tool_usage_error(parser, "--merge writes a run, without --architecture");
    if (a->base && (a->merge || a->to || a->f32))
        tool_usage_error(parser, "--base reads adapters of PEFT, without --merge, --to and --f32");
    if (a->context && (a->base || a->merge || a->to))
        tool_usage_error(parser, "--context is for reading a model");
}

#define FIELD(field) TOOL_FIELD(convert_args, field)
static const tool_option convert_options[] = {
    {TOOL_ONE(convert_args, from, "DIR, FILE.gguf or RUN")},
    {"output", "FOLDER", FIELD(out),
     "the run, the folder of transformers or PEFT or the file of --to gguf, to write",
     .letter = 'o'},
    {"to", FORMATS, FIELD(to),
     "what a run becomes; peft: the adapters of one of weft train --lora"},
    {"type", TYPES, FIELD(type),
     "the matrices of a GGUF file: the same as in the run, or rounded to this"},
    {"architecture", "NAME", FIELD(architecture),
     "write as this architecture (default: the one that it was read as, or the first that has all "
     "options of the model)"},
    {"base", "RUN", FIELD(base), "the run of the model that adapters of PEFT are for"},
    {"merge", NULL, FIELD(merge),
     "write a run of adapters as a run of its whole model: matrices that have adapters are in f32"},
    {"f32", NULL, FIELD(f32), "widen the matrices of a GGUF file, as training needs them"},
    {"context", "N", FIELD(context),
     "tokens of the longest text, of a model whose rotary positions have two lists of factors "
     "(default: the original positions, those of the short factors)",
     1, 1e9},
    {"list", NULL, FIELD(list), "list the architectures, and the model that computes each"},
    {0}};

static const tool_command command = {
    .options = convert_options,
    .usage = "DIR|FILE.gguf|RUN",
    .doc =
        "Converts a Hugging Face model (a folder with config.json and "
        "model.safetensors), or a GGUF file, to a run, or a run, or a checkpoint file, to such "
        "a folder or file. Fails if the other side cannot represent the model. The files of a "
        "tokeniser, chat template or sentence embedding are copied; the vocabulary of a GGUF file "
        "becomes RUN/tokenizer.json, and the other way round. With --to peft the folder has the "
        "adapters of a run alone, as the library PEFT reads them; with --base such a folder "
        "becomes "
        "a run of adapters.",
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

static void print_result(const convert_args *a, const weft_params *params,
                         const weft_model_config *config)
{
    char options[TOOL_OPTIONS_TEXT], size[64];
    const char *left = weft_params_meta(params, WEFT_HUGGINGFACE_LEFT_OUT);
    double parameters = 0, bytes = 0;
    weft_graph *g = weft__saved_graph(config, a->out, NULL);
    size_t n = 0;
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

static weft_status load_gguf(const convert_args *a, weft_params *params, weft_model_config *config,
                             weft_error *error)
{
    weft_gguf *file = weft_gguf_open(a->from, error);
    const weft_gguf_options options = {.widen = a->f32, .context = a->context};
    if (file) weft_gguf_load(file, &options, params, config, error);
    weft_gguf_close(file);
    return error->status;
}

/* Reads a folder of transformers or a GGUF file and writes a run. */
static weft_status import_model(const convert_args *a, weft_params *params,
                                weft_model_config *config, weft_error *error)
{
    char path[4096];
    if (a->architecture)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "--architecture",
                              "is for writing: config.json names the one that is read");
    const weft_huggingface_options options = {.context = a->context};
    const weft_status status =
        is_there(a->from, "config.json")
            ? weft_huggingface_load_with(params, config, a->from, &options, error)
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
static int write_vocabulary(const convert_args *a)
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

static int import_run(const convert_args *a)
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

static int export_run(const convert_args *a)
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

/* A file next to the model. *text is NULL if there is none. */
static bool read_text(const char *folder, const char *name, char **text, weft_error *error)
{
    char path[FILE_PATH_BYTES + 64];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *text = weft__file_exists(path) ? weft__file_read(path, &bytes, error) : NULL;
    return error->status == WEFT_OK;
}

/* The last component of a path. */
static void name_of(const char *run, char name[FILE_PATH_BYTES])
{
    char path[FILE_PATH_BYTES];
    snprintf(path, sizeof path, "%s", run);
    for (size_t n = strlen(path); n > 1 && !*weft__os_name(path); n--) path[n - 1] = 0;
    snprintf(name, FILE_PATH_BYTES, "%s", weft__os_name(path));
}

static int export_gguf(const convert_args *a)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    char *texts[3] = {NULL}, folder[FILE_PATH_BYTES], name[FILE_PATH_BYTES], type[8];
    weft_error error = {0};
    if (weft__file_exists(a->out))
        return tool_fail_text(a->out, "exists already: choose another -o");
    weft_saved_model *m = weft_saved_open(a->from, NULL, &error);
    if (m && text_files_folder(a->from, folder, &error))
        for (int i = 0; i < 3; i++)
            if (!read_text(folder, names[i], &texts[i], &error)) break;
    name_of(a->from, name);
    int length;
    const char *chosen = tool_choice_at(TYPES, (int)a->type, &length);
    snprintf(type, sizeof type, "%.*s", length, chosen);
    const weft_save_gguf_options options = {
        a->type ? type : NULL, a->architecture, name, texts[0], texts[1], texts[2]};
    if (m && error.status == WEFT_OK &&
        weft_params_save_gguf(m->params, &m->config, a->out, &options, &error) == WEFT_OK) {
        print_result(a, m->params, &m->config);
        if (!texts[0])
            tool_print_line(stdout, "without a tokeniser: %s has no tokenizer.json", a->from);
    }
    for (int i = 0; i < 3; i++) free(texts[i]);
    weft_saved_close(m);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

static int no_peft(const convert_args *a)
{
    return tool_fail_text(a->from, "has no adapter_config.json: --base is for adapters of PEFT");
}

int cmd_convert(int argc, char **argv)
{
    convert_args a = {.from = NULL};
    tool_parse(&command, argc, argv, &a);
    if (a.list) return list();
    const bool peft = is_there(a.from, "adapter_config.json");
    if (is_there(a.out, "model.safetensors") || is_there(a.out, "config.json") ||
        is_there(a.out, "adapter_config.json"))
        return tool_fail_text(a.out, "has a model already: choose another -o");
    const bool import = is_there(a.from, "config.json") || is_gguf(a.from);
    if (import && a.to == TO_GGUF)
        return tool_fail_text(a.from,
                              "is not a run; convert it to a run first, then convert the run to a "
                              "GGUF file");
    if (a.base || (peft && !import)) return peft ? convert_from_peft(&a) : no_peft(&a);
    if (a.merge) return convert_merge(&a);
    if (a.to == TO_PEFT) return convert_to_peft(&a);
    if (a.to == TO_GGUF) return export_gguf(&a);
    return import ? import_run(&a) : export_run(&a);
}
