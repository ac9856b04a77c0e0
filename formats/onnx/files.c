/* External data: files that hold the contents of a model's tensors. Each is mapped once, whole. Its
 * name is a relative path, which must not leave the model's folder, not even through symbolic
 * links. */
#include "onnx/tensor.h"

#include "base/file.h"
#include "base/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct mapped_file {
    struct mapped_file *next;
    void *data; /* NULL: the file is empty */
    size_t bytes;
    char location[];
} mapped_file;

void weft__files_close(onnx_files *files)
{
    while (files->first) {
        mapped_file *f = files->first;
        files->first = f->next;
        if (f->data) weft__os_unmap(f->data, f->bytes);
        free(f);
    }
}

const char *weft__files_location(const onnx_files *files, size_t index)
{
    const mapped_file *f = files->first;
    while (f && index--) f = f->next;
    return f ? f->location : NULL;
}

size_t weft__files_bytes(const onnx_files *files)
{
    size_t bytes = 0;
    for (const mapped_file *f = files->first; f; f = f->next) bytes += f->bytes;
    return bytes;
}

/* Whether a path is relative and has no component "..". */
static bool is_inside(const char *path)
{
    if (!path[0] || path[0] == '/') return false;
    for (const char *at = path; *at;) {
        const size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.') return false;
        at += n;
        at += strspn(at, "/");
    }
    return true;
}

/* Opens a file of the folder, if links do not lead out of it; -1 with errno set otherwise. */
static int open_inside(const char *folder, const char *location)
{
    char path[FILE_PATH_BYTES], real_folder[FILE_PATH_BYTES], real[FILE_PATH_BYTES];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, location) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (!weft__os_real_path(folder, real_folder, sizeof real_folder) ||
        !weft__os_real_path(path, real, sizeof real))
        return -1;
    const size_t n = strlen(real_folder);
    if (strncmp(real, real_folder, n) != 0 || (n > 1 && real[n] != '/')) {
        errno = EACCES;
        return -1;
    }
    return weft__file_open(real);
}

static weft_status map_file(mapped_file *f, const char *folder, const char *where,
                            weft_error *error)
{
    os_facts facts;
    const int file = open_inside(folder, f->location);
    const bool good = file >= 0 && weft__os_facts_of(file, &facts);
    weft_status status = WEFT_OK;
    if (!good) {
        status = weft_error_set(error, weft__file_status(errno), where,
                                "its data are in \"%s\", which cannot be opened: %s", f->location,
                                weft__file_error(errno));
    } else if (facts.bytes > 0) {
        f->bytes = (size_t)facts.bytes;
        f->data = weft__os_map(file, f->bytes);
        if (!f->data) {
            status = weft_error_set(error, WEFT_IO, where, "\"%s\" cannot be mapped: %s",
                                    f->location, strerror(errno));
        }
    }
    if (file >= 0) weft__os_close(file);
    return status;
}

static weft_status find_file(onnx_files *files, const char *location, const char *where,
                             const mapped_file **found, weft_error *error)
{
    for (mapped_file *f = files->first; f; f = f->next)
        if (!strcmp(f->location, location)) {
            *found = f;
            return WEFT_OK;
        }
    if (!files->folder)
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "its data are in \"%s\": a model in memory cannot have external data",
                              location);
    if (!is_inside(location))
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "its data are in \"%s\", which is not in the model's folder",
                              location);
    const size_t length = strlen(location) + 1;
    mapped_file *f = calloc(1, sizeof *f + length);
    if (!f) {
        return weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for a file's name");
    }
    memcpy(f->location, location, length);
    const weft_status status = map_file(f, files->folder, where, error);
    if (status != WEFT_OK) {
        free(f);
        return status;
    }
    f->next = files->first;
    files->first = f;
    *found = f;
    return WEFT_OK;
}

/* The value of an entry as a number of bytes; false if it is not one. */
static bool entry_number(const WeftOnnx__TensorProto *proto, const char *key, size_t *number)
{
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const WeftOnnx__StringStringEntryProto *entry = proto->external_data[i];
        if (strcmp(onnx_text(entry->key), key) != 0) continue;
        const char *text = onnx_text(entry->value);
        const size_t digits = strspn(text, "0123456789");
        if (!digits || text[digits] || digits > 18) return false;
        *number = (size_t)strtoull(text, NULL, 10);
    }
    return true;
}

weft_status weft__files_map(onnx_files *files, const WeftOnnx__TensorProto *proto,
                            const char *where, size_t bytes, const void **data, weft_error *error)
{
    const char *location = "";
    const mapped_file *file = NULL;
    size_t offset = 0, length = bytes;
    for (size_t i = 0; i < proto->n_external_data; i++)
        if (!strcmp(onnx_text(proto->external_data[i]->key), "location"))
            location = onnx_text(proto->external_data[i]->value);
    if (!entry_number(proto, "offset", &offset) || !entry_number(proto, "length", &length))
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "the offset or length of its data is not a number");
    if (length != bytes)
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "has %zu bytes of data, its type and shape need %zu", length, bytes);
    const weft_status status = find_file(files, location, where, &file, error);
    if (status != WEFT_OK) return status;
    if (offset > file->bytes || bytes > file->bytes - offset)
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "needs bytes %zu to %zu of \"%s\", which has %zu", offset,
                              offset + bytes, location, file->bytes);
    *data = bytes ? (const char *)file->data + offset : NULL;
    return WEFT_OK;
}
