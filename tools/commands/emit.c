/* weft emit: writes a model of the list, a trained run or an ONNX file as one C file, with its training
 * step if that is wanted. */
#include "quantize/quantize.h"
#include "training/fit_data.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* In the order of --optimizer. */
enum optimizer { ADAM, ADAMW, SGD };

typedef struct arguments {
    source_args from;
    bool train;
    const char *train_on;    /* patterns; NULL: all parameters */
    unsigned optimizer;      /* of enum optimizer */
    unsigned weights_extern; /* 1: the program fills the memory of all states */
    unsigned kernels;        /* weft_emit_kernels */
    const char *prefix;      /* NULL: the file's name */
    const char *out;         /* NAME.c */
} arguments;

/* ---- Arguments ---- */

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (!tool_ends_with(a->out, ".c"))
        tool_usage_error(parser, "-o %s: the file is C: name it .c", a->out);
    if ((a->optimizer || a->from.model.loss.kind) && !a->train)
        tool_usage_error(parser, "--optimizer and --loss need --train");
    if (a->from.model.loss.kind && !a->from.model.onnx.path)
        tool_usage_error(parser, "--loss is for FILE.onnx: other models have their own");
    if (a->train_on && !a->train) tool_usage_error(parser, "--train-on needs --train");
    tool_check_fixed(a->train, &a->from.model, parser);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {NULL, "NAME.c", FIELD(out), "the file to write; NAME.h is written next to it", .letter = 'o',
     .required = true},
    {"train", NULL, FIELD(train), "the whole training step: loss, gradients and update"},
    {"train-on", "PATTERNS", FIELD(train_on),
     "of the only parameters and running statistics that --train updates, such as classifier.*"},
    {"optimizer", "adam|adamw|sgd", FIELD(optimizer),
     "of --train; adam and adamw clip gradients at 1"},
    {"loss", RECIPE_LOSSES, FIELD(from.model.loss.kind),
     "of --train with FILE.onnx; its targets are an input. model: that of a run of weft fit, or "
     "the "
     "mean of squares of the first floating-point output"},
    {"weights", "in-file|extern", FIELD(weights_extern),
     "where the parameters are: constants of NAME.c, or memory that the program fills"},
    {"kernels", "plain|simd", FIELD(kernels),
     "plain: small; simd: the same bits, with the vectors of an application processor"},
    {"prefix", "NAME", FIELD(prefix), "of what the files declare (default: the name of the file)"},
    {TOOL_INCLUDED(arguments, from.model.plan, tool_plan_options)},
    {TOOL_INCLUDED(arguments, from, tool_source_options)},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "MODEL [KEY=VALUE...] -o NAME.c\nRUN [KEY=VALUE...] -o NAME.c\nFILE.onnx -o NAME.c",
    .doc = "Writes a model as C99 that needs no library: NAME.h and NAME.c compute the bits of "
           "weft, in memory that the caller owns.",
    .notes =
        "RUN is a checkpoint, or its folder, of `weft train`, `weft fit`, `weft convert` or `weft "
        "quantize`. Shapes are fixed in the file: give the sizes of the batch as KEY=VALUE (see "
        "`weft models`), or --batch and --dim for FILE.onnx.",
    .check = check};

/* ---- Files ---- */

typedef struct text {
    char *data;
    size_t n, room;
} text;

/* Both files, until they are complete. */
typedef struct files {
    text part[2]; /* the source, the header */
} files;

static bool take_text(void *context, bool header, const char *data, size_t n)
{
    text *t = &((files *)context)->part[header];
    if (t->n + n > t->room) {
        const size_t room = 2 * (t->n + n);
        char *grown = realloc(t->data, room);
        if (!grown) return false;
        t->data = grown;
        t->room = room;
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    return true;
}

/* "net.h" of "folder/net.c". */
static const char *header_name(const char *path, char *buffer, size_t size)
{
    const char *slash = strrchr(path, '/');
    weft__text_format(buffer, size, "%s", slash ? slash + 1 : path);
    buffer[strlen(buffer) - 1] = 'h';
    return buffer;
}

/* "my_net" of "my-net.h". */
static const char *prefix_of(const char *header, char *buffer, size_t size)
{
    weft__text_format(buffer, size, "%.*s", (int)strlen(header) - 2, header);
    for (char *at = buffer; *at; at++)
        if (!isalnum((unsigned char)*at)) *at = '_';
    return buffer;
}

static weft_status write_both(const arguments *a, const files *f, size_t nodes,
                              weft_emit_sizes sizes, weft_error *error)
{
    char header[4096], arena[TEXT_SIZE_BYTES], states[TEXT_SIZE_BYTES], size[TEXT_SIZE_BYTES];
    weft__text_format(header, sizeof header, "%.*s.h", (int)strlen(a->out) - 2, a->out);
    if (!tool_write_output(header, f->part[1].data, f->part[1].n, error) ||
        !tool_write_output(a->out, f->part[0].data, f->part[0].n, error))
        return error->status;
    tool_print_line(stdout, "%s: %s, %zu nodes; arena %s, states %s", a->out,
                    weft__text_from_bytes((double)f->part[0].n, size), nodes,
                    weft__text_from_bytes((double)sizes.arena_bytes, arena),
                    weft__text_from_bytes((double)sizes.state_bytes, states));
    return WEFT_OK;
}

/* ---- Models ---- */

/* What is read: the model, with its graph, and its parameters. */
typedef struct source {
    weft_saved_model *run; /* of a listed model; NULL: none */
    weft_model_config config;
    built_model m;
    weft_params *params; /* shares those of `run` */
    weft_pass quantized;
    weft_optimizer optimizer;
} source;

static bool is_of_training(void *context, const char *name)
{
    (void)context;
    return !weft_model_states.selects(weft_model_states.context, name);
}

/* Moments and counters of the checkpoint that are those of this step: training goes on with them. */
static weft_status load_moments(source *s, const char *path, weft_error *error)
{
    static const weft_params_filter of_training = {is_of_training, NULL};
    const weft_load_options o = {s->m.graph, &of_training, true, true};
    return weft_params_load_with(s->params, path, &o, NULL, error);
}

/* The model that the saved file of the states will name. */
static weft_status set_meta(source *s, weft_error *error)
{
    char list[WEFT_OPTIONS_TEXT];
    if (!weft_model_options_text(&s->config, list, sizeof list)) return WEFT_OK;
    const weft_status status =
        weft_params_set_meta(s->params, "model", s->config.model->name, error);
    return status == WEFT_OK ? weft_params_set_meta(s->params, "model_options", list, error)
                             : status;
}

/* Opens a run of a listed model. */
static weft_status open_run(const arguments *a, source *s, weft_error *error)
{
    s->run = weft_saved_open(a->from.run, a->from.checkpoint, error);
    if (!s->run ||
        (a->train && weft__quantized_refuse(s->run->params, a->from.run, error) != WEFT_OK))
        return error->status;
    s->config = s->run->config;
    if (tool_take_run_sizes(&a->from, &s->config, error) == WEFT_OK)
        weft_params_share(s->params, s->run->params, error);
    return error->status;
}

static weft_status read_listed(const arguments *a, model_args *with, source *s, weft_error *error)
{
    if (a->from.run)
        open_run(a, s, error);
    else
        weft_model_parse(with->model, with->options, with->n_options, &s->config, error);
    with->config = &s->config;
    if (error->status != WEFT_OK || set_meta(s, error) != WEFT_OK ||
        tool_build_args(with, a->train, &s->m, error) != WEFT_OK)
        return error->status;
    s->quantized = weft_quantized_pass(s->params);
    if (weft_params_are_quantized(s->params)) {
        s->m.plan.passes = &s->quantized;
        s->m.plan.n_passes = 1;
    }
    return s->run && a->train ? load_moments(s, s->run->path, error) : WEFT_OK;
}

/* FILE.onnx, or that of a run of weft fit with the run's weights. */
static weft_status read_file(const arguments *a, model_args *with, source *s, weft_error *error)
{
    const char *path = tool_source_weights(&a->from);
    if (a->train && with->evaluated && !with->loss.kind &&
        !fit_read_loss(with->onnx.path, &with->loss, error))
        return error->status;
    if (with->loss.output[0]) with->onnx.outputs = with->loss.output;
    weft_status status = tool_build_args(with, a->train, &s->m, error);
    if (status == WEFT_OK) status = weft_onnx_share_weights(s->m.file, s->params, error);
    if (status != WEFT_OK || !with->evaluated) return status;
    status = tool_load_states(s->params, s->m.graph, path, error);
    return status == WEFT_OK && a->train ? load_moments(s, path, error) : status;
}

static weft_status read_source(const arguments *a, source *s, weft_error *error)
{
    const weft_param_group groups[] = {{.names = a->train_on}, {.names = "*", .frozen = true}};
    model_args with = a->from.model;
    s->optimizer = a->optimizer == SGD     ? WEFT_DEFAULTS(weft_optimizer)
                   : a->optimizer == ADAMW ? WEFT_ADAMW_DEFAULT
                                           : WEFT_ADAM_DEFAULT;
    if (a->train_on) {
        s->optimizer.groups = groups;
        s->optimizer.n_groups = 2;
    }
    with.optimizer = &s->optimizer;
    s->params = weft_params_new();
    if (!s->params) return weft_error_set(error, WEFT_NO_MEMORY, "emit", "out of memory");
    const weft_status status =
        with.onnx.path ? read_file(a, &with, s, error) : read_listed(a, &with, s, error);
    /* Quantised matrices are read as they are. */
    if (status != WEFT_OK || a->weights_extern || weft_params_are_quantized(s->params) ||
        weft_params_init(s->params, s->m.graph, a->from.seed, error) != WEFT_OK)
        return error->status;
    return tool_freeze_states(&s->m, s->params, error);
}

static void close_source(source *s)
{
    tool_free_model(&s->m);
    weft_params_free(s->params);
    weft_saved_close(s->run);
}

/* The outputs of the files; returns how many there are. `outputs` has room for all. */
static size_t find_outputs(const arguments *a, const built_model *m, weft_emit_value *outputs)
{
    size_t n_names;
    const weft_onnx_value *names = m->file ? weft_onnx_outputs(m->file, &n_names) : NULL;
    if (a->train) {
        outputs[0] = (weft_emit_value){m->built.loss, "loss"};
        return 1;
    }
    if (!m->file) {
        outputs[0] = (weft_emit_value){m->built.outputs[0], "output"};
        return 1;
    }
    for (size_t i = 0; i < m->n_outputs; i++)
        outputs[i] = (weft_emit_value){m->outputs[i], names[i].name};
    return m->n_outputs;
}

static weft_status emit_plan(const arguments *a, const source *s, const weft_plan *plan,
                             weft_error *error)
{
    char header[256], prefix[256];
    files f = {0};
    weft_emit_sizes sizes;
    weft_emit_value *outputs = calloc(s->m.n_outputs + 1, sizeof *outputs);
    if (!outputs) return weft_error_set(error, WEFT_NO_MEMORY, "emit", "out of memory");
    header_name(a->out, header, sizeof header);
    const weft_emit_options o = {.name = a->prefix ? a->prefix
                                                   : prefix_of(header, prefix, sizeof prefix),
                                 .header = header,
                                 .outputs = outputs,
                                 .n_outputs = find_outputs(a, &s->m, outputs),
                                 .rate = a->train ? s->m.lr : WEFT_NO_VALUE,
                                 .params = a->weights_extern ? NULL : s->params,
                                 .kernels = (weft_emit_kernels)a->kernels,
                                 .write = take_text,
                                 .context = &f,
                                 .sizes = &sizes};
    if (weft_emit(plan, &o, error) == WEFT_OK)
        write_both(a, &f, weft_plan_stats_of(plan).nodes, sizes, error);
    free(outputs);
    free(f.part[0].data);
    free(f.part[1].data);
    return error->status;
}

int cmd_emit(int argc, char **argv)
{
    weft_error error = {0};
    arguments a = {.optimizer = ADAM};
    source s = {0};
    tool_parse(&command, argc, argv, &a);
    a.from.model.onnx.out = a.out;
    weft_plan *plan = NULL;
    if (tool_check_source_output(a.out, &a.from, &error) == WEFT_OK &&
        read_source(&a, &s, &error) == WEFT_OK && (plan = tool_plan(&s.m, &error)) &&
        weft_params_init(s.params, weft_plan_graph(plan), a.from.seed, &error) == WEFT_OK)
        emit_plan(&a, &s, plan, &error);
    weft_plan_free(plan);
    close_source(&s);
    return error.status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
