/* Added tokens of a tokenizer.json. */
#include "load.h"

#include <stdlib.h>
#include <string.h>

/* The id that a content has, or gets: the next one. */
static int32_t id_of(tk_state *s, const char *content)
{
    const int32_t id = weft__tk_vocabulary_find(&s->model.vocabulary, content, strlen(content));
    return id >= 0 ? id : s->model.vocabulary.size;
}

static void load_token(tk_loader *l, const tk_place *at)
{
    tk_state *s = l->state;
    tk_vocabulary *v = &s->model.vocabulary;
    if (!weft__tk_grow(l, &s->added, s->n_added, sizeof *s->added)) return;
    tk_added *a = &s->added[s->n_added];
    const tk_place id = weft__tk_member(at, "id");
    *a = (tk_added){.content = weft__tk_string_copy(l, at, "content", NULL)};
    if (!a->content) return;
    s->n_added++;
    a->id = (int32_t)weft__tk_integer(l, &id, (int64_t)1 << 28);
    a->single_word = weft__tk_bool(l, at, "single_word", false);
    a->left = weft__tk_bool(l, at, "lstrip", false);
    a->right = weft__tk_bool(l, at, "rstrip", false);
    a->special = weft__tk_bool(l, at, "special", false);
    a->normalized = weft__tk_bool(l, at, "normalized", !a->special);
    if (l->status != WEFT_OK || !*a->content) return;
    const int32_t expected = id_of(s, a->content);
    if (a->id != expected)
        weft__tk_refuse(l, &id, "is %d, but '%.60s' has the id %d", (int)a->id, a->content,
                        (int)expected);
    else if (expected == v->size && !weft__tk_vocabulary_add(v, a->content, expected))
        weft__tk_no_memory(l);
}

static void add_to_set(tk_loader *l, tk_added_set *set, const char *text, size_t n, size_t index)
{
    if (n == 0) return;
    if (!weft__tk_trie_add(&set->trie, text, n, (int32_t)index)) weft__tk_no_memory(l);
    set->first[(unsigned char)text[0]] = true;
    set->any = true;
}

/* Tokens that are found in the normalised text are normalised themselves. */
static void add_normalized(tk_loader *l, tk_work *w, size_t index)
{
    tk_state *s = l->state;
    l->status = weft__tk_normalized_text(s, w, s->added[index].content);
    if (l->status != WEFT_OK || w->failed) return;
    add_to_set(l, &s->normalized, w->text.bytes, w->text.n, index);
    char *decoded = weft__tk_alloc(l, w->text.n + 1, 1);
    if (decoded && w->text.n) memcpy(decoded, w->text.bytes, w->text.n);
    s->added[index].decoded = decoded;
}

void weft__tk_load_added(tk_loader *l, const tk_place *at)
{
    tk_state *s = l->state;
    size_t n, i = 0;
    for (const cJSON *c = weft__tk_array(l, at, false, &n); c && l->status == WEFT_OK;
         c = c->next, i++) {
        const tk_place one = {at, NULL, i, c};
        load_token(l, &one);
    }
    if (l->status != WEFT_OK) return;
    tk_work *w = weft__tk_take_work(s, l->error);
    if (!w) weft__tk_no_memory(l);
    for (i = 0; w && i < s->n_added && l->status == WEFT_OK && !w->failed; i++) {
        if (s->added[i].normalized)
            add_normalized(l, w, i);
        else
            add_to_set(l, &s->raw, s->added[i].content, strlen(s->added[i].content), i);
    }
    if (w) l->status = weft__tk_return_work(s, w, l->status);
}
