/* A text of a language model as its tokens come: decoded as far as it is certain, ended by stop
 * texts, printed piece by piece. */
#ifndef WEFT_TOOLS_GROWING_H
#define WEFT_TOOLS_GROWING_H

#include "text/spm.h"

#include <stdbool.h>

/* Texts that end a text before the first place where one of them appears. */
typedef struct stop_texts {
    char **text;
    size_t n;
} stop_texts;

/* Replaces \n, \t and \\ in place. NULL, or what is wrong with the text as a stop text: it is
 * empty, is not UTF-8, or has another escape. */
const char *stop_text_read(char *text);
/* Bytes before the first place where a stop text appears; all of them if none does. */
size_t stop_texts_cut(const stop_texts *stops, const char *text);

/* Bytes of a prompt that are printed as they were given, before what was found: all, but where the
 * vocabulary has normalised it (`decoded` is another text), blanks at its end go if what was found
 * begins with one. */
size_t prompt_bytes(const char *given, const char *decoded, const char *found);

typedef struct growing_text {
    const spm *vocabulary;
    const stop_texts *stops;
    const char *given; /* the prompt */
    char *prompt;      /* the same, as its ids say it */
    int32_t *ids;      /* of the prompt and behind it */
    size_t n, capacity;
    size_t known;  /* ids whose text is certain */
    size_t anchor; /* of these, where decoding begins: what follows reads the same as after all */
    char *text;    /* of the known ids behind the prompt */
    size_t length;
    size_t clear; /* bytes before which no stop text begins or may begin */
    size_t shown; /* bytes of `text` that are printed */
    bool stopped; /* a stop text begins at `clear` */
    size_t printed;
} growing_text;

/* Begins behind a prompt: `given` and `stops` must outlive it. To be closed, whatever came of it.
 */
weft_status growing_open(growing_text *g, const spm *vocabulary, const stop_texts *stops,
                         const char *given, const int32_t *ids, size_t n, weft_error *error);
void growing_close(growing_text *g);
/* Adds a token. O(tokens since the last certain one). */
weft_status growing_add(growing_text *g, int32_t id, weft_error *error);
/* Prints what is certain and not printed yet, as texts_clean leaves it: `printed` bytes are out in
 * all, the prompt's included, which come with the first others. */
weft_status growing_print(growing_text *g, bool lines, weft_error *error);

#endif
