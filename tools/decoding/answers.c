/* The answers of lines, which must match a rule. */
#include "decoding.h"

#include <stdlib.h>

bool decoding_begin_answers(decoding *d, text_line *line)
{
    if (!d->rule.constraint) return true;
    line->answers = calloc((size_t)d->options.nbest, sizeof(weft_constrained_text *));
    if (!line->answers) return decoding_fail(d, WEFT_NO_MEMORY, "decoding", "out of memory");
    while (line->n_answers < (size_t)d->options.nbest) {
        weft_constrained_text *answer = answer_rule_begin(&d->rule, &d->run, true, &d->error);
        if (!answer) return false;
        line->answers[line->n_answers++] = answer;
    }
    return true;
}

void decoding_end_answers(text_line *line)
{
    for (size_t k = 0; k < line->n_answers; k++) answer_rule_end(line->answers[k]);
    free(line->answers);
}

bool decoding_move_answers(decoding *d, const text_line *line)
{
    for (size_t k = 0; line->answers && k < line->n_found; k++)
        if (!answer_rule_move(line->answers[k], line->found[k].tokens, line->found[k].length,
                              &d->error))
            return false;
    return true;
}

bool decoding_check_answers(decoding *d, const text_line *line)
{
    for (size_t k = 0; line->answers && k < line->n_found; k++) {
        const weft_hypothesis *h = &line->found[k];
        const bool stopped = line->growing && line->growing[k].stopped;
        const bool stuck = !h->ended && !stopped && (int64_t)h->length < line->max_tokens;
        bool whole;
        if (!answer_rule_check(line->answers[k], NULL, 0, stuck, &whole, &d->error)) return false;
        d->counts.unmatched += !whole && !stopped;
    }
    return true;
}
