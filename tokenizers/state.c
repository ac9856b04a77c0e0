/* Frees what a tokeniser consists of. */
#include "state.h"

#include <stdlib.h>

static void free_normalizers(tk_state *s)
{
    for (size_t i = 0; i < s->n_normalizers; i++) {
        tk_normalizer *n = &s->normalizers[i];
        weft__tk_regex_free(n->pattern);
        free(n->content);
        free(n->charsmap.units);
        free(n->charsmap.texts);
    }
    free(s->normalizers);
}

static void free_template(tk_template *t)
{
    for (size_t i = 0; i < t->n; i++) free(t->parts[i].ids);
    free(t->parts);
}

static void free_model(tk_model *m)
{
    weft__tk_vocabulary_free(&m->vocabulary);
    weft__tk_trie_free(&m->trie);
    free(m->texts);
    free(m->prefix);
    free(m->suffix);
    free(m->pairs);
    free(m->scores);
}

void weft__tk_state_free(tk_state *s)
{
    if (!s) return;
    free_normalizers(s);
    for (size_t i = 0; i < s->n_splitters; i++) weft__tk_regex_free(s->splitters[i].pattern);
    for (size_t i = 0; i < s->n_added; i++) {
        free(s->added[i].content);
        free(s->added[i].decoded);
    }
    for (size_t i = 0; i < s->n_processors; i++) {
        free_template(&s->processors[i].single);
        free_template(&s->processors[i].pair);
    }
    for (size_t i = 0; i < s->n_decoders; i++) {
        weft__tk_regex_free(s->decoders[i].pattern);
        free(s->decoders[i].prefix);
    }
    for (int i = 0; i < TK_WORKS; i++) weft__tk_work_free(s->works[i]);
    free_model(&s->model);
    weft__tk_trie_free(&s->raw.trie);
    weft__tk_trie_free(&s->normalized.trie);
    free(s->splitters);
    free(s->added);
    free(s->processors);
    free(s->decoders);
    free(s->roles);
    free(s->decoded);
    free(s);
}
