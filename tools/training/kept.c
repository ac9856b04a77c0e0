/* The checkpoints step-N of a run. Checkpoints of other runs are left alone: a checkpoint belongs
 * to the run if its metadata "run" agree (weft_trainer_save). */
#include "training.h"

#include "base/file.h"
#include "json/tree.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The maximum length of a header, as in weft_params_load. */
#define MAX_HEADER ((uint64_t)100 << 20)

static bool no_memory(training *t)
{
    return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
}

/* Reads the step of a name that begins with "step-N"; false for any other name. */
static bool read_step(const char *name, uint64_t *step)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0) return false;
    *step = strtoull(name + 5, &end, 10);
    return end > name + 5;
}

/* Reads the step of "step-N.safetensors"; false for any other name. */
static bool step_of(const char *name, uint64_t *step)
{
    char again[64];
    if (!read_step(name, step)) return false;
    snprintf(again, sizeof again, "step-%" PRIu64 ".safetensors", *step);
    return !strcmp(name, again);
}

static bool step_path(training *t, char *path, size_t size, uint64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "step-%" PRIu64 ".safetensors", step);
    return training_path(t, path, size, name);
}

/* ---- Before a run begins ---- */

/* Finds the checkpoint to name in a message: the last step, else the first name; "" if there is
 * none. */
static bool find_checkpoint(training *t, char *name, size_t size, bool *is_step)
{
    DIR *folder = opendir(t->r.run_out);
    uint64_t newest = 0, step = 0;
    *is_step = false;
    name[0] = 0;
    if (!folder) {
        weft_error_set(&t->error, WEFT_IO, t->r.run_out, "cannot be read: %s", strerror(errno));
        return false;
    }
    for (const struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        if (!tool_ends_with(e->d_name, ".safetensors") || tool_is_rank_file(e->d_name)) continue;
        bool kept = step_of(e->d_name, &step);
        bool better = kept ? !*is_step || step > newest
                           : !*is_step && (!name[0] || strcmp(e->d_name, name) < 0);
        if (!better) continue;
        snprintf(name, size, "%s", e->d_name);
        *is_step = kept;
        newest = step;
    }
    closedir(folder);
    return true;
}

/* Whether the folder has a file of that name that is not empty. */
static bool holds(training *t, const char *name)
{
    char path[4096];
    struct stat info;
    return training_path(t, path, sizeof path, name) && stat(path, &info) == 0 && info.st_size > 0;
}

bool training_may_begin(training *t)
{
    char name[256];
    bool is_step;
    if (!find_checkpoint(t, name, sizeof name, &is_step)) return false;
    if (name[0]) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->r.run_out,
                       "%s exists without model.safetensors: %s%s%sto begin another run, choose "
                       "another --out",
                       name, is_step ? "to continue from it, `cp " : "", is_step ? name : "",
                       is_step ? " model.safetensors` there and --resume; " : "");
        return false;
    }
    if (holds(t, "metrics.jsonl"))
        return training_fail(
            t, WEFT_BAD_ARGUMENT, t->r.run_out,
            "metrics.jsonl belongs to a run whose model.safetensors is gone: choose "
            "another --out");
    /* A run that ended before its first checkpoint left its recipe, and perhaps a vocabulary. The
     * new run makes the same one, or put_vocabulary refuses. */
    if (!t->resume && holds(t, "recipe.json"))
        return training_fail(
            t, WEFT_BAD_ARGUMENT, t->r.run_out,
            "recipe.json exists already: begin its run again with --resume, or choose "
            "another --out");
    return true;
}

/* ---- Checkpoints of the run ---- */

/* Reads the metadata of a safetensors file, not its tensors; NULL if it is not one. */
static cJSON *read_metadata(const char *path)
{
    FILE *file = weft__file_open_stdio(path);
    unsigned char prefix[8];
    uint64_t length = 0;
    bool good = file && fread(prefix, 1, 8, file) == 8;
    for (int i = 0; good && i < 8; i++) length |= (uint64_t)prefix[i] << (8 * i);
    char *text = good && length <= MAX_HEADER ? malloc(length + 1) : NULL;
    good = text && fread(text, 1, length, file) == length;
    if (text) text[good ? length : 0] = 0;
    cJSON *json = good ? weft__json_parse(text, length, NULL) : NULL;
    cJSON *metadata = cJSON_DetachItemFromObjectCaseSensitive(json, "__metadata__");
    cJSON_Delete(json);
    free(text);
    if (file) fclose(file);
    return metadata;
}

/* Whether a checkpoint and the resumed one have the same value of the metadata `key`, or neither
 * has one. */
static bool agrees(const training *t, const cJSON *metadata, const char *key)
{
    const char *ours = weft_params_meta(t->params, key);
    const char *its = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, key));
    return ours && its ? !strcmp(ours, its) : !ours && !its;
}

/* Checkpoints of older versions do not name their run; then model and options are compared. */
static bool is_ours(const training *t, const char *path)
{
    cJSON *metadata = read_metadata(path);
    bool ours = metadata && agrees(t, metadata, "run") && agrees(t, metadata, "model") &&
                (weft_params_meta(t->params, "run") || agrees(t, metadata, "model_options"));
    cJSON_Delete(metadata);
    return ours;
}

static bool add_kept(training *t, uint64_t step)
{
    uint64_t *grown = realloc(t->kept, (t->n_kept + 1) * sizeof *grown);
    if (!grown) return no_memory(t);
    t->kept = grown;
    size_t at = t->n_kept++;
    for (; at && grown[at - 1] > step; at--) grown[at] = grown[at - 1];
    grown[at] = step;
    return true;
}

static bool is_kept(const training *t, uint64_t step)
{
    for (size_t i = 0; i < t->n_kept; i++)
        if (t->kept[i] == step) return true;
    return false;
}

static bool refuse(training *t, const char *path)
{
    return training_fail(
        t, WEFT_BAD_ARGUMENT, path,
        "and model.safetensors are of different runs: move it away, or it would be "
        "overwritten");
}

static bool take_kept(training *t, uint64_t step, uint64_t now)
{
    char path[4096];
    if (!step_path(t, path, sizeof path, step)) return false;
    if (is_ours(t, path)) return add_kept(t, step);
    /* The run will not overwrite one of an earlier step. */
    return step <= now || refuse(t, path);
}

static bool best_is_ours(training *t)
{
    char path[4096];
    if (!t->validates || !holds(t, "best.safetensors")) return true;
    if (!training_path(t, path, sizeof path, "best.safetensors")) return false;
    cJSON *metadata = read_metadata(path);
    bool ours = !weft_params_meta(t->params, "run") ||
                !cJSON_GetObjectItemCaseSensitive(metadata, "run") || agrees(t, metadata, "run");
    cJSON_Delete(metadata);
    return ours || refuse(t, path);
}

static bool find_all(training *t)
{
    uint64_t step, now = weft_trainer_progress_of(t->trainer).updates;
    if (!t->resume) return true;
    DIR *folder = opendir(t->r.run_out);
    bool good = best_is_ours(t);
    for (const struct dirent *e = folder ? readdir(folder) : NULL; e && good; e = readdir(folder))
        if (step_of(e->d_name, &step)) good = take_kept(t, step, now);
    if (folder) closedir(folder);
    return good;
}

/* Removes the run's files of ranks whose step-N.safetensors is missing: a process was killed while
 * it saved or removed that checkpoint. model.safetensors may be a copy of one and name its files.
 */
static void remove_orphans(training *t)
{
    const char *named = weft_params_meta(t->params, "shards");
    DIR *folder = opendir(t->r.run_out);
    for (const struct dirent *e; folder && (e = readdir(folder));) {
        char path[4096];
        uint64_t step;
        if (!tool_is_rank_file(e->d_name) || !read_step(e->d_name, &step) ||
            (named && strstr(named, e->d_name)) || !step_path(t, path, sizeof path, step) ||
            access(path, F_OK) == 0)
            continue;
        if (training_path(t, path, sizeof path, e->d_name) && is_ours(t, path)) unlink(path);
    }
    if (folder) closedir(folder);
}

bool training_find_kept(training *t)
{
    /* All processes read the folder before one of them changes it. */
    if (!training_agree(t, find_all(t))) return false;
    if (t->resume && tool_is_first()) remove_orphans(t);
    return true;
}

/* Removes entry `at` of the list, and its file. */
static void remove_kept(training *t, size_t at)
{
    char path[4096];
    if (tool_is_first() && step_path(t, path, sizeof path, t->kept[at]))
        weft_checkpoint_remove(path);
    memmove(t->kept + at, t->kept + at + 1, (t->n_kept - at - 1) * sizeof *t->kept);
    t->n_kept--;
}

void training_go_back(training *t, uint64_t step)
{
    while (t->n_kept && t->kept[t->n_kept - 1] > step) remove_kept(t, t->n_kept - 1);
}

bool training_keep(training *t, uint64_t step)
{
    char path[4096];
    if (is_kept(t, step)) return true;
    if (!step_path(t, path, sizeof path, step)) return false;
    if (access(path, F_OK) == 0) return refuse(t, path);
    /* A second name by a hard link, or a copy where the file system has no links, or where the
     * checkpoint has files of ranks, which the next one removes. */
    const char *shards = weft_params_meta(t->params, "shards");
    if ((tool_world() || (shards && *shards) || link(t->model_path, path) != 0) &&
        weft_trainer_save(t->trainer, path, &t->error) != WEFT_OK)
        return false;
    if (!add_kept(t, step)) return false;
    while (t->n_kept > (size_t)t->r.run_keep) remove_kept(t, 0);
    return true;
}
