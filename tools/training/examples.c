/* Reads JSON Lines: prompts with completions, and conversations. A line becomes a sequence of ids
 * of which only the answers are predicted. See examples.h.
 *
 * A prompt and its completion are encoded together if the ids of the prompt alone begin those of
 * both: `weft generate` reads these, and the model continues with the rest. Otherwise a piece spans
 * both, which no prompt ends with; then each is encoded on its own. */
#include "examples.h"

#include "json/tree.h"
#include "text_file.h"
#include "text/streams.h"

#include <stdlib.h>
#include <string.h>

/* Longest rows, unless the user chose others. */
#define EXAMPLE_LEN 512

static bool has_examples(const char *name)
{
    return tool_ends_with(name, ".jsonl") || tool_ends_with(name, ".jsonl.gz");
}

bool training_reads_examples(const recipe *r)
{
    return has_examples(recipe_files_name(&r->data_text));
}

bool training_check_examples(training *t)
{
    const recipe *r = &t->r;
    const bool examples = training_reads_examples(r);
    const recipe_files *const lists[] = {&r->data_text, &r->data_valid_text};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < lists[i]->n; k++) {
            const char *name = lists[i]->at[k];
            const bool is = has_examples(name);
            if (is == examples) continue;
            weft_error_set(&t->error, WEFT_BAD_ARGUMENT, name,
                           "is %s, but %s is %s: expected texts of one kind for training and "
                           "validation",
                           is ? "JSON Lines" : "plain text", r->data_text.at[0],
                           is ? "plain text" : "JSON Lines");
            return false;
        }
    if (!examples || r->vocabulary_file[0]) return true;
    return training_fail(t, WEFT_BAD_ARGUMENT, r->data_text.at[0],
                         "needs a vocabulary: that of a run (--from), or --vocab-file");
}

void training_choose_example_lengths(training *t)
{
    static const int32_t lengths[] = {32, 64, 96, 128, 192, 256, 384, EXAMPLE_LEN};
    const int64_t positions = training_traits(&t->r).max_positions;
    const int32_t longest = positions < EXAMPLE_LEN ? (int32_t)positions : EXAMPLE_LEN;
    recipe_list *list = &t->r.batches_lengths;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (lengths[i] < longest) list->at[list->n++] = lengths[i];
    list->at[list->n++] = longest;
}

/* ---- Prompts with completions ---- */

static bool encode(const training *t, const char *text, weft_encoding *e, weft_error *error)
{
    const weft_encode_input input = {.text = text};
    return weft_tokenizer_encode_input(t->vocabulary[1], &input, e, error) == WEFT_OK;
}

/* The ids of the completion, the last `n` of `e`, after those of the prompt. */
static bool join(const training *t, const weft_encoding *prompt, const weft_encoding *e, size_t n,
                 example *out, weft_error *error)
{
    size_t at = 0;
    out->ids = malloc((t->n_begins + prompt->n + n + 1) * sizeof *out->ids);
    if (!out->ids) return !weft_error_set(error, WEFT_NO_MEMORY, "example", "out of memory");
    for (size_t i = 0; i < t->n_begins; i++) out->ids[at++] = -1 - t->begins[i];
    for (size_t i = 0; i < prompt->n; i++) out->ids[at++] = -1 - prompt->ids[i];
    for (size_t i = e->n - n; i < e->n; i++) out->ids[at++] = e->ids[i];
    if (t->end >= 0) out->ids[at++] = t->end;
    out->n = at;
    return true;
}

static bool encode_pair(const training *t, const char *prompt, const char *completion, example *out,
                        weft_error *error)
{
    const size_t bytes = strlen(prompt) + strlen(completion) + 1;
    weft_encoding before = {0}, both = {0}, after = {0};
    char *text = malloc(bytes);
    if (!text) return !weft_error_set(error, WEFT_NO_MEMORY, "example", "out of memory");
    snprintf(text, bytes, "%s%s", prompt, completion);
    bool good = encode(t, prompt, &before, error) && encode(t, text, &both, error);
    const bool begins = good && before.n <= both.n &&
                        (!before.n || !memcmp(before.ids, both.ids, before.n * sizeof *both.ids));
    if (begins)
        good = join(t, &before, &both, both.n - before.n, out, error);
    else
        good = good && encode(t, completion, &after, error) &&
               join(t, &before, &after, after.n, out, error);
    weft_encoding_free(&before);
    weft_encoding_free(&both);
    weft_encoding_free(&after);
    free(text);
    return good;
}

/* ---- Lines ---- */

#define EXPECTED                                                                                   \
    "expected {\"prompt\": \"...\", \"completion\": \"...\"} or {\"messages\": [{\"role\": "       \
    "\"...\", \"content\": \"...\"}, ...]}"

typedef struct example_file {
    training *t;
    const char *path;
    weft_corpus *corpus;
    size_t line;
    conversation_reader conversations;
    bool opened; /* `conversations` */
} example_file;

/* Makes the error of a line one of the file and line. */
static bool fail_line(const example_file *f, const weft_error *why)
{
    weft_error_set(&f->t->error, why->status, f->path, "line %zu: %s", f->line, why->message);
    return false;
}

static bool encode_json(example_file *f, const cJSON *json, example *out, weft_error *error)
{
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages");
    const char *prompt = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "prompt"));
    const char *completion =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "completion"));
    if (!messages && prompt && completion) return encode_pair(f->t, prompt, completion, out, error);
    if (!cJSON_IsArray(messages)) return !weft_error_set(error, WEFT_BAD_FILE, f->path, EXPECTED);
    if (!f->opened) {
        f->opened = true;
        if (!conversation_reader_open(&f->conversations, f->t, error)) return false;
    }
    return conversation_reader_encode(&f->conversations, json, out, error);
}

static bool add_line(example_file *f, const char *line, size_t length)
{
    json_failure why = {.no_memory = false};
    weft_error error = WEFT_NO_ERROR;
    example e = {.ids = NULL};
    cJSON *json = weft_text_is_utf8(line, length) ? weft__json_parse(line, length, &why) : NULL;
    if (why.no_memory)
        weft_error_set(&error, WEFT_NO_MEMORY, f->path, "out of memory");
    else if (!weft_text_is_utf8(line, length))
        weft_error_set(&error, WEFT_BAD_FILE, f->path, "is not UTF-8");
    else if (!json)
        weft_error_set(&error, WEFT_BAD_FILE, f->path, "is not JSON, near byte %zu: " EXPECTED,
                       why.position);
    else if (encode_json(f, json, &e, &error))
        weft_corpus_add(f->corpus, NULL, 0, e.ids, e.n, &error);
    free(e.ids);
    cJSON_Delete(json);
    return error.status == WEFT_OK || fail_line(f, &error);
}

static bool is_blank(const char *line)
{
    return !line[strspn(line, " \t")];
}

/* Adds the lines; returns how many examples there were. */
static bool add_lines(example_file *f, FILE *file, size_t *examples)
{
    char *line = NULL;
    size_t capacity = 0, length, before = *examples;
    bool good = true;
    while (good && weft__text_read_line(file, &line, &capacity, &length)) {
        if (!f->line++) weft__text_skip_mark(line, &length);
        if (strlen(line) == length && is_blank(line)) continue;
        good = add_line(f, line, length);
        *examples += good;
    }
    free(line);
    return good && weft__text_at_end(file, f->path, &f->t->error) &&
           (*examples > before || training_fail(f->t, WEFT_BAD_FILE, f->path, "has no line"));
}

bool training_read_examples(training *t, const char *path, weft_corpus *corpus, size_t *examples)
{
    example_file f = {.t = t, .path = path, .corpus = corpus};
    FILE *file = stream_open(path, &t->error);
    const bool good = file && add_lines(&f, file, examples);
    stream_close(file);
    if (f.opened) conversation_reader_close(&f.conversations);
    return good;
}

void training_tell_examples(const training *t, const char *path, weft_batch_counts counts)
{
    const int32_t longest = t->batch_options.lengths[t->batch_options.n_lengths - 1];
    if (counts.cut || counts.empty)
        tool_print_line(stderr,
                        "weft: %s: %zu examples over %d tokens are cut; %zu are left out, because "
                        "their first %d tokens have no answer (--lengths)",
                        path, counts.cut, longest, counts.empty, longest);
}
