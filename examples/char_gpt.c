/* A GPT of characters: trains a small Transformer decoder (Vaswani et al. 2017; Radford et al.
 * 2018) on a text file, byte by byte, and writes some text of its own. Model (`gpt`), batches,
 * trainer and decoder are the library's; the vocabulary is the bytes of the file.
 *
 *     cc char_gpt.c $(pkg-config --cflags --libs weft-models) -lm -o char_gpt
 *     ./char_gpt [FILE]
 *
 * FILE has at least 100 lines; without it, the program reads the Bible of weft's source tree, and
 * must be started there. Prints the loss on every tenth line, which is not trained on, in nats a
 * byte, the loss of bytes without context, and the lines that it writes. The exit status is 1
 * unless the loss is at least 30 % below that of bytes without context. */
#include <weft/decode.h>
#include <weft/train.h>
#include <weft/weft.h>

#include <stdio.h>
#include <string.h>

enum { PAD, BOS, EOS, FIRST, VOCAB = FIRST + 256, LENGTH = 64, STEPS = 500, LINES = 4 };

/* Each line of the file is a sequence; every tenth line is left for validation. */
static bool read_text(const char *path, weft_corpus *corpus, weft_corpus *valid)
{
    FILE *file = fopen(path, "rb");
    if (!file) return perror(path), false;
    int32_t ids[4096];
    size_t n = 0, line = 0;
    bool good = true;
    for (int c = getc(file); good && c != EOF; c = getc(file)) {
        if (c != '\n') ids[n++] = FIRST + c;
        if (c != '\n' && n < sizeof ids / sizeof *ids) continue;
        if (n)
            good = weft_corpus_add(line++ % 10 ? corpus : valid, NULL, 0, ids, n, NULL) == WEFT_OK;
        n = 0;
    }
    if (!good || ferror(file) || line < 100)
        fprintf(stderr, "%s: expected a text of at least 100 lines\n", path), good = false;
    fclose(file);
    return good;
}

static weft_batches *make_batches(const weft_corpus *corpus, weft_error *error)
{
    weft_batch_options options = WEFT_DEFAULTS(weft_batch_options);
    options.mode = WEFT_BATCH_BLOCKS; /* all lines concatenated, cut into rows of one length */
    options.tokens = 8 * LENGTH;
    options.lengths[0] = LENGTH;
    options.n_lengths = 1;
    options.pad = PAD;
    options.bos = BOS;
    options.eos = EOS;
    options.vocab = VOCAB;
    options.seed = 1;
    return weft_batches_new(corpus, &options, error);
}

/* Writes LINES lines, at most as long as the rows of the training, among the ten likeliest bytes at
 * each step. */
static bool write_lines(const weft_model_config *model, const weft_params *params,
                        weft_error *error)
{
    static const int32_t prompt[] = {BOS}, banned[] = {PAD, BOS};
    weft_decoder_options sizes = WEFT_DEFAULTS(weft_decoder_options);
    sizes.sentences = LINES;
    weft_decoder *decoder = weft_decoder_new(model, params, &sizes, error);
    if (!decoder) return false;
    weft_search_input inputs[LINES];
    for (int i = 0; i < LINES; i++) {
        const weft_search_input input = {prompt, 1, LENGTH - 1, (uint64_t)i};
        inputs[i] = input;
    }
    weft_search_options options = WEFT_DEFAULTS(weft_search_options);
    options.eos = EOS;
    options.has_eos = true;
    options.banned = banned;
    options.n_banned = 2;
    options.temperature = 0.7;
    options.top_k = 10;
    options.seed = 1;
    weft_search_result *result = NULL;
    const weft_search_model search = weft_decoder_search_model(decoder);
    if (weft_decoder_start(decoder, NULL, NULL, 0, error) == WEFT_OK)
        result = weft_search_sample(&search, inputs, LINES, &options, error);
    for (size_t line = 0; result && line < LINES; line++, putchar('\n'))
        for (size_t i = 0; i < result->hypotheses[line].length; i++)
            putchar(result->hypotheses[line].tokens[i] - FIRST);
    weft_search_result_free(result), weft_decoder_free(decoder);
    return error->status == WEFT_OK;
}

static bool train(const weft_corpus *corpus, const weft_corpus *valid, weft_error *error)
{
    char vocab[32];
    snprintf(vocab, sizeof vocab, "vocab=%d", VOCAB);
    const char *const sizes[] = {vocab,      "d_model=64", "heads=4",        "d_ff=256",
                                 "layers=2", "dropout=0",  "positions=none", "rotary_base=10000"};
    weft_model_config model;
    if (weft_model_parse(weft_model_find("gpt"), sizes, 8, &model, error) != WEFT_OK) return false;
    weft_batches *batches = make_batches(corpus, error);
    weft_batches *held = batches ? make_batches(valid, error) : NULL;
    weft_params *params = weft_params_new();
    weft_trainer *trainer = NULL;
    double loss = 0;
    if (held) {
        const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 6e-3, 1e-4, 20, STEPS};
        weft_trainer_options options = WEFT_DEFAULTS(weft_trainer_options);
        options.builder = weft_model_builder(&model);
        options.optimizer = WEFT_ADAMW_DEFAULT;
        options.schedule = schedule;
        options.seed = 1;
        const weft_batch_source source = weft_batches_source(batches);
        trainer = weft_trainer_new(&options, &source, params, error);
    }
    weft_status status = trainer ? WEFT_OK : error->status;
    for (int i = 0; i < STEPS && status == WEFT_OK; i++)
        status = weft_trainer_update(trainer, 0, NULL, error);
    if (status == WEFT_OK) {
        const weft_batch_source source = weft_batches_source(held);
        status = weft_trainer_evaluate(trainer, &source, 0, &loss, NULL, error);
    }
    bool good = status == WEFT_OK;
    if (good) {
        const double without = weft_corpus_unigram_entropy(corpus, valid, VOCAB, EOS);
        printf("%.2f nats a byte after %d steps; bytes without context: %.2f\n\n", loss, STEPS,
               without);
        good = write_lines(&model, params, error) && loss < 0.7 * without;
    }
    weft_trainer_free(trainer), weft_batches_free(batches), weft_batches_free(held);
    weft_params_free(params);
    return good;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "tools/data/bible-en-es/valid.en";
    weft_error error = WEFT_NO_ERROR;
    weft_corpus *corpus = weft_corpus_new(), *valid = weft_corpus_new();
    const bool good = read_text(path, corpus, valid) && train(corpus, valid, &error);
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_corpus_free(corpus), weft_corpus_free(valid);
    return good ? 0 : 1;
}
