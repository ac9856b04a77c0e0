/* A run of `weft train` or `weft fit` in a report, from the files of its folder. */
#include "report.h"

#include "json/tree.h"
#include "text/json_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a training holds the lock of the folder (tools/training/files.c). The lock of a process
 * that was killed is gone, so a run without a process is never running. */
static bool is_running(const char *folder)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(descriptor);
    return locked;
}

static bool join(char path[4096], const char *folder, const char *name)
{
    const int n = snprintf(path, 4096, "%s/%s", folder, name);
    return n > 0 && n < 4096 && access(path, F_OK) == 0;
}

static weft_status add_recipe(const char *folder, cJSON *run, weft_error *error)
{
    char path[4096];
    size_t bytes;
    json_failure why;
    if (!join(path, folder, "recipe.json")) return WEFT_OK;
    char *text = tool_read_file(path, &bytes, error);
    if (!text) return error->status;
    cJSON *recipe = weft__json_parse(text, bytes, &why);
    free(text);
    if (!recipe)
        return weft_error_set(error, why.no_memory ? WEFT_NO_MEMORY : WEFT_BAD_FILE, path,
                              why.no_memory ? "out of memory" : "is not JSON");
    cJSON_AddItemToObject(run, "recipe", recipe);
    return WEFT_OK;
}

static bool take_line(void *context, cJSON *line)
{
    return cJSON_AddItemToArray(context, line);
}

/* Adds the lines of a file as an array; nothing if there is no such file. */
static weft_status add_lines(const char *folder, const char *file, const char *name, cJSON *run,
                             weft_error *error)
{
    char path[4096];
    if (!join(path, folder, file)) return WEFT_OK;
    cJSON *lines = cJSON_AddArrayToObject(run, name);
    if (!lines) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    return json_lines_read(path, take_line, lines, error) ? WEFT_OK : error->status;
}

/* Moves the translations that are in lines of the log to the samples. */
static void move_samples(cJSON *run)
{
    cJSON *line, *samples = cJSON_GetObjectItemCaseSensitive(run, "samples");
    cJSON_ArrayForEach(line, cJSON_GetObjectItemCaseSensitive(run, "log"))
    {
        cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(line, "samples");
        const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
        for (cJSON *from; cJSON_IsNumber(step) && (from = cJSON_DetachItemFromArray(list, 0));) {
            cJSON *text = cJSON_DetachItemFromObjectCaseSensitive(from, "translation");
            if (!samples) samples = cJSON_AddArrayToObject(run, "samples");
            cJSON_AddNumberToObject(from, "step", step->valuedouble);
            cJSON_AddItemToObject(from, "text", text);
            cJSON_AddItemToArray(samples, from);
        }
        cJSON_Delete(list);
    }
}

weft_status report_add_run(const char *folder, cJSON *subject, weft_error *error)
{
    static const struct {
        const char *file, *name;
    } lists[] = {
        {"metrics.jsonl", "log"}, {"histograms.jsonl", "histograms"}, {"samples.jsonl", "samples"}};
    char path[4096];
    if (!join(path, folder, "metrics.jsonl") && !join(path, folder, "recipe.json") &&
        !join(path, folder, "model.safetensors"))
        return weft_error_set(error, WEFT_NOT_FOUND, folder,
                              "is not the folder of a run: it has no metrics.jsonl, recipe.json or "
                              "model.safetensors");
    cJSON *run = cJSON_AddObjectToObject(subject, "run");
    cJSON_AddStringToObject(run, "folder", folder);
    cJSON_AddBoolToObject(run, "running", is_running(folder));
    weft_status status = add_recipe(folder, run, error);
    for (size_t i = 0; status == WEFT_OK && i < sizeof lists / sizeof *lists; i++)
        status = add_lines(folder, lists[i].file, lists[i].name, run, error);
    if (status == WEFT_OK) move_samples(run);
    return status;
}
