/* Checks that a command does not overwrite the files that it reads. */
#include "tool.h"

#include "base/file.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

const char *const tool_run_files[] = {"model.safetensors",  "best.safetensors",
                                      "vocab.model",        "vocab.source.model",
                                      "vocab.target.model", "recipe.json",
                                      "metrics.jsonl",      "histograms.jsonl",
                                      "model.onnx",         NULL};

bool tool_is_run_file(const char *path)
{
    const char *name = weft__os_name(path);
    for (size_t i = 0; tool_run_files[i]; i++)
        if (!strcmp(name, tool_run_files[i])) return true;
    return strncmp(name, "step-", 5) == 0 || tool_is_rank_file(name);
}

typedef struct lookup {
    const char *file, *folder;
    bool found;
} lookup;

static void compare(void *context, const char *name)
{
    lookup *l = context;
    char path[FILE_PATH_BYTES];
    if (l->found || !tool_is_run_file(name)) return;
    if (snprintf(path, sizeof path, "%s/%s", l->folder, name) < FILE_PATH_BYTES)
        l->found = weft__os_is_same(l->file, path);
}

/* Whether a file is one of those that weft has written into the folder of a run. */
static bool belongs_to(const char *file, const char *folder)
{
    lookup l = {file, folder, false};
    weft__os_list(folder, compare, &l);
    return l.found;
}

weft_status tool_check_output(const char *out, const char *input, weft_error *error)
{
    os_facts to, from;
    if (!weft__os_facts(out, &to) || !weft__os_facts(input, &from) || to.kind != OS_FILE)
        return WEFT_OK;
    if (from.kind == OS_FOLDER ? !belongs_to(out, input) : !weft__os_is_same(out, input))
        return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, out,
                          "is a file that the command reads: choose another output");
}

weft_status tool_check_array_output(const char *out, const named_files *files, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < files->n && status == WEFT_OK; i++) {
        char archive[FILE_PATH_BYTES];
        const char *path = files->at[i].path;
        if (tool_array_archive(path, archive)) path = archive;
        status = tool_check_output(out, path, error);
    }
    return status;
}

weft_status tool_check_onnx_output(const char *out, const onnx_args *args, const weft_onnx *model,
                                   weft_error *error)
{
    char path[2 * FILE_PATH_BYTES];
    const int folder = (int)(weft__os_name(args->path) - args->path);
    const char *name;
    weft_status status = tool_check_output(out, args->path, error);
    if (status == WEFT_OK) status = tool_check_array_output(out, &args->constants, error);
    for (size_t i = 0; status == WEFT_OK && (name = weft_onnx_data_file(model, i)); i++) {
        snprintf(path, sizeof path, "%.*s%s", folder, args->path, name);
        status = tool_check_output(out, path, error);
    }
    return status;
}
