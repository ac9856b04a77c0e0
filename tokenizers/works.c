/* The works of a tokeniser: a call takes one that is free, or a new one. */
#include "state.h"

#include <stdlib.h>

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "tokenizer", "out of memory");
}

static void free_text(tk_text *t)
{
    free(t->bytes);
    free(t->spans);
}

static void free_chain(tk_chain *c)
{
    free(c->bytes);
    free(c->owners);
    free(c->ends);
}

void weft__tk_work_free(tk_work *w)
{
    if (!w) return;
    free_text(&w->text);
    free_text(&w->next_text);
    free_chain(&w->chain);
    free_chain(&w->next_chain);
    weft__tk_match_data_free(w->match_data);
    void *const arrays[] = {w->pieces, w->next_pieces, w->matches,     w->changes,
                            w->tokens, w->heap,        w->symbols,     w->path,
                            w->buffer, w->cache.words, w->cache.memory};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(w);
}

tk_work *weft__tk_take_work(tk_state *s, weft_error *error)
{
    tk_work *w = NULL;
    for (int i = 0; i < TK_WORKS && !w; i++) w = atomic_exchange(&s->works[i], NULL);
    if (!w) w = calloc(1, sizeof *w);
    if (!w) {
        no_memory(error);
        return NULL;
    }
    w->failed = false;
    w->too_large = NULL;
    w->error = error;
    return w;
}

weft_status weft__tk_return_work(tk_state *s, tk_work *w, weft_status status)
{
    if (w->failed)
        status = w->too_large
                     ? weft_error_set(w->error, WEFT_TOO_LARGE, "tokenizer", "%s", w->too_large)
                     : no_memory(w->error);
    for (int i = 0; i < TK_WORKS; i++) {
        tk_work *none = NULL;
        if (atomic_compare_exchange_strong(&s->works[i], &none, w)) return status;
    }
    weft__tk_work_free(w);
    return status;
}
