/* Matrix products with a matrix whose columns lie in panels:
 *
 *     panels[p, i, j] = w[i, p PANEL + j], zeros beyond the last column.
 *
 * Packing the matrix does not pay for one product of few rows. It pays for the hundred products of
 * a recurrent layer's steps, or for a parameter that many runs share. So it is a node of its own.
 * The product is that of kernels/panel_kernel.h, whose bits depend on neither threads nor rows, and
 * are those of matmul. */
#include "panels.h"

#include "kernels/panel_kernel.h"

/* ---- Tiles of matmul_panels ---- */

/* Rows of a tile, of tiles_m tiles. */
static inline int64_t tile_rows(int64_t m, const panel_tiles *t)
{
    return ceil_div(ceil_div(m, t->tiles_m), GEMM_EVEN_ROWS) * GEMM_EVEN_ROWS;
}

/* Tiles of the same rows are neighbours. */
static inline weft_block block_at(const weft_call *call, int64_t tile)
{
    const int64_t m = call->out[0].shape.dim[0], n = call->out[0].shape.dim[1];
    if (m == 0 || n == 0) return (weft_block){0, 0, 0, 0};
    const panel_tiles t = panel_tiles_of(m, call->in[0].shape.dim[1], n);
    const int64_t rows = tile_rows(m, &t);
    weft_block b = {.row = tile / t.tiles_n * rows, .column = tile % t.tiles_n * t.tile_n};
    b.rows = m - b.row < rows ? m - b.row : rows;
    b.columns = n - b.column < t.tile_n ? n - b.column : t.tile_n;
    return b;
}

#ifdef WEFT_KERNEL_ISA

KERNEL(panels)
{
    const weft_tensor *w = &call->in[0];
    const int64_t k = w->shape.dim[0], n = w->shape.dim[1], first = tile * PANEL;
    const int64_t columns = n - first < PANEL ? n - first : PANEL;
    const int64_t row = w->stride[0], column = w->stride[1];
    const T *from = (const T *)w->data + first * column;
    T *to = (T *)call->out[0].data + tile * k * PANEL;
    if (columns < PANEL) memset(to, 0, (size_t)(k * PANEL) * sizeof *to);
    /* A few columns at a time: in a transposed matrix each column is contiguous. */
    for (int64_t j = 0; j < columns; j += 8) {
        const int64_t end = j + 8 < columns ? j + 8 : columns;
        for (int64_t i = 0; i < k; i++)
            for (int64_t c = j; c < end; c++) to[i * PANEL + c] = from[i * row + c * column];
    }
}

KERNEL(matmul_panels)
{
    const weft_tensor *a = &call->in[0], *c = &call->out[0];
    const int64_t k = a->shape.dim[1], n = c->shape.dim[1], row = a->stride[0];
    const weft_block b = block_at(call, tile);
    panel_tile(&(panel_task){.a = (const T *)a->data + b.row * row,
                             .images = 1,
                             .lines = 1,
                             .width = b.rows,
                             .a_row = row,
                             .runs = {.run = k, .taps = 1},
                             .depth = k,
                             .panels = (const T *)call->in[1].data + b.column * k,
                             .columns = b.columns,
                             .more = b.column + b.columns < n,
                             .c = (T *)c->data + b.row * n + b.column,
                             .c_row = n});
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

/* With more rows, matmul packs the matrix itself at little cost. */
#define MAX_ROWS 192

extern const weft_op weft_op_matmul_shared;

static bool infer_panels(weft_infer *infer)
{
    char text[128];
    weft_shape w = infer->in[0].shape;
    if (!weft_infer_float(infer, 0)) return false;
    if (w.rank != 2)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "takes a matrix, got %s",
                               weft_shape_text(w, text, sizeof text));
    infer->out[0] =
        (weft_type){infer->in[0].dtype, WEFT_SHAPE(panel_count(w.dim[1]), w.dim[0], PANEL)};
    return true;
}

static int64_t tiles_panels(const weft_call *call)
{
    return panel_count(call->in[0].shape.dim[1]);
}

static bool infer_matmul_panels(weft_infer *infer)
{
    char a[128], b[128];
    const panels_attr *attr = infer->attr;
    weft_shape x = infer->in[0].shape, panels = infer->in[1].shape;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    if (x.rank != 2 || panels.rank != 3 || panels.dim[1] != x.dim[1] || panels.dim[2] != PANEL ||
        attr->columns < 0 || panel_count(attr->columns) != panels.dim[0])
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s times panels %s of %lld columns",
                               weft_shape_text(x, a, sizeof a),
                               weft_shape_text(panels, b, sizeof b), (long long)attr->columns);
    infer->out[0] = (weft_type){infer->in[0].dtype, WEFT_SHAPE(x.dim[0], attr->columns)};
    return true;
}

static int64_t tiles_matmul_panels(const weft_call *call)
{
    const int64_t m = call->out[0].shape.dim[0], n = call->out[0].shape.dim[1];
    if (m == 0 || n == 0) return 0;
    const panel_tiles t = panel_tiles_of(m, call->in[0].shape.dim[1], n);
    return ceil_div(m, tile_rows(m, &t)) * t.tiles_n;
}

static void block_matmul_panels(const weft_call *call, int64_t tile, weft_block *block)
{
    *block = block_at(call, tile);
}

/* Of matmul_panels and of matmul_shared. */
static void cost_of_product(const weft_call *call, weft_cost *cost)
{
    double m = (double)call->in[0].shape.dim[0], k = (double)call->in[0].shape.dim[1];
    double n = (double)call->out[0].shape.dim[1];
    cost->flops = 2 * m * k * n;
    cost->bytes = (m * k + k * n + m * n) * (double)weft_dtype_bytes(call->out[0].dtype);
}

weft_value weft__panels_matmul(weft_graph *graph, weft_value a, weft_value w)
{
    const panels_attr attr = {weft_dim_of(graph, w, 1)};
    weft_value in[2] = {a, weft_apply(graph, &weft_op_panels, NULL, &w, 1, NULL)};
    return weft_apply(graph, &weft_op_matmul_panels, &attr, in, 2, NULL);
}

/* ---- matmul_shared, which models use ---- */

static bool infer_shared(weft_infer *infer)
{
    char ta[128], tb[128];
    weft_shape a = infer->in[0].shape, w = infer->in[1].shape;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    if (a.rank != 2 || w.rank != 2 || a.dim[1] != w.dim[0])
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s times %s: expected [m, k] times [k, n]",
                               weft_shape_text(a, ta, sizeof ta),
                               weft_shape_text(w, tb, sizeof tb));
    infer->out[0] = (weft_type){infer->in[0].dtype, WEFT_SHAPE(a.dim[0], w.dim[1])};
    return true;
}

static void expand_shared(weft_expand *e)
{
    weft_graph *g = e->graph;
    weft_value a = e->in[0], w = e->in[1];
    if (weft_dim_of(g, a, 0) > MAX_ROWS) {
        e->out[0] = weft_matmul(g, a, w);
        return;
    }
    e->out[0] = weft__panels_matmul(g, a, w);
}

static void vjp_shared(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value a = v->in[0], w = v->in[1], dy = v->grad_out[0];
    if (v->wanted[0]) v->grad_in[0] = weft_matmul_shared(g, dy, weft_transpose(g, w, 0, 1));
    if (v->wanted[1]) v->grad_in[1] = weft_matmul(g, weft_transpose(g, a, 0, 1), dy);
}

/* ---- C ---- */

static void source_panels(weft_source *s)
{
    const weft_tensor *w = &s->in[0];
    const weft_source_arg args[] = {
        WEFT_ARG_IN(0),  WEFT_ARG_INT(w->stride[0]),    WEFT_ARG_INT(w->stride[1]),
        WEFT_ARG_OUT(0), WEFT_ARG_INT(w->shape.dim[0]), WEFT_ARG_INT(w->shape.dim[1])};
    weft_source_call_of(s, "panels", args, 6);
}

static void source_matmul_panels(weft_source *s)
{
    const weft_shape *a = &s->in[0].shape;
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(a->dim[0]),
                                    WEFT_ARG_INT(s->out[0].shape.dim[1]),
                                    WEFT_ARG_INT(a->dim[1])};
    weft_source_call_of(s, "matmul_panels", args, 6);
}

static const panels_attr columns_40 = {40}, columns_3 = {3};
static const weft_sample samples_panels[] = {
    {NULL, 1, {UNIT_FLOATS({2, {3, 40}})}},
    {NULL, 1, {UNIT_FLOATS({2, {2, 32}})}},
    {NULL, 1, {UNIT_FLOATS({2, {0, 5}})}},
};
static const weft_sample samples_matmul_panels[] = {
    {&columns_40, 2, {UNIT_FLOATS({2, {27, 5}}), UNIT_FLOATS({3, {2, 5, PANEL}})}},
    {&columns_3, 2, {UNIT_FLOATS({2, {2, 4}}), UNIT_FLOATS({3, {1, 4, PANEL}})}},
    {&columns_3, 2, {UNIT_FLOATS({2, {2, 0}}), UNIT_FLOATS({3, {1, 0, PANEL}})}},
};
static const weft_sample samples_matmul_shared[] = {
    {NULL, 2, {UNIT_FLOATS({2, {5, 4}}), UNIT_FLOATS({2, {4, 35}})}},
    {NULL, 2, {UNIT_FLOATS({2, {193, 2}}), UNIT_FLOATS({2, {2, 3}})}},
    {NULL, 2, {UNIT_FLOATS({2, {0, 2}}), UNIT_FLOATS({2, {2, 3}})}},
};
static const weft_attr_field matmul_panels_fields[] = {
    {"columns", WEFT_ATTR_INT64, offsetof(panels_attr, columns)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(panels);
const weft_op weft_op_panels = {
    .name = "panels",
    .doc = "y [panels, k, 32] from w [k, n]: 32 columns side by side, zeros beyond the last; part "
           "of the expansion of matmul_shared.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_panels,
    .kernel = FLOAT_KERNELS(panels),
    .takes = WEFT_TAKES_ANY,
    .tiles = tiles_panels,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_panels,
    .samples = samples_panels,
    .n_samples = sizeof samples_panels / sizeof *samples_panels,
};
DECLARE_KERNELS(matmul_panels);
const weft_op weft_op_matmul_panels = {
    .name = "matmul_panels",
    .doc = "y [m, n] = a [m, k] times the matrix [k, n] whose panels are given.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(panels_attr),
    .attrs = matmul_panels_fields,
    .infer = infer_matmul_panels,
    .kernel = FLOAT_KERNELS(matmul_panels),
    .takes = WEFT_TAKES_DENSE, /* the panels, and the rows of a could be anywhere */
    .tiles = tiles_matmul_panels,
    .block = block_matmul_panels,
    .cost = cost_of_product,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_matmul_panels,
    .samples = samples_matmul_panels,
    .n_samples = sizeof samples_matmul_panels / sizeof *samples_matmul_panels,
};
static void onnx_matmul_shared(weft_export *e)
{
    weft_export_same(e, "MatMul");
    e->note = true; /* for the packing, which a plain product repeats */
}

const weft_op weft_op_matmul_shared = {
    .name = "matmul_shared",
    .doc = "y [m, n] = a [m, k] w [k, n], for a w that many products of few rows share: it is "
           "packed once a run.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer_shared,
    .cost = cost_of_product,
    .expand = expand_shared,
    .batch = weft__batch_first,
    .onnx = onnx_matmul_shared,
    .vjp = vjp_shared,
    .samples = samples_matmul_shared,
    .n_samples = sizeof samples_matmul_shared / sizeof *samples_matmul_shared,
};

weft_value weft_matmul_shared(weft_graph *graph, weft_value a, weft_value w)
{
    return weft_apply(graph, &weft_op_matmul_shared, NULL, (weft_value[]){a, w}, 2, NULL);
}

#endif
