/* Attention maps of a run that translates: the weights of each decoder layer and head over the
 * source's tokens, for greedy translations of the first sentences of the validation text, as `weft
 * translate --attention` computes them. A run without such a text, checkpoint or attention has
 * none.
 */
#include "report.h"

#include "decoding/decoding.h"
#include "text/streams.h"
#include "text_file.h"
#include "system.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SENTENCES  3
#define MAX_TOKENS 48 /* of a source; longer ones are passed over, their maps could not be read */
#define MAX_MAPS   64 /* layers times heads */

/* A sentence and its translation. */
typedef struct sentence {
    text_line line;  /* the source */
    int32_t *tokens; /* of the translation, after the begin token, with its end; or NULL */
    size_t n;        /* with the begin token */
} sentence;

typedef struct maps {
    decoding d;
    sentence at[SENTENCES];
    size_t n;
    int threads;
} maps;

static bool no_memory(maps *m)
{
    return decoding_fail(&m->d, WEFT_NO_MEMORY, "attention", "out of memory");
}

/* ---- Sentences ---- */

/* The first validation text of the recipe, of sources; NULL if there is none. */
static const char *source_text(const cJSON *recipe)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(recipe, "data");
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(data, "valid_source");
    if (cJSON_IsArray(files)) files = cJSON_GetArrayItem(files, 0);
    return cJSON_IsString(files) && files->valuestring[0] ? files->valuestring : NULL;
}

/* Takes a line, if it is a sentence of a good length. */
static bool take_line(maps *m, const char *text, size_t length)
{
    size_t whole;
    sentence *s = &m->at[m->n];
    if (!length || !weft_text_is_utf8(text, length)) return true;
    *s = (sentence){.line.text = strdup(text)};
    if (!s->line.text) return no_memory(m);
    const bool good =
        text_line_encode(&s->line, &m->d.run, TEXT_SOURCE, MAX_TOKENS, &whole, &m->d.error);
    if (good && whole <= MAX_TOKENS && s->line.n_ids > 1) {
        m->n++;
        return true;
    }
    free(s->line.text);
    free(s->line.ids);
    *s = (sentence){.n = 0};
    return good;
}

static bool read_sentences(maps *m, const char *path)
{
    char *text = NULL;
    size_t capacity = 0, length;
    FILE *file = stream_open(path, &m->d.error);
    bool good = file != NULL;
    while (good && m->n < SENTENCES && weft__text_read_line(file, &text, &capacity, &length))
        good = take_line(m, text, length);
    free(text);
    stream_close(file);
    return good;
}

/* ---- Translations ---- */

static bool translate(maps *m, sentence *s)
{
    static const int32_t begin = SPM_BOS;
    const int32_t *source = s->line.ids;
    const int64_t wanted = 2 * (int64_t)s->line.n_ids + 10;
    const weft_search_input input = {&begin, 1, wanted < m->d.max_len ? wanted : m->d.max_len, 0};
    if (!decoding_start(&m->d, false, &source, &s->line.n_ids, 1)) return false;
    weft_search_result *r = decoding_search(&m->d, false, &input, 1, NULL, NULL);
    if (!r) return false;
    const weft_hypothesis *h = &r->hypotheses[r->first[0]];
    s->tokens = calloc(h->length + 2, sizeof *s->tokens);
    if (s->tokens) {
        s->tokens[0] = SPM_BOS;
        if (h->length) memcpy(s->tokens + 1, h->tokens, h->length * sizeof *s->tokens);
        s->n = h->length + 1;
        if (h->ended) s->tokens[s->n++] = SPM_EOS;
    }
    weft_search_result_free(r);
    return s->tokens || no_memory(m);
}

/* ---- Maps ---- */

static cJSON *pieces(const weft_tokenizer *vocabulary, const int32_t *ids, size_t n)
{
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < n; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(weft_tokenizer_piece(vocabulary, ids[i])));
    return list;
}

/* The map of a layer, without heads yet. */
static cJSON *add_map(const maps *m, const sentence *s, int64_t layer, cJSON *attention)
{
    char name[64];
    cJSON *map = cJSON_CreateObject();
    snprintf(name, sizeof name, "dec.%lld.cross", (long long)layer - 1);
    cJSON_AddStringToObject(map, "name", name);
    cJSON_AddItemToObject(map, "source", pieces(m->d.run.source, s->line.ids, s->line.n_ids));
    cJSON_AddItemToObject(map, "target", pieces(m->d.run.target, s->tokens + 1, s->n - 1));
    cJSON_AddArrayToObject(map, "heads");
    cJSON_AddItemToArray(attention, map);
    return map;
}

static void add_head(const sentence *s, const double *weights, cJSON *map)
{
    cJSON *head = cJSON_CreateArray();
    for (size_t i = 0; i + 1 < s->n; i++) {
        cJSON *row = cJSON_CreateArray();
        for (size_t k = 0; k < s->line.n_ids; k++)
            cJSON_AddItemToArray(
                row, cJSON_CreateNumber(round(1e4 * weights[i * s->line.n_ids + k]) / 1e4));
        cJSON_AddItemToArray(head, row);
    }
    cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(map, "heads"), head);
}

/* Adds the weights of a head of all sentences to their maps, which the first head makes. Fails
 * where the model has no such layer or head. */
static bool add_weights(maps *m, int64_t layer, int64_t head, cJSON *to[SENTENCES],
                        cJSON *attention)
{
    weft_scorer_row rows[SENTENCES] = {{.source = NULL}};
    const weft_scorer_options o = {
        .session.threads = m->threads, .weights = true, .layer = layer, .head = head};
    bool good = true;
    for (size_t i = 0; i < m->n; i++) {
        const sentence *s = &m->at[i];
        rows[i] = (weft_scorer_row){s->line.ids, s->line.n_ids, s->tokens, s->n,
                                    calloc(s->n * s->line.n_ids, sizeof(double))};
        if (!rows[i].scores) good = no_memory(m);
    }
    weft_scorer *scorer =
        good ? weft_scorer_new(&m->d.run.config, m->d.run.params, &o, &m->d.error) : NULL;
    good = scorer && weft_scorer_run(scorer, rows, m->n, &m->d.error) == WEFT_OK;
    for (size_t i = 0; i < m->n; i++) {
        if (good && head == 1) to[i] = add_map(m, &m->at[i], layer, attention);
        if (good) add_head(&m->at[i], rows[i].scores, to[i]);
        free(rows[i].scores);
    }
    weft_scorer_free(scorer);
    return good;
}

/* The first layer or head that is missing ends the list. */
static void add_maps(maps *m, cJSON *attention)
{
    cJSON *to[SENTENCES];
    int64_t head = 2;
    const bool terminal = system_is_terminal(stderr);
    for (int64_t layer = 1, n = 0; head > 1 && n < MAX_MAPS; layer++) {
        if (m->d.error.status == WEFT_NO_MEMORY) break;
        m->d.error = WEFT_NO_ERROR;
        if (terminal) fprintf(stderr, "\r\033[Kattention weights of layer %lld", (long long)layer);
        for (head = 1; n < MAX_MAPS && add_weights(m, layer, head, to, attention); head++) n++;
    }
    if (terminal) fputs("\r\033[K", stderr);
}

/* Adds the maps, which are freed. */
static weft_status add_json(weft_report *report, cJSON *attention, weft_error *error)
{
    const bool any = cJSON_GetArraySize(attention) > 0;
    char *text = tool_json_text(attention, false);
    if (!text) return weft_error_set(error, WEFT_NO_MEMORY, "attention", "out of memory");
    const weft_status status =
        any ? weft_report_add_json(report, "run.attention", text, error) : WEFT_OK;
    cJSON_free(text);
    return status;
}

weft_status report_add_attention(weft_report *report, const char *folder, const cJSON *recipe,
                                 int threads, weft_error *error)
{
    const decoding_args a = {
        .folder = folder, .threads = threads, .batch = 1, .sampling = SAMPLING_DEFAULT};
    maps m = {.threads = threads};
    const char *path = source_text(recipe);
    weft_status status = WEFT_OK;
    if (!path) return WEFT_OK;
    bool good = decoding_open(&m.d, &a, 1, 2 * MAX_TOKENS + 10, MAX_TOKENS) &&
                weft_decoder_info_of(m.d.decoder).has_source && read_sentences(&m, path);
    m.d.options.nbest = 1;
    for (size_t i = 0; good && i < m.n; i++) good = translate(&m, &m.at[i]);
    if (good && m.n) {
        cJSON *attention = cJSON_CreateArray();
        add_maps(&m, attention);
        status = add_json(report, attention, error);
    }
    for (size_t i = 0; i < m.n; i++) {
        free(m.at[i].line.text);
        free(m.at[i].line.ids);
        free(m.at[i].tokens);
    }
    const bool lost = m.d.error.status == WEFT_NO_MEMORY;
    decoding_close(&m.d);
    return lost ? weft_error_set(error, WEFT_NO_MEMORY, folder, "out of memory") : status;
}
