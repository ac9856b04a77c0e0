/* The parameter store: tensors by name, in order of addition, found through a hash table. */
#include "params.h"

#include <stdlib.h>
#include <string.h>

weft_params *weft_params_new(void)
{
    return calloc(1, sizeof(weft_params));
}

void weft_params_free(weft_params *params)
{
    if (!params) return;
    for (size_t i = 0; i < params->n; i++) free(params->params[i].name);
    arena_free(&params->data);
    for (size_t i = 0; i < params->n_meta; i++) {
        free(params->metas[i].key);
        free(params->metas[i].text);
    }
    free(params->params);
    free(params->index);
    free(params->metas);
    free(params);
}

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static uint32_t *slot_of(const weft_params *params, const char *name)
{
    size_t mask = params->index_capacity - 1, i = weft_hash_text(name) & mask;
    while (params->index[i] && strcmp(params->params[params->index[i] - 1].name, name) != 0)
        i = (i + 1) & mask;
    return &params->index[i];
}

static void rebuild_index(weft_params *params)
{
    if (!params->index) return;
    memset(params->index, 0, params->index_capacity * sizeof *params->index);
    for (size_t i = 0; i < params->n; i++)
        *slot_of(params, params->params[i].name) = (uint32_t)i + 1;
}

void params_truncate(weft_params *params, size_t n)
{
    while (params->n > n) {
        param *p = &params->params[--params->n];
        free(p->name);
        if (!p->shared) arena_cut(&params->data, p->tensor.data);
    }
    rebuild_index(params);
}

static bool grow(weft_params *params)
{
    if (params->n == params->capacity) {
        size_t capacity = params->capacity ? 2 * params->capacity : 32;
        param *grown = realloc(params->params, capacity * sizeof *grown);
        if (!grown) return false;
        params->params = grown;
        params->capacity = capacity;
    }
    if (2 * (params->n + 1) > params->index_capacity) {
        size_t capacity = params->index_capacity ? 2 * params->index_capacity : 64;
        uint32_t *grown = calloc(capacity, sizeof *grown);
        if (!grown) return false;
        free(params->index);
        params->index = grown;
        params->index_capacity = capacity;
        rebuild_index(params);
    }
    return true;
}

weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                            weft_shape shape, weft_tensor *tensor, weft_error *error)
{
    char have[128], want[128];
    int64_t numel = weft_shape_numel(shape);
    /* __metadata__ is what the files call something else. */
    if (!params || !name || !name[0] || !strcmp(name, "__metadata__") || numel < 0 ||
        (size_t)dtype >= WEFT_DTYPES)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name && name[0] ? name : "params",
                              "a tensor of the store needs a name other than __metadata__, a "
                              "dtype and a valid shape");
    weft_tensor old;
    if (weft_params_get(params, name, &old)) {
        if (old.dtype != dtype || !weft_shape_equal(old.shape, shape))
            return weft_error_set(
                error, WEFT_BAD_SHAPE, name, "the store has %s %s, wanted %s %s",
                weft_dtype_name(old.dtype), weft_shape_text(old.shape, have, sizeof have),
                weft_dtype_name(dtype), weft_shape_text(shape, want, sizeof want));
        if (tensor) *tensor = old;
        return WEFT_OK;
    }
    size_t bytes = (size_t)numel * weft_dtype_bytes(dtype);
    char *copy = grow(params) ? copy_text(name) : NULL;
    void *data = copy ? arena_alloc(&params->data, bytes) : NULL;
    if (!data) {
        free(copy);
        return weft_error_set(error, WEFT_NO_MEMORY, name, "no memory for %zu bytes", bytes);
    }
    params->params[params->n] = (param){copy, weft_tensor_dense(data, dtype, shape), false};
    *slot_of(params, copy) = (uint32_t)++params->n;
    if (tensor) *tensor = params->params[params->n - 1].tensor;
    return WEFT_OK;
}

weft_status weft_params_share(weft_params *params, const weft_params *from, weft_error *error)
{
    if (!params || !from || params == from)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "params", "two stores are needed");
    size_t before = params->n;
    for (size_t i = 0; i < from->n; i++) {
        const char *name = from->params[i].name;
        bool there = weft_params_get(params, name, NULL);
        char *copy = !there && grow(params) ? copy_text(name) : NULL;
        if (!copy) {
            params_truncate(params, before);
            return there ? weft_error_set(error, WEFT_BAD_ARGUMENT, name, "is in both stores")
                         : weft_error_set(error, WEFT_NO_MEMORY, name, "no memory");
        }
        params->params[params->n] = (param){copy, from->params[i].tensor, true};
        *slot_of(params, copy) = (uint32_t)++params->n;
    }
    return WEFT_OK;
}

bool weft_params_get(const weft_params *params, const char *name, weft_tensor *tensor)
{
    if (!params || !name || !params->index_capacity) return false;
    uint32_t at = *slot_of(params, name);
    if (at && tensor) *tensor = params->params[at - 1].tensor;
    return at != 0;
}

size_t weft_params_count(const weft_params *params)
{
    return params ? params->n : 0;
}

const char *weft_params_name(const weft_params *params, size_t index)
{
    return params && index < params->n ? params->params[index].name : NULL;
}

weft_status weft_params_init(weft_params *params, const weft_graph *graph, uint64_t seed,
                             weft_error *error)
{
    const weft_error *e = weft_graph_error(graph);
    if (e->status != WEFT_OK) return weft_error_set(error, e->status, e->where, "%s", e->message);
    if (!params) return weft_error_set(error, WEFT_BAD_ARGUMENT, "params", "the store is NULL");
    size_t before = params->n;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const node_record *node = &graph->nodes[i];
        if (node->op != &weft_op_state) continue;
        const weft_state_attr *attr = node->attr;
        const char *name = graph->values[node->first_out].name;
        weft_tensor tensor;
        size_t n = params->n;
        weft_status status =
            weft_params_add(params, name, attr->dtype, attr->shape, &tensor, error);
        if (status != WEFT_OK) {
            params_truncate(params, before);
            return status;
        }
        bool zeros = attr->init.kind == WEFT_INIT_CONSTANT && attr->init.a == 0;
        if (params->n > n && !zeros)
            weft_init_fill(&attr->init, attr->dtype, attr->shape, seed, name, tensor.data);
    }
    return WEFT_OK;
}

weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text)
{
    if (!params || !key || !text) return WEFT_BAD_ARGUMENT;
    char *new_text = copy_text(text);
    if (!new_text) return WEFT_NO_MEMORY;
    for (size_t i = 0; i < params->n_meta; i++) {
        if (strcmp(params->metas[i].key, key) != 0) continue;
        free(params->metas[i].text);
        params->metas[i].text = new_text;
        return WEFT_OK;
    }
    char *new_key = copy_text(key);
    meta *grown = new_key ? realloc(params->metas, (params->n_meta + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(new_text);
        free(new_key);
        return WEFT_NO_MEMORY;
    }
    params->metas = grown;
    params->metas[params->n_meta++] = (meta){new_key, new_text};
    return WEFT_OK;
}

const char *weft_params_meta(const weft_params *params, const char *key)
{
    for (size_t i = 0; params && key && i < params->n_meta; i++)
        if (!strcmp(params->metas[i].key, key)) return params->metas[i].text;
    return NULL;
}
