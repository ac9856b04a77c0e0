/* The model and the arrays of `weft fit`. */
#include "fit_data.h"
#include "recipe_table.h"

#include "training/saved.h"
#include "base/platform.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(training *t)
{
    return training_fail(t, WEFT_NO_MEMORY, "fit", "out of memory");
}

static bool usage(training *t, const char *what)
{
    return training_fail(t, WEFT_BAD_ARGUMENT, "fit", what);
}

/* ---- Options ---- */

/* Epochs as steps. */
static bool count_steps(training *t)
{
    recipe *r = &t->r;
    if (!r->fit_epochs) return true;
    if ((r->schedule_steps && !t->resume) || r->minutes_chosen)
        return usage(t, "--epochs, --steps and --minutes exclude each other");
    const int64_t batches = r->fit_epochs * (int64_t)t->train_source.batches;
    r->schedule_steps = (batches + r->batches_accumulate - 1) / r->batches_accumulate;
    r->fit_epochs = 0; /* a resumed run has the steps */
    return true;
}

/* Adapters are for the weights of a file, which the run has a copy of. */
static bool check_adapters(training *t)
{
    static const recipe_key needs[] = {RECIPE_lora_alpha, RECIPE_lora_on, RECIPE_lora_dropout};
    const recipe *r = &t->r;
    for (size_t i = 0; i < sizeof needs / sizeof *needs && !r->lora_rank; i++)
        if (recipe_is_set(r, needs[i]))
            return usage(t, "--lora-alpha, --lora-on and --lora-dropout need --lora");
    if (!r->lora_rank) return true;
    if (!r->fit_file[0]) return usage(t, "adapters (--lora) need the weights of FILE.onnx");
    if (r->run_from[0])
        return usage(t, "adapters (--lora) are for the weights of FILE.onnx, not of --from");
    if (r->optimizer_frozen[0] || r->fit_train[0])
        return usage(t, "the model of adapters (--lora) is frozen: choose matrices by --lora-on");
    return true;
}

bool fit_check(training *t)
{
    const recipe *r = &t->r;
    const bool any_valid = r->fit_valid_x.n || r->fit_valid_y[0];
    if (!r->run_out[0]) return usage(t, "--out names the folder of the run");
    if (!r->model && !r->fit_file[0])
        return t->resume ? training_fail(t, WEFT_BAD_ARGUMENT, r->run_out,
                                         "has no run to resume: recipe.json is missing")
                         : usage(t, "expected a model: FILE.onnx, or one of `weft models`");
    if (!r->fit_x.n || !r->fit_y[0]) return usage(t, "expected data: --x and --y");
    if (any_valid && (!r->fit_valid_x.n || !r->fit_valid_y[0]))
        return usage(t, "validation needs both --valid-x and --valid-y");
    if (r->fit_file[0] && r->fit_loss == WEFT_LOSS_MODEL)
        return training_fail(t, WEFT_BAD_ARGUMENT, r->fit_file,
                             "has no loss of its own: choose a --loss");
    if (r->run_best_by == 1) return usage(t, "--best-by must be loss or accuracy");
    if (r->run_best_by && r->fit_loss != WEFT_LOSS_CROSS_ENTROPY && r->fit_loss != WEFT_LOSS_BCE)
        return usage(t, "only cross-entropy and bce have an accuracy for --best-by");
    if (r->schedule_lr == 0) return usage(t, "--lr must not be 0");
    return check_adapters(t);
}

/* ---- The model ---- */

/* Reads "NAME=N,INPUT:AXIS=N". */
static bool read_dims(training *t, training_fit *f)
{
    char *rest = NULL;
    f->dims = strdup(t->r.fit_dims);
    if (!f->dims) return no_memory(t);
    for (char *d = strtok_r(f->dims, ",", &rest); d; d = strtok_r(NULL, ",", &rest))
        if (!tool_add_dim(&f->onnx, d)) {
            weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "fit",
                           "--dim expects NAME=N, with commas between several; got \"%s\"", d);
            return false;
        }
    return true;
}

/* The copies of external data must not be files that the run writes. */
static bool check_data_files(training *t, const training_fit *f)
{
    const char *name;
    for (size_t i = 0; (name = weft_onnx_data_file(f->file, i)); i++)
        if (tool_is_run_file(name)) {
            weft_error_set(&t->error, WEFT_BAD_FILE, f->onnx.path,
                           "has weights in \"%s\", but the run writes a file of this name", name);
            return false;
        }
    return true;
}

/* A resumed run uses the copy in its folder. */
static bool load_file(training *t, training_fit *f)
{
    if (!training_path(t, f->copy, sizeof f->copy, "model.onnx") || !read_dims(t, f)) return false;
    f->onnx.path = t->resume && weft__file_exists(f->copy) ? f->copy : t->r.fit_file;
    f->onnx.batch = t->r.fit_rows;
    f->onnx.outputs = t->r.fit_output; /* it may be an inner value */
    f->file = tool_load_onnx(&f->onnx, &t->error);
    f->fit.model = weft_onnx_builder(f->file);
    return f->file && check_data_files(t, f);
}

bool fit_load_model(training *t)
{
    training_fit *f = t->fit;
    const recipe *r = &t->r;
    f->fit.loss = (weft_loss_kind)r->fit_loss;
    f->fit.class_axis = (int)r->fit_class_axis;
    f->fit.label_smoothing = r->fit_label_smoothing;
    if (!r->model) return load_file(t, f);
    if (weft_model_parse(r->model, (const char *const *)r->model_options, r->n_model_options,
                         &t->config, &t->error) != WEFT_OK)
        return false;
    f->fit.model = weft_model_builder(&t->config);
    return true;
}

static const char *output_name(const training_fit *f, size_t i)
{
    size_t n;
    const weft_onnx_value *outputs = weft_onnx_outputs(f->file, &n);
    return i < n ? outputs[i].name : weft_name_of(f->graph, f->built.outputs[i]);
}

/* Finds the output of the loss: by its name, or the first of floats. */
static bool find_output(training *t, training_fit *f)
{
    const char *name = t->r.fit_output;
    for (size_t i = 0; i < f->built.n_outputs; i++)
        if (name[0] ? !strcmp(output_name(f, i), name)
                    : weft_dtype_is_float(weft_dtype_of(f->graph, f->built.outputs[i]))) {
            f->fit.output = i;
            return true;
        }
    if (f->fit.loss == WEFT_LOSS_MODEL) return true;
    weft_error_set(&t->error, WEFT_NOT_FOUND, t->builder.name, "has no %s%s",
                   name[0] ? "output " : "floating-point output", name);
    return false;
}

/* Adds adapters next to the weights of the file. */
static bool add_adapters(training *t, training_fit *f)
{
    const recipe *r = &t->r;
    if (!r->lora_rank) return true;
    f->base = weft_params_new();
    if (!f->base) return no_memory(t);
    if (weft_onnx_copy_weights(f->file, f->base, &t->error) != WEFT_OK) return false;
    t->lora = (weft_lora){.rank = r->lora_rank,
                          .alpha = r->lora_alpha,
                          .on = r->lora_on[0] ? r->lora_on : NULL,
                          .dropout = r->lora_dropout,
                          .base = f->base};
    training_add_adapters(t);
    return true;
}

/* Builds the model once: its inputs and states are known then. */
static bool build_once(training *t, training_fit *f)
{
    const weft_build_options o = {.shape = {t->r.fit_rows, f->source_len, f->target_len},
                                  .training = true};
    const weft_builder *b = &f->fit.model;
    f->graph = weft_graph_new();
    if (!f->graph) return no_memory(t);
    b->build(b->context, f->graph, &o, &f->built);
    t->builder = weft_fit_builder(&f->fit);
    if (weft_error_copy(&t->error, weft_graph_error(f->graph)) != WEFT_OK || !find_output(t, f))
        return false;
    if (fit_take_logits(f))
        tool_print_line(stderr, "%s is a %s: the loss is of its input, the logits",
                        output_name(f, f->fit.output),
                        f->fit.loss == WEFT_LOSS_BCE ? "sigmoid" : "softmax");
    return add_adapters(t, f);
}

/* ---- Parameters to train ---- */

static bool matches_state(const training_fit *f, const char *pattern)
{
    size_t n;
    const weft_value *states = weft_graph_states(f->graph, &n);
    bool found = false;
    for (size_t i = 0; i < n && !found; i++)
        found = weft_name_matches(pattern, weft_name_of(f->graph, states[i]));
    return found;
}

/* Each of the patterns must match something. */
static bool check_patterns(training *t, const char *option, const char *patterns)
{
    char one[512];
    for (const char *at = patterns; *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        at += length;
        if (!one[0] || matches_state(t->fit, one)) continue;
        weft_error_set(&t->error, WEFT_NOT_FOUND, option,
                       "\"%s\" matches no parameter of the model", one);
        return false;
    }
    return true;
}

static bool choose_groups(training *t)
{
    const recipe *r = &t->r;
    if (!check_patterns(t, "--freeze", r->optimizer_frozen) ||
        !check_patterns(t, "--train", r->fit_train))
        return false;
    if (r->optimizer_frozen[0])
        t->groups[t->n_groups++] = (weft_param_group){.names = r->optimizer_frozen, .frozen = true};
    if (r->fit_train[0]) {
        t->groups[t->n_groups++] = (weft_param_group){.names = r->fit_train};
        t->groups[t->n_groups++] = (weft_param_group){.names = "*", .frozen = true};
    }
    return true;
}

/* ---- Arrays ---- */

/* Reads an array into the store, under a name for it. */
static bool read_array(training *t, const char *name, const char *path, weft_array *array)
{
    if (tool_read_array(t->fit->data, name, path, &t->error) != WEFT_OK) return false;
    array->name = path;
    return weft_params_find(t->fit->data, name, &array->tensor);
}

/* The input that "INPUT=FILE" names, or the next one. */
static bool input_of(training *t, const char *name, size_t prefix, size_t next, size_t n_x,
                     size_t *input)
{
    const training_fit *f = t->fit;
    *input = next;
    if (!prefix) return true;
    for (*input = 0; *input < n_x; ++*input) {
        const char *own = weft_name_of(f->graph, f->built.inputs[*input]);
        if (strlen(own) == prefix - 1 && !strncmp(own, name, prefix - 1)) return true;
    }
    weft_error_set(&t->error, WEFT_NOT_FOUND, "fit", "\"%.*s\" is not an input of the model",
                   (int)prefix - 1, name);
    return false;
}

static size_t prefix_of(const char *name)
{
    const size_t n = strcspn(name, "=/");
    return name[n] == '=' ? n + 1 : 0;
}

/* Reads arrays for all inputs, those of x and then y, into arrays[]. */
static bool read_arrays(training *t, const char *what, const recipe_files *x, const char *y,
                        weft_array arrays[WEFT_BUILT_VALUES], size_t *n)
{
    const training_fit *f = t->fit;
    const size_t n_x = f->built.n_inputs - (f->fit.loss == WEFT_LOSS_MODEL);
    char key[64];
    *n = n_x + 1;
    if (x->n != n_x || *n > WEFT_BUILT_VALUES) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->builder.name,
                       "has %zu inputs, but there are %zu arrays for them", n_x, x->n);
        return false;
    }
    for (size_t i = 0, input; i < n_x; i++) {
        const size_t prefix = prefix_of(x->at[i]);
        if (!input_of(t, x->at[i], prefix, i, n_x, &input)) return false;
        if (arrays[input].name) {
            weft_error_set(&t->error, WEFT_BAD_ARGUMENT, x->at[i],
                           "is a second array of one input");
            return false;
        }
        snprintf(key, sizeof key, "%s.x.%zu", what, input);
        if (!read_array(t, key, x->at[i] + prefix, &arrays[input])) return false;
    }
    snprintf(key, sizeof key, "%s.y", what);
    return read_array(t, key, y, &arrays[n_x]);
}

/* Sizes of token models follow from the arrays: [rows, tokens]. */
static void choose_lengths(training_fit *f, const weft_array *x, const weft_array *y)
{
    if (y->tensor.shape.rank < 2) return;
    f->target_len = y->tensor.shape.dim[1];
    f->source_len = x->tensor.shape.rank == 2 ? x->tensor.shape.dim[1] : 0;
}

/* Lengths are needed to build a model of the list, and its inputs to name arrays. */
static bool find_lengths(training *t)
{
    const recipe *r = &t->r;
    weft_array x = {0}, y = {0};
    if (!r->model || r->fit_loss != WEFT_LOSS_MODEL) return true;
    const char *first = r->fit_x.at[0];
    if (!read_array(t, "lengths.x", first + prefix_of(first), &x) ||
        !read_array(t, "lengths.y", r->fit_y, &y))
        return false;
    choose_lengths(t->fit, &x, &y);
    if (r->fit_x.n == 1) t->fit->source_len = 0;
    return true;
}

static weft_arrays *make_arrays(training *t, const weft_array *arrays, size_t n, bool valid)
{
    const weft_array_options o = {.rows = t->r.fit_rows,
                                  .source_len = t->fit->source_len,
                                  .target_len = t->fit->target_len,
                                  .seed = (uint64_t)t->r.run_seed,
                                  .in_order = valid,
                                  .drop_last = !valid && t->r.fit_drop_last};
    return weft_arrays_new(&t->fit->fit, arrays, n, &o, &t->error);
}

bool fit_read_data(training *t)
{
    training_fit *f = t->fit;
    const recipe *r = &t->r;
    weft_array train[WEFT_BUILT_VALUES] = {{0}}, valid[WEFT_BUILT_VALUES] = {{0}};
    size_t n;
    f->data = weft_params_new();
    if (!f->data) return no_memory(t);
    if (!find_lengths(t) || !build_once(t, f) || !choose_groups(t) ||
        !read_arrays(t, "train", &r->fit_x, r->fit_y, train, &n) ||
        !(f->train = make_arrays(t, train, n, false)))
        return false;
    t->train_source = weft_arrays_source(f->train);
    if (!count_steps(t)) return false;
    if (!r->fit_valid_x.n) return true;
    t->validates = read_arrays(t, "valid", &r->fit_valid_x, r->fit_valid_y, valid, &n) &&
                   (f->valid = make_arrays(t, valid, n, true));
    if (t->validates) t->valid_source = weft_arrays_source(f->valid);
    return t->validates;
}

/* ---- The beginning of a run ---- */

/* Copies a file of external data into the folder of the copy of the model. */
static bool copy_data(training *t, const char *name)
{
    char from[4096], to[4096];
    const char *model = t->fit->onnx.path;
    const int folder = (int)(weft__os_name(model) - model);
    if (snprintf(from, sizeof from, "%.*s%s", folder, model, name) >= (int)sizeof from)
        return training_fail(t, WEFT_TOO_LARGE, model, "the path is too long");
    return training_path(t, to, sizeof to, name) && training_make_parents(t, to) &&
           tool_copy_file(from, to, &t->error);
}

bool fit_copy_model(training *t)
{
    const training_fit *f = t->fit;
    const char *name;
    if (!f->file || f->onnx.path == f->copy || !tool_is_first()) return true;
    for (size_t i = 0; (name = weft_onnx_data_file(f->file, i)); i++)
        if (!copy_data(t, name)) return false;
    return tool_copy_file(f->onnx.path, f->copy, &t->error);
}

/* Copies the parameters of a checkpoint that the model has. */
static bool take_from(training *t, const weft_params *from)
{
    size_t taken = 0;
    for (size_t i = 0; i < weft_params_count(t->params); i++) {
        const char *name = weft_params_name(t->params, i);
        weft_tensor to, x;
        weft_params_find(t->params, name, &to);
        if (!weft_params_find(from, name, &x)) continue;
        if (x.dtype != to.dtype || !weft_shape_equal(x.shape, to.shape)) {
            weft_error_set(&t->error, WEFT_BAD_SHAPE, t->r.run_from,
                           "the dtype or shape of %s differs from the model's", name);
            return false;
        }
        memcpy(to.data, x.data, weft_tensor_bytes(x.dtype, x.shape));
        taken++;
    }
    if (!taken)
        return training_fail(t, WEFT_BAD_ARGUMENT, t->r.run_from, "has no parameter of the model");
    tool_print_line(stderr, "%s: begins with %zu of the %zu tensors of the model", t->r.run_from,
                    taken, weft_params_count(t->params));
    return true;
}

/* The checkpoint of --from, which has exactly the tensors of the model unless --partial is given;
 * the caller frees it. */
static weft_params *load_from(training *t)
{
    const char *path = t->r.run_from;
    weft_params *from = weft_params_new();
    if (!from)
        no_memory(t);
    else if (weft_params_load_some(from, path, &weft_model_states, &t->error) == WEFT_OK &&
             !t->r.fit_partial)
        weft__saved_check(from, t->fit->graph, path, &t->error);
    if (t->error.status == WEFT_OK) return from;
    weft_params_free(from);
    return NULL;
}

bool fit_check_from(training *t)
{
    if (t->resume || !t->r.run_from[0]) return true;
    weft_params *from = load_from(t);
    weft_params_free(from);
    return from != NULL;
}

bool fit_begin(training *t)
{
    training_fit *f = t->fit;
    if (t->lora.rank) return weft_lora_note(&t->lora, t->params, &t->error) == WEFT_OK;
    if (t->resume) return true;
    if ((f->file && weft_onnx_copy_weights(f->file, t->params, &t->error) != WEFT_OK) ||
        weft_params_init(t->params, f->graph, (uint64_t)t->r.run_seed, &t->error) != WEFT_OK)
        return false;
    if (!t->r.run_from[0]) return true;
    weft_params *from = load_from(t);
    const bool good = from && take_from(t, from);
    weft_params_free(from);
    return good;
}

void fit_free(training_fit *f)
{
    weft_arrays_free(f->train);
    weft_arrays_free(f->valid);
    weft_params_free(f->base);
    weft_params_free(f->data);
    weft_graph_free(f->graph);
    weft_onnx_free(f->file);
    free(f->dims);
}
