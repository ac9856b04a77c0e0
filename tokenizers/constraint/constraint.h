/* constraint.h - the parts of a constraint: patterns (pattern.c), the matcher (match.c), tokens (tokens.c, text.c), and the
 * compiler of schemas (schema*.c). Not installed. */
#ifndef WEFT_TOKENIZERS_CONSTRAINT_H
#define WEFT_TOKENIZERS_CONSTRAINT_H

#include <weft/constraint.h>

/* Of a character of UTF-8. */
#define CHARACTER_BYTES 4

/* Matches at one place of a text: more than a vocabulary has tokens. */
#define MAX_MATCHES (1 << 19)

static inline weft_status weft__constraint_no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "constraint", "out of memory");
}

/* What one thread needs to match: scratch memory and limits. */
typedef struct constraint_matcher {
    const weft_constraint *constraint;
    void *data, *context, *stack; /* of PCRE2 */
    size_t matches;               /* at this place of the text; more than MAX_MATCHES fail */
} constraint_matcher;

bool weft__constraint_open(constraint_matcher *m, const weft_constraint *constraint,
                           weft_error *error);
void weft__constraint_close(constraint_matcher *m);

/* Sets *begins to whether the bytes are the beginning of a text that may match. Writes
 * up to CHARACTER_BYTES after them. */
weft_status weft__constraint_begins(constraint_matcher *m, char *bytes, size_t length, bool *begins,
                                    weft_error *error);
/* Sets *whole to whether the bytes match. */
weft_status weft__constraint_whole(constraint_matcher *m, const char *bytes, size_t length,
                                   bool *whole, weft_error *error);

/* Bytes of PCRE2's reason, with its place. */
#define PATTERN_WHY 160
/* Compiles bytes [begin, end) of a pattern. WEFT_BAD_ARGUMENT and the reason if PCRE2 refuses them. */
weft_status weft__constraint_check(const char *pattern, size_t begin, size_t end,
                                   char why[PATTERN_WHY]);

const weft_tokenizer *weft__token_bytes_tokenizer(const weft_token_bytes *tokens);

/* Compiles the pattern, which free() frees; NULL: there was no memory for it. */
weft_constraint *weft__constraint_make(char *pattern, bool is_json, weft_error *error);

#endif
