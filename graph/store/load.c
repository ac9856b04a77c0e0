/* Loads safetensors files into stores. First the names in the file are compared with those that are
 * expected, then the tensors are read, then the store changes: a failure changes nothing. */
#include "params.h"
#include "safetensors.h"

#include "base/match.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

/* Adds what was read to the store, or changes nothing: fails if dtypes or shapes differ from the
 * store's, or if out of memory. */
static weft_status merge(weft_params *params, weft_params *from, const char *path,
                         weft_error *error)
{
    char have[128], want[128];
    size_t before = params->n;
    for (size_t i = 0; i < from->n; i++) {
        const param *p = &from->params[i];
        weft_tensor old;
        if (weft_params_find(params, p->name, &old) &&
            (old.dtype != p->tensor.dtype || !weft_shape_equal(old.shape, p->tensor.shape)))
            return weft_error_set(
                error, WEFT_BAD_SHAPE, path, "%s is %s %s in the file, %s %s in the store", p->name,
                weft_dtype_name(p->tensor.dtype),
                weft_shape_text(p->tensor.shape, have, sizeof have), weft_dtype_name(old.dtype),
                weft_shape_text(old.shape, want, sizeof want));
    }
    for (size_t i = 0; i < from->n; i++) {
        const param *p = &from->params[i];
        weft_status status =
            weft_params_add(params, p->name, p->tensor.dtype, p->tensor.shape, NULL, error);
        if (status == WEFT_OK) continue;
        weft__params_truncate(params, before);
        return status;
    }
    if (!weft__params_reserve_metas(params, from->n_meta)) {
        weft__params_truncate(params, before);
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    }
    weft__params_move_metas(params, from);
    for (size_t i = 0; i < from->n; i++) {
        weft_tensor to;
        weft_params_find(params, from->params[i].name, &to);
        memcpy(to.data, from->params[i].tensor.data, weft_tensor_bytes(to.dtype, to.shape));
    }
    return WEFT_OK;
}

/* Reads the tensors that the filter selects into a store of their own, with all metadata. Data are
 * allocated only after the whole header has been checked, so that a malformed file cannot cause
 * larger allocations than its own size (twice that for numbers of 16 bits). BF16 becomes f32,
 * except where the store `like`, which may be NULL, has it as bf16. */
static weft_status read_some(const weft_safetensors *file, const char *path,
                             const weft_params_filter *filter, const weft_params *like,
                             weft_params *into, weft_error *error)
{
    weft_params *metas = weft__safetensors_metadata(file);
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < weft_safetensors_count(file); i++) {
        const weft_file_tensor *t = weft_safetensors_at(file, i);
        weft_tensor to = {.dtype = WEFT_F32}, old = {.dtype = WEFT_F32};
        weft_dtype dtype = t->dtype;
        if (!params_selects(filter, t->name)) continue;
        if (like && weft_params_find(like, t->name, &old) && old.dtype == WEFT_BF16 &&
            weft__safetensors_dtype_find(t->stored)->dtype == WEFT_BF16)
            dtype = WEFT_BF16;
        if (dtype != WEFT_DTYPES)
            status = weft_params_add(into, t->name, dtype, t->shape, &to, error);
        if (status == WEFT_OK) status = weft__safetensors_read(file, t, dtype, to.data, error);
    }
    if (status != WEFT_OK) return status;
    if (!weft__params_reserve_metas(into, metas->n_meta))
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    weft__params_move_metas(into, metas);
    return WEFT_OK;
}

/* Whether the store has a tensor of the file. */
static bool overlaps(const weft_params *params, const weft_safetensors *file,
                     const weft_params_filter *filter)
{
    for (size_t i = 0; i < weft_safetensors_count(file); i++) {
        const char *name = weft_safetensors_at(file, i)->name;
        if (weft_params_find(params, name, NULL) && params_selects(filter, name)) return true;
    }
    return false;
}

/* Reads tensors that the store has into a store of their own first, so that a failure changes
 * nothing. */
static weft_status replace(weft_params *params, const weft_safetensors *file, const char *path,
                           const weft_params_filter *filter, weft_error *error)
{
    weft_params *read = weft__params_like(params);
    weft_status status = read ? read_some(file, path, filter, params, read, error)
                              : weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    if (status == WEFT_OK) status = merge(params, read, path, error);
    weft_params_free(read);
    return status;
}

/* ---- Comparing ---- */

/* A file that is loaded, and the names in it and of what is expected. */
typedef struct loading {
    weft_params *params;
    const char *path;
    const weft_safetensors *file;
    const weft_load_options *o;
    const char **wanted, **found;
    size_t n_wanted, n_found;
    name_match match;
} loading;

static void want(loading *l, const char *name)
{
    if (params_selects(l->o->filter, name)) l->wanted[l->n_wanted++] = name;
}

/* Lists the names that are expected: the states of the graph, or else the tensors of the store. An
 * empty store takes all tensors of the file. */
static weft_status list_names(loading *l, weft_error *error)
{
    size_t n_states;
    const weft_value *states = weft_graph_states(l->o->graph, &n_states);
    const size_t n_file = weft_safetensors_count(l->file);
    l->wanted = malloc((n_states + l->params->n + n_file + 1) * sizeof *l->wanted);
    l->found = malloc((n_file + 1) * sizeof *l->found);
    if (!l->wanted || !l->found)
        return weft_error_set(error, WEFT_NO_MEMORY, l->path, "no memory for a list of tensors");
    for (size_t i = 0; i < n_file; i++) {
        const char *name = weft_safetensors_at(l->file, i)->name;
        if (params_selects(l->o->filter, name)) l->found[l->n_found++] = name;
    }
    for (size_t i = 0; i < n_states; i++) want(l, weft_name_of(l->o->graph, states[i]));
    for (size_t i = 0; !l->o->graph && i < l->params->n; i++) want(l, l->params->params[i].name);
    for (size_t i = 0; !l->o->graph && !l->params->n && i < l->n_found; i++) want(l, l->found[i]);
    return WEFT_OK;
}

/* Fails if tensors are missing or unexpected that may not be. */
static weft_status judge(const loading *l, weft_error *error)
{
    char text[300];
    const name_match *m = &l->match;
    const bool missing = m->n_missing && !l->o->allow_missing;
    const bool unexpected = m->n_unexpected && !l->o->allow_unexpected;
    if (!missing && !unexpected) return WEFT_OK;
    weft__match_text(m, "tensors", text, sizeof text);
    return weft_error_set(error, WEFT_BAD_FILE, l->path, "%s (weft_load_options.%s)", text,
                          missing ? "allow_missing" : "allow_unexpected");
}

/* Fails unless the file's tensors have the dtypes and shapes that the graph declares. BF16 and F16
 * are read as f32. */
static weft_status check_types(const loading *l, weft_error *error)
{
    char have[128], want[128];
    const weft_graph *g = l->o->graph;
    for (size_t i = 0; g && i < l->match.n_matched; i++) {
        const char *name = l->match.matched[i];
        const weft_file_tensor *t = weft_safetensors_find(l->file, name);
        const weft_value state = weft_graph_find(g, name);
        const weft_shape shape = weft_shape_of(g, state);
        if (weft_shape_equal(t->shape, shape) && t->dtype == weft_dtype_of(g, state)) continue;
        return weft_error_set(
            error, WEFT_BAD_SHAPE, l->path, "%s is %s %s in the file, %s %s in the graph", name,
            t->stored, weft_shape_text(t->shape, have, sizeof have),
            weft_dtype_name(weft_dtype_of(g, state)), weft_shape_text(shape, want, sizeof want));
    }
    return WEFT_OK;
}

/* ---- The report ---- */

static char **copy_names(const char *const *names, size_t n, char **at, char **text)
{
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = strlen(names[i]) + 1;
        at[i] = memcpy(*text, names[i], bytes);
        *text += bytes;
    }
    return at;
}

static size_t text_bytes(const char *const *names, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(names[i]) + 1;
    return bytes;
}

/* Copies the names to one block, which begins with the pointers. */
static weft_status fill_report(const loading *l, weft_load_report *r, weft_error *error)
{
    const name_match *m = &l->match;
    const size_t n = m->n_matched + m->n_missing + m->n_unexpected;
    if (!r) return WEFT_OK;
    char **at = malloc(n * sizeof *at + text_bytes(m->matched, m->n_matched) +
                       text_bytes(m->missing, m->n_missing) +
                       text_bytes(m->unexpected, m->n_unexpected) + 1);
    if (!at) return weft_error_set(error, WEFT_NO_MEMORY, l->path, "no memory for the report");
    char *text = (char *)(at + n);
    *r = (weft_load_report){
        .n_loaded = m->n_matched, .n_missing = m->n_missing, .n_unexpected = m->n_unexpected};
    r->loaded = copy_names(m->matched, m->n_matched, at, &text);
    r->missing = copy_names(m->missing, m->n_missing, at + m->n_matched, &text);
    r->unexpected =
        copy_names(m->unexpected, m->n_unexpected, at + m->n_matched + m->n_missing, &text);
    return WEFT_OK;
}

void weft_load_report_free(weft_load_report *report)
{
    if (!report) return;
    free(report->loaded);
    *report = (weft_load_report){.n_loaded = 0};
}

/* ---- Loading ---- */

/* What is loaded of a file: with a graph, its states only. */
static bool is_taken(void *context, const char *name)
{
    const loading *l = context;
    const weft_graph *g = l->o->graph;
    if (!params_selects(l->o->filter, name)) return false;
    const weft_value state = weft_graph_find(g, name);
    return !g || (weft_is_value(state) && g->nodes[g->values[state.id].node].op == &weft_op_state);
}

/* Reads the file into the store, which remembers it, so that weft_params_init does not fill in what
 * the file lacks. */
static weft_status read_file(loading *l, weft_error *error)
{
    const weft_params_filter taken = {is_taken, l};
    const size_t before = l->params->n;
    char *source = l->o->allow_missing ? NULL : weft__params_copy_text(l->path);
    weft_status status;
    if (!l->o->allow_missing && !source) {
        status = weft_error_set(error, WEFT_NO_MEMORY, l->path, "no memory");
    } else if (overlaps(l->params, l->file, &taken)) {
        status = replace(l->params, l->file, l->path, &taken, error);
    } else {
        status = read_some(l->file, l->path, &taken, NULL, l->params, error);
        if (status != WEFT_OK) weft__params_truncate(l->params, before);
    }
    free(status == WEFT_OK ? l->params->source : source);
    if (status == WEFT_OK) l->params->source = source;
    return status;
}

static weft_status compare_and_read(loading *l, weft_load_report *report, weft_error *error)
{
    weft_status status = list_names(l, error);
    if (status == WEFT_OK &&
        !weft__match_names(&l->match, l->wanted, l->n_wanted, l->found, l->n_found))
        status = weft_error_set(error, WEFT_NO_MEMORY, l->path, "no memory");
    if (status == WEFT_OK) status = fill_report(l, report, error);
    if (status == WEFT_OK) status = judge(l, error);
    if (status == WEFT_OK) status = check_types(l, error);
    if (status == WEFT_OK) status = read_file(l, error);
    weft__match_free(&l->match);
    free(l->wanted);
    free(l->found);
    return status;
}

/* Loads a file by its path, or, if that is NULL, a file in memory. */
static weft_status load(weft_params *params, const char *path, weft_memory_file from,
                        const weft_load_options *options, weft_load_report *report,
                        weft_error *error)
{
    static const weft_load_options strict = {.graph = NULL};
    if (options && options->graph && weft_graph_status(options->graph) != WEFT_OK)
        return weft_error_copy(error, weft_graph_error(options->graph));
    weft_safetensors *file;
    weft_status status = path ? weft__safetensors_open(path, &file, error)
                              : weft__safetensors_from_memory(from, &file, error);
    if (status != WEFT_OK) return status;
    loading l = {.params = params,
                 .path = path ? path : memory_file_name(&from),
                 .file = file,
                 .o = options ? options : &strict};
    status = compare_and_read(&l, report, error);
    weft_safetensors_close(file);
    return status;
}

weft_status weft_params_load_with(weft_params *params, const char *path,
                                  const weft_load_options *options, weft_load_report *report,
                                  weft_error *error)
{
    weft_error_clear(error);
    if (report) *report = (weft_load_report){.n_loaded = 0};
    if (!params || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "loading needs a store and a path");
    return load(params, path, (weft_memory_file){.data = NULL}, options, report, error);
}

weft_status weft_params_load_from_memory(weft_params *params, weft_memory_file from,
                                         const weft_load_options *options, weft_load_report *report,
                                         weft_error *error)
{
    weft_error_clear(error);
    if (report) *report = (weft_load_report){.n_loaded = 0};
    if (!params)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, memory_file_name(&from),
                              "loading needs a store");
    return load(params, NULL, from, options, report, error);
}

weft_status weft_params_load_some(weft_params *params, const char *path,
                                  const weft_params_filter *filter, weft_error *error)
{
    const weft_load_options options = {.filter = filter};
    return weft_params_load_with(params, path, &options, NULL, error);
}

weft_status weft_params_load(weft_params *params, const char *path, weft_error *error)
{
    return weft_params_load_with(params, path, NULL, NULL, error);
}
