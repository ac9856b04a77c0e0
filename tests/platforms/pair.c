/* A model that two processes train, each on a processor of its own (programs_test.sh): prints the
 * hashes of its parameters.
 *
 *     pair                  trains alone
 *     pair RANK FROM TO     as rank 0 or 1; FROM and TO are named pipes */
#include "pipe_communicator.h"

#include <weft/distributed.h>
#include <weft/models.h>
#include <weft/train.h>

#include <stdio.h>
#include <stdlib.h>

enum { SENTENCES = 40, VOCAB = 50, UPDATES = 5 };

static weft_corpus *corpus(void)
{
    weft_corpus *c = weft_corpus_new();
    for (int i = 0; c && i < SENTENCES; i++) {
        int32_t ids[16];
        const size_t n = 4 + (size_t)(i * 7 % 12);
        for (size_t k = 0; k < n; k++)
            ids[k] = (int32_t)(4 + (i * 31 + (int)k * (i % 5 + 3)) % (VOCAB - 4));
        weft_corpus_add(c, ids, n, ids, n, NULL);
    }
    return c;
}

/* Prints one line: the hash after some updates. */
static weft_status train(weft_communicator *communicator, int zero, weft_error *error)
{
    static const char *const words[] = {"vocab=50", "d_model=24",       "heads=2",
                                        "d_ff=40",  "encoder_layers=1", "decoder_layers=1"};
    static const weft_batch_options rows = {.mode = WEFT_BATCH_PAIRS,
                                            .tokens = 64,
                                            .lengths = {8, 18},
                                            .n_lengths = 2,
                                            .bos = 1,
                                            .eos = 2,
                                            .vocab = VOCAB,
                                            .seed = 3};
    weft_model_config config;
    weft_trainer_processes processes = weft_trainer_processes_of(communicator);
    processes.zero = zero;
    weft_corpus *texts = corpus();
    weft_params *params = weft_params_new();
    weft_batches *batches = weft_batches_new(texts, &rows, error);
    if (batches)
        weft_model_parse(weft_model_find("transformer"), words, sizeof words / sizeof *words,
                         &config, error);
    if (error->status == WEFT_OK) {
        const weft_batch_source source = weft_batches_source(batches);
        const weft_trainer_options o = {.builder = weft_model_builder(&config),
                                        .optimizer = WEFT_ADAMW_DEFAULT,
                                        .schedule = {.peak = 0.01},
                                        .accumulate = 4,
                                        .ema = 0.9,
                                        .processes = &processes,
                                        .seed = 7,
                                        .session = {.threads = 1}};
        weft_trainer *t = weft_trainer_new(&o, &source, params, error);
        for (int i = 0; t && i < UPDATES && error->status == WEFT_OK; i++)
            weft_trainer_update(t, 0, NULL, error);
        const weft_params *model =
            t && error->status == WEFT_OK ? weft_trainer_model(t, error) : NULL;
        if (model) printf("zero %d: %016llx\n", zero, (unsigned long long)weft_params_hash(model));
        weft_trainer_free(t);
    }
    weft_batches_free(batches);
    weft_params_free(params);
    weft_corpus_free(texts);
    return error->status;
}

int main(int argc, char **argv)
{
    weft_error error = {0};
    weft_communicator *c = argc == 4 ? pipe_communicator(atoi(argv[1]), argv[2], argv[3]) : NULL;
    if (argc != 1 && !c) return fprintf(stderr, "usage: pair [RANK FROM TO]\n"), 2;
    for (int zero = 1; zero <= 3; zero++)
        if (train(c, zero, &error) != WEFT_OK) break;
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_communicator_free(c);
    return error.status != WEFT_OK;
}
