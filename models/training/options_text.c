/* Compares texts of options, "key=value key=value ...", as checkpoints store them. O(words^2), for
 * a few dozen words. */
#include "trainer.h"

#include "base/text.h"

#include <string.h>

/* Whether two words of the same key have the same value. */
static bool same_word(const char *a, size_t a_length, const char *b, size_t b_length, size_t key)
{
    double x, y;
    if (a_length == b_length && !strncmp(a, b, a_length)) return true;
    return text_read_double(a + key, &x) == a + a_length &&
           text_read_double(b + key, &y) == b + b_length && x == y;
}

/* The word of `text` that begins with the first `key` bytes of `a`; NULL if there is none. */
static const char *find_key(const char *text, const char *a, size_t key)
{
    while (*text) {
        if (!strncmp(text, a, key)) return text;
        text += strcspn(text, " ");
        text += *text == ' ';
    }
    return NULL;
}

const char *options_differ(const char *a, const char *b, const char **other)
{
    while (*a) {
        size_t length = strcspn(a, " "), key = strcspn(a, "= ") + 1;
        *other = key <= length ? find_key(b, a, key) : NULL;
        if (*other && !same_word(a, length, *other, strcspn(*other, " "), key)) return a;
        a += length;
        a += *a == ' ';
    }
    return NULL;
}
