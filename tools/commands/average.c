/* weft average: the mean of the models of several checkpoints. */
#include "tool.h"

#include <weft/saved.h>

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char **paths, *out;
    size_t n;
    weft_save_format format;
} arguments;

static void take_checkpoint(void *into, char *path, const tool_parser *parser)
{
    arguments *a = into;
    (void)parser;
    if (!tool_is_rank_file(path)) a->paths[a->n++] = path;
}

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (!a->n) tool_usage_error(parser, "CHECKPOINT is missing");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"output", "FILE", FIELD(out), "file to write", .letter = 'o', .required = true},
    {"dtype", "f32|bf16|f16", FIELD(format), /* in the order of weft_save_format */
     "dtype of the file; bf16 and f16 halve its size: each f32 is rounded to the nearest, and all "
     "commands read it as f32 again",
     .letter = 'd'},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "CHECKPOINT...",
    .doc = "Writes the mean of the parameters of several checkpoints of one model, such as the "
           "step-N files of a run. Skips the files of ranks, *.rank-R-of-N.safetensors, which have "
           "no parameters.",
    .argument = take_checkpoint,
    .check = check};

/* Fails if the files, which have the same tensors, lack tensors of the model that they name. */
static weft_status check_model(const weft_params *mean, const char *path, weft_error *error)
{
    weft_model_config config;
    if (!weft_model_find(weft_params_meta(mean, "model"))) return WEFT_OK;
    return weft_saved_config(mean, path, &config, error);
}

int cmd_average(int argc, char **argv)
{
    weft_error error = {0};
    arguments a = {.paths = calloc((size_t)argc + 1, sizeof *a.paths)};
    if (!a.paths) return tool_fail_text("average", "out of memory");
    tool_parse(&command, argc, argv, &a);
    weft_params *mean = weft_params_new();
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < a.n; i++)
        status = tool_check_output(a.out, a.paths[i], &error);
    if (status == WEFT_OK) status = weft_params_average(mean, a.paths, a.n, &error);
    if (status == WEFT_OK) status = check_model(mean, a.paths[a.n - 1], &error);
    if (status == WEFT_OK) status = weft_params_save_as(mean, a.out, NULL, a.format, &error);
    weft_params_free(mean);
    if (status == WEFT_OK)
        tool_print_line(stdout, "saved the mean of %zu checkpoints in %s", a.n, a.out);
    free(a.paths);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
