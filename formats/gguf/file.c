/* Open GGUF files: mapping, and their tensors. */
#include "file.h"

#include "base/file.h"
#include "base/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Opening ---- */

/* Reads the file of which `from` has data, size and whether they are mapped. Takes the mapping. */
static weft_gguf *open_bytes(weft_gguf from, const char *path, weft_error *error)
{
    weft_error problem = WEFT_NO_ERROR;
    weft_gguf *f = malloc(sizeof *f);
    if (!f) {
        if (from.mapped) weft__os_unmap((void *)(uintptr_t)from.data, from.bytes);
        weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
        return NULL;
    }
    *f = from;
    f->path = weft__arena_text(&f->memory, path);
    weft_status status = f->path ? weft__gguf_parse(f, &problem)
                                 : weft_error_set(&problem, WEFT_NO_MEMORY, path, "no memory");
    if (status == WEFT_OK) return f;
    weft_error_copy(error, &problem);
    weft_gguf_close(f);
    return NULL;
}

weft_gguf *weft_gguf_open(const char *path, weft_error *error)
{
    os_facts facts;
    weft_gguf from = {.mapped = true};
    weft_error_clear(error);
    if (!path) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "gguf", "the path is NULL");
        return NULL;
    }
    const int descriptor = weft__file_open(path);
    if (descriptor < 0 || !weft__os_facts_of(descriptor, &facts)) {
        weft_error_set(error, weft__file_status(errno), path, "cannot be opened: %s",
                       weft__file_error(errno));
        if (descriptor >= 0) weft__os_close(descriptor);
        return NULL;
    }
    from.bytes = facts.bytes <= SIZE_MAX / 2 ? (size_t)facts.bytes : 0;
    if (from.bytes) from.data = weft__os_map(descriptor, from.bytes);
    from.mapped = from.data != NULL;
    if (from.bytes && !from.data)
        weft_error_set(error, WEFT_IO, path, "cannot be mapped: %s", strerror(errno));
    weft__os_close(descriptor);
    if (from.bytes && !from.data) return NULL;
    return open_bytes(from, path, error);
}

weft_gguf *weft_gguf_from_memory(weft_memory_file from, weft_error *error)
{
    weft_error_clear(error);
    const char *name = from.name ? from.name : "memory";
    if (from.data)
        return open_bytes((weft_gguf){.data = from.data, .bytes = from.bytes}, name, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, name, "the data are NULL");
    return NULL;
}

weft_gguf *weft__gguf_open_header(const uint8_t *data, size_t bytes, const char *path,
                                  weft_error *error)
{
    return open_bytes((weft_gguf){.data = data, .bytes = bytes, .header = true}, path, error);
}

void weft_gguf_close(weft_gguf *file)
{
    if (!file) return;
    if (file->mapped) weft__os_unmap((void *)(uintptr_t)file->data, file->bytes);
    weft__arena_free(&file->memory);
    free(file);
}

uint32_t weft_gguf_version(const weft_gguf *file)
{
    return file ? file->version : 0;
}

/* ---- Tensors ---- */

size_t weft_gguf_count(const weft_gguf *file)
{
    return file ? file->n_tensors : 0;
}

const weft_gguf_tensor *weft_gguf_at(const weft_gguf *file, size_t index)
{
    return index < weft_gguf_count(file) ? &file->tensors[index].tensor : NULL;
}

const weft_gguf_tensor *weft_gguf_find(const weft_gguf *file, const char *name)
{
    const size_t *index = file && name ? weft__name_table_find(&file->tensor_names, name) : NULL;
    return index ? &file->tensors[*index].tensor : NULL;
}

weft_status weft_gguf_read(const weft_gguf *file, const weft_gguf_tensor *tensor, float *data,
                           weft_error *error)
{
    weft_error_clear(error);
    if (!file || !tensor || !data)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "gguf",
                              "the file, the tensor or the data are NULL");
    const gguf_type *type = gguf_type_of(tensor);
    if (!gguf_is_readable(type))
        return weft_error_set(error, WEFT_BAD_DTYPE, file->path, "%s: its type %s is not supported",
                              tensor->name, type->name);
    weft__gguf_widen(type, tensor->data, data, tensor->bytes / type->bytes);
    return WEFT_OK;
}
