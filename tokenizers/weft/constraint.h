/* weft/constraint.h - generated texts that match a regular expression or are JSON of a schema. Of
 * the library weft-tokenizers. */
#ifndef WEFT_CONSTRAINT_H
#define WEFT_CONSTRAINT_H

#include <weft/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Constraints ----------------------------------------------------------------------------- */

/* What a whole text must match. It does not change, so threads may share it. */
typedef struct weft_constraint weft_constraint;

/* A regular expression in the syntax of PCRE2, for characters of UTF-8, which the whole text must
 * match. Properties of Unicode apply to \w, \d and \s; $ is the end of the text. NULL on failure:
 * WEFT_BAD_ARGUMENT for a pattern that PCRE2 refuses, with its reason and the place, and for one with
 * (*ACCEPT) or a call of the whole pattern, such as (?R); WEFT_TOO_LARGE for one that names more than
 * 4096 different characters beyond ASCII. */
WEFT_API weft_constraint *weft_constraint_new_regex(const char *pattern, weft_error *error);

/* JSON that is valid for a JSON Schema (draft 2020-12), without whitespace other than a single space
 * after a colon or a comma. The schema is a text of JSON; NULL: any object.
 *
 * Keywords: type, properties, required, additionalProperties, items, minItems, maxItems, enum, const,
 * minLength, maxLength, pattern, format (date, time, date-time, ipv4, uuid, email), minimum, maximum,
 * exclusiveMinimum and exclusiveMaximum of integers, "minimum": 0 of numbers, anyOf, oneOf (as anyOf),
 * allOf of one schema, and $ref to a place in the same schema, also recursively. `type` may stand next
 * to enum and const. Annotations, such as title, have no effect. Generated texts are narrower than the
 * schema in these ways:
 * - Names of `properties` and values of enum and const have only the escapes that JSON needs, and
 *   members of these values come in the order of the schema.
 * - Members come in the order of `properties`. Others are allowed only if additionalProperties is
 *   true or a schema, or if there are no `properties`. Next to `properties` their names have no
 *   escapes.
 * - A number has at most 16 digits before and after the point, and 2 in its exponent.
 * - `pattern` matches characters that need no escape in JSON.
 * NULL on failure: WEFT_BAD_ARGUMENT for another keyword, whose place the message names, for a schema
 * that is not JSON or not UTF-8, and for one that takes more than 20 million comparisons of names and
 * references; WEFT_TOO_LARGE for one whose pattern is. */
WEFT_API weft_constraint *weft_constraint_new_json(const char *schema, weft_error *error);
WEFT_API void weft_constraint_free(weft_constraint *constraint);
/* The regular expression, which lives as long as the constraint. */
WEFT_API const char *weft_constraint_pattern(const weft_constraint *constraint);

typedef enum weft_constraint_state {
    WEFT_CONSTRAINT_NEVER, /* no text that begins so matches */
    WEFT_CONSTRAINT_MAYBE, /* it does not match, but a longer one may. Where the pattern looks ahead,
                              there may be none */
    WEFT_CONSTRAINT_WHOLE, /* it matches; a longer one may as well */
} weft_constraint_state;

/* Sets *state to that of `length` bytes. They may end within a character. Fails with WEFT_TOO_LARGE if
 * the pattern takes more than 20000 + 200 length steps, as patterns do that can match in very many
 * ways. */
WEFT_API weft_status weft_constraint_match(const weft_constraint *constraint, const char *bytes,
                                           size_t length, weft_constraint_state *state,
                                           weft_error *error);

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* The bytes that each id of a tokeniser adds to a text. It does not change, so threads may share it;
 * the tokeniser must outlive it. It takes about as much memory as the vocabulary. */
typedef struct weft_token_bytes weft_token_bytes;
WEFT_API weft_token_bytes *weft_token_bytes_new(const weft_tokenizer *tokenizer, weft_error *error);
WEFT_API void weft_token_bytes_free(weft_token_bytes *tokens);
/* The bytes that an id adds after others, and their number; none for an id that is special or
 * outside the vocabulary. */
WEFT_API const char *weft_token_bytes_of(const weft_token_bytes *tokens, int32_t id,
                                         size_t *length);

/* A text that grows token by token and must match a constraint. For one thread at a time. */
typedef struct weft_constrained_text weft_constrained_text;

typedef struct weft_constrained_text_options {
    const int32_t *ends; /* ids that end a text; copied */
    size_t n_ends;
    bool continues; /* other tokens, such as a prompt, come before the text. False: the first token
                       begins a text, for tokenisers that write the beginning of a text otherwise */
} weft_constrained_text_options;

/* `constraint` and `tokens` must outlive it; `options` may be NULL. */
WEFT_API weft_constrained_text *
weft_constrained_text_new(const weft_constraint *constraint, const weft_token_bytes *tokens,
                          const weft_constrained_text_options *options, weft_error *error);
WEFT_API void weft_constrained_text_free(weft_constrained_text *text);

/* Sets *allowed to whether `id` may follow the n tokens of the text: whether the text with its bytes
 * is the beginning of one that matches, or, for one of `ends`, whether the text matches. An id that
 * adds no bytes is not allowed. `text` is a weft_constrained_text *: this function is the `allows` of
 * weft_sampling_options (weft/decode.h). From call to call the tokens grow, or begin again.
 * Errors as those of weft_constraint_match, and WEFT_TOO_LARGE after 524288 matches for ids after the
 * same text, where a match that takes more than 1/32 of its steps counts as 33. */
WEFT_API weft_status weft_constrained_text_allows(void *text, const int32_t *tokens, size_t n,
                                                  int32_t id, bool *allowed, weft_error *error);
/* Moves n tokens to the beginning of the text, so that the tokens of later calls come after them. For
 * texts that continue in another window. */
WEFT_API weft_status weft_constrained_text_move(weft_constrained_text *text, const int32_t *tokens,
                                                size_t n, weft_error *error);
/* Sets *state to that of the text with n tokens. */
WEFT_API weft_status weft_constrained_text_match(weft_constrained_text *text, const int32_t *tokens,
                                                 size_t n, weft_constraint_state *state,
                                                 weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
