/* Tensors of GGUF files from parameters: their types, and their data, ROWS rows at a time. O(elements). */
#include "save.h"

#include "quantize/quantize.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 64 /* of a matrix that are made at a time, for blocks that fit a cache */

static weft_status no_memory(gguf_saver *s)
{
    return weft_error_set(s->error, WEFT_NO_MEMORY, s->path, "no memory");
}

/* ---- Parameters ---- */

/* The quantised form of a parameter (docs/quantize.md). */
typedef struct form {
    const uint8_t *q, *zero;
    const float *scale, *minimum;
    int64_t n, k;
    int bits, group;
} form;

static const void *find_part(const gguf_saver *s, const char *ours, bool by_rows, const char *which,
                             weft_tensor *t)
{
    char name[QUANTIZED_NAME];
    return weft__quantized_name(name, ours, by_rows, which) && weft_params_find(s->params, name, t)
               ? t->data
               : NULL;
}

/* The form of a parameter whose row has n rows of k elements in the file; false if it has none. */
static bool find_form(const gguf_saver *s, const char *ours, bool by_rows, form *f)
{
    weft_tensor q, scale, other;
    *f = (form){.q = find_part(s, ours, by_rows, "q", &q)};
    if (!f->q) return false;
    f->scale = find_part(s, ours, by_rows, "scale", &scale);
    f->minimum = find_part(s, ours, by_rows, "min", &other);
    if (!f->minimum) f->zero = find_part(s, ours, by_rows, "zero", &other);
    return true;
}

/* Checks a form of n rows of k elements, and sets bits and group. */
static weft_status check_form(gguf_saver *s, const char *ours, bool by_rows, form *f)
{
    weft_tensor q, scale = {.data = NULL}, other = {.data = NULL};
    find_part(s, ours, by_rows, "q", &q);
    find_part(s, ours, by_rows, "scale", &scale);
    find_part(s, ours, by_rows, f->minimum ? "min" : "zero", &other);
    const int64_t groups = scale.data && scale.shape.rank == 2 ? scale.shape.dim[1] : 0;
    const int64_t bytes = q.shape.rank == 2 ? q.shape.dim[1] : 0;
    f->bits = bytes == f->k ? 8 : 4;
    f->group = groups ? (int)(f->k / groups) : 0;
    const weft_shape table = WEFT_SHAPE(f->n, groups);
    const bool good =
        groups && f->group % 32 == 0 && f->group * groups == f->k && q.dtype == WEFT_U8 &&
        weft_shape_equal(q.shape, WEFT_SHAPE(f->n, f->k * f->bits / 8)) &&
        scale.dtype == WEFT_F32 && weft_shape_equal(scale.shape, table) && other.data &&
        weft_shape_equal(other.shape, table) && other.dtype == (f->minimum ? WEFT_F32 : WEFT_U8);
    return good ? WEFT_OK
                : weft_error_set(s->error, WEFT_BAD_SHAPE, ours,
                                 "its quantised form is not one of %lld rows of %lld elements",
                                 (long long)f->n, (long long)f->k);
}

/* Elements 32 b and on of a row. */
static void take_group(const form *f, int64_t row, int64_t b, gguf_group *to)
{
    const int64_t at = row * f->k + 32 * b, g = at / f->group;
    to->scale = f->scale[g];
    to->minimum = f->minimum ? f->minimum[g] : 0;
    to->zero = f->minimum ? 0 : f->zero[g];
    for (int i = 0; i < 32; i++)
        to->q[i] = f->bits == 8 ? f->q[at + i] : f->q[(at + i) / 2] >> 4 * (i & 1) & 15;
}

/* The type that may have the blocks of a form. */
static const gguf_written *natural_type(const form *f)
{
    if (f->minimum) return weft__gguf_written_find(f->bits == 4 ? "q4_1" : "q5_1");
    if (f->bits == 4) return weft__gguf_written_find("q4_0");
    return weft__gguf_written_find(f->zero[0] == 16 ? "q5_0" : "q8_0");
}

static bool is_exact(const form *f, const gguf_written *type)
{
    uint8_t block[64];
    gguf_group group;
    for (int64_t i = 0; i < f->n; i++)
        for (int64_t b = 0; b < f->k / 32; b++) {
            take_group(f, i, b, &group);
            if (!weft__gguf_join(type, &group, block)) return false;
        }
    return true;
}

/* ---- The parameters of a tensor ---- */

/* A parameter of a tensor: rows [first, first + n) of it. */
typedef struct part {
    const gguf_row *row;
    char ours[GGUF_NAME_BYTES];
    int64_t first, n;
    const float *data; /* f32; NULL: the form */
    form form;
} part;

#define MAX_PARTS 4

/* Finds the parts of a tensor, in the order of their rows. Returns their number. */
static size_t find_parts(gguf_saver *s, const gguf_entry *e, part parts[MAX_PARTS])
{
    size_t n = 0;
    const gguf_row *row;
    int64_t first = 0;
    for (size_t i = 0; (row = weft__gguf_row_at(s->a, i)) && n < MAX_PARTS; i++) {
        part *p = &parts[n];
        weft_tensor t;
        if (!weft__gguf_translate(row->theirs, row->ours, e->name, p->ours)) continue;
        const weft_value value = weft_graph_find(s->graph, p->ours);
        if (!weft_is_value(value)) continue;
        p->row = row;
        p->first = first;
        p->n = row->layout == GGUF_SAME && e->shape.rank == 2 ? e->shape.dim[0]
                                                              : weft_dim_of(s->graph, value, -1);
        p->data = NULL;
        const int64_t k = e->shape.rank == 2 ? e->shape.dim[1] : 0;
        if (!k || !find_form(s, p->ours, row->layout == GGUF_SAME, &p->form))
            p->data = weft_params_find(s->params, p->ours, &t) ? t.data : NULL;
        p->form.n = p->n;
        p->form.k = k;
        first += p->n;
        n++;
    }
    return n;
}

static weft_status check_part(gguf_saver *s, part *p, bool *quantized)
{
    char has[128], want[128];
    weft_tensor t;
    *quantized = !p->data && p->form.k && p->form.q;
    if (*quantized) return check_form(s, p->ours, p->row->layout == GGUF_SAME, &p->form);
    const weft_shape shape = weft_shape_of(s->graph, weft_graph_find(s->graph, p->ours));
    if (!weft_params_find(s->params, p->ours, &t))
        return weft_error_set(s->error, WEFT_NOT_FOUND, p->ours, "is not in the store");
    if (t.dtype == WEFT_F32 && weft_shape_equal(t.shape, shape)) return WEFT_OK;
    return weft_error_set(s->error, WEFT_BAD_SHAPE, p->ours, "is %s %s, expected f32 %s",
                          weft_dtype_name(t.dtype), weft_shape_text(t.shape, has, sizeof has),
                          weft_shape_text(shape, want, sizeof want));
}

/* ---- Types ---- */

/* Norms, biases and learned positions stay in f32, as in files of llama.cpp. A row that blocks do not
 * divide is in f16 there. */
static const gguf_written *plain_type(const gguf_saver *s, const gguf_entry *e)
{
    const gguf_written *f32 = weft__gguf_written_find("f32");
    if (e->shape.rank < 2 || !strcmp(e->name, "position_embd.weight") || !s->type) return f32;
    return s->type->join && e->shape.dim[1] % 32 ? weft__gguf_written_find("f16") : s->type;
}

static weft_status choose_type(gguf_saver *s, gguf_entry *e)
{
    part parts[MAX_PARTS];
    const size_t n = find_parts(s, e, parts);
    size_t forms = 0;
    const gguf_written *type = NULL;
    for (size_t i = 0; i < n; i++) {
        bool quantized;
        const weft_status status = check_part(s, &parts[i], &quantized);
        if (status != WEFT_OK) return status;
        if (quantized && !forms++) type = natural_type(&parts[i].form);
    }
    e->exact = forms == n && type && (!s->type || s->type == type);
    for (size_t i = 0; i < n && e->exact; i++) e->exact = is_exact(&parts[i].form, type);
    e->type = e->exact ? type : plain_type(s, e);
    return WEFT_OK;
}

size_t weft__gguf_tensor_bytes(const gguf_entry *e)
{
    const gguf_type *type = weft__gguf_type_find(e->type->number);
    return (size_t)weft_shape_numel(e->shape) / type->weights * type->bytes;
}

static weft_status add_entry(gguf_saver *s, weft_value value)
{
    gguf_entry *e = &s->entries[s->n];
    const char *ours = weft_name_of(s->graph, value);
    const weft_shape shape = weft_shape_of(s->graph, value);
    e->row = weft__gguf_row_of(s->a, ours, e->name);
    if (!e->row)
        return weft_error_set(s->error, WEFT_BAD_ARGUMENT, s->config->model->name,
                              "has the parameter %s, but files of %s do not", ours, s->a->name);
    const gguf_place place = weft__gguf_place_of(s->a, s->graph, e->row, e->name);
    if (place.first > 0) return WEFT_OK; /* the first part has listed it */
    e->shape = shape.rank != 2               ? WEFT_SHAPE(place.all)
               : e->row->layout == GGUF_SAME ? shape
                                             : WEFT_SHAPE(place.all, shape.dim[0]);
    s->n++;
    return choose_type(s, e);
}

weft_status weft__gguf_list_tensors(gguf_saver *s)
{
    size_t n;
    const weft_value *values = weft_graph_params(s->graph, &n);
    free(s->entries);
    s->n = 0;
    s->entries = calloc(n + 1, sizeof *s->entries);
    weft_status status = s->entries ? WEFT_OK : no_memory(s);
    for (size_t i = 0; i < n && status == WEFT_OK; i++) status = add_entry(s, values[i]);
    return status;
}

/* ---- Data ---- */

/* Whether a parameter is the gamma of a norm that the file has with its 1. */
static bool is_plus_one(const gguf_saver *s, const char *ours)
{
    const size_t n = strlen(ours);
    return s->plus_one && n > 6 && !strcmp(ours + n - 6, ".gamma");
}

/* Rows [first, first + n) of a part as floats, n at most ROWS. */
static void take_floats(const gguf_saver *s, const part *p, int64_t first, int64_t n, float *to)
{
    const int64_t k = p->form.k ? p->form.k : 1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = weft__gguf_our_row(s->config, p->row->layout, first + i, p->n);
        if (p->data && is_plus_one(s, p->ours)) {
            to[i] = p->data[row] + 1;
        } else if (p->data && p->row->layout == GGUF_SAME) {
            memcpy(to + i * k, p->data + row * k, sizeof(float) * (size_t)k);
        } else if (p->data) {
            for (int64_t j = 0; j < k; j++) to[i * k + j] = p->data[j * p->n + row];
        } else {
            gguf_group g = {.zero = 0};
            for (int64_t j = 0; j < k; j++) {
                if (j % 32 == 0) take_group(&p->form, row, j / 32, &g);
                const float q = (float)((int)g.q[j % 32] - g.zero), y = g.scale * q;
                to[i * k + j] = p->form.minimum ? y + g.minimum : y;
            }
        }
    }
}

/* The same as the blocks of the form. */
static void take_blocks(const gguf_saver *s, const gguf_entry *e, const part *p, int64_t first,
                        int64_t n, uint8_t *to)
{
    const size_t bytes = weft__gguf_type_find(e->type->number)->bytes;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = weft__gguf_our_row(s->config, p->row->layout, first + i, p->n);
        for (int64_t b = 0; b < p->form.k / 32; b++, to += bytes) {
            gguf_group g;
            take_group(&p->form, row, b, &g);
            weft__gguf_join(e->type, &g, to);
        }
    }
}

/* Room for ROWS rows as floats and as blocks, which take no more. */
typedef struct room {
    float *floats;
    uint8_t *blocks;
} room;

static weft_status write_part(gguf_saver *s, const gguf_entry *e, const part *p, room *r,
                              file_writer *to)
{
    const gguf_type *type = weft__gguf_type_find(e->type->number);
    const int64_t k = e->shape.rank == 2 ? e->shape.dim[1] : 1;
    for (int64_t first = 0; first < p->n; first += ROWS) {
        const int64_t n = p->n - first < ROWS ? p->n - first : ROWS;
        if (e->exact) {
            take_blocks(s, e, p, first, n, r->blocks);
        } else {
            take_floats(s, p, first, n, r->floats);
            if (!weft__gguf_narrow(e->type, r->floats, r->blocks, (size_t)(n * k)))
                return weft_error_set(s->error, WEFT_BAD_ARGUMENT, p->ours,
                                      "has a number that %s cannot hold", e->type->name);
        }
        weft__file_write(to, r->blocks, (size_t)(n * k) / type->weights * type->bytes);
    }
    return WEFT_OK;
}

static weft_status write_tensor(gguf_saver *s, const gguf_entry *e, room *r, file_writer *to)
{
    static const uint8_t zeros[GGUF_ALIGNMENT];
    part parts[MAX_PARTS];
    const size_t n = find_parts(s, e, parts), bytes = weft__gguf_tensor_bytes(e);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        bool quantized;
        status = check_part(s, &parts[i], &quantized);
        if (status == WEFT_OK) status = write_part(s, e, &parts[i], r, to);
    }
    weft__file_write(to, zeros, (GGUF_ALIGNMENT - bytes % GGUF_ALIGNMENT) % GGUF_ALIGNMENT);
    return status;
}

weft_status weft__gguf_write_tensors(gguf_saver *s, file_writer *to)
{
    size_t widest = 1;
    for (size_t i = 0; i < s->n; i++)
        if (s->entries[i].shape.rank == 2 && (size_t)s->entries[i].shape.dim[1] > widest)
            widest = (size_t)s->entries[i].shape.dim[1];
    room r = {malloc(sizeof(float) * ROWS * widest), malloc(sizeof(float) * ROWS * widest)};
    weft_status status = r.floats && r.blocks ? WEFT_OK : no_memory(s);
    for (size_t i = 0; i < s->n && status == WEFT_OK; i++)
        status = write_tensor(s, &s->entries[i], &r, to);
    free(r.floats);
    free(r.blocks);
    return status;
}
