/* Checkpoints: the state of a training and the identity of its run, as metadata of the store. A
 * resumed training must have the same identity. */
#include "trainer.h"

#include "base/hash.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

weft_status weft__checkpoint_describe(weft_trainer *t)
{
    const weft_builder *b = &t->o.builder;
    if (!b->describe || b->describe(b->context, t->options, sizeof t->options)) return WEFT_OK;
    return weft__trainer_fail(t, WEFT_TOO_LARGE, b->name,
                              "its options are too long for a checkpoint");
}

/* Fails unless the checkpoint has the builder's model and options. */
static weft_status compare_model(weft_trainer *t, const char *name, const char *stored)
{
    if (strcmp(name, t->o.builder.name) != 0)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "checkpoint", "is of %s, not of %s",
                              name, t->o.builder.name);
    char current[WEFT_OPTIONS_TEXT];
    const char *was, *is, *where = "checkpoint";
    if (!stored ||
        !weft__options_differ(weft__options_current(name, stored, current), t->options, &was, &is))
        return WEFT_OK;
    int was_length = was ? (int)strcspn(was, " ") : 0, is_length = is ? (int)strcspn(is, " ") : 0;
    if (!was)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, where, "was made without %.*s",
                              is_length, is);
    if (!is)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, where,
                              "was made with %.*s, which the model does not have", was_length, was);
    int key = (int)strcspn(is, "=") + 1;
    return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, where, "was made with %.*s, not %.*s",
                          was_length, was, is_length - key, is + key);
}

#define STATE_FORMAT                                                                               \
    "epoch=%" PRIu64 " batch=%" PRIu64 " smoothed=%a best=%a best_step=%" PRIu64 " stale=%" PRIu64 \
    " judged_step=%" PRIu64 " seed=%" PRIu64 " batches=%" PRIu64 " accumulate=%" PRIu64

#define DATA_FORMAT "source=%016" PRIx64 " target=%016" PRIx64 " batches=%016" PRIx64

/* Reads the whole number at the start of `text` and returns its end; NULL if there is none or it
 * overflows. */
static const char *read_whole(const char *text, int base, uint64_t *value)
{
    char *end;
    const char *digits = base == 16 ? "0123456789abcdef" : "0123456789";
    errno = 0;
    *value = strtoull(text, &end, base);
    return !errno && end > text && (size_t)(end - text) == strspn(text, digits) ? end : NULL;
}

/* The value after "key=" in a text of "key=value key=value ..."; NULL if there is none. */
static const char *find_field(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = text; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, key, length) == 0 && at[length] == '=') return at + length + 1;
    }
    return NULL;
}

static bool ends_field(const char *end)
{
    return end && (!*end || *end == ' ');
}

static bool read_number(const char *text, const char *key, int base, uint64_t *value)
{
    const char *at = find_field(text, key);
    return at && ends_field(read_whole(at, base, value));
}

static bool read_real(const char *text, const char *key, double *value)
{
    const char *at = find_field(text, key);
    return at && ends_field(weft__text_read_double(at, value));
}

/* Fails unless the data has the hashes in the metadata; old checkpoints have none. */
static weft_status check_data(weft_trainer *t)
{
    const char *text = weft_params_meta(t->params, "train.data");
    const weft_trainer_options *o = &t->o;
    weft_data_hashes was;
    const char *other = NULL;
    if (!text) return WEFT_OK;
    if (!read_number(text, "source", 16, &was.source) ||
        !read_number(text, "target", 16, &was.target) ||
        !read_number(text, "batches", 16, &was.batches))
        return weft__trainer_fail(t, WEFT_BAD_FILE, "checkpoint", "\"train.data\" is damaged");
    if (was.target != t->batches.hashes.target)
        other = o->target_name ? o->target_name : "these targets";
    if (was.source != t->batches.hashes.source)
        other = o->source_name ? o->source_name : "these sources";
    if (!other) return WEFT_OK;
    return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "checkpoint",
                          "was trained on data other than %s", other);
}

static weft_status check_batches(weft_trainer *t)
{
    const char *text = weft_params_meta(t->params, "train.data");
    uint64_t was;
    if (!text || !read_number(text, "batches", 16, &was) || was == t->batches.hashes.batches)
        return WEFT_OK;
    return weft__trainer_fail(
        t, WEFT_BAD_ARGUMENT, "checkpoint",
        "was trained with different batches: mode, tokens, lengths, truncation, special tokens, "
        "share of masks or seed differ");
}

/* A hash of everything that all checkpoints of one run have in common, and that a resumed training
 * must not change. */
static uint64_t run_hash(const weft_trainer *t)
{
    const weft_data_hashes *data = &t->batches.hashes;
    const uint64_t numbers[] = {t->o.seed, t->o.accumulate, data->source, data->target,
                                data->batches};
    const char *name = t->o.builder.name;
    uint64_t hash = hash_bytes(HASH_START, name, strlen(name) + 1);
    hash = hash_bytes(hash, t->options, strlen(t->options) + 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hash = hash_number(hash, numbers[i]);
    return hash;
}

static weft_status check_same(weft_trainer *t, const char *name, uint64_t was, uint64_t is)
{
    if (was == is) return WEFT_OK;
    return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "checkpoint",
                          "was trained with %s %" PRIu64 ", not %" PRIu64, name, was, is);
}

/* Whether the store has states of a training. */
static bool has_training(const weft_params *params)
{
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (weft_params_key(params, i).kind != WEFT_STATE_MODEL) return true;
    return false;
}

/* Fails if the store has only some of a checkpoint's metadata. A file of a model alone has "step"
 * at most. */
static weft_status check_progress(weft_trainer *t, const char *state, const char *step)
{
    const bool states = t->states = has_training(t->params);
    const char *path = weft_params_source(t->params);
    const char *lacks = !state && states             ? "train.state"
                        : !step && (state || states) ? "step"
                                                     : NULL;
    if (!lacks) return WEFT_OK;
    return weft_error_set(&t->error, WEFT_BAD_FILE, path ? path : "checkpoint",
                          "has no \"%s\", the progress of its training", lacks);
}

weft_status weft__checkpoint_resume(weft_trainer *t)
{
    const char *model = weft_params_meta(t->params, "model");
    const char *text = weft_params_meta(t->params, "train.state");
    const char *step = weft_params_meta(t->params, "step");
    weft_trainer_progress *s = &t->progress;
    uint64_t seed, batches, accumulate;
    *s = (weft_trainer_progress){.smoothed = NAN, .best = NAN};
    weft_status status = WEFT_OK;
    if (model) status = compare_model(t, model, weft_params_meta(t->params, "model_options"));
    if (status == WEFT_OK) status = check_progress(t, text, step);
    if (status != WEFT_OK || !text) return status;
    t->resumed = true;
    if (!read_number(text, "epoch", 10, &s->epoch) || !read_number(text, "batch", 10, &s->batch) ||
        !read_real(text, "smoothed", &s->smoothed) || !read_real(text, "best", &s->best) ||
        !read_number(text, "best_step", 10, &s->best_update) ||
        !read_number(text, "stale", 10, &s->stale) ||
        !read_number(text, "judged_step", 10, &s->judged_update) ||
        !read_number(text, "seed", 10, &seed) || !read_number(text, "batches", 10, &batches) ||
        !read_number(text, "accumulate", 10, &accumulate))
        return weft__trainer_fail(t, WEFT_BAD_FILE, "checkpoint",
                                  "\"train.state\" is incomplete or damaged");
    const char *end = read_whole(step, 10, &s->updates);
    if (!end || *end)
        return weft__trainer_fail(t, WEFT_BAD_FILE, "checkpoint", "\"step\" is not a whole number");
    status = check_same(t, "seed", seed, t->o.seed);
    if (status == WEFT_OK) status = check_data(t);
    if (status == WEFT_OK)
        status =
            check_same(t, "batches per epoch (set by texts, lengths and batch tokens):", batches,
                       t->batches.batches);
    if (status == WEFT_OK) status = check_batches(t);
    if (status == WEFT_OK) status = check_same(t, "accumulate", accumulate, t->o.accumulate);
    return status;
}

static weft_status write_meta(weft_trainer *t)
{
    const weft_trainer_progress *s = &t->progress;
    char step[32], text[512], longest[32], data[128], run[32];
    snprintf(step, sizeof step, "%" PRIu64, s->updates);
    weft__text_format(text, sizeof text, STATE_FORMAT, s->epoch, s->batch, s->smoothed, s->best,
                      s->best_update, s->stale, s->judged_update, t->o.seed,
                      (uint64_t)t->batches.batches, (uint64_t)t->o.accumulate);
    snprintf(data, sizeof data, DATA_FORMAT, t->batches.hashes.source, t->batches.hashes.target,
             t->batches.hashes.batches);
    snprintf(run, sizeof run, "%016" PRIx64, run_hash(t));
    snprintf(longest, sizeof longest, "%zu", t->batches.longest);
    const char *metas[][2] = {
        {"model", t->o.builder.name}, {"model_options", t->options}, {"step", step},
        {"train.state", text},        {"train.data", data},          {"run", run},
        {"trained_length", longest}};
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++)
        if (weft_params_set_meta(t->params, metas[i][0], metas[i][1], NULL) != WEFT_OK)
            return weft__trainer_no_memory(t);
    return WEFT_OK;
}

weft_status weft_trainer_save(weft_trainer *trainer, const char *path, weft_error *error)
{
    if (!weft__trainer_begin(trainer, error)) return WEFT_BAD_ARGUMENT;
    if (!path) return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_trainer_save", "no path");
    const weft_status status = write_meta(trainer) == WEFT_OK ? weft__pieces_save(trainer, path)
                                                              : weft__checkpoint_agree(trainer);
    return weft__trainer_end(trainer, status, error);
}

weft_status weft__checkpoint_copy_model(weft_trainer *t, weft_params *to)
{
    /* Before the first update there is no average. */
    const bool averages = t->o.ema > 0 && t->progress.updates;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(to); i++) {
        const char *name = weft_params_name(to, i);
        char averaged[WEFT_STATE_KEY_BYTES];
        if (trainer_is_base(t, name)) continue;
        weft_state_key key = weft_params_key(to, i);
        weft_tensor from, into;
        key.kind = WEFT_STATE_AVERAGE;
        weft_state_key_write(&key, averaged, sizeof averaged);
        weft_params_find(to, name, &into);
        bool gathered = false;
        if (averages && t->hooks) status = t->hooks->gather_average(t, name, &into, &gathered);
        if (!gathered && ((averages && weft_params_find(t->params, averaged, &from)) ||
                          weft_params_find(t->params, name, &from)))
            memcpy(into.data, from.data, weft_tensor_bytes(from.dtype, from.shape));
    }
    return status;
}

/* Adds to `to` the model as weft_trainer_save_model saves it. */
static weft_status copy_whole(weft_trainer *t, weft_params *to)
{
    if (t->place.has_parts) return t->hooks->gather_averaged(t, to, false);
    const trainer_graph *s =
        weft__trainer_graph_for(t, GRAPH_EVALUATE, shape_at(&t->batches, 0), 0);
    if (s) weft_params_init(to, s->plan.graph, t->o.seed, &t->error);
    /* Copying averages takes all processes. */
    return weft__checkpoint_agree(t) == WEFT_OK ? weft__checkpoint_copy_model(t, to)
                                                : t->error.status;
}

/* Whether a tensor is saved. */
static bool is_own(void *context, const char *name)
{
    return !trainer_is_base(context, name);
}

weft_status weft_trainer_save_model(weft_trainer *trainer, const char *path, weft_error *error)
{
    static const char *const metas[] = {"model",      "model_options",  "step", "run", "recipe",
                                        "vocabulary", "trained_length", "lora", "base"};
    weft_trainer *t = trainer;
    const weft_params_filter own = {is_own, t};
    if (!weft__trainer_begin(t, error)) return WEFT_BAD_ARGUMENT;
    weft_params *copy = weft__trainer_model_store(t);
    weft_status status = copy ? write_meta(t) : t->error.status;
    for (size_t i = 0; status == WEFT_OK && i < sizeof metas / sizeof *metas; i++) {
        const char *text = weft_params_meta(t->params, metas[i]);
        if (text && weft_params_set_meta(copy, metas[i], text, NULL) != WEFT_OK)
            status = weft__trainer_no_memory(t);
    }
    status = weft__checkpoint_agree(t);
    if (status == WEFT_OK) status = copy_whole(t, copy);
    if (status == WEFT_OK && t->place.world.rank == 0)
        weft_params_save(copy, path, &own, &t->error);
    weft_params_free(copy);
    return weft__trainer_end(t, weft__checkpoint_agree(t), error);
}
