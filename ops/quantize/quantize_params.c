/* Stores of which matrices are quantised or in f32 again (dequantize_params.c), and making one with
 * quantised matrices. Which matrices these are follows from a graph: O(nodes) for each of them,
 * besides quantising. */
#include "quantize.h"

#include "passes/unroll.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WHERE       "weft_params_quantize"
#define LOOKUP_BITS 8 /* of a table that is looked up only: few of its rows are read */

extern const weft_op weft_op_matmul, weft_op_matmul_shared, weft_op_permute, weft_op_embedding;

/* ---- Uses of states ---- */

static weft_node_info producer_of(const weft_graph *graph, weft_value value)
{
    return weft_graph_node(graph, weft_producer_of(graph, value));
}

bool weft__quantized_use_of(const weft_graph *graph, const weft_node_info *node, quantized_use *use)
{
    const bool lookup = node->op == &weft_op_embedding;
    if (!lookup && node->op != &weft_op_matmul && node->op != &weft_op_matmul_shared) return false;
    const weft_value w = weft_value_from_id(graph, node->in[lookup ? 0 : 1]);
    if (weft_dtype_of(graph, w) != WEFT_F32 || weft_rank_of(graph, w) != 2) return false;
    weft_node_info from = producer_of(graph, w);
    const int64_t rows = weft_dim_of(graph, w, 0), columns = weft_dim_of(graph, w, 1);
    *use = (quantized_use){.state = w, .lookup = lookup, .by_rows = lookup};
    use->n = lookup ? rows : columns;
    use->k = lookup ? columns : rows;
    if (!lookup && from.op == &weft_op_permute) {
        const weft_layout layout = weft_layout_of(graph, w);
        use->by_rows = layout.stride[0] == 1 && layout.stride[1] == use->k;
        use->state = weft_value_from_id(graph, from.in[0]);
        from = producer_of(graph, use->state);
        if (!use->by_rows) return false;
    }
    return from.op == &weft_op_state;
}

/* How a value is read, transposed or not. */
typedef struct readers {
    bool others; /* nodes that need it in f32 */
    bool product_with_rows;
} readers;

static readers readers_of(const weft_graph *graph, uint32_t id)
{
    readers r = {false, false};
    for (size_t i = 0; i < weft_graph_node_count(graph); i++) {
        const weft_node_info node = weft_graph_node(graph, i);
        quantized_use use;
        for (size_t k = 0; k < node.n_in; k++) {
            if (node.in[k] != id) continue;
            const bool used =
                weft__quantized_use_of(graph, &node, &use) && k == (use.lookup ? 0 : 1);
            if (used) {
                r.product_with_rows |= use.by_rows && !use.lookup;
            } else if (node.op == &weft_op_permute) {
                const readers view = readers_of(graph, node.first_out);
                r.others |= view.others;
                r.product_with_rows |= view.product_with_rows;
            } else {
                r.others = true;
            }
        }
    }
    return r;
}

const char *weft__quantized_name(char name[QUANTIZED_NAME], const char *state, bool by_rows,
                                 const char *tensor)
{
    const int n = snprintf(name, QUANTIZED_NAME, "%s%s.%s", state, by_rows ? ".rows" : "", tensor);
    return n > 0 && n < QUANTIZED_NAME ? name : NULL;
}

bool weft_params_are_quantized(const weft_params *params)
{
    char other[QUANTIZED_NAME];
    weft_tensor t;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        const char *name = weft_params_name(params, i);
        const size_t n = strlen(name);
        if (n < 3 || n >= sizeof other - 8 || strcmp(name + n - 2, ".q") != 0) continue;
        snprintf(other, sizeof other, "%.*s.scale", (int)(n - 2), name);
        if (weft_params_find(params, name, &t) && t.dtype == WEFT_U8 &&
            weft_params_find(params, other, NULL))
            return true;
    }
    return false;
}

weft_status weft__quantized_refuse(const weft_params *params, const char *where, weft_error *error)
{
    if (!weft_params_are_quantized(params)) return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                          "is quantised, expected parameters in f32");
}

/* ---- Stores ---- */

static bool copy_others(quantized_change *c)
{
    weft_tensor from, to;
    for (size_t i = 0; i < weft_params_count(c->params); i++) {
        const char *name = weft_params_name(c->params, i);
        if (c->replaced[i] || !weft_params_find(c->params, name, &from)) continue;
        const size_t bytes = weft_tensor_bytes(from.dtype, from.shape);
        if (weft_params_add(c->out, name, from.dtype, from.shape, &to, c->error) != WEFT_OK)
            return false;
        if (bytes) memcpy(to.data, from.data, bytes);
    }
    return weft_params_copy_meta(c->out, c->params, c->error) == WEFT_OK;
}

static bool take_all(quantized_change *c)
{
    const weft_params_filter *f = c->filter && c->filter->selects ? c->filter : NULL;
    for (size_t i = 0; i < weft_graph_node_count(c->graph); i++) {
        const weft_node_info node = weft_graph_node(c->graph, i);
        quantized_use use;
        if (!weft__quantized_use_of(c->graph, &node, &use)) continue;
        if (f && !f->selects(f->context, weft_name_of(c->graph, use.state))) continue;
        if (!c->take(c, &use)) return false;
    }
    return true;
}

weft_params *weft__quantized_change(quantized_change *c, const char *where)
{
    if (!c->params || !c->graph) {
        weft_error_set(c->error, WEFT_BAD_ARGUMENT, where, "the store or the graph is NULL");
        return NULL;
    }
    if (weft_graph_status(c->graph) != WEFT_OK) {
        weft_error_copy(c->error, weft_graph_error(c->graph));
        return NULL;
    }
    weft_error failed = WEFT_NO_ERROR;
    weft_graph *steps = weft__unroll_copy(c->graph, &failed); /* products in loops count as well */
    if (weft_error_copy(c->error, &failed) != WEFT_OK) return NULL;
    if (steps) c->graph = steps;
    c->out = weft_params_new();
    c->replaced = calloc(weft_params_count(c->params) + 1, sizeof *c->replaced);
    bool good = c->out && c->replaced;
    if (!good) weft_error_set(c->error, WEFT_NO_MEMORY, where, "out of memory");
    good = good && take_all(c) && copy_others(c);
    free(c->replaced);
    weft_graph_free(steps);
    if (good) return c->out;
    weft_params_free(c->out);
    return NULL;
}

/* ---- Quantising ---- */

typedef struct quantizer {
    quantized_change *change;
    int bits, group;
    weft_quantize_report report;
    weft_error *error;
} quantizer;

/* The rows that are quantised: those of the state, or of its transpose. */
static float *rows_of(const quantizer *z, const quantized_use *use, const weft_tensor *w)
{
    float *rows = malloc((size_t)(use->n * use->k) * sizeof *rows + 1);
    const float *from = w->data;
    if (!rows) {
        weft_error_set(z->error, WEFT_NO_MEMORY, WHERE, "out of memory");
        return NULL;
    }
    if (use->by_rows) return memcpy(rows, from, (size_t)(use->n * use->k) * sizeof *rows);
    for (int64_t i = 0; i < use->k; i++)
        for (int64_t j = 0; j < use->n; j++) rows[j * use->k + i] = from[i * use->n + j];
    return rows;
}

/* The square root of the sum of squares of the errors over that of the elements. Fills `rows` with
 * the dequantised elements. */
static double error_of(const quantized_use *use, const weft_tensor *w,
                       const weft_quantized_matrix *m, float *rows)
{
    const float *from = w->data;
    double error = 0, all = 0;
    weft_dequantize(m, rows, NULL);
    for (int64_t j = 0; j < use->n; j++)
        for (int64_t i = 0; i < use->k; i++) {
            const int64_t at = use->by_rows ? j * use->k + i : i * use->n + j;
            const double x = (double)from[at], off = (double)rows[j * use->k + i] - x;
            error += off * off;
            all += x * x;
        }
    return all > 0 ? sqrt(error / all) : 0;
}

/* Adds the tensors of a matrix to the new store and sets the arrays of *m. */
static bool add_tensors(quantizer *z, const char *name, const quantized_use *use,
                        weft_quantized_matrix *m)
{
    char full[QUANTIZED_NAME];
    const int64_t groups = m->columns / m->group;
    weft_tensor t[3];
    const struct {
        const char *tensor;
        weft_dtype dtype;
        weft_shape shape;
    } parts[3] = {{"q", WEFT_U8, WEFT_SHAPE(m->rows, m->columns * m->bits / 8)},
                  {"scale", WEFT_F32, WEFT_SHAPE(m->rows, groups)},
                  {"zero", WEFT_U8, WEFT_SHAPE(m->rows, groups)}};
    for (int i = 0; i < 3; i++) {
        if (!weft__quantized_name(full, name, use->by_rows, parts[i].tensor)) {
            weft_error_set(z->error, WEFT_TOO_LARGE, name, "the name is too long");
            return false;
        }
        if (weft_params_add(z->change->out, full, parts[i].dtype, parts[i].shape, &t[i],
                            z->error) != WEFT_OK)
            return false;
    }
    m->q = t[0].data;
    m->scale = t[1].data;
    m->zero = t[2].data;
    return true;
}

static bool quantize_state(quantizer *z, const char *name, const quantized_use *use, int bits,
                           const weft_tensor *w)
{
    weft_quantized_matrix m = {.rows = use->n, .columns = use->k, .bits = bits, .group = z->group};
    float *rows = rows_of(z, use, w);
    bool good =
        rows && add_tensors(z, name, use, &m) && weft_quantize(rows, &m, z->error) == WEFT_OK;
    if (good) {
        const double error = error_of(use, w, &m, rows);
        weft_quantize_report *r = &z->report;
        if (!r->matrices || error > r->max_error) {
            r->max_error = error;
            snprintf(r->max_error_name, sizeof r->max_error_name, "%s", name);
        }
        r->matrices++;
        r->parameters += (double)(use->n * use->k);
    }
    free(rows);
    return good;
}

static size_t index_of(const weft_params *params, const char *name)
{
    size_t i = 0;
    while (strcmp(weft_params_name(params, i), name) != 0) i++;
    return i;
}

/* Quantises the state of a use, unless an earlier one did. */
static bool take_use(quantized_change *c, const quantized_use *use)
{
    char full[QUANTIZED_NAME], have[128], want[128];
    quantizer *z = c->context;
    const char *name = weft_name_of(c->graph, use->state);
    const weft_shape shape = weft_shape_of(c->graph, use->state);
    weft_tensor w;
    if (weft__quantized_name(full, name, use->by_rows, "q") && weft_params_find(c->out, full, NULL))
        return true;
    if (!weft_params_find(c->params, name, &w)) {
        weft_error_set(z->error, WEFT_NOT_FOUND, name, "is not in the parameter store");
        return false;
    }
    if (w.dtype != WEFT_F32 || !weft_shape_equal(w.shape, shape)) {
        weft_error_set(z->error, WEFT_BAD_SHAPE, name,
                       "the parameter store has %s %s, the graph f32 %s", weft_dtype_name(w.dtype),
                       weft_shape_text(w.shape, have, sizeof have),
                       weft_shape_text(shape, want, sizeof want));
        return false;
    }
    const size_t at = index_of(c->params, name);
    if (use->k % z->group || use->k == 0 || use->n == 0) {
        z->report.left++;
        return true;
    }
    const readers r = readers_of(c->graph, use->state.id);
    const bool looked_up_only = use->by_rows && !r.product_with_rows;
    if (!quantize_state(z, name, use, looked_up_only ? LOOKUP_BITS : z->bits, &w)) return false;
    c->replaced[at] = !r.others;
    z->report.kept += r.others;
    return true;
}

/* Of all tensors. */
static double bytes_of(const weft_params *params)
{
    double bytes = 0;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        weft_tensor t;
        if (weft_params_find(params, weft_params_name(params, i), &t))
            bytes += (double)weft_tensor_bytes(t.dtype, t.shape);
    }
    return bytes;
}

weft_params *weft_params_quantize(const weft_params *params, const weft_graph *graph,
                                  const weft_quantize_options *options,
                                  weft_quantize_report *report, weft_error *error)
{
    static const weft_quantize_options defaults = {0};
    const weft_quantize_options *o = options ? options : &defaults;
    char text[64];
    quantizer z = {
        .bits = o->bits ? o->bits : 8, .group = o->group ? o->group : 32, .error = error};
    quantized_change change = {.params = params,
                               .graph = graph,
                               .filter = o->filter,
                               .take = take_use,
                               .context = &z,
                               .error = error};
    z.change = &change;
    weft_error_clear(error);
    if (weft__quantized_check(z.bits, z.group, WHERE, error) != WEFT_OK) return NULL;
    if (weft__quantized_refuse(params, "the store", error) != WEFT_OK) return NULL;
    weft_params *out = weft__quantized_change(&change, WHERE);
    snprintf(text, sizeof text, "bits=%d group=%d", z.bits, z.group);
    if (out && weft_params_set_meta(out, "quantization", text, error) != WEFT_OK) {
        weft_params_free(out);
        out = NULL;
    }
    z.report.bytes_before = bytes_of(params);
    z.report.bytes_after = bytes_of(out);
    if (report) *report = z.report;
    return out;
}
