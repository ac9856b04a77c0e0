/* A listed model as a builder, for the trainer and the forward runner. */
#include <weft/models.h>

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

static void add_input(weft_built *built, weft_value input)
{
    if (weft_is_value(input)) built->inputs[built->n_inputs++] = input;
}

/* The fraction of images whose class has the largest logit; no value of other models. */
static weft_value accuracy(weft_graph *g, const weft_model_config *c, const weft_model_io *io)
{
    if (!weft_model_traits_of(c).classes) return WEFT_NO_VALUE;
    weft_value found = weft_argmax(g, io->output, -1, false);
    weft_value right =
        weft_cast(g, weft_equal(g, found, io->target_out), weft_dtype_of(g, io->loss));
    return weft_mean(g, right, WEFT_ALL_AXES, false);
}

static weft_status build(void *context, weft_graph *graph, const weft_build_options *options,
                         weft_built *built)
{
    weft_model_config config = *(const weft_model_config *)context;
    *built = (weft_built){.n_inputs = 0};
    config.build = *options;
    if (check_source(graph, &config, options) != WEFT_OK) return weft_graph_status(graph);
    const weft_model_io io = weft_model_build(graph, &config);
    if (weft_graph_status(graph) != WEFT_OK) return weft_graph_status(graph);
    const weft_value inputs[] = {io.source,    io.input,      io.memory,
                                 io.target_in, io.target_out, io.target};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) add_input(built, inputs[i]);
    built->outputs[built->n_outputs++] = io.output;
    built->loss = io.loss;
    built->metric = io.nll;
    built->accuracy = accuracy(graph, &config, &io);
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
