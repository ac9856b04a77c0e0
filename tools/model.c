/* Models of the command line, of the list or from an ONNX file, and their graphs. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

/* ---- Arguments ---- */

void tool_take_model_arg(void *into, char *text, const tool_parser *parser)
{
    model_args *args = into;
    char meant[TOOL_GUESS_BYTES];
    if (args->onnx.path)
        tool_usage_error(parser,
                         "FILE.onnx takes no option \"%s\"; its sizes are --dim and --batch", text);
    if (args->model) {
        if (args->n_options == WEFT_MODEL_OPTIONS)
            tool_usage_error(parser, "too many model options");
        args->options[args->n_options++] = text;
    } else if (tool_ends_with(text, ".onnx")) {
        args->onnx.path = text;
    } else {
        args->model = weft_model_find(text);
        if (!args->model)
            tool_usage_error(parser, "no model \"%s\" (see `weft models`)%s", text,
                             tool_guess_model(text, meant));
    }
}

static const tool_option plan_options[] = {
    {"fixed", NULL, TOOL_FIELD(weft_plan_options, fixed_states), TOOL_FIXED},
    {"memory", "SIZE", TOOL_SIZE(weft_plan_options, memory_budget),
     "maximum of the arena, such as 500M or 2G bytes (10^9); with --train the backward pass "
     "recomputes values to stay below it"},
    {"recompute", "SCOPES", TOOL_FIELD(weft_plan_options, recompute),
     "with --train, the backward pass computes what lies in each of these scopes, such as "
     "enc.0,enc.1, again"},
    {"precision", TOOL_PRECISIONS, TOOL_FIELD(weft_plan_options, precision), TOOL_PRECISION},
    {"keep-f32", "SCOPES", TOOL_FIELD(weft_plan_options, keep_f32),
     "with --precision bf16, nodes of these scopes, such as dec.out,enc.0, store f32"},
    {0}};

const tool_command tool_plan_options = {.options = plan_options};

static const tool_option file_options[] = {
    {TOOL_INCLUDED(model_args, onnx, tool_onnx_options), .doc = "Of FILE.onnx:", .group = 1}, {0}};

const tool_command tool_model_options = {.options = file_options, .argument = tool_take_model_arg};

void tool_check_fixed(bool train, const model_args *args, const tool_parser *parser)
{
    if (train && args->plan.fixed_states)
        tool_usage_error(parser,
                         "--fixed and --train exclude each other: training changes the parameters");
}

const char *tool_model_name(const model_args *args)
{
    return args->model ? args->model->name : args->onnx.path;
}

/* ---- Graphs ---- */

static weft_status build_step(built_model *m, const weft_optimizer *optimizer)
{
    weft_graph *g = m->graph;
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    m->lr = weft_input(g, "lr", weft_dtype_of(g, m->built.loss), WEFT_SCALAR);
    m->step = weft_train_update(g, m->built.loss, NULL, 0, m->lr, optimizer ? optimizer : &adam,
                                &m->norm);
    return weft_graph_status(g);
}

/* For weft_graph_freeze: running statistics that the optimiser freezes are not those of the batch. */
static bool is_frozen(void *context, const char *name)
{
    return weft_optimizer_freezes(context, name);
}

void tool_free_model(built_model *m)
{
    weft_graph_free(m->graph);
    weft_onnx_free(m->file);
    free(m->outputs);
    memset(m, 0, sizeof *m);
}

static weft_status build_listed(const model_args *args, bool training, built_model *out,
                                weft_error *error)
{
    weft_optimizer optimizer = args->optimizer ? *args->optimizer : WEFT_ADAM_DEFAULT;
    memset(out, 0, sizeof *out);
    out->graph = weft_graph_new();
    weft_graph_freeze(out->graph, is_frozen, &optimizer);
    weft_status status;
    if (args->config) {
        weft_model_config config = *args->config;
        config.build.training = training;
        out->built = weft_model_build(out->graph, &config);
        status = tool_take_error(weft_graph_error(out->graph), error);
    } else {
        status = weft_model_build_text(out->graph, args->model, args->options, args->n_options,
                                       training, &out->built, error);
    }
    weft_graph_freeze(out->graph, NULL, NULL);
    if (status == WEFT_OK && training && build_step(out, args->optimizer) != WEFT_OK)
        status = tool_take_error(weft_graph_error(out->graph), error);
    if (status != WEFT_OK) tool_free_model(out);
    out->plan = args->plan;
    return status;
}

weft_status tool_build(const weft_model *model, const char *const *options, size_t n_options,
                       bool training, built_model *out, weft_error *error)
{
    model_args args = {.model = model, .n_options = n_options};
    if (n_options > WEFT_MODEL_OPTIONS)
        return weft_error_set(error, WEFT_TOO_LARGE, "model", "too many options");
    for (size_t i = 0; i < n_options; i++) args.options[i] = options[i];
    return build_listed(&args, training, out, error);
}

weft_status tool_add_loss(built_model *m, weft_error *error)
{
    weft_graph *g = m->graph;
    const weft_value output = m->built.outputs[0];
    if (!weft_is_value(output) || !weft_dtype_is_float(weft_dtype_of(g, output)))
        return weft_error_set(error, WEFT_BAD_DTYPE, "loss",
                              "the model has no floating-point output to take it of");
    m->built.loss = weft_mean(g, weft_square(g, output), WEFT_ALL_AXES, false);
    return tool_take_error(weft_graph_error(g), error);
}

static weft_status build_evaluated(built_model *m)
{
    const weft_builder b = weft_onnx_builder(m->file);
    const weft_build_options o = {.training = false};
    weft_built built = {.n_outputs = 0};
    const weft_status status = b.build(b.context, m->graph, &o, &built);
    memcpy(m->outputs, built.outputs, built.n_outputs * sizeof *m->outputs);
    return status;
}

/* Builds the file's graph, and chooses the output that losses are of. */
static weft_status build_file(built_model *m, bool evaluated, weft_error *error)
{
    size_t n_inputs;
    weft_onnx_inputs(m->file, &n_inputs);
    weft_onnx_outputs(m->file, &m->n_outputs);
    weft_value *inputs = calloc(n_inputs + 1, sizeof *inputs);
    m->outputs = calloc(m->n_outputs + 1, sizeof *m->outputs);
    m->graph = weft_graph_new();
    weft_status status = WEFT_OK;
    if (!inputs || !m->outputs || !m->graph)
        status = weft_error_set(error, WEFT_NO_MEMORY, "model", "no memory for its graph");
    else if ((evaluated ? build_evaluated(m)
                        : weft_onnx_build(m->graph, m->file, 0, inputs, m->outputs)) != WEFT_OK)
        status = tool_take_error(weft_graph_error(m->graph), error);
    free(inputs);
    if (status != WEFT_OK) return status;
    /* Synthetic integers are 0 and 1, valid as indices and as sizes. */
    m->built = (weft_built){.outputs = {m->outputs[0]}, .n_outputs = 1, .vocab = 2};
    for (size_t i = m->n_outputs; i-- > 0;)
        if (weft_dtype_is_float(weft_dtype_of(m->graph, m->outputs[i])))
            m->built.outputs[0] = m->outputs[i];
    return WEFT_OK;
}

weft_status tool_build_args(const model_args *args, bool training, built_model *out,
                            weft_error *error)
{
    if (args->model || args->config) return build_listed(args, training, out, error);
    *out = (built_model){.plan = args->plan};
    out->file = tool_load_onnx(&args->onnx, error);
    if (!out->file) return error->status;
    weft_status status;
    if (training && args->loss.kind) {
        status = tool_build_loss(out, &args->loss, error);
    } else {
        status = build_file(out, args->evaluated, error);
        if (status == WEFT_OK && training) status = tool_add_loss(out, error);
    }
    if (status == WEFT_OK && training && build_step(out, args->optimizer) != WEFT_OK)
        status = tool_take_error(weft_graph_error(out->graph), error);
    if (status != WEFT_OK) tool_free_model(out);
    return status;
}

size_t tool_targets(const built_model *m, weft_value targets[2])
{
    bool training = weft_is_value(m->step);
    targets[0] = training ? m->built.loss : m->built.outputs[0];
    targets[1] = m->step;
    return training ? 2 : 1;
}

weft_plan *tool_plan(const built_model *m, weft_error *error)
{
    weft_value targets[2];
    const size_t n = tool_targets(m, targets);
    const bool all = m->outputs && !weft_is_value(m->step);
    return weft_plan_new(m->graph, all ? m->outputs : targets, all ? m->n_outputs : n, &m->plan,
                         error);
}
