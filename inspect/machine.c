/* See machine.h. */
#include "machine.h"

#include "base/platform.h"
#include "json/add.h"
#include "run/team.h"

#include <weft/measure.h>

#include <stdio.h>
#include <string.h>

/* Reads the beginning of a file, without allocating memory; "" if it cannot be read. */
static const char *read_beginning(const char *path, char *text, size_t capacity)
{
    const int descriptor = weft__os_open(path);
    const ptrdiff_t n = descriptor < 0 ? 0 : weft__os_read(descriptor, text, capacity - 1, 0);
    if (descriptor >= 0) weft__os_close(descriptor);
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
static void add_caches(json_maker *m, cJSON *json)
{
    cJSON *caches = json_add_array(m, json, "caches");
    char level[16], type[32], size[32], text[96];
    for (int i = 0; read_cache(i, "level", level, sizeof level); i++) {
        if (!read_cache(i, "type", type, sizeof type) || !read_cache(i, "size", size, sizeof size))
            continue;
        snprintf(text, sizeof text, "L%s %s %s", level, type, size);
        json_add_text(m, caches, NULL, text);
    }
}

static weft_status add_chosen(json_maker *m, cJSON *json, weft_error *error)
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
        json_add_text(m, json, types[i].name, info.name);
    }
    return WEFT_OK;
}

weft_status weft__add_machine(cJSON *json, weft_error *error)
{
    char text[256];
    json_maker m = {false};
    json_add_text(&m, json, "version", weft_version());
    json_add_text(&m, json, "processor", processor(text, sizeof text));
    json_add_number(&m, json, "processors", weft__os_processors());
    json_add_number(&m, json, "threads", weft_default_threads());
    if (!weft__team_has_openmp()) json_add_text(&m, json, "openmp", "weft was built without it");
    add_caches(&m, json);
    weft_error why = WEFT_NO_ERROR;
    const char *isa = weft_instruction_set(&why);
    if (!isa) return weft_error_copy(error, &why);
    json_add_text(&m, json, "isa", isa);
    const weft_status status = add_chosen(&m, json, error);
    if (status != WEFT_OK || !m.no_memory) return status;
    return weft_error_set(error, WEFT_NO_MEMORY, "machine", "out of memory");
}
