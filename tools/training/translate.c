/* Translates the first sentences of the validation text at each validation, for BLEU, chrF and
 * samples. Uses greedy search, in batches of sources of similar length. */
#include "text/streams.h"
#include "text/vocabulary.h"
#include "training.h"

#include "decoding/share.h"

#include <weft/decode.h>

#include "text_file.h"

#include <stdlib.h>
#include <string.h>

/* Sentences at a time. */
#define ROWS 16

typedef struct translating {
    training *t;
    weft_decoder *decoder;
    weft_search_options options;
    int32_t *banned;
} translating;

static bool no_memory(training *t)
{
    return training_fail(t, WEFT_NO_MEMORY, "validation", "out of memory");
}

/* ---- The sentences ---- */

/* Adds a pair of lines, unless one is empty or not UTF-8. */
static bool take_pair(training *t, const char *const lines[2], const size_t lengths[2])
{
    size_t room = (size_t)t->r.batches_lengths.at[t->r.batches_lengths.n - 1], n;
    for (int i = 0; i < 2; i++)
        if (!lengths[i] || !weft_text_is_utf8(lines[i], lengths[i])) return true;
    training_sentence *s = &t->sentences[t->n_sentences];
    *s = (training_sentence){.source = strdup(lines[0]),
                             .reference = strdup(lines[1]),
                             .ids = calloc(room, sizeof *s->ids),
                             .number = t->n_sentences};
    t->n_sentences++;
    if (!s->source || !s->reference || !s->ids) return no_memory(t);
    if (weft_tokenizer_encode(t->vocabulary[0], s->source, s->ids, NULL, room - 1, &n, &t->error) !=
        WEFT_OK)
        return false;
    s->n_ids = (n < room ? n : room - 1) + 1;
    s->ids[s->n_ids - 1] = SPM_EOS;
    return true;
}

static bool read_pairs(training *t, const char *const paths[2], size_t max)
{
    FILE *files[2] = {stream_open(paths[0], &t->error), NULL};
    char *lines[2] = {NULL, NULL};
    size_t capacity[2] = {0, 0}, lengths[2];
    if (files[0]) files[1] = stream_open(paths[1], &t->error);
    bool good = files[0] && files[1];
    while (good && t->n_sentences < max) {
        bool there = true;
        for (int i = 0; i < 2; i++)
            there = there && weft__text_read_line(files[i], &lines[i], &capacity[i], &lengths[i]);
        if (!there) break;
        good = take_pair(t, (const char *const *)lines, lengths);
    }
    for (int i = 0; i < 2; i++) {
        stream_close(files[i]);
        free(lines[i]);
    }
    return good;
}

bool training_read_sentences(training *t)
{
    const recipe *r = &t->r;
    size_t max = (size_t)r->run_valid_bleu;
    if (!max) return true;
    t->sentences = calloc(max, sizeof *t->sentences);
    if (!t->sentences) return no_memory(t);
    for (size_t i = 0; i < r->data_valid_source.n && t->n_sentences < max; i++)
        if (!read_pairs(t, (const char *[]){r->data_valid_source.at[i], r->data_valid_target.at[i]},
                        max))
            return false;
    return true;
}

void training_free_sentences(training *t)
{
    for (size_t i = 0; i < t->n_sentences; i++) {
        training_sentence *s = &t->sentences[i];
        free(s->source);
        free(s->reference);
        free(s->ids);
        free(s->translation);
    }
    free(t->sentences);
}

/* ---- Translating ---- */

static bool set_options(translating *x)
{
    weft_search_options *o = &x->options;
    *o = (weft_search_options){.eos = SPM_EOS, .has_eos = true};
    x->banned = vocabulary_banned(x->t->vocabulary[0], x->t->vocabulary[1], &o->n_banned);
    o->banned = x->banned;
    return x->banned || no_memory(x->t);
}

/* Maximum tokens of a translation, as in `weft translate`. */
static int64_t max_tokens(const training_sentence *s, int64_t positions)
{
    int64_t max = 2 * (int64_t)s->n_ids + 10;
    return max < positions ? max : positions;
}

static bool open_decoder(translating *x)
{
    training *t = x->t;
    const recipe *r = &t->r;
    int64_t source = r->batches_lengths.at[r->batches_lengths.n - 1];
    const weft_params *params = weft_trainer_model(t->trainer, &t->error);
    if (!params) return false;
    int64_t positions = weft_model_traits_of(&t->config).max_positions;
    if (positions > 2 * source + 10) positions = 2 * source + 10;
    weft_decoder_options o = {.sentences = ROWS,
                              .max_len = positions,
                              .max_source_len = source,
                              .session.threads = (int)r->run_threads};
    x->decoder = weft_decoder_new(&t->config, params, &o, &t->error);
    return x->decoder != NULL;
}

static bool translate_batch(translating *x, training_sentence *const *batch, size_t n)
{
    static const int32_t begin = SPM_BOS;
    training *t = x->t;
    const int32_t *sources[ROWS];
    size_t lengths[ROWS];
    weft_search_input inputs[ROWS];
    weft_search_model model = weft_decoder_search_model(x->decoder);
    for (size_t i = 0; i < n; i++) {
        sources[i] = batch[i]->ids;
        lengths[i] = batch[i]->n_ids;
        inputs[i] = (weft_search_input){&begin, 1, max_tokens(batch[i], model.max_len), 0};
    }
    if (weft_decoder_start(x->decoder, sources, lengths, n, &t->error) != WEFT_OK) return false;
    weft_search_result *r = weft_search_greedy(&model, inputs, n, &x->options, &t->error);
    bool good = r != NULL;
    for (size_t i = 0; good && i < n; i++) {
        const weft_hypothesis *h = &r->hypotheses[r->first[i]];
        free(batch[i]->translation);
        good = weft_tokenizer_decode(t->vocabulary[1], h->tokens, h->length, &batch[i]->translation,
                                     NULL, &t->error) == WEFT_OK;
        if (good) weft_text_clean(batch[i]->translation, false);
    }
    weft_search_result_free(r);
    return good;
}

/* Shorter sentences first, equal ones in order. */
static int by_length(const void *a, const void *b)
{
    const training_sentence *x = *(training_sentence *const *)a,
                            *y = *(training_sentence *const *)b;
    if (x->n_ids != y->n_ids) return x->n_ids < y->n_ids ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Translates batches of sentences of one padded length: each process translates every world-size-th
 * batch. */
static bool translate_own(translating *x, training_sentence **sorted, size_t n)
{
    const weft_communicator *world = tool_world();
    const size_t size = world ? (size_t)world->size : 1, rank = world ? (size_t)world->rank : 0;
    bool good = true;
    for (size_t i = 0, end, batch = 0; good && i < n; i = end, batch++) {
        int64_t padded = weft_decoder_padded(x->decoder, (int64_t)sorted[i]->n_ids);
        for (end = i + 1; end < n && end - i < ROWS; end++)
            if (weft_decoder_padded(x->decoder, (int64_t)sorted[end]->n_ids) != padded) break;
        for (size_t k = i; k < end; k++) sorted[k]->rank = (int)(batch % size);
        if (batch % size == rank) good = translate_batch(x, sorted + i, end - i);
    }
    return good;
}

/* The translations of this process, in the order of the sentences, with their zeros. The caller
 * frees them; NULL if out of memory. */
static char *own_translations(const training *t, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < t->n_sentences; i++)
        if (t->sentences[i].rank == tool_world()->rank)
            *bytes += strlen(t->sentences[i].translation) + 1;
    char *text = malloc(*bytes + 1), *at = text;
    for (size_t i = 0; text && i < t->n_sentences; i++)
        if (t->sentences[i].rank == tool_world()->rank) {
            const size_t n = strlen(t->sentences[i].translation) + 1;
            memcpy(at, t->sentences[i].translation, n);
            at += n;
        }
    return text;
}

/* Gives every process the translations of all. */
static bool share_translations(training *t)
{
    size_t bytes;
    char *text = own_translations(t, &bytes), *at;
    if (!text) no_memory(t);
    bool good = share_text(&text, &bytes, true, &t->error);
    at = text;
    for (int r = 0; good && r < tool_world()->size; r++)
        for (size_t i = 0; good && i < t->n_sentences; i++) {
            training_sentence *s = &t->sentences[i];
            if (s->rank != r) continue;
            char *translation = strdup(at);
            at += strlen(at) + 1;
            free(s->translation);
            s->translation = translation;
            good = translation || no_memory(t);
        }
    free(text);
    return good;
}

static bool translate_all(translating *x)
{
    training *t = x->t;
    size_t n = t->n_sentences;
    training_sentence **sorted = calloc(n + 1, sizeof *sorted);
    bool good = sorted || no_memory(t);
    for (size_t i = 0; good && i < n; i++) sorted[i] = &t->sentences[i];
    if (good) qsort(sorted, n, sizeof *sorted, by_length);
    good = good && translate_own(x, sorted, n);
    free(sorted);
    return tool_world() ? training_agree(t, good) && share_translations(t) : good;
}

static bool score(training *t, training_scores *scores)
{
    weft_bleu of_words = {0};
    weft_chrf of_characters = {.words = 0};
    for (size_t i = 0; i < t->n_sentences; i++) {
        const training_sentence *s = &t->sentences[i];
        const char *reference = s->reference;
        if (weft_bleu_add(&of_words, s->translation, &reference, 1, &t->error) != WEFT_OK ||
            weft_chrf_add(&of_characters, s->translation, &reference, 1, &t->error) != WEFT_OK)
            return false;
    }
    scores->bleu = weft_bleu_score(&of_words).score;
    scores->chrf = weft_chrf_score(&of_characters);
    return true;
}

bool training_translate(training *t, training_scores *scores)
{
    translating x = {.t = t};
    bool good = set_options(&x) && open_decoder(&x) && translate_all(&x) && score(t, scores);
    weft_decoder_free(x.decoder);
    free(x.banned);
    return good;
}
