/* Parts of states: cut out of the whole states in a store, and joined to whole states again.
 * O(elements). */
#include <weft/distributed.h>

#include "store/init.h"
#include "store/params.h"

#include <stdlib.h>
#include <string.h>

/* The state that node i of a graph declares; false if the node is not a state. */
static bool state_at(const weft_graph *g, size_t i, const char **name, const weft_state_attr **attr)
{
    const node_record *node = &g->nodes[i];
    if (node->op != &weft_op_state) return false;
    *name = g->values[node->first_out].name;
    *attr = node->attr;
    return true;
}

/* Copies a part out of a whole, or into it. */
static void copy_part(const weft_state_attr *a, const weft_part *part, weft_shape shape, char *own,
                      char *whole, bool into)
{
    const size_t each = weft_dtype_bytes(a->dtype);
    const part_runs runs = weft__part_runs_of(part, shape);
    const size_t bytes = (size_t)runs.length * each;
    for (int64_t i = 0; bytes && i < runs.rows; i++) {
        char *at = whole + (size_t)(i * runs.stride + runs.offset) * each;
        memcpy(into ? at : own + (size_t)i * bytes, into ? own + (size_t)i * bytes : at, bytes);
    }
}

static weft_status check_graph(const void *a, const void *b, const weft_graph *graph,
                               const char *where, weft_error *error)
{
    if (!a || !b) return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "two stores are needed");
    return weft_error_copy(error, weft_graph_error(graph));
}

/* Finds the whole of a state; the result has no data if there is none. */
static weft_status find_whole(const weft_params *whole, const char *name, const weft_state_attr *a,
                              weft_tensor *t, weft_error *error)
{
    char have[128], want[128];
    const weft_shape shape = weft__part_whole(&a->part, a->shape);
    *t = (weft_tensor){.data = NULL};
    if (!weft_params_find(whole, name, t) ||
        (t->dtype == a->dtype && weft_shape_equal(t->shape, shape)))
        return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_SHAPE, name, "is %s %s in the store, expected %s %s",
                          weft_dtype_name(t->dtype), weft_shape_text(t->shape, have, sizeof have),
                          weft_dtype_name(a->dtype), weft_shape_text(shape, want, sizeof want));
}

weft_status weft_params_take_parts(weft_params *params, const weft_graph *graph,
                                   const weft_params *whole, weft_error *error)
{
    weft_error_clear(error);
    const char *name;
    const weft_state_attr *a;
    weft_tensor from, to;
    weft_status status = check_graph(params, whole, graph, "weft_params_take_parts", error);
    for (size_t i = 0; status == WEFT_OK && i < graph->n_nodes; i++) {
        if (!state_at(graph, i, &name, &a)) continue;
        status = find_whole(whole, name, a, &from, error);
        if (status != WEFT_OK || !from.data) continue;
        status = weft_params_add(params, name, a->dtype, a->shape, &to, error);
        if (status == WEFT_OK) copy_part(a, &a->part, a->shape, to.data, from.data, false);
    }
    return status;
}

/* Copies the tensors that the filter selects and `to` lacks. */
static weft_status copy_selected(weft_params *to, const weft_params *from,
                                 const weft_params_filter *filter, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; filter && filter->selects && status == WEFT_OK && i < from->n; i++) {
        const param *p = &from->params[i];
        weft_tensor copy;
        if (!filter->selects(filter->context, p->name) || weft_params_find(to, p->name, NULL))
            continue;
        status = weft_params_add(to, p->name, p->tensor.dtype, p->tensor.shape, &copy, error);
        if (status == WEFT_OK) memcpy(copy.data, p->tensor.data, param_bytes(p));
    }
    return status;
}

weft_status weft_params_keep_parts(weft_params *params, const weft_graph *graph,
                                   const weft_params_filter *also, weft_error *error)
{
    weft_error_clear(error);
    weft_params *own = weft__params_like(params);
    if (!own) return weft_error_set(error, WEFT_NO_MEMORY, "weft_params_keep_parts", "no memory");
    weft_status status = weft_params_take_parts(own, graph, params, error);
    if (status == WEFT_OK) status = copy_selected(own, params, also, error);
    if (status == WEFT_OK) weft__params_swap_tensors(params, own);
    weft_params_free(own);
    return status;
}

/* ---- Joining ---- */

/* A rank's part of a state. */
typedef struct own_part {
    int64_t first, count; /* along the axis */
} own_part;

typedef struct joining {
    weft_communicator *communicator;
    own_part *parts; /* [size], of one state */
    size_t *bytes;   /* [size] */
    char *room;      /* for the parts of all ranks */
} joining;

/* Adds the wholes to the store, and allocates for the largest. */
static weft_status prepare(joining *j, weft_params *whole, const weft_graph *graph,
                           const weft_params *params, weft_error *error)
{
    const size_t size = (size_t)j->communicator->size;
    const char *name;
    const weft_state_attr *a;
    size_t most = 0;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        weft_tensor own;
        if (!state_at(graph, i, &name, &a)) continue;
        const weft_shape shape = weft__part_whole(&a->part, a->shape);
        if (!weft_params_find(params, name, &own))
            return weft_error_set(error, WEFT_NOT_FOUND, name,
                                  "is missing in the store of the parts");
        if (own.dtype != a->dtype || !weft_shape_equal(own.shape, a->shape))
            return weft_error_set(error, WEFT_BAD_SHAPE, name,
                                  "has a different shape or dtype in the graph");
        const weft_status status = weft_params_add(whole, name, a->dtype, shape, NULL, error);
        if (status != WEFT_OK) return status;
        const size_t bytes = weft_tensor_bytes(a->dtype, shape);
        if (a->part.whole && bytes > most) most = bytes;
    }
    j->parts = calloc(size, sizeof *j->parts);
    j->bytes = calloc(size, sizeof *j->bytes);
    j->room = malloc(most + 1);
    if (j->parts && j->bytes && j->room) return WEFT_OK;
    return weft_error_set(error, WEFT_NO_MEMORY, "weft_params_join_parts", "out of memory");
}

/* Gathers where the parts of a state lie, and checks that they follow each other from the first
 * element of the whole to its last. */
static weft_status gather_parts(joining *j, const char *name, const weft_state_attr *a,
                                weft_error *error)
{
    const own_part own = {a->part.first, a->shape.dim[a->part.axis]};
    const weft_status status =
        weft_communicator_gather(j->communicator, &own, sizeof own, j->parts, error);
    int64_t end = 0;
    for (int r = 0; status == WEFT_OK && r < j->communicator->size; r++) {
        if (j->parts[r].first != end || j->parts[r].count > a->part.whole - end)
            return weft_error_set(error, WEFT_BAD_SHAPE, name,
                                  "rank %d has elements %lld to %lld of axis %d, expected from "
                                  "%lld on and %lld at most",
                                  r, (long long)j->parts[r].first,
                                  (long long)j->parts[r].first + (long long)j->parts[r].count,
                                  a->part.axis, (long long)end, (long long)a->part.whole);
        end += j->parts[r].count;
    }
    if (status == WEFT_OK && end != a->part.whole)
        return weft_error_set(error, WEFT_BAD_SHAPE, name,
                              "the ranks have %lld elements of axis %d, the whole has %lld",
                              (long long)end, a->part.axis, (long long)a->part.whole);
    return status;
}

static weft_status join(joining *j, const char *name, const weft_state_attr *a, const void *own,
                        char *whole, weft_error *error)
{
    weft_shape shape = a->shape;
    weft_status status = gather_parts(j, name, a, error);
    if (status != WEFT_OK) return status;
    for (int r = 0; r < j->communicator->size; r++) {
        shape.dim[a->part.axis] = j->parts[r].count;
        j->bytes[r] = weft_tensor_bytes(a->dtype, shape);
    }
    const weft_exchange x = {
        .kind = WEFT_ALL_GATHER, .send = own, .receive = j->room, .receive_bytes = j->bytes};
    status = weft_communicator_run(j->communicator, &x, error);
    char *from = j->room;
    for (int r = 0; status == WEFT_OK && r < j->communicator->size; from += j->bytes[r++]) {
        const weft_part part = {a->part.axis, j->parts[r].first, a->part.whole};
        shape.dim[a->part.axis] = j->parts[r].count;
        copy_part(a, &part, shape, from, whole, true);
    }
    return status;
}

static weft_status join_all(joining *j, weft_params *whole, const weft_graph *graph,
                            const weft_params *params, weft_error *error)
{
    const char *name;
    const weft_state_attr *a;
    weft_tensor own, to;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (!state_at(graph, i, &name, &a) || !weft_params_find(params, name, &own) ||
            !weft_params_find(whole, name, &to))
            continue;
        const weft_status status =
            a->part.whole ? join(j, name, a, own.data, to.data, error) : WEFT_OK;
        if (status != WEFT_OK) return status;
        if (!a->part.whole) copy_part(a, &a->part, a->shape, own.data, to.data, true);
    }
    return WEFT_OK;
}

weft_status weft_params_join_parts(weft_params *whole, const weft_graph *graph,
                                   const weft_params *params, weft_communicator *communicator,
                                   weft_error *error)
{
    weft_error_clear(error);
    weft_error own = WEFT_NO_ERROR;
    joining j = {.communicator = communicator};
    if (!communicator)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_params_join_parts",
                              "the communicator is NULL");
    if (check_graph(whole, params, graph, "weft_params_join_parts", &own) == WEFT_OK)
        prepare(&j, whole, graph, params, &own);
    weft_status status = weft_communicator_agree(communicator, &own, error);
    if (status == WEFT_OK) status = join_all(&j, whole, graph, params, error);
    free(j.parts);
    free(j.bytes);
    free(j.room);
    return status;
}
