/* Writes programs in C that compare what weft_emit writes with the library, bit for bit: for each op a
 * file with a graph of all its samples, in f32 and in f64, and for models of the list a forward pass
 * and a training step. main.c runs all and prints how many cases are equal.
 *
 * Usage: emit_cases FOLDER [--ops | --models | NAME...]    all, or only these */
#include "emit_shapes.h"

#include <weft/emit.h>
#include <weft/models.h>
#include <weft/weft.h>
#include <weft/autograd.h>
#include <weft/ops.h>
#include <weft/plan.h>
#include <weft/session.h>
#include <weft/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TARGETS 64
#define STEPS       3

static const char *folder;
static FILE *driver, *calls;
static size_t n_written, n_refused;

/* ---- Files ---- */

static FILE *open_file(const char *name, const char *end)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(2);
    }
    return file;
}

/* The two files of a case, opened by the first piece. */
typedef struct sink {
    const char *name;
    FILE *file[2];
} sink;

static bool take(void *context, bool header, const char *text, size_t n)
{
    sink *s = context;
    if (!s->file[header]) s->file[header] = open_file(s->name, header ? ".h" : ".c");
    return fwrite(text, 1, n, s->file[header]) == n;
}

static bool emit(const weft_plan *plan, const char *name, const weft_emit_value *outputs, size_t n,
                 weft_value rate, const weft_params *params)
{
    weft_error error = {0};
    sink s = {.name = name};
    const weft_emit_options o = {.name = name,
                                 .outputs = outputs,
                                 .n_outputs = n,
                                 .rate = rate,
                                 .params = params,
                                 .write = take,
                                 .context = &s};
    const weft_status status = weft_emit(plan, &o, &error);
    for (int i = 0; i < 2; i++)
        if (s.file[i]) fclose(s.file[i]);
    if (status == WEFT_OK) return true;
    printf("refused: %s: %s: %s\n", name, error.where, error.message);
    n_refused++;
    return false;
}

/* ---- Cases ---- */

/* A graph, what it computes, and its memory. */
typedef struct test_case {
    char name[128];
    weft_graph *g;
    weft_params *params;
    weft_value targets[MAX_TARGETS]; /* outputs, then what only has to run */
    size_t n_targets, n_outputs, n_samples;
    weft_value rate;
} test_case;

static void write_bytes(const char *name, size_t step, size_t i, const weft_tensor *t)
{
    const unsigned char *data = t->data;
    const size_t n = weft_tensor_bytes(t->dtype, t->shape);
    fprintf(driver, "static const unsigned char %s_%zu_%zu[] = {", name, step, i);
    for (size_t k = 0; k < n; k++) fprintf(driver, "%s%u,", k % 32 ? "" : "\n", data[k]);
    fprintf(driver, "0};\n");
}

/* Random inputs of a model: whole numbers from 1 on and below `vocab` where they are integers. */
static void fill(weft_tensor *t, uint64_t seed, int64_t vocab)
{
    weft_sample_input input = {t->dtype, t->shape, -1, 1, false};
    if (t->dtype == WEFT_I32) {
        input.low = vocab > 1;
        input.high = vocab > 1 ? (double)vocab : 1;
    } else if (t->dtype == WEFT_BOOL) {
        input.low = 0;
        input.high = 0.125;
    }
    weft_sample_input_fill(&input, t->dtype, seed, t->data);
}

static weft_value inputs_of(const weft_graph *g, size_t index)
{
    const weft_node_info node = weft_graph_node(g, index);
    return node.op == &weft_op_input ? weft_value_from_id(g, node.first_out) : WEFT_NO_VALUE;
}

/* Runs the plan STEPS times, and writes the driver: inputs, and the outputs that are expected. */
static void write_case(test_case *c, int64_t vocab, int steps)
{
    weft_error error = {0};
    weft_emit_value outputs[MAX_TARGETS];
    for (size_t i = 0; i < c->n_outputs; i++) outputs[i] = (weft_emit_value){c->targets[i], NULL};
    char names[MAX_TARGETS][16];
    for (size_t i = 0; i < c->n_outputs; i++) {
        snprintf(names[i], sizeof names[i], "out%zu", i);
        outputs[i].name = names[i];
    }
    weft_plan *plan = weft_plan_new(c->g, c->targets, c->n_targets, NULL, &error);
    weft_session *session = plan ? weft_session_new(plan, c->params, NULL, &error) : NULL;
    if (!session) {
        printf("cannot plan: %s: %s\n", c->name, error.message);
        n_refused++;
    } else if (emit(plan, c->name, outputs, c->n_outputs, c->rate, c->params)) {
        char upper[128];
        snprintf(upper, sizeof upper, "%s", c->name);
        for (char *at = upper; *at; at++)
            if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 32);
        fprintf(driver, "#include \"%s.h\"\n", c->name);
        fprintf(calls,
                "    { static union { double d; uint64_t u; unsigned char b[%s_ARENA_BYTES + 64]; "
                "} arena;\n"
                "      static union { double d; uint64_t u; unsigned char b[%s_STATE_BYTES + 64]; "
                "} states;\n"
                "      %s m = {&arena, &states, 0, 0};\n      %s_io io;\n      int bad = 0;\n"
                "      memset(&io, 0, sizeof io);\n      %s_init(&m);\n",
                upper, upper, c->name, c->name, c->name);
        for (int step = 0; step < steps; step++) {
            size_t n_inputs = 0;
            for (size_t i = 0; i < weft_graph_node_count(c->g); i++) {
                const weft_value v = inputs_of(c->g, i);
                weft_tensor t = {.dtype = weft_dtype_of(c->g, v)};
                if (!weft_is_value(v) || !weft_is_value(weft_plan_value(plan, v))) continue;
                t.shape = weft_shape_of(c->g, v);
                t = weft_tensor_dense(malloc(weft_tensor_bytes(t.dtype, t.shape) + 1), t.dtype,
                                      t.shape);
                if (v.id == c->rate.id)
                    *(float *)t.data = 0.01f;
                else
                    fill(&t, (uint64_t)step * 100 + i, vocab);
                if (weft_session_feed(session, v, t.data, weft_tensor_bytes(t.dtype, t.shape),
                                      &error) != WEFT_OK)
                    printf("cannot feed: %s: %s\n", c->name, error.message);
                if (v.id != c->rate.id) {
                    char field[128];
                    const char *name = weft_name_of(c->g, v);
                    snprintf(field, sizeof field, "%s", name ? name : "");
                    for (char *at = field; *at; at++)
                        if (!strchr(
                                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
                                *at))
                            *at = '_';
                    write_bytes(c->name, (size_t)step, 1000 + n_inputs, &t);
                    fprintf(calls, "      io.%s = (const void *)%s_%d_%zu;\n", field, c->name, step,
                            1000 + n_inputs);
                    n_inputs++;
                }
                free(t.data);
            }
            if (weft_session_run(session, &error) != WEFT_OK) {
                fprintf(calls, "      bad += !%s_%s(&m, &io%s);\n", c->name,
                        weft_is_value(c->rate) ? "step" : "run",
                        weft_is_value(c->rate) ? ", 0.01f" : "");
                break;
            }
            for (size_t i = 0; i < c->n_outputs; i++) {
                weft_tensor t;
                weft_session_tensor(session, c->targets[i], &t, &error);
                write_bytes(c->name, (size_t)step, i, &t);
                fprintf(calls, "      io.out%zu = (void *)&got[%zu];\n", i, i);
            }
            fprintf(calls, "      bad += %s_%s(&m, &io%s) != 0;\n", c->name,
                    weft_is_value(c->rate) ? "step" : "run",
                    weft_is_value(c->rate) ? ", 0.01f" : "");
            for (size_t i = 0; i < c->n_outputs; i++) {
                weft_tensor t;
                weft_session_tensor(session, c->targets[i], &t, &error);
                fprintf(calls, "      bad += !equal(&got[%zu], %s_%d_%zu, %zu, %d);\n", i, c->name,
                        step, i, weft_tensor_bytes(t.dtype, t.shape),
                        weft_dtype_is_float(t.dtype) ? (int)weft_dtype_bytes(t.dtype) : 0);
            }
        }
        fprintf(calls, "      report(\"%s\", bad); }\n", c->name);
        n_written++;
    }
    weft_session_free(session);
    weft_plan_free(plan);
}

/* Whether the command line names it, or its kind. */
static bool wanted(const char *name, const char *kind, char **names, int n)
{
    bool found = n == 0;
    for (int i = 0; i < n; i++) found = found || !strcmp(names[i], name) || !strcmp(names[i], kind);
    return found;
}

/* ---- Ops ---- */

/* Whether the sample alone runs: some name an index out of range, and some ops have kernels of f32
 * only. */
static bool add_sample(const weft_op *op, const weft_sample *s, weft_dtype dtype, test_case *c)
{
    const size_t sample = c->n_samples++;
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < s->n_in; i++) {
        const weft_dtype d = s->in[i].dtype == WEFT_FLOAT ? dtype : s->in[i].dtype;
        char name[32];
        weft_tensor t;
        snprintf(name, sizeof name, "x%zu_%zu", sample, i);
        in[i] = weft_state(c->g, name, d, s->in[i].shape, WEFT_INIT_ZEROS);
        if (weft_params_add(c->params, name, d, s->in[i].shape, &t, NULL) == WEFT_OK)
            weft_sample_input_fill(&s->in[i], dtype, 1 + 100 * i, t.data);
    }
    weft_apply(c->g, op, s->attr, in, s->n_in, out);
    if (weft_graph_status(c->g) != WEFT_OK) return false;
    for (size_t i = 0; i < op->n_out && c->n_targets < MAX_TARGETS; i++)
        c->targets[c->n_targets++] = out[i];
    c->n_outputs = c->n_targets;
    return true;
}

static bool runs(const test_case *c)
{
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(c->g, c->targets, c->n_targets, NULL, &error);
    weft_session *session = plan ? weft_session_new(plan, c->params, NULL, &error) : NULL;
    const bool good = session && weft_session_run(session, &error) == WEFT_OK;
    weft_session_free(session);
    weft_plan_free(plan);
    return good;
}

/* Writes a case of samples of an op. */
static void write_samples(const char *kind, const weft_op *op, const weft_sample *samples, size_t n,
                          weft_dtype dtype)
{
    bool good[256] = {false};
    size_t n_good = 0;
    if (n > 256) n = 256;
    for (size_t i = 0; i < n; i++) {
        test_case alone = {.g = weft_graph_new(), .params = weft_params_new()};
        good[i] = add_sample(op, &samples[i], dtype, &alone) && runs(&alone);
        n_good += good[i];
        weft_params_free(alone.params);
        weft_graph_free(alone.g);
    }
    if (!n_good) return;
    test_case c = {.g = weft_graph_new(), .params = weft_params_new()};
    snprintf(c.name, sizeof c.name, "%s_%s_%s", kind, op->name, weft_dtype_name(dtype));
    for (size_t i = 0; i < n; i++)
        if (good[i]) add_sample(op, &samples[i], dtype, &c);
    write_case(&c, 2, 1);
    weft_params_free(c.params);
    weft_graph_free(c.g);
}

/* All samples of an op, and its shapes in this list. */
static void write_op(const weft_op *op, const emit_shapes *shapes)
{
    for (int f64 = 0; f64 < 2; f64++) {
        const weft_dtype dtype = f64 ? WEFT_F64 : WEFT_F32;
        if (!op->exchanges) write_samples("op", op, op->samples, op->n_samples, dtype);
        for (const emit_shapes *s = shapes; s->op; s++)
            if (!strcmp(s->op, op->name)) write_samples("shapes", op, s->samples, s->n, dtype);
    }
}

/* ---- Models ---- */

static void write_model(const weft_model *model, bool training)
{
    weft_error error = {0};
    weft_built built;
    test_case c = {.g = weft_graph_new(), .params = weft_params_new()};
    snprintf(c.name, sizeof c.name, "%s_%s", model->name, training ? "step" : "forward");
    for (char *at = c.name; *at; at++)
        if (*at == '-') *at = '_';
    char small[1024];
    const char *options[64];
    size_t n_options = 0;
    snprintf(small, sizeof small, "%s", model->small);
    for (char *at = strtok(small, " "); at && n_options < 64; at = strtok(NULL, " "))
        options[n_options++] = at;
    if (weft_model_build_text(c.g, model, options, n_options, training, &built, &error) !=
        WEFT_OK) {
        printf("cannot build: %s: %s\n", c.name, error.message);
        return;
    }
    if (training) {
        const weft_optimizer adam = WEFT_ADAM_DEFAULT;
        c.rate = weft_input(c.g, "lr", weft_dtype_of(c.g, built.loss), WEFT_SCALAR);
        c.targets[0] = built.loss;
        c.targets[1] = weft_train_update(c.g, built.loss, NULL, 0, c.rate, &adam, &c.targets[2]);
        const weft_value norm = c.targets[2];
        c.targets[2] = c.targets[1];
        c.targets[1] = norm;
        c.n_outputs = 2;
        c.n_targets = 3;
    } else {
        c.targets[0] = built.outputs[0];
        c.n_targets = c.n_outputs = 1;
    }
    weft_params_init(c.params, c.g, 1, &error);
    write_case(&c, built.vocab ? built.vocab : 2, training ? STEPS : 1);
    weft_params_free(c.params);
    weft_graph_free(c.g);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: emit_cases FOLDER [NAME...]\n");
        return 2;
    }
    folder = argv[1];
    driver = open_file("main", ".c");
    calls = open_file("calls", ".inc");
    fprintf(driver, "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
                    "static union { double d; unsigned char b[1 << 22]; } space[64];\n"
                    "#define got space\n");
    for (size_t i = 0; i < weft_op_count(); i++)
        if (wanted(weft_op_at(i)->name, "--ops", argv + 2, argc - 2))
            write_op(weft_op_at(i), emit_shapes_conv);
    for (size_t i = 0; i < weft_model_count(); i++)
        for (int training = 0; training < 2; training++)
            if (wanted(weft_model_at(i)->name, "--models", argv + 2, argc - 2))
                write_model(weft_model_at(i), training);
    fclose(calls);
    fprintf(driver, "\n/* NaN equal each other. */\n"
                    "static int equal(const void *a, const void *b, size_t n, int number)\n{\n"
                    "    size_t i;\n    if (!memcmp(a, b, n)) return 1;\n"
                    "    for (i = 0; number == 4 && i + 4 <= n; i += 4) {\n"
                    "        float x, y;\n        memcpy(&x, (const char *)a + i, 4);\n"
                    "        memcpy(&y, (const char *)b + i, 4);\n"
                    "        if (memcmp(&x, &y, 4) && (x == x || y == y)) return 0;\n    }\n"
                    "    for (i = 0; number == 8 && i + 8 <= n; i += 8) {\n"
                    "        double x, y;\n        memcpy(&x, (const char *)a + i, 8);\n"
                    "        memcpy(&y, (const char *)b + i, 8);\n"
                    "        if (memcmp(&x, &y, 8) && (x == x || y == y)) return 0;\n    }\n"
                    "    return number != 0;\n}\n"
                    "static int failed, equals;\n"
                    "static void report(const char *name, int bad)\n{\n"
                    "    if (bad) printf(\"differs: %%s\\n\", name);\n"
                    "    failed += bad != 0;\n    equals += !bad;\n}\n"
                    "int main(void)\n{\n#include \"calls.inc\"\n"
                    "    printf(\"%%d cases equal, %%d differ\\n\", equals, failed);\n"
                    "    return failed != 0;\n}\n");
    fclose(driver);
    printf("%zu files written, %zu refused\n", n_written, n_refused);
    return 0;
}
