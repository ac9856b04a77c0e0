/* Saved adapters: the model that they were trained for, with them (weft/lora.h). */
#include "saved.h"

#include "base/file.h"
#include "base/hash.h"

#include <weft/lora.h>
#include <weft/train.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (1 << 16)

static weft_status no_memory(weft_error *error, const char *where)
{
    return weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
}

weft_status weft__file_hash(const char *path, char text[17], weft_error *error)
{
    uint64_t hash = HASH_START;
    char *chunk = malloc(CHUNK);
    if (!chunk) return no_memory(error, path);
    FILE *file = weft__file_open_stdio(path);
    if (!file) {
        free(chunk);
        return weft_error_set(error, weft__file_status(errno), path, "cannot be opened: %s",
                              weft__file_error(errno));
    }
    for (size_t n; (n = fread(chunk, 1, CHUNK, file)) > 0;) hash = hash_bytes(hash, chunk, n);
    const bool good = !ferror(file);
    if (!good) weft_error_set(error, WEFT_IO, path, "cannot be read: %s", strerror(errno));
    fclose(file);
    free(chunk);
    snprintf(text, 17, "%016" PRIx64, hash);
    return good ? WEFT_OK : WEFT_IO;
}

weft_status weft__base_text(const char *path, char text[BASE_TEXT], weft_error *error)
{
    char hash[BASE_HASH + 1];
    const weft_status status = weft__file_hash(path, hash, error);
    if (status == WEFT_OK) snprintf(text, BASE_TEXT, "%s %s", hash, path);
    return status;
}

/* Loads the model; `params` are the adapters. */
static weft_status load(weft_params *base, const weft_params *params, const char *where,
                        const char *path, weft_error *error)
{
    const char *text = weft_params_meta(params, BASE_META);
    char hash[BASE_HASH + 1];
    weft_error found = {.status = WEFT_OK};
    if (!weft__file_exists(path))
        return weft_error_set(error, WEFT_NOT_FOUND, where,
                              "has adapters for the model %s, which does not exist", path);
    if (weft__file_hash(path, hash, &found) != WEFT_OK) return weft_error_copy(error, &found);
    if (strncmp(hash, text, BASE_HASH) != 0)
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "has adapters for the model %s, which has changed since", path);
    return weft_params_load_some(base, path, &weft_model_states, error);
}

/* Adds the adapters. */
static weft_status apply(weft_params *base, const weft_params *params, const char *path,
                         weft_error *error)
{
    weft_model_config config;
    weft_status status = weft_saved_config(base, path, &config, error);
    if (status != WEFT_OK) return status;
    weft_graph *g = weft__saved_graph(&config, path, error);
    if (!g) return WEFT_NO_MEMORY;
    status = weft_params_add_adapters(base, params, g, error);
    weft_graph_free(g);
    return status;
}

/* trained_length becomes the longer of the two. A base without one, such as a converted model, stays
 * without: its own max_positions applies. */
static weft_status copy_length(weft_params *base, const weft_params *params, weft_error *error)
{
    const char *own = weft_params_meta(base, "trained_length");
    const char *now = weft_params_meta(params, "trained_length");
    if (!own || !now || strtoll(now, NULL, 10) <= strtoll(own, NULL, 10)) return WEFT_OK;
    return weft_params_set_meta(base, "trained_length", now, error);
}

weft_status weft__base_copy_meta(weft_params *to, const weft_params *from, weft_error *error)
{
    static const char *const keys[] = {"step", "run", "recipe", "vocabulary"};
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < sizeof keys / sizeof *keys; i++) {
        const char *text = weft_params_meta(from, keys[i]);
        if (text) status = weft_params_set_meta(to, keys[i], text, error);
    }
    return status == WEFT_OK ? copy_length(to, from, error) : status;
}

weft_status weft__base_open(weft_saved_model *m, weft_error *error)
{
    const char *text = weft_params_meta(m->params, BASE_META);
    if (!text) return WEFT_OK;
    if (strlen(text) < BASE_HASH + 2 || text[BASE_HASH] != ' ')
        return weft_error_set(error, WEFT_BAD_FILE, m->path, "\"" BASE_META "\" is damaged");
    m->base = strdup(text + BASE_HASH + 1);
    weft_params *base = weft_params_new();
    weft_status status = m->base && base ? load(base, m->params, m->path, m->base, error)
                                         : no_memory(error, m->path);
    if (status == WEFT_OK && weft_params_meta(base, BASE_META))
        status = weft_error_set(error, WEFT_BAD_FILE, m->path,
                                "has adapters for %s, which has adapters itself", m->base);
    if (status == WEFT_OK) status = apply(base, m->params, m->base, error);
    if (status == WEFT_OK) status = weft__base_copy_meta(base, m->params, error);
    if (status != WEFT_OK) {
        weft_params_free(base);
        return status;
    }
    weft_params_free(m->params);
    m->params = base;
    return WEFT_OK;
}
