/* Printing what was decoded: texts, notes and numbers. See decoding.h. */
#include "decoding.h"
#include "share.h"
#include "system.h"
#include "text/line_numbers.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool no_memory(decoding *d)
{
    return decoding_fail(d, WEFT_NO_MEMORY, "decoding", "out of memory");
}

static bool has_source(const decoding *d)
{
    return weft_decoder_info_of(d->decoder).has_source;
}

/* The text of a hypothesis, after the line's prompt if there is one. The prompt is printed as the
 * user wrote it, because the vocabulary may lack or normalise some of it. A stop text ends the
 * text. The caller frees it; NULL after an error. */
static char *hypothesis_text(decoding *d, const text_line *l, const weft_hypothesis *h)
{
    char *whole = NULL, *prompt = NULL, *text = NULL;
    if (has_source(d)) {
        weft_tokenizer_decode(d->run.target, h->tokens, h->length, &text, NULL, &d->error);
        return text;
    }
    int32_t *all = calloc(l->n_ids + h->length + 1, sizeof *all);
    if (all) memcpy(all, l->ids, l->n_ids * sizeof *all);
    if (all && h->length) memcpy(all + l->n_ids, h->tokens, h->length * sizeof *all);
    if (all &&
        weft_tokenizer_decode(d->run.target, all, l->n_ids + h->length, &whole, NULL, &d->error) ==
            WEFT_OK &&
        weft_tokenizer_decode(d->run.target, all, l->n_ids, &prompt, NULL, &d->error) == WEFT_OK) {
        size_t before = strlen(prompt);
        bool begins = !strncmp(whole, prompt, before);
        char *found = begins ? whole + before : whole;
        found[stop_texts_cut(&d->stops, found)] = 0;
        size_t given = begins ? prompt_bytes(l->text, prompt, found) : 0;
        text = malloc(given + strlen(found) + 1);
        if (text) {
            memcpy(text, l->text, given);
            strcpy(text + given, found);
        }
    }
    if (!text) no_memory(d);
    free(all);
    free(whole);
    free(prompt);
    return text;
}

/* Prints a text as JSON. */
static bool print_json(decoding *d, const text_line *l, size_t k, const char *text, FILE *file)
{
    const weft_hypothesis *h = &l->found[k];
    const bool stopped = l->growing && l->growing[k].stopped;
    cJSON *json = cJSON_CreateObject(), *tokens, *pieces, *log_probs;
    cJSON_AddNumberToObject(json, "line", (double)l->number + 1);
    if (weft_text_is_utf8(text, strlen(text)))
        cJSON_AddStringToObject(json, "text", text);
    else
        cJSON_AddNullToObject(json, "text");
    tokens = cJSON_AddArrayToObject(json, "tokens");
    pieces = cJSON_AddArrayToObject(json, "pieces");
    log_probs = cJSON_AddArrayToObject(json, "log_probs");
    for (size_t i = 0; i < h->length; i++) {
        cJSON_AddItemToArray(tokens, cJSON_CreateNumber(h->tokens[i]));
        cJSON_AddItemToArray(pieces,
                             cJSON_CreateString(weft_tokenizer_piece(d->run.target, h->tokens[i])));
    }
    for (size_t i = 0; i < h->length + h->ended; i++)
        cJSON_AddItemToArray(log_probs, cJSON_CreateNumber(h->log_probs[i]));
    cJSON_AddNumberToObject(json, "log_prob", h->log_prob);
    cJSON_AddStringToObject(json, "ended", stopped ? "stop" : h->ended ? "end" : "length");
    return tool_write_json_line(json, file, "output", &d->error);
}

/* Prints the results of lines. */
static bool print_lines(decoding *d, const text_lines *lines, bool scores, FILE *file)
{
    bool good = true;
    for (size_t i = 0; good && i < lines->n; i++) {
        const text_line *l = &lines->line[i];
        if (!l->n_found && !scores && !d->log_probs) good = putc('\n', file) != EOF;
        for (size_t k = 0; good && k < l->n_found; k++) {
            const weft_hypothesis *h = &l->found[k];
            char *text = hypothesis_text(d, l, h);
            if (!text) return false;
            weft_text_clean(text, d->keep_lines);
            const size_t bytes = strlen(text), printed = l->growing ? l->growing[k].printed : 0;
            const char *rest = text + (printed < bytes ? printed : bytes);
            good = d->log_probs ? print_json(d, l, k, text, file)
                   : scores
                       ? fprintf(file, "%zu ||| %s ||| %.6f\n", l->number + 1, text, h->score) > 0
                       : fprintf(file, d->run.documents ? "%s\n\n" : "%s\n", rest) > 0;
            free(text);
        }
    }
    return good || no_memory(d);
}

bool decoding_print(decoding *d, const text_lines *lines, bool scores)
{
    text_stream out = {0};
    const bool opened = d->error.status == WEFT_OK && text_stream_open(&out);
    bool good = (opened && print_lines(d, lines, scores, out.file)) || no_memory(d);
    if (opened && !text_stream_close(&out)) good = no_memory(d);
    good = share_text(&out.text, &out.bytes, false, &d->error) && good;
    if (good && (fwrite(out.text, 1, out.bytes, stdout) != out.bytes || fflush(stdout) != 0))
        good = decoding_fail(d, WEFT_IO, "output", strerror(errno));
    free(out.text);
    return good;
}

void decoding_end_streamed(const text_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        if (lines->line[i].growing && lines->line[i].growing[0].printed) putchar('\n');
    fflush(stdout);
}

void decoding_print_notes(const decoding *d)
{
    char list[LINE_NUMBERS_TEXT];
    if (d->invalid.n)
        fprintf(stderr, "weft: not UTF-8 (invalid bytes were read as unknown): %s\n",
                line_numbers_text(&d->invalid, list));
    if (d->counts.unmatched)
        fprintf(stderr,
                "weft: texts that end before they match, with the last of their tokens (--tokens): "
                "%zu\n",
                d->counts.unmatched);
    if (d->counts.stopped)
        fprintf(stderr,
                "weft: %zu texts end after %lld tokens, the length that the model was trained on; "
                "without --beam, or with a larger --context, they continue\n",
                d->counts.stopped, (long long)d->max_len);
}

void decoding_print_stats(const decoding *d)
{
    weft_decoder_info info = decoding_info(d);
    char sizes[2][TEXT_SIZE_BYTES];
    fprintf(stderr,
            "%zu lines, %zu tokens in %.2f s: %.0f tokens/s; %zu plans, arena %s, "
            "parameters and caches %s\n",
            d->lines, d->counts.tokens, d->counts.seconds,
            d->counts.seconds > 0 ? (double)d->counts.tokens / d->counts.seconds : 0.0, info.plans,
            weft__text_from_bytes((double)info.arena_bytes, sizes[0]),
            weft__text_from_bytes((double)info.state_bytes, sizes[1]));
    if (!info.has_steps && !d->a->recompute)
        fprintf(stderr, "%s has no steps over caches: the whole model is run for each token\n",
                d->run.model->name);
}
