/* Batches of rows of arrays: see weft/fit.h. O(rows) an epoch, and O(elements) a batch. */
#include "batches.h"

#include <weft/fit.h>

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* An array, and the input that it is for. */
typedef struct array_input {
    weft_tensor from;
    weft_dtype dtype; /* of the input */
    size_t elements;  /* of a row */
} array_input;

struct weft_arrays {
    weft_array_options o;
    array_input inputs[WEFT_BUILT_VALUES];
    size_t n_inputs;
    size_t rows, batches; /* of an epoch */
    uint32_t *order;      /* [rows of the arrays] */
    size_t n_order;
    weft_data_hashes hashes;
};

/* ---- Checks ---- */

/* While the arrays are compared with the inputs. */
typedef struct array_check {
    const weft_fit *fit;
    const weft_array *arrays;
    size_t n;
    weft_graph *g;
    weft_built built;
    weft_error *error;
} array_check;

/* What messages call array i. */
static const char *name_of(const array_check *c, size_t i)
{
    if (c->arrays[i].name) return c->arrays[i].name;
    return i < c->built.n_inputs ? weft_name_of(c->g, c->built.inputs[i]) : "arrays";
}

static bool refuse(weft_error *error, const char *message)
{
    weft_error_set(error, WEFT_BAD_ARGUMENT, "arrays", "%s", message);
    return false;
}

/* All arrays have the same number of rows, which *rows becomes. */
static bool check_rows(const array_check *c, const weft_array_options *o, int64_t *rows)
{
    const size_t n = c->n;
    if (!n || n > WEFT_BUILT_VALUES) return refuse(c->error, "expected 1 to 8 arrays");
    if (o->rows < 1) return refuse(c->error, "rows (of a batch) is required");
    for (size_t i = 0; i < n; i++) {
        const weft_shape *s = &c->arrays[i].tensor.shape;
        *rows = c->arrays[0].tensor.shape.dim[0];
        if (s->rank < 1 || !c->arrays[i].tensor.data || s->dim[0] < 1 || s->dim[0] > UINT32_MAX)
            weft_error_set(c->error, WEFT_BAD_SHAPE, name_of(c, i),
                           "its first dimension must be 1 to 4294967295 rows");
        else if (s->dim[0] != *rows)
            weft_error_set(c->error, WEFT_BAD_SHAPE, name_of(c, i),
                           "has %lld rows, but %s has %lld", (long long)s->dim[0], name_of(c, 0),
                           (long long)*rows);
        else
            continue;
        return false;
    }
    if (*rows >= o->rows || o->in_order) return true;
    weft_error_set(c->error, WEFT_BAD_ARGUMENT, name_of(c, 0),
                   "has %lld rows, fewer than a batch of %lld", (long long)*rows,
                   (long long)o->rows);
    return false;
}

/* Builds the graph of a batch of `rows` rows. */
static bool build_graph(array_check *c, const weft_array_options *o, int64_t rows)
{
    const weft_build_options options = {.shape = {rows, o->source_len, o->target_len},
                                        .training = !o->in_order};
    const weft_builder builder = weft_fit_builder(c->fit);
    weft_graph_free(c->g);
    c->g = weft_graph_new();
    c->built = (weft_built){.n_inputs = 0};
    if (!c->g) {
        weft_error_set(c->error, WEFT_NO_MEMORY, "arrays", "out of memory");
        return false;
    }
    builder.build(builder.context, c->g, &options, &c->built);
    return weft_error_copy(c->error, weft_graph_error(c->g)) == WEFT_OK;
}

/* The dimensions after the first, without those of size 1. */
static weft_shape row_shape(weft_shape s)
{
    weft_shape row = {.rank = 0};
    for (int i = 1; i < s.rank; i++)
        if (s.dim[i] != 1) row.dim[row.rank++] = s.dim[i];
    return row;
}

static bool converts(weft_dtype from, weft_dtype to)
{
    return from == to || weft_dtype_is_float(to) || (from == WEFT_BOOL && to == WEFT_I32);
}

static bool check_array(const array_check *c, size_t i, int64_t rows)
{
    const weft_tensor *t = &c->arrays[i].tensor;
    const weft_value input = c->built.inputs[i];
    const weft_shape want = weft_shape_of(c->g, input);
    const weft_dtype dtype = weft_dtype_of(c->g, input);
    char have_text[128], want_text[128];
    if (!converts(t->dtype, dtype)) {
        weft_error_set(c->error, WEFT_BAD_DTYPE, name_of(c, i), "is %s, the input %s takes %s",
                       weft_dtype_name(t->dtype), weft_name_of(c->g, input),
                       weft_dtype_name(dtype));
        return false;
    }
    if (want.rank < 1 || want.dim[0] != rows) {
        weft_error_set(c->error, WEFT_BAD_SHAPE, weft_name_of(c->g, input),
                       "has the shape %s in a batch of %lld rows: its first dimension must be that "
                       "of the batch",
                       weft_shape_text(want, want_text, sizeof want_text), (long long)rows);
        return false;
    }
    if (weft_shape_equal(row_shape(t->shape), row_shape(want))) return true;
    weft_error_set(c->error, WEFT_BAD_SHAPE, name_of(c, i),
                   "has the shape %s, a batch of the input %s %s",
                   weft_shape_text(t->shape, have_text, sizeof have_text),
                   weft_name_of(c->g, input), weft_shape_text(want, want_text, sizeof want_text));
    return false;
}

/* The targets of a cross entropy are classes, those of bce probabilities. */
static bool check_targets(const array_check *c)
{
    const weft_tensor *t = &c->arrays[c->n - 1].tensor;
    const bool labels = c->fit->loss == WEFT_LOSS_CROSS_ENTROPY;
    if (!labels && c->fit->loss != WEFT_LOSS_BCE) return true;
    const weft_shape x = weft_shape_of(c->g, c->built.outputs[c->fit->output]);
    const int64_t classes = x.dim[c->fit->class_axis ? c->fit->class_axis : x.rank - 1];
    const int64_t n = weft_shape_numel(t->shape), of_row = n / t->shape.dim[0];
    for (int64_t i = 0; i < n; i++) {
        const double value = weft_tensor_element(t, i);
        if (value >= 0 && (labels ? value < (double)classes : value <= 1)) continue;
        if (labels)
            weft_error_set(c->error, WEFT_BAD_INDEX, name_of(c, c->n - 1),
                           "the label %.0f of row %lld is outside [0, %lld)", value,
                           (long long)(i / of_row), (long long)classes);
        else
            weft_error_set(c->error, WEFT_BAD_INDEX, name_of(c, c->n - 1),
                           "the target of row %lld is outside [0, 1]", (long long)(i / of_row));
        return false;
    }
    return true;
}

/* Compares the arrays with the inputs of a batch, and tries the size of an epoch's last batch. */
static bool check_all(array_check *c, const weft_array_options *o, int64_t total)
{
    const int64_t rows = total < o->rows ? total : o->rows, rest = total % rows;
    if (rest && !o->drop_last) {
        if (!build_graph(c, o, rest)) return false;
        for (size_t i = 0; i < c->n && i < c->built.n_inputs; i++)
            if (!check_array(c, i, rest)) return false;
    }
    if (!build_graph(c, o, rows)) return false;
    if (c->n != c->built.n_inputs) {
        weft_error_set(c->error, WEFT_BAD_ARGUMENT, c->fit->model.name,
                       "has %zu inputs with the targets, but there are %zu arrays",
                       c->built.n_inputs, c->n);
        return false;
    }
    for (size_t i = 0; i < c->n; i++)
        if (!check_array(c, i, rows)) return false;
    return check_targets(c);
}

/* ---- Batches ---- */

static weft_batch_shape source_shape(void *context, size_t index)
{
    const weft_arrays *a = context;
    const size_t first = index * (size_t)a->o.rows, rest = first < a->rows ? a->rows - first : 0;
    const int64_t rows = (int64_t)rest < a->o.rows ? (int64_t)rest : a->o.rows;
    return (weft_batch_shape){rows, a->o.source_len, a->o.target_len};
}

static void source_start(void *context, uint64_t epoch)
{
    weft_arrays *a = context;
    for (size_t i = 0; i < a->n_order; i++) a->order[i] = (uint32_t)i;
    if (!a->o.in_order) weft__batches_shuffle(a->order, a->n_order, a->o.seed, DRAW_ROWS, epoch);
}

/* Copies one row to the input's dtype. */
static void copy_row(const array_input *in, size_t row, void *to)
{
    const size_t n = in->elements, bytes = weft_dtype_bytes(in->from.dtype);
    const weft_tensor from = weft_tensor_dense((char *)in->from.data + row * n * bytes,
                                               in->from.dtype, WEFT_SHAPE((int64_t)n));
    if (in->dtype == in->from.dtype) {
        memcpy(to, from.data, n * bytes);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const double x = weft_tensor_element(&from, (int64_t)i);
        if (in->dtype == WEFT_F32) ((float *)to)[i] = (float)x;
        if (in->dtype == WEFT_F64) ((double *)to)[i] = x;
        if (in->dtype == WEFT_I32) ((int32_t *)to)[i] = (int32_t)x;
    }
}

static weft_status source_fill(void *context, size_t index, void *const *inputs, size_t *weight,
                               weft_error *error)
{
    const weft_arrays *a = context;
    const size_t rows = (size_t)source_shape(context, index).rows;
    const uint32_t *order = a->order + index * (size_t)a->o.rows;
    (void)error;
    for (size_t i = 0; i < a->n_inputs; i++) {
        const array_input *in = &a->inputs[i];
        const size_t bytes = in->elements * weft_dtype_bytes(in->dtype);
        for (size_t r = 0; r < rows; r++) copy_row(in, order[r], (char *)inputs[i] + r * bytes);
    }
    *weight = rows;
    return WEFT_OK;
}

weft_batch_source weft_arrays_source(weft_arrays *arrays)
{
    weft_batch_source s = {.shape = source_shape, .fill = source_fill, .context = arrays};
    if (!arrays) return (weft_batch_source){0};
    s.batches = arrays->batches;
    s.n_inputs = arrays->n_inputs;
    for (size_t i = 0; i < s.n_inputs; i++) s.input_dtypes[i] = arrays->inputs[i].dtype;
    s.start = source_start;
    s.hashes = arrays->hashes;
    return s;
}

/* ---- Making them ---- */

static uint64_t hash_array(uint64_t hash, const weft_tensor *t)
{
    hash = hash_number(hash, t->dtype);
    for (int i = 0; i < t->shape.rank; i++) hash = hash_number(hash, (uint64_t)t->shape.dim[i]);
    return hash_bytes(hash, t->data, weft_tensor_bytes(t->dtype, t->shape));
}

/* The last array is that of the targets. */
static void hash_all(weft_arrays *a)
{
    weft_data_hashes h = {HASH_START, HASH_START, HASH_START};
    const uint64_t numbers[] = {(uint64_t)a->o.rows, a->o.seed, a->o.in_order, a->o.drop_last};
    for (size_t i = 0; i < a->n_inputs; i++) {
        uint64_t *hash = i + 1 < a->n_inputs ? &h.source : &h.target;
        *hash = hash_array(*hash, &a->inputs[i].from);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        h.batches = hash_number(h.batches, numbers[i]);
    a->hashes = h;
}

static weft_arrays *make(const array_check *c, const weft_array_options *o, int64_t rows)
{
    weft_arrays *a = calloc(1, sizeof *a);
    uint32_t *order = calloc((size_t)rows, sizeof *order);
    if (!a || !order) {
        weft_error_set(c->error, WEFT_NO_MEMORY, "arrays", "out of memory");
        free(a);
        free(order);
        return NULL;
    }
    const size_t each = (size_t)o->rows;
    a->o = *o;
    a->order = order;
    a->n_order = (size_t)rows;
    a->batches = o->drop_last && (size_t)rows >= each ? (size_t)rows / each
                                                      : ((size_t)rows + each - 1) / each;
    a->rows = o->drop_last && (size_t)rows >= each ? a->batches * each : (size_t)rows;
    for (; a->n_inputs < c->n; a->n_inputs++) {
        const weft_tensor *t = &c->arrays[a->n_inputs].tensor;
        a->inputs[a->n_inputs] =
            (array_input){*t, weft_dtype_of(c->g, c->built.inputs[a->n_inputs]),
                          (size_t)(weft_shape_numel(t->shape) / rows)};
    }
    hash_all(a);
    source_start(a, 0);
    return a;
}

weft_arrays *weft_arrays_new(const weft_fit *fit, const weft_array *arrays, size_t n,
                             const weft_array_options *options, weft_error *error)
{
    static const weft_array_options defaults = {0};
    const weft_array_options *o = options ? options : &defaults;
    weft_error local;
    if (!error) error = &local;
    memset(error, 0, sizeof *error);
    array_check c = {.fit = fit, .arrays = arrays, .n = n, .error = error};
    weft_arrays *made = NULL;
    int64_t rows = 0;
    if (!fit || !fit->model.build || !arrays)
        refuse(error, "a model with a loss and its arrays are required");
    else if (check_rows(&c, o, &rows) && check_all(&c, o, rows))
        made = make(&c, o, rows);
    weft_graph_free(c.g);
    return made;
}

void weft_arrays_free(weft_arrays *arrays)
{
    if (!arrays) return;
    free(arrays->order);
    free(arrays);
}
