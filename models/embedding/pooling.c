/* Vectors of texts, of the vectors of their tokens. */
#include <weft/embed.h>

#include <weft/ops.h>

#include <math.h>

/* The number of tokens of each row, [rows, 1]. */
static weft_value count_tokens(weft_graph *g, weft_value padding, weft_dtype dtype)
{
    const weft_value tokens = weft_cast(g, weft_logical_not(g, padding), dtype);
    return weft_sum(g, tokens, WEFT_AXES(1), true);
}

weft_value weft_pool_tokens(weft_graph *graph, weft_value x, weft_value padding,
                            weft_pooling pooling)
{
    weft_graph *g = graph;
    if (pooling == WEFT_POOL_FIRST) return weft_squeeze(g, weft_slice(g, x, 1, 0, 1, 1), 1);
    const bool max = pooling == WEFT_POOL_MAX;
    const weft_value tokens =
        weft_masked_fill(g, x, weft_expand_dims(g, padding, -1), max ? -INFINITY : 0);
    if (max) return weft_max(g, tokens, WEFT_AXES(1), false);
    weft_value n = count_tokens(g, padding, weft_dtype_of(g, x));
    if (pooling == WEFT_POOL_ROOT) n = weft_sqrt(g, n);
    return weft_div(g, weft_sum(g, tokens, WEFT_AXES(1), false), n);
}

weft_value weft_unit_norm(weft_graph *graph, weft_value x)
{
    weft_graph *g = graph;
    const weft_value norm = weft_sqrt(g, weft_sum(g, weft_square(g, x), WEFT_AXES(-1), true));
    const weft_value least = weft_cast(g, weft_scalar(g, WEFT_F64, 1e-12), weft_dtype_of(g, x));
    return weft_div(g, x, weft_maximum(g, norm, least));
}
