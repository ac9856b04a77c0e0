/* Checks that a command does not overwrite the files that it reads. */
#include "tool.h"

#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *const tool_run_files[] = {"model.safetensors",  "best.safetensors",
                                      "vocab.model",        "vocab.source.model",
                                      "vocab.target.model", "recipe.json",
                                      "metrics.jsonl",      "histograms.jsonl",
                                      "model.onnx",         NULL};

bool tool_is_run_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; tool_run_files[i]; i++)
        if (!strcmp(name, tool_run_files[i])) return true;
    return strncmp(name, "step-", 5) == 0 || tool_is_rank_file(name);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether a file is one of those that weft has written into the folder of a run. */
static bool belongs_to(const struct stat *file, const char *folder)
{
    bool found = false;
    struct stat info;
    DIR *entries = opendir(folder);
    for (const struct dirent *e; entries && !found && (e = readdir(entries));)
        found = tool_is_run_file(e->d_name) && fstatat(dirfd(entries), e->d_name, &info, 0) == 0 &&
                same(file, &info);
    if (entries) closedir(entries);
    return found;
}

weft_status tool_check_output(const char *out, const char *input, weft_error *error)
{
    struct stat to, from;
    if (stat(out, &to) != 0 || stat(input, &from) != 0 || !S_ISREG(to.st_mode)) return WEFT_OK;
    if (S_ISDIR(from.st_mode) ? !belongs_to(&to, input) : !same(&to, &from)) return WEFT_OK;
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
    const char *slash = strrchr(args->path, '/'), *name;
    weft_status status = tool_check_output(out, args->path, error);
    if (status == WEFT_OK) status = tool_check_array_output(out, &args->constants, error);
    for (size_t i = 0; status == WEFT_OK && (name = weft_onnx_data_file(model, i)); i++) {
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - args->path) : 0, args->path,
                 name);
        status = tool_check_output(out, path, error);
    }
    return status;
}
