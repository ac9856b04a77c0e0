/* Graphs and plans of a decoder: one for each used combination of lengths and numbers of rows, all
 * over the same states. A plan is found by a linear search over a few dozen. */
#include "decoder.h"

#include <weft/ops.h>
#include <weft/quantize.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool weft__decoder_fail(weft_decoder *d, weft_status status, const char *where, const char *message)
{
    weft_error_set(&d->error, status, where, "%s", message);
    return false;
}

static bool copy_error(weft_decoder *d, const weft_error *e)
{
    return weft_error_copy(&d->error, e) == WEFT_OK;
}

/* ---- States ---- */

/* Records the layout of a state that the model declares. Each graph declares the same states. */
static void declare_state(void *context, const weft_graph *g, weft_value state,
                          weft_cache_layout layout)
{
    weft_decoder *d = context;
    const char *name = weft_name_of(g, state);
    if (!name) return; /* the graph has failed */
    for (size_t i = 0; i < d->n_states; i++)
        if (!strcmp(d->states[i].name, name)) return;
    if (strlen(name) >= sizeof d->states->name) {
        weft__decoder_fail(d, WEFT_TOO_LARGE, name, "the name of a decoding state is too long");
        return;
    }
    decode_state *grown = realloc(d->states, (d->n_states + 1) * sizeof *grown);
    if (!grown) {
        weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
        return;
    }
    d->states = grown;
    decode_state *s = &d->states[d->n_states++];
    s->layout = layout;
    snprintf(s->name, sizeof s->name, "%s", name);
}

/* ---- Graphs ---- */

static weft_decode_io decode_io(weft_decoder *d, const decode_sizes *sizes)
{
    return (weft_decode_io){.sentences = sizes->sentences,
                            .beams = sizes->beams,
                            .max_sentences = d->o.sentences,
                            .max_beams = d->o.beams,
                            .count = sizes->reads ? sizes->reads : 1,
                            .max_len = d->o.max_len,
                            .key_len = sizes->key_len,
                            .max_source_len = d->has_source ? d->o.max_source_len : 0,
                            .source_len = sizes->source_len,
                            .declare = declare_state,
                            .declare_context = d,
                            .quantized = d->quantized,
                            .own_positions = sizes->own_positions,
                            .cache = d->o.cache};
}

/* The graph of a model that has steps. */
static void build_steps(weft_decoder *d, weft_graph *g, decode_plan *p)
{
    const weft_model *model = d->config.model;
    const weft_decode_io sizes = decode_io(d, &p->sizes);
    const weft_decode_io io =
        (p->sizes.key_len      ? model->step
         : p->sizes.source_len ? model->encode
                               : model->prepare)(g, &d->config.options, &sizes);
    p->source = io.source;
    p->token = io.token;
    p->position = io.position;
    p->parents = io.parents;
    p->updated = io.updated;
    p->logits = io.logits;
}

/* The whole model over the first key_len tokens. `position` selects one position's logits for each
 * row: rows of [rows * key_len, vocab]. */
static void build_whole(weft_decoder *d, weft_graph *g, decode_plan *p)
{
    weft_model_config config = d->config;
    config.build = (weft_build_options){.shape = {d->rows, p->sizes.source_len, p->sizes.key_len}};
    const weft_built model = weft_model_build(g, &config);
    const weft_value logits = model.outputs[0];
    p->source = weft_built_input(&model, "source");
    p->token = weft_built_input(&model, "target_in");
    p->position = weft_input(g, "position", WEFT_I32, WEFT_SHAPE(d->rows));
    int64_t vocab = weft_dim_of(g, logits, -1);
    weft_value all = weft_reshape(g, logits, WEFT_SHAPE(d->rows * p->sizes.key_len, vocab));
    p->logits = weft_embedding(g, all, p->position, -1);
}

static weft_plan *plan_of(weft_decoder *d, const weft_graph *g, const weft_value *targets, size_t n)
{
    const weft_pass quantized = weft_quantized_pass(d->store);
    const weft_plan_options options = {.passes = &quantized, .n_passes = d->quantized};
    return weft_plan_new(g, targets, n, &options, &d->error);
}

/* weft_params_init would create a missing parameter, so the decoder checks first. */
static bool has_params(weft_decoder *d, const weft_graph *g)
{
    bool good = true;
    size_t n;
    const weft_value *values = weft_graph_params(g, &n);
    for (size_t i = 0; good && i < n; i++) {
        const char *name = weft_name_of(g, values[i]);
        if (!weft_params_find(d->store, name, NULL))
            good = weft__decoder_fail(d, WEFT_NOT_FOUND, name, "is not in the parameter store");
    }
    return good;
}

/* Builds and plans p->sizes; false on failure. Adds the states that the plan needs to the store,
 * but no parameter that the store holds in quantised form. */
static bool make_plan(weft_decoder *d, decode_plan *p)
{
    weft_graph *g = weft_graph_new();
    if (!g) return weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a graph");
    if (d->has_steps)
        build_steps(d, g, p);
    else
        build_whole(d, g, p);
    weft_value targets[3];
    size_t n = 0;
    if (weft_is_value(p->updated)) targets[n++] = p->updated;
    if (p->sizes.key_len && !p->sizes.reads) {
        p->log_probs = weft_name(g, weft_log_softmax(g, p->logits, -1), "log_probs");
        targets[n++] = p->logits;
        targets[n++] = p->log_probs;
    }
    const weft_error *e = weft_graph_error(g);
    if (e->status != WEFT_OK)
        copy_error(d, e);
    else if (d->error.status == WEFT_OK)
        p->plan.plan = plan_of(d, g, targets, n);
    weft_graph_free(g);
    if (!p->plan.plan) return false;
    const weft_graph *planned = weft_plan_graph(p->plan.plan);
    if (has_params(d, planned) && weft_params_init(d->store, planned, 0, &d->error) == WEFT_OK)
        return true;
    weft_plan_free(p->plan.plan);
    return false;
}

/* ---- Plans ---- */

static bool same_sizes(const decode_sizes *a, const decode_sizes *b)
{
    return a->source_len == b->source_len && a->key_len == b->key_len &&
           a->sentences == b->sentences && a->beams == b->beams && a->reads == b->reads &&
           a->own_positions == b->own_positions;
}

static decode_plan *find_plan(const weft_decoder *d, const decode_sizes *sizes)
{
    for (plan_entry *e = d->plans.first; e; e = e->next)
        if (same_sizes(&((decode_plan *)(void *)e)->sizes, sizes)) return (decode_plan *)(void *)e;
    return NULL;
}

decode_plan *weft__decoder_plan(weft_decoder *d, decode_sizes sizes)
{
    decode_plan *p = find_plan(d, &sizes);
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) {
            weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a plan");
            return NULL;
        }
        p->sizes = sizes;
        p->plan.store = d->store;
        if (!make_plan(d, p)) {
            free(p);
            return NULL;
        }
        weft__plans_add(&d->plans, &p->plan);
    }
    return weft__plans_open(&d->plans, &p->plan, &d->error) == WEFT_OK ? p : NULL;
}

bool weft__decoder_check_params(weft_decoder *d)
{
    weft_graph *g = weft_graph_new();
    decode_plan p = {.sizes = {.source_len = d->has_source ? 1 : 0, .key_len = 1}};
    if (!g) return weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    build_whole(d, g, &p);
    weft_plan *plan = NULL;
    bool good = weft_graph_status(g) == WEFT_OK || copy_error(d, weft_graph_error(g));
    if (good && d->quantized) {
        plan = plan_of(d, g, &p.logits, 1);
        good = plan != NULL;
    }
    good = good && has_params(d, plan ? weft_plan_graph(plan) : g);
    weft_plan_free(plan);
    weft_graph_free(g);
    return good;
}

bool weft__decoder_feed(weft_decoder *d, decode_plan *p, weft_value input, const int32_t *data,
                        int64_t n)
{
    return weft__plan_feed(&p->plan, input, data, (size_t)n * sizeof *data, &d->error) == WEFT_OK;
}

bool weft__decoder_run(weft_decoder *d, decode_plan *p)
{
    return weft__plan_run(&p->plan, &d->error) == WEFT_OK;
}

bool weft__decoder_prepare(weft_decoder *d)
{
    weft_graph *g = weft_graph_new();
    decode_plan p = {.sizes = {.sentences = 1}};
    if (!g) return weft__decoder_fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a graph");
    build_steps(d, g, &p);
    const bool good = weft_graph_status(g) == WEFT_OK || copy_error(d, weft_graph_error(g));
    const bool empty = !weft_is_value(p.updated);
    weft_graph_free(g);
    decode_plan *made = !good || empty ? NULL : weft__decoder_plan(d, p.sizes);
    return good && (empty || (made && weft__decoder_run(d, made)));
}
