/* Ensembles: the runs of --with, a decoder for each, and one search model of all (weft_ensemble).
 */
#include "decoding.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

size_t decoding_models(const decoding *d)
{
    return d->n_others + 1;
}

const trained_run *decoding_run(const decoding *d, size_t i)
{
    return i ? &d->others[i - 1].run : &d->run;
}

static weft_decoder **decoder_of(decoding *d, size_t i, bool slider)
{
    if (!i) return slider ? &d->slider : &d->decoder;
    return slider ? &d->others[i - 1].slider : &d->others[i - 1].decoder;
}

/* ---- Runs ---- */

/* Checks that two files have the same bytes. */
static bool same_vocabulary(const char *a, const char *b, weft_error *error)
{
    size_t bytes[2] = {0, 0};
    char *of_a = weft__file_read(a, &bytes[0], error);
    char *of_b = of_a ? weft__file_read(b, &bytes[1], error) : NULL;
    bool same = of_b && bytes[0] == bytes[1] && !memcmp(of_a, of_b, bytes[0]);
    if (of_b && !same)
        weft_error_set(error, WEFT_BAD_ARGUMENT, b, "differs from the vocabulary %s", a);
    free(of_a);
    free(of_b);
    return same;
}

static const char *source_vocabulary(const trained_run *run)
{
    return run->vocabulary_path[run->shared ? 1 : 0];
}

bool decoding_open_others(decoding *d)
{
    if (!d->a->with.n) return true;
    d->others = calloc(d->a->with.n, sizeof *d->others);
    if (!d->others) return decoding_fail(d, WEFT_NO_MEMORY, "decoding", "out of memory");
    for (size_t i = 0; i < d->a->with.n; i++) {
        trained_run *run = &d->others[d->n_others++].run;
        if (!trained_open(run, d->a->with.at[i], NULL, &d->error) ||
            !same_vocabulary(source_vocabulary(&d->run), source_vocabulary(run), &d->error) ||
            !same_vocabulary(d->run.vocabulary_path[1], run->vocabulary_path[1], &d->error))
            return false;
    }
    return true;
}

/* ---- Decoders ---- */

/* Checks that either all models translate or none does. */
static bool check_kind(decoding *d, size_t i)
{
    bool first = weft_decoder_info_of(d->decoder).has_source;
    if (weft_decoder_info_of(*decoder_of(d, i, false)).has_source == first) return true;
    weft_error_set(&d->error, WEFT_BAD_ARGUMENT, d->a->with.at[i - 1],
                   "%s, but %s in %s %s: both must be of one kind",
                   first ? "is a language model" : "translates", d->run.model->name, d->a->folder,
                   first ? "translates" : "is a language model");
    return false;
}

bool decoding_make(decoding *d, const weft_decoder_options *o, bool slider)
{
    weft_search_model models[DECODING_MODELS];
    const size_t n = decoding_models(d);
    for (size_t i = 0; i < n; i++) {
        const trained_run *run = decoding_run(d, i);
        weft_decoder **decoder = decoder_of(d, i, slider);
        *decoder = weft_decoder_new(&run->config, run->params, o, &d->error);
        if (!*decoder || (i && !slider && !check_kind(d, i))) return false;
        models[i] = weft_decoder_search_model(*decoder);
    }
    if (n == 1) return true;
    weft_ensemble *made =
        weft_ensemble_new(models, n, d->a->weights.n ? d->a->weights.at : NULL, &d->error);
    if (slider)
        d->slider_ensemble = made;
    else
        d->ensemble = made;
    return made != NULL;
}

bool decoding_start(decoding *d, bool slider, const int32_t *const *sources, const size_t *lengths,
                    size_t n)
{
    for (size_t i = 0; i < decoding_models(d); i++) {
        weft_decoder *decoder = *decoder_of(d, i, slider);
        if (weft_decoder_start(decoder, sources, lengths, n, &d->error) != WEFT_OK) return false;
    }
    return true;
}

weft_search_model decoding_model(decoding *d, bool slider)
{
    if (d->n_others) return weft_ensemble_search_model(slider ? d->slider_ensemble : d->ensemble);
    return weft_decoder_search_model(slider ? d->slider : d->decoder);
}

void decoding_close_all(decoding *d)
{
    weft_ensemble_free(d->ensemble);
    weft_ensemble_free(d->slider_ensemble);
    weft_decoder_free(d->decoder);
    weft_decoder_free(d->slider);
    for (size_t i = 0; i < d->n_others; i++) {
        weft_decoder_free(d->others[i].decoder);
        weft_decoder_free(d->others[i].slider);
        trained_close(&d->others[i].run);
    }
    free(d->others);
    trained_close(&d->run);
}

weft_decoder_info decoding_info(const decoding *d)
{
    weft_decoder_info all = weft_decoder_info_of(d->decoder);
    for (size_t i = 0; i < d->n_others; i++) {
        weft_decoder_info info = weft_decoder_info_of(d->others[i].decoder);
        all.plans += info.plans;
        all.arena_bytes += info.arena_bytes;
        all.state_bytes += info.state_bytes;
        all.has_steps = all.has_steps && info.has_steps;
    }
    return all;
}
