/* Models with matrices of 8 and 4 bits, with zero points, and with minima as other programs' files have
 * them. */
#include "emit_cases.h"

#include <weft/models.h>
#include <weft/quantize.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of a tensor of the store, or of a new one. */
static void *add(weft_params *into, const char *name, const weft_tensor *like, weft_dtype dtype)
{
    weft_tensor t;
    if (weft_params_add(into, name, dtype, like->shape, &t, NULL) == WEFT_OK) return t.data;
    fprintf(stderr, "no memory for %s\n", name);
    exit(2);
}

/* The same store with minima instead of zero points: scale q + minimum. */
static weft_params *with_minima(const weft_params *from)
{
    weft_params *to = weft_params_new();
    for (size_t i = 0; i < weft_params_count(from); i++) {
        char name[256];
        weft_tensor t, scale;
        snprintf(name, sizeof name, "%s", weft_params_name(from, i));
        weft_params_find(from, name, &t);
        char *end = strrchr(name, '.');
        if (!end || strcmp(end, ".zero") != 0) {
            memcpy(add(to, name, &t, t.dtype), t.data, weft_tensor_bytes(t.dtype, t.shape));
            continue;
        }
        strcpy(end, ".scale");
        weft_params_find(from, name, &scale);
        strcpy(end, ".min");
        float *minimum = add(to, name, &t, WEFT_F32);
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++)
            minimum[k] = -((const float *)scale.data)[k] * ((const uint8_t *)t.data)[k];
    }
    return to;
}

/* A forward pass of a model with small sizes, and with matrices of 8 or 4 bits. */
static void write_quantized(const char *name, const weft_quantize_options *o, bool minima)
{
    const weft_model *model = weft_model_find(name);
    const bool recurrent = !strcmp(name, "lstm") || !strcmp(name, "seq2seq");
    const char *const sizes[2][5] = {{"vocab=40", "d_model=64", "d_ff=128", "layers=1", "heads=4"},
                                     {"vocab=40", "width=64", "hidden=64", "layers=1", "tied=1"}};
    const char *options[8] = {"batch=2"};
    size_t n = 1;
    weft_error error = {0};
    weft_built built;
    weft_quantize_report report;
    test_case c = {.g = weft_graph_new(), .n_targets = 1, .n_outputs = 1, .vocab = 40};
    weft_params *whole = weft_params_new();
    for (size_t i = 0; i < 5; i++)
        if (strcmp(name, "transformer") != 0 || i != 3) options[n++] = sizes[recurrent][i];
    options[n++] = model->sizes[1].name && !strcmp(model->sizes[1].name, "length") ? "length=5"
                                                                                   : "target_len=5";
    snprintf(c.name, sizeof c.name, "quantized_%s_%d_%d%s", name, o->bits, o->group,
             minima ? "_minima" : "");
    weft_model_build_text(c.g, model, options, n, false, &built, &error);
    if (error.status == WEFT_OK) weft_params_init(whole, c.g, 1, &error);
    if (error.status == WEFT_OK) c.params = weft_params_quantize(whole, c.g, o, &report, &error);
    if (error.status == WEFT_OK && minima) {
        weft_params *zeros = c.params;
        c.params = with_minima(zeros);
        weft_params_free(zeros);
    }
    if (error.status == WEFT_OK) {
        const weft_pass pass = weft_quantized_pass(c.params);
        c.pass = &pass;
        c.targets[0] = built.outputs[0];
        emit_write_case(&c, 2);
    } else {
        printf("cannot be quantised: %s: %s: %s\n", c.name, error.where, error.message);
    }
    weft_params_free(c.params);
    weft_params_free(whole);
    weft_graph_free(c.g);
}

void emit_write_quantized(void)
{
    static const struct {
        const char *model;
        weft_quantize_options form;
        bool minima;
    } cases[] = {{"gpt", {8, 32, NULL}, false},         {"gpt", {8, 32, NULL}, true},
                 {"gpt", {4, 64, NULL}, false},         {"gpt", {4, 32, NULL}, true},
                 {"llama", {4, 32, NULL}, false},       {"lstm", {4, 32, NULL}, false},
                 {"transformer", {8, 64, NULL}, false}, {"seq2seq", {8, 32, NULL}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        write_quantized(cases[i].model, &cases[i].form, cases[i].minima);
}
