/* weft fit: trains a model, such as one from an ONNX file, on NumPy arrays. */
#include "training/fit_data.h"
#include "base/platform.h"
#include "base/file.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

/* The command line is parsed twice: first to find a run to resume, then to override its recipe. */
typedef struct arguments {
    training t;
    bool has_model;
} arguments;

static void take_model(void *into, char *text, const tool_parser *parser)
{
    arguments *a = into;
    char meant[TOOL_GUESS_BYTES];
    recipe *r = &a->t.r;
    if (strchr(text, '=')) {
        if (!recipe_take_model_option(r, text)) tool_usage_error(parser, "too many model options");
        return;
    }
    if (a->has_model) tool_usage_error(parser, "one model only");
    a->has_model = true;
    if (tool_ends_with(text, ".onnx")) {
        if (!recipe_set_text(&r->fit_file, text)) exit(tool_fail_text("fit", "out of memory"));
        return;
    }
    r->model = weft_model_find(text);
    if (!r->model)
        tool_usage_error(parser, "no model \"%s\" (see `weft models`)%s", text,
                         tool_guess_model(text, meant));
}

/* A resumed run uses its own recipe. */
static bool load_recipe(const training *early, training *t)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/recipe.json", early->r.run_out);
    if (!early->resume || !early->r.run_out[0] || !weft__file_exists(path)) return true;
    return recipe_load(&t->r, path, NULL, &t->error);
}

static bool check_memory(training *t)
{
    const training_fit *f = t->fit;
    const weft_batch_shape shape = {t->r.fit_rows, f->source_len, f->target_len};
    return training_check_memory(t, &t->builder, shape, "or --batch");
}

/* Everything before the trainer; nothing is written before model and data are checked. */
static bool prepare(training *t)
{
    return training_open_watch(t) && fit_check(t) && recipe_resolve(&t->r, &t->error) &&
           fit_load_model(t) && fit_read_data(t) && check_memory(t) && fit_check_from(t) &&
           training_prepare_folder(t) && fit_copy_model(t) &&
           (!t->validates || training_note_validation(t, t->valid_source.hashes)) &&
           training_print_recipe(t) && fit_begin(t);
}

static int fit(training *t)
{
    t->params = weft_params_new();
    if (!t->params) return tool_fail_text("fit", "out of memory");
    if (!training_compare_recipes(t)) return tool_fail(&t->error);
    bool ready = training_agree(t, prepare(t)) &&
                 training_compare_validation(t, t->valid_source.hashes) && training_make_trainer(t);
    ready = training_open_run(t, ready);
    if (!ready || !training_loop(t)) return tool_fail(&t->error);
    return t->signal ? 128 + t->signal : EXIT_GOOD;
}

static void free_training(training *t)
{
    if (t->metrics) fclose(t->metrics);
    if (t->histograms) fclose(t->histograms);
    if (t->lock > 0) weft__os_close(t->lock);
    watch_close(t->watch);
    weft_trainer_free(t->trainer);
    fit_free(t->fit);
    free(t->kept);
    weft_params_free(t->params);
    recipe_free(&t->r);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const char doc[] =
    "Trains a model on NumPy arrays: FILE.onnx from its weights, or a model of the list. Also "
    "updates the running statistics of batch normalisations; frozen ones are used as in "
    "evaluation. Ctrl-C finishes the step, saves and ends with status 130 (SIGTERM: 143, SIGHUP: "
    "129).";

int cmd_fit(int argc, char **argv)
{
    tool_option rows[RECIPE_ROWS];
    const tool_command of_recipe = {.options = rows, .check = recipe_check};
    const tool_option options[] = {
        {"resume", NULL, FIELD(t.resume),
         "resume from the checkpoint in the folder, if there is one"},
        {"json", NULL, FIELD(t.json),
         "print recipe and result as lines of JSON, progress on stderr"},
        {"schema", NULL, FIELD(t.schema), "print the JSON schema of a run's recipe.json, and end"},
        {TOOL_INCLUDED(arguments, t.watch_args, watch_options)},
        {TOOL_INCLUDED(arguments, t.r, of_recipe)},
        {0}};
    const tool_command command = {.options = options,
                                  .usage = "FILE.onnx\nMODEL [OPTION=VALUE...]",
                                  .doc = doc,
                                  .argument = take_model};
    training_fit model = {.file = NULL};
    arguments early = {.t = {.fit = &model, .unit = "rows"}}, a = early;
    training *t = &a.t;
    int status = EXIT_ERROR;
    recipe_options(rows, true);
    if (!recipe_init(&t->r) || !recipe_init(&early.t.r))
        return tool_fail_text("fit", "out of memory");
    t->r.fits = early.t.r.fits = true;
    tool_parse(&command, argc, argv, &early);
    if (early.t.schema) {
        status = recipe_print_schema(true);
    } else if (training_agree(t, load_recipe(&early.t, t))) {
        tool_parse(&command, argc, argv, &a);
        system_limit_files();
        status = fit(t);
    } else {
        tool_fail(&t->error);
    }
    recipe_free(&early.t.r);
    free_training(t);
    return status;
}
