/* Writes adapters of weft as a folder of PEFT. O(bytes), and O(matrices^2) for names. */
#include "adapters.h"

#include "base/file.h"
#include "base/platform.h"
#include "json/tree.h"

#include <weft/safetensors.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A matrix of the model, and its adapter: data are NULL if it has none. */
typedef struct part {
    hf_place place; /* its columns among those of the module */
    weft_tensor a, b;
} part;

#define MAX_PARTS 4 /* matrices of a fused module */

/* A module of transformers. */
typedef struct module {
    char name[HF_NAME_BYTES], names[2][HF_NAME_BYTES]; /* and of its tensors */
    part parts[MAX_PARTS];
    size_t n;
    bool shared; /* all parts have the same A */
    int64_t in, out, rank;
} module;

typedef struct saver {
    const weft_params *adapters;
    const char *folder;
    const hf_architecture *a;
    weft_graph *graph;
    module *modules; /* all, also those without adapters, which have rank 0 */
    size_t n;
    size_t *written; /* those that have adapters */
    size_t n_written;
    float *buffer;
    lora_note note;
    weft_error *error;
} saver;

static weft_status no_memory(saver *s)
{
    return weft_error_set(s->error, WEFT_NO_MEMORY, s->folder, "no memory");
}

/* ---- Modules ---- */

/* Finds the adapter of a matrix [in, out]. */
static weft_status find_adapter(saver *s, const char *ours, weft_shape w, part *p)
{
    char a[QUANTIZED_NAME], b[QUANTIZED_NAME];
    p->a.data = p->b.data = NULL;
    if (!weft__lora_name(a, ours, "a") || !weft__lora_name(b, ours, "b") ||
        !weft_params_find(s->adapters, a, &p->a) || !weft_params_find(s->adapters, b, &p->b)) {
        p->a.data = NULL;
        return WEFT_OK;
    }
    const int64_t rank = p->a.shape.rank == 2 ? p->a.shape.dim[1] : 0;
    if (rank && p->a.dtype == WEFT_F32 && p->b.dtype == WEFT_F32 &&
        weft_shape_equal(p->a.shape, WEFT_SHAPE(w.dim[0], rank)) &&
        weft_shape_equal(p->b.shape, WEFT_SHAPE(rank, w.dim[1])))
        return WEFT_OK;
    return weft_error_set(s->error, WEFT_BAD_SHAPE, a,
                          "does not fit the matrix [%lld, %lld] of the model", (long long)w.dim[0],
                          (long long)w.dim[1]);
}

/* The module of that name; a new one if there is none. */
static module *module_of(saver *s, const char *name)
{
    size_t i = 0;
    while (i < s->n && strcmp(s->modules[i].name, name) != 0) i++;
    module *m = &s->modules[i];
    if (i < s->n) return m;
    s->n++;
    snprintf(m->name, sizeof m->name, "%s", name);
    for (int k = 0; k < 2; k++)
        snprintf(m->names[k], sizeof m->names[k], PEFT_PREFIX "%.460s.lora_%c.weight", name,
                 "AB"[k]);
    return m;
}

static weft_status add_matrix(saver *s, weft_value value)
{
    char name[HF_NAME_BYTES];
    const char *ours = weft_name_of(s->graph, value);
    const weft_shape w = weft_shape_of(s->graph, value);
    if (w.rank != 2 || !weft__lora_allows(s->graph, value) || !weft__peft_module(s->a, ours, name))
        return WEFT_OK;
    module *m = module_of(s, name);
    if (m->n == MAX_PARTS)
        return weft_error_set(s->error, WEFT_TOO_LARGE, name, "has more than %d parts", MAX_PARTS);
    part *p = &m->parts[m->n++];
    p->place = weft__peft_place(s->a, s->graph, ours);
    m->in = w.dim[0];
    m->out = p->place.all;
    return find_adapter(s, ours, w, p);
}

/* Whether two parts have the same A, as those have that were read from one module. */
static bool same_a(const part *p, const part *q)
{
    return weft_shape_equal(p->a.shape, q->a.shape) &&
           !memcmp(p->a.data, q->a.data, weft_tensor_bytes(WEFT_F32, p->a.shape));
}

static void count_rank(module *m)
{
    const part *first = NULL;
    m->shared = true;
    for (size_t i = 0; i < m->n; i++) {
        const part *p = &m->parts[i];
        if (!p->a.data) continue;
        if (first) m->shared = m->shared && same_a(first, p);
        if (!first) first = p;
        m->rank += p->a.shape.dim[1];
    }
    if (first && m->shared) m->rank = first->a.shape.dim[1];
}

/* Whether a tensor is A or B of a module. */
static bool has_module(const saver *s, const weft_tensor *t)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->modules[i].n; k++) {
            const part *p = &s->modules[i].parts[k];
            if (p->a.data && (p->a.data == t->data || p->b.data == t->data)) return true;
        }
    return false;
}

/* Every tensor of the adapters must belong to a module, and one must exist. */
static weft_status check_all_written(saver *s)
{
    for (size_t i = 0; i < weft_params_count(s->adapters); i++) {
        weft_tensor t;
        const char *name = weft_params_name(s->adapters, i);
        if (weft_params_key(s->adapters, i).kind == WEFT_STATE_MODEL &&
            weft_params_find(s->adapters, name, &t) && !has_module(s, &t))
            return weft_error_set(s->error, WEFT_BAD_FILE, name, "%s has no module for it",
                                  s->a->name);
    }
    return s->n_written ? WEFT_OK
                        : weft_error_set(s->error, WEFT_BAD_FILE, "adapters", "the store has none");
}

static weft_status list_modules(saver *s)
{
    size_t n;
    const weft_value *values = weft_graph_params(s->graph, &n);
    weft_status status = WEFT_OK;
    s->modules = calloc(n + 1, sizeof *s->modules);
    s->written = calloc(n + 1, sizeof *s->written);
    if (!s->modules || !s->written) return no_memory(s);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) status = add_matrix(s, values[i]);
    size_t most = 1;
    for (size_t i = 0; status == WEFT_OK && i < s->n; i++) {
        module *m = &s->modules[i];
        count_rank(m);
        const size_t elements = (size_t)(m->rank * (m->in > m->out ? m->in : m->out));
        if (elements > most) most = elements;
        if (m->rank) s->written[s->n_written++] = i;
    }
    if (status == WEFT_OK) status = check_all_written(s);
    s->buffer = malloc(most * sizeof *s->buffer);
    return status == WEFT_OK && !s->buffer ? no_memory(s) : status;
}

/* ---- Tensors ---- */

static void fill_a(const module *m, float *to)
{
    int64_t first = 0;
    for (size_t i = 0; i < m->n; i++) {
        const weft_tensor *a = &m->parts[i].a;
        if (!a->data) continue;
        const int64_t rank = a->shape.dim[1];
        for (int64_t j = 0; j < m->in; j++)
            for (int64_t r = 0; r < rank; r++)
                to[(first + r) * m->in + j] = ((const float *)a->data)[j * rank + r];
        if (m->shared) return;
        first += rank;
    }
}

static void fill_b(const module *m, float *to)
{
    int64_t first = 0;
    memset(to, 0, (size_t)(m->out * m->rank) * sizeof *to);
    for (size_t i = 0; i < m->n; i++) {
        const part *p = &m->parts[i];
        if (!p->a.data) continue;
        const int64_t rank = p->b.shape.dim[0], n = p->b.shape.dim[1];
        for (int64_t r = 0; r < rank; r++)
            for (int64_t j = 0; j < n; j++)
                to[(p->place.first + j) * m->rank + first + r] =
                    ((const float *)p->b.data)[r * n + j];
        if (!m->shared) first += rank;
    }
}

static const void *data_of(void *context, size_t index, weft_error *error)
{
    saver *s = context;
    const module *m = &s->modules[s->written[index / 2]];
    (void)error;
    (index % 2 ? fill_b : fill_a)(m, s->buffer);
    return s->buffer;
}

static weft_status write_tensors(saver *s)
{
    char path[FILE_PATH_BYTES];
    weft_params *format = weft_params_new();
    weft_file_tensor *tensors = calloc(2 * s->n_written + 1, sizeof *tensors);
    weft_status status = WEFT_OK;
    for (size_t i = 0; tensors && i < s->n_written; i++) {
        const module *m = &s->modules[s->written[i]];
        tensors[2 * i] =
            (weft_file_tensor){m->names[0], WEFT_F32, WEFT_SHAPE(m->rank, m->in), NULL};
        tensors[2 * i + 1] =
            (weft_file_tensor){m->names[1], WEFT_F32, WEFT_SHAPE(m->out, m->rank), NULL};
    }
    if (!tensors || !format || weft_params_set_meta(format, "format", "pt", NULL) != WEFT_OK)
        status = no_memory(s);
    snprintf(path, sizeof path, "%s/" PEFT_TENSORS, s->folder);
    if (status == WEFT_OK)
        status =
            weft_safetensors_write(path, tensors, 2 * s->n_written, format, data_of, s, s->error);
    weft_params_free(format);
    free(tensors);
    return status;
}

/* ---- Configuration ---- */

static const char *last_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The name by which PEFT finds a module: its last component if all modules that end with it have
 * adapters of the same rank, else the whole. */
static const char *target_of(const saver *s, const module *m)
{
    const char *last = last_of(m->name);
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(last_of(s->modules[i].name), last) && s->modules[i].rank != m->rank)
            return m->name;
    return last;
}

static bool add_targets(const saver *s, cJSON *json)
{
    cJSON *targets = cJSON_AddArrayToObject(json, "target_modules");
    cJSON *ranks = cJSON_AddObjectToObject(json, "rank_pattern");
    cJSON *alphas = cJSON_AddObjectToObject(json, "alpha_pattern");
    bool good = targets && ranks && alphas;
    for (size_t i = 0; good && i < s->n_written; i++) {
        const module *m = &s->modules[s->written[i]];
        const char *name = target_of(s, m);
        const cJSON *item;
        bool has = false;
        cJSON_ArrayForEach(item, targets) has |= !strcmp(item->valuestring, name);
        if (has) continue;
        good = cJSON_AddItemToArray(targets, cJSON_CreateString(name));
        if ((double)m->rank == s->note.rank) continue;
        good =
            good && cJSON_AddNumberToObject(ranks, name, (double)m->rank) &&
            cJSON_AddNumberToObject(alphas, name, s->note.alpha / s->note.rank * (double)m->rank);
    }
    return good;
}

/* NULL and an empty text become null. */
static bool add_text(cJSON *json, const char *key, const char *text)
{
    return text && *text ? cJSON_AddStringToObject(json, key, text) != NULL
                         : cJSON_AddNullToObject(json, key) != NULL;
}

/* The name of the model that config.json has, if it came with one. */
static const char *base_name(const cJSON *model)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(model, "_name_or_path"));
}

static const char *task_of(const weft_model_config *config)
{
    const weft_model_traits traits = weft_model_traits_of(config);
    return traits.source_vocab ? "SEQ_2_SEQ_LM" : traits.causal ? "CAUSAL_LM" : NULL;
}

static cJSON *make_config(const saver *s, const weft_model_config *config, const cJSON *model)
{
    cJSON *json = cJSON_CreateObject();
    bool good = json && cJSON_AddStringToObject(json, "peft_type", "LORA") &&
                add_text(json, "task_type", task_of(config)) &&
                add_text(json, "base_model_name_or_path", base_name(model)) &&
                cJSON_AddTrueToObject(json, "inference_mode") &&
                cJSON_AddNumberToObject(json, "r", s->note.rank) &&
                cJSON_AddNumberToObject(json, "lora_alpha", s->note.alpha) &&
                cJSON_AddNumberToObject(json, "lora_dropout", s->note.dropout) &&
                cJSON_AddStringToObject(json, "bias", "none") &&
                /* Conv1D of GPT-2 */
                cJSON_AddBoolToObject(json, "fan_in_fan_out", !strcmp(s->a->type, "gpt2")) &&
                cJSON_AddNullToObject(json, "modules_to_save") && add_targets(s, json);
    if (good) return json;
    cJSON_Delete(json);
    return NULL;
}

static weft_status write_config(saver *s, const weft_model_config *config, const cJSON *model)
{
    char path[FILE_PATH_BYTES];
    cJSON *json = make_config(s, config, model);
    char *text = json ? weft__json_print(json, true) : NULL;
    cJSON_Delete(json);
    if (!text) return no_memory(s);
    snprintf(path, sizeof path, "%s/" PEFT_CONFIG, s->folder);
    const bool good = weft__file_replace(path, text, strlen(text));
    const int problem = errno;
    cJSON_free(text);
    return good ? WEFT_OK
                : weft_error_set(s->error, WEFT_IO, path, "cannot be written: %s",
                                 weft__file_error(problem));
}

static weft_status save(saver *s, const weft_model_config *config, const cJSON *model)
{
    if (!weft__lora_read(s->adapters, &s->note))
        return weft_error_set(s->error, WEFT_BAD_FILE, "adapters",
                              "have no metadata \"" LORA_META "\", or damaged ones");
    s->graph = weft__hf_graph(config, s->error);
    weft_status status = s->graph ? list_modules(s) : s->error->status;
    if (status != WEFT_OK) return status;
    if (!weft__os_make_folder(s->folder) && errno != EEXIST)
        return weft_error_set(s->error, WEFT_IO, s->folder, "cannot be made: %s", strerror(errno));
    status = write_tensors(s);
    return status == WEFT_OK ? write_config(s, config, model) : status;
}

weft_status weft_huggingface_save_adapters(const weft_params *adapters, const weft_params *base,
                                           const weft_model_config *config, const char *folder,
                                           const char *architecture, weft_error *error)
{
    weft_error_clear(error);
    if (!adapters || !base || !config || !config->model || !folder || !folder[0])
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs two stores, a configured model and a folder");
    if (strlen(folder) > FILE_PATH_BYTES - 32)
        return weft_error_set(error, WEFT_TOO_LARGE, folder, "the path is too long");
    weft_error problem = {0};
    saver s = {.adapters = adapters, .folder = folder, .error = &problem};
    cJSON *model = weft__hf_choose(base, config, architecture, &s.a, &problem);
    if (model) save(&s, config, model);
    cJSON_Delete(model);
    weft_graph_free(s.graph);
    free(s.modules);
    free(s.written);
    free(s.buffer);
    return weft_error_copy(error, &problem);
}
