/* Bodies of loops as graphs of their own. A value from outside of such a body becomes an input of it,
 * unless it is a small constant. Weights are parameters of the model's graph. */
#include "onnx/import.h"

/* The maximum number of elements of a constant that a body gets a copy of. */
#define MAX_COPIED 64

/* Makes the graph of the region, or the one around it, that which is being built. */
static void step_in(onnx_import *import, onnx_region *region)
{
    memcpy(region->label, import->label, sizeof region->label);
    import->label[0] = 0;
    import->graph = region->graph;
    import->region = region;
}

static void step_out(onnx_import *import, onnx_region *region)
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
    step_in(import, region);
    return true;
}

void weft__region_leave(onnx_import *import, onnx_region *region)
{
    step_out(import, region);
}

weft_value weft__region_input(const onnx_region *region, weft_dtype dtype, weft_shape shape)
{
    char name[32];
    snprintf(name, sizeof name, "in%zu", weft_graph_node_count(region->graph));
    return weft_input(region->graph, name, dtype, shape);
}

/* The input that stands for a value of the graph around. */
static weft_value capture(onnx_import *import, onnx_region *r, weft_value from)
{
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

/* A constant of which a body gets a copy. */
static bool is_copied(const onnx_value *v)
{
    return v->known && !v->weight && !v->trainable &&
           weft_shape_numel(v->tensor.shape) <= MAX_COPIED;
}

weft_value weft__region_value(onnx_import *import, onnx_value *value)
{
    onnx_region *region = import->region;
    if (weft__import_failed(import) || !weft__import_contents(import, value)) return WEFT_NO_VALUE;
    if (is_copied(value))
        return weft_constant(import->graph, value->tensor.dtype, value->tensor.shape,
                             value->tensor.data);
    char label[ONNX_SCOPE_BYTES];
    memcpy(label, import->label, sizeof label);
    step_out(import, region);
    const weft_value from = weft__import_value(import, value);
    step_in(import, region);
    weft__import_label(import, label);
    return weft__import_failed(import) ? WEFT_NO_VALUE : capture(import, region, from);
}

onnx_value *weft__region_operand(onnx_import *import, onnx_value *value)
{
    onnx_value size = {.name = value->name, .value = value->size, .region = value->region};
    if (!weft_is_value(value->size) && !weft_is_value(value->whole) && !weft_is_value(value->exact))
        return value;
    onnx_value *own = weft__arena_alloc(&import->memory, sizeof *own);
    if (!own) {
        weft__import_fail(import, WEFT_NO_MEMORY, value->name, "no memory for a value");
        return NULL;
    }
    *own = *value;
    own->whole = own->exact = WEFT_NO_VALUE;
    if (weft_is_value(value->size)) own->size = weft__region_value(import, &size);
    return own;
}
