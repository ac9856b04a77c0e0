/* weft info: what weft uses on this machine. */
#include "tool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads the beginning of a file, without allocating memory; "" if it cannot be read. */
static const char *read_beginning(const char *path, char *text, size_t capacity)
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = descriptor < 0 ? 0 : read(descriptor, text, capacity - 1);
    if (descriptor >= 0) close(descriptor);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* The model name that Linux reports; "" if it reports none. */
static const char *processor(char *text, size_t capacity)
{
    char file[4096];
    const char *name = strstr(read_beginning("/proc/cpuinfo", file, sizeof file), "model name");
    const char *colon = name ? strstr(name, ": ") : NULL;
    snprintf(text, capacity, "%.*s", colon ? (int)strcspn(colon + 2, "\n") : 0,
             colon ? colon + 2 : "");
    return text;
}

static bool read_cache(int index, const char *what, char *text, size_t capacity)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    read_beginning(path, text, capacity);
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0';
}

/* The caches of the first processor: "L1 Data 32K, L2 Unified 1M, ...". */
static void add_caches(cJSON *json)
{
    cJSON *caches = cJSON_AddArrayToObject(json, "caches");
    char level[16], type[32], size[32], text[96];
    for (int i = 0; read_cache(i, "level", level, sizeof level); i++) {
        if (!read_cache(i, "type", type, sizeof type) || !read_cache(i, "size", size, sizeof size))
            continue;
        snprintf(text, sizeof text, "L%s %s %s", level, type, size);
        cJSON_AddItemToArray(caches, cJSON_CreateString(text));
    }
}

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

static weft_status add_chosen(cJSON *json, weft_error *error)
{
    static const struct {
        weft_dtype dtype;
        const char *name;
    } types[] = {{WEFT_F32, "gemm_f32"}, {WEFT_F64, "gemm_f64"}, {WEFT_BF16, "gemm_bf16"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        weft_gemm_backend backend;
        weft_gemm_info info;
        weft_status status = weft_gemm_chosen(types[i].dtype, &backend, error);
        if (status == WEFT_OK) status = weft_gemm_info_of(backend, &info, error);
        if (status != WEFT_OK) return status;
        cJSON_AddStringToObject(json, types[i].name, info.name);
    }
    return WEFT_OK;
}

weft_status tool_machine_json(cJSON *json, weft_error *error)
{
    char text[256];
    cJSON_AddStringToObject(json, "version", weft_version());
    cJSON_AddStringToObject(json, "processor", processor(text, sizeof text));
    cJSON_AddNumberToObject(json, "processors", (double)sysconf(_SC_NPROCESSORS_ONLN));
    cJSON_AddNumberToObject(json, "threads", weft_default_threads());
    add_caches(json);
    const char *isa = weft_instruction_set(error);
    if (!isa) return error->status;
    cJSON_AddStringToObject(json, "isa", isa);
    return add_chosen(json, error);
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
    if (tool_machine_json(json, &error) != WEFT_OK) {
        cJSON_Delete(json);
        return tool_fail(&error);
    }
    add_libraries(json);
    if (json_wanted) return tool_print_json(json);
    int status = print_text(json);
    cJSON_Delete(json);
    return status;
}
