/* A listed model as a builder, for the trainer and the forward runner. */
#include <weft/models.h>

#include "run/built.h"

#include <string.h>

static weft_status check_source(weft_graph *g, const weft_model_config *c,
                                const weft_build_options *o)
{
    const weft_model_traits t = weft_model_traits_of(c);
    if (t.vocab && (o->shape.source_len != 0) != (t.source_vocab != 0))
        weft_graph_fail_in(g, c->model->name, WEFT_BAD_ARGUMENT,
                           t.source_vocab ? "has a source, but the batches have none"
                                          : "has no source, but the batches have one");
    return weft_graph_status(g);
}

/* Batches have no token types. */
static void drop_token_types(weft_built *b)
{
    const size_t n = b->n_inputs;
    b->n_inputs = 0;
    for (size_t i = 0; i < n; i++)
        if (!b->input_names[i] || strcmp(b->input_names[i], "token_types") != 0)
            weft__built_add_input(b, b->input_names[i], b->inputs[i]);
}

static weft_status build(void *context, weft_graph *graph, const weft_build_options *options,
                         weft_built *built)
{
    weft_model_config config = *(const weft_model_config *)context;
    *built = (weft_built){.n_inputs = 0};
    config.build = *options;
    if (check_source(graph, &config, options) != WEFT_OK) return weft_graph_status(graph);
    *built = weft_model_build(graph, &config);
    drop_token_types(built);
    if (built->n_outputs > 1) built->n_outputs = 1;
    return weft_graph_status(graph);
}

static bool describe(void *context, char *text, size_t capacity)
{
    return weft_model_options_text(context, text, capacity);
}

weft_builder weft_model_builder(const weft_model_config *config)
{
    return (weft_builder){.name = config && config->model ? config->model->name : NULL,
                          .build = config && config->model ? build : NULL,
                          .describe = describe,
                          .context = (void *)(uintptr_t)config};
}
