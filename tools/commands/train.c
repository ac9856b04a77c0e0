/* weft train: trains a model on text files, with options from a recipe and the command line. */
#include "training/training.h"
#include "base/platform.h"
#include "base/file.h"
#include "system.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The command line ---- */

/* The command line is parsed twice: first to find the recipe, then to override its values. */
typedef struct arguments {
    training t;
    const char *recipe;
} arguments;

/* An argument is a recipe if it ends in .json, or if it names a file and no model. */
static bool is_recipe(const char *text)
{
    if (tool_ends_with(text, ".json")) return true;
    return !weft_model_find(text) && weft__file_exists(text);
}

static void take_argument(void *into, char *text, const tool_parser *parser)
{
    arguments *a = into;
    char meant[TOOL_GUESS_BYTES];
    recipe *r = &a->t.r;
    if (is_recipe(text)) {
        if (a->recipe) tool_usage_error(parser, "only one recipe can be given");
        a->recipe = text;
    } else if (!strchr(text, '=')) {
        r->model = weft_model_find(text);
        if (!r->model)
            tool_usage_error(parser, "no model \"%s\" (see `weft models`)%s", text,
                             tool_guess_model(text, meant));
    } else if (!recipe_take_model_option(r, text)) {
        tool_usage_error(parser, "too many model options");
    }
}

/* A resumed run uses its own recipe.json, unless a recipe is given. */
static bool load_recipe(const arguments *early, training *t)
{
    char path[4096];
    const char *folder = early->t.r.data_folder[0] ? early->t.r.data_folder : NULL;
    if (early->recipe) return recipe_load(&t->r, early->recipe, folder, &t->error);
    snprintf(path, sizeof path, "%s/recipe.json", early->t.r.run_out);
    if (!early->t.resume || !early->t.r.run_out[0] || !weft__file_exists(path)) return true;
    return recipe_load(&t->r, path, folder, &t->error);
}

/* Sets `vocab` to the vocabulary's size and checks all options of the model. */
static bool fix_model_options(training *t)
{
    recipe *r = &t->r;
    char text[64];
    if (!training_check_vocab(t)) return false;
    snprintf(text, sizeof text, "vocab=%lld", (long long)training_vocab_size(t));
    if (!recipe_take_model_option(r, text))
        return training_fail(t, WEFT_TOO_LARGE, r->model->name, "too many options");
    return weft_model_parse(r->model, (const char *const *)r->model_options, r->n_model_options,
                            &t->config, &t->error) == WEFT_OK;
}

/* ---- The trainer ---- */

/* Batches of the longest rows take the most memory. */
static bool check_memory(training *t)
{
    const recipe *r = &t->r;
    const char *texts[2 * WEFT_MODEL_OPTIONS + 1];
    char vocab[32];
    weft_batch_shape shape =
        tool_largest_batch(r->batches_tokens, r->batches_lengths.at[r->batches_lengths.n - 1]);
    if (t->mode != WEFT_BATCH_PAIRS) shape.source_len = 0;
    memcpy(texts, r->model_options, r->n_model_options * sizeof *texts);
    snprintf(vocab, sizeof vocab, "vocab=%lld", (long long)r->vocabulary_size);
    texts[r->n_model_options] = vocab;
    weft_model_config config;
    if (weft_model_parse(r->model, texts, r->n_model_options + 1, &config, &t->error) != WEFT_OK)
        return false;
    t->builder = weft_model_builder(&config);
    training_add_adapters(t);
    return training_check_memory(t, &t->builder, shape, "--batch-tokens or --lengths");
}

/* A model still reads the texts that it was trained on before, even if those at hand are shorter. */
static void keep_longest(training *t)
{
    const char *text = weft_params_meta(t->params, "trained_length");
    const size_t before = text ? strtoull(text, NULL, 10) : t->from_len;
    if (t->train_source.longest < before) t->train_source.longest = before;
}

static bool make_trainer(training *t)
{
    const recipe *r = &t->r;
    t->builder = weft_model_builder(&t->config);
    training_add_adapters(t);
    t->train_source = weft_batches_source(t->train);
    keep_longest(t);
    t->validates = t->valid != NULL;
    if (t->valid) t->valid_source = weft_batches_source(t->valid);
    if (r->schedule_lr == 0 && weft_model_traits_of(&t->config).d_model < 1)
        return training_fail(
            t, WEFT_BAD_ARGUMENT, r->model->name,
            "has no d_model, which --lr 0, the learning rate of the paper, depends on");
    return training_make_trainer(t);
}

/* ---- The command ---- */

/* Prints the validation loss of a checkpoint, with the recipe of the run's folder. */
static int validate_only(training *t)
{
    double nll = NAN;
    bool good = training_check(t) && training_open_base(t) &&
                weft_params_load(t->params, t->validate, &t->error) == WEFT_OK &&
                training_vocabularies(t, false) && training_texts(t) && fix_model_options(t);
    if (good && !weft_params_meta(t->params, "model"))
        good = training_fail(t, WEFT_BAD_FILE, t->validate, "does not name its model");
    if (good && !t->valid)
        good = training_fail(t, WEFT_BAD_ARGUMENT, t->r.run_out,
                             "the recipe names no text to validate with");
    good = training_agree(t, good) && make_trainer(t);
    if (good && weft_trainer_evaluate(t->trainer, &t->valid_source, (size_t)t->r.run_valid_batches,
                                      &nll, NULL, &t->error) != WEFT_OK)
        good = false;
    if (!good) return tool_fail(&t->error);
    if (!t->json) {
        training_print_validation(t, nll);
        putchar('\n');
        return EXIT_GOOD;
    }
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "validation_loss", nll);
    cJSON_AddNumberToObject(json, "bits_per_character", training_bits_per_character(t, nll));
    return tool_write_json_line(json, stdout, "output", &t->error) ? EXIT_GOOD
                                                                   : tool_fail(&t->error);
}

/* Whether the run has a checkpoint to resume. */
static bool has_checkpoint(const training *t)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model.safetensors", t->r.run_out);
    return t->resume && weft__file_exists(path);
}

/* One process makes the vocabularies, then the others read them. */
static bool make_vocabularies(training *t)
{
    const bool make = !t->resume;
    weft_communicator *world = tool_world();
    const double seconds = world ? world->seconds : 0;
    if (world) world->seconds = 0; /* a vocabulary of a large text takes its time */
    const bool made = training_agree(t, !tool_is_first() || training_vocabularies(t, make));
    if (world) world->seconds = seconds;
    if (!made) return false;
    return tool_is_first() || training_vocabularies(t, false);
}

static bool note_validation(training *t)
{
    return !t->valid || training_note_validation(t, weft_batches_hashes(t->valid));
}

static int train(training *t)
{
    t->params = weft_params_new();
    if (!t->params) return tool_fail_text("train", "out of memory");
    if (!training_compare_recipes(t)) return tool_fail(&t->error);
    t->unit = "tokens";
    if (t->r.optimizer_frozen[0])
        t->groups[t->n_groups++] =
            (weft_param_group){.names = t->r.optimizer_frozen, .frozen = true};
    if (t->validate && t->watch_args.wanted)
        return tool_fail_text("--watch",
                              "--watch has no effect with --validate, which trains nothing");
    if (t->validate) return validate_only(t);
    bool ready = training_open_watch(t) && (has_checkpoint(t) || training_take_from(t)) &&
                 training_check(t) && training_open_base(t) && check_memory(t) &&
                 training_prepare_folder(t) && make_vocabularies(t) && training_texts(t) &&
                 training_read_sentences(t) && note_validation(t) && fix_model_options(t) &&
                 training_print_recipe(t) && training_begin_with(t) && training_note_adapters(t);
    ready = training_agree(t, ready) &&
            training_compare_validation(t, weft_batches_hashes(t->valid)) && make_trainer(t);
    ready = training_open_run(t, ready);
    if (!ready) training_forget_vocabulary(t);
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
    weft_batches_free(t->train);
    weft_batches_free(t->valid);
    weft_corpus_free(t->train_text);
    weft_corpus_free(t->valid_text);
    if (t->vocabulary[0] != t->vocabulary[1]) weft_tokenizer_free(t->vocabulary[0]);
    weft_tokenizer_free(t->vocabulary[1]);
    training_free_sentences(t);
    free(t->begins);
    free(t->kept);
    weft_params_free(t->params);
    if (t->from) trained_close(t->from);
    free(t->from);
    recipe_free(&t->r);
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const char doc[] =
    "Trains a model on text files: a pair of them for a model with source and target (default: "
    "transformer), one for a language model. The options are those of a recipe, and override it. "
    "Ctrl-C finishes the step, saves and ends with status 130 (SIGTERM: 143, SIGHUP: 129).";

int cmd_train(int argc, char **argv)
{
    tool_option rows[RECIPE_ROWS];
    const tool_command of_recipe = {.options = rows, .check = recipe_check};
    const tool_option options[] = {
        {"resume", NULL, FIELD(t.resume),
         "resume from the checkpoint in the folder, if there is one"},
        {"validate", "FILE", FIELD(t.validate),
         "print the validation loss of a checkpoint of the run in the folder, and train nothing",
         TOOL_ALSO(arguments, t.resume)},
        {"json", NULL, FIELD(t.json),
         "print recipe and result as lines of JSON, progress on stderr"},
        {"schema", NULL, FIELD(t.schema), "print the JSON schema of a recipe, and end"},
        {TOOL_INCLUDED(arguments, t.watch_args, watch_options)},
        {TOOL_INCLUDED(arguments, t.r, of_recipe)},
        {0}};
    const tool_command command = {.options = options,
                                  .usage = "[RECIPE.json] [MODEL] [OPTION=VALUE...]",
                                  .doc = doc,
                                  .argument = take_argument};
    arguments early = {.recipe = NULL}, a = early;
    training *t = &a.t;
    int status = EXIT_ERROR;
    recipe_options(rows, false);
    if (!recipe_init(&t->r) || !recipe_init(&early.t.r))
        return tool_fail_text("train", "out of memory");
    tool_parse(&command, argc, argv, &early);
    if (early.t.schema) {
        status = recipe_print_schema(false);
    } else if (training_agree(t, load_recipe(&early, t))) {
        tool_parse(&command, argc, argv, &a);
        system_limit_files();
        status = train(t);
    } else {
        tool_fail(&t->error);
    }
    recipe_free(&early.t.r);
    free_training(t);
    return status;
}
