/* Writes programs in C that compare what weft_emit writes with the library, bit for bit: for each op a
 * file with a graph of all its samples, in f32 and in f64, and files of random calls; for models of the
 * list a forward pass and a training step. main.c runs all and prints how many cases are equal.
 *
 * Usage: emit_cases FOLDER [--simd] [--bf16] [--ops | --models | NAME...]    all, or only these
 * With --bf16, values of f32 are stored as bf16: all of ops, those of 64 elements and more of models.
 *        emit_cases FOLDER --saved    compares the files that NAME_save wrote with the library's states
 *        emit_cases FOLDER --onnx DATA    the cases of ONNX's test data in the folder DATA */
#include "emit_cases.h"
#include "emit_onnx.h"

#include <weft/emit.h>
#include <weft/models.h>
#include <weft/weft.h>
#include <weft/autograd.h>
#include <weft/ops.h>
#include <weft/plan.h>
#include <weft/source.h>
#include <weft/session.h>
#include <weft/store.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3
#define CALLS 6 /* random ones of an op */

static const char *folder;
static FILE *driver, *calls, *data;
static weft_emit_kernels kernels;
static bool bf16;
static size_t n_written, n_refused, n_saved;

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
                                 .kernels = kernels,
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

static const char *rate_text(const test_case *c)
{
    return weft_is_value(c->rate) ? "step(&m, &io, 0.01f)" : "run(&m, &io)";
}

/* The contents of an input in a step; the caller frees them. */
static void *contents(const test_case *c, weft_value v, int step, size_t index)
{
    const weft_dtype dtype = weft_dtype_of(c->g, v);
    const weft_shape shape = weft_shape_of(c->g, v);
    const size_t bytes = weft_tensor_bytes(dtype, shape);
    weft_tensor t = weft_tensor_dense(malloc(bytes + 1), dtype, shape);
    for (size_t i = 0; c->random && i < c->random->n_inputs; i++)
        if (c->random->input[i].id == v.id) return memcpy(t.data, c->random->data[i], bytes);
    if (v.id == c->rate.id)
        *(float *)t.data = 0.01f;
    else
        fill(&t, (uint64_t)step * 100 + index, c->vocab);
    return t.data;
}

/* Feeds an input of the graph, and has the driver pass the same bytes. */
static void write_input(const test_case *c, weft_session *session, weft_value v, int step,
                        size_t index)
{
    weft_error error = {0};
    const size_t bytes = weft_tensor_bytes(weft_dtype_of(c->g, v), weft_shape_of(c->g, v));
    void *bytes_in = contents(c, v, step, index);
    if (weft_session_feed(session, v, bytes_in, bytes, &error) != WEFT_OK)
        printf("cannot feed: %s: %s\n", c->name, error.message);
    if (v.id != c->rate.id) {
        char field[128];
        const char *name = weft_name_of(c->g, v);
        size_t n = 0;
        for (; name && name[n] && n + 1 < sizeof field; n++)
            field[n] = name[n] == '.' ? '_' : name[n];
        field[n] = 0;
        if (!strcmp(field, "int")) snprintf(field, sizeof field, "int_");
        fwrite(bytes_in, 1, bytes, data);
        fprintf(calls, "      io.%s = next(%zu);\n", field, bytes);
    }
    free(bytes_in);
}

/* Runs the plan on new inputs; the driver does the same and compares the outputs. False: the run fails,
 * and so must the driver's. */
static bool write_run(const test_case *c, const weft_plan *plan, weft_session *session, int step)
{
    weft_error error = {0};
    for (size_t i = 0; i < weft_graph_node_count(c->g); i++) {
        const weft_node_info node = weft_graph_node(c->g, i);
        const weft_value v = weft_value_from_id(c->g, node.first_out);
        const char *name = weft_name_of(c->g, v);
        if (node.op != &weft_op_input || !weft_is_value(weft_plan_value(plan, v))) continue;
        if (!name || strcmp(name, "given") != 0) /* it has a default */
            write_input(c, session, v, step, i);
    }
    const bool runs = weft_session_run(session, &error) == WEFT_OK;
    for (size_t i = 0; i < c->n_outputs; i++)
        fprintf(calls, "      io.out%zu = (void *)&got[%zu];\n", i, i);
    fprintf(calls, "      bad += (%s_%s != 0) != %d;\n", c->name, rate_text(c), !runs);
    for (size_t i = 0; runs && i < c->n_outputs; i++) {
        weft_tensor t;
        weft_session_tensor(session, c->targets[i], &t, &error);
        const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        fwrite(t.data, 1, bytes, data);
        fprintf(calls, "      bad += !equal(&got[%zu], next(%zu), %zu, %d);\n", i, bytes, bytes,
                weft_dtype_is_float(t.dtype) ? (int)weft_dtype_bytes(t.dtype) : 0);
    }
    return runs;
}

void emit_write_case(const test_case *c, int steps)
{
    weft_error error = {0};
    weft_emit_value outputs[EMIT_TARGETS];
    char names[EMIT_TARGETS][24], upper[128], path[1200];
    for (size_t i = 0; i < c->n_outputs; i++) {
        snprintf(names[i], sizeof names[i], "out%zu", i);
        outputs[i] = (weft_emit_value){c->targets[i], names[i]};
    }
    const weft_plan_options options = {.passes = c->pass,
                                       .n_passes = c->pass != NULL,
                                       .precision =
                                           c->min_narrow ? WEFT_PRECISION_BF16 : WEFT_PRECISION_F32,
                                       .min_narrow = c->min_narrow};
    weft_plan *plan = weft_plan_new(c->g, c->targets, c->n_targets, &options, &error);
    weft_session *session = plan ? weft_session_new(plan, c->params, NULL, &error) : NULL;
    if (!session) {
        printf("refused: %s: cannot be planned: %s\n", c->name, error.message);
        n_refused++;
    } else if (emit(plan, c->name, outputs, c->n_outputs, c->rate, c->params)) {
        snprintf(upper, sizeof upper, "%s", c->name);
        for (char *at = upper; *at; at++)
            if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 32);
        fprintf(driver, "#include \"%s.h\"\n", c->name);
        fprintf(calls,
                "    { unsigned char *arena = new_arena(%s_ARENA_BYTES);\n"
                "      static union { double d; unsigned char b[%s_STATE_BYTES + 1]; } states;\n"
                "      %s m = {arena, &states, 0, 0};\n      %s_io io;\n      int bad = 0;\n"
                "      memset(&io, 0, sizeof io);\n      %s_init(&m);\n",
                upper, upper, c->name, c->name, c->name);
        for (int step = 0; step < steps && write_run(c, plan, session, step);) step++;
        if (weft_is_value(c->rate)) {
            fprintf(calls, "      CHECK_FILE(%s, m, %s_FILE_BYTES, states);\n", c->name, upper);
            snprintf(path, sizeof path, "%s/%s.expected", folder, c->name);
            if (weft_params_save(c->params, path, NULL, &error) != WEFT_OK)
                printf("cannot save: %s: %s\n", c->name, error.message);
            write_run(c, plan, session, steps); /* with the states that have been loaded */
        }
        fprintf(calls, "      bad += end_arena(arena, %s_ARENA_BYTES);\n", upper);
        fprintf(calls, "      report(\"%s\", bad); }\n", c->name);
        n_written++;
    }
    weft_session_free(session);
    weft_plan_free(plan);
}

/* Whether the states in FOLDER/NAME.saved are those of the library's session; true if it has none. */
static bool saved_is_equal(const char *name)
{
    char path[2][1200];
    weft_error error = {0};
    weft_params *saved = weft_params_new(), *expected = weft_params_new();
    snprintf(path[0], sizeof path[0], "%s/%s_step.saved", folder, name);
    snprintf(path[1], sizeof path[1], "%s/%s_step.expected", folder, name);
    for (char *at = path[0] + strlen(folder); *at; at++)
        if (*at == '-') *at = '_';
    for (char *at = path[1] + strlen(folder); *at; at++)
        if (*at == '-') *at = '_';
    bool same = weft_params_load(saved, path[0], &error) == WEFT_OK &&
                weft_params_load(expected, path[1], &error) == WEFT_OK &&
                weft_params_count(saved) > 0;
    if (error.status != WEFT_OK) printf("%s: %s\n", error.where, error.message);
    for (size_t i = 0; same && i < weft_params_count(saved); i++) {
        weft_tensor a, b;
        const char *tensor = weft_params_name(saved, i);
        same = weft_params_find(saved, tensor, &a) && weft_params_find(expected, tensor, &b) &&
               weft_shape_equal(a.shape, b.shape) && a.dtype == b.dtype &&
               !memcmp(a.data, b.data, weft_tensor_bytes(a.dtype, a.shape));
        if (!same) printf("%s: %s differs\n", path[0], tensor);
    }
    n_saved += same;
    weft_params_free(saved);
    weft_params_free(expected);
    return same;
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
        if (i >= op->updates) in[i] = emit_between(c->g, in[i], bf16);
    }
    weft_apply(c->g, op, s->attr, in, s->n_in, out);
    if (weft_graph_status(c->g) != WEFT_OK) return false;
    for (size_t i = 0; i < op->n_out && c->n_targets < EMIT_TARGETS; i++)
        c->targets[c->n_targets++] = emit_between(c->g, out[i], bf16);
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

/* Writes a case of all samples of an op. */
static void write_samples(const weft_op *op, weft_dtype dtype)
{
    bool good[256] = {false};
    const size_t n = op->n_samples < 256 ? op->n_samples : 256;
    size_t n_good = 0;
    for (size_t i = 0; i < n; i++) {
        test_case alone = {.g = weft_graph_new(), .params = weft_params_new()};
        good[i] = add_sample(op, &op->samples[i], dtype, &alone) && runs(&alone);
        n_good += good[i];
        weft_params_free(alone.params);
        weft_graph_free(alone.g);
    }
    if (!n_good) return;
    test_case c = {.g = weft_graph_new(), .params = weft_params_new(), .min_narrow = bf16};
    snprintf(c.name, sizeof c.name, "op_%s_%s", op->name, weft_dtype_name(dtype));
    for (size_t i = 0; i < n; i++)
        if (good[i]) add_sample(op, &op->samples[i], dtype, &c);
    emit_write_case(&c, 1);
    weft_params_free(c.params);
    weft_graph_free(c.g);
}

/* Random calls of an op. */
static void write_random(const weft_op *op, weft_dtype dtype)
{
    emit_random *r = calloc(1, sizeof *r);
    *r = (emit_random){.g = weft_graph_new(), .params = weft_params_new(), .bf16 = bf16};
    for (uint64_t seed = 1; seed <= 40 && r->n_calls < CALLS; seed++)
        if (!emit_random_add(r, op, dtype, seed) && weft_graph_status(r->g) != WEFT_OK) break;
    test_case c = {
        .g = r->g, .params = r->params, .random = r, .n_outputs = r->n_targets, .min_narrow = bf16};
    snprintf(c.name, sizeof c.name, "random_%s_%s", op->name, weft_dtype_name(dtype));
    memcpy(c.targets, r->target, sizeof r->target);
    c.n_targets = r->n_targets;
    if (r->n_calls) emit_write_case(&c, 1);
    for (size_t i = 0; i < r->n_inputs; i++) free(r->data[i]);
    weft_params_free(r->params);
    weft_graph_free(r->g);
    free(r);
}

static void write_op(const weft_op *op)
{
    for (int dtype = 0; dtype < WEFT_DTYPES && !op->exchanges; dtype++) {
        if (dtype != WEFT_F32 && bf16) continue;
        if (dtype == WEFT_F32 || dtype == WEFT_F64) write_samples(op, (weft_dtype)dtype);
        write_random(op, (weft_dtype)dtype);
    }
}

/* ---- Graphs by hand ---- */

/* What samples and random calls do not have: functions of two dtypes in one file, attributes whose
 * digits are rounded twice, an empty result with indices, a sum of many terms, a convolution whose
 * 128th term is amid the channels of a tap, a default, -0, a target that is a parameter, a name that C
 * reserves. */
static void write_odd(void)
{
    weft_error error = {0};
    test_case c = {.name = "odd",
                   .g = weft_graph_new(),
                   .params = weft_params_new(),
                   .vocab = 2,
                   .min_narrow = bf16};
    weft_graph *g = c.g;
    const weft_value x = weft_input(g, "int", WEFT_F32, WEFT_SHAPE(2, 3, 4, 24));
    const weft_value rows = weft_reshape(g, x, WEFT_SHAPE(-1, 24));
    const weft_value wide = weft_cast(g, rows, WEFT_F64),
                     given = weft_input(g, "given", WEFT_F32, WEFT_SCALAR);
    const weft_value index = weft_input(g, "index", WEFT_I32, WEFT_SHAPE(2, 3));
    const weft_sdpa_options window = {.window = INT64_C(3000000000), .scale = 1 / sqrt(24.0)};
    weft_value terms[70], attended;
    weft_input_default(g, given, 0.25);
    for (size_t i = 0; i < 70; i++) terms[i] = weft_mul_scalar(g, rows, 0.1 * (double)(i + 1));
    attended = weft_sdpa(g, x, x, x, &window);
    c.targets[c.n_targets++] = attended;
    const weft_value image = weft_reshape(g, x, WEFT_SHAPE(1, 12, 6, 8));
    const weft_value kernel = weft_param(g, "kernel", WEFT_F32, WEFT_SHAPE(5, 12, 4, 3),
                                         (weft_init){WEFT_INIT_NORMAL, 0, 1});
    c.targets[c.n_targets++] = weft_conv(g, image, kernel, WEFT_NO_VALUE, NULL);
    c.targets[c.n_targets++] = weft_sum(g, rows, WEFT_AXES(1), false);
    c.targets[c.n_targets++] = weft_sum(g, wide, WEFT_AXES(1), false);
    c.targets[c.n_targets++] = weft_softmax(g, rows, -1);
    c.targets[c.n_targets++] = weft_tril_mask(g, 3, 4, 0);
    c.targets[c.n_targets++] = weft_dropout(g, rows, 0.03);
    c.targets[c.n_targets++] = weft_mul(g, rows, given);
    c.targets[c.n_targets++] = weft_add_n(g, terms, 70);
    c.targets[c.n_targets++] = weft_scalar(g, WEFT_F32, -0.0);
    const weft_value empty = weft_slice(g, weft_reshape(g, index, WEFT_SHAPE(2, 3)), 1, 0, 0, 1);
    c.targets[c.n_targets++] =
        weft_scatter_add(g, weft_cast(g, empty, WEFT_F32), index, weft_cast(g, index, WEFT_F32), 1);
    c.targets[c.n_targets++] =
        weft_param(g, "kept", WEFT_F32, WEFT_SHAPE(5), (weft_init){WEFT_INIT_NORMAL, 0, 1});
    c.n_outputs = c.n_targets;
    if (weft_graph_status(g) != WEFT_OK)
        printf("refused: odd: %s: %s\n", weft_graph_error(g)->where, weft_graph_error(g)->message);
    weft_params_init(c.params, g, 1, &error);
    emit_write_case(&c, 2);
    weft_params_free(c.params);
    weft_graph_free(g);
}

/* An op of a program whose function has no counterpart for bf16. */
static void source_own(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_OUT(0), WEFT_ARG_IN(0), WEFT_ARG_INT(64)};
    weft_source_call_of(s, "assign", args, 3);
}

static void write_own(void)
{
    test_case c = {.name = "own",
                   .g = weft_graph_new(),
                   .params = weft_params_new(),
                   .n_targets = 1,
                   .n_outputs = 1,
                   .min_narrow = bf16};
    weft_op own = *weft_op_find("neg");
    own.name = "own";
    own.source = source_own;
    weft_value x = weft_neg(c.g, weft_input(c.g, "x", WEFT_F32, WEFT_SHAPE(64)));
    x = weft_apply(c.g, &own, NULL, &x, 1, NULL);
    c.targets[0] = weft_neg(c.g, weft_name(c.g, x, "narrow"));
    emit_write_case(&c, 1);
    weft_params_free(c.params);
    weft_graph_free(c.g);
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
        printf("refused: %s: cannot be built: %s\n", c.name, error.message);
        n_refused++;
        weft_params_free(c.params);
        weft_graph_free(c.g);
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
    c.min_narrow = bf16 ? 64 : 0;
    c.vocab = built.vocab ? built.vocab : 2;
    emit_write_case(&c, training ? STEPS : 1);
    weft_params_free(c.params);
    weft_graph_free(c.g);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: emit_cases FOLDER [--simd] [--bf16] [--ops | --models | --saved | "
                        "--onnx DATA | NAME...]\n");
        return 2;
    }
    folder = argv[1];
    for (; argc > 2 && (!strcmp(argv[2], "--simd") || !strcmp(argv[2], "--bf16")); argc--, argv++)
        if (argv[2][2] == 's')
            kernels = WEFT_EMIT_SIMD;
        else
            bf16 = true;
    if (argc == 3 && !strcmp(argv[2], "--saved")) {
        bool same = true;
        for (size_t i = 0; i < weft_model_count(); i++)
            same = saved_is_equal(weft_model_at(i)->name) && same;
        printf("the states of %zu models are equal\n", n_saved);
        return !same;
    }
    driver = open_file("main", ".c");
    calls = open_file("calls", ".inc");
    data = open_file("data", ".bin");
    fprintf(driver, "#include \"emit_driver.h\"\n");
    if (argc == 4 && !strcmp(argv[2], "--onnx"))
        n_written = emit_onnx_write(argv[3], &(emit_writer){driver, calls, data, emit});
    for (size_t i = 0; i < weft_op_count(); i++)
        if (wanted(weft_op_at(i)->name, "--ops", argv + 2, argc - 2)) write_op(weft_op_at(i));
    for (size_t i = 0; i < weft_model_count(); i++)
        for (int training = 0; training < 2; training++)
            if (wanted(weft_model_at(i)->name, "--models", argv + 2, argc - 2))
                write_model(weft_model_at(i), training);
    if (!bf16 && wanted("quantized", "--ops", argv + 2, argc - 2)) emit_write_quantized();
    if (wanted("odd", "--ops", argv + 2, argc - 2)) write_odd();
    if (argc == 3 && !strcmp(argv[2], "own")) write_own();
    if (wanted("wide", "--ops", argv + 2, argc - 2)) emit_write_wide(bf16);
    if (wanted("loops", "--ops", argv + 2, argc - 2)) emit_write_loops(bf16);
    if (wanted("lengths", "lengths", argv + 2, argc - 2)) emit_write_lengths();
    fclose(calls);
    fclose(data);
    fprintf(driver, "\nint main(void)\n{\n"
                    "    data = fopen(\"data.bin\", \"rb\");\n    if (!data) return 2;\n"
                    "#include \"calls.inc\"\n    fclose(data);\n"
                    "    printf(\"%%d cases equal, %%d differ\\n\", equals, failed);\n"
                    "    return failed != 0;\n}\n");
    fclose(driver);
    printf("%zu files written, %zu refused\n", n_written, n_refused);
    return 0;
}
