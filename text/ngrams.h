/* ngrams.h - n-grams of the words or characters of a line. */
#ifndef WEFT_TEXT_NGRAMS_H
#define WEFT_TEXT_NGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct symbols {
    int32_t *ids; /* the caller frees them */
    size_t n;
} symbols;

/* The distinct words of one line and its references; a word's id is its index. */
typedef struct words {
    char **word;
    size_t n, capacity;
} words;
void weft__words_free(words *w);

/* The words of a text. With `apart`, punctuation at the end of a word, or else at its beginning, is
 * a word of its own, as in chrF++. False if memory is out. */
bool weft__symbols_of_words(words *w, const char *text, bool apart, symbols *s);
/* The characters of a text that are not white space. False if memory is out. */
bool weft__symbols_of_characters(const char *text, symbols *s);

size_t weft__ngram_count(const symbols *s, size_t order);
/* *matches becomes the number of x's n-grams that are in a reference; each is clipped to the
 * maximum count in any reference. False if memory is out. */
bool weft__ngram_matches(const symbols *x, const symbols *references, size_t n, size_t order,
                         size_t *matches);

#endif
