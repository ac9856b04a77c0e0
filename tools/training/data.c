/* The vocabularies, texts and batches of a training. */
#include "training.h"

#include "base/file.h"
#include "text/line_numbers.h"
#include "text/streams.h"
#include "text/text_files.h"
#include "text/vocabulary.h"

#include "training/saved.h"
#include "base/platform.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The kind of batches ---- */

/* recipe's mode: auto, then those of weft_batch_mode in this order */
static const weft_batch_mode modes[] = {WEFT_BATCH_PAIRS, WEFT_BATCH_PAIRS, WEFT_BATCH_BLOCKS,
                                        WEFT_BATCH_LINES, WEFT_BATCH_MASKED};

bool training_choose_mode(training *t)
{
    const weft_model *m = t->r.model;
    weft_model_config config;
    if (weft_model_parse(m, NULL, 0, &config, &t->error) != WEFT_OK) return false;
    const weft_model_traits traits = weft_model_traits_of(&config);
    if (!traits.vocab)
        return training_fail(t, WEFT_BAD_ARGUMENT, m->name, "is not a model of tokens");
    const bool pairs = traits.source_vocab > 0;
    t->mode = pairs ? WEFT_BATCH_PAIRS : !traits.causal ? WEFT_BATCH_MASKED : WEFT_BATCH_BLOCKS;
    t->examples = !pairs && training_reads_examples(&t->r);
    if (t->examples && !traits.causal)
        return training_fail(
            t, WEFT_BAD_ARGUMENT, m->name,
            "reads no JSON Lines: they are for models that predict the next token");
    if (t->r.batches_mode == 0) {
        if (t->examples) t->mode = WEFT_BATCH_LINES;
        return true;
    }
    weft_batch_mode asked = modes[t->r.batches_mode];
    bool next_token = t->mode == WEFT_BATCH_BLOCKS && asked == WEFT_BATCH_LINES;
    if (asked != t->mode && !next_token)
        return training_fail(t, WEFT_BAD_ARGUMENT, m->name,
                             pairs            ? "needs batches of pairs"
                             : !traits.causal ? "needs batches of masked lines"
                                              : "needs batches of blocks or lines");
    t->mode = asked;
    return true;
}

static bool is_pairs(const training *t)
{
    return t->mode == WEFT_BATCH_PAIRS;
}

weft_model_config training_config(const recipe *r)
{
    weft_model_config config = {.model = NULL};
    if (weft_model_parse(r->model, (const char *const *)r->model_options, r->n_model_options,
                         &config, NULL) != WEFT_OK)
        config.model = NULL;
    return config;
}

weft_model_traits training_traits(const recipe *r)
{
    const weft_model_config config = training_config(r);
    return weft_model_traits_of(&config);
}

/* ---- Vocabularies ---- */

/* Writes the new vocabulary, unless the same one exists. A different one is not overwritten: it may
 * belong to another run. */
static bool put_vocabulary(training *t, int side, const char *data, size_t bytes)
{
    const char *path = t->vocabulary_path[side];
    if (!weft__file_exists(path)) {
        t->made_vocabulary[side] = tool_replace_file(path, data, bytes, &t->error);
        return t->made_vocabulary[side];
    }
    size_t n;
    char *there = weft__file_read(path, &n, &t->error);
    bool same = there && n == bytes && !memcmp(there, data, n);
    if (there && !same)
        training_fail(t, WEFT_BAD_ARGUMENT, path,
                      "exists already and differs from the vocabulary of this run: "
                      "choose another --out");
    free(there);
    return same;
}

void training_forget_vocabulary(training *t)
{
    for (int i = 0; i < 2; i++)
        if (t->made_vocabulary[i]) weft__os_remove(t->vocabulary_path[i]);
}

static weft_status train_vocabulary(training *t, const spm_options *o, const recipe_files *first,
                                    const recipe_files *second, char **data, size_t *bytes)
{
    size_t n = first->n, all = n + (second ? second->n : 0);
    const char **files = calloc(all, sizeof *files);
    if (!files) return weft_error_set(&t->error, WEFT_NO_MEMORY, "train", "out of memory");
    for (size_t i = 0; i < all; i++) files[i] = i < n ? first->at[i] : second->at[i - n];
    weft_status status = vocabulary_make(files, all, o, data, bytes, &t->error);
    free(files);
    return status;
}

/* Makes the vocabulary of one side from one list of texts or two, or copies the given one. */
static bool make_vocabulary(training *t, const char *given, const recipe_files *first,
                            const recipe_files *second, int side)
{
    static const char *const types[] = {"bpe", "unigram", "char"};
    char *data = NULL;
    size_t bytes;
    if (given[0]) {
        data = weft__file_read(given, &bytes, &t->error);
        weft_tokenizer *parsed = !data          ? NULL
                                 : t->published ? vocabulary_open(given, &t->error)
                                                : spm_parse(data, bytes, given, &t->error);
        const bool is_vocabulary = parsed != NULL;
        weft_tokenizer_free(parsed);
        if (!is_vocabulary) {
            free(data);
            return false;
        }
    } else {
        spm_options o = {types[t->r.vocabulary_type], (int)t->r.vocabulary_size,
                         t->mode == WEFT_BATCH_MASKED, t->r.vocabulary_normalization == 1};
        if (train_vocabulary(t, &o, first, second, &data, &bytes) != WEFT_OK) return false;
    }
    bool good = data && put_vocabulary(t, side, data, bytes);
    free(data);
    /* With it, what says how texts and conversations become ids. */
    return good && (!t->published || text_files_copy(given, t->r.run_out, &t->error));
}

/* Makes a vocabulary for each side, or one of all texts. */
static bool make_vocabularies(training *t, bool apart)
{
    const recipe *r = &t->r;
    const recipe_files *source = &r->data_source, *target = &r->data_target;
    if (!is_pairs(t)) return make_vocabulary(t, r->vocabulary_file, &r->data_text, NULL, 1);
    if (!apart) return make_vocabulary(t, r->vocabulary_file, source, target, 1);
    return make_vocabulary(t, r->vocabulary_source_file, source, NULL, 0) &&
           make_vocabulary(t, r->vocabulary_target_file, target, NULL, 1);
}

static weft_tokenizer *load_vocabulary(training *t, const char *path, bool made)
{
    if (t->published) return vocabulary_open(path, &t->error);
    weft_tokenizer *s = spm_load(path, &t->error);
    if (s && made && spm_size(s) < t->r.vocabulary_size)
        tool_print_line(stderr, "%s: the text has only %d pieces, not %lld", path, spm_size(s),
                        (long long)t->r.vocabulary_size);
    if (!s || spm_has_specials(s)) return s;
    training_fail(t, WEFT_BAD_ARGUMENT, path, "must have pad, unk, bos and eos as ids 0 to 3");
    weft_tokenizer_free(s);
    return NULL;
}

/* Records the hashes of the vocabularies in checkpoints, or compares with those recorded. */
static bool note_vocabulary(training *t, const char *source, const char *target)
{
    char text[VOCABULARY_TEXT];
    if (weft_params_meta(t->params, "vocabulary"))
        return weft__vocabulary_check(t->params, source, target,
                                      t->validate ? t->validate : t->model_path,
                                      &t->error) == WEFT_OK;
    if (weft__vocabulary_text(source, target, text, &t->error) != WEFT_OK) return false;
    return weft_params_set_meta(t->params, "vocabulary", text, NULL) == WEFT_OK ||
           training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
}

/* Texts are read at least twice; pipes can be read only once. */
static bool keep_streams(training *t)
{
    const recipe *r = &t->r;
    const recipe_files *const lists[] = {&r->data_source,       &r->data_target,
                                         &r->data_text,         &r->data_valid_source,
                                         &r->data_valid_target, &r->data_valid_text};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t k = 0; k < lists[i]->n; k++)
            if (stream_keep(lists[i]->at[k], &t->error) != WEFT_OK) return false;
    return true;
}

/* What a published vocabulary puts before each text, and the token that ends it. */
static bool find_surroundings(training *t)
{
    const weft_encode_input input = {.text = "a", .add_special = true};
    weft_encoding e;
    t->end = weft_tokenizer_info_of(t->vocabulary[1]).eos;
    if (weft_tokenizer_encode_input(t->vocabulary[1], &input, &e, &t->error) != WEFT_OK)
        return false;
    while (t->n_begins < e.n && e.sources[t->n_begins] < 0) t->n_begins++;
    t->begins = malloc((t->n_begins + 1) * sizeof *t->begins);
    if (t->begins) memcpy(t->begins, e.ids, t->n_begins * sizeof *t->begins);
    weft_encoding_free(&e);
    return t->begins || training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
}

/* The same of a SentencePiece vocabulary, for examples. */
static bool set_surroundings(training *t)
{
    t->begins = malloc(sizeof *t->begins);
    if (!t->begins) return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    t->begins[t->n_begins++] = SPM_BOS;
    t->end = SPM_EOS;
    return true;
}

bool training_vocabularies(training *t, bool make)
{
    const recipe *r = &t->r;
    bool apart = is_pairs(t) && (!r->vocabulary_shared || r->vocabulary_source_file[0] ||
                                 r->vocabulary_target_file[0]);
    if (!keep_streams(t)) return false;
    if (apart && training_traits(r).tied)
        return training_fail(t, WEFT_BAD_ARGUMENT, r->model->name,
                             "two vocabularies need two embedding tables: tied=0");
    char(*paths)[4096] = t->vocabulary_path;
    if (apart && (!training_path(t, paths[0], sizeof *paths, "vocab.source.model") ||
                  !training_path(t, paths[1], sizeof *paths, "vocab.target.model")))
        return false;
    t->published = vocabulary_is_json(r->vocabulary_file);
    if (t->published && (apart || is_pairs(t) || t->mode == WEFT_BATCH_MASKED))
        return training_fail(t, WEFT_BAD_ARGUMENT, r->vocabulary_file,
                             "such a vocabulary is for models that predict the next token");
    if (!apart &&
        !training_path(t, paths[1], sizeof *paths, t->published ? "tokenizer.json" : "vocab.model"))
        return false;
    if (make && !make_vocabularies(t, apart)) return false;
    if (!note_vocabulary(t, apart ? paths[0] : NULL, paths[1])) return false;
    if (!(t->vocabulary[1] = load_vocabulary(
              t, paths[1], make && !(apart ? r->vocabulary_target_file : r->vocabulary_file)[0])))
        return false;
    t->vocabulary[0] = apart ? load_vocabulary(t, paths[0], make && !r->vocabulary_source_file[0])
                             : t->vocabulary[1];
    if (!t->vocabulary[0]) return false;
    if (t->published) return find_surroundings(t);
    if (weft_tokenizer_find(t->vocabulary[1], SPM_MASK, &t->mask, &t->error) != WEFT_OK)
        return false;
    if (t->mask < 0) t->mask = SPM_UNK;
    if (t->mode == WEFT_BATCH_MASKED && t->mask == SPM_UNK)
        return training_fail(t, WEFT_BAD_ARGUMENT, paths[1], "has no piece " SPM_MASK);
    return !t->examples || set_surroundings(t);
}

static bool has_model_option(const recipe *r, const char *begin)
{
    for (size_t i = 0; i < r->n_model_options; i++)
        if (!strncmp(r->model_options[i], begin, strlen(begin))) return true;
    return false;
}

int64_t training_vocab_size(const training *t)
{
    int source = spm_size(t->vocabulary[0]), target = spm_size(t->vocabulary[1]);
    const int64_t has = t->published ? training_traits(&t->r).vocab : 0;
    if (has > target && has_model_option(&t->r, "vocab=")) return has;
    return source > target ? source : target;
}

/* ---- Texts ---- */

void training_choose_lengths(training *t)
{
    static const recipe_list lines = {{16, 24, 32, 40, 48, 64, 96}, 7};
    recipe_list *list = &t->r.batches_lengths;
    if (list->n) return;
    if (t->mode == WEFT_BATCH_LINES && t->examples) {
        training_choose_example_lengths(t);
        return;
    }
    *list = lines;
    if (t->mode != WEFT_BATCH_BLOCKS) return;
    list->n = 1;
    list->at[0] = (int32_t)training_config(&t->r).build.shape.target_len;
}

static void set_batch_options(training *t)
{
    const recipe *r = &t->r;
    weft_batch_options *o = &t->batch_options;
    *o = (weft_batch_options){.mode = t->mode,
                              .tokens = r->batches_tokens,
                              .n_lengths = r->batches_lengths.n,
                              .truncate = r->batches_truncate,
                              .pad = SPM_PAD,
                              .bos = SPM_BOS,
                              .eos = SPM_EOS,
                              .mask = t->mask,
                              .first_id = SPM_EOS + 1,
                              .vocab = training_vocab_size(t),
                              .mask_fraction = r->batches_mask_share,
                              .seed = (uint64_t)r->run_seed};
    memcpy(o->lengths, r->batches_lengths.at, sizeof o->lengths);
    if (!t->published && !t->examples) return;
    o->whole = true;
    o->truncate |= t->examples;
    o->bos = 0;
    o->pad = TRAINING_NO_LABEL;
}

/* Maximum tokens of a line that has a row of its own; no limit for blocks. */
static size_t max_line(const training *t)
{
    const weft_batch_options *o = &t->batch_options;
    return t->mode == WEFT_BATCH_BLOCKS ? SIZE_MAX : (size_t)o->lengths[o->n_lengths - 1] - 1;
}

double training_bits_per_character(const training *t, double nll)
{
    weft_batch_counts c = weft_batches_counts(t->valid);
    bool next_token = t->mode == WEFT_BATCH_BLOCKS || t->mode == WEFT_BATCH_LINES;
    bool all = !t->r.run_valid_batches || (size_t)t->r.run_valid_batches >= c.batches;
    if (!next_token || !all || c.cut || !t->valid_characters) return NAN;
    return nll * (double)c.tokens / (double)t->valid_characters / log(2);
}

/* Reports which lines of a file, or of a pair, were left out because they are not UTF-8. */
static void tell_invalid(const char *path, const weft_text_counts *counts)
{
    char list[LINE_NUMBERS_TEXT];
    if (counts->invalid.n)
        tool_print_line(stderr, "weft: %s: left out, not UTF-8: %s", path,
                        line_numbers_text(&counts->invalid, list));
}

typedef struct text_reading {
    const training *t;
    weft_corpus *corpus;
} text_reading;

/* Adds a text of a published vocabulary, with what surrounds it. */
static weft_status add_surrounded(const text_reading *r, const int32_t *ids, size_t n)
{
    const training *t = r->t;
    int32_t *all = malloc((t->n_begins + n + 1) * sizeof *all);
    if (!all) return WEFT_NO_MEMORY;
    size_t length = t->n_begins;
    memcpy(all, t->begins, length * sizeof *all);
    memcpy(all + length, ids, n * sizeof *all);
    length += n;
    if (t->end >= 0) all[length++] = t->end;
    const weft_status status = weft_corpus_add(r->corpus, NULL, 0, all, n ? length : 0, NULL);
    free(all);
    return status;
}

static weft_status add_pair(void *reading, const int32_t *source, size_t n_source,
                            const int32_t *target, size_t n_target)
{
    const text_reading *r = reading;
    if (r->t->published) return add_surrounded(r, target, n_target);
    return weft_corpus_add(r->corpus, source, n_source, target, n_target, NULL);
}

/* Adds a file, or a pair of files, to the corpus. */
static bool read_text(training *t, const char *source, const char *target, weft_corpus *corpus,
                      weft_text_counts *all)
{
    weft_text_counts counts;
    text_reading reading = {t, corpus};
    weft_text_files files = {{.path = source, .tokenizer = t->vocabulary[0]},
                             {.path = target, .tokenizer = t->vocabulary[1]},
                             .unit = t->r.data_unit,
                             .max_tokens = max_line(t)};
    bool good = (!source || (files.source.file = stream_open(source, &t->error))) &&
                (files.target.file = stream_open(target, &t->error)) &&
                weft_text_read(&files, add_pair, &reading, &counts, &t->error) == WEFT_OK;
    stream_close(files.source.file);
    stream_close(files.target.file);
    if (!good) return false;
    tell_invalid(target, &counts);
    all->units += counts.units;
    all->invalid.n += counts.invalid.n;
    all->characters += counts.characters;
    return true;
}

static bool read_texts(training *t, const recipe_files *sources, const recipe_files *targets,
                       weft_corpus **corpus, weft_batches **batches, size_t *characters)
{
    weft_text_counts counts = {0};
    const char *target = targets->at[0];
    char others[32] = "";
    *corpus = weft_corpus_new();
    if (!*corpus) return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    for (size_t i = 0; i < targets->n; i++)
        if (!(t->examples ? training_read_examples(t, targets->at[i], *corpus, &counts.units)
                          : read_text(t, is_pairs(t) ? sources->at[i] : NULL, targets->at[i],
                                      *corpus, &counts)))
            return false;
    if (targets->n > 1) snprintf(others, sizeof others, " and %zu more", targets->n - 1);
    *characters = counts.characters;
    weft_error error;
    *batches = weft_batches_new(*corpus, &t->batch_options, &error);
    if (!*batches) return training_fail(t, error.status, target, error.message);
    weft_batch_counts c = weft_batches_counts(*batches);
    if (t->examples) {
        tool_print_line(stderr, "%s%s: %zu examples, %zu tokens of answers, %zu batches", target,
                        others, counts.units, c.tokens, c.batches);
        training_tell_examples(t, target, c);
        return true;
    }
    const char *what = is_pairs(t) ? "pairs" : t->r.data_unit ? "documents" : "lines";
    tool_print_line(
        stderr,
        "%s%s: %zu %s, %zu target tokens, %zu batches; left out: %zu empty, %zu not UTF-8, %zu "
        "over %d tokens; cut: %zu",
        target, others, counts.units, what, c.tokens, c.batches, c.empty, counts.invalid.n,
        c.left_out, t->batch_options.lengths[t->batch_options.n_lengths - 1], c.cut);
    return true;
}

static const char *measure_name(int best_by)
{
    static const char *const names[] = {"loss", "bleu", "accuracy"}; /* as RECIPE_BEST */
    return names[best_by];
}

/* The file whose hash differs from that of the checkpoint. */
static const char *other_file(const training *t, bool source)
{
    const recipe *r = &t->r;
    if (r->fits) return source ? recipe_files_name(&r->fit_valid_x) : r->fit_valid_y;
    return recipe_files_name(source        ? &r->data_valid_source
                             : is_pairs(t) ? &r->data_valid_target
                                           : &r->data_valid_text);
}

/* The best validation so far and the patience depend on one text and one measure. */
bool training_note_validation(training *t, weft_data_hashes h)
{
    char text[80], measure[24] = "";
    const char *was = weft_params_meta(t->params, "train.valid");
    if (t->r.run_best_by)
        snprintf(measure, sizeof measure, " best=%s", measure_name(t->r.run_best_by));
    snprintf(text, sizeof text, "source=%016" PRIx64 " target=%016" PRIx64 "%s", h.source, h.target,
             measure);
    size_t hashes = strcspn(text, " ") + 1;
    hashes += strcspn(text + hashes, " ");
    if (was && strcmp(was, text) != 0 && !strncmp(was, text, hashes) && !t->validate) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->model_path,
                       "its best validation was chosen by %s, and --best-by cannot change that",
                       was[hashes] ? was + hashes + strlen(" best=") : "loss");
        return false;
    }
    if (was && strncmp(was, text, hashes) != 0) {
        bool source = strncmp(was, text, strcspn(text, " ")) != 0;
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->model_path,
                       "was validated on a text other than %s", other_file(t, source));
        return false;
    }
    return weft_params_set_meta(t->params, "train.valid", text, NULL) == WEFT_OK ||
           training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
}

bool training_texts(training *t)
{
    const recipe *r = &t->r;
    bool pairs = is_pairs(t);
    size_t characters;
    const recipe_files *valid = pairs ? &r->data_valid_target : &r->data_valid_text;
    set_batch_options(t);
    if (!read_texts(t, &r->data_source, pairs ? &r->data_target : &r->data_text, &t->train_text,
                    &t->train, &characters))
        return false;
    return !valid->n || read_texts(t, &r->data_valid_source, valid, &t->valid_text, &t->valid,
                                   &t->valid_characters);
}
