/* The store's files, in the safetensors format: 8 bytes of header length (little endian), a JSON
 * header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}},
 * then the data. (github.com/huggingface/safetensors, format description.) */
#include "params.h"

#include <cjson/cJSON.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_HEADER (100u << 20)

static const char *const file_dtypes[] = {
#define ROW(upper, lower, bytes, file) file,
    WEFT_DTYPE_MAP(ROW)
#undef ROW
};

/* ---- Saving ---- */

static bool describe(cJSON *root, const param *p, size_t begin)
{
    cJSON *entry = cJSON_AddObjectToObject(root, p->name);
    if (!entry || !cJSON_AddStringToObject(entry, "dtype", file_dtypes[p->tensor.dtype]))
        return false;
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    cJSON *offsets = shape ? cJSON_AddArrayToObject(entry, "data_offsets") : NULL;
    if (!offsets) return false;
    for (int d = 0; d < p->tensor.shape.rank; d++)
        if (!cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)p->tensor.shape.dim[d])))
            return false;
    return cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)begin)) &&
           cJSON_AddItemToArray(offsets,
                                cJSON_CreateNumber((double)(begin + param_bytes(&p->tensor))));
}

static char *make_header(const weft_params *params)
{
    cJSON *root = cJSON_CreateObject();
    bool good = root != NULL;
    size_t begin = 0;
    if (good && params->n_meta) {
        cJSON *metas = cJSON_AddObjectToObject(root, "__metadata__");
        good = metas != NULL;
        for (size_t i = 0; good && i < params->n_meta; i++)
            good = cJSON_AddStringToObject(metas, params->metas[i].key, params->metas[i].text);
    }
    for (size_t i = 0; good && i < params->n; i++) {
        good = describe(root, &params->params[i], begin);
        begin += param_bytes(&params->params[i].tensor);
    }
    char *text = good ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

static bool write_all(int file, const void *data, size_t bytes)
{
    for (const char *at = data; bytes;) {
        ssize_t n = write(file, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_file(int file, const weft_params *params, const char *header)
{
    size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    bool good = write_all(file, prefix, sizeof prefix) && write_all(file, header, length) &&
                write_all(file, "        ", padded - length);
    for (size_t i = 0; good && i < params->n; i++)
        good =
            write_all(file, params->params[i].tensor.data, param_bytes(&params->params[i].tensor));
    return good && fsync(file) == 0;
}

/* The rename itself must reach the disk too. */
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof folder) return;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(length ? length : 1) : 1,
             slash ? path : ".");
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return;
    (void)fsync(file);
    close(file);
}

weft_status weft_params_save(const weft_params *params, const char *path, weft_error *error)
{
    char temporary[4096];
    if (!params || !path || !path[0] || strlen(path) + 5 > sizeof temporary)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "saving needs a store and a path under %zu bytes", sizeof temporary);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    char *header = make_header(params);
    if (!header) return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for the header");
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = file >= 0 && write_file(file, params, header);
    int problem = errno;
    if (file >= 0 && close(file) != 0 && good) {
        problem = errno;
        good = false;
    }
    if (good && rename(temporary, path) != 0) {
        problem = errno;
        good = false;
    }
    cJSON_free(header);
    if (good) {
        sync_folder(path);
        return WEFT_OK;
    }
    if (file >= 0) unlink(temporary);
    return weft_error_set(error, WEFT_IO, path, "cannot be written: %s", strerror(problem));
}

/* ---- Loading ---- */

typedef struct reader {
    const char *path;
    int file;
    uint64_t data_begin, data_bytes;
    weft_error *error;
} reader;

static weft_status bad(reader *r, const char *tensor, const char *what)
{
    return weft_error_set(r->error, WEFT_BAD_FILE, r->path, "%s%s%s", tensor ? tensor : "",
                          tensor ? ": " : "", what);
}

static bool read_at(int file, void *data, size_t bytes, uint64_t offset)
{
    for (char *at = data; bytes;) {
        ssize_t n = pread(file, at, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* A number of JSON that is a whole one in [0, 2^53). */
static bool whole(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble >= 9007199254740992.0 || floor(item->valuedouble) != item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

/* What the header says of one tensor: its data are bytes [begin, end) of the data. */
typedef struct entry {
    const char *name;
    weft_type type;
    uint64_t begin, end;
    size_t position; /* in the header */
} entry;

/* Reads dtype, shape and offsets of one entry and holds them against each other. */
static weft_status read_entry(reader *r, const cJSON *json, entry *e)
{
    const char *name = e->name = json->string;
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(json, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(json, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(json, "data_offsets"), *item;
    weft_type *type = &e->type;
    uint64_t number;
    if (!cJSON_IsObject(json)) return bad(r, name, "is no object");
    if (!name[0]) return bad(r, "a tensor", "has no name");
    if (!cJSON_IsString(dtype)) return bad(r, name, "dtype is missing");
    type->dtype = WEFT_DTYPES;
    for (int d = 0; d < WEFT_DTYPES; d++)
        if (!strcmp(file_dtypes[d], dtype->valuestring)) type->dtype = (weft_dtype)d;
    if (type->dtype == WEFT_DTYPES) return bad(r, name, "its dtype is none that weft has");
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > WEFT_MAX_RANK)
        return bad(r, name, "shape is missing or of too high a rank");
    type->shape = WEFT_SCALAR;
    cJSON_ArrayForEach(item, shape)
    {
        if (!whole(item, &number)) return bad(r, name, "shape has a bad number");
        type->shape.dim[type->shape.rank++] = (int64_t)number;
    }
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole(cJSON_GetArrayItem(offsets, 0), &e->begin) ||
        !whole(cJSON_GetArrayItem(offsets, 1), &e->end))
        return bad(r, name, "data_offsets are not two whole numbers");
    int64_t numel = weft_shape_numel(type->shape);
    if (numel < 0) return bad(r, name, "its shape overflows");
    if (e->begin > e->end || e->end > r->data_bytes)
        return bad(r, name, "its data lie outside the file");
    if (e->end - e->begin != (uint64_t)numel * weft_dtype_bytes(type->dtype))
        return bad(r, name, "its data are not of the size that dtype and shape give");
    return WEFT_OK;
}

static weft_status read_metadata(reader *r, const cJSON *metas, weft_params *into)
{
    const cJSON *item;
    if (!cJSON_IsObject(metas)) return bad(r, "__metadata__", "is no object");
    cJSON_ArrayForEach(item, metas)
    {
        if (!cJSON_IsString(item)) return bad(r, "__metadata__", "holds something else than text");
        if (weft_params_set_meta(into, item->string, item->valuestring) != WEFT_OK)
            return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory");
    }
    return WEFT_OK;
}

static int by_offset(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->position < b->position ? -1 : 1;
}

/* Fills `entries`, in order of their data, which must cover the data without overlap or hole. */
static weft_status read_entries(reader *r, const cJSON *root, weft_params *into, entry *entries,
                                size_t *count)
{
    const cJSON *json;
    size_t n = 0;
    uint64_t covered = 0;
    cJSON_ArrayForEach(json, root)
    {
        weft_status status;
        if (strcmp(json->string, "__metadata__") != 0) {
            entries[n].position = n;
            status = read_entry(r, json, &entries[n++]);
        } else if (json != cJSON_GetObjectItemCaseSensitive(root, "__metadata__")) {
            status = bad(r, json->string, "appears twice");
        } else {
            status = read_metadata(r, json, into);
        }
        if (status != WEFT_OK) return status;
    }
    qsort(entries, n, sizeof *entries, by_offset);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].begin != covered)
            return bad(r, entries[i].name, "its data overlap another tensor's, or leave holes");
        covered = entries[i].end;
    }
    if (covered != r->data_bytes) return bad(r, NULL, "the tensors leave holes at the data's end");
    *count = n;
    return WEFT_OK;
}

/* All tensors of the file into a store of their own. No memory is taken for data before the whole
 * header is known to be true, so that a lying file cannot ask for more than its own size. */
static weft_status read_all(reader *r, const cJSON *root, weft_params *into)
{
    if (!cJSON_IsObject(root)) return bad(r, NULL, "the header is not a JSON object");
    size_t n = 0;
    entry *entries = calloc((size_t)cJSON_GetArraySize(root) + 1, sizeof *entries);
    if (!entries) return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory");
    weft_status status = read_entries(r, root, into, entries, &n);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        const entry *e = &entries[i];
        weft_tensor tensor;
        if (weft_params_get(into, e->name, NULL)) {
            status = bad(r, e->name, "appears twice");
            break;
        }
        status = weft_params_add(into, e->name, e->type.dtype, e->type.shape, &tensor, r->error);
        if (status == WEFT_OK &&
            !read_at(r->file, tensor.data, e->end - e->begin, r->data_begin + e->begin))
            status = weft_error_set(r->error, WEFT_IO, r->path, "%s cannot be read", e->name);
        if (status == WEFT_OK) normalise_bools(e->type.dtype, tensor.data, e->end - e->begin);
    }
    free(entries);
    return status;
}

/* cJSON takes any control character for white space and ends at a zero byte; JSON does not. */
static bool has_control(const char *text, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\r' && text[i] != '\t')
            return true;
    return false;
}

static weft_status read_file(reader *r, weft_params *into)
{
    struct stat info;
    unsigned char prefix[8];
    uint64_t length = 0;
    if (fstat(r->file, &info) != 0 || !S_ISREG(info.st_mode))
        return weft_error_set(r->error, WEFT_IO, r->path, "is no regular file");
    uint64_t size = (uint64_t)info.st_size;
    if (size < 8 || !read_at(r->file, prefix, 8, 0))
        return bad(r, NULL, "is too short for a safetensors file");
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << (8 * i);
    if (length > size - 8 || length > MOST_HEADER)
        return bad(r, NULL, "the header is longer than the file, or than 100 MiB");
    char *text = malloc(length + 1);
    if (!text) return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory for the header");
    weft_status status = WEFT_OK;
    cJSON *root = NULL;
    r->data_begin = 8 + length;
    r->data_bytes = size - r->data_begin;
    text[length] = 0;
    if (!read_at(r->file, text, length, 8)) {
        status = weft_error_set(r->error, WEFT_IO, r->path, "cannot be read");
    } else {
        if (!has_control(text, length))
            root = cJSON_ParseWithLengthOpts(text, length + 1, NULL, true);
        status = root ? read_all(r, root, into) : bad(r, NULL, "the header is not JSON");
    }
    cJSON_Delete(root);
    free(text);
    return status;
}

/* Moves the metadata of one store into another that has room for them. */
static void move_metas(weft_params *to, weft_params *from)
{
    for (size_t i = 0; i < from->n_meta; i++) {
        meta *m = &from->metas[i];
        size_t at = 0;
        while (at < to->n_meta && strcmp(to->metas[at].key, m->key) != 0) at++;
        if (at == to->n_meta) to->metas[to->n_meta++] = (meta){NULL, NULL};
        meta old = to->metas[at];
        to->metas[at] = *m;
        *m = old;
    }
}

/* Moves what was read into the store: sizes were checked, so only memory can fail. */
static weft_status commit(weft_params *params, weft_params *from, reader *r)
{
    char have[128], want[128];
    size_t before = params->n;
    for (size_t i = 0; i < from->n; i++) {
        const param *p = &from->params[i];
        weft_tensor old;
        if (weft_params_get(params, p->name, &old) &&
            (old.dtype != p->tensor.dtype || !weft_shape_equal(old.shape, p->tensor.shape)))
            return weft_error_set(
                r->error, WEFT_BAD_SHAPE, r->path, "%s is %s %s in the file, %s %s in the store",
                p->name, weft_dtype_name(p->tensor.dtype),
                weft_shape_text(p->tensor.shape, have, sizeof have), weft_dtype_name(old.dtype),
                weft_shape_text(old.shape, want, sizeof want));
    }
    for (size_t i = 0; i < from->n; i++) {
        const param *p = &from->params[i];
        weft_status status =
            weft_params_add(params, p->name, p->tensor.dtype, p->tensor.shape, NULL, r->error);
        if (status == WEFT_OK) continue;
        params_truncate(params, before);
        return status;
    }
    if (from->n_meta) {
        meta *room =
            realloc(params->metas, (params->n_meta + from->n_meta) * sizeof *params->metas);
        if (!room) {
            params_truncate(params, before);
            return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory");
        }
        params->metas = room;
        move_metas(params, from);
    }
    for (size_t i = 0; i < from->n; i++) {
        weft_tensor to;
        weft_params_get(params, from->params[i].name, &to);
        memcpy(to.data, from->params[i].tensor.data, param_bytes(&to));
    }
    return WEFT_OK;
}

weft_status weft_params_load(weft_params *params, const char *path, weft_error *error)
{
    if (!params || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "loading needs a store and a path");
    reader r = {path, open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), 0, 0, error};
    if (r.file < 0)
        return weft_error_set(error, errno == ENOENT ? WEFT_NOT_FOUND : WEFT_IO, path,
                              "cannot be opened: %s", strerror(errno));
    weft_params *read = weft_params_new();
    weft_status status =
        read ? read_file(&r, read) : weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    if (status == WEFT_OK) status = commit(params, read, &r);
    weft_params_free(read);
    close(r.file);
    return status;
}
