/* Reads the models of GGUF files into parameter stores. Tensors are found by name. Matrices that
 * weft's kernels can multiply as they are stay quantised; others are computed in f32, 64 rows at a
 * time. O(elements). */
#include "file.h"
#include "model.h"

#include "quantize/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64 /* of a matrix that are computed at a time, for blocks that fit a cache */

typedef struct loader {
    const weft_gguf *file;
    const gguf_architecture *a;
    weft_params *params;
    weft_model_config *config;
    weft_graph *graph;     /* declares the parameters */
    bool widen, quantized; /* whether no matrix stays quantised, and whether one did */
    weft_error *error;
} loader;

static weft_status no_memory(loader *l)
{
    return weft_error_set(l->error, WEFT_NO_MEMORY, l->file->path, "no memory");
}

/* ---- Layouts ---- */

/* A tensor, or rows of it: `n` from `first` on. */
typedef struct source {
    const weft_gguf_tensor *t;
    gguf_layout layout;
    int64_t first, n;
} source;

/* ours[in, out] from their tensor [out, in]. */
static weft_status read_matrix(loader *l, const source *from, float *ours)
{
    const weft_gguf_tensor *t = from->t;
    const int64_t out = from->n, in = t->shape.dim[1];
    const gguf_type *type = gguf_type_of(t);
    const size_t blocks = (size_t)in / type->weights;
    float *rows = malloc(sizeof(float) * (ROWS * (size_t)in + 1));
    if (!rows) return no_memory(l);
    for (int64_t first = 0; first < out; first += ROWS) {
        const int64_t n = out - first < ROWS ? out - first : ROWS;
        for (int64_t i = 0; i < n; i++) {
            const size_t row = (size_t)(from->first + weft__gguf_their_row(l->config, from->layout,
                                                                           first + i, out));
            weft__gguf_widen(type, (const uint8_t *)t->data + row * blocks * type->bytes,
                             rows + i * in, blocks);
        }
        for (int64_t k = 0; k < in; k++)
            for (int64_t i = 0; i < n; i++) ours[k * out + first + i] = rows[i * in + k];
    }
    free(rows);
    return WEFT_OK;
}

/* ours[out] from their tensor [out]. */
static weft_status read_vector(loader *l, const source *from, float *ours)
{
    float *theirs = malloc(sizeof(float) * ((size_t)from->t->shape.dim[0] + 1));
    if (!theirs) return no_memory(l);
    const weft_status status = weft_gguf_read(l->file, from->t, theirs, l->error);
    for (int64_t i = 0; i < from->n && status == WEFT_OK; i++)
        ours[i] = theirs[from->first + weft__gguf_their_row(l->config, from->layout, i, from->n)];
    free(theirs);
    return status;
}

/* ---- Quantised matrices ---- */

/* The arrays of a quantised form (docs/quantize.md), at the group that is written next. */
typedef struct form {
    uint8_t *q, *zero;
    float *scale, *minimum;
} form;

/* Adds tensor NAME.WHICH, or NAME.rows.WHICH, and sets *data to its contents. */
static weft_status add_form(loader *l, const char *ours, bool by_rows, const char *which,
                            weft_dtype dtype, weft_shape shape, void **data)
{
    char name[QUANTIZED_NAME];
    weft_tensor t;
    if (!weft__quantized_name(name, ours, by_rows, which))
        return weft_error_set(l->error, WEFT_TOO_LARGE, ours, "the name is too long");
    const weft_status status = weft_params_add(l->params, name, dtype, shape, &t, l->error);
    if (status == WEFT_OK) *data = t.data;
    return status;
}

static void append_group(form *f, const gguf_type *type, const uint8_t *block, int g)
{
    gguf_group from;
    type->split(block, g, &from);
    *f->scale++ = from.scale;
    if (type->minima)
        *f->minimum++ = from.minimum;
    else
        *f->zero++ = from.zero;
    for (int i = 0; i < 32; i += type->bits == 4 ? 2 : 1)
        *f->q++ = type->bits == 4 ? (uint8_t)(from.q[i] | (unsigned)from.q[i + 1] << 4) : from.q[i];
}

/* The quantised form of a matrix, whose rows are those of their tensor. */
static weft_status read_quantized(loader *l, const char *ours, const source *from)
{
    const weft_gguf_tensor *t = from->t;
    const int64_t n = from->n, k = t->shape.dim[1];
    const gguf_type *type = gguf_type_of(t);
    const weft_shape groups = WEFT_SHAPE(n, k / 32);
    const size_t blocks = (size_t)k / type->weights;
    const bool by_rows = from->layout == GGUF_SAME;
    void *q = NULL, *scale = NULL, *other = NULL;
    weft_status status =
        add_form(l, ours, by_rows, "q", WEFT_U8, WEFT_SHAPE(n, k * type->bits / 8), &q);
    if (status == WEFT_OK) status = add_form(l, ours, by_rows, "scale", WEFT_F32, groups, &scale);
    if (status == WEFT_OK)
        status = type->minima ? add_form(l, ours, by_rows, "min", WEFT_F32, groups, &other)
                              : add_form(l, ours, by_rows, "zero", WEFT_U8, groups, &other);
    if (status != WEFT_OK) return status;
    form f = {.q = q, .scale = scale, .zero = other, .minimum = other};
    for (int64_t i = 0; i < n; i++) {
        const size_t at =
            (size_t)(from->first + weft__gguf_their_row(l->config, from->layout, i, n));
        const uint8_t *row = (const uint8_t *)t->data + at * blocks * type->bytes;
        for (size_t b = 0; b < blocks; b++)
            for (int g = 0; g < type->weights / 32; g++)
                append_group(&f, type, row + b * type->bytes, g);
    }
    l->quantized = true;
    return WEFT_OK;
}

/* ---- Parameters ---- */

static weft_status check_tensor(loader *l, const weft_gguf_tensor *t, weft_shape want)
{
    char has[128], wants[128];
    if (!weft_shape_equal(t->shape, want))
        return weft_error_set(l->error, WEFT_BAD_SHAPE, l->file->path,
                              "%s is %s, but the metadata make it %s", t->name,
                              weft_shape_text(t->shape, has, sizeof has),
                              weft_shape_text(want, wants, sizeof wants));
    if (!t->readable)
        return weft_error_set(l->error, WEFT_BAD_DTYPE, l->file->path,
                              "%s: its type %s is not supported", t->name, t->type);
    return WEFT_OK;
}

static weft_status load_param(loader *l, const char *ours, weft_shape shape)
{
    char theirs[GGUF_NAME_BYTES] = "";
    weft_tensor to;
    const gguf_row *row = weft__gguf_row_of(l->a, ours, theirs);
    const weft_gguf_tensor *t = row ? weft_gguf_find(l->file, theirs) : NULL;
    if (!t)
        return weft_error_set(l->error, WEFT_NOT_FOUND, l->file->path, "has no tensor %s, for %s",
                              theirs, ours);
    const bool same = row->layout == GGUF_SAME, matrix = shape.rank == 2;
    const gguf_place p = weft__gguf_place_of(l->a, l->graph, row, theirs);
    const source from = {t, row->layout, p.first, shape.dim[shape.rank - 1]};
    const bool whole = same && p.all == from.n;
    const weft_shape want = matrix && same ? shape
                            : matrix       ? WEFT_SHAPE(p.all, shape.dim[0])
                                           : WEFT_SHAPE(p.all);
    weft_status status = check_tensor(l, t, want);
    if (status == WEFT_OK && !l->widen && matrix && gguf_type_of(t)->split)
        return read_quantized(l, ours, whole ? &(source){t, row->layout, 0, shape.dim[0]} : &from);
    if (status == WEFT_OK)
        status = weft_params_add(l->params, ours, WEFT_F32, shape, &to, l->error);
    if (status != WEFT_OK) return status;
    if (whole) return weft_gguf_read(l->file, t, to.data, l->error);
    return matrix ? read_matrix(l, &from, to.data) : read_vector(l, &from, to.data);
}

/* A graph of the model, which declares its parameters; NULL on failure. */
static weft_graph *declare(loader *l)
{
    weft_model_config one = *l->config;
    weft_graph *g = weft_graph_new();
    one.build = (weft_build_options){.shape = {.rows = 1, .target_len = 1}};
    if (!g) {
        no_memory(l);
        return NULL;
    }
    weft_model_build(g, &one);
    if (weft_graph_status(g) == WEFT_OK) return g;
    weft_error_set(l->error, weft_graph_status(g), l->file->path, "the metadata: %s",
                   weft_graph_error(g)->message);
    weft_graph_free(g);
    return NULL;
}

static weft_status load_params(loader *l)
{
    size_t n;
    weft_graph *g = l->graph = declare(l);
    const weft_value *values = weft_graph_params(g, &n);
    weft_status status = g ? WEFT_OK : l->error->status;
    for (size_t i = 0; status == WEFT_OK && i < n; i++)
        status = load_param(l, weft_name_of(g, values[i]), weft_shape_of(g, values[i]));
    weft_graph_free(g);
    return status;
}

/* Whether the store has the parameter, quantised or not. */
static bool has_param(const loader *l, const char *ours)
{
    char name[QUANTIZED_NAME];
    return weft_params_find(l->params, ours, NULL) ||
           weft_params_find(l->params, weft__quantized_name(name, ours, false, "q"), NULL) ||
           weft_params_find(l->params, weft__quantized_name(name, ours, true, "q"), NULL);
}

/* Refuses tensors that no parameter is read from. */
static weft_status check_rest(loader *l)
{
    for (size_t i = 0; i < weft_gguf_count(l->file); i++) {
        char ours[GGUF_NAME_BYTES];
        const char *name = weft_gguf_at(l->file, i)->name;
        bool used = false;
        const gguf_row *row;
        for (size_t k = 0; !used && (row = weft__gguf_row_at(l->a, k)); k++)
            used = weft__gguf_translate(row->theirs, row->ours, name, ours) && has_param(l, ours);
        if (used || !strcmp(name, GGUF_ROPE_FREQS) || !strcmp(name, GGUF_ROPE_SHORT) ||
            !strcmp(name, GGUF_ROPE_LONG))
            continue;
        return weft_error_set(l->error, WEFT_BAD_FILE, l->file->path,
                              "unexpected tensor %s: weft's %s has no such parameter", name,
                              l->config->model->name);
    }
    return WEFT_OK;
}

static weft_status set_metadata(loader *l)
{
    char options[WEFT_OPTIONS_TEXT];
    weft_params *p = l->params;
    return weft_model_options_text(l->config, options, sizeof options) &&
                   weft_params_set_meta(p, "model", l->config->model->name, NULL) == WEFT_OK &&
                   weft_params_set_meta(p, "model_options", options, NULL) == WEFT_OK &&
                   weft_params_set_meta(p, WEFT_GGUF_ARCHITECTURE, l->a->name, NULL) == WEFT_OK &&
                   (!l->quantized ||
                    weft_params_set_meta(p, "quantization", "gguf group=32", NULL) == WEFT_OK)
               ? WEFT_OK
               : no_memory(l);
}

weft_status weft_gguf_load(const weft_gguf *file, const weft_gguf_options *options,
                           weft_params *params, weft_model_config *config, weft_error *error)
{
    weft_error problem = WEFT_NO_ERROR;
    loader l = {.file = file, .params = params, .config = config, .error = &problem};
    l.widen = options && options->widen;
    weft_error_clear(error);
    if (!file || !params || !config || weft_params_count(params))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs a file, an empty store and a configuration to fill");
    l.a = weft__gguf_architecture(file, l.error);
    const int64_t context = options ? options->context : 0;
    weft_status status =
        l.a ? weft__gguf_config(file, l.a, context, config, l.error) : problem.status;
    if (status == WEFT_OK) status = load_params(&l);
    if (status == WEFT_OK) status = check_rest(&l);
    if (status == WEFT_OK) set_metadata(&l);
    return weft_error_copy(error, &problem);
}
