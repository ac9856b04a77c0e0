/* Training adapters (weft/lora.h) next to the model of another run, which stays as it is. */
#include "decoding/run.h"
#include "training.h"

#include "training/saved.h"

#include <string.h>

bool training_open_base(training *t)
{
    const recipe *r = &t->r;
    if (!r->lora_rank) return true;
    if (!t->from && !training_open_from(t)) return false;
    if (t->from->saved->base) {
        weft_error_set(
            &t->error, WEFT_BAD_ARGUMENT, r->run_from,
            "has adapters for %s itself: train adapters for a model that was saved whole",
            t->from->saved->base);
        return false;
    }
    t->lora = (weft_lora){.rank = r->lora_rank,
                          .alpha = r->lora_alpha,
                          .on = r->lora_on[0] ? r->lora_on : NULL,
                          .dropout = r->lora_dropout,
                          .base = t->from->params};
    return true;
}

void training_add_adapters(training *t)
{
    if (!t->lora.rank) return;
    t->lora.model = t->builder;
    t->builder = weft_lora_builder(&t->lora);
}

bool training_note_adapters(training *t)
{
    char text[BASE_TEXT];
    if (!t->lora.rank) return true;
    const char *was = weft_params_meta(t->params, BASE_META);
    if (weft_lora_note(&t->lora, t->params, &t->error) != WEFT_OK ||
        weft__base_text(t->from->saved->path, text, &t->error) != WEFT_OK)
        return false;
    /* The path may have changed, the contents may not. */
    if (was && strncmp(was, text, BASE_HASH) != 0)
        return training_fail(t, WEFT_BAD_ARGUMENT, t->from->saved->path,
                             "has changed since the adapters' training began");
    return weft_params_set_meta(t->params, BASE_META, text, &t->error) == WEFT_OK;
}
