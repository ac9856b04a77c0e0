/* The graph of a step of `weft fit`, for commands that do not train: a file's model, and the loss of a
 * run's recipe or of the command line. */
#include "fit_data.h"
#include "recipe_table.h"

#include "base/file.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

bool fit_read_loss(const char *onnx, file_loss *loss, weft_error *error)
{
    char path[4096];
    recipe r;
    const int folder = (int)(weft__os_name(onnx) - onnx);
    const int n = snprintf(path, sizeof path, "%.*srecipe.json", folder, onnx);
    if (n < 0 || n >= (int)sizeof path || !weft__file_exists(path)) {
        weft_error_set(error, WEFT_NOT_FOUND, onnx,
                       "has no recipe.json next to it, which names the loss: choose a --loss");
        return false;
    }
    if (!recipe_init(&r)) {
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
        return false;
    }
    r.fits = true;
    if (recipe_load(&r, path, NULL, error)) {
        loss->kind = (unsigned)r.fit_loss;
        loss->class_axis = (int)r.fit_class_axis;
        loss->label_smoothing = r.fit_label_smoothing;
        snprintf(loss->output, sizeof loss->output, "%s", r.fit_output);
    }
    recipe_free(&r);
    return error->status == WEFT_OK;
}

/* Sets the output of the loss: the one of its name, or the first of floats. */
static weft_status find_output(training_fit *f, const file_loss *loss, weft_error *error)
{
    size_t n;
    const weft_onnx_value *outputs = weft_onnx_outputs(f->file, &n);
    for (size_t i = 0; i < f->built.n_outputs && i < n; i++)
        if (loss->output[0] ? !strcmp(outputs[i].name, loss->output)
                            : weft_dtype_is_float(weft_dtype_of(f->graph, f->built.outputs[i]))) {
            f->fit.output = i;
            return WEFT_OK;
        }
    return weft_error_set(error, WEFT_NOT_FOUND, "--loss", "the model has no %s%s",
                          loss->output[0] ? "output " : "floating-point output", loss->output);
}

weft_status tool_build_loss(built_model *m, const file_loss *loss, weft_error *error)
{
    const weft_build_options o = {.training = true};
    training_fit f = {.file = m->file,
                      .fit = {.model = weft_onnx_builder(m->file),
                              .loss = (weft_loss_kind)loss->kind,
                              .class_axis = loss->class_axis,
                              .label_smoothing = loss->label_smoothing},
                      .graph = weft_graph_new()};
    m->graph = weft_graph_new();
    if (!f.graph || !m->graph) {
        weft_error_set(error, WEFT_NO_MEMORY, "loss", "out of memory");
    } else {
        f.fit.model.build(f.fit.model.context, f.graph, &o, &f.built);
        tool_take_error(weft_graph_error(f.graph), error);
    }
    if (error->status == WEFT_OK && find_output(&f, loss, error) == WEFT_OK) {
        fit_take_logits(&f);
        const weft_builder b = weft_fit_builder(&f.fit);
        b.build(b.context, m->graph, &o, &m->built);
        tool_take_error(weft_graph_error(m->graph), error);
    }
    weft_graph_free(f.graph);
    return error->status;
}
