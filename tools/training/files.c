/* The folder of a run: recipe.json, metrics.jsonl, and the checkpoints model and best. */
#include "training.h"

#include "base/file.h"
#include "base/platform.h"
#include "json/tree.h"
#include "base/text.h"
#include "quantize/quantize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool cannot(training *t, const char *path, const char *what, int why)
{
    weft_error_set(&t->error, WEFT_IO, path, "cannot be %s: %s", what, strerror(why));
    return false;
}

bool training_path(training *t, char *path, size_t size, const char *name)
{
    int n = snprintf(path, size, "%s/%s", t->r.run_out, name);
    if (n > 0 && (size_t)n < size) return true;
    return training_fail(t, WEFT_TOO_LARGE, t->r.run_out, "the path is too long");
}

/* Makes a folder and its parents. */
static bool make_folders(training *t, const char *path)
{
    char part[4096];
    os_facts facts;
    for (const char *at = path; *at;) {
        while (weft__os_is_separator(*at)) at++;
        while (*at && !weft__os_is_separator(*at)) at++;
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        /* Some cannot be made, but exist: a drive, or the root of a network. */
        if (!weft__os_make_folder(part) && errno != EEXIST) {
            const int why = errno;
            if (!weft__file_exists(part)) return cannot(t, path, "made", why);
        }
    }
    if (weft__os_facts(path, &facts) && facts.kind != OS_FOLDER)
        return cannot(t, path, "made", ENOTDIR);
    return true;
}

bool training_make_parents(training *t, const char *path)
{
    char folder[4096];
    const int length = (int)(weft__os_name(path) - path);
    snprintf(folder, sizeof folder, "%.*s", length ? length - 1 : 0, path);
    return !folder[0] || make_folders(t, folder);
}

/* Removes half-written checkpoints step-N and their files of ranks. */
static void remove_step_leftover(void *context, const char *entry)
{
    char name[256];
    if (strncmp(entry, "step-", 5) != 0 || !tool_ends_with(entry, ".tmp")) return;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(entry) - 4), entry);
    char *digits = strrchr(name, '.');
    if (digits) *digits = 0;
    weft__file_remove_leftovers(context, name);
}

/* Removes the half-written files of a killed run. */
static void remove_leftovers(char *folder)
{
    for (size_t i = 0; tool_run_files[i]; i++)
        weft__file_remove_leftovers(folder, tool_run_files[i]);
    weft__os_list(folder, remove_step_leftover, folder);
}

/* Locks the folder against other processes, where the file system supports that. `weft report` holds
 * the lock for a moment, to see whether there is a training, so it is tried a few times. */
static bool lock_folder(training *t)
{
    t->lock = weft__os_lock_folder(t->r.run_out);
    for (int tries = 10; t->lock < 0 && errno == EWOULDBLOCK && tries; tries--) {
        weft__os_pause(10000000);
        t->lock = weft__os_lock_folder(t->r.run_out);
    }
    if (t->lock >= 0) remove_leftovers(t->r.run_out);
    if (t->lock >= 0 || errno != EWOULDBLOCK) return true;
    return training_fail(t, WEFT_IO, t->r.run_out, "another weft train is running in this folder");
}

/* Checkpoints of versions without hashes are resumed without a comparison. */
static void warn_without_hashes(const training *t)
{
    if (!weft_params_meta(t->params, "train.data") ||
        (!t->r.fits && !weft_params_meta(t->params, "vocabulary")))
        fprintf(stderr,
                "weft: %s: texts and vocabulary are not compared: the checkpoint, of an older "
                "version, has no hashes of them\n",
                t->model_path);
}

/* Makes the folder, and decides whether the run is resumed. */
static bool open_folder(training *t)
{
    if (!make_folders(t, t->r.run_out) || !lock_folder(t)) return false;
    if (!weft__file_exists(t->model_path)) {
        if (!training_may_begin(t)) return false;
        if (t->resume)
            fprintf(stderr, "weft: %s: has no checkpoint yet, the run begins\n", t->r.run_out);
        t->resume = false;
        return true;
    }
    return t->resume ||
           training_fail(t, WEFT_BAD_ARGUMENT, t->model_path,
                         "exists already: continue it with --resume, or choose another --out");
}

bool training_prepare_folder(training *t)
{
    bool good = training_path(t, t->model_path, sizeof t->model_path, "model.safetensors");
    if (good && tool_is_first()) good = open_folder(t);
    if (!training_agree(t, good)) return false;
    if (!tool_is_first()) t->resume = t->resume && weft__file_exists(t->model_path);
    if (!t->resume) return true;
    /* On several processes the trainer reads the parts of the states that are its own. */
    if (weft_params_load_some(t->params, t->model_path, tool_world() ? &weft_model_states : NULL,
                              &t->error) != WEFT_OK)
        return false;
    static const char *const metas[] = {"step", "train.state"};
    if (weft__quantized_refuse(t->params, t->model_path, &t->error) != WEFT_OK) return false;
    for (size_t i = 0; i < 2; i++) {
        if (weft_params_meta(t->params, metas[i])) continue;
        weft_error_set(&t->error, WEFT_BAD_FILE, t->model_path,
                       "has no \"%s\", the progress of its training", metas[i]);
        return false;
    }
    warn_without_hashes(t);
    return true;
}

bool training_write_recipe(training *t)
{
    char path[4096];
    cJSON *json = recipe_json(&t->r, true), *kept = recipe_json(&t->r, false);
    char *text = json ? weft__json_print(json, true) : NULL,
         *meta = kept ? weft__json_print(kept, false) : NULL;
    bool good = text && meta && weft_params_set_meta(t->params, "recipe", meta, NULL) == WEFT_OK;
    if (!good) training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    good = good && training_path(t, path, sizeof path, "recipe.json") &&
           (!tool_is_first() || tool_replace_file(path, text, strlen(text), &t->error));
    cJSON_free(text);
    cJSON_free(meta);
    cJSON_Delete(json);
    cJSON_Delete(kept);
    return good;
}

/* ---- Metrics ---- */

/* Moves the lines of steps up to `step` to the front and returns their bytes; *seconds becomes the
 * last one's. A line that a crash cut off is not JSON; it is also removed. */
static size_t retain_lines(char *text, size_t length, uint64_t step, double *seconds)
{
    size_t kept = 0;
    for (char *line = text, *end; (end = memchr(line, '\n', length - (size_t)(line - text)));
         line = end + 1) {
        size_t bytes = (size_t)(end - line);
        cJSON *json = weft__json_parse(line, bytes, NULL);
        const cJSON *at = cJSON_GetObjectItemCaseSensitive(json, "step");
        const cJSON *time = cJSON_GetObjectItemCaseSensitive(json, "seconds");
        bool good = cJSON_IsNumber(at) && at->valuedouble <= (double)step;
        if (good && cJSON_IsNumber(time)) *seconds = time->valuedouble;
        cJSON_Delete(json);
        if (!good) continue;
        memmove(text + kept, line, bytes + 1);
        kept += bytes + 1;
    }
    return kept;
}

/* Opens a file of lines to append to; NULL on failure. */
static FILE *open_lines(training *t, const char *name, uint64_t step, double *seconds)
{
    char path[4096];
    size_t length = 0;
    if (!training_path(t, path, sizeof path, name)) return NULL;
    bool there = t->resume && weft__file_exists(path);
    char *text = there ? weft__file_read(path, &length, &t->error) : NULL;
    if (there && !text) return NULL;
    size_t kept = text ? retain_lines(text, length, step, seconds) : 0;
    bool good = tool_replace_file(path, text ? text : "", kept, &t->error);
    free(text);
    if (!good) return NULL;
    const int descriptor = weft__os_open_to_append(path);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "ab");
    if (!file && descriptor >= 0) weft__os_close(descriptor);
    if (!file) cannot(t, path, "opened", errno);
    return file;
}

bool training_open_metrics(training *t, uint64_t step)
{
    double unused;
    if (!tool_is_first()) return true;
    t->metrics = open_lines(t, "metrics.jsonl", step, &t->spent);
    if (t->metrics && t->r.run_histograms)
        t->histograms = open_lines(t, "histograms.jsonl", step, &unused);
    return t->metrics && (t->histograms || !t->r.run_histograms);
}

bool training_write_metrics(training *t, cJSON *line)
{
    if (line && !tool_is_first()) {
        cJSON_Delete(line);
        return true;
    }
    return tool_write_json_line(line, t->metrics, "metrics.jsonl", &t->error);
}

/* ---- Checkpoints ---- */

bool training_save(training *t)
{
    uint64_t step = weft_trainer_progress_of(t->trainer).updates;
    bool keeps = t->r.run_keep > 0 && step > 0;
    if (t->saved) { /* resumed without a step since: the run may have been killed before it was
                       retained */
        if (keeps) training_go_back(t, step);
        return !keeps || training_keep(t, step);
    }
    /* After a crash of the machine, the checkpoint must not be newer than the metrics. */
    if (t->metrics && !weft__os_sync(fileno(t->metrics)) && errno != EINVAL && errno != EROFS)
        cannot(t, "metrics.jsonl", "written", errno);
    if (!training_agree(t, t->error.status == WEFT_OK)) return false;
    if (training_is_timed(&t->r)) {
        char text[64];
        weft__text_format(text, sizeof text, "%.3f", t->spent);
        weft_params_set_meta(t->params, "train.seconds", text, NULL);
    }
    if (weft_trainer_save(t->trainer, t->model_path, &t->error) != WEFT_OK) return false;
    t->saved = true;
    return !keeps || training_keep(t, step);
}

bool training_save_best(training *t)
{
    char path[4096];
    if (!training_path(t, path, sizeof path, "best.safetensors")) return false;
    return weft_trainer_save_model(t->trainer, path, &t->error) == WEFT_OK;
}
