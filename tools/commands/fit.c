/* weft fit: trains a model, such as one from an ONNX file, on arrays of NumPy. */
#include "training/fit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_RESUME = 256, KEY_JSON, MAX_OPTIONS = 96 };

/* The command line is parsed twice: first to find a run to resume, then to override its recipe. */
typedef struct arguments {
    training *t;
    bool first;
    recipe early; /* of the first pass: only run.out is used */
    bool has_model;
} arguments;

static error_t take_model(arguments *a, const char *text, struct argp_state *state)
{
    char meant[TOOL_GUESS_BYTES];
    recipe *r = a->first ? &a->early : &a->t->r;
    if (strchr(text, '=')) {
        if (!recipe_take_model_option(r, text)) argp_error(state, "too many model options");
        return 0;
    }
    if (a->has_model) argp_error(state, "one model only");
    a->has_model = true;
    if (tool_ends_with(text, ".onnx"))
        return recipe_take(r, RECIPE_FIRST_KEY + RECIPE_fit_file, text, state) ? 0 : EINVAL;
    r->model = weft_model_find(text);
    if (!r->model)
        tool_usage_error(state, "no model \"%s\" (see `weft models`)%s", text,
                         tool_guess_model(text, meant));
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case KEY_RESUME:
        a->t->resume = true;
        return 0;
    case KEY_JSON:
        a->t->json = true;
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->t->watch_args;
        a->has_model = false;
        return 0;
    case ARGP_KEY_ARG:
        return take_model(a, text, state);
    default:
        return recipe_take(a->first ? &a->early : &a->t->r, key, text, state) ? 0
                                                                              : ARGP_ERR_UNKNOWN;
    }
}

/* A resumed run uses its own recipe. */
static bool load_recipe(arguments *a)
{
    char path[4096];
    training *t = a->t;
    snprintf(path, sizeof path, "%s/recipe.json", a->early.run_out);
    if (!t->resume || !a->early.run_out[0] || access(path, F_OK) != 0) return true;
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
    if (t->lock > 0) close(t->lock);
    watch_close(t->watch);
    weft_trainer_free(t->trainer);
    fit_free(t->fit);
    free(t->kept);
    weft_params_free(t->params);
    recipe_free(&t->r);
}

int cmd_fit(int argc, char **argv)
{
    struct argp_option options[MAX_OPTIONS] = {
        {"resume", KEY_RESUME, NULL, 0, "resume from the checkpoint in the folder, if there is one",
         0},
        {"json", KEY_JSON, NULL, 0, "print recipe and result as lines of JSON, progress on stderr",
         0}};
    recipe_argp(options + 2, MAX_OPTIONS - 3, true);
    static const struct argp_child watched[] = {{&watch_argp, 0, NULL, 0}, {0}};
    struct argp argp = {
        options,
        parse,
        "FILE.onnx\nMODEL [OPTION=VALUE...]",
        "Trains a model on arrays of NumPy: FILE.onnx from its weights, or a model of the list. "
        "Also updates the running statistics of batch normalisations; frozen ones are used as in "
        "evaluation. Ctrl-C finishes the step, saves and ends with status 130 "
        "(SIGTERM: 143, SIGHUP: 129).",
        watched,
        recipe_help,
        NULL};
    training_fit model = {.file = NULL};
    training t = {.fit = &model, .unit = "rows"};
    arguments a = {.t = &t, .first = true};
    if (!recipe_init(&t.r) || !recipe_init(&a.early)) return tool_fail_text("fit", "out of memory");
    t.r.fits = a.early.fits = true;
    tool_parse(&argp, argc, argv, &a);
    a.first = false;
    int status = EXIT_ERROR;
    if (training_agree(&t, load_recipe(&a))) {
        tool_parse(&argp, argc, argv, &a);
        struct sigaction ignore = {.sa_handler = SIG_IGN};
        sigaction(SIGXFSZ, &ignore, NULL);
        status = fit(&t);
    } else {
        tool_fail(&t.error);
    }
    recipe_free(&a.early);
    free_training(&t);
    return status;
}
