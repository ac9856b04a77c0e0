/* Pre-tokenisers: each splits the pieces of a text into smaller ones, and may change them. */
#include "state.h"
#include "unicode.h"

#include <string.h>

/* ---- What becomes of the matches ---- */

static void add_piece(tk_work *w, tk_match m)
{
    if (m.begin < m.end) weft__tk_piece(w, m.begin, m.end, -1);
}

/* Joins matches with their neighbours, in place. */
static void join(tk_work *w, tk_behavior behavior)
{
    tk_match *m = w->matches;
    size_t n = 0;
    bool previous = false;
    for (size_t i = 0; i < w->n_matches; i++) {
        const bool joins =
            behavior == TK_CONTIGUOUS ? m[i].is_match == previous : m[i].is_match && !previous;
        previous = m[i].is_match;
        if (joins && n > 0)
            m[n - 1].end = m[i].end;
        else
            m[n++] = m[i];
    }
    w->n_matches = n;
}

static void join_with_next(tk_work *w)
{
    tk_match *m = w->matches;
    size_t first = w->n_matches;
    bool previous = false;
    for (size_t i = w->n_matches; i-- > 0;) {
        const bool joins = m[i].is_match && !previous;
        previous = m[i].is_match;
        if (joins && first < w->n_matches)
            m[first].begin = m[i].begin;
        else
            m[--first] = m[i];
    }
    memmove(m, m + first, (w->n_matches - first) * sizeof *m);
    w->n_matches -= first;
}

static void add_matches(const tk_splitter *self, tk_work *w)
{
    for (size_t i = 0; self->invert && i < w->n_matches; i++)
        w->matches[i].is_match = !w->matches[i].is_match;
    if (self->behavior == TK_CONTIGUOUS || self->behavior == TK_MERGED_WITH_PREVIOUS)
        join(w, self->behavior);
    if (self->behavior == TK_MERGED_WITH_NEXT) join_with_next(w);
    for (size_t i = 0; i < w->n_matches; i++)
        if (self->behavior != TK_REMOVED || !w->matches[i].is_match) add_piece(w, w->matches[i]);
}

/* ---- Splitting ---- */

static void match_characters(const tk_splitter *self, tk_work *w, tk_piece p)
{
    size_t last = p.begin, n;
    for (size_t at = p.begin; at < p.end; at += n) {
        if (!self->is_match(weft__tk_decode(w->text.bytes + at, &n))) continue;
        if (last < at) weft__tk_match(w, last, at, false);
        last = at + n;
        weft__tk_match(w, at, last, true);
    }
    if (last < p.end) weft__tk_match(w, last, p.end, false);
}

void weft__tk_split_pattern(const tk_splitter *self, tk_work *w)
{
    for (size_t i = 0; i < w->n_pieces && !w->failed; i++) {
        const tk_piece p = w->pieces[i];
        if (p.id >= 0) {
            weft__tk_piece(w, p.begin, p.end, p.id);
            continue;
        }
        w->n_matches = 0;
        if (self->pattern)
            weft__tk_regex_match(self->pattern, w, w->text.bytes + p.begin, p.end - p.begin,
                                 p.begin);
        else
            match_characters(self, w, p);
        add_matches(self, w);
    }
    weft__tk_swap_pieces(w);
}

static void copy_with_space(const void *self, tk_work *w, tk_piece p)
{
    (void)self;
    if (w->text.bytes[p.begin] != ' ')
        weft__tk_put(w, &w->next_text, " ", 1, w->text.spans[p.begin]);
    weft__tk_copy(w, &w->next_text, &w->text, p.begin, p.end);
}

static void copy_level(const void *self, tk_work *w, tk_piece p)
{
    (void)self;
    weft__tk_level(NULL, w, p.begin, p.end);
}

void weft__tk_split_level(const tk_splitter *self, tk_work *w)
{
    if (self->prefix_space) weft__tk_rewrite(w, copy_with_space, self);
    if (self->use_regex && !w->failed) weft__tk_split_pattern(self, w);
    if (!w->mapped && !w->failed) weft__tk_rewrite(w, copy_level, self);
}

static void copy_metaspace(const void *splitter, tk_work *w, tk_piece p)
{
    const tk_splitter *self = splitter;
    const tk_text *t = &w->text;
    const size_t n = strlen(self->replacement);
    const bool starts = t->bytes[p.begin] == ' ' ||
                        (p.end - p.begin >= n && !memcmp(t->bytes + p.begin, self->replacement, n));
    if (!starts && (self->prepend == TK_PREPEND_ALWAYS ||
                    (self->prepend == TK_PREPEND_FIRST && t->spans[p.begin].begin == 0)))
        weft__tk_put(w, &w->next_text, self->replacement, n, t->spans[p.begin]);
    for (size_t at = p.begin, next; at < p.end; at = next) {
        for (next = at; next < p.end && t->bytes[next] != ' ';) next++;
        weft__tk_copy(w, &w->next_text, t, at, next);
        if (next == p.end) break;
        weft__tk_put(w, &w->next_text, self->replacement, n, t->spans[next++]);
    }
}

void weft__tk_split_metaspace(const tk_splitter *self, tk_work *w)
{
    weft__tk_rewrite(w, copy_metaspace, self);
    if (self->split && !w->failed) weft__tk_split_pattern(self, w);
}

void weft__tk_split_pieces(const tk_state *s, tk_work *w)
{
    for (size_t k = 0; k < s->n_splitters && !w->failed; k++) {
        const tk_splitter *step = &s->splitters[k];
        /* The model maps bytes itself, if it is next. */
        w->mapped =
            step->apply == weft__tk_split_level && k + 1 == s->n_splitters && s->model.has_level;
        step->apply(step, w);
    }
}
