/* The nearest of some names, by edit distance: the least number of letters to insert, to delete, to
 * replace, or to swap with the next one (the restricted distance of Damerau and Levenshtein).
 * O(length of one text x length of the other). */
#include "guess.h"

#include <stdio.h>
#include <string.h>

/* Bytes of the longest text that is compared. */
enum { MAX_BYTES = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][MAX_BYTES + 1] = {{0}};
    size_t *above = rows[0], *row = rows[1], *before = rows[2];
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *free_row = before;
        before = above;
        above = row;
        row = free_row;
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return row[m];
}

guess weft__guess_of(const char *text, size_t length)
{
    const size_t wrong = length / 3 ? length / 3 : 1;
    return (guess){.text = text, .length = length, .distance = wrong + 1};
}

void weft__guess_try(guess *g, const char *name)
{
    const size_t length = strlen(name);
    if (g->length < 2 || g->length > MAX_BYTES || length > MAX_BYTES) return;
    const size_t found = distance(g->text, g->length, name, length);
    if (found >= g->distance || found >= length) return;
    g->distance = found;
    g->name = name;
}

const char *weft__guess_text(const guess *g, char buffer[GUESS_BYTES])
{
    buffer[0] = 0;
    if (g->name) snprintf(buffer, GUESS_BYTES, "; did you mean \"%s\"?", g->name);
    return buffer;
}
