/* Ids that surround texts: those of `weft train`, or those that a published model comes with, in
 * tokenizer.json, generation_config.json and config.json. See run.h. */
#include "special.h"
#include "text/vocabulary.h"

#include "base/file.h"
#include "base/platform.h"
#include "json/tree.h"

#include <stdlib.h>
#include <string.h>

/* ---- Opening ---- */

static void add_end(trained_run *run, double id)
{
    if (!(id >= 0) || id >= (double)run->traits.vocab || run->n_ends == TRAINED_ENDS) return;
    for (size_t i = 0; i < run->n_ends; i++)
        if (run->ends[i] == (int32_t)id) return;
    run->ends[run->n_ends++] = (int32_t)id;
}

/* Adds the ids of a key, which is a number or a list of them. */
static void add_ends(trained_run *run, const cJSON *json)
{
    const cJSON *item, *ends = cJSON_GetObjectItemCaseSensitive(json, "eos_token_id");
    if (cJSON_IsNumber(ends)) add_end(run, ends->valuedouble);
    if (!cJSON_IsArray(ends)) return;
    cJSON_ArrayForEach(item, ends) if (cJSON_IsNumber(item)) add_end(run, item->valuedouble);
}

static void add_begin(trained_run *run, const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (cJSON_IsNumber(item) && item->valuedouble >= 0 &&
        item->valuedouble < (double)run->traits.vocab && run->n_begins < TRAINED_BEGINS)
        run->begins[run->n_begins++] = (int32_t)item->valuedouble;
}

/* With what a model that translates begins, as transformers has it. */
static void find_begins(trained_run *run, const cJSON *generation, const cJSON *config)
{
    static const char *const keys[] = {"decoder_start_token_id", "bos_token_id"};
    const cJSON *const files[] = {generation, config};
    for (size_t k = 0; k < 2; k++)
        for (size_t f = 0; f < 2 && !run->n_begins; f++) add_begin(run, files[f], keys[k]);
    for (size_t f = 0; f < 2 && run->n_begins == 1; f++)
        add_begin(run, files[f], "forced_bos_token_id");
}

/* *json becomes the tree of a text, which messages call `where`. */
static bool parse(const char *text, size_t bytes, const char *where, cJSON **json,
                  weft_error *error)
{
    json_failure why;
    *json = weft__json_parse(text, bytes, &why);
    if (*json) return true;
    if (why.no_memory)
        weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    else
        weft_error_set(error, WEFT_BAD_FILE, where, "is not JSON, near byte %zu", why.position);
    return false;
}

/* The JSON of generation_config.json next to the vocabulary; *json becomes NULL if there is none. */
static bool read_generation(const trained_run *run, cJSON **json, weft_error *error)
{
    static const char name[] = "generation_config.json";
    char path[FILE_PATH_BYTES];
    const char *vocabulary = run->vocabulary_path[1];
    const int folder = (int)(weft__os_name(vocabulary) - vocabulary);
    size_t bytes;
    *json = NULL;
    if (snprintf(path, sizeof path, "%.*s%s", folder, vocabulary, name) >= (int)sizeof path ||
        !weft__file_exists(path))
        return true;
    char *text = weft__file_read(path, &bytes, error);
    const bool good = text && parse(text, bytes, path, json, error);
    free(text);
    return good;
}

bool special_find(trained_run *run, weft_error *error)
{
    if (!run->published) {
        run->begins[run->n_begins++] = SPM_BOS;
        run->ends[run->n_ends++] = SPM_EOS;
        return true;
    }
    cJSON *generation = NULL, *config = NULL;
    const char *text = weft_params_meta(run->params, WEFT_HUGGINGFACE_CONFIG);
    if (!read_generation(run, &generation, error) ||
        (text && !parse(text, strlen(text), run->saved->path, &config, error))) {
        cJSON_Delete(generation);
        return false;
    }
    add_ends(run, generation);
    add_ends(run, config);
    add_end(run, weft_tokenizer_info_of(run->target).eos);
    if (run->traits.source_vocab) find_begins(run, generation, config);
    cJSON_Delete(generation);
    cJSON_Delete(config);
    if (!run->traits.source_vocab || run->n_begins) return true;
    weft_error_set(error, WEFT_NOT_FOUND, run->saved->path,
                   "no configuration has decoder_start_token_id, with which a translation begins");
    return false;
}

int32_t *trained_banned(const trained_run *run, size_t *n)
{
    if (!run->published) return vocabulary_banned(run->source, run->target, n);
    const weft_tokenizer_info info = weft_tokenizer_info_of(run->target);
    const int64_t vocab = run->traits.vocab;
    int32_t *banned =
        calloc((size_t)(vocab > info.size ? vocab - info.size : 0) + 1, sizeof *banned);
    bool ends = false;
    *n = 0;
    if (!banned) return NULL;
    for (size_t i = 0; i < run->n_ends; i++) ends |= run->ends[i] == info.pad;
    if (!ends && info.pad >= 0 && info.pad < vocab) banned[(*n)++] = info.pad;
    for (int64_t id = info.size; id < vocab; id++) banned[(*n)++] = (int32_t)id;
    return banned;
}

/* ---- Encoding ---- */

static bool no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "text", "out of memory");
    return false;
}

/* The ids of `weft train`: begin, text, end. */
static bool encode_own(const weft_tokenizer *vocabulary, const char *text, encoded_text *out,
                       weft_error *error)
{
    size_t capacity = strlen(text) + 8, found;
    for (;;) {
        out->ids = malloc((capacity + out->before + out->after) * sizeof *out->ids);
        if (!out->ids) return no_memory(error);
        if (weft_tokenizer_encode(vocabulary, text, out->ids + out->before, NULL, capacity, &found,
                                  error) != WEFT_OK)
            return false;
        if (found <= capacity) break;
        free(out->ids);
        out->ids = NULL;
        capacity = found;
    }
    if (out->before) out->ids[0] = SPM_BOS;
    if (out->after) out->ids[out->before + found] = SPM_EOS;
    out->n = out->before + found + out->after;
    return true;
}

/* Fails for an id that the model lacks. */
static bool check_ids(const trained_run *run, const weft_tokenizer *vocabulary, int64_t limit,
                      const encoded_text *text, weft_error *error)
{
    for (size_t i = 0; i < text->n; i++) {
        char piece[TOOL_NAME_BYTES];
        if (text->ids[i] < limit) continue;
        weft_error_set(error, WEFT_BAD_INDEX, run->model->name,
                       "\"%s\" has the id %d, but the model has only %lld ids",
                       tool_printable(weft_tokenizer_piece(vocabulary, text->ids[i]), piece),
                       text->ids[i], (long long)limit);
        return false;
    }
    return true;
}

/* An empty prompt of a vocabulary that puts nothing before texts. */
static bool begin_empty(const trained_run *run, encoded_text *out, weft_error *error)
{
    const int32_t bos = weft_tokenizer_info_of(run->target).bos;
    if (bos < 0 && !run->n_ends) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "prompt",
                       "is empty, and the vocabulary has no token that begins a text");
        return false;
    }
    out->ids[0] = bos >= 0 ? bos : run->ends[0];
    out->n = out->before = 1;
    return true;
}

/* Copies the ids of an encoding, after those with which a translation begins. */
static bool take(const trained_run *run, text_part part, const weft_encoding *e, encoded_text *out,
                 weft_error *error)
{
    const bool target = part == TEXT_TARGET && run->traits.source_vocab;
    const size_t begins = target ? run->n_begins : 0;
    size_t before = 0, n = e->n;
    while (n && e->sources[n - 1] < 0) n--;
    while (before < n && e->sources[before] < 0) before++;
    if (!n) /* an empty text: what surrounds it is before it */
        n = before = e->n > 1 ? e->n - 1 : e->n;
    out->after = part == TEXT_PROMPT ? 0 : e->n - n;
    out->before = begins + before;
    out->n = begins + n + out->after;
    out->ids = malloc((out->n + 1) * sizeof *out->ids);
    if (!out->ids) return no_memory(error);
    memcpy(out->ids, run->begins, begins * sizeof *out->ids);
    memcpy(out->ids + begins, e->ids, (n + out->after) * sizeof *out->ids);
    return part != TEXT_PROMPT || out->n || begin_empty(run, out, error);
}

/* The ids of a published vocabulary. */
static bool encode_published(const trained_run *run, text_part part, const char *text,
                             encoded_text *out, weft_error *error)
{
    const bool chat = part == TEXT_CHAT;
    const weft_encode_input input = {text, NULL, !chat, chat || run->parse_special};
    const bool source = part == TEXT_SOURCE;
    const weft_tokenizer *vocabulary = source ? run->source : run->target;
    weft_encoding e;
    if (weft_tokenizer_encode_input(vocabulary, &input, &e, error) != WEFT_OK) return false;
    const bool good = take(run, part, &e, out, error);
    weft_encoding_free(&e);
    return good && check_ids(run, vocabulary, source ? run->traits.source_vocab : run->traits.vocab,
                             out, error);
}

bool trained_encode(const trained_run *run, text_part part, const char *text, encoded_text *out,
                    weft_error *error)
{
    *out = (encoded_text){.before = part != TEXT_SOURCE, .after = part != TEXT_PROMPT};
    const bool good = run->published ? encode_published(run, part, text, out, error)
                                     : encode_own(part == TEXT_SOURCE ? run->source : run->target,
                                                  text, out, error);
    if (good) return true;
    free(out->ids);
    *out = (encoded_text){.ids = NULL};
    return false;
}
