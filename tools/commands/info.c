/* weft info: what weft uses on this machine. */
#include "tool.h"

#include "machine.h"

#include <stdlib.h>
#include <string.h>

static void add_libraries(cJSON *json)
{
    cJSON *list = cJSON_AddArrayToObject(json, "gemm_backends");
    for (int b = 0; b < WEFT_GEMM_BACKENDS; b++) {
        weft_gemm_info info;
        weft_error error = {0};
        cJSON *item = cJSON_CreateObject();
        bool good = weft_gemm_info_of((weft_gemm_backend)b, &info, &error) == WEFT_OK;
        cJSON_AddStringToObject(item, "name", info.name);
        cJSON_AddBoolToObject(item, "available", good);
        if (!good) cJSON_AddStringToObject(item, "error", error.message);
        if (info.path[0]) cJSON_AddStringToObject(item, "path", info.path);
        if (info.version[0]) cJSON_AddStringToObject(item, "version", info.version);
        if (info.core[0]) cJSON_AddStringToObject(item, "core", info.core);
        if (info.core[0]) cJSON_AddBoolToObject(item, "core_chosen", info.core_chosen);
        cJSON_AddItemToArray(list, item);
    }
}

static void print_backend(const cJSON *item)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(item, "name"));
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItem(item, "error"));
    const char *path = cJSON_GetStringValue(cJSON_GetObjectItem(item, "path"));
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItem(item, "version"));
    const char *core = cJSON_GetStringValue(cJSON_GetObjectItem(item, "core"));
    const char *set = getenv("OPENBLAS_CORETYPE");
    tool_print_line(stdout, "  %-10s %s", name, why ? why : path ? path : "weft's own kernels");
    if (version) tool_print_line(stdout, "  %-10s %s", "", version);
    if (!core) return;
    const char *by = cJSON_IsTrue(cJSON_GetObjectItem(item, "core_chosen"))
                         ? "chosen by weft, as OPENBLAS_CORETYPE is not set"
                     : set ? "OPENBLAS_CORETYPE is set"
                           : "its own choice";
    printf("  %-10s kernels for %s (%s)\n", "", core, by);
}

/* Whether results are those of docs/arithmetic.md, and at what cost. */
static void print_bits(const cJSON *json)
{
    const char *isa = cJSON_GetStringValue(cJSON_GetObjectItem(json, "isa"));
    const char *gemm = cJSON_GetStringValue(cJSON_GetObjectItem(json, "gemm_f32"));
    const bool own = gemm && !strcmp(gemm, "weft");
    printf("%-12s %s\n", "bits",
           own ? "the same on every processor (docs/arithmetic.md)"
               : "those of a library's matrix products, which depend on the processor");
#ifdef __x86_64__
    if (isa && !strcmp(isa, "base"))
        printf("%-12s fused multiply-adds are emulated: many times slower than v3\n", "speed");
#endif
}

static int print_text(const cJSON *json)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        if (cJSON_IsString(item))
            tool_print_line(stdout, "%-12s %s", item->string, cJSON_GetStringValue(item));
        else if (cJSON_IsNumber(item))
            printf("%-12s %g\n", item->string, cJSON_GetNumberValue(item));
    }
    print_bits(json);
    printf("%-12s", "caches");
    const cJSON *caches = cJSON_GetObjectItem(json, "caches");
    cJSON_ArrayForEach(item, caches)
        printf(" %s%s", cJSON_GetStringValue(item), item->next ? "," : "");
    printf("\n\nBackends of matrix products (WEFT_GEMM):\n");
    const cJSON *backends = cJSON_GetObjectItem(json, "gemm_backends");
    cJSON_ArrayForEach(item, backends) print_backend(item);
    return EXIT_GOOD;
}

int cmd_info(int argc, char **argv)
{
    static const tool_option options[] = {
        {"json", NULL, .kind = TOOL_FLAG, .doc = "print JSON", .letter = 'j'}, {0}};
    static const tool_command command = {
        .options = options,
        .doc = "Prints what weft uses on this machine: the instruction set of its kernels "
               "(WEFT_ISA limits it), the backend of matrix products (WEFT_GEMM), threads "
               "(OMP_NUM_THREADS), caches, and the libraries that could be loaded."};
    bool json_wanted = false;
    tool_parse(&command, argc, argv, &json_wanted);
    weft_error error = {0};
    cJSON *json = cJSON_CreateObject();
    if (weft__add_machine(json, &error) != WEFT_OK) {
        cJSON_Delete(json);
        return tool_fail(&error);
    }
    add_libraries(json);
    if (json_wanted) return tool_print_json(json);
    int status = print_text(json);
    cJSON_Delete(json);
    return status;
}
