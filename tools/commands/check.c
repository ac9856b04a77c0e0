/* weft check: gradients against central differences in f64. */
#include "changing_passes.h"
#include "system.h"
#include "tool.h"

#include "zoo/bits.h"
#include "zoo/registry.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ORDER_LIMIT  1e-6
#define SECOND_ORDER_LIMIT 1e-4

typedef struct arguments {
    model_args model;
    const char *op;
    int threads;
    bool bits, json;
} arguments;

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->op && tool_model_name(&a->model)) tool_usage_error(parser, "give either --op or MODEL");
    if (a->threads && !a->bits) tool_usage_error(parser, "--threads needs --bits");
    if (a->op && !weft_op_find(a->op))
        tool_usage_error(parser, "no op \"%s\" (see `weft ops`)", a->op);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option check_options[] = {
    {"op", "NAME", FIELD(op), "this op only"},
    {"bits", NULL, FIELD(bits),
     "print hashes of what each op computes from its samples and of each model's parameters after "
     "ten training steps, and whether they are the specified ones, which are the same on every "
     "machine; or which passes that change bits WEFT_SKIP leaves out"},
    {"threads", "N", FIELD(threads), "threads of --bits (default: all)", 1, WEFT_MAX_THREADS},
    {"json", NULL, FIELD(json), "print JSON"},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

static const tool_command command = {
    .options = check_options,
    .usage = "[MODEL [OPTION=VALUE...]]\nFILE.onnx",
    .doc =
        "Checks gradients in f64 against central differences: of all ops, first and second order, "
        "or of a whole model at a small size. Outputs are weighted with random cotangents. Errors "
        "are relative; the limits are 1e-6 and 1e-4.",
    .notes = "The loss of FILE.onnx is the mean of squares of its first floating-point output. Its "
             "weights are the file's, in f64.",
    .check = check};

/* The worst error of each order over all samples of an op. */
static bool check_op(const weft_op *op, double worst[2], size_t *checked, weft_error *error)
{
    worst[0] = worst[1] = 0;
    for (size_t s = 0; s < op->n_samples; s++)
        for (int order = 1; order <= 2; order++) {
            weft_check_result r;
            if (weft_check_op(op, s, order, -1, 1, &r, error) != WEFT_OK) return false;
            /* The maximum; NaN if either is NaN. */
            if (!isnan(worst[order - 1]) && !(r.worst_error <= worst[order - 1]))
                worst[order - 1] = r.worst_error;
            *checked += r.checked;
        }
    return true;
}

static int check_ops(const arguments *a)
{
    cJSON *list = cJSON_CreateArray();
    int failures = 0;
    if (!a->json) printf("%-20s %12s %12s %8s\n", "op", "order 1", "order 2", "checked");
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        weft_error error = {0};
        double worst[2];
        size_t checked = 0;
        if (a->op && strcmp(a->op, op->name) != 0) continue;
        bool ran = check_op(op, worst, &checked, &error);
        bool alone = !op->exchanges; /* the suite collectives checks the others on several ranks */
        bool empty = !op->n_samples; /* the suite complete says which ops may have none */
        bool idle = op->gradient == WEFT_GRADIENT_VJP && !checked && alone && !empty;
        bool good = ran && !idle && worst[0] <= FIRST_ORDER_LIMIT && worst[1] <= SECOND_ORDER_LIMIT;
        const char *verdict = !ran                   ? error.message
                              : worst[0] == INFINITY ? "FAILED: depends on the layout of its inputs"
                              : op->gradient == WEFT_GRADIENT_ZERO     ? "zero by definition"
                              : op->gradient == WEFT_GRADIENT_NONE     ? "none by design"
                              : op->gradient == WEFT_GRADIENT_STRAIGHT ? "that of a surrogate"
                              : !alone                                 ? "needs other processes"
                              : empty                                  ? "nothing to check"
                              : idle                                   ? "FAILED: nothing checked"
                              : good                                   ? "ok"
                                                                       : "FAILED";
        failures += !good;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "op", op->name);
        cJSON_AddNumberToObject(item, "order1", worst[0]);
        cJSON_AddNumberToObject(item, "order2", worst[1]);
        cJSON_AddNumberToObject(item, "checked", (double)checked);
        cJSON_AddStringToObject(item, "verdict", verdict);
        cJSON_AddItemToArray(list, item);
        if (!a->json)
            printf("%-20s %12.2e %12.2e %8zu %s\n", op->name, worst[0], worst[1], checked, verdict);
    }
    int status = a->json ? tool_print_json(list) : EXIT_GOOD;
    if (!a->json) cJSON_Delete(list);
    if (failures) fprintf(stderr, "weft check: %d ops failed\n", failures);
    return failures ? EXIT_ERROR : status;
}

/* ---- A model ---- */

/* The inputs that are differentiated too: vectors of a listed model, all floats of a file. */
static bool is_checked(const built_model *m, bool file, weft_value input)
{
    if (file) return weft_dtype_of(m->graph, input) == WEFT_F64;
    return input.id == weft_built_input(&m->built, "input").id ||
           input.id == weft_built_input(&m->built, "memory").id;
}

/* A line on a terminal, with the time that is left. */
typedef struct check_progress {
    double begin;
    bool shown;
} check_progress;

static void show_progress(void *context, size_t done, size_t n)
{
    check_progress *p = context;
    const double spent = tool_seconds() - p->begin;
    const int left = (int)fmin(spent / (double)done * (double)(n - done), 1e8);
    if (spent < 1 || !system_is_terminal(stderr)) return;
    fprintf(stderr, "\r\033[K%zu of %zu parameters and inputs checked  %d:%02d:%02d left", done, n,
            left / 3600, left / 60 % 60, left % 60);
    p->shown = true;
}

/* The store has a file's weights; parameters of a listed model are random. */
static weft_status run_model_check(built_model *m, bool file, weft_params *store,
                                   weft_check_result *result, weft_error *error)
{
    weft_graph *g = m->graph;
    sample_inputs e = {NULL, 0};
    size_t n;
    const weft_value *params = weft_graph_params(g, &n);
    weft_status status = tool_sample_inputs(m, &e, error);
    weft_value *wrt = calloc(n + e.n + 1, sizeof *wrt);
    if (status == WEFT_OK && !wrt)
        status = weft_error_set(error, WEFT_NO_MEMORY, "check", "no memory");
    if (status == WEFT_OK) status = weft_params_init(store, g, 1, error);
    check_progress shown = {.begin = tool_seconds()};
    if (status == WEFT_OK) {
        weft_gradient_check check = {.loss = m->built.loss,
                                     .wrt = wrt,
                                     .params = store,
                                     .feeds = e.feed,
                                     .n_feeds = e.n,
                                     .per_value = 6,
                                     .seed = 1,
                                     .progress = show_progress,
                                     .context = &shown};
        if (n) memcpy(wrt, params, n * sizeof *params);
        for (size_t i = 0; i < e.n; i++)
            if (is_checked(m, file, e.feed[i].input)) wrt[n++] = e.feed[i].input;
        check.n = n;
        if (n == 0)
            status = weft_error_set(error, WEFT_BAD_ARGUMENT, "check",
                                    "the model has no parameters and no floating-point inputs");
        else
            status = weft_check_gradient(g, &check, result, error);
        if (shown.shown) fputs("\r\033[K", stderr);
    }
    sample_inputs_free(&e);
    free(wrt);
    return status;
}

/* Options of a model's small size and those of the command line. */
#define MAX_OPTIONS (2 * WEFT_MODEL_OPTIONS + 1)

/* The options of the model's small size, then those of the command line, which override them.
 * `text`, of TOOL_OPTIONS_TEXT bytes, stores the first. */
static size_t small_options(const model_args *a, char *text, const char **options)
{
    snprintf(text, TOOL_OPTIONS_TEXT, "%s", a->model->small);
    size_t n = weft__options_split(text, options, WEFT_MODEL_OPTIONS);
    for (size_t i = 0; i < a->n_options; i++) options[n++] = a->options[i];
    return n;
}

/* The model at its small size, in f64. */
static weft_status build_small(const model_args *a, built_model *m, weft_error *error)
{
    const char *options[MAX_OPTIONS] = {"f64=1"};
    char small[TOOL_OPTIONS_TEXT];
    size_t n = 1 + small_options(a, small, options + 1);
    m->graph = weft_graph_new();
    return weft_model_build_text(m->graph, a->model, options, n, true, &m->built, error);
}

/* The file's graph with a loss, in f64. */
static weft_status build_wide(const model_args *a, built_model *m, weft_params *weights,
                              weft_error *error)
{
    built_model narrow;
    weft_status status = tool_build_args(a, false, &narrow, error);
    if (status != WEFT_OK) return status;
    status = tool_add_loss(&narrow, error);
    if (status == WEFT_OK) status = tool_widen(&narrow, m, weights, error);
    tool_free_model(&narrow);
    return status;
}

static int check_model(const arguments *a)
{
    weft_error error = {0};
    const bool file = !a->model.model;
    built_model m = {.graph = NULL};
    weft_check_result r;
    weft_params *store = weft_params_new();
    weft_status status =
        store ? WEFT_OK : weft_error_set(&error, WEFT_NO_MEMORY, "check", "%s", "no memory");
    if (status == WEFT_OK)
        status =
            file ? build_wide(&a->model, &m, store, &error) : build_small(&a->model, &m, &error);
    if (status == WEFT_OK) status = run_model_check(&m, file, store, &r, &error);
    tool_free_model(&m);
    weft_params_free(store);
    if (status != WEFT_OK) return tool_fail(&error);
    bool good = r.worst_error <= FIRST_ORDER_LIMIT;
    if (a->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "model", tool_model_name(&a->model));
        cJSON_AddNumberToObject(json, "order1", r.worst_error);
        cJSON_AddNumberToObject(json, "checked", (double)r.checked);
        cJSON_AddStringToObject(json, "worst", r.where);
        cJSON_AddStringToObject(json, "verdict", good ? "ok" : "FAILED");
        int printed = tool_print_json(json);
        return good ? printed : EXIT_ERROR;
    }
    tool_print_line(stdout, "%s: %zu derivatives checked, worst error %.2e (limit %.0e) at %s: %s",
                    tool_model_name(&a->model), r.checked, r.worst_error, FIRST_ORDER_LIMIT,
                    r.where, good ? "ok" : "FAILED");
    return good ? EXIT_GOOD : EXIT_ERROR;
}

/* ---- Bits ---- */

/* The specified hash; 0 if there is none: of a file, with options, or with a library's matrix
 * products. */
static uint64_t specified_bits(const model_args *a)
{
    return a->n_options || getenv("WEFT_GEMM") ? 0 : weft_model_specified_bits(a->model);
}

/* Writes " without NAME NAME" for the passes that change bits and that WEFT_SKIP leaves out; ""
 * without any. */
static const char *left_out(char *text, size_t size)
{
    const char *list = getenv("WEFT_SKIP");
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; list && i < sizeof changing_passes / sizeof *changing_passes; i++) {
        const char *name = changing_passes[i];
        bool found = false;
        for (const char *at = list; *at; at += *at == ',') {
            const size_t n = strcspn(at, ",");
            found |=
                (n == strlen(name) && !strncmp(at, name, n)) || (n == 3 && !strncmp(at, "all", n));
            at += n;
        }
        if (found && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s %s", used ? "" : " without", name);
    }
    return text;
}

/* As weft_model_bits, of a file. */
static weft_status bits_of_file(const model_args *a, int threads, uint64_t *hash, weft_error *error)
{
    trial t = {0};
    weft_status status = tool_build_args(a, true, &t.m, error);
    if (status == WEFT_OK) status = trial_start(&t, NULL, 0, threads, error);
    if (status == WEFT_OK) status = weft__ten_steps(t.session, t.params, hash, error);
    trial_close(&t);
    return status;
}

/* What --bits found. */
typedef struct found_bits {
    cJSON *json;
    char passes[160]; /* those that WEFT_SKIP leaves out */
    bool quiet;       /* no lines */
    int differ;
    weft_error error;
} found_bits;

static void report_bits(found_bits *f, cJSON *json, const char *name, uint64_t hash,
                        uint64_t wanted)
{
    char text[17], verdict[48] = "";
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    cJSON_AddStringToObject(json, name, text);
    if (wanted == hash)
        snprintf(verdict, sizeof verdict, " as specified");
    else if (wanted)
        snprintf(verdict, sizeof verdict, " differs from %016" PRIx64, wanted);
    f->differ += wanted && wanted != hash;
    if (!f->quiet)
        tool_print_line(stdout, "%-20s %s%s", name, text,
                        wanted || !*f->passes ? verdict : f->passes);
}

/* Of the op that is asked for, or of all: then lines are printed for those that differ, and one for
 * the others. */
static void check_op_bits(const arguments *a, found_bits *f)
{
    cJSON *json = cJSON_AddObjectToObject(f->json, "ops");
    const bool quiet = f->quiet;
    size_t good = 0;
    for (size_t i = 0; i < weft_op_count() && f->error.status == WEFT_OK; i++) {
        const weft_op *op = weft_op_at(i);
        const uint64_t wanted = getenv("WEFT_GEMM") ? 0 : weft_op_specified_bits(op);
        uint64_t hash = 0;
        if (a->op ? strcmp(a->op, op->name) != 0 : !op->n_samples) continue;
        if (weft_op_bits(op, &hash, &f->error) != WEFT_OK) return;
        f->quiet = quiet || (!a->op && (!wanted || hash == wanted));
        report_bits(f, json, op->name, hash, wanted);
        good += hash == wanted;
    }
    f->quiet = quiet;
    if (good && !a->op && !quiet) printf("%-20s %zu as specified\n", "ops", good);
}

static void check_model_bits(const arguments *a, found_bits *f)
{
    const bool one = tool_model_name(&a->model);
    for (size_t i = 0; i < weft_model_count(); i++) {
        model_args model = a->model;
        uint64_t hash = 0;
        if (!one) model.model = weft_model_at(i);
        if ((model.model ? weft_model_bits(model.model, model.options, model.n_options, a->threads,
                                           &hash, &f->error)
                         : bits_of_file(&model, a->threads, &hash, &f->error)) != WEFT_OK)
            return;
        report_bits(f, f->json, tool_model_name(&model), hash,
                    *f->passes ? 0 : specified_bits(&model));
        if (one) return;
    }
}

static int check_bits(const arguments *a)
{
    found_bits f = {.json = cJSON_CreateObject(), .quiet = a->json};
    int status = EXIT_GOOD;
    left_out(f.passes, sizeof f.passes);
    if (!tool_model_name(&a->model)) check_op_bits(a, &f);
    if (f.error.status == WEFT_OK && !a->op) check_model_bits(a, &f);
    if (f.error.status == WEFT_OK && a->json)
        status = tool_print_json(f.json);
    else
        cJSON_Delete(f.json);
    if (f.error.status != WEFT_OK) return tool_fail(&f.error);
    if (f.differ)
        fprintf(stderr,
                "weft check: %d of the hashes differ from what docs/arithmetic.md specifies\n",
                f.differ);
    return f.differ ? EXIT_ERROR : status;
}

int cmd_check(int argc, char **argv)
{
    arguments a = {0};
    tool_parse(&command, argc, argv, &a);
    if (a.bits) return check_bits(&a);
    return tool_model_name(&a.model) ? check_model(&a) : check_ops(&a);
}
