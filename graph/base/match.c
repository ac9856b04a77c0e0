/* Comparison of two lists of names: both are sorted, and each name is looked up in the other list.
 */
#include "match.h"
#include "guess.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of each kind that a message lists; missing names for which a similar one is searched. */
enum { MAX_LISTED = 3, MAX_GUESSED = 16 };

static int by_name(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static bool has(const char *const *sorted, size_t n, const char *name)
{
    return n && bsearch(&name, sorted, n, sizeof *sorted, by_name);
}

/* Copies `names` to `sorted`, in order. */
static void sort(const char **sorted, const char *const *names, size_t n)
{
    if (!n) return;
    memcpy(sorted, names, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
}

bool weft__match_names(name_match *m, const char *const *wanted, size_t n_wanted,
                       const char *const *found, size_t n_found)
{
    const size_t n = n_wanted + n_found;
    const char **sorted = malloc((n + 1) * sizeof *sorted);
    const char **at = malloc((n_wanted + n + 1) * sizeof *at);
    *m = (name_match){.matched = at};
    if (!sorted || !at) {
        free(sorted);
        weft__match_free(m);
        return false;
    }
    const char **sorted_found = sorted + n_wanted;
    m->missing = at + n_wanted;
    m->unexpected = m->missing + n_wanted;
    sort(sorted, wanted, n_wanted);
    sort(sorted_found, found, n_found);
    for (size_t i = 0; i < n_wanted; i++)
        if (has(sorted_found, n_found, wanted[i]))
            m->matched[m->n_matched++] = wanted[i];
        else
            m->missing[m->n_missing++] = wanted[i];
    for (size_t i = 0; i < n_found; i++)
        if (!has(sorted, n_wanted, found[i])) m->unexpected[m->n_unexpected++] = found[i];
    free(sorted);
    return true;
}

void weft__match_free(name_match *m)
{
    free(m->matched);
    *m = (name_match){NULL, NULL, NULL, 0, 0, 0};
}

/* ---- Text ---- */

static void append(char *text, size_t size, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

static void append_names(const char *const *names, size_t n, char *text, size_t size)
{
    for (size_t i = 0; i < n && i < MAX_LISTED; i++)
        append(text, size, "%s\"%s\"", i ? ", " : ": ", names[i]);
    if (n > MAX_LISTED) append(text, size, ", ...");
}

/* Finds a missing name that has an unexpected one near it. */
static void append_guess(const name_match *m, char *text, size_t size)
{
    for (size_t i = 0; i < m->n_missing && i < MAX_GUESSED; i++) {
        guess g = weft__guess_of(m->missing[i], strlen(m->missing[i]));
        for (size_t k = 0; k < m->n_unexpected && k < MAX_GUESSED; k++)
            weft__guess_try(&g, m->unexpected[k]);
        if (!g.name) continue;
        append(text, size, "; is \"%s\" meant to be \"%s\"?", g.name, m->missing[i]);
        return;
    }
}

void weft__match_text(const name_match *m, const char *what, char *text, size_t size)
{
    text[0] = 0;
    if (m->n_missing) {
        append(text, size, "%zu of %zu %s are missing", m->n_missing, m->n_missing + m->n_matched,
               what);
        append_names(m->missing, m->n_missing, text, size);
    }
    if (m->n_unexpected) {
        append(text, size, "%s%zu are unexpected", m->n_missing ? "; " : "", m->n_unexpected);
        append_names(m->unexpected, m->n_unexpected, text, size);
    }
    append_guess(m, text, size);
}
