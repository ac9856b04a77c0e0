/* A run of `weft train` or `weft fit` in a report, from the files of its folder. */
#include "parts.h"

#include "base/file.h"
#include "base/platform.h"
#include "json/lines.h"
#include "json/tree.h"

#include <stdlib.h>

static bool join(char path[FILE_PATH_BYTES], const char *folder, const char *name)
{
    const int n = snprintf(path, FILE_PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < FILE_PATH_BYTES && weft__file_exists(path);
}

static weft_status add_recipe(json_maker *m, const char *folder, cJSON *run, weft_error *error)
{
    char path[FILE_PATH_BYTES];
    size_t bytes;
    json_failure why;
    if (!join(path, folder, "recipe.json")) return WEFT_OK;
    weft_error unread = WEFT_NO_ERROR;
    char *text = weft__file_read(path, &bytes, &unread);
    if (!text) return weft_error_copy(error, &unread);
    cJSON *recipe = weft__json_parse(text, bytes, &why);
    free(text);
    if (!recipe)
        return weft_error_set(error, why.no_memory ? WEFT_NO_MEMORY : WEFT_BAD_FILE, path,
                              why.no_memory ? "out of memory" : "is not JSON");
    weft__json_add(m, run, "recipe", recipe);
    return WEFT_OK;
}

/* The array that lines are added to. */
typedef struct line_list {
    json_maker *maker;
    cJSON *lines;
} line_list;

static bool take_line(void *context, cJSON *line)
{
    const line_list *to = context;
    return weft__json_add(to->maker, to->lines, NULL, line) != NULL;
}

/* Adds the lines of a file as an array; nothing if there is no such file. */
static weft_status add_lines(json_maker *m, const char *folder, const char *file, const char *name,
                             cJSON *run, weft_error *error)
{
    char path[FILE_PATH_BYTES];
    if (!join(path, folder, file)) return WEFT_OK;
    line_list to = {m, json_add_array(m, run, name)};
    return weft__json_read_lines(path, take_line, &to, error);
}

/* Moves the translations that are in lines of the log to the samples. */
static void move_samples(json_maker *m, cJSON *run)
{
    cJSON *line, *samples = cJSON_GetObjectItemCaseSensitive(run, "samples");
    cJSON_ArrayForEach(line, cJSON_GetObjectItemCaseSensitive(run, "log"))
    {
        cJSON *list = cJSON_DetachItemFromObjectCaseSensitive(line, "samples");
        const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
        for (cJSON *from; cJSON_IsNumber(step) && (from = cJSON_DetachItemFromArray(list, 0));) {
            cJSON *text = cJSON_DetachItemFromObjectCaseSensitive(from, "translation");
            if (!samples) samples = json_add_array(m, run, "samples");
            json_add_number(m, from, "step", step->valuedouble);
            if (text) weft__json_add(m, from, "text", text);
            weft__json_add(m, samples, NULL, from);
        }
        cJSON_Delete(list);
    }
}

static bool is_run(const char *folder)
{
    static const char *const files[] = {"metrics.jsonl", "recipe.json", "model.safetensors"};
    char path[FILE_PATH_BYTES];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (join(path, folder, files[i])) return true;
    return false;
}

static weft_status fill_run(json_maker *m, const char *folder, cJSON *run, weft_error *error)
{
    static const struct {
        const char *file, *name;
    } lists[] = {
        {"metrics.jsonl", "log"}, {"histograms.jsonl", "histograms"}, {"samples.jsonl", "samples"}};
    json_add_text(m, run, "folder", folder);
    /* A training locks its folder (tools/training/files.c). The lock of a process that was killed is
     * gone, so a run without a process is never running. */
    json_add_bool(m, run, "running", weft__os_folder_is_locked(folder));
    weft_status status = add_recipe(m, folder, run, error);
    for (size_t i = 0; status == WEFT_OK && i < sizeof lists / sizeof *lists; i++)
        status = add_lines(m, folder, lists[i].file, lists[i].name, run, error);
    if (status == WEFT_OK) move_samples(m, run);
    return status;
}

weft_status weft_report_add_run(weft_report *report, const char *folder, weft_error *error)
{
    cJSON *subject;
    weft_error_clear(error);
    weft_status status = weft__report_subject(report, &subject, error);
    if (status != WEFT_OK) return status;
    if (!folder) return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the folder is NULL");
    if (cJSON_HasObjectItem(subject, "run"))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, folder, "the subject has a run already");
    if (!is_run(folder))
        return weft_error_set(error, WEFT_NOT_FOUND, folder,
                              "is not the folder of a run: it has no metrics.jsonl, recipe.json or "
                              "model.safetensors");
    json_maker *m = &report->maker;
    cJSON *run = json_add_object(m, subject, "run");
    status = fill_run(m, folder, run, error);
    if (m->no_memory || status == WEFT_NO_MEMORY) {
        m->no_memory = true;
        return weft__report_no_memory(error);
    }
    if (status != WEFT_OK) cJSON_DeleteItemFromObjectCaseSensitive(subject, "run");
    return status;
}
