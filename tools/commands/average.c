/* weft average: the mean of the models of several checkpoints. */
#include "tool.h"

#include <stdlib.h>

typedef struct arguments {
    const char **paths, *out;
    size_t n;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'o':
        a->out = text;
        return 0;
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

int cmd_average(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"output", 'o', "FILE", 0, "where the mean is written", 0}, {0}};
    struct argp argp = {options,
                        parse,
                        "CHECKPOINT...",
                        "Writes the mean of the parameters of several checkpoints of one model, "
                        "such as the step-N files of a run. The files of ranks beside them, "
                        "*.rank-R-of-N.safetensors, have no parameters and are left out.",
                        NULL,
                        NULL,
                        NULL};
    weft_error error = {0};
    arguments a = {.paths = calloc((size_t)argc + 1, sizeof *a.paths)};
    if (!a.paths) return tool_fail_text("average", "out of memory");
    tool_parse(&argp, argc, argv, &a);
    weft_params *mean = weft_params_new();
    weft_status status = weft_params_average(mean, a.paths, a.n, &error);
    if (status == WEFT_OK) status = weft_params_save(mean, a.out, NULL, &error);
    weft_params_free(mean);
    if (status == WEFT_OK)
        tool_print_line(stdout, "saved the mean of %zu checkpoints in %s", a.n, a.out);
    free(a.paths);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
