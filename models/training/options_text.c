/* Compares texts of options, "key=value key=value ...", as checkpoints store them. O(words^2), for
 * a few dozen words. */
#include "trainer.h"

#include "base/text.h"
#include "zoo/registry.h"

#include <string.h>

const char *weft__options_current(const char *model, const char *text,
                                  char current[WEFT_OPTIONS_TEXT])
{
    char copy[WEFT_OPTIONS_TEXT];
    const char *words[WEFT_OPTIONS_WORDS];
    weft_model_config config;
    const weft_model *listed = weft_model_find(model);
    size_t length = text ? strlen(text) : 0;
    if (!listed || !length || length >= sizeof copy) return text;
    memcpy(copy, text, length + 1);
    size_t n = weft__options_split(copy, words, WEFT_OPTIONS_WORDS);
    return weft_model_parse(listed, words, n, &config, NULL) == WEFT_OK &&
                   weft_model_options_text(&config, current, WEFT_OPTIONS_TEXT)
               ? current
               : text;
}

/* Whether two words of the same key have the same value. */
static bool same_word(const char *a, const char *b, size_t key)
{
    size_t a_length = strcspn(a, " "), b_length = strcspn(b, " ");
    double x, y;
    if (a_length == b_length && !strncmp(a, b, a_length)) return true;
    return weft__text_read_double(a + key, &x) == a + a_length &&
           weft__text_read_double(b + key, &y) == b + b_length && x == y;
}

/* The word after `word`; NULL at the end. */
static const char *next_word(const char *word)
{
    word += strcspn(word, " ");
    return *word ? word + 1 : NULL;
}

/* The word of `text` that begins with the first `key` bytes of `word`; NULL if there is none. */
static const char *find_key(const char *text, const char *word, size_t key)
{
    for (; text; text = next_word(text))
        if (!strncmp(text, word, key)) return text;
    return NULL;
}

static const char *first(const char *text)
{
    return text && *text ? text : NULL;
}

bool weft__options_differ(const char *a, const char *b, const char **was, const char **is)
{
    for (*was = first(a); *was; *was = next_word(*was)) {
        size_t key = strcspn(*was, "= ") + 1;
        *is = find_key(first(b), *was, key);
        if (!*is || !same_word(*was, *is, key)) return true;
    }
    for (*is = first(b); *is; *is = next_word(*is))
        if (!find_key(first(a), *is, strcspn(*is, "= ") + 1)) return true;
    return false;
}
