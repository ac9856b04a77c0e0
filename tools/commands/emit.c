/* weft emit: writes a model of the list or an ONNX file as one C file, with its training step if that
 * is wanted. */
#include "tool.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* In the order of --optimizer. */
enum optimizer { ADAM, ADAMW, SGD };

typedef struct arguments {
    model_args model;
    bool train;
    unsigned optimizer;      /* of enum optimizer */
    unsigned weights_extern; /* 1: the program fills the memory of all states */
    const char *prefix;      /* NULL: the file's name */
    const char *out;         /* NAME.c */
    uint64_t seed;
} arguments;

/* ---- Arguments ---- */

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (!tool_model_name(&a->model)) tool_usage_error(parser, "MODEL or FILE.onnx is missing");
    if (!tool_ends_with(a->out, ".c"))
        tool_usage_error(parser, "-o %s: the file is C: name it .c", a->out);
    if (a->optimizer && !a->train) tool_usage_error(parser, "--optimizer needs --train");
    tool_check_fixed(a->train, &a->model, parser);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {NULL, "NAME.c", FIELD(out), "the file to write; NAME.h is written next to it", .letter = 'o',
     .required = true},
    {"train", NULL, FIELD(train), "the whole training step: loss, gradients and update"},
    {"optimizer", "adam|adamw|sgd", FIELD(optimizer),
     "of --train; adam and adamw clip gradients at 1"},
    {"weights", "in-file|extern", FIELD(weights_extern),
     "where the parameters are: constants of NAME.c, or memory that the program fills"},
    {"prefix", "NAME", FIELD(prefix), "of what the files declare (default: the name of the file)"},
    {"seed", "N", FIELD(seed), "of the first parameters of MODEL", 0, 0x1p60},
    {TOOL_INCLUDED(arguments, model.plan, tool_plan_options)},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "MODEL [KEY=VALUE...] -o NAME.c\nFILE.onnx -o NAME.c",
    .doc = "Writes a model as C99 that needs no library: NAME.h and NAME.c compute the bits of "
           "weft, in memory that the caller owns.",
    .notes = "Shapes are fixed in the file: give the sizes of the batch as KEY=VALUE (see `weft "
             "models`), or --batch and --dim for a FILE. " TOOL_FILE_LOSS,
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

static weft_status write_both(const arguments *a, const files *f, const weft_plan *plan,
                              weft_error *error)
{
    char header[4096], arena[TEXT_SIZE_BYTES], states[TEXT_SIZE_BYTES], size[TEXT_SIZE_BYTES];
    weft__text_format(header, sizeof header, "%.*s.h", (int)strlen(a->out) - 2, a->out);
    if (!tool_write_output(header, f->part[1].data, f->part[1].n, error) ||
        !tool_write_output(a->out, f->part[0].data, f->part[0].n, error))
        return error->status;
    const weft_plan_stats stats = weft_plan_stats_of(plan);
    tool_print_line(stdout, "%s: %s, %zu nodes; arena %s, states %s", a->out,
                    weft__text_from_bytes((double)f->part[0].n, size), stats.nodes,
                    weft__text_from_bytes((double)stats.arena_bytes, arena),
                    weft__text_from_bytes((double)stats.state_bytes, states));
    return WEFT_OK;
}

/* ---- Models ---- */

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

static weft_status emit_plan(const arguments *a, const built_model *m, const weft_params *params,
                             weft_error *error)
{
    char header[256], prefix[256];
    files f = {0};
    weft_emit_value *outputs = calloc(m->n_outputs + 1, sizeof *outputs);
    if (!outputs) return weft_error_set(error, WEFT_NO_MEMORY, "emit", "out of memory");
    header_name(a->out, header, sizeof header);
    const weft_emit_options o = {.name = a->prefix ? a->prefix
                                                   : prefix_of(header, prefix, sizeof prefix),
                                 .header = header,
                                 .outputs = outputs,
                                 .n_outputs = find_outputs(a, m, outputs),
                                 .rate = a->train ? m->lr : WEFT_NO_VALUE,
                                 .params = params,
                                 .write = take_text,
                                 .context = &f};
    weft_plan *plan = tool_plan(m, error);
    if (plan && weft_emit(plan, &o, error) == WEFT_OK) write_both(a, &f, plan, error);
    weft_plan_free(plan);
    free(outputs);
    free(f.part[0].data);
    free(f.part[1].data);
    return error->status;
}

static weft_status emit_model(const arguments *a, weft_error *error)
{
    built_model m;
    weft_optimizer optimizer = WEFT_ADAM_DEFAULT;
    arguments with = *a;
    if (a->optimizer == ADAMW)
        optimizer = WEFT_ADAMW_DEFAULT;
    else if (a->optimizer == SGD)
        optimizer = WEFT_DEFAULTS(weft_optimizer);
    with.model.optimizer = &optimizer;
    weft_params *params = weft_params_new();
    if (!params) return weft_error_set(error, WEFT_NO_MEMORY, "emit", "out of memory");
    weft_status status = tool_build_args(&with.model, a->train, &m, error);
    if (status == WEFT_OK) {
        if (m.file) status = weft_onnx_copy_weights(m.file, params, error);
        if (status == WEFT_OK) status = weft_params_init(params, m.graph, a->seed, error);
        if (status == WEFT_OK) status = emit_plan(a, &m, a->weights_extern ? NULL : params, error);
        tool_free_model(&m);
    }
    weft_params_free(params);
    return status;
}

int cmd_emit(int argc, char **argv)
{
    weft_error error = {0};
    arguments a = {.optimizer = ADAM};
    tool_parse(&command, argc, argv, &a);
    a.model.onnx.out = a.out;
    return emit_model(&a, &error) == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
