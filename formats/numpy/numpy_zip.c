/* Archives of arrays: .npz files, by libzip. A member of the archive is a .npy file. */
#include "numpy.h"
#include "store/params.h"

#include "base/file.h"
#include "base/platform.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_HAVE_LIBZIP
#include <zip.h>

#define SUFFIX       ".npy"
#define SUFFIX_BYTES 4
/* Names of arrays are shorter than this, without the suffix. */
#define NAME_BYTES 512
/* Deflate compresses at most by this factor, so a member that claims more is damaged. */
#define MAX_RATIO 1040

/* ---- Reading ---- */

static bool read_member(void *context, void *data, size_t n)
{
    char *at = data;
    while (n) {
        const zip_int64_t got = zip_fread(context, at, n);
        if (got <= 0) return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

/* Reads member i into a store, as tensor `name`, or under its own name if that is NULL. The error
 * names the archive and the member. */
static weft_status read_array(weft_params *params, const char *name, zip_t *archive, zip_uint64_t i,
                              const char *path, weft_error *error)
{
    zip_stat_t about;
    char where[512], own[NAME_BYTES];
    if (zip_stat_index(archive, i, 0, &about) != 0 || !(about.valid & ZIP_STAT_SIZE) ||
        !(about.valid & ZIP_STAT_COMP_SIZE) || !(about.valid & ZIP_STAT_NAME))
        return weft_error_set(error, WEFT_BAD_FILE, path, "member %llu has no size or name",
                              (unsigned long long)i);
    snprintf(where, sizeof where, "%s/%s", path, about.name);
    const size_t length = strlen(about.name);
    if (length < SUFFIX_BYTES || length - SUFFIX_BYTES >= sizeof own ||
        strcmp(about.name + length - SUFFIX_BYTES, SUFFIX) != 0)
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "is not a member NAME.npy, or NAME is too long");
    if (about.size / MAX_RATIO > about.comp_size)
        return weft_error_set(error, WEFT_BAD_FILE, where, "claims to be %llu bytes",
                              (unsigned long long)about.size);
    snprintf(own, sizeof own, "%.*s", (int)(length - SUFFIX_BYTES), about.name);
    if (!name && weft_params_find(params, own, NULL))
        return weft_error_set(error, WEFT_BAD_FILE, where, "appears twice");
    zip_file_t *file = zip_fopen_index(archive, i, 0);
    if (!file)
        return weft_error_set(error, WEFT_BAD_FILE, where, "cannot be read: %s",
                              zip_strerror(archive));
    const array_source from = {where, about.size, read_member, file};
    const weft_status status = weft__array_read(params, name ? name : own, &from, error);
    zip_fclose(file);
    return status;
}

/* Checks that every tensor of `from` fits, and copies them all. */
static weft_status merge(weft_params *params, const weft_params *from, weft_error *error)
{
    weft_tensor new, old;
    weft_status status = WEFT_OK;
    for (int copies = 0; copies < 2; copies++)
        for (size_t i = 0; status == WEFT_OK && i < weft_params_count(from); i++) {
            const char *name = weft_params_name(from, i);
            weft_params_find(from, name, &new);
            if (!copies && !weft_params_find(params, name, &old)) continue;
            status = weft_params_add(params, name, new.dtype, new.shape, &old, error);
            if (copies && status == WEFT_OK)
                memcpy(old.data, new.data, weft_tensor_bytes(new.dtype, new.shape));
        }
    return status;
}

/* Opens an archive to read it; NULL after an error, whose status *status becomes. */
static zip_t *open_archive(const char *path, weft_status *status, weft_error *error)
{
    int code = 0;
    zip_error_t about;
    const int descriptor = weft__file_open(path);
    if (descriptor < 0) {
        *status = weft_error_set(error, weft__file_status(errno), path, "cannot be read: %s",
                                 weft__file_error(errno));
        return NULL;
    }
    zip_t *archive = zip_fdopen(descriptor, 0, &code);
    *status = WEFT_OK;
    if (archive) return archive;
    weft__os_close(descriptor);
    zip_error_init_with_code(&about, code);
    *status = weft_error_set(error, WEFT_BAD_FILE, path, "cannot be read: %s",
                             zip_error_strerror(&about));
    zip_error_fini(&about);
    return NULL;
}

weft_status weft_npz_load(weft_params *params, const char *path, weft_error *error)
{
    weft_error_clear(error);
    weft_status status;
    if (!params || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_npz_load",
                              "the store or the path is NULL");
    zip_t *archive = open_archive(path, &status, error);
    if (!archive) return status;
    weft_params *arrays = weft_params_new();
    if (!arrays) status = weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    const zip_int64_t n = zip_get_num_entries(archive, 0);
    for (zip_int64_t i = 0; status == WEFT_OK && i < n; i++)
        status = read_array(arrays, NULL, archive, (zip_uint64_t)i, path, error);
    if (status == WEFT_OK) status = merge(params, arrays, error);
    weft_params_free(arrays);
    zip_discard(archive);
    return status;
}

weft_status weft_npz_load_array(weft_params *params, const char *name, const char *path,
                                const char *array, weft_error *error)
{
    weft_error_clear(error);
    weft_status status;
    char member[NAME_BYTES + SUFFIX_BYTES];
    if (!params || !name || !path || !array)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_npz_load_array",
                              "the store, the path or a name is NULL");
    zip_t *archive = open_archive(path, &status, error);
    if (!archive) return status;
    const int length = snprintf(member, sizeof member, "%s" SUFFIX, array);
    const zip_int64_t i =
        length < (int)sizeof member ? zip_name_locate(archive, member, ZIP_FL_ENC_RAW) : -1;
    status = i >= 0 ? read_array(params, name, archive, (zip_uint64_t)i, path, error)
                    : weft_error_set(error, WEFT_NOT_FOUND, path, "has no array \"%s\"", array);
    zip_discard(archive);
    return status;
}

/* ---- Writing ---- */

/* Adds a tensor as a member; the archive owns the bytes. */
static bool add_array(zip_t *archive, const char *name, const weft_tensor *tensor)
{
    char header[ARRAY_HEADER_BYTES], member[NAME_BYTES + SUFFIX_BYTES];
    const size_t head = weft__array_make_header(tensor, header);
    const size_t bytes = weft_tensor_bytes(tensor->dtype, tensor->shape);
    char *data = malloc(head + bytes);
    if (!data) return false;
    memcpy(data, header, head);
    if (bytes) memcpy(data + head, tensor->data, bytes);
    zip_source_t *source = zip_source_buffer(archive, data, head + bytes, 1);
    if (!source) {
        free(data);
        return false;
    }
    snprintf(member, sizeof member, "%s" SUFFIX, name);
    if (zip_file_add(archive, member, source, ZIP_FL_ENC_UTF_8) >= 0) return true;
    zip_source_free(source);
    return false;
}

/* Makes the archive in memory, so that the file is replaced as all others are. libzip writes
 * nothing for an archive without members. */
static weft_status make_archive(const weft_params *params, const weft_params_filter *filter,
                                zip_source_t *buffer, size_t *members, const char *path,
                                weft_error *error)
{
    zip_error_t about;
    zip_error_init(&about);
    *members = 0;
    zip_t *archive = zip_open_from_source(buffer, ZIP_TRUNCATE, &about);
    weft_status status = archive ? WEFT_OK : WEFT_IO;
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(params); i++) {
        const char *name = weft_params_name(params, i);
        weft_tensor tensor;
        if (filter && filter->selects && !filter->selects(filter->context, name)) continue;
        weft_params_find(params, name, &tensor);
        ++*members;
        if (strlen(name) >= NAME_BYTES)
            status = weft_error_set(error, WEFT_TOO_LARGE, path,
                                    "the name of \"%.40s...\" is longer than %d bytes", name,
                                    NAME_BYTES - 1);
        else if (!add_array(archive, name, &tensor))
            status = WEFT_IO;
    }
    if (status == WEFT_OK && zip_close(archive) != 0) status = WEFT_IO;
    if (status != WEFT_OK)
        weft_error_set(error, status, path, "cannot be created: %s",
                       archive ? zip_strerror(archive) : zip_error_strerror(&about));
    if (status != WEFT_OK && archive) zip_discard(archive);
    zip_error_fini(&about);
    return status;
}

static weft_status write_archive(zip_source_t *buffer, const char *path, weft_error *error)
{
    char chunk[4096];
    file_writer file;
    if (!weft__file_begin(&file, path))
        return weft_error_set(error, WEFT_IO, path, "cannot be written: %s",
                              weft__file_error(errno));
    bool good = zip_source_open(buffer) == 0;
    zip_int64_t n = 0;
    while (good && (n = zip_source_read(buffer, chunk, sizeof chunk)) > 0)
        weft__file_write(&file, chunk, (size_t)n);
    if (good) zip_source_close(buffer);
    if (!good || n < 0) {
        weft__file_abandon(&file);
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for the archive");
    }
    if (weft__file_commit(&file)) return WEFT_OK;
    return weft_error_set(error, WEFT_IO, path, "cannot be written: %s", weft__file_error(errno));
}

weft_status weft_npz_save(const weft_params *params, const char *path,
                          const weft_params_filter *filter, weft_error *error)
{
    weft_error_clear(error);
    /* The end of an archive, which is all of one without members. */
    static const char no_members[22] = {'P', 'K', 5, 6};
    zip_error_t about;
    if (!params || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_npz_save",
                              "the store or the path is NULL");
    zip_error_init(&about);
    zip_source_t *buffer = zip_source_buffer_create(NULL, 0, 0, &about);
    zip_error_fini(&about);
    if (!buffer) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    zip_source_keep(buffer); /* the archive frees its own reference */
    size_t members;
    weft_status status = make_archive(params, filter, buffer, &members, path, error);
    if (status == WEFT_OK && members) status = write_archive(buffer, path, error);
    if (status == WEFT_OK && !members && !weft__file_replace(path, no_members, sizeof no_members))
        status =
            weft_error_set(error, WEFT_IO, path, "cannot be written: %s", weft__file_error(errno));
    zip_source_free(buffer);
    return status;
}

#else

static weft_status absent(const char *path, weft_error *error)
{
    return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "npz",
                          "weft was built without libzip, which .npz files need");
}

weft_status weft_npz_load(weft_params *params, const char *path, weft_error *error)
{
    (void)params;
    return absent(path, error);
}

weft_status weft_npz_load_array(weft_params *params, const char *name, const char *path,
                                const char *array, weft_error *error)
{
    (void)params, (void)name, (void)array;
    return absent(path, error);
}

weft_status weft_npz_save(const weft_params *params, const char *path,
                          const weft_params_filter *filter, weft_error *error)
{
    (void)params;
    (void)filter;
    return absent(path, error);
}

#endif
