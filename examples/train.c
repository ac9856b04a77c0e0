/* Trains a small language model on sequences that count modulo 7, retains the best, and resumes
 * from the file of an earlier run of this program, if there is one. */
#include <weft/train.h>
#include <weft/weft.h>

#include <stdio.h>

enum { PAD, UNK, BOS, EOS, FIRST, VOCAB = FIRST + 7 };

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "counting.safetensors";
    weft_corpus *corpus = weft_corpus_new();
    for (int start = 0; start < 7; start++) {
        int32_t ids[12];
        for (int i = 0; i < 12; i++) ids[i] = FIRST + (start + i) % 7;
        weft_corpus_add(corpus, NULL, 0, ids, 12, NULL);
    }
    weft_error error = WEFT_NO_ERROR;
    weft_batch_options rows = WEFT_DEFAULTS(weft_batch_options);
    rows.mode = WEFT_BATCH_LINES;
    rows.tokens = 64;
    rows.lengths[0] = 13;
    rows.n_lengths = 1;
    rows.pad = PAD;
    rows.bos = BOS;
    rows.eos = EOS;
    rows.vocab = VOCAB;
    rows.seed = 1;
    weft_batches *batches = weft_batches_new(corpus, &rows, &error);

    const char *sizes[] = {"vocab=11", "d_model=32", "heads=2", "d_ff=64", "layers=1"};
    weft_model_config model;
    if (weft_model_parse(weft_model_find("gpt"), sizes, 5, &model, &error) != WEFT_OK)
        return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
    const weft_schedule schedule = {WEFT_SCHEDULE_COSINE, 1e-2, 1e-4, 10, 100};
    weft_trainer_options options = WEFT_DEFAULTS(weft_trainer_options);
    options.builder = weft_model_builder(&model);
    options.optimizer = WEFT_ADAM_DEFAULT;
    options.schedule = schedule;
    options.seed = 1;
    weft_params *params = weft_params_new();
    weft_error none = WEFT_NO_ERROR;
    weft_params_load(params, path, &none); /* without such a file it begins */
    const weft_batch_source source = weft_batches_source(batches);
    weft_trainer *trainer = weft_trainer_new(&options, &source, params, &error);
    if (!trainer) return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;

    weft_update_report report;
    double nll = 0;
    while (weft_trainer_progress_of(trainer).updates < 100)
        if (weft_trainer_update(trainer, 0, &report, &error) != WEFT_OK)
            return fprintf(stderr, "%s: %s\n", error.where, error.message), 1;
    weft_trainer_evaluate(trainer, &source, 0, &nll, NULL, NULL);
    weft_trainer_save(trainer, path, NULL);
    printf("%.3f nats a token after %d steps\n", nll,
           (int)weft_trainer_progress_of(trainer).updates);
    weft_trainer_free(trainer), weft_batches_free(batches), weft_corpus_free(corpus);
    weft_params_free(params);
    return !(nll < 0.35);
}
