/* base/json.h - JSON texts read value by value, without a tree, and written character by character:
 * what the headers of safetensors files need. Not installed.
 */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "private.h"

/* ---- Reading ---- */

typedef struct json_span {
    const char *at;
    size_t length;
} json_span;

typedef enum json_step { JSON_MEMBER, JSON_END, JSON_MALFORMED } json_step;

/* A walk over the members of an object or the items of an array. Begin with {.rest = its text}. */
typedef struct json_members {
    json_span rest;
    bool begun;
} json_members;

/* Finds the next member of an object. `key` and `value` become the spans of the two JSON values,
 * which are not checked: read them with the functions below. After JSON_MALFORMED, rest.at is
 * approximately where the error is. */
WEFT_PRIVATE_API json_step weft__json_next(json_members *members, json_span *key, json_span *value);
/* The same for the next item of an array. */
json_step weft__json_item(json_members *items, json_span *value);

/* The first byte of a value, to the end of the span, that is not JSON; NULL if there is none. More
 * than 100 levels of brackets are refused. O(length x levels). */
const char *weft__json_check(json_span value);
/* Writes the text of a JSON string, which ends with NUL, to `text`: room for string.length bytes;
 * NULL: it is only checked. Returns NULL; or the first byte that is wrong: control characters, zero bytes and escaped ones
 * (\u0000) are refused, as are halves of surrogate pairs. */
const char *weft__json_text(json_span string, char *text);
/* Reads a number, which must be whole and in [0, 2^53); false for another value. */
bool weft__json_whole(json_span number, uint64_t *value);

/* ---- Writing ---- */

/* The most bytes of a character in a JSON string. */
#define JSON_CHARACTER 6
/* Writes the character at `text`, which is not NUL, as it stands in a JSON string, without NUL; a
 * byte that is not UTF-8 becomes U+FFFD, because readers of JSON refuse it. Returns the bytes, and
 * moves `*text` past the character. */
WEFT_PRIVATE_API size_t weft__json_put(const char **text, char to[JSON_CHARACTER]);

#endif
