/* weft run: computes the outputs of an ONNX model, or of a checkpoint, from NumPy arrays. */
#include "tool.h"

#include "base/guess.h"
#include "base/platform.h"
#include "base/text.h"
#include "node_names.h"
#include "base/file.h"

#include <weft/numpy.h>
#include <weft/onnx.h>
#include <weft/saved.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    onnx_args file;
    char onnx[4096], checkpoint[4096]; /* of a run; "" for a file */
    named_files inputs, dumps;
    const char *out, *check, *only; /* only: names of outputs; NULL: all */
    int threads;
    uint64_t seed;
    bool random;
    double rtol, atol;
} arguments;

/* ---- Arguments ---- */

/* Adds NAME=FILE, or a whole archive FILE.npz. */
static void take_input(const tool_option *option, void *into, char *text, const tool_parser *parser)
{
    named_files *files = tool_field(option, into);
    const bool whole = tool_ends_with(text, ".npz") && !strchr(text, '=');
    if (!whole || files->n == TOOL_MAX_NAMED)
        tool_take_named_file(option, into, text, parser);
    else
        files->at[files->n++] = (named_file){.path = text};
}

/* The path of a run becomes that of its ONNX file. */
static void find_run(void *into, const tool_parser *parser)
{
    arguments *a = into;
    (void)parser;
    if (!tool_ends_with(a->file.path, ".onnx") &&
        tool_find_fit(a->file.path, a->onnx, a->checkpoint))
        a->file.path = a->onnx;
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {TOOL_ONE(arguments, file.path, "FILE.onnx or RUN"), .required = true},
    {"input", "NAME=FILE", TOOL_INTO(arguments, inputs, take_input),
     "contents of an input, from FILE.npy or FILE.npz:ARRAY; or FILE.npz alone, with an array for "
     "each of several inputs",
     .group = 1},
    {"random", NULL, FIELD(random),
     "fill the inputs that are not given with random numbers in [-1, 1), integers with 0 and 1",
     .group = 1},
    {"seed", "N", FIELD(seed), "of random inputs", 0, 0x1p60, .group = 1},
    {TOOL_INCLUDED(arguments, file, tool_onnx_options), .group = 2},
    {"outputs", "NAMES", FIELD(only),
     "compute only these, such as hidden,pooled (default: all outputs); of FILE.onnx also inner "
     "values",
     .group = 3},
    {"out", "DIR", FIELD(out), "write each output to DIR/NAME.npy", .group = 3},
    {"dump", "NAME=FILE.npy", TOOL_INTO(arguments, dumps, tool_take_named_file),
     "write the value of a node, by its name in `weft profile --by node` or `weft report`; may be "
     "given several times",
     .group = 3},
    {"check", "DIR", FIELD(check),
     "compare the outputs with DIR/NAME.npy; exit status 1 if one differs", .group = 3},
    {"rtol", "X", FIELD(rtol), "relative tolerance of --check", 0, 1e30, .group = 3},
    {"atol", "X", FIELD(atol), "absolute tolerance of --check", 0, 1e30, .group = 3},
    {"threads", "N", FIELD(threads), "threads (default: OpenMP's)", 1, WEFT_MAX_THREADS,
     .group = 4},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "FILE.onnx\nRUN",
    .doc = "Computes the outputs of a model once, and prints a summary of each. RUN is a "
           "checkpoint, or its folder, of `weft fit`, `weft train` or `weft convert`; the inputs "
           "of the latter two are token ids (source, target_in, token_types) or vectors, and "
           "determine the sizes.",
    .check = find_run};

/* ---- A run ---- */

typedef struct run {
    const arguments *a;
    weft_params *inputs, *params, *references;
    weft_saved_model *saved;     /* NULL: params are of the command; else of it */
    weft_onnx *model;            /* NULL: a checkpoint */
    checkpoint_graph checkpoint; /* whose graph is also `graph` */
    weft_graph *graph;
    weft_plan *plan;
    weft_session *session;
    weft_value *in, *out;
    weft_value *all; /* all outputs of a file */
    size_t *which;   /* of these, out[i] is number which[i] */
    size_t n_all;
    weft_value
        *targets; /* out, then what --dump asks for, then the sizes of out that data decide */
    size_t n_targets;
    const weft_onnx_value *inputs_of, *outputs_of;
    weft_onnx_value *chosen; /* outputs_of with --outputs */
    size_t n_in, n_out, compared;
    weft_error error;
} run;

static bool no_memory(run *r)
{
    weft_error_set(&r->error, WEFT_NO_MEMORY, "run", "out of memory");
    return false;
}

/* A run of weft fit is evaluated; a file is computed as it says. */
static void build(run *r)
{
    const weft_builder b = weft_onnx_builder(r->model);
    const weft_build_options o = {.training = false};
    weft_built built = {.n_inputs = 0};
    if (!r->a->checkpoint[0]) {
        weft_onnx_build(r->graph, r->model, 0, r->in, r->out);
        return;
    }
    b.build(b.context, r->graph, &o, &built);
    memcpy(r->in, built.inputs, built.n_inputs * sizeof *r->in);
    memcpy(r->out, built.outputs, built.n_outputs * sizeof *r->out);
}

static bool load_file(run *r)
{
    onnx_args file = r->a->file;
    file.outputs = r->a->only;
    r->model = tool_load_onnx(&file, &r->error);
    if (!r->model) return false;
    r->inputs_of = weft_onnx_inputs(r->model, &r->n_in);
    r->outputs_of = weft_onnx_outputs(r->model, &r->n_out);
    r->in = calloc(r->n_in + 1, sizeof *r->in);
    r->out = calloc(r->n_out + 1, sizeof *r->out);
    r->graph = weft_graph_new();
    if (!r->in || !r->out || !r->graph) return no_memory(r);
    build(r);
    r->n_all = r->n_out;
    r->all = calloc(r->n_all + 1, sizeof *r->all);
    r->which = calloc(r->n_all + 1, sizeof *r->which);
    if (!r->all || !r->which) return no_memory(r);
    for (size_t i = 0; i < r->n_all; i++) {
        r->all[i] = r->out[i];
        r->which[i] = i;
    }
    return tool_take_error(weft_graph_error(r->graph), &r->error) == WEFT_OK &&
           weft_onnx_share_weights(r->model, r->params, &r->error) == WEFT_OK &&
           (!r->a->checkpoint[0] ||
            tool_load_states(r->params, r->graph, r->a->checkpoint, &r->error) == WEFT_OK);
}

static bool load_checkpoint(run *r)
{
    checkpoint_graph *c = &r->checkpoint;
    weft_params_free(r->params);
    r->params = NULL;
    r->saved = weft_saved_open(r->a->file.path, NULL, &r->error);
    if (!r->saved) return false;
    r->params = r->saved->params;
    weft_status status =
        tool_build_checkpoint(&r->saved->config, &r->a->file, r->inputs, c, &r->error);
    r->graph = c->graph;
    r->inputs_of = c->inputs_of;
    r->outputs_of = c->outputs_of;
    r->in = c->built.inputs;
    r->out = c->built.outputs;
    r->n_in = c->built.n_inputs;
    r->n_out = c->built.n_outputs;
    return status == WEFT_OK;
}

/* The value of a name, or output 0 of the node that has it; WEFT_NO_VALUE after an error. */
static weft_value find_value(run *r, const char *name)
{
    weft_value found = weft_graph_find(r->graph, name);
    guess meant = weft__guess_of(name, strlen(name));
    char text[GUESS_BYTES];
    node_names names;
    if (weft_is_value(found)) return found;
    const bool good = weft__node_names_make(&names, r->graph);
    for (size_t i = 0; good && i < weft_graph_node_count(r->graph); i++) {
        const weft_node_info node = weft_graph_node(r->graph, i);
        if (!node.n_out) continue;
        if (!strcmp(names.at[i], name)) found = weft_value_from_id(r->graph, node.first_out);
        weft__guess_try(&meant, names.at[i]);
    }
    if (!good)
        no_memory(r);
    else if (!weft_is_value(found))
        weft_error_set(&r->error, WEFT_NOT_FOUND, name, "is not a value of the model%s",
                       weft__guess_text(&meant, text));
    weft__node_names_free(&names);
    return found;
}

/* Retains the outputs of --outputs, in their order. */
static bool choose_outputs(run *r)
{
    const char *names = r->a->only;
    size_t n = 0, all = r->n_out, wanted = 1;
    if (!names) return true;
    for (const char *at = names; *at; at++) wanted += *at == ',';
    weft_value *out = calloc(wanted, sizeof *out);
    r->chosen = calloc(wanted, sizeof *r->chosen);
    bool good = (out && r->chosen) || no_memory(r);
    for (const char *at = names; good && n < wanted; n++) {
        const size_t length = strcspn(at, ",");
        size_t i = 0;
        while (i < all && (strlen(r->outputs_of[i].name) != length ||
                           strncmp(r->outputs_of[i].name, at, length) != 0))
            i++;
        good = i < all;
        if (good) {
            out[n] = r->out[i];
            r->chosen[n] = r->outputs_of[i];
            if (r->which && n < all) r->which[n] = i;
        } else {
            weft_error_set(&r->error, WEFT_NOT_FOUND, "--outputs",
                           "\"%.*s\" is not an output of the model", (int)length, at);
        }
        at += length + (at[length] == ',');
    }
    for (size_t i = 0; good && i < n && i < all; i++) r->out[i] = out[i];
    free(out);
    if (good && n > all) {
        weft_error_set(&r->error, WEFT_BAD_ARGUMENT, "--outputs", "names an output twice");
        good = false;
    }
    if (!good) return false;
    r->n_out = n;
    r->outputs_of = r->chosen;
    return true;
}

/* All targets of the plan. Inner values are also targets, so that no pass removes them. */
static bool list_targets(run *r)
{
    const named_files *dumps = &r->a->dumps;
    r->targets = calloc(2 * r->n_out + dumps->n + 1, sizeof *r->targets);
    if (!r->targets) return no_memory(r);
    memcpy(r->targets, r->out, r->n_out * sizeof *r->targets);
    r->n_targets = r->n_out;
    for (size_t i = 0; i < dumps->n; i++) {
        r->targets[r->n_targets++] = find_value(r, dumps->at[i].name);
        if (!weft_is_value(r->targets[r->n_targets - 1])) return false;
    }
    for (size_t i = 0; i < r->n_out && r->model; i++)
        if (r->outputs_of[i].size) r->targets[r->n_targets++] = r->all[r->outputs_of[i].size];
    return true;
}

static bool prepare(run *r)
{
    const bool loaded =
        tool_ends_with(r->a->file.path, ".onnx") ? load_file(r) : load_checkpoint(r);
    if (!loaded || !choose_outputs(r) || !list_targets(r)) return false;
    const weft_session_options o = {.threads = r->a->threads, .seed = r->a->seed};
    const weft_pass quantized = weft_quantized_pass(r->params);
    const weft_plan_options plan = {.passes = &quantized,
                                    .n_passes = weft_params_are_quantized(r->params)};
    r->plan = weft_plan_new(r->graph, r->targets, r->n_targets, &plan, &r->error);
    if (!r->plan || weft_params_init(r->params, weft_plan_graph(r->plan), 1, &r->error) != WEFT_OK)
        return false;
    r->session = weft_session_new(r->plan, r->params, &o, &r->error);
    return r->session;
}

/* ---- Inputs ---- */

static bool feed(run *r, size_t i, const weft_tensor *t)
{
    char have[128], want[128];
    const weft_onnx_value *v = &r->inputs_of[i];
    if (t->dtype == v->dtype && weft_shape_equal(t->shape, v->shape)) {
        return weft_session_feed(r->session, r->in[i], t->data,
                                 weft_tensor_bytes(t->dtype, t->shape), &r->error) == WEFT_OK;
    }
    weft_error_set(&r->error, WEFT_BAD_SHAPE, v->name, "is %s %s, but the model expects %s %s",
                   weft_dtype_name(t->dtype), weft_shape_text(t->shape, have, sizeof have),
                   weft_dtype_name(v->dtype), weft_shape_text(v->shape, want, sizeof want));
    return false;
}

/* Numbers in [-1, 1). Integers are 0 and 1, since most integer inputs are indices. */
static bool feed_random(run *r, size_t i)
{
    const weft_onnx_value *v = &r->inputs_of[i];
    weft_sample_input like = {v->dtype, v->shape, -1, 1, false};
    if (v->dtype == WEFT_I32) like = (weft_sample_input){v->dtype, v->shape, 0, 2, false};
    if (v->dtype == WEFT_BOOL) like.high = 0.5; /* the share of true values */
    void *data = malloc(weft_tensor_bytes(v->dtype, v->shape) + 1);
    if (!data) return no_memory(r);
    weft_sample_input_fill(&like, v->dtype, r->a->seed + i, data);
    const weft_tensor made = weft_tensor_dense(data, v->dtype, v->shape);
    const bool good = feed(r, i, &made);
    free(data);
    return good;
}

static bool feed_all(run *r)
{
    for (size_t i = 0; i < weft_params_count(r->inputs); i++) {
        const char *name = weft_params_name(r->inputs, i);
        size_t k = 0;
        while (k < r->n_in && strcmp(r->inputs_of[k].name, name) != 0) k++;
        if (k < r->n_in) continue;
        weft_error_set(&r->error, WEFT_NOT_FOUND, name, "is not an input of the model");
        return false;
    }
    for (size_t i = 0; i < r->n_in; i++) {
        weft_tensor t;
        const bool has = weft_params_find(r->inputs, r->inputs_of[i].name, &t);
        if (!has && !r->a->random) {
            weft_error_set(&r->error, WEFT_NOT_FOUND, r->inputs_of[i].name,
                           "is not given: use --input NAME=FILE.npy, or --random");
            return false;
        }
        if (!(has ? feed(r, i, &t) : feed_random(r, i))) return false;
    }
    return true;
}

/* ---- Outputs ---- */

static void print_output(const char *name, const weft_tensor *t)
{
    char text[128];
    const int64_t n = weft_shape_numel(t->shape);
    double least = INFINITY, most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = weft_tensor_element(t, i);
        least = x < least || isnan(x) ? x : least;
        most = x > most || isnan(x) ? x : most;
        sum += x;
    }
    tool_print_line(stdout, "%s  %s %s  min %.6g  mean %.6g  max %.6g", name,
                    weft_dtype_name(t->dtype), weft_shape_text(t->shape, text, sizeof text),
                    n ? least : 0, n ? sum / (double)n : 0, n ? most : 0);
}

/* DIR/NAME.npy, where slashes of the name are underscores. */
static void file_of(const char *folder, const char *name, char path[4096])
{
    const int n = snprintf(path, 4096, "%s/%s.npy", folder, name);
    for (int i = (int)strlen(folder) + 1; i < n && i < 4095; i++)
        if (path[i] == '/') path[i] = '_';
}

/* Fails if a file is read, be it a reference of --check. */
static bool may_write(run *r, const char *path)
{
    const arguments *a = r->a;
    char reference[4096];
    weft_error *e = &r->error;
    if (tool_check_onnx_output(path, &a->file, r->model, e) != WEFT_OK ||
        tool_check_array_output(path, &a->inputs, e) != WEFT_OK ||
        (a->checkpoint[0] && tool_check_output(path, a->checkpoint, e) != WEFT_OK))
        return false;
    for (size_t i = 0; i < r->n_out && a->check; i++) {
        file_of(a->check, r->outputs_of[i].name, reference);
        if (tool_check_output(path, reference, e) != WEFT_OK) return false;
    }
    return true;
}

/* Before anything is written. */
static bool may_write_all(run *r)
{
    char path[4096];
    for (size_t i = 0; i < r->a->dumps.n; i++)
        if (!may_write(r, r->a->dumps.at[i].path)) return false;
    for (size_t i = 0; i < r->n_out && r->a->out; i++) {
        file_of(r->a->out, r->outputs_of[i].name, path);
        if (!may_write(r, path)) return false;
    }
    return true;
}

static bool save_output(run *r, const weft_onnx_value *v, const weft_tensor *t)
{
    char path[4096];
    if (!weft__os_make_folder(r->a->out) && errno != EEXIST) {
        weft_error_set(&r->error, WEFT_IO, r->a->out, "cannot be made: %s", strerror(errno));
        return false;
    }
    file_of(r->a->out, v->name, path);
    return weft_npy_save(t, path, &r->error) == WEFT_OK;
}

/* Compares with the reference; false if it cannot be read. *differs counts outputs that do. */
static bool check_output(run *r, const weft_onnx_value *v, const weft_tensor *t, size_t *differs)
{
    char path[4096], want[128];
    weft_tensor ref;
    file_of(r->a->check, v->name, path);
    /* For a checkpoint, the references may have only some of the outputs: a model has more of its
     * own. */
    if (!r->model && !weft__file_exists(path)) return true;
    r->compared++;
    if (weft_npy_load(r->references, v->name, path, &r->error) != WEFT_OK) return false;
    weft_params_find(r->references, v->name, &ref);
    if (ref.dtype != t->dtype || !weft_shape_equal(ref.shape, t->shape)) {
        ++*differs;
        tool_print_line(stdout, "%s  differs: the reference is %s %s", v->name,
                        weft_dtype_name(ref.dtype), weft_shape_text(ref.shape, want, sizeof want));
        return true;
    }
    const int64_t n = weft_shape_numel(t->shape);
    int64_t wrong = 0;
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = weft_tensor_element(t, i), b = weft_tensor_element(&ref, i),
                     d = fabs(a - b);
        if (a == b || (isnan(a) && isnan(b))) continue;
        wrong += !(d <= r->a->atol + r->a->rtol * fabs(b));
        if (!(d <= worst)) worst = d;
    }
    *differs += wrong > 0;
    tool_print_line(
        stdout, "%s  %s: %lld of %lld elements beyond the tolerance, largest difference %.3g",
        v->name, wrong ? "differs" : "equals the reference", (long long)wrong, (long long)n, worst);
    return true;
}

static bool take_dumps(run *r)
{
    for (size_t i = 0; i < r->a->dumps.n; i++) {
        const named_file *file = &r->a->dumps.at[i];
        weft_tensor t;
        if (weft_session_tensor(r->session, r->targets[r->n_out + i], &t, &r->error) != WEFT_OK)
            return false;
        print_output(file->name, &t);
        if (weft_npy_save(&t, file->path, &r->error) != WEFT_OK) return false;
    }
    return true;
}

static bool take_outputs(run *r, size_t *differs)
{
    for (size_t i = 0; i < r->n_out; i++) {
        weft_tensor t;
        const weft_status status =
            r->model ? weft_onnx_output(r->model, r->session, r->all, r->which[i], &t, &r->error)
                     : weft_session_tensor(r->session, r->out[i], &t, &r->error);
        if (status != WEFT_OK) return false;
        print_output(r->outputs_of[i].name, &t);
        if (r->a->out && !save_output(r, &r->outputs_of[i], &t)) return false;
        if (r->a->check && !check_output(r, &r->outputs_of[i], &t, differs)) return false;
    }
    if (!r->a->check || r->compared) return true;
    weft_error_set(&r->error, WEFT_NOT_FOUND, r->a->check, "has no NAME.npy of an output");
    return false;
}

/* ---- The command ---- */

static bool run_once(run *r)
{
    const double begin = tool_seconds();
    if (weft_session_run(r->session, &r->error) != WEFT_OK) return false;
    const double seconds = tool_seconds() - begin;
    const weft_plan_stats stats = weft_plan_stats_of(r->plan);
    size_t parameters = 0;
    for (size_t i = 0; i < weft_params_count(r->params); i++) {
        weft_tensor t;
        weft_params_find(r->params, weft_params_name(r->params, i), &t);
        parameters += (size_t)weft_shape_numel(t.shape);
    }
    char size[TEXT_SIZE_BYTES];
    tool_print_line(stdout, "%s: %zu parameters, %.3g GFLOP, arena %s, %.3f ms", r->a->file.path,
                    parameters, 1e-9 * stats.flops,
                    weft__text_from_bytes((double)stats.arena_bytes, size), 1e3 * seconds);
    return true;
}

static void close_run(run *r)
{
    weft_session_free(r->session);
    free(r->targets);
    free(r->all);
    free(r->which);
    free(r->chosen);
    weft_plan_free(r->plan);
    weft_graph_free(r->graph);
    weft_onnx_free(r->model);
    weft_params_free(r->inputs);
    if (!r->saved) weft_params_free(r->params);
    weft_saved_close(r->saved);
    weft_params_free(r->references);
    if (r->in != r->checkpoint.built.inputs) free(r->in);
    if (r->out != r->checkpoint.built.outputs) free(r->out);
}

int cmd_run(int argc, char **argv)
{
    arguments a = {.seed = 1, .rtol = 1e-3, .atol = 1e-5};
    tool_parse(&command, argc, argv, &a);
    run r = {.a = &a,
             .inputs = weft_params_new(),
             .params = weft_params_new(),
             .references = weft_params_new()};
    size_t differs = 0;
    bool good = (r.inputs && r.params && r.references) || no_memory(&r);
    good = good && tool_read_arrays(r.inputs, &a.inputs, &r.error) && prepare(&r) &&
           may_write_all(&r) && feed_all(&r) && run_once(&r) && take_outputs(&r, &differs) &&
           take_dumps(&r);
    if (!good) tool_fail(&r.error);
    close_run(&r);
    return good && !differs ? EXIT_GOOD : EXIT_ERROR;
}
