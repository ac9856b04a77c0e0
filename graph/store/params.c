/* The parameter store: tensors in order of addition, found by name through a hash table with linear
 * probing, which doubles when half full. O(1) a look-up; data never move. */
#include "params.h"
#include "init.h"

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
    free(params->names.slots);
    free(params->keys.slots);
    free(params->metas);
    free(params);
}

char *params_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* ---- Elements by name ---- */

static const char *name_at(const void *items, size_t stride, size_t i)
{
    return *(char *const *)(const void *)((const char *)items + i * stride);
}

/* The slot of a name, or the empty one that it would take; the index must have slots. */
static uint32_t *slot_of(const name_index *index, const void *items, size_t stride,
                         const char *name)
{
    size_t mask = index->capacity - 1, i = weft_hash_text(name) & mask;
    while (index->slots[i] && strcmp(name_at(items, stride, index->slots[i] - 1), name) != 0)
        i = (i + 1) & mask;
    return &index->slots[i];
}

static void rebuild(name_index *index, const void *items, size_t stride, size_t n)
{
    if (!index->slots) return;
    memset(index->slots, 0, index->capacity * sizeof *index->slots);
    for (size_t i = 0; i < n; i++)
        *slot_of(index, items, stride, name_at(items, stride, i)) = (uint32_t)i + 1;
}

/* Grows an index of the first n elements until `wanted` fit; false when memory is out. */
static bool grow_index(name_index *index, const void *items, size_t stride, size_t n, size_t wanted)
{
    size_t capacity = index->capacity ? index->capacity : 64;
    while (capacity / 2 < wanted) capacity *= 2;
    if (capacity == index->capacity) return true;
    uint32_t *slots = wanted < UINT32_MAX ? calloc(capacity, sizeof *slots) : NULL;
    if (!slots) return false;
    free(index->slots);
    *index = (name_index){slots, capacity};
    rebuild(index, items, stride, n);
    return true;
}

/* Grows an array, whose capacity doubles, until `wanted` elements fit; NULL when memory is out. */
static void *grow_array(void *items, size_t stride, size_t *capacity, size_t wanted)
{
    size_t room = *capacity ? *capacity : 32;
    while (room < wanted) room *= 2;
    if (room == *capacity) return items;
    void *grown = room <= SIZE_MAX / stride ? realloc(items, room * stride) : NULL;
    if (grown) *capacity = room;
    return grown;
}

static uint32_t *param_slot(const weft_params *params, const char *name)
{
    return slot_of(&params->names, params->params, sizeof *params->params, name);
}

static uint32_t *meta_slot(const weft_params *params, const char *key)
{
    return slot_of(&params->keys, params->metas, sizeof *params->metas, key);
}

void params_truncate(weft_params *params, size_t n)
{
    while (params->n > n) {
        param *p = &params->params[--params->n];
        free(p->name);
        if (!p->shared) arena_truncate(&params->data, p->tensor.data);
    }
    rebuild(&params->names, params->params, sizeof *params->params, params->n);
}

void params_swap_tensors(weft_params *a, weft_params *b)
{
    const weft_params was = *a;
    a->params = b->params;
    a->n = b->n;
    a->capacity = b->capacity;
    a->data = b->data;
    a->names = b->names;
    b->params = was.params;
    b->n = was.n;
    b->capacity = was.capacity;
    b->data = was.data;
    b->names = was.names;
}

/* Makes room for one more tensor; false when memory is out. */
static bool grow(weft_params *params)
{
    param *grown =
        grow_array(params->params, sizeof *params->params, &params->capacity, params->n + 1);
    if (!grown) return false;
    params->params = grown;
    return grow_index(&params->names, grown, sizeof *grown, params->n, params->n + 1);
}

/* ---- Tensors ---- */

weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                            weft_shape shape, weft_tensor *tensor, weft_error *error)
{
    char have[128], want[128];
    int64_t numel = weft_shape_numel(shape);
    /* In files, __metadata__ is the name of the metadata. */
    if (!params || !name || !name[0] || !strcmp(name, "__metadata__") || numel < 0 ||
        (size_t)dtype >= WEFT_DTYPES)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name && name[0] ? name : "params",
                              "a tensor of the store needs a name other than __metadata__, a "
                              "dtype and a valid shape");
    weft_tensor old;
    if (weft_params_get(params, name, &old)) {
        if (old.dtype != dtype || !weft_shape_equal(old.shape, shape))
            return weft_error_set(
                error, WEFT_BAD_SHAPE, name, "is %s %s in the store, wanted is %s %s",
                weft_dtype_name(old.dtype), weft_shape_text(old.shape, have, sizeof have),
                weft_dtype_name(dtype), weft_shape_text(shape, want, sizeof want));
        if (tensor) *tensor = old;
        return WEFT_OK;
    }
    size_t bytes = weft_tensor_bytes(dtype, shape);
    char *copy = grow(params) ? params_copy_text(name) : NULL;
    void *data = copy ? arena_alloc(&params->data, bytes) : NULL;
    if (!data) {
        free(copy);
        return weft_error_set(error, WEFT_NO_MEMORY, name, "no memory for %zu bytes", bytes);
    }
    params->params[params->n] = (param){copy, weft_tensor_dense(data, dtype, shape), false};
    *param_slot(params, copy) = (uint32_t)++params->n;
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
        char *copy = !there && grow(params) ? params_copy_text(name) : NULL;
        if (!copy) {
            params_truncate(params, before);
            return there ? weft_error_set(error, WEFT_BAD_ARGUMENT, name, "is in both stores")
                         : weft_error_set(error, WEFT_NO_MEMORY, name, "no memory");
        }
        params->params[params->n] = (param){copy, from->params[i].tensor, true};
        *param_slot(params, copy) = (uint32_t)++params->n;
    }
    return WEFT_OK;
}

bool weft_params_get(const weft_params *params, const char *name, weft_tensor *tensor)
{
    if (!params || !name || !params->names.capacity) return false;
    uint32_t at = *param_slot(params, name);
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
    if (e->status != WEFT_OK) return weft_error_copy(error, e);
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
            weft_init_fill(&attr->init, attr->dtype, attr->shape, &attr->part, seed, name,
                           tensor.data);
    }
    return WEFT_OK;
}

/* ---- Metadata ---- */

bool params_reserve_metas(weft_params *params, size_t more)
{
    size_t wanted = params->n_meta + more;
    meta *grown = grow_array(params->metas, sizeof *params->metas, &params->meta_capacity, wanted);
    if (!grown) return false;
    params->metas = grown;
    return grow_index(&params->keys, grown, sizeof *grown, params->n_meta, wanted);
}

void params_move_metas(weft_params *to, weft_params *from)
{
    for (size_t i = 0; i < from->n_meta; i++) {
        meta *m = &from->metas[i];
        uint32_t *at = meta_slot(to, m->key);
        if (!*at) {
            to->metas[to->n_meta] = (meta){NULL, NULL};
            *at = (uint32_t)++to->n_meta;
        }
        meta old = to->metas[*at - 1];
        to->metas[*at - 1] = *m;
        *m = old;
    }
}

weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text)
{
    if (!params || !key || !text) return WEFT_BAD_ARGUMENT;
    char *new_text = params_copy_text(text);
    if (!new_text || !params_reserve_metas(params, 1)) {
        free(new_text);
        return WEFT_NO_MEMORY;
    }
    uint32_t *at = meta_slot(params, key);
    if (*at) {
        free(params->metas[*at - 1].text);
        params->metas[*at - 1].text = new_text;
        return WEFT_OK;
    }
    char *new_key = params_copy_text(key);
    if (!new_key) {
        free(new_text);
        return WEFT_NO_MEMORY;
    }
    params->metas[params->n_meta] = (meta){new_key, new_text};
    *at = (uint32_t)++params->n_meta;
    return WEFT_OK;
}

const char *weft_params_meta(const weft_params *params, const char *key)
{
    if (!params || !key || !params->keys.capacity) return NULL;
    uint32_t at = *meta_slot(params, key);
    return at ? params->metas[at - 1].text : NULL;
}

weft_status weft_params_copy_meta(weft_params *to, const weft_params *from)
{
    weft_status status = to && from ? WEFT_OK : WEFT_BAD_ARGUMENT;
    for (size_t i = 0; status == WEFT_OK && i < from->n_meta; i++)
        status = weft_params_set_meta(to, from->metas[i].key, from->metas[i].text);
    return status;
}
