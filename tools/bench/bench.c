/* The benchmark workloads, and the timing of one. */
#include "bench.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

#define ROW_SECONDS 0.1
#define MAX_IN_ROW  50

/* ---- Workloads ---- */

#define SMALL_TRANSFORMER                                                                          \
    "vocab=10", "d_model=256", "heads=8", "d_ff=1024", "encoder_layers=6", "decoder_layers=6",     \
        "norm=post", "batch=2", "source_len=9", "target_len=7"

static weft_built build_lstm(weft_graph *g)
{
    const weft_value input = weft_input(g, "input", WEFT_F32, WEFT_SHAPE(32, 100, 512));
    const weft_value output = weft_nn_recurrent(g, "lstm", WEFT_LSTM, input, 512, NULL, NULL);
    return (weft_built){.inputs = {input},
                        .n_inputs = 1,
                        .outputs = {output},
                        .n_outputs = 1,
                        .input_names = {"input"},
                        .output_names = {"output"}};
}

static const workload workloads[] = {
    {.name = "encoder-forward",
     .doc = "encoder of 5 layers over [30, 200, 512], fused q, k, v, post-norm: the output",
     .kind = BENCH_FORWARD,
     .model = "encoder"},
    {.name = "encoder-train",
     .doc = "the same with dropout 0.1: mean squared error, gradients of all parameters",
     .kind = BENCH_BACKWARD,
     .model = "encoder"},
    {.name = "transformer-step",
     .doc = "transformer-base, vocabulary 8000, 16 x 64 tokens each: whole Adam step with dropout "
            "and label smoothing 0.1",
     .kind = BENCH_STEP,
     .model = "transformer-base"},
    {.name = "small-forward",
     .doc = "transformer with norm=post, width 256, 6+6 layers, 2 x 9 and 2 x 7 tokens, vocabulary "
            "10: the logits",
     .kind = BENCH_FORWARD,
     .model = "transformer",
     .options = {SMALL_TRANSFORMER}},
    {.name = "small-step",
     .doc = "the same with dropout and label smoothing 0.1: whole Adam step",
     .kind = BENCH_STEP,
     .model = "transformer",
     .options = {SMALL_TRANSFORMER}},
    {.name = "lstm-step",
     .doc = "LSTM 512 -> 512 over [32, 100, 512]: output, gradients of input and parameters",
     .kind = BENCH_BACKWARD,
     .build = build_lstm},
    {.name = "attention-forward",
     .doc = "one attention of 8 heads over [1, 1024, 512] with its projections: the output",
     .kind = BENCH_FORWARD,
     .model = "attention",
     .options = {"batch=1", "length=1024", "dropout=0"}},
    {.name = "attention-step",
     .doc = "the same: mean squared error, gradients of all parameters",
     .kind = BENCH_BACKWARD,
     .model = "attention",
     .options = {"batch=1", "length=1024", "dropout=0"}},
    {.name = "resnet-forward",
     .doc = "ResNet-50 of one image [3, 224, 224]: the logits",
     .kind = BENCH_FORWARD,
     .model = "resnet",
     .options = {"batch=1"}},
    {.name = "resnet-step",
     .doc = "the same of 8 images: whole Adam step",
     .kind = BENCH_STEP,
     .model = "resnet",
     .options = {"batch=8"}},
    {.name = "mobilenet-forward",
     .doc = "MobileNetV2 of one image [3, 224, 224]: the logits",
     .kind = BENCH_FORWARD,
     .model = "mobilenet",
     .options = {"batch=1"}},
    {.name = "vit-forward",
     .doc = "Vision Transformer ViT-B/16 of one image [3, 224, 224]: the logits",
     .kind = BENCH_FORWARD,
     .model = "vit",
     .options = {"batch=1"}},
};

size_t workload_count(void)
{
    return sizeof workloads / sizeof *workloads;
}

const workload *workload_at(size_t index)
{
    return index < workload_count() ? &workloads[index] : NULL;
}

const workload *workload_find(const char *name)
{
    for (size_t i = 0; i < workload_count(); i++)
        if (!strcmp(workloads[i].name, name)) return &workloads[i];
    return NULL;
}

/* ---- Opening ---- */

/* Positions of the sequences that the model reads, the first two dimensions of its inputs, or its
 * images. */
static double positions(const weft_graph *g, weft_value input)
{
    if (!weft_is_value(input) || weft_rank_of(g, input) < 2) return 0;
    const int64_t rows = weft_dim_of(g, input, 0);
    return (double)(weft_rank_of(g, input) == 4 ? rows : rows * weft_dim_of(g, input, 1));
}

static weft_status build_model(bench *b, const bench_request *r, weft_error *error)
{
    const workload *w = b->workload;
    if (r->given) return tool_build_args(r->given, w->kind == BENCH_STEP, &b->trial.m, error);
    const char *options[WEFT_MODEL_OPTIONS];
    size_t n = 0;
    while (n < BENCH_OPTIONS && w->options[n]) n++;
    memcpy(options, w->options, n * sizeof *options);
    for (size_t i = 0; i < r->n_options && n < WEFT_MODEL_OPTIONS; i++)
        options[n++] = r->options[i];
    built_model *m = &b->trial.m;
    if (w->kind == BENCH_STEP && !r->exact)
        return tool_build(weft_model_find(w->model), options, n, true, m, error);
    /* Gradients alone: the model as it is trained, but no update. */
    m->graph = weft_graph_new();
    if (w->build)
        m->built = w->build(m->graph);
    else
        weft_model_build_text(m->graph, weft_model_find(w->model), options, n,
                              w->kind != BENCH_FORWARD && !r->exact, &m->built, error);
    return tool_take_error(weft_graph_error(m->graph), error);
}

/* Finds the outputs of relu; to be called before there is a backward pass. */
static weft_status find_relus(bench *b, weft_error *error)
{
    const weft_graph *g = b->trial.m.graph;
    const size_t n = weft_graph_node_count(g);
    const weft_op *relu = weft_op_find("relu");
    b->relus = calloc(n + 1, sizeof *b->relus);
    if (!b->relus) return weft_error_set(error, WEFT_NO_MEMORY, "bench", "no memory");
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(g, i);
        if (node.op == relu) b->relus[b->n_relus++] = weft_value_from_id(g, node.first_out);
    }
    return WEFT_OK;
}

/* Adds the backward pass: targets are loss or output, then the gradients of wrt. */
static weft_status add_gradients(bench *b, weft_error *error)
{
    weft_graph *g = b->trial.m.graph;
    const weft_built *built = &b->trial.m.built;
    const weft_value output = built->outputs[0];
    bool loss = weft_is_value(built->loss);
    size_t n;
    const weft_value *params = weft_graph_params(g, &n);
    b->wrt = calloc(n + 1, sizeof *b->wrt);
    b->targets = realloc(b->targets, (n + 3 + b->n_relus) * sizeof *b->targets);
    if (!b->wrt || !b->targets) return weft_error_set(error, WEFT_NO_MEMORY, "bench", "no memory");
    if (n) memcpy(b->wrt, params, n * sizeof *params);
    b->n_wrt = n;
    b->targets[0] = loss ? built->loss : output;
    if (loss) {
        weft_grad(g, built->loss, b->wrt, n, b->targets + 1);
    } else {
        b->wrt[b->n_wrt++] = built->inputs[0];
        weft_value dy =
            weft_input(g, "cotangent", weft_dtype_of(g, output), weft_shape_of(g, output));
        weft_grad_of(g, &output, &dy, 1, b->wrt, b->n_wrt, b->targets + 1);
    }
    b->n_targets = 1 + b->n_wrt;
    return tool_take_error(weft_graph_error(g), error);
}

static weft_status choose_targets(bench *b, const bench_request *r, weft_error *error)
{
    const workload *w = b->workload;
    if (r->given) return WEFT_OK; /* those of trial_start */
    b->targets = calloc(3, sizeof *b->targets);
    if (!b->targets) return weft_error_set(error, WEFT_NO_MEMORY, "bench", "no memory");
    if (w->kind == BENCH_FORWARD || (w->kind == BENCH_STEP && !r->exact)) {
        b->n_targets = tool_targets(&b->trial.m, b->targets);
        return WEFT_OK;
    }
    weft_status status = r->exact ? find_relus(b, error) : WEFT_OK;
    if (status == WEFT_OK) status = add_gradients(b, error);
    if (status != WEFT_OK || !r->exact) return status;
    b->targets[b->n_targets++] = b->trial.m.built.outputs[0];
    for (size_t i = 0; i < b->n_relus; i++) b->targets[b->n_targets++] = b->relus[i];
    return WEFT_OK;
}

weft_status bench_open(bench *b, const workload *w, const bench_request *request, weft_error *error)
{
    *b = (bench){.workload = w};
    weft_status status = build_model(b, request, error);
    b->trial.m.plan.fixed_states = w->kind == BENCH_FORWARD;
    b->trial.m.plan.precision = request->precision;
    if (status == WEFT_OK) status = choose_targets(b, request, error);
    if (status == WEFT_OK)
        status = trial_start(&b->trial, b->targets, b->n_targets, request->threads, error);
    static const char *const read[] = {"source", "target_in", "input"};
    for (size_t i = 0; status == WEFT_OK && i < sizeof read / sizeof *read; i++)
        b->tokens += positions(b->trial.m.graph, weft_built_input(&b->trial.m.built, read[i]));
    if (status != WEFT_OK) bench_close(b);
    return status;
}

void bench_close(bench *b)
{
    trial_close(&b->trial);
    free(b->targets);
    free(b->wrt);
    free(b->relus);
    *b = (bench){0};
}

/* ---- Timing ---- */

static weft_status run_once(bench *b, double *seconds, weft_error *error)
{
    double begin = tool_seconds();
    if (weft_session_run(b->trial.session, error) != WEFT_OK) return error->status;
    *seconds = tool_seconds() - begin;
    return WEFT_OK;
}

weft_status bench_row(bench *b, long runs, double **samples, size_t *n, weft_error *error)
{
    double sum = 0, seconds = 0;
    weft_status status = run_once(b, &seconds, error);
    double *more = realloc(*samples, (*n + MAX_IN_ROW + (size_t)runs) * sizeof *more);
    if (!more) return weft_error_set(error, WEFT_NO_MEMORY, "bench", "no memory");
    *samples = more;
    for (long i = 0; status == WEFT_OK && (i < runs || (i < MAX_IN_ROW && sum < ROW_SECONDS));
         i++) {
        status = run_once(b, &seconds, error);
        if (status == WEFT_OK) more[(*n)++] = seconds;
        sum += seconds;
    }
    return status;
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

bench_times bench_summary(double *samples, size_t n)
{
    if (!n) return (bench_times){0, 0, 0};
    qsort(samples, n, sizeof *samples, compare_seconds);
    double median = n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
    return (bench_times){n, median, samples[0]};
}

void bench_progress(const char *format, ...)
{
    bool terminal = system_is_terminal(stderr);
    if (terminal) fputs("\r\033[K", stderr);
    if (!format) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (!terminal) fputc('\n', stderr);
}

/* ---- Dumping ---- */

/* A copy of the tensor under PREFIX + NAME. */
static weft_status put(weft_params *out, const char *prefix, const char *name,
                       const weft_tensor *from, weft_error *error)
{
    char full[256];
    weft_tensor to;
    snprintf(full, sizeof full, "%s%s", prefix, name);
    weft_status status = weft_params_add(out, full, from->dtype, from->shape, &to, error);
    if (status == WEFT_OK) memcpy(to.data, from->data, weft_tensor_bytes(from->dtype, from->shape));
    return status;
}

static weft_status put_value(weft_params *out, const bench *b, const char *prefix, const char *name,
                             weft_value value, weft_error *error)
{
    weft_graph *g = b->trial.m.graph;
    weft_shape shape = weft_shape_of(g, value);
    size_t bytes = weft_tensor_bytes(weft_dtype_of(g, value), shape);
    void *data = malloc(bytes + 1);
    weft_status status = WEFT_NO_MEMORY;
    if (data) status = weft_session_fetch(b->trial.session, value, data, bytes, NULL);
    weft_tensor from = weft_tensor_dense(data, weft_dtype_of(g, value), shape);
    if (status == WEFT_OK)
        status = put(out, prefix, name, &from, error);
    else
        weft_error_set(error, status, name, "cannot be read after the run");
    free(data);
    return status;
}

/* Where an output of relu, which is f32, is positive. */
static weft_status put_positive(weft_params *out, const bench *b, size_t index, weft_error *error)
{
    const weft_shape shape = weft_shape_of(b->trial.m.graph, b->relus[index]);
    const size_t n = weft_tensor_bytes(WEFT_BOOL, shape), bytes = n * sizeof(float);
    char name[48];
    weft_tensor to;
    snprintf(name, sizeof name, "positive.%zu", index);
    weft_status status = weft_params_add(out, name, WEFT_BOOL, shape, &to, error);
    float *data = status == WEFT_OK ? malloc(bytes + 1) : NULL;
    if (status == WEFT_OK && !data)
        status = weft_error_set(error, WEFT_NO_MEMORY, name, "no memory for %zu bytes", bytes);
    if (status == WEFT_OK)
        status = weft_session_fetch(b->trial.session, b->relus[index], data, bytes, error);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) ((bool *)to.data)[i] = data[i] > 0;
    free(data);
    return status;
}

static weft_status put_inputs(weft_params *out, const bench *b, weft_error *error)
{
    sample_inputs e;
    const weft_graph *g = b->trial.m.graph;
    weft_status status = tool_sample_inputs(&b->trial.m, &e, error);
    for (size_t i = 0; i < e.n && status == WEFT_OK; i++) {
        weft_value input = e.feed[i].input;
        weft_tensor from = weft_tensor_dense((void *)(uintptr_t)e.feed[i].data,
                                             weft_dtype_of(g, input), weft_shape_of(g, input));
        status = put(out, "input.", weft_name_of(g, input), &from, error);
    }
    sample_inputs_free(&e);
    return status;
}

static weft_status put_results(weft_params *out, const bench *b, weft_error *error)
{
    const weft_built *built = &b->trial.m.built;
    weft_status status = put_value(out, b, "", "output", built->outputs[0], error);
    if (status == WEFT_OK && b->n_wrt && weft_is_value(built->loss))
        status = put_value(out, b, "", "loss", built->loss, error);
    for (size_t i = 0; i < b->n_wrt && status == WEFT_OK; i++)
        status = put_value(out, b, "grad.", weft_name_of(b->trial.m.graph, b->wrt[i]),
                           b->targets[1 + i], error);
    for (size_t i = 0; i < b->n_relus && status == WEFT_OK; i++)
        status = put_positive(out, b, i, error);
    return status;
}

weft_status bench_dump(bench *b, const char *path, weft_error *error)
{
    double seconds;
    weft_params *out = weft_params_new();
    if (!out) return weft_error_set(error, WEFT_NO_MEMORY, "bench", "no memory");
    weft_status status = WEFT_OK; /* the first run may release parameters */
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(b->trial.params); i++) {
        const char *name = weft_params_name(b->trial.params, i);
        weft_tensor tensor;
        weft_params_find(b->trial.params, name, &tensor);
        status = put(out, "param.", name, &tensor, error);
    }
    if (status == WEFT_OK) status = put_inputs(out, b, error);
    if (status == WEFT_OK) status = run_once(b, &seconds, error);
    if (status == WEFT_OK) status = put_results(out, b, error);
    if (status == WEFT_OK) status = weft_params_save(out, path, NULL, error);
    weft_params_free(out);
    return status;
}
