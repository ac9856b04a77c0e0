/* weft average: the mean of the models of several checkpoints. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char **paths, *out;
    size_t n;
    weft_save_format format;
} arguments;

/* By weft_save_format. */
static const char *const formats[] = {"f32", "bf16", "f16"};

static error_t choose_format(arguments *a, const char *text, struct argp_state *state)
{
    for (int i = 0; i < 3; i++) {
        a->format = (weft_save_format)i;
        if (!strcmp(text, formats[i])) return 0;
    }
    tool_usage_error(state, "--dtype %s: expected f32, bf16 or f16", text);
    return EINVAL;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'o':
        a->out = text;
        return 0;
    case 'd':
        return choose_format(a, text, state);
    case ARGP_KEY_ARG:
        if (!tool_is_rank_file(text)) a->paths[a->n++] = text;
        return 0;
    case ARGP_KEY_END:
        if (!a->n || !a->out) argp_error(state, "name the checkpoints and -o FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Fails if the files, which have the same tensors, lack tensors of the model that they name. */
static weft_status check_model(const weft_params *mean, const char *path, weft_error *error)
{
    weft_model_config config;
    if (!weft_model_find(weft_params_meta(mean, "model"))) return WEFT_OK;
    weft_status status = tool_checkpoint_model(mean, path, NULL, &config, error);
    return status == WEFT_OK ? tool_check_model(mean, &config, path, error) : status;
}

int cmd_average(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"output", 'o', "FILE", 0, "file to write", 0},
        {"dtype", 'd', "f32|bf16|f16", 0,
         "dtype of the file; bf16 and f16 halve its size: each f32 is rounded to the nearest, and "
         "all commands read it as f32 again (default: f32)",
         0},
        {0}};
    struct argp argp = {options,
                        parse,
                        "CHECKPOINT...",
                        "Writes the mean of the parameters of several checkpoints of one model, "
                        "such as the step-N files of a run. Skips the files of ranks, "
                        "*.rank-R-of-N.safetensors, which have no parameters.",
                        NULL,
                        NULL,
                        NULL};
    weft_error error = {0};
    arguments a = {.paths = calloc((size_t)argc + 1, sizeof *a.paths)};
    if (!a.paths) return tool_fail_text("average", "out of memory");
    tool_parse(&argp, argc, argv, &a);
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
