/* Low-rank adapters: a builder that adds them to the graphs of another, and adding what was trained
 * to the model. See weft/lora.h. */
#include <weft/lora.h>

#include "base/text.h"
#include "passes/lora.h"
#include "passes/unroll.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char where[] = "lora";

static double alpha_of(const weft_lora *lora)
{
    return lora->alpha == 0 ? (double)lora->rank : lora->alpha;
}

/* ---- The builder ---- */

static bool selects(void *context, const char *name)
{
    return weft_name_matches(context, name);
}

static bool freezes(void *context, const char *name)
{
    (void)context;
    (void)name;
    return true;
}

/* A message if an option is wrong; else NULL. */
static const char *check(const weft_lora *lora, const weft_build_options *options)
{
    return lora->rank < 1 || lora->rank > INT32_MAX     ? "the rank must be at least 1"
           : !isfinite(lora->alpha) || lora->alpha < 0  ? "alpha must be a number of at least 0"
           : !(lora->dropout >= 0 && lora->dropout < 1) ? "dropout must be at least 0 and below 1"
           : options->tensor.size > 1 ? "layers that several processes divide cannot be added to"
                                      : NULL;
}

/* Copies the model's graph with the additions, and the values of `built` to those of the copy. */
static void add(const weft_lora *lora, weft_graph *graph, const weft_graph *model, bool training,
                weft_built *built)
{
    const weft_params_filter on = {selects, (void *)(uintptr_t)lora->on};
    lora_context context = {.base = lora->base,
                            .on = lora->on ? &on : NULL,
                            .rank = lora->rank,
                            .scale = alpha_of(lora) / (double)lora->rank,
                            .dropout = training ? lora->dropout : 0};
    /* Each step of a loop adds to its own product, with its own dropout. */
    const weft_pass pass = {
        .name = where, .visit = weft__lora_visit, .context = &context, .unrolls = true};
    weft_value values[2 * WEFT_BUILT_VALUES + 3];
    size_t n = 0;
    if (built->n_inputs > WEFT_BUILT_VALUES || built->n_outputs > WEFT_BUILT_VALUES) {
        weft_graph_fail_in(graph, where, WEFT_BAD_ARGUMENT, "the model has too many values");
        return;
    }
    for (size_t i = 0; i < built->n_inputs; i++) values[n++] = built->inputs[i];
    for (size_t i = 0; i < built->n_outputs; i++) values[n++] = built->outputs[i];
    values[n++] = built->loss;
    values[n++] = built->metric;
    values[n++] = built->accuracy;
    if (weft_graph_rewrite(graph, model, &pass, values, n) != WEFT_OK) return;
    n = 0;
    for (size_t i = 0; i < built->n_inputs; i++) built->inputs[i] = values[n++];
    for (size_t i = 0; i < built->n_outputs; i++) built->outputs[i] = values[n++];
    built->loss = values[n++];
    built->metric = values[n++];
    built->accuracy = values[n++];
    if (!context.added)
        weft_graph_fail_in(graph, where, WEFT_BAD_ARGUMENT,
                           lora->on ? "no matrix of a product in f32 matches \"%s\""
                                    : "the model has no product with a matrix in f32",
                           lora->on);
}

static weft_status build(void *context, weft_graph *graph, const weft_build_options *options,
                         weft_built *built)
{
    const weft_lora *lora = context;
    const char *wrong = check(lora, options);
    *built = (weft_built){.n_inputs = 0};
    weft_graph *model = wrong ? NULL : weft_graph_new();
    if (wrong) {
        weft_graph_fail_in(graph, where, WEFT_BAD_ARGUMENT, "%s", wrong);
    } else if (!model) {
        weft_graph_fail_in(graph, where, WEFT_NO_MEMORY, "out of memory");
    } else {
        /* Running averages of a frozen model do not move. */
        weft_graph_freeze(model, freezes, NULL);
        lora->model.build(lora->model.context, model, options, built);
        weft_graph_freeze(model, NULL, NULL);
        add(lora, graph, model, options->training, built);
    }
    weft_graph_free(model);
    return weft_graph_status(graph);
}

static bool describe(void *context, char *text, size_t capacity)
{
    const weft_builder *model = &((const weft_lora *)context)->model;
    if (capacity) text[0] = 0;
    return !model->describe || model->describe(model->context, text, capacity);
}

weft_builder weft_lora_builder(const weft_lora *lora)
{
    if (!lora || !lora->model.build) return (weft_builder){.name = NULL};
    return (weft_builder){.name = lora->model.name,
                          .build = build,
                          .describe = describe,
                          .context = (void *)(uintptr_t)lora};
}

/* ---- Metadata ---- */

weft_status weft_lora_note(const weft_lora *lora, weft_params *params, weft_error *error)
{
    char text[1024];
    weft_error_clear(error);
    if (!lora || !params)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "the lora or the store is NULL");
    const int n = weft__text_format(text, sizeof text, "rank=%lld alpha=%.17g dropout=%.17g on=%s",
                                    (long long)lora->rank, alpha_of(lora), lora->dropout,
                                    lora->on ? lora->on : "");
    if (n < 0 || (size_t)n >= sizeof text)
        return weft_error_set(error, WEFT_TOO_LARGE, where, "the patterns are too long");
    const char *was = weft_params_meta(params, LORA_META);
    if (was && strcmp(was, text) != 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "checkpoint",
                              "was trained with %s, not with %s", was, text);
    return weft_params_set_meta(params, LORA_META, text, error);
}

/* ---- Applying ---- */

/* The adapter of one matrix. */
typedef struct adapter {
    const char *state;
    weft_tensor w, a, b; /* w: of f32; its data are NULL next to a quantised matrix */
    bool by_rows;
    int64_t k, n;
} adapter;

typedef struct application {
    weft_params *params;
    const weft_params *adapters;
    adapter *list;
    size_t n;
    weft_error *error;
} application;

static bool has_shape(const weft_tensor *t, int64_t rows, int64_t columns)
{
    return t->dtype == WEFT_F32 && weft_shape_equal(t->shape, WEFT_SHAPE(rows, columns));
}

/* Lists the adapter of the state that a product uses, if there is one and the graph allows it. */
static weft_status list_adapter(application *p, const weft_graph *graph, const quantized_use *use)
{
    char a[QUANTIZED_NAME], b[QUANTIZED_NAME], q[QUANTIZED_NAME];
    const char *state = weft_name_of(graph, use->state);
    adapter l = {.state = state, .by_rows = use->by_rows, .k = use->k, .n = use->n};
    if (!weft__lora_name(a, state, "a") || !weft__lora_name(b, state, "b")) return WEFT_OK;
    const bool has = weft_params_find(p->adapters, a, &l.a);
    if (has != weft_params_find(p->adapters, b, &l.b))
        return weft_error_set(p->error, WEFT_BAD_FILE, has ? b : a, "is missing");
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->list[i].state, state)) return WEFT_OK;
    if (!has || !weft__lora_allows(graph, use->state)) return WEFT_OK;
    const int64_t rank = l.a.shape.rank == 2 ? l.a.shape.dim[1] : 0;
    if (!has_shape(&l.a, use->k, rank) || !has_shape(&l.b, rank, use->n))
        return weft_error_set(p->error, WEFT_BAD_SHAPE, a,
                              "does not fit the matrix [%lld, %lld] of the model",
                              (long long)use->k, (long long)use->n);
    const bool quantized =
        weft__quantized_name(q, state, use->by_rows, "q") && weft_params_find(p->params, q, NULL);
    const bool wide =
        weft_params_find(p->params, state, &l.w) &&
        has_shape(&l.w, use->by_rows ? use->n : use->k, use->by_rows ? use->k : use->n);
    if (quantized)
        l.w.data = NULL;
    else if (!wide)
        return weft_error_set(p->error, WEFT_NOT_FOUND, state, "is not a matrix of the store");
    p->list[p->n++] = l;
    return WEFT_OK;
}

/* Every tensor of the adapters must belong to a matrix. */
static weft_status check_all_listed(const application *p)
{
    for (size_t i = 0; i < weft_params_count(p->adapters); i++) {
        weft_tensor t;
        const char *name = weft_params_name(p->adapters, i);
        if (weft_params_key(p->adapters, i).kind != WEFT_STATE_MODEL ||
            !weft_params_find(p->adapters, name, &t))
            continue;
        size_t k = 0;
        while (k < p->n && p->list[k].a.data != t.data && p->list[k].b.data != t.data) k++;
        if (k == p->n)
            return weft_error_set(p->error, WEFT_BAD_FILE, name,
                                  "the model has no matrix for it that can have an adapter");
    }
    return WEFT_OK;
}

static weft_status list_adapters(application *p, const weft_graph *graph)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < weft_graph_node_count(graph); i++) {
        const weft_node_info node = weft_graph_node(graph, i);
        quantized_use use;
        if (weft__quantized_use_of(graph, &node, &use) && !use.lookup)
            status = list_adapter(p, graph, &use);
    }
    return status == WEFT_OK ? check_all_listed(p) : status;
}

/* W += scale A B, or its transpose. */
static void merge(const adapter *l, double scale, float *row)
{
    const int64_t rank = l->a.shape.dim[1], n = l->n;
    const float *a = l->a.data, *b = l->b.data, by = (float)scale;
    float *w = l->w.data;
    for (int64_t i = 0; i < l->k; i++) {
        memset(row, 0, (size_t)n * sizeof *row);
        for (int64_t r = 0; r < rank; r++)
            for (int64_t j = 0; j < n; j++) row[j] += a[i * rank + r] * b[r * n + j];
        for (int64_t j = 0; j < n; j++) w[l->by_rows ? j * l->k + i : i * n + j] += by * row[j];
    }
}

/* Copies the two matrices of an adapter to the store, with the factor in B. */
static weft_status attach(const application *p, const adapter *l, double scale)
{
    static const char *const matrices[] = {"a", "b"};
    const weft_tensor *const from[] = {&l->a, &l->b};
    weft_status status = WEFT_OK;
    for (int i = 0; status == WEFT_OK && i < 2; i++) {
        char name[QUANTIZED_NAME];
        weft_tensor to;
        weft__lora_name(name, l->state, matrices[i]);
        status = weft_params_add(p->params, name, WEFT_F32, from[i]->shape, &to, p->error);
        for (int64_t k = 0; status == WEFT_OK && k < weft_shape_numel(to.shape); k++)
            ((float *)to.data)[k] = ((const float *)from[i]->data)[k] * (i ? (float)scale : 1);
    }
    return status;
}

static weft_status apply(application *p, double scale)
{
    weft_status status = WEFT_OK;
    int64_t widest = 1;
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].n > widest) widest = p->list[i].n;
    float *row = malloc((size_t)widest * sizeof *row);
    if (!row) return weft_error_set(p->error, WEFT_NO_MEMORY, where, "out of memory");
    /* What can fail comes first. */
    bool attached = false;
    for (size_t i = 0; status == WEFT_OK && i < p->n; i++) {
        if (p->list[i].w.data) continue;
        status = attach(p, &p->list[i], scale);
        attached = true;
    }
    if (status == WEFT_OK && attached)
        status = weft_params_set_meta(p->params, LORA_META,
                                      weft_params_meta(p->adapters, LORA_META), p->error);
    for (size_t i = 0; status == WEFT_OK && i < p->n; i++)
        if (p->list[i].w.data) merge(&p->list[i], scale, row);
    free(row);
    return status;
}

weft_status weft_params_add_adapters(weft_params *params, const weft_params *adapters,
                                     const weft_graph *graph, weft_error *error)
{
    double scale;
    weft_error_clear(error);
    if (!params || !adapters || !graph)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, where, "needs two stores and a graph");
    if (weft_graph_status(graph) != WEFT_OK) return weft_error_copy(error, weft_graph_error(graph));
    if (!weft__lora_scale(adapters, &scale))
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "the adapters have no metadata \"" LORA_META "\", or damaged ones");
    application p = {.params = params, .adapters = adapters, .error = error};
    p.list = calloc(weft_params_count(adapters) / 2 + 1, sizeof *p.list);
    if (!p.list) return weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    weft_error failed = WEFT_NO_ERROR;
    weft_graph *steps = weft__unroll_copy(graph, &failed); /* products in loops count as well */
    weft_status status = weft_error_copy(error, &failed);
    if (status == WEFT_OK) status = list_adapters(&p, steps ? steps : graph);
    if (status == WEFT_OK) status = apply(&p, scale);
    weft_graph_free(steps);
    free(p.list);
    return status;
}
