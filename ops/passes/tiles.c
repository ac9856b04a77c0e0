/* tiles: with WEFT_PRECISION_BF16_TILES, matrix products are those of matmul_tiles. Rounds differently.
 * O(nodes). */
#include "../passes.h"

#include "base/text.h"

#include <weft/ops.h>
#include <weft/plan.h>

extern const weft_op weft_op_matmul;

/* Whether a value is as large as those that are stored as bf16. */
static bool is_large(const weft_graph *g, const weft_rewrite *r, weft_value v)
{
    const int64_t least = r->options->min_narrow;
    return weft_shape_numel(weft_shape_of(g, v)) >= (least ? least : WEFT_MIN_NARROW);
}

static bool visit(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    if (r->node.op != &weft_op_matmul || r->node.role.direction == WEFT_UPDATE ||
        weft_dtype_of(g, r->in[0]) != WEFT_F32 ||
        weft__text_in_scopes(r->options->keep_f32, r->node.scope))
        return false;
    const weft_value old = weft_value_from_id(r->source, r->node.first_out);
    if (!is_large(r->source, r, old) && !is_large(g, r, r->in[0]) && !is_large(g, r, r->in[1]))
        return false;
    r->out[0] = weft_matmul_tiles(g, r->in[0], r->in[1]);
    return true;
}

static bool wanted(const weft_plan_options *options)
{
    return options->precision == WEFT_PRECISION_BF16_TILES;
}

const weft_pass weft__pass_tiles = {
    .name = "tiles",
    .doc = "matrix products of bf16 are summed by tiles",
    .visit = visit,
    .wanted = wanted,
};
