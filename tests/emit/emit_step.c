#include "emit_step.h"

#include <weft/emit.h>
#include <weft/weft.h>

#include <stdio.h>

static bool write_piece(void *context, bool header, const char *text, size_t n)
{
    FILE *const *files = context;
    return fwrite(text, 1, n, files[header]) == n;
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) perror(path);
    return file;
}

bool emit_step(weft_graph *g, const weft_value targets[2], weft_value rate, size_t budget,
               const char *folder)
{
    weft_error error = {0};
    FILE *files[2] = {open_in(folder, "net_step.c"), open_in(folder, "net_step.h")};
    weft_params *params = weft_params_new();
    const weft_plan_options limits = {.memory_budget = budget};
    weft_plan *plan = weft_plan_new(g, targets, 2, &limits, &error);
    const weft_emit_value loss = {targets[0], "loss"};
    const weft_emit_options options = {.name = "net_step",
                                       .outputs = &loss,
                                       .n_outputs = 1,
                                       .rate = rate,
                                       .params = params,
                                       .write = write_piece,
                                       .context = files};
    const bool good = files[0] && files[1] && plan &&
                      weft_params_init(params, g, 1, &error) == WEFT_OK &&
                      weft_emit(plan, &options, &error) == WEFT_OK;
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_plan_free(plan);
    weft_params_free(params);
    const bool closed[2] = {files[0] && !fclose(files[0]), files[1] && !fclose(files[1])};
    return good && closed[0] && closed[1];
}
