/* weft convert for adapters: folders of PEFT, both ways, and runs of models with adapters in them. */
#include "convert.h"
#include "text/text_files.h"

#include "base/platform.h"
#include "passes/lora.h"
#include "training/saved.h"

#include <weft/huggingface.h>
#include <weft/lora.h>
#include <weft/quantize.h>
#include <weft/train.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Opens a run of adapters: the model with them, and themselves. */
static weft_saved_model *open_adapters(const convert_args *a, weft_params *adapters,
                                       weft_error *error)
{
    weft_saved_model *m = weft_saved_open(a->from, NULL, error);
    if (!m) return NULL;
    if (!m->base)
        weft_error_set(error, WEFT_BAD_ARGUMENT, a->from,
                       "has no adapters, expected a run of weft train --lora");
    else if (weft_params_load_some(adapters, m->path, &weft_model_states, error) == WEFT_OK)
        return m;
    weft_saved_close(m);
    return NULL;
}

/* Writes a run, with the files for texts of another one. */
static weft_status write_run(const convert_args *a, const weft_params *params, const char *texts,
                             weft_error *error)
{
    char path[FILE_PATH_BYTES];
    if (!weft__os_make_folder(a->out) && errno != EEXIST)
        return weft_error_set(error, WEFT_IO, a->out, "cannot be made: %s", strerror(errno));
    if ((size_t)snprintf(path, sizeof path, "%s/model.safetensors", a->out) >= sizeof path)
        return weft_error_set(error, WEFT_TOO_LARGE, a->out, "the path is too long");
    if (weft_params_save(params, path, NULL, error) == WEFT_OK)
        text_files_copy(texts, a->out, error);
    return error->status;
}

static void print_adapters(const convert_args *a, const weft_params *adapters)
{
    lora_note note = {0};
    weft__lora_read(adapters, &note);
    tool_print_line(stdout, "%s: adapters of rank %.0f for %zu matrices, saved in %s", a->from,
                    note.rank, weft_params_count(adapters) / 2, a->out);
}

/* ---- PEFT ---- */

int convert_to_peft(const convert_args *a)
{
    weft_error error = {0};
    weft_params *adapters = weft_params_new();
    if (!adapters) return tool_fail_text("convert", "out of memory");
    weft_saved_model *m = open_adapters(a, adapters, &error);
    if (m && weft_huggingface_save_adapters(adapters, m->params, &m->config, a->out,
                                            a->architecture, &error) == WEFT_OK)
        print_adapters(a, adapters);
    weft_saved_close(m);
    weft_params_free(adapters);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

static weft_status from_peft(const convert_args *a, const weft_saved_model *base,
                             weft_params *adapters, weft_error *error)
{
    char text[BASE_TEXT];
    if (base->base)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, a->base,
                              "has adapters for %s itself: --merge them first", base->base);
    if (weft_huggingface_load_adapters(adapters, base->params, &base->config, a->from,
                                       a->architecture, error) != WEFT_OK ||
        weft__base_text(base->path, text, error) != WEFT_OK ||
        weft_params_set_meta(adapters, BASE_META, text, error) != WEFT_OK)
        return error->status;
    return write_run(a, adapters, a->base, error);
}

int convert_from_peft(const convert_args *a)
{
    weft_error error = {0};
    if (!a->base)
        return tool_fail_text(a->from, "has adapters of PEFT: --base names the run of their model");
    weft_params *adapters = weft_params_new();
    if (!adapters) return tool_fail_text("convert", "out of memory");
    weft_saved_model *base = weft_saved_open(a->base, NULL, &error);
    if (base && from_peft(a, base, adapters, &error) == WEFT_OK) print_adapters(a, adapters);
    weft_saved_close(base);
    weft_params_free(adapters);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

/* ---- Merging ---- */

/* Whether a matrix has an adapter. */
static bool is_adapted(void *context, const char *name)
{
    char a[QUANTIZED_NAME];
    return weft__lora_name(a, name, "a") && weft_params_find(context, a, NULL);
}

/* The store of a quantised model whose matrices that have adapters are widened, with these added.
 * NULL on failure. */
static weft_params *merge(const weft_saved_model *m, weft_params *adapters, weft_error *error)
{
    const weft_params_filter adapted = {is_adapted, adapters};
    weft_saved_model *base = weft_saved_open(m->base, NULL, error);
    weft_graph *g = base ? weft__saved_graph(&base->config, m->base, error) : NULL;
    weft_params *merged = g ? weft_params_dequantize(base->params, g, &adapted, error) : NULL;
    if (merged && weft_params_add_adapters(merged, adapters, g, error) == WEFT_OK)
        weft__base_copy_meta(merged, m->params, error);
    weft_graph_free(g);
    weft_saved_close(base);
    if (merged && error->status == WEFT_OK) return merged;
    weft_params_free(merged);
    return NULL;
}

int convert_merge(const convert_args *a)
{
    weft_error error = {0};
    weft_params *adapters = weft_params_new(), *merged = NULL;
    if (!adapters) return tool_fail_text("convert", "out of memory");
    weft_saved_model *m = open_adapters(a, adapters, &error);
    /* Matrices in f32 have their adapters already. */
    const bool quantized = m && weft_params_are_quantized(m->params);
    if (quantized) merged = merge(m, adapters, &error);
    if (m && error.status == WEFT_OK &&
        write_run(a, quantized ? merged : m->params, a->from, &error) == WEFT_OK)
        tool_print_line(stdout, "%s: %zu matrices have their adapters in them, saved in %s",
                        a->from, weft_params_count(adapters) / 2, a->out);
    weft_params_free(merged);
    weft_saved_close(m);
    weft_params_free(adapters);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
