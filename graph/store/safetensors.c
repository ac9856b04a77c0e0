/* The store's files, in the safetensors format (github.com/huggingface/safetensors): 8 bytes of
 * header length (little endian), a JSON header
 *     {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}},
 * and the data. The header is read member by member, so that it takes no more memory than what it
 * describes; every number in it is checked against the file. O(bytes), and O(n log n) to sort. */
#include "params.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Limits of every file, on saving and on loading. The first is the format's own. */
#define MAX_HEADER_BYTES 100000000u
#define MAX_METAS        (1u << 20)
/* Bytes of the description of one tensor. Its tree takes up to forty times as much memory. */
#define MAX_ENTRY_BYTES (64u << 10)

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
           cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(begin + param_bytes(p))));
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
        begin += param_bytes(&params->params[i]);
    }
    char *text = good ? json_print(root, false) : NULL;
    cJSON_Delete(root);
    return text;
}

static void write_store(file_writer *file, const weft_params *params, const char *header)
{
    size_t length = strlen(header), padded = (length + 7) / 8 * 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    file_write(file, prefix, sizeof prefix);
    file_write(file, header, length);
    file_write(file, "        ", padded - length);
    for (size_t i = 0; i < params->n; i++)
        file_write(file, params->params[i].tensor.data, param_bytes(&params->params[i]));
}

/* Bytes of names and metadata, a lower bound of the header. */
static size_t names_bytes(const weft_params *params)
{
    size_t bytes = 0;
    for (size_t i = 0; i < params->n; i++) bytes += strlen(params->params[i].name);
    for (size_t i = 0; i < params->n_meta; i++)
        bytes += strlen(params->metas[i].key) + strlen(params->metas[i].text);
    return bytes;
}

static weft_status check_limits(const weft_params *params, size_t header_bytes, const char *path,
                                weft_error *error)
{
    if (params->n_meta > MAX_METAS)
        return weft_error_set(error, WEFT_TOO_LARGE, path,
                              "has %zu entries of metadata, at most %u fit in a file",
                              params->n_meta, MAX_METAS);
    if (header_bytes > MAX_HEADER_BYTES)
        return weft_error_set(error, WEFT_TOO_LARGE, path,
                              "names and metadata need a header of %zu bytes or more, at most %u "
                              "fit in a file",
                              header_bytes, MAX_HEADER_BYTES);
    return WEFT_OK;
}

static weft_status save_all(const weft_params *params, const char *path, weft_error *error)
{
    file_writer file;
    weft_status status = check_limits(params, names_bytes(params), path, error);
    if (status != WEFT_OK) return status;
    char *header = make_header(params);
    if (!header) return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for the header");
    status = check_limits(params, strlen(header), path, error);
    if (status != WEFT_OK) {
        cJSON_free(header);
        return status;
    }
    bool good = file_begin(&file, path);
    if (good) {
        write_store(&file, params, header);
        good = file_commit(&file);
    }
    int problem = errno;
    cJSON_free(header);
    if (good) return WEFT_OK;
    return weft_error_set(error, WEFT_IO, path, "cannot be written: %s", strerror(problem));
}

weft_status weft_params_save(const weft_params *params, const char *path,
                             const weft_params_filter *filter, weft_error *error)
{
    if (!params || !path || !path[0])
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "saving needs a store and a path");
    if (file_is_stream(path))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                              "is not a regular file: checkpoints are not written into folders, "
                              "pipes or devices");
    if (!filter || !filter->selects) return save_all(params, path, error);
    weft_params selection = *params; /* the same tensors; `params` is not changed */
    selection.n = 0;
    selection.params = malloc((params->n + 1) * sizeof *selection.params);
    if (!selection.params)
        return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory for a list of tensors");
    for (size_t i = 0; i < params->n; i++)
        if (filter->selects(filter->context, params->params[i].name))
            selection.params[selection.n++] = params->params[i];
    weft_status status = save_all(&selection, path, error);
    free(selection.params);
    return status;
}

/* ---- Loading ---- */

typedef struct reader {
    const char *path, *header;
    int file;
    uint64_t data_begin, data_bytes;
    const weft_params_filter *filter; /* NULL: all tensors */
    weft_error *error;
} reader;

static weft_status bad(reader *r, const char *tensor, const char *what)
{
    return weft_error_set(r->error, WEFT_BAD_FILE, r->path, "%s%s%s", tensor ? tensor : "",
                          tensor ? ": " : "", what);
}

static weft_status no_memory(reader *r)
{
    return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory");
}

static weft_status not_json(reader *r, const char *at)
{
    return weft_error_set(r->error, WEFT_BAD_FILE, r->path,
                          "the header is not JSON, near byte %zu of the file",
                          (size_t)(at - r->header) + 8);
}

/* Parses a span of the header into a tree, which the caller deletes. */
static weft_status parse(reader *r, json_span text, cJSON **json)
{
    json_failure why;
    *json = json_parse(text.at, text.length, &why);
    if (*json) return WEFT_OK;
    return why.no_memory ? no_memory(r) : not_json(r, text.at + why.position);
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

/* Whether an item is a whole number in [0, 2^53), which *out becomes. */
static bool whole(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble >= 9007199254740992.0 || floor(item->valuedouble) != item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

/* The description of one tensor: its data are bytes [begin, end) of the data section. */
typedef struct entry {
    char *name;
    weft_type type;
    uint64_t begin, end;
    size_t position; /* in the header */
} entry;

typedef struct entries {
    entry *at;
    size_t n, capacity;
} entries;

/* Reads dtype, shape and offsets of one entry and checks that they agree. */
static weft_status check_entry(reader *r, const cJSON *json, entry *e)
{
    const char *name = e->name;
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(json, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(json, "shape");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(json, "data_offsets"), *item;
    weft_type *type = &e->type;
    uint64_t number;
    if (!cJSON_IsObject(json)) return bad(r, name, "is not an object");
    if (!name[0]) return bad(r, "a tensor", "has no name");
    if (!cJSON_IsString(dtype)) return bad(r, name, "dtype is missing");
    type->dtype = WEFT_DTYPES;
    for (int d = 0; d < WEFT_DTYPES; d++)
        if (!strcmp(file_dtypes[d], dtype->valuestring)) type->dtype = (weft_dtype)d;
    if (type->dtype == WEFT_DTYPES) return bad(r, name, "its dtype is not supported");
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
    if (weft_shape_numel(type->shape) < 0) return bad(r, name, "its shape overflows");
    if (e->begin > e->end || e->end > r->data_bytes)
        return bad(r, name, "its data lie outside the file");
    if (e->end - e->begin != weft_tensor_bytes(type->dtype, type->shape))
        return bad(r, name, "its data do not have the size of its dtype and shape");
    return WEFT_OK;
}

/* Adds an entry. It owns the name, on failure too. */
static weft_status read_entry(reader *r, char *name, json_span text, entries *all)
{
    if (all->n == all->capacity) {
        size_t capacity = all->capacity ? 2 * all->capacity : 64;
        entry *grown = realloc(all->at, capacity * sizeof *grown);
        if (!grown) {
            free(name);
            return no_memory(r);
        }
        all->at = grown;
        all->capacity = capacity;
    }
    entry *e = &all->at[all->n];
    *e = (entry){.name = name, .position = all->n};
    all->n++;
    if (text.length > MAX_ENTRY_BYTES) return bad(r, name, "its description is over 64 KiB long");
    cJSON *json;
    weft_status status = parse(r, text, &json);
    if (status != WEFT_OK) return status;
    status = check_entry(r, json, e);
    cJSON_Delete(json);
    return status;
}

static weft_status read_meta(reader *r, json_span key, json_span text, weft_params *into)
{
    cJSON *keys, *texts;
    if (*text.at != '"') return bad(r, "__metadata__", "has a value that is not text");
    weft_status status = parse(r, key, &keys);
    if (status != WEFT_OK) return status;
    status = parse(r, text, &texts);
    if (status == WEFT_OK &&
        weft_params_set_meta(into, keys->valuestring, texts->valuestring) != WEFT_OK)
        status = no_memory(r);
    cJSON_Delete(keys);
    cJSON_Delete(texts);
    if (status == WEFT_OK && into->n_meta > MAX_METAS)
        return weft_error_set(r->error, WEFT_TOO_LARGE, r->path,
                              "__metadata__: has more than %u entries", MAX_METAS);
    return status;
}

static weft_status read_metadata(reader *r, json_span text, weft_params *into)
{
    json_members members = {.rest = text};
    json_span key, value;
    if (*text.at != '{') return bad(r, "__metadata__", "is not an object");
    for (;;) {
        json_step step = json_next(&members, &key, &value);
        if (step == JSON_MALFORMED) return not_json(r, members.rest.at);
        if (step == JSON_END) return WEFT_OK;
        weft_status status = read_meta(r, key, value, into);
        if (status != WEFT_OK) return status;
    }
}

/* A copy of the text of a JSON string. */
static weft_status read_name(reader *r, json_span text, char **name)
{
    cJSON *json;
    weft_status status = parse(r, text, &json);
    if (status != WEFT_OK) return status;
    *name = params_copy_text(json->valuestring);
    cJSON_Delete(json);
    return *name ? WEFT_OK : no_memory(r);
}

/* Reads the header, member by member. */
static weft_status read_header(reader *r, json_span text, weft_params *into, entries *all)
{
    json_members members = {.rest = text};
    json_span key, value;
    bool has_metadata = false;
    const char *first = text.at + strspn(text.at, " \t\n\r");
    if (*first == '[' || *first == '"') return bad(r, NULL, "the header is not a JSON object");
    for (;;) {
        char *name = NULL;
        json_step step = json_next(&members, &key, &value);
        if (step == JSON_MALFORMED) return not_json(r, members.rest.at);
        if (step == JSON_END) return WEFT_OK;
        weft_status status = read_name(r, key, &name);
        if (status != WEFT_OK) return status;
        if (strcmp(name, "__metadata__") != 0) {
            status = read_entry(r, name, value, all);
        } else {
            free(name);
            status = has_metadata ? bad(r, "__metadata__", "appears twice")
                                  : read_metadata(r, value, into);
            has_metadata = true;
        }
        if (status != WEFT_OK) return status;
    }
}

static int by_offset(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->position < b->position ? -1 : 1;
}

/* Sorts the entries by offset, and checks that they cover the data without overlaps or gaps. */
static weft_status order_entries(reader *r, entries *all)
{
    uint64_t covered = 0;
    if (all->n) qsort(all->at, all->n, sizeof *all->at, by_offset);
    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i].begin != covered)
            return bad(r, all->at[i].name, "its data overlap another tensor's, or leave a gap");
        covered = all->at[i].end;
    }
    if (covered != r->data_bytes)
        return bad(r, NULL, "the tensors leave a gap at the end of the data");
    return WEFT_OK;
}

static weft_status read_tensor(reader *r, const entry *e, weft_params *into)
{
    weft_tensor tensor;
    const weft_params_filter *f = r->filter;
    if (f && f->selects && !f->selects(f->context, e->name)) return WEFT_OK;
    if (weft_params_get(into, e->name, NULL)) return bad(r, e->name, "appears twice");
    weft_status status =
        weft_params_add(into, e->name, e->type.dtype, e->type.shape, &tensor, r->error);
    if (status == WEFT_OK &&
        !read_at(r->file, tensor.data, e->end - e->begin, r->data_begin + e->begin))
        status = weft_error_set(r->error, WEFT_IO, r->path, "%s cannot be read", e->name);
    if (status == WEFT_OK) normalise_bools(e->type.dtype, tensor.data, e->end - e->begin);
    return status;
}

/* Reads all tensors into a store of their own. Data are allocated only after the whole header has
 * been checked, so that a malformed file cannot cause larger allocations than its own size. */
static weft_status read_all(reader *r, json_span text, weft_params *into)
{
    entries all = {0};
    weft_status status = read_header(r, text, into, &all);
    if (status == WEFT_OK) status = order_entries(r, &all);
    for (size_t i = 0; status == WEFT_OK && i < all.n; i++)
        status = read_tensor(r, &all.at[i], into);
    for (size_t i = 0; i < all.n; i++) free(all.at[i].name);
    free(all.at);
    return status;
}

static weft_status read_file(reader *r, weft_params *into)
{
    struct stat info;
    unsigned char prefix[8];
    uint64_t length = 0;
    if (fstat(r->file, &info) != 0 || !S_ISREG(info.st_mode))
        return weft_error_set(r->error, WEFT_IO, r->path, "is not a regular file");
    uint64_t size = (uint64_t)info.st_size;
    if (size < 8 || !read_at(r->file, prefix, 8, 0))
        return bad(r, NULL, "is too short for a safetensors file");
    for (int i = 0; i < 8; i++) length |= (uint64_t)prefix[i] << (8 * i);
    if (length > size - 8 || length > MAX_HEADER_BYTES)
        return bad(r, NULL, "the header is longer than the file, or than 100,000,000 bytes");
    char *text = malloc(length + 1);
    if (!text) return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory for the header");
    r->header = text;
    r->data_begin = 8 + length;
    r->data_bytes = size - r->data_begin;
    text[length] = 0;
    weft_status status = read_at(r->file, text, length, 8)
                             ? read_all(r, (json_span){text, length}, into)
                             : weft_error_set(r->error, WEFT_IO, r->path, "cannot be read");
    free(text);
    return status;
}

/* Adds what was read to the store, or changes nothing: fails if dtypes or shapes differ from the
 * store's, or if memory is out. */
static weft_status merge(weft_params *params, weft_params *from, reader *r)
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
    if (!params_reserve_metas(params, from->n_meta)) {
        params_truncate(params, before);
        return no_memory(r);
    }
    params_move_metas(params, from);
    for (size_t i = 0; i < from->n; i++) {
        weft_tensor to;
        weft_params_get(params, from->params[i].name, &to);
        memcpy(to.data, from->params[i].tensor.data, weft_tensor_bytes(to.dtype, to.shape));
    }
    return WEFT_OK;
}

weft_status weft_params_load(weft_params *params, const char *path, weft_error *error)
{
    return weft_params_load_some(params, path, NULL, error);
}

weft_status weft_params_load_some(weft_params *params, const char *path,
                                  const weft_params_filter *filter, weft_error *error)
{
    if (!params || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, path ? path : "params",
                              "loading needs a store and a path");
    reader r = {.path = path,
                .file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC),
                .filter = filter,
                .error = error};
    if (r.file < 0)
        return weft_error_set(error, errno == ENOENT ? WEFT_NOT_FOUND : WEFT_IO, path,
                              "cannot be opened: %s", strerror(errno));
    weft_params *read = weft_params_new();
    weft_status status =
        read ? read_file(&r, read) : weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    if (status == WEFT_OK) status = merge(params, read, &r);
    weft_params_free(read);
    close(r.file);
    return status;
}
