/* Writes models as GGUF files. Builds the header in memory and reads it again: writes the file only if
 * the reader finds the same options and the same merges. O(bytes). */
#include "save.h"

#include "huggingface/config.h"

#include "json/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static weft_status no_memory(gguf_saver *s)
{
    return weft_error_set(s->error, WEFT_NO_MEMORY, s->path, "no memory");
}

/* ---- The header ---- */

/* The description of a tensor, whose data come at *offset, which becomes that of the next one. */
static void add_tensor(gguf_bytes *b, const char *name, weft_shape shape, uint32_t type,
                       uint64_t bytes, uint64_t *offset)
{
    weft__gguf_add_text(b, name);
    weft__gguf_add_number(b, (uint64_t)shape.rank, 4);
    for (int d = shape.rank; d--;) weft__gguf_add_number(b, (uint64_t)shape.dim[d], 8);
    weft__gguf_add_number(b, type, 4);
    weft__gguf_add_number(b, *offset, 8);
    *offset += (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

/* The header, and the divisors of rotary frequencies, whose data come first. */
static weft_status make_header(gguf_saver *s)
{
    gguf_bytes *b = &s->header;
    uint64_t offset = 0;
    const size_t divisors = weft__gguf_divisor_count(s);
    size_t lists = 0;
    while (weft__gguf_divisor_name(s, lists)) lists++;
    b->n = b->values = 0;
    weft__gguf_add(b, "GGUF", 4);
    weft__gguf_add_number(b, 3, 4);
    weft__gguf_add_number(b, s->n + lists, 8);
    const size_t count_at = b->n;
    weft__gguf_add_number(b, 0, 8); /* the number of values, below */
    weft_status status = weft__gguf_add_config(s);
    if (status == WEFT_OK) status = weft__gguf_add_vocabulary(s);
    if (status != WEFT_OK) return status;
    for (size_t k = 0; k < lists; k++)
        add_tensor(b, weft__gguf_divisor_name(s, k), WEFT_SHAPE((int64_t)divisors), 0, 4 * divisors,
                   &offset);
    for (size_t i = 0; i < s->n; i++) {
        const gguf_entry *e = &s->entries[i];
        add_tensor(b, e->name, e->shape, e->type->number, weft__gguf_tensor_bytes(e), &offset);
    }
    weft__gguf_align(b);
    for (size_t k = 0; k < lists; k++) {
        for (size_t i = 0; i < divisors; i++) weft__gguf_add_f32(b, weft__gguf_divisor(s, i));
        weft__gguf_align(b);
    }
    if (b->no_memory) return no_memory(s);
    for (int i = 0; i < 8; i++)
        b->at[count_at + (size_t)i] = (uint8_t)((uint64_t)b->values >> 8 * i);
    return WEFT_OK;
}

/* ---- Reading it again ---- */

/* Whether an item of "merges" is the pair of another one: "a b", or ["a", "b"]. */
static bool same_merge(const cJSON *x, const cJSON *y)
{
    const cJSON *pair = cJSON_IsArray(x) ? x : y, *text = cJSON_IsArray(x) ? y : x;
    if (cJSON_IsArray(x) == cJSON_IsArray(y)) return cJSON_Compare(x, y, true);
    const char *left = cJSON_GetStringValue(cJSON_GetArrayItem(pair, 0)),
               *right = cJSON_GetStringValue(cJSON_GetArrayItem(pair, 1)),
               *both = cJSON_GetStringValue(text);
    const size_t n = left ? strlen(left) : 0;
    return left && right && both && !strncmp(both, left, n) && both[n] == ' ' &&
           !strcmp(both + n + 1, right);
}

/* Compares the merges that the reader finds. A SentencePiece file has none: its reader derives them
 * from the scores. */
static weft_status check_merges(gguf_saver *s, const weft_gguf *file)
{
    if (!s->options->tokenizer_json) return WEFT_OK;
    char *text = weft_gguf_tokenizer_json(file, s->error);
    if (!text) return s->error->status;
    cJSON *wanted =
        weft__json_parse(s->options->tokenizer_json, strlen(s->options->tokenizer_json), NULL);
    cJSON *got = weft__json_parse(text, strlen(text), NULL);
    weft_status status = wanted && got ? WEFT_OK : no_memory(s);
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(wanted, "model"),
                *y = cJSON_GetObjectItemCaseSensitive(got, "model");
    x = cJSON_GetObjectItemCaseSensitive(x, "merges");
    y = cJSON_GetObjectItemCaseSensitive(y, "merges");
    x = x ? x->child : NULL;
    y = y ? y->child : NULL;
    for (; x && y && same_merge(x, y); y = y->next) x = x->next;
    if (status == WEFT_OK && (x || y))
        status = weft_error_set(s->error, WEFT_BAD_ARGUMENT, "tokenizer.json",
                                "its merges do not follow from scores of its pieces, as those of "
                                "SentencePiece in a GGUF file must");
    cJSON_Delete(wanted);
    cJSON_Delete(got);
    free(text);
    return status;
}

static weft_status check_header(gguf_saver *s)
{
    weft_model_config again;
    weft_gguf *file = weft__gguf_open_header(s->header.at, s->header.n, s->path, s->error);
    weft_status status =
        file ? weft__gguf_config(file, s->a, 0, &again, s->error) : s->error->status;
    if (status == WEFT_OK) status = weft__hf_compare(s->a->name, s->config, &again, s->error);
    if (status == WEFT_OK) status = check_merges(s, file);
    weft_gguf_close(file);
    return status;
}

/* ---- Architectures ---- */

/* Lists the tensors as files of an architecture have them, and makes and checks the header. */
static weft_status try_architecture(gguf_saver *s, const gguf_architecture *a)
{
    s->a = a;
    if (strcmp(a->model, s->config->model->name) != 0)
        return weft_error_set(s->error, WEFT_BAD_ARGUMENT, s->config->model->name,
                              "cannot be written as %s, which is a %s", a->name, a->model);
    weft_status status = weft__gguf_list_tensors(s);
    if (status == WEFT_OK) status = make_header(s);
    return status == WEFT_OK ? check_header(s) : status;
}

/* Finds the architecture that the options ask for, or from which the store was read; *wanted is NULL if
 * there is none. */
static weft_status find_wanted(gguf_saver *s, const char **wanted)
{
    *wanted = s->options->architecture;
    if (!*wanted) *wanted = weft_params_meta(s->params, WEFT_GGUF_ARCHITECTURE);
    if (*wanted) return WEFT_OK;
    json_failure why = {.no_memory = false};
    const char *text = weft_params_meta(s->params, WEFT_HUGGINGFACE_CONFIG);
    cJSON *json = text ? weft__json_parse(text, strlen(text), &why) : NULL;
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "model_type"));
    const gguf_architecture *a;
    for (size_t i = 0; found && (a = weft__gguf_architecture_at(i)); i++)
        if (!strcmp(a->name, found)) *wanted = a->name;
    cJSON_Delete(json);
    return why.no_memory ? no_memory(s) : WEFT_OK;
}

/* Chooses the architecture and makes the header. */
static weft_status choose_architecture(gguf_saver *s)
{
    const gguf_architecture *a;
    weft_error first = WEFT_NO_ERROR;
    const char *wanted;
    if (find_wanted(s, &wanted) != WEFT_OK) return WEFT_NO_MEMORY;
    for (size_t i = 0; (a = weft__gguf_architecture_at(i)); i++) {
        if (wanted ? strcmp(a->name, wanted) != 0 : strcmp(a->model, s->config->model->name) != 0)
            continue;
        if (!wanted && a->by_name) continue;
        weft_error_clear(s->error);
        const weft_status status = try_architecture(s, a);
        if (status == WEFT_OK || status == WEFT_NO_MEMORY || wanted) return status;
        if (first.status == WEFT_OK) first = *s->error;
    }
    weft_error_clear(s->error);
    if (first.status != WEFT_OK) return weft_error_copy(s->error, &first);
    return wanted ? weft_error_set(s->error, WEFT_NOT_FOUND, wanted,
                                   "is not an architecture of GGUF files that weft writes")
                  : weft_error_set(s->error, WEFT_BAD_ARGUMENT, s->config->model->name,
                                   "cannot be written as a GGUF file: no architecture of these "
                                   "computes it");
}

/* ---- The file ---- */

/* Whether a tensor of the store belongs to a parameter of the model. */
static bool is_parameter(const gguf_saver *s, const char *name)
{
    static const char *const ends[] = {"", ".q", ".scale", ".zero", ".min"};
    char ours[GGUF_NAME_BYTES];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(name), end = strlen(ends[i]);
        if (n < end || n - end >= sizeof ours || strcmp(name + n - end, ends[i]) != 0) continue;
        snprintf(ours, sizeof ours, "%.*s", (int)(n - end), name);
        if (weft_is_value(weft_graph_find(s->graph, ours))) return true;
        char *rows = i && strlen(ours) > 5 ? ours + strlen(ours) - 5 : NULL;
        if (!rows || strcmp(rows, ".rows") != 0) continue;
        *rows = 0;
        if (weft_is_value(weft_graph_find(s->graph, ours))) return true;
    }
    return false;
}

static weft_status check_store(gguf_saver *s)
{
    for (size_t i = 0; i < weft_params_count(s->params); i++)
        if (!is_parameter(s, weft_params_name(s->params, i)))
            return weft_error_set(s->error, WEFT_BAD_ARGUMENT, s->config->model->name,
                                  "has no parameter %s, which the store has",
                                  weft_params_name(s->params, i));
    return WEFT_OK;
}

static weft_status write_file(gguf_saver *s)
{
    file_writer to;
    if (!weft__file_begin(&to, s->path))
        return weft_error_set(s->error, WEFT_IO, s->path, "cannot be written: %s",
                              weft__file_error(errno));
    weft__file_write(&to, s->header.at, s->header.n);
    const weft_status status = weft__gguf_write_tensors(s, &to);
    if (status != WEFT_OK) {
        weft__file_abandon(&to);
        return status;
    }
    return weft__file_commit(&to)
               ? WEFT_OK
               : weft_error_set(s->error, WEFT_IO, s->path, "cannot be written: %s",
                                weft__file_error(errno));
}

static weft_status save(gguf_saver *s)
{
    const char *type = s->options->type;
    s->type = type ? weft__gguf_written_find(type) : NULL;
    if (type && (!s->type || !s->type->has_rule))
        return weft_error_set(s->error, WEFT_BAD_ARGUMENT, type,
                              "weft cannot round to this type; expected f32, f16, bf16, q8_0, q4_0 "
                              "or q4_1");
    if (!weft_model_traits_of(s->config).decodable || weft_model_traits_of(s->config).source_vocab)
        return weft_error_set(s->error, WEFT_BAD_ARGUMENT, s->config->model->name,
                              "is not a language model; expected gpt or llama");
    s->graph = weft__hf_graph(s->config, s->error);
    weft_status status = s->graph ? check_store(s) : s->error->status;
    if (status == WEFT_OK) status = choose_architecture(s);
    return status == WEFT_OK ? write_file(s) : status;
}

/* Gammas g of RMS norms mean 1 + g; files of llama.cpp have the sum. */
#define PLUS_ONE "gamma_plus_one"

weft_status weft_params_save_gguf(const weft_params *params, const weft_model_config *config,
                                  const char *path, const weft_save_gguf_options *options,
                                  weft_error *error)
{
    static const weft_save_gguf_options defaults;
    weft_error problem = WEFT_NO_ERROR;
    weft_error_clear(error);
    if (!params || !config || !config->model || !path || !path[0])
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs a store, a configured model and a path");
    weft_model_config written = *config;
    gguf_saver s = {.params = params, .config = &written, .path = path, .error = &problem};
    s.options = options ? options : &defaults;
    s.plus_one = !strcmp(config->model->name, "llama") && weft__gguf_option(config, PLUS_ONE) != 0;
    if (s.plus_one)
        weft_model_set_value(&written, weft__hf_option_index(config->model, PLUS_ONE), 0);
    save(&s);
    weft_graph_free(s.graph);
    free(s.entries);
    free(s.header.at);
    return weft_error_copy(error, &problem);
}
