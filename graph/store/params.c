/* The parameter store: tensors in order of addition, found by name. O(1) a look-up; data never
 * move. */
#include "params.h"
#include "init.h"

#include "base/match.h"
#include "base/pages.h"

#include <stdlib.h>
#include <string.h>

weft_params *weft_params_new(void)
{
    return calloc(1, sizeof(weft_params));
}

weft_params *weft_params_new_with(const weft_params_options *options, weft_error *error)
{
    const weft_allocator *from = options ? options->allocator : NULL;
    weft_error_clear(error);
    if (!weft__allocator_valid(from)) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "params",
                       "the allocator needs both allocate and release");
        return NULL;
    }
    weft_params *params = weft_params_new();
    if (!params) weft_error_set(error, WEFT_NO_MEMORY, "params", "no memory");
    if (params && from) params->data.from = *from;
    return params;
}

weft_params *weft__params_like(const weft_params *params)
{
    weft_params *like = weft_params_new();
    if (like && params) like->data.from = params->data.from;
    return like;
}

void weft_params_free(weft_params *params)
{
    if (!params) return;
    for (size_t i = 0; i < params->n; i++) free(params->params[i].name);
    weft__arena_free(&params->data);
    for (size_t i = 0; i < params->n_meta; i++) {
        free(params->metas[i].key);
        free(params->metas[i].text);
    }
    free(params->params);
    weft__name_table_free(&params->names);
    weft__name_table_free(&params->keys);
    free(params->metas);
    free(params->source);
    free(params);
}

char *weft__params_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

/* ---- Room and removal ---- */

/* Grows an array, whose capacity doubles, until `wanted` elements fit; NULL if out of memory. */
static void *grow_array(void *items, size_t stride, size_t *capacity, size_t wanted)
{
    size_t room = *capacity ? *capacity : 32;
    while (room < wanted) room *= 2;
    if (room == *capacity) return items;
    void *grown = room <= SIZE_MAX / stride ? realloc(items, room * stride) : NULL;
    if (grown) *capacity = room;
    return grown;
}

void weft__params_truncate(weft_params *params, size_t n)
{
    while (params->n > n) {
        param *p = &params->params[--params->n];
        free(p->name);
        if (!p->shared) weft__arena_truncate(&params->data, p->tensor.data);
    }
    /* There is room for them: there was for more. */
    weft__name_table_clear(&params->names);
    for (size_t i = 0; i < params->n; i++)
        weft__name_table_put(&params->names, params->params[i].name, i);
}

void weft__params_swap_tensors(weft_params *a, weft_params *b)
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

/* Makes room for one more tensor; false if out of memory. */
static bool grow(weft_params *params)
{
    param *grown =
        grow_array(params->params, sizeof *params->params, &params->capacity, params->n + 1);
    if (!grown) return false;
    params->params = grown;
    return weft__name_table_reserve(&params->names, 1);
}

/* ---- Tensors ---- */

/* Smaller tensors are not worth a call of the system. */
#define RELEASED_BYTES 65536

weft_status weft__params_check(const weft_params *params, const char *name, weft_error *error)
{
    const size_t *at = params && name ? weft__name_table_find(&params->names, name) : NULL;
    if (!at || !params->params[*at].released) return WEFT_OK;
    return weft_error_set(error, WEFT_NOT_FOUND, name,
                          "has no numbers: a session has given its memory back (release_states)");
}

weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                            weft_shape shape, weft_tensor *tensor, weft_error *error)
{
    weft_error_clear(error);
    char have[128], want[128];
    int64_t numel = weft_shape_numel(shape);
    /* In files, __metadata__ is the name of the metadata. */
    if (!params || !name || !name[0] || !strcmp(name, "__metadata__") || numel < 0 ||
        (size_t)dtype >= WEFT_DTYPES)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name && name[0] ? name : "params",
                              "a tensor of the store needs a name other than __metadata__, a "
                              "dtype and a valid shape");
    weft_tensor old;
    if (weft_params_find(params, name, &old)) {
        if (old.dtype != dtype || !weft_shape_equal(old.shape, shape))
            return weft_error_set(
                error, WEFT_BAD_SHAPE, name, "is %s %s in the store, expected %s %s",
                weft_dtype_name(old.dtype), weft_shape_text(old.shape, have, sizeof have),
                weft_dtype_name(dtype), weft_shape_text(shape, want, sizeof want));
        if (tensor) *tensor = old;
        return WEFT_OK;
    }
    if (weft__params_check(params, name, error) != WEFT_OK) return WEFT_NOT_FOUND;
    size_t bytes = weft_tensor_bytes(dtype, shape);
    char *copy = grow(params) ? weft__params_copy_text(name) : NULL;
    params->data.misaligned = false;
    void *data = copy ? weft__arena_alloc(&params->data, bytes) : NULL;
    if (!data) {
        free(copy);
        if (params->data.misaligned)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, name,
                                  "the allocator's memory is not 64-byte aligned");
        return weft_error_set(error, WEFT_NO_MEMORY, name, "no memory for %zu bytes", bytes);
    }
    params->params[params->n] = (param){.name = copy,
                                        .key = weft_state_key_read(copy),
                                        .tensor = weft_tensor_dense(data, dtype, shape),
                                        .fixed = params->data.from.allocate};
    weft__name_table_put(&params->names, copy, params->n++);
    if (tensor) *tensor = params->params[params->n - 1].tensor;
    return WEFT_OK;
}

weft_status weft__params_lend(weft_params *params, const char *name, const weft_tensor *tensor,
                              bool fixed, weft_error *error)
{
    if (weft_params_find(params, name, NULL))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name, "is in the store");
    if (weft__params_check(params, name, error) != WEFT_OK) return WEFT_NOT_FOUND;
    if ((uintptr_t)tensor->data % 64 != 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name, "is not 64-byte aligned");
    char *copy = grow(params) ? weft__params_copy_text(name) : NULL;
    if (!copy) return weft_error_set(error, WEFT_NO_MEMORY, name, "no memory");
    params->params[params->n] = (param){.name = copy,
                                        .key = weft_state_key_read(copy),
                                        .tensor = *tensor,
                                        .shared = true,
                                        .fixed = fixed};
    weft__name_table_put(&params->names, copy, params->n++);
    return WEFT_OK;
}

weft_status weft_params_share(weft_params *params, const weft_params *from, weft_error *error)
{
    weft_error_clear(error);
    if (!params || !from || params == from)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "params", "two stores are needed");
    size_t before = params->n;
    for (size_t i = 0; i < from->n; i++) {
        const char *name = from->params[i].name;
        weft_status status =
            weft_params_find(params, name, NULL)
                ? weft_error_set(error, WEFT_BAD_ARGUMENT, name, "is in both stores")
                : weft__params_check(from, name, error);
        if (status == WEFT_OK)
            status = weft__params_lend(params, name, &from->params[i].tensor, true, error);
        if (status == WEFT_OK) continue;
        weft__params_truncate(params, before);
        return status;
    }
    return WEFT_OK;
}

bool weft_params_find(const weft_params *params, const char *name, weft_tensor *tensor)
{
    const size_t *at = params && name ? weft__name_table_find(&params->names, name) : NULL;
    if (!at || params->params[*at].released) return false;
    if (tensor) *tensor = params->params[*at].tensor;
    return true;
}

bool weft__params_release(weft_params *params, const char *name)
{
    const size_t *at = weft__name_table_find(&params->names, name);
    param *p = at ? &params->params[*at] : NULL;
    if (!p || p->fixed || p->released || param_bytes(p) < RELEASED_BYTES) return false;
    weft__os_forget(p->tensor.data, param_bytes(p));
    p->released = true;
    return true;
}

size_t weft_params_count(const weft_params *params)
{
    return params ? params->n : 0;
}

const char *weft_params_name(const weft_params *params, size_t index)
{
    return params && index < params->n ? params->params[index].name : NULL;
}

weft_state_key weft_params_key(const weft_params *params, size_t index)
{
    return params && index < params->n ? params->params[index].key : weft_state_key_read(NULL);
}

const char *weft_params_source(const weft_params *params)
{
    return params ? params->source : NULL;
}

/* ---- First contents ---- */

/* Adds one state, unless it is there. */
static weft_status add_state(weft_params *params, const char *name, const weft_state_attr *attr,
                             uint64_t seed, weft_error *error)
{
    weft_tensor tensor;
    const size_t n = params->n;
    weft_status status = weft_params_add(params, name, attr->dtype, attr->shape, &tensor, error);
    const bool zeros = attr->init.kind == WEFT_INIT_CONSTANT && attr->init.a == 0;
    if (status == WEFT_OK && params->n > n && !zeros)
        weft_init_fill(&attr->init, attr->dtype, attr->shape, &attr->part, seed, name, tensor.data);
    return status;
}

/* Fails with the names of the states that the store lacks and the filter does not select. */
static weft_status check_states(const weft_params *params, const weft_value *states, size_t n,
                                const weft_graph *graph, const weft_params_filter *filter,
                                weft_error *error)
{
    char text[300];
    name_match lacks;
    size_t n_wanted = 0, n_found = 0;
    const char **wanted = malloc((2 * n + 1) * sizeof *wanted), **found = wanted + n;
    for (size_t i = 0; wanted && i < n; i++) {
        const char *name = weft_name_of(graph, states[i]);
        const bool has = weft_params_find(params, name, NULL);
        if (!has && params_selects(filter, name)) continue;
        wanted[n_wanted++] = name;
        if (has) found[n_found++] = name;
    }
    const bool good = wanted && weft__match_names(&lacks, wanted, n_wanted, found, n_found);
    weft_status status =
        good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "params", "no memory");
    if (good && lacks.n_missing) {
        weft__match_text(&lacks, "states", text, sizeof text);
        status = weft_error_set(error, WEFT_NOT_FOUND, params->source ? params->source : "params",
                                "%s", text);
    }
    if (good) weft__match_free(&lacks);
    free(wanted);
    return status;
}

static weft_status add_states(weft_params *params, const weft_graph *graph,
                              const weft_params_filter *filter, uint64_t seed, weft_error *error)
{
    size_t n;
    const size_t before = params->n;
    const weft_value *states = weft_graph_states(graph, &n);
    weft_status status = filter ? check_states(params, states, n, graph, filter, error) : WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        const weft_state_attr *attr = graph->nodes[weft_producer_of(graph, states[i])].attr;
        status = add_state(params, weft_name_of(graph, states[i]), attr, seed, error);
    }
    if (status != WEFT_OK) weft__params_truncate(params, before);
    return status;
}

static bool selects_none(void *context, const char *name)
{
    (void)context;
    (void)name;
    return false;
}

weft_status weft_params_init_some(weft_params *params, const weft_graph *graph,
                                  const weft_params_filter *filter, uint64_t seed,
                                  weft_error *error)
{
    weft_error_clear(error);
    const weft_error *e = weft_graph_error(graph);
    if (e->status != WEFT_OK) return weft_error_copy(error, e);
    if (!params) return weft_error_set(error, WEFT_BAD_ARGUMENT, "params", "the store is NULL");
    return add_states(params, graph, filter, seed, error);
}

weft_status weft_params_init(weft_params *params, const weft_graph *graph, uint64_t seed,
                             weft_error *error)
{
    static const weft_params_filter nothing = {.selects = selects_none};
    return weft_params_init_some(params, graph, weft_params_source(params) ? &nothing : NULL, seed,
                                 error);
}

/* ---- Metadata ---- */

bool weft__params_reserve_metas(weft_params *params, size_t more)
{
    size_t wanted = params->n_meta + more;
    meta *grown = grow_array(params->metas, sizeof *params->metas, &params->meta_capacity, wanted);
    if (!grown) return false;
    params->metas = grown;
    return weft__name_table_reserve(&params->keys, more);
}

void weft__params_move_metas(weft_params *to, weft_params *from)
{
    for (size_t i = 0; i < from->n_meta; i++) {
        meta *m = &from->metas[i];
        const size_t at = *weft__name_table_put(&to->keys, m->key, to->n_meta);
        meta *own = &to->metas[at];
        if (at == to->n_meta) {
            to->n_meta++;
            *own = *m;
            *m = (meta){NULL, NULL};
        } else { /* the text alone: the table has the key */
            char *text = own->text;
            own->text = m->text;
            m->text = text;
        }
    }
}

static weft_status no_memory(const char *key, weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, key, "no memory for the metadata");
}

weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text,
                                 weft_error *error)
{
    weft_error_clear(error);
    if (!params || !key || !text)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "params",
                              "the store, a key or a text is NULL");
    char *new_text = weft__params_copy_text(text);
    if (!new_text || !weft__params_reserve_metas(params, 1)) {
        free(new_text);
        return no_memory(key, error);
    }
    const size_t *at = weft__name_table_find(&params->keys, key);
    if (at) {
        free(params->metas[*at].text);
        params->metas[*at].text = new_text;
        return WEFT_OK;
    }
    char *new_key = weft__params_copy_text(key);
    if (!new_key) {
        free(new_text);
        return no_memory(key, error);
    }
    params->metas[params->n_meta] = (meta){new_key, new_text};
    weft__name_table_put(&params->keys, new_key, params->n_meta++);
    return WEFT_OK;
}

const char *weft_params_meta(const weft_params *params, const char *key)
{
    const size_t *at = params && key ? weft__name_table_find(&params->keys, key) : NULL;
    return at ? params->metas[*at].text : NULL;
}

weft_status weft_params_copy_meta(weft_params *to, const weft_params *from, weft_error *error)
{
    weft_error_clear(error);
    weft_status status = WEFT_OK;
    if (!to || !from)
        status = weft_error_set(error, WEFT_BAD_ARGUMENT, "params", "a store is NULL");
    for (size_t i = 0; status == WEFT_OK && i < from->n_meta; i++)
        status = weft_params_set_meta(to, from->metas[i].key, from->metas[i].text, error);
    return status;
}
