/* Bodies of loops as graphs of their own. A value from outside of such a body becomes an input of it,
 * unless it is a small constant. Weights are parameters of the model's graph. */
#include "onnx/import.h"

void weft__region_resume(onnx_import *import, onnx_region *region)
{
    memcpy(region->label, import->label, sizeof region->label);
    import->label[0] = 0;
    import->graph = region->graph;
    import->region = region;
}

void weft__region_leave(onnx_import *import, onnx_region *region)
{
    weft__import_label(import, "");
    import->graph = region->around;
    import->region = region->outer;
    memcpy(import->label, region->label, sizeof import->label);
}

bool weft__region_enter(onnx_import *import, onnx_region *region)
{
    *region =
        (onnx_region){.outer = import->region, .graph = weft_graph_new(), .around = import->graph};
    if (!region->graph) {
        weft__import_fail(import, WEFT_NO_MEMORY, "weft_onnx", "no memory for the graph of a body");
        return false;
    }
    weft__region_resume(import, region);
    return true;
}

bool weft__region_is_random(const onnx_region *region)
{
    for (size_t i = 0; i < weft_graph_node_count(region->graph); i++)
        if (weft_graph_node(region->graph, i).op->random) return true;
    return false;
}

weft_value weft__region_input(const onnx_region *region, weft_dtype dtype, weft_shape shape)
{
    char name[32];
    snprintf(name, sizeof name, "in%zu", weft_graph_node_count(region->graph));
    return weft_input(region->graph, name, dtype, shape);
}

weft_value weft__region_capture(onnx_import *import, weft_value from)
{
    onnx_region *r = import->region;
    if (!weft_is_value(from)) return from;
    for (size_t i = 0; i < r->n; i++)
        if (r->captured[i].id == from.id) return r->captures[i];
    if (r->n == r->capacity) {
        const size_t capacity = r->capacity ? 2 * r->capacity : 16;
        weft_value *grown = weft__arena_alloc(&import->memory, 2 * capacity * sizeof *grown);
        if (!grown) {
            weft__import_fail(import, WEFT_NO_MEMORY, "weft_onnx", "no memory for a body");
            return WEFT_NO_VALUE;
        }
        if (r->n) memcpy(grown, r->captured, r->n * sizeof *grown);
        if (r->n) memcpy(grown + capacity, r->captures, r->n * sizeof *grown);
        r->captured = grown;
        r->captures = grown + capacity;
        r->capacity = capacity;
    }
    r->captured[r->n] = from;
    r->captures[r->n] =
        weft__region_input(r, weft_dtype_of(r->around, from), weft_shape_of(r->around, from));
    return r->captures[r->n++];
}
