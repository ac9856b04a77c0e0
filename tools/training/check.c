/* Checks options, texts and model before `weft train` makes a folder or a vocabulary. */
#include "training.h"
#include "text/vocabulary.h"
#include "base/platform.h"
#include "base/file.h"

#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool check_file(training *t, const char *path)
{
    os_facts facts;
    if (!path[0] || !strcmp(path, "-")) return true;
    const bool there = weft__os_facts(path, &facts);
    /* Opening a pipe would be seen by its writer. */
    if (there && facts.kind == OS_DEVICE) return true;
    const int descriptor = there ? weft__file_open(path) : -1;
    if (descriptor >= 0) return weft__os_close(descriptor);
    weft_error_set(&t->error, WEFT_IO, path, "cannot be read: %s", strerror(errno));
    return false;
}

/* Checks that sources and targets are equally many files. */
static bool check_pairs(training *t, const recipe_files *source, const recipe_files *target,
                        const char *names)
{
    if (source->n == target->n) return true;
    weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "train",
                   "%s: %zu files of sources, %zu of targets", names, source->n, target->n);
    return false;
}

static bool check_texts(training *t)
{
    const recipe *r = &t->r;
    bool pairs = t->mode == WEFT_BATCH_PAIRS;
    const recipe_files *const lists[] = {
        pairs ? &r->data_source : &r->data_text, pairs ? &r->data_target : NULL,
        pairs ? &r->data_valid_source : &r->data_valid_text, pairs ? &r->data_valid_target : NULL};
    size_t from_input = 0;
    bool none = pairs ? !r->data_source.n || !r->data_target.n : !r->data_text.n;
    if (none && t->resume)
        return training_fail(t, WEFT_BAD_ARGUMENT, r->run_out,
                             "has no run to resume: recipe.json is missing");
    if (none)
        return training_fail(t, WEFT_BAD_ARGUMENT, r->model->name,
                             pairs ? "needs a pair of text files (--source, --target)"
                                   : "needs a text file (--text)");
    if (pairs && !r->data_valid_source.n != !r->data_valid_target.n)
        return training_fail(t, WEFT_BAD_ARGUMENT, "train",
                             "validation needs both --valid-source and --valid-target");
    if (pairs && (!check_pairs(t, &r->data_source, &r->data_target, "--source, --target") ||
                  !check_pairs(t, &r->data_valid_source, &r->data_valid_target,
                               "--valid-source, --valid-target")))
        return false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t k = 0; lists[i] && k < lists[i]->n; k++) {
            from_input += !strcmp(lists[i]->at[k], "-");
            if (!check_file(t, lists[i]->at[k])) return false;
        }
    if (!pairs && !training_check_examples(t)) return false;
    if (from_input > 1)
        return training_fail(t, WEFT_BAD_ARGUMENT, "train",
                             "standard input (-) can be one of the texts only");
    /* A resumed run has its own copies of the vocabularies. */
    if (t->resume) return true;
    return check_file(t, r->vocabulary_file) && check_file(t, r->vocabulary_source_file) &&
           check_file(t, r->vocabulary_target_file);
}

/* Refuses options that have no effect: the user expects one. */
static bool check_effects(training *t)
{
    const recipe *r = &t->r;
    bool pairs = t->mode == WEFT_BATCH_PAIRS, masked = t->mode == WEFT_BATCH_MASKED;
    const int kind = r->optimizer_kind;
    bool sgd = kind == WEFT_SGD, rmsprop = kind == WEFT_RMSPROP;
    bool moments = kind == WEFT_ADAM || kind == WEFT_ADAMW || kind == WEFT_LAMB;
    bool validated = pairs && r->data_valid_source.n;
    const struct {
        recipe_key key;
        bool effective;
        const char *why;
    } rules[] = {
        {RECIPE_data_text, !pairs, "the model is trained on pairs (--source, --target)"},
        {RECIPE_data_valid_text, !pairs, "the model is trained on pairs"},
        {RECIPE_data_source, pairs, "the model is trained on one text (--text)"},
        {RECIPE_data_target, pairs, "the model is trained on one text (--text)"},
        {RECIPE_data_valid_source, pairs, "the model is trained on one text"},
        {RECIPE_data_valid_target, pairs, "the model is trained on one text"},
        {RECIPE_data_unit, !pairs && !t->examples,
         pairs ? "pairs are lines" : "examples are lines"},
        {RECIPE_batches_truncate, !t->examples, "examples are always cut"},
        {RECIPE_batches_mask_share, masked, "the model does not predict masked tokens"},
        {RECIPE_lora_rank, r->run_from[0] != 0, "adapters need the run of a model (--from)"},
        {RECIPE_lora_alpha, r->lora_rank > 0, "it needs --lora"},
        {RECIPE_lora_on, r->lora_rank > 0, "it needs --lora"},
        {RECIPE_lora_dropout, r->lora_rank > 0, "it needs --lora"},
        {RECIPE_optimizer_frozen, !r->lora_rank, "the model of adapters is frozen"},
        {RECIPE_schedule_max_minutes, r->schedule_steps > 0,
         "it limits a training by steps (--steps)"},
        {RECIPE_run_valid_bleu, validated && !r->lora_rank,
         r->lora_rank ? "models with adapters are not translated with while they are trained"
                      : "there are no pairs to validate with"},
        {RECIPE_run_valid_samples, r->run_valid_bleu > 0, "it needs --valid-bleu"},
        {RECIPE_run_best_by, r->run_best_by == 1 && r->run_valid_bleu > 0, "it needs --valid-bleu"},
        {RECIPE_optimizer_momentum, sgd || rmsprop, "the optimizer is not sgd or rmsprop"},
        {RECIPE_optimizer_nesterov, sgd && r->optimizer_momentum > 0,
         "it needs --optimizer sgd and --momentum"},
        {RECIPE_optimizer_dampening, sgd && r->optimizer_momentum > 0,
         "it needs --optimizer sgd and --momentum"},
        {RECIPE_optimizer_alpha, rmsprop, "the optimizer is not rmsprop"},
        {RECIPE_optimizer_centered, rmsprop, "the optimizer is not rmsprop"},
        {RECIPE_optimizer_beta1, moments, "the optimizer is not adam, adamw or lamb"},
        {RECIPE_optimizer_beta2, moments, "the optimizer is not adam, adamw or lamb"},
        {RECIPE_optimizer_eps, !sgd, "the optimizer is sgd"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].effective || !recipe_is_set(r, rules[i].key)) continue;
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "train", "--%s has no effect: %s",
                       recipe_option(rules[i].key), rules[i].why);
        return false;
    }
    if (r->schedule_steps || r->schedule_minutes > 0) return true;
    return training_fail(t, WEFT_BAD_ARGUMENT, "train",
                         "the length is missing: --steps and --minutes are both 0");
}

static bool refuse_option(training *t, const char *name, double value, const char *instead)
{
    weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->r.model->name,
                   "%s=%.10g cannot be chosen here: %s", name, value, instead);
    return false;
}

/* The data determine the sizes. Recipes of runs list them; their defaults may stay as they are. */
static bool check_data_options(training *t)
{
    const recipe *r = &t->r;
    const weft_model_config config = training_config(r);
    const bool blocks = t->mode == WEFT_BATCH_BLOCKS;
    const weft_model_traits traits = weft_model_traits_of(&config);
    for (int i = 0; i < WEFT_MODEL_SIZES && r->model->sizes[i].name; i++) {
        const weft_model_option *size = &r->model->sizes[i];
        const double value = weft_model_option_value(size, &config.build.shape);
        const bool rows = size->offset == offsetof(weft_batch_shape, rows);
        if (value == size->value || (!rows && value == (double)traits.max_positions) ||
            (blocks && !rows && value == r->batches_lengths.at[r->batches_lengths.n - 1]))
            continue;
        return refuse_option(t, size->name, value,
                             rows ? "--batch-tokens sets the size of batches"
                                  : "--lengths sets the lengths of rows");
    }
    return traits.pad_id == SPM_PAD ||
           refuse_option(t, "pad_id", traits.pad_id, "id 0 is the padding of every vocabulary");
}

bool training_check_vocab(training *t)
{
    weft_model_config defaults;
    const int64_t asked = training_traits(&t->r).vocab, size = training_vocab_size(t);
    char instead[128];
    if (weft_model_parse(t->r.model, NULL, 0, &defaults, &t->error) != WEFT_OK) return false;
    if (asked == size || asked == weft_model_traits_of(&defaults).vocab) return true;
    snprintf(instead, sizeof instead,
             "the vocabulary has %lld pieces (--vocab sets the size of a new one)",
             (long long)size);
    return refuse_option(t, "vocab", (double)asked, instead);
}

/* Adds the options that differ from their defaults to the error: one of them is the cause. */
static bool name_options(training *t)
{
    const recipe *r = &t->r;
    char text[256] = "";
    weft_error e = t->error;
    for (size_t i = 0; i < r->n_model_options; i++) {
        weft_model_config config;
        const char *option = r->model_options[i];
        size_t k = 0, key = strcspn(option, "=");
        if (weft_model_parse(r->model, &option, 1, &config, NULL) != WEFT_OK) continue;
        while (k < r->model->n_options && (strncmp(r->model->options[k].name, option, key) != 0 ||
                                           r->model->options[k].name[key]))
            k++;
        if (k < r->model->n_options && weft_model_value(&config, k) != r->model->options[k].value)
            tool_append(text, sizeof text, " %s", option);
    }
    weft_error_set(&t->error, e.status, e.where, "%s (%s%s)", e.message, r->model->name, text);
    return false;
}

/* Builds the model at full size, for a batch of one row. */
static bool check_model(training *t)
{
    recipe *r = &t->r;
    const char *texts[2 * WEFT_MODEL_OPTIONS + 1];
    char vocab[32];
    size_t n = r->n_model_options;
    int64_t positions, longest = r->batches_lengths.at[r->batches_lengths.n - 1];
    weft_model_config config;
    memcpy(texts, r->model_options, n * sizeof *texts);
    if (weft_model_parse(r->model, texts, n, &config, &t->error) != WEFT_OK) return false;
    positions = weft_model_traits_of(&config).max_positions;
    if (longest > positions) {
        weft_error_set(
            &t->error, WEFT_BAD_ARGUMENT, r->model->name,
            "has %lld positions (max_positions), rows have up to %lld tokens (--lengths)",
            (long long)positions, (long long)longest);
        return false;
    }
    snprintf(vocab, sizeof vocab, "vocab=%lld", (long long)r->vocabulary_size);
    texts[n++] = vocab;
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_status status = weft_model_build_text(g, r->model, texts, n, true, &built, &t->error);
    weft_graph_free(g);
    return status == WEFT_OK || name_options(t);
}

bool training_check(training *t)
{
    recipe *r = &t->r;
    if (!r->model) r->model = weft_model_find("transformer");
    if (!r->run_out[0])
        return training_fail(t, WEFT_BAD_ARGUMENT, "train", "no folder for the run (--out FOLDER)");
    if (!training_choose_mode(t)) return false;
    if (r->schedule_kind != WEFT_SCHEDULE_CONSTANT && r->schedule_lr > 0 &&
        r->schedule_floor > r->schedule_lr) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "train",
                       "the floor of the learning rate, %g, is above its peak, %g (--floor)",
                       r->schedule_floor, r->schedule_lr);
        return false;
    }
    training_choose_lengths(t);
    char no_label[32];
    snprintf(no_label, sizeof no_label, "pad_id=%d", TRAINING_NO_LABEL);
    const bool whole = vocabulary_is_json(r->vocabulary_file) || t->examples;
    if (whole && !recipe_take_model_option(r, no_label))
        return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    return recipe_resolve(r, &t->error) && check_effects(t) && check_texts(t) &&
           check_data_options(t) && check_model(t);
}
