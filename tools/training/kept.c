/* The checkpoints step-N of a run. Checkpoints of other runs are left alone: a checkpoint belongs
 * to the run if its metadata "run" agree (weft_trainer_save). */
#include "training.h"

#include "base/file.h"
#include "json/tree.h"
#include "base/platform.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* The checkpoint to name in a message: the last step, else the first name; "" if there is none. */
typedef struct found {
    char name[256];
    uint64_t step;
    bool is_step;
} found;

static void find_checkpoint(void *context, const char *name)
{
    found *f = context;
    uint64_t step = 0;
    if (!tool_ends_with(name, ".safetensors") || tool_is_rank_file(name)) return;
    const bool kept = step_of(name, &step);
    if (kept ? f->is_step && step <= f->step
             : f->is_step || (f->name[0] && strcmp(name, f->name) >= 0))
        return;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->is_step = kept;
    f->step = step;
}

/* Whether the folder has a file of that name that is not empty. */
static bool holds(training *t, const char *name)
{
    char path[4096];
    os_facts facts;
    return training_path(t, path, sizeof path, name) && weft__os_facts(path, &facts) &&
           (facts.bytes > 0 || facts.kind != OS_FILE);
}

bool training_may_begin(training *t)
{
    found f = {.name = ""};
    if (!weft__os_list(t->r.run_out, find_checkpoint, &f)) {
        weft_error_set(&t->error, WEFT_IO, t->r.run_out, "cannot be read: %s", strerror(errno));
        return false;
    }
    if (f.name[0]) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->r.run_out,
                       "%s exists without model.safetensors: %s%s%sto begin another run, choose "
                       "another --out",
                       f.name, f.is_step ? "to continue from it, `cp " : "",
                       f.is_step ? f.name : "",
                       f.is_step ? " model.safetensors` there and --resume; " : "");
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

typedef struct kept_checkpoints {
    training *t;
    bool good;
} kept_checkpoints;

static void find_kept(void *context, const char *name)
{
    kept_checkpoints *k = context;
    uint64_t step;
    if (k->good && step_of(name, &step))
        k->good = take_kept(k->t, step, weft_trainer_progress_of(k->t->trainer).updates);
}

static bool find_all(training *t)
{
    if (!t->resume) return true;
    kept_checkpoints k = {t, best_is_ours(t)};
    weft__os_list(t->r.run_out, find_kept, &k);
    return k.good;
}

/* Removes a file of a rank whose step-N.safetensors is missing: a process was killed while it saved
 * or removed that checkpoint. model.safetensors may be a copy of one and name its files. */
static void remove_orphan(void *context, const char *name)
{
    training *t = context;
    const char *named = weft_params_meta(t->params, "shards");
    char path[4096];
    uint64_t step;
    if (!tool_is_rank_file(name) || !read_step(name, &step) || (named && strstr(named, name)) ||
        !step_path(t, path, sizeof path, step) || weft__file_exists(path))
        return;
    if (training_path(t, path, sizeof path, name) && is_ours(t, path)) weft__os_remove(path);
}

bool training_find_kept(training *t)
{
    /* All processes read the folder before one of them changes it. */
    if (!training_agree(t, find_all(t))) return false;
    if (t->resume && tool_is_first()) weft__os_list(t->r.run_out, remove_orphan, t);
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
    if (weft__file_exists(path)) return refuse(t, path);
    /* A second name by a hard link, or a copy where the file system has no links, or where the
     * checkpoint has files of ranks, which the next one removes. */
    const char *shards = weft_params_meta(t->params, "shards");
    if ((tool_world() || (shards && *shards) || !weft__os_link(t->model_path, path)) &&
        weft_trainer_save(t->trainer, path, &t->error) != WEFT_OK)
        return false;
    if (!add_kept(t, step)) return false;
    while (t->n_kept > (size_t)t->r.run_keep) remove_kept(t, 0);
    return true;
}
