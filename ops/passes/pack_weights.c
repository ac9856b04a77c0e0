/* pack_weights: a matrix product with a matrix that stays the same in all runs reads its panels,
 * which the first run packs. O(nodes). */
#include "matmul/gemm.h"
#include "matmul/panels.h"
#include "../passes.h"
#include "terms.h"

#include <weft/ops.h>
#include <weft/plan.h>

extern const weft_op weft_op_matmul;

/* With more rows, packing in each run costs nearly nothing. With fewer columns, much of the panel
 * would be padding. */
#define MAX_ROWS    1024
#define MIN_COLUMNS 16

static bool visit(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    if (r->node.op != &weft_op_matmul) return false;
    const weft_shape a = weft_shape_of(g, r->in[0]), w = weft_shape_of(g, r->in[1]);
    if (w.rank != 2 || !terms_fixed(r, r->node.in[1]) || w.dim[1] < MIN_COLUMNS || w.dim[0] == 0 ||
        !weft__gemm_is_own(weft_dtype_of(g, r->in[0])))
        return false;
    const int64_t rows = weft_shape_numel(a) / w.dim[0];
    if (rows == 0 || rows > MAX_ROWS) return false;
    const weft_value matrix = weft_reshape(g, r->in[0], WEFT_SHAPE(rows, w.dim[0]));
    weft_shape out = a;
    out.dim[out.rank - 1] = w.dim[1];
    r->out[0] = weft_reshape(g, weft__panels_matmul(g, matrix, r->in[1]), out);
    return true;
}

/* Panels are of f32. */
static bool wanted(const weft_plan_options *options)
{
    return options->fixed_states && options->precision == WEFT_PRECISION_F32;
}

const weft_pass weft__pass_pack_weights = {
    .name = "pack_weights",
    .doc = "matrix products with a parameter pack its panels in the first run",
    .visit = visit,
    .wanted = wanted,
};
