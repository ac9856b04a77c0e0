/* Forward mode for every op at once, by two transpositions. The gradient of an op is linear in its
 * cotangent u: g(u) = J^T u. The gradient of <g(u), v> with respect to u is J v, the derivative of
 * the output along v, and does not depend on u. So the nodes of g(u) that depend on u serve only to
 * be differentiated: no target needs them, and no plan contains them. Those that do not, such as
 * the slope of an activation, are part of the result. u is NaN, and a result that depended on it
 * would be an error. O(nodes between). (Townsend 2017, "A new trick for calculating Jacobian vector
 * products".)
 *
 * A role refers each node to the node of the forward pass whose derivative it computes, and the
 * planner runs it right after that one (plan/order.c). */
#include "transform.h"

#include "scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool no_memory(weft_graph *g, const char *function)
{
    weft_graph_fail_in(g, function, WEFT_NO_MEMORY, "no memory");
    return false;
}

/* The number of value ids in use. */
static size_t value_count(const weft_graph *g)
{
    const size_t n = weft_graph_node_count(g);
    const weft_node_info last = weft_graph_node(g, n ? n - 1 : 0);
    return last.first_out + last.n_out;
}

/* ---- The first transposition ---- */

/* Fills made_by: by node, the node that its role refers to. */
static bool find_makers(linear_map *map)
{
    uint32_t origins = 0;
    map->n_nodes = weft_graph_node_count(map->graph);
    map->made_by = malloc((map->n_nodes + 1) * sizeof *map->made_by);
    for (size_t k = 0; k < map->n_nodes; k++) {
        const uint32_t origin = weft_graph_node(map->graph, k).origin;
        if (origins < origin) origins = origin;
    }
    uint32_t *first = malloc(((size_t)origins + 1) * sizeof *first); /* node of an origin */
    if (!map->made_by || !first) {
        free(first);
        return no_memory(map->graph, map->function);
    }
    memset(first, 0xff, ((size_t)origins + 1) * sizeof *first);
    for (size_t k = map->n_nodes; k-- > 0;)
        first[weft_graph_node(map->graph, k).origin] = (uint32_t)k;
    first[0] = UINT32_MAX;
    for (size_t k = 0; k < map->n_nodes; k++) {
        const uint32_t origin = weft_graph_node(map->graph, k).role.gradient_of;
        map->made_by[k] = origin <= origins ? first[origin] : UINT32_MAX;
    }
    free(first);
    return true;
}

bool weft__linear_map_open(linear_map *map, weft_graph *graph, const char *function,
                           const weft_grad_values *values)
{
    grad_purpose purpose = {function, "jvp", WEFT_FORWARD, NULL, 0};
    *map = (linear_map){
        .graph = graph, .function = function, .n_outputs = values->n_outputs, .n = values->n};
    if (weft_graph_status(graph) != WEFT_OK) return false;
    map->start = calloc(values->n_outputs + 1, sizeof *map->start);
    map->gradients = calloc(values->n + 1, sizeof *map->gradients);
    if (!map->start || !map->gradients) return no_memory(graph, function);
    const weft_role role = weft_graph_set_role(graph, (weft_role){WEFT_FORWARD, 0});
    for (size_t k = 0; values->outputs && k < values->n_outputs; k++) {
        const weft_value y = values->outputs[k];
        const bool is_float = weft_is_value(y) && weft_dtype_is_float(weft_dtype_of(graph, y));
        const size_t node = weft_producer_of(graph, y);
        weft_graph_set_role(graph, (weft_role){WEFT_FORWARD, weft_graph_node(graph, node).origin});
        /* A wrong output gets itself, for the walk to refuse. */
        map->start[k] =
            is_float ? weft_fill(graph, weft_dtype_of(graph, y), weft_shape_of(graph, y), NAN) : y;
    }
    weft_graph_set_role(graph, role);
    const weft_grad_values starts = {values->outputs, values->outputs ? map->start : NULL,
                                     values->n_outputs, values->wrt, values->n};
    weft__grad_walk(graph, &starts, map->gradients, &purpose);
    return weft_graph_status(graph) == WEFT_OK && find_makers(map);
}

void weft__linear_map_close(linear_map *map)
{
    free(map->start);
    free(map->gradients);
    free(map->made_by);
}

/* ---- The second ---- */

/* Marks the values that depend on the start; false if out of memory. */
static bool mark_dependent(const linear_map *map, uint8_t *dependent)
{
    const weft_graph *g = map->graph;
    bool good = true;
    for (size_t k = 0; k < map->n_outputs; k++) dependent[map->start[k].id] = 1;
    const size_t first = map->n_outputs ? weft_producer_of(g, map->start[0]) : SIZE_MAX;
    for (size_t k = first; good && k < weft_graph_node_count(g); k++)
        good = weft__scan_mark_dependent(g, k, dependent);
    return good;
}

/* A derivative depends on the start: names the op whose rule is not linear. It made the node of the
 * second transposition that reads a value of the first. */
static void refuse(const linear_map *map, const uint8_t *dependent, weft_value derivative)
{
    weft_graph *g = map->graph;
    weft_node_info node = weft_graph_node(g, weft_producer_of(g, derivative));
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < node.n_in && !found; i++) {
            const size_t k = weft_producer_of(g, weft_value_from_id(g, node.in[i]));
            found = dependent[node.in[i]] && k >= map->n_nodes;
            if (found) node = weft_graph_node(g, k);
        }
    }
    size_t maker = 0;
    while (maker < map->n_nodes && weft_graph_node(g, maker).origin != node.role.gradient_of)
        maker++;
    const weft_node_info made_by = weft_graph_node(g, maker);
    weft_graph_push_scope(g, "%s", node.scope);
    weft_graph_fail_in(g, made_by.op ? made_by.op->name : node.op->name, WEFT_NO_GRADIENT,
                       "the op has no forward mode: its gradient is not linear in the gradient of "
                       "its output");
    weft_graph_pop_scope(g);
}

static void check_independent(const linear_map *map, weft_value *derivatives)
{
    uint8_t *dependent = calloc(value_count(map->graph) + 1, 1);
    if (!dependent || !mark_dependent(map, dependent)) no_memory(map->graph, map->function);
    for (size_t k = 0; weft_graph_status(map->graph) == WEFT_OK && k < map->n_outputs; k++)
        if (dependent[derivatives[k].id]) refuse(map, dependent, derivatives[k]);
    free(dependent);
}

void weft__linear_map_transpose(const linear_map *map, const weft_value *tangents,
                                weft_value *derivatives)
{
    grad_purpose purpose = {map->function, "jvp", WEFT_FORWARD, map->made_by, 0};
    weft__grad_walk(
        map->graph,
        &(weft_grad_values){map->gradients, tangents, map->n, map->start, map->n_outputs},
        derivatives, &purpose);
    if (weft_graph_status(map->graph) == WEFT_OK) check_independent(map, derivatives);
}

/* ---- Products ---- */

void weft_jvp(weft_graph *graph, const weft_value *outputs, size_t n_outputs, const weft_value *wrt,
              const weft_value *tangents, size_t n, weft_value *derivatives)
{
    static const char *const words[] = {"tangent", "wrt"};
    linear_map map = {.graph = NULL};
    clear_values(derivatives, n_outputs);
    if (weft_graph_status(graph) != WEFT_OK) return;
    if ((n && !tangents) || (n_outputs && !derivatives)) {
        weft_graph_fail_in(graph, "weft_jvp", WEFT_BAD_ARGUMENT,
                           "the list of tangents or derivatives is NULL");
        return;
    }
    if (weft__linear_map_open(&map, graph, "weft_jvp",
                              &(weft_grad_values){outputs, NULL, n_outputs, wrt, n}) &&
        weft__grad_same_types(graph, "weft_jvp", words, tangents, wrt, n))
        weft__linear_map_transpose(&map, tangents, derivatives);
    weft__linear_map_close(&map);
    if (weft_graph_status(graph) != WEFT_OK) clear_values(derivatives, n_outputs);
}

void weft_hvp(weft_graph *graph, weft_value loss, const weft_value *wrt, const weft_value *vectors,
              size_t n, weft_value *products)
{
    static const char *const words[] = {"vector", "wrt"};
    clear_values(products, n);
    if (weft_graph_status(graph) != WEFT_OK) return;
    if (n && (!wrt || !vectors || !products)) {
        weft_graph_fail_in(graph, "weft_hvp", WEFT_BAD_ARGUMENT,
                           "the list of wrt, vectors or products is NULL");
        return;
    }
    weft_value *grads = calloc(n + 1, sizeof *grads);
    if (!grads) {
        no_memory(graph, "weft_hvp");
        return;
    }
    /* The Hessian is symmetric, so the gradient of <gradient, vector> is the product. */
    weft__grad_of_loss(graph, "weft_hvp", loss, wrt, n, grads);
    if (weft_graph_status(graph) == WEFT_OK &&
        weft__grad_same_types(graph, "weft_hvp", words, vectors, wrt, n))
        weft__grad_walk(graph, &(weft_grad_values){grads, vectors, n, wrt, n}, products,
                        &GRAD_REVERSE("weft_hvp"));
    free(grads);
    if (weft_graph_status(graph) != WEFT_OK) clear_values(products, n);
}
