/* Builders: a program's own graph in the trainer and in the forward runner, and the models of the
 * list as builders. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FEATURES 4
#define HIDDEN   8

/* ---- A model of one's own: y = w2 relu(w1 x), and a target that such a model can learn ---- */

typedef struct own_model {
    const char *options;
    bool without_loss, vector_loss;
    const char *state; /* declared too */
} own_model;

static weft_status own_build(void *context, weft_graph *g, const weft_build_options *options,
                             weft_built *built)
{
    const own_model *m = context;
    const int64_t rows = options->shape.rows;
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(rows, FEATURES));
    weft_value target = weft_input(g, "target", WEFT_F32, WEFT_SHAPE(rows, 1));
    weft_value h = weft_relu(g, weft_nn_linear(g, "first", x, HIDDEN, true));
    h = weft_dropout(g, h, options->training ? 0.1 : 0);
    weft_value y = weft_nn_linear(g, "second", h, 1, true);
    *built = (weft_built){.inputs = {x, target}, .n_inputs = 2, .outputs = {y}, .n_outputs = 1};
    if (m->state) weft_state(g, m->state, WEFT_F32, WEFT_SCALAR, WEFT_INIT_ZEROS);
    if (m->without_loss) return weft_graph_status(g);
    built->loss = m->vector_loss ? y : weft_mse_loss(g, y, target, WEFT_REDUCE_MEAN);
    return weft_graph_status(g);
}

static bool own_describe(void *context, char *text, size_t capacity)
{
    const own_model *m = context;
    return snprintf(text, capacity, "%s", m->options) < (int)capacity;
}

static weft_builder own_builder(own_model *m)
{
    return (weft_builder){
        .name = "own", .build = own_build, .describe = own_describe, .context = m};
}

/* Five batches of 8 rows and one of 3. */
#define N_BATCHES 6

typedef struct own_data {
    uint64_t epoch;
} own_data;

static weft_batch_shape data_shape(void *context, size_t index)
{
    (void)context;
    return (weft_batch_shape){index + 1 < N_BATCHES ? 8 : 3, 0, 0};
}

static void data_start(void *context, uint64_t epoch)
{
    ((own_data *)context)->epoch = epoch;
}

static void fill_rows(uint64_t seed, int64_t rows, float *x, float *y)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < FEATURES; k++) {
            const double value = test_uniform(&seed, -1, 1);
            x[i * FEATURES + k] = (float)value;
            sum += (double)(k + 1) * value;
        }
        y[i] = (float)(sum > 0 ? sum : 0);
    }
}

static weft_status data_fill(void *context, size_t index, void *const *inputs, size_t *weight,
                             weft_error *error)
{
    const own_data *d = context;
    const int64_t rows = data_shape(context, index).rows;
    (void)error;
    fill_rows(1000 * d->epoch + index + 1, rows, inputs[0], inputs[1]);
    *weight = (size_t)rows;
    return WEFT_OK;
}

static weft_batch_source own_source(own_data *d)
{
    return (weft_batch_source){.batches = N_BATCHES,
                               .n_inputs = 2,
                               .input_dtypes = {WEFT_F32, WEFT_F32},
                               .shape = data_shape,
                               .start = data_start,
                               .fill = data_fill,
                               .context = d};
}

static weft_trainer_options own_options(own_model *m)
{
    return (weft_trainer_options){.builder = own_builder(m),
                                  .optimizer = WEFT_ADAM_DEFAULT,
                                  .schedule = {WEFT_SCHEDULE_CONSTANT, 1e-2, 0, 0, 0},
                                  .ema = 0.9,
                                  .seed = 5};
}

static weft_trainer *own_trainer(const weft_trainer_options *o, const weft_batch_source *source,
                                 weft_params *params)
{
    weft_error error = {0};
    weft_trainer *t = weft_trainer_new(o, source, params, &error);
    if (!t) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static bool same_stores(const weft_params *a, const weft_params *b)
{
    bool same = weft_params_count(a) == weft_params_count(b);
    for (size_t i = 0; same && i < weft_params_count(a); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(a, i);
        weft_params_find(a, name, &x);
        same = weft_params_find(b, name, &y) && test_same_tensors("x", &x, &y);
    }
    return same;
}

/* A training of a program's own graph has averages, evaluation, the best so far, and resumes with
 * the same bits. */
static void test_own_training(void)
{
    char path[64], model_path[64];
    own_model m = {.options = "hidden=8"};
    own_data data = {0}, again = {0}, valid = {0};
    const weft_batch_source source = own_source(&data), second = own_source(&again);
    const weft_batch_source held_out = own_source(&valid);
    const weft_trainer_options o = own_options(&m);
    weft_params *whole = weft_params_new(), *resumed = weft_params_new();
    double before = 0, after = 0;
    size_t weight = 0;
    snprintf(path, sizeof path, "/tmp/weft-own-%ld.safetensors", (long)getpid());
    snprintf(model_path, sizeof model_path, "/tmp/weft-own-model-%ld.safetensors", (long)getpid());

    weft_trainer *t = own_trainer(&o, &source, whole);
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &held_out, 0, &before, &weight, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weight, 5 * 8 + 3);
    CU_ASSERT_TRUE(weft_trainer_judge(t, before));
    for (int i = 0; i < 400; i++) {
        if (i == 200) CU_ASSERT_EQUAL(weft_trainer_save(t, path, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
    }
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &held_out, 0, &after, NULL, NULL), WEFT_OK);
    CU_ASSERT_TRUE(after < before / 4);
    CU_ASSERT_TRUE(weft_trainer_judge(t, after));
    CU_ASSERT_FALSE(weft_trainer_judge(t, before));
    CU_ASSERT_EQUAL(weft_trainer_progress_of(t).stale, 1);

    CU_ASSERT_EQUAL(weft_params_load(resumed, path, NULL), WEFT_OK);
    weft_trainer *u = own_trainer(&o, &second, resumed);
    CU_ASSERT_EQUAL(weft_trainer_progress_of(u).updates, 200);
    for (int i = 0; i < 200; i++) CU_ASSERT_EQUAL(weft_trainer_update(u, 0, NULL, NULL), WEFT_OK);
    CU_ASSERT_TRUE(same_stores(whole, resumed));

    /* The model alone: four parameters, which are the averages. */
    weft_params *saved = weft_params_new();
    weft_tensor average, alone;
    CU_ASSERT_EQUAL(weft_trainer_save_model(t, model_path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(saved, model_path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(saved), 4);
    CU_ASSERT_TRUE_FATAL(weft_params_find(whole, "ema.first.weight", &average) &&
                         weft_params_find(saved, "first.weight", &alone));
    CU_ASSERT_TRUE(test_same_tensors("average", &average, &alone));
    /* A filter saves the parameters as they are. */
    weft_params *filtered = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_save(whole, model_path, &weft_model_states, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(filtered, model_path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(filtered), 4);
    CU_ASSERT_TRUE_FATAL(weft_params_find(whole, "first.weight", &average) &&
                         weft_params_find(filtered, "first.weight", &alone));
    CU_ASSERT_TRUE(test_same_tensors("average", &average, &alone));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(filtered, "model"), "own");
    weft_params_free(filtered);
    weft_trainer_free(t);
    weft_trainer_free(u);
    weft_params_free(whole);
    weft_params_free(resumed);
    weft_params_free(saved);
    unlink(path);
    unlink(model_path);
}

static void refuse(const weft_trainer_options *o, const weft_batch_source *source,
                   weft_params *params, const char *said)
{
    weft_error error = {0};
    weft_trainer *t = weft_trainer_new(o, source, params, &error);
    CU_ASSERT_PTR_NULL(t);
    if (!strstr(error.message, said)) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, said));
    weft_trainer_free(t);
}

static weft_status failing_fill(void *context, size_t index, void *const *inputs, size_t *weight,
                                weft_error *error)
{
    (void)context, (void)inputs, (void)weight;
    return weft_error_set(error, WEFT_IO, "disk", "batch %zu cannot be read", index);
}

static void test_refusals(void)
{
    own_model m = {.options = "hidden=8"};
    own_data data = {0};
    weft_batch_source source = own_source(&data);
    weft_trainer_options o = own_options(&m);
    weft_params *params = weft_params_new();
    m.without_loss = true;
    refuse(&o, &source, params, "has no loss");
    m.without_loss = false;
    m.vector_loss = true;
    refuse(&o, &source, params, "must be a scalar");
    m.vector_loss = false;
    static const char *const names[] = {"opt.q", "ema.x", "sum@1.x", "x[0:1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        m.state = names[i];
        refuse(&o, &source, params, names[i]);
    }
    m.state = NULL;
    source.n_inputs = 1;
    refuse(&o, &source, params, "has 2 inputs, the batches fill 1");
    source.n_inputs = 2;
    source.input_dtypes[1] = WEFT_I32;
    refuse(&o, &source, params, "input 1 is f32, the batches have i32");
    source = own_source(&data);

    weft_trainer *t = own_trainer(&o, &source, params);
    weft_batch_source other = source;
    weft_error error;
    double metric;
    other.n_inputs = 1;
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &other, 0, &metric, NULL, NULL), WEFT_BAD_ARGUMENT);
    other = source;
    other.fill = failing_fill;
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &other, 0, &metric, NULL, &error), WEFT_IO);
    CU_ASSERT_STRING_EQUAL(error.message, "batch 0 cannot be read");
    CU_ASSERT_EQUAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-refused-%ld.safetensors", (long)getpid());
    CU_ASSERT_EQUAL(weft_trainer_save(t, path, NULL), WEFT_OK);
    weft_trainer_free(t);

    /* Another value of an option is refused, and a new or a missing option, but not another way to
     * write a number. */
    weft_params *loaded = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(loaded, path, NULL), WEFT_OK);
    m.options = "hidden=9";
    refuse(&o, &source, loaded, "was made with hidden=8, not 9");
    m.options = "depth=3 hidden=8";
    refuse(&o, &source, loaded, "was made without depth=3");
    m.options = "";
    refuse(&o, &source, loaded, "was made with hidden=8, which the model does not have");
    m.options = "hidden=8.0";
    weft_trainer_free(own_trainer(&o, &source, loaded));
    weft_params_free(loaded);
    weft_params_free(params);
    unlink(path);
}

/* ---- Forward passes ---- */

/* Every row gets the same result in batches of any size; each size is planned once. */
static void test_forward(void)
{
    own_model m = {.options = ""};
    const weft_builder builder = own_builder(&m);
    weft_params *params = weft_params_new();
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_error error = {0};
    float x[7 * FEATURES], y[7], results[7];
    fill_rows(3, 7, x, y);
    own_build(&m, g, &(weft_build_options){.shape = {.rows = 1}}, &built);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 2, &error), WEFT_OK);
    weft_graph_free(g);

    weft_forward *f =
        weft_forward_new(&builder, params, &(weft_session_options){.threads = 2}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    weft_tensor out;
    CU_ASSERT_FALSE(weft_forward_output(f, 0, &out));
    const void *inputs[] = {x, NULL}; /* the output does not need the target */
    weft_build_options all = {.shape = {.rows = 7}};
    CU_ASSERT_EQUAL(weft_forward_run(f, &all, inputs, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(f, 0, &out));
    CU_ASSERT_FALSE(weft_forward_output(f, 1, &out));
    memcpy(results, out.data, sizeof results);
    for (int round = 0; round < 2; round++)
        for (int64_t rows = 1; rows <= 6; rows++) {
            const weft_build_options some = {.shape = {.rows = rows}};
            CU_ASSERT_EQUAL(weft_forward_run(f, &some, inputs, &error), WEFT_OK);
            CU_ASSERT_TRUE_FATAL(weft_forward_output(f, 0, &out));
            for (int64_t i = 0; i < rows; i++)
                CU_ASSERT_TRUE(fabs((double)((float *)out.data)[i] - (double)results[i]) <
                               ROUNDING_F32);
        }
    size_t bytes;
    CU_ASSERT_EQUAL(weft_forward_plan_count(f, &bytes), 7);
    CU_ASSERT_TRUE(bytes > 0);

    /* What is missing is named; the runner can be used again. */
    CU_ASSERT_EQUAL(weft_forward_run(f, &all, NULL, &error), WEFT_BAD_ARGUMENT);
    const weft_build_options fresh = {.shape = {.rows = 9}};
    CU_ASSERT_EQUAL(weft_forward_run(f, &fresh, NULL, &error), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(error.where, "x");
    CU_ASSERT_FALSE(weft_forward_output(f, 0, &out));
    const weft_build_options bad = {.shape = {.rows = -1}};
    CU_ASSERT_NOT_EQUAL(weft_forward_run(f, &bad, inputs, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_forward_run(f, &all, inputs, &error), WEFT_OK);
    weft_forward_free(f);

    weft_params *empty = weft_params_new();
    f = weft_forward_new(&builder, empty, &(weft_session_options){.threads = 1}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(weft_forward_run(f, &all, inputs, &error), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(error.where, "first.weight");
    weft_forward_free(f);
    CU_ASSERT_PTR_NULL(
        weft_forward_new(NULL, params, &(weft_session_options){.threads = 1}, &error));
    CU_ASSERT_PTR_NULL(
        weft_forward_new(&builder, NULL, &(weft_session_options){.threads = 1}, &error));
    CU_ASSERT_EQUAL(weft_forward_run(NULL, &all, inputs, &error), WEFT_BAD_ARGUMENT);
    weft_params_free(empty);
    weft_params_free(params);
}

/* ---- Models of the list ---- */

static weft_model_config parse(const char *model, const char *const *texts, size_t n)
{
    weft_model_config config = {.model = NULL};
    weft_error error = {0};
    if (weft_model_parse(weft_model_find(model), texts, n, &config, &error) != WEFT_OK)
        CU_FAIL(error.message);
    return config;
}

static const struct {
    const char *model;
    bool source, tokens, causal, recurrent, decodable;
} kinds[] = {
    {"transformer", true, true, true, false, true}, {"bert", false, true, false, false, false},
    {"gpt", false, true, true, false, true},        {"lstm", false, true, true, true, true},
    {"seq2seq", true, true, true, true, true},      {"encoder", false, false, false, false, false},
    {"resnet", false, false, false, false, false},
};

static void test_traits(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const weft_model_config c = parse(kinds[i].model, NULL, 0);
        const weft_model_traits t = weft_model_traits_of(&c);
        CU_ASSERT_EQUAL(t.source_vocab > 0, kinds[i].source);
        CU_ASSERT_EQUAL(t.vocab > 0, kinds[i].tokens);
        CU_ASSERT_EQUAL(t.causal, kinds[i].causal);
        CU_ASSERT_EQUAL(t.recurrent, kinds[i].recurrent);
        CU_ASSERT_EQUAL(t.decodable, kinds[i].decodable);
    }
    const char *const learned[] = {"positions=learned", "max_positions=77", "vocab=99", "pad_id=3",
                                   "f64=1"};
    const weft_model_config c = parse("gpt", learned, 5);
    const weft_model_traits t = weft_model_traits_of(&c);
    CU_ASSERT_TRUE(t.max_positions == 77 && t.vocab == 99 && t.pad_id == 3 && t.dtype == WEFT_F64);
    const weft_model_config waves = parse("gpt", (const char *const[]){"positions=sinusoidal"}, 1);
    CU_ASSERT_EQUAL(weft_model_traits_of(&waves).max_positions, INT64_MAX);
    CU_ASSERT_EQUAL(weft_model_traits_of(NULL).vocab, 0);
    const weft_model_config images = parse("vit", (const char *const[]){"classes=12"}, 1);
    CU_ASSERT_EQUAL(weft_model_traits_of(&images).classes, 12);
    CU_ASSERT_EQUAL(weft_model_traits_of(&images).d_model, 768);
}

/* Sizes are not options: texts set them, checkpoints leave them out. Names of earlier versions,
 * which are in their checkpoints, are understood. */
static void test_sizes(void)
{
    char text[WEFT_OPTIONS_TEXT];
    const char *const old[] = {"batch=3", "source_len=5", "target_len=6", "most_positions=70",
                               "keep_weights=1"};
    const weft_model_config c = parse("transformer", old, 5);
    CU_ASSERT_TRUE(c.build.shape.rows == 3 && c.build.shape.source_len == 5 &&
                   c.build.shape.target_len == 6 && c.build.expose_weights && !c.build.training);
    CU_ASSERT_PTR_NOT_NULL(weft_model_options_text(&c, text, sizeof text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, " max_positions=70 "));
    CU_ASSERT_PTR_NULL(strstr(text, "batch="));
    CU_ASSERT_PTR_NULL(strstr(text, "_len="));
    CU_ASSERT_PTR_NULL(strstr(text, "weights="));
    CU_ASSERT_PTR_NULL(weft_model_options_text(&c, text, 20));
    const weft_model_config a = parse("attention", (const char *const[]){"memory_len=4"}, 1);
    CU_ASSERT_EQUAL(a.build.shape.source_len, 4);
    weft_model_config bad;
    weft_error error = {0};
    CU_ASSERT_EQUAL(weft_model_parse(weft_model_find("lstm"), (const char *const[]){"weights=1"}, 1,
                                     &bad, &error),
                    WEFT_NOT_FOUND);
    error = (weft_error){0};
    CU_ASSERT_EQUAL(weft_model_parse(weft_model_find("gpt"), (const char *const[]){"length=2.5"}, 1,
                                     &bad, &error),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "whole number"));
}

/* A listed model's forward pass, with the attention weights of a layer. */
static void test_listed(void)
{
    const char *const small[] = {"vocab=13", "d_model=8",        "heads=2",
                                 "d_ff=12",  "encoder_layers=1", "decoder_layers=2"};
    weft_model_config config = parse("transformer", small, 6);
    const weft_builder builder = weft_model_builder(&config);
    weft_params *params = weft_params_new();
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_error error = {0};
    config.build = (weft_build_options){
        .shape = {2, 5, 4}, .training = true, .expose_weights = true, .layer = 2};
    built = weft_model_build(g, &config);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    CU_ASSERT_EQUAL(weft_built_output(&built, "weights").id,
                    weft_graph_find(g, "dec.1.cross.weights").id);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 2, &error), WEFT_OK);
    weft_graph_free(g);
    int32_t ids[2 * 5];
    for (int i = 0; i < 10; i++) ids[i] = 1 + i;
    weft_forward *f =
        weft_forward_new(&builder, params, &(weft_session_options){.threads = 1}, &error);
    const void *inputs[] = {ids, ids, NULL};
    weft_tensor out;
    CU_ASSERT_EQUAL(weft_forward_run(f, &(weft_build_options){.shape = {2, 5, 4}}, inputs, &error),
                    WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(f, 0, &out));
    CU_ASSERT_TRUE(weft_shape_equal(out.shape, WEFT_SHAPE(2, 4, 13)));
    CU_ASSERT_EQUAL(weft_forward_run(f, &(weft_build_options){.shape = {2, 0, 4}}, inputs, &error),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "has a source"));
    weft_forward_free(f);
    weft_params_free(params);
    CU_ASSERT_PTR_NULL(weft_model_builder(NULL).build);
}

/* The names of a list, with a space after each. */
static const char *joined(const char *const *names, size_t n, char text[128])
{
    text[0] = 0;
    for (size_t i = 0; i < n; i++)
        snprintf(text + strlen(text), 128 - strlen(text), "%s ", names[i]);
    return text;
}

static const struct {
    const char *model, *option, *inputs, *outputs; /* of the graph */
    const char *fed;                               /* inputs of the builder; NULL: the same */
} graphs[] = {
    {"transformer", "batch=1", "source target_in target_out ", "logits hidden ", NULL},
    {"transformer", "weights=1", "source target_in target_out ", "logits hidden weights ", NULL},
    {"seq2seq", "weights=1", "source target_in target_out ", "logits weights ", NULL},
    {"gpt", "weights=1", "target_in target_out ", "logits hidden ", NULL},
    {"bert", "pooler=1", "target_in target_out ", "logits hidden pooled ", NULL},
    {"bert", "token_types=2", "target_in token_types target_out ", "logits hidden ",
     "target_in target_out "},
    {"lstm", "batch=1", "target_in target_out ", "logits ", NULL},
    {"encoder", "batch=1", "input target ", "output ", NULL},
    {"attention", "source_len=3", "input memory target ", "output ", NULL},
    {"attention", "mask=padding", "input hidden target ", "output ", NULL},
    {"attention", "weights=1", "input target ", "output weights ", NULL},
    {"vit", "layers=1", "input labels ", "logits ", NULL},
};

/* A graph lists its inputs and outputs by name; the builder has those that are fed, and the main
 * output. */
static void test_names(void)
{
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        char text[128];
        weft_model_config config = parse(graphs[i].model, &graphs[i].option, 1);
        const weft_builder builder = weft_model_builder(&config);
        weft_graph *g = weft_graph_new(), *again = weft_graph_new();
        weft_built built;
        const weft_built model = weft_model_build(g, &config);
        CU_ASSERT_STRING_EQUAL(joined(model.input_names, model.n_inputs, text), graphs[i].inputs);
        CU_ASSERT_STRING_EQUAL(joined(model.output_names, model.n_outputs, text),
                               graphs[i].outputs);
        for (size_t k = 0; k < model.n_inputs; k++) {
            const char *name = model.input_names[k];
            CU_ASSERT_EQUAL(weft_built_input(&model, name).id, model.inputs[k].id);
            CU_ASSERT_STRING_EQUAL(weft_name_of(g, model.inputs[k]), name);
        }
        for (size_t k = 0; k < model.n_outputs; k++)
            CU_ASSERT_EQUAL(weft_built_output(&model, model.output_names[k]).id,
                            model.outputs[k].id);
        CU_ASSERT_EQUAL(weft_is_value(model.accuracy), !strcmp(graphs[i].model, "vit"));
        CU_ASSERT_EQUAL(builder.build(builder.context, again, &config.build, &built), WEFT_OK);
        CU_ASSERT_STRING_EQUAL(joined(built.input_names, built.n_inputs, text),
                               graphs[i].fed ? graphs[i].fed : graphs[i].inputs);
        CU_ASSERT_EQUAL(built.n_outputs, 1);
        CU_ASSERT_EQUAL(built.outputs[0].id, model.outputs[0].id);
        weft_graph_free(g);
        weft_graph_free(again);
    }
    const weft_built unnamed = {.inputs = {{1, 1}}, .n_inputs = 1, .n_outputs = 1};
    CU_ASSERT_FALSE(weft_is_value(weft_built_input(&unnamed, "source")));
    CU_ASSERT_FALSE(weft_is_value(weft_built_output(&unnamed, NULL)));
    CU_ASSERT_FALSE(weft_is_value(weft_built_input(NULL, "source")));
    CU_ASSERT_FALSE(weft_is_value(weft_built_output(NULL, "logits")));
}

void builder_tests(void)
{
    CU_pSuite suite = CU_add_suite("builder", NULL, NULL);
    CU_add_test(suite, "a program's own graph is trained and resumed", test_own_training);
    CU_add_test(suite, "builders and batches that do not fit", test_refusals);
    CU_add_test(suite, "forward passes of any size", test_forward);
    CU_add_test(suite, "traits of models", test_traits);
    CU_add_test(suite, "sizes and old names of options", test_sizes);
    CU_add_test(suite, "a listed model as a builder", test_listed);
    CU_add_test(suite, "names of inputs and outputs", test_names);
}
