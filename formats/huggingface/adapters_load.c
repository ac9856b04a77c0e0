/* Reads adapters of PEFT, from a folder, into a store of weft's. O(bytes), and O(tensors x rows) for
 * names. */
#include "adapters.h"

#include "base/file.h"

#include <weft/lora.h>
#include <weft/safetensors.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
    weft_params *adapters;
    const char *folder;
    char path[FILE_PATH_BYTES]; /* of the configuration */
    const hf_architecture *a;
    weft_graph *graph;
    weft_safetensors *file;
    peft_config config;
    weft_error *error;
} loader;

/* The two tensors of a module, and their contents. */
typedef struct pair {
    char module[HF_NAME_BYTES];
    const weft_file_tensor *a, *b;
    float *data_a, *data_b;
    double factor; /* of B: the module's scale over that of all */
} pair;

static weft_status no_memory(loader *l)
{
    return weft_error_set(l->error, WEFT_NO_MEMORY, l->folder, "no memory");
}

/* ---- One module ---- */

/* Whether a tensor's name is that of lora_A ("A") or lora_B; the module is what stands before. */
static bool is_matrix(const char *name, const char *which, char module[HF_NAME_BYTES])
{
    char end[24];
    const size_t prefix = strlen(PEFT_PREFIX), n = strlen(name);
    snprintf(end, sizeof end, ".lora_%s.weight", which);
    const size_t m = strlen(end);
    if (n <= prefix + m || n >= HF_NAME_BYTES || strncmp(name, PEFT_PREFIX, prefix) != 0 ||
        strcmp(name + n - m, end) != 0)
        return false;
    snprintf(module, HF_NAME_BYTES, "%.*s", (int)(n - m - prefix), name + prefix);
    return true;
}

/* Adds the adapter of one matrix [in, out], which is at `place` in the module. */
static weft_status add_adapter(loader *l, const pair *p, const char *ours, hf_place place)
{
    const weft_shape w = weft_shape_of(l->graph, weft_graph_find(l->graph, ours));
    const int64_t in = w.dim[0], out = w.dim[1], rank = p->a->shape.dim[0];
    char a[QUANTIZED_NAME], b[QUANTIZED_NAME];
    weft_tensor to_a, to_b;
    if (!weft__lora_name(a, ours, "a") || !weft__lora_name(b, ours, "b"))
        return weft_error_set(l->error, WEFT_TOO_LARGE, ours, "the name is too long");
    if (weft_params_find(l->adapters, a, NULL))
        return weft_error_set(l->error, WEFT_BAD_FILE, l->folder, "has two adapters for %s",
                              p->module);
    if (weft_params_add(l->adapters, a, WEFT_F32, WEFT_SHAPE(in, rank), &to_a, l->error) !=
            WEFT_OK ||
        weft_params_add(l->adapters, b, WEFT_F32, WEFT_SHAPE(rank, out), &to_b, l->error) !=
            WEFT_OK)
        return l->error->status;
    for (int64_t r = 0; r < rank; r++) {
        for (int64_t j = 0; j < in; j++) ((float *)to_a.data)[j * rank + r] = p->data_a[r * in + j];
        for (int64_t j = 0; j < out; j++) {
            const float x = p->data_b[(place.first + j) * rank + r];
            ((float *)to_b.data)[r * out + j] = p->factor == 1 ? x : (float)(p->factor * (double)x);
        }
    }
    return WEFT_OK;
}

static weft_status check_shapes(loader *l, const pair *p, int64_t in, int64_t out)
{
    const int64_t rank = p->a->shape.rank == 2 ? p->a->shape.dim[0] : 0;
    char a[128], b[128];
    if (rank >= 1 && p->a->dtype == WEFT_F32 && p->b->dtype == WEFT_F32 &&
        weft_shape_equal(p->a->shape, WEFT_SHAPE(rank, in)) &&
        weft_shape_equal(p->b->shape, WEFT_SHAPE(out, rank)))
        return WEFT_OK;
    return weft_error_set(
        l->error, WEFT_BAD_SHAPE, p->a->name,
        "is %s %s, and lora_B %s %s: the model's module has %lld inputs and %lld outputs",
        p->a->stored, weft_shape_text(p->a->shape, a, sizeof a), p->b->stored,
        weft_shape_text(p->b->shape, b, sizeof b), (long long)in, (long long)out);
}

/* Adds the adapters of the matrices that are parts of a module, and counts them. `check`: only checks
 * the shapes, and counts. */
static weft_status add_parts(loader *l, const pair *p, bool check, size_t *found)
{
    char theirs[HF_NAME_BYTES + 8], ours[HF_NAME_BYTES];
    weft_status status = WEFT_OK;
    snprintf(theirs, sizeof theirs, "%s.weight", p->module);
    *found = 0;
    for (size_t at = 0; status == WEFT_OK && weft__hf_param_of(l->a, theirs, &at, ours);) {
        const weft_value value = weft_graph_find(l->graph, ours);
        if (!weft_is_value(value) || weft_rank_of(l->graph, value) != 2 ||
            !weft__lora_allows(l->graph, value))
            continue;
        const hf_place place = weft__peft_place(l->a, l->graph, ours);
        status = check ? check_shapes(l, p, weft_dim_of(l->graph, value, 0), place.all)
                       : add_adapter(l, p, ours, place);
        ++*found;
    }
    return status;
}

static weft_status read_pair(loader *l, pair *p)
{
    size_t found;
    const peft_config *c = &l->config;
    weft_status status = add_parts(l, p, true, &found);
    if (status != WEFT_OK) return status;
    if (!found)
        return weft_error_set(l->error, WEFT_BAD_ARGUMENT, l->folder,
                              "adapts %s, which is not a matrix of %s that weft can adapt",
                              p->module, l->a->name);
    const double rank = (double)p->a->shape.dim[0];
    p->factor =
        weft__peft_scale(c, p->module, rank) / (c->alpha / (c->by_root ? sqrt(c->rank) : c->rank));
    p->data_a = malloc(weft_tensor_bytes(WEFT_F32, p->a->shape) + 1);
    p->data_b = malloc(weft_tensor_bytes(WEFT_F32, p->b->shape) + 1);
    if (!p->data_a || !p->data_b) return no_memory(l);
    status = weft_safetensors_read(l->file, p->a, p->data_a, l->error);
    if (status == WEFT_OK) status = weft_safetensors_read(l->file, p->b, p->data_b, l->error);
    return status == WEFT_OK ? add_parts(l, p, false, &found) : status;
}

/* ---- All modules ---- */

/* Reads tensor `index` with its partner, if it is the first of the two. */
static weft_status read_tensor(loader *l, size_t index)
{
    const weft_file_tensor *t = weft_safetensors_at(l->file, index);
    pair p = {.a = t};
    char other[HF_NAME_BYTES + 64];
    const bool is_a = is_matrix(t->name, "A", p.module);
    if (!is_a && !is_matrix(t->name, "B", p.module))
        return weft_error_set(l->error, WEFT_BAD_FILE, l->folder,
                              "unexpected tensor %s, expected " PEFT_PREFIX
                              "MODULE.lora_A.weight and lora_B",
                              t->name);
    snprintf(other, sizeof other, PEFT_PREFIX "%s.lora_%c.weight", p.module, is_a ? 'B' : 'A');
    p.b = weft_safetensors_find(l->file, other);
    if (!p.b)
        return weft_error_set(l->error, WEFT_BAD_FILE, l->folder, "has %s, but not %s", t->name,
                              other);
    const weft_status status = is_a ? read_pair(l, &p) : WEFT_OK;
    free(p.data_a);
    free(p.data_b);
    return status;
}

static weft_status note(loader *l)
{
    const peft_config *c = &l->config;
    const weft_lora lora = {.rank = (int64_t)c->rank,
                            .alpha = c->by_root ? c->alpha * sqrt(c->rank) : c->alpha,
                            .dropout = c->dropout};
    return weft_lora_note(&lora, l->adapters, l->error);
}

static weft_status read_tensors(loader *l)
{
    char path[FILE_PATH_BYTES];
    snprintf(path, sizeof path, "%s/" PEFT_TENSORS, l->folder);
    if (!weft__file_exists(path))
        return weft_error_set(l->error, WEFT_NOT_FOUND, l->folder,
                              "has no " PEFT_TENSORS "; save_pretrained of PEFT writes it");
    l->file = weft_safetensors_open(path, l->error);
    if (!l->file) return l->error->status;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < weft_safetensors_count(l->file); i++)
        status = read_tensor(l, i);
    if (status == WEFT_OK && !weft_params_count(l->adapters))
        status = weft_error_set(l->error, WEFT_BAD_FILE, path, "has no adapters");
    return status;
}

static weft_status load(loader *l, const weft_model_config *config)
{
    snprintf(l->path, sizeof l->path, "%s/" PEFT_CONFIG, l->folder);
    weft_status status = weft__peft_read_config(l->path, &l->config, l->error);
    if (status != WEFT_OK) return status;
    l->graph = weft__hf_graph(config, l->error);
    status = l->graph ? read_tensors(l) : l->error->status;
    return status == WEFT_OK ? note(l) : status;
}

weft_status weft_huggingface_load_adapters(weft_params *adapters, const weft_params *base,
                                           const weft_model_config *config, const char *folder,
                                           const char *architecture, weft_error *error)
{
    weft_error_clear(error);
    if (!adapters || !base || !config || !config->model || !folder || !folder[0] ||
        weft_params_count(adapters))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs an empty store, that of a configured model and a folder");
    if (strlen(folder) > FILE_PATH_BYTES - 32)
        return weft_error_set(error, WEFT_TOO_LARGE, folder, "the path is too long");
    weft_error problem = {0};
    loader l = {.adapters = adapters, .folder = folder, .error = &problem};
    cJSON *model = weft__hf_choose(base, config, architecture, &l.a, &problem);
    if (model) load(&l, config);
    cJSON_Delete(model);
    cJSON_Delete(l.config.json);
    weft_safetensors_close(l.file);
    weft_graph_free(l.graph);
    return weft_error_copy(error, &problem);
}
