/* base/json.h - cJSON with three additions: it distinguishes out of memory from malformed text, its
 * numbers do not depend on the locale, and it reads large objects member by member, without a tree
 * of the whole. Not installed.
 */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <cjson/cJSON.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct json_failure {
    bool no_memory;
    size_t position; /* of malformed text: approximately the first byte that is wrong */
} json_failure;

/* Parses a whole text, which need not end with a zero byte, into a tree; cJSON_Delete frees it. On
 * failure returns NULL and fills *why; `why` may be NULL. Zero bytes, escaped ones (\u0000) and
 * more than 100 levels of brackets are refused. A tree takes up to forty times the memory of its
 * text. */
cJSON *weft__json_parse(const char *text, size_t length, json_failure *why);
/* The text of a tree, on several lines or on one; cJSON_free frees it. Bytes that are not UTF-8
 * become U+FFFD, because readers of JSON refuse them. NULL when memory is out. */
char *weft__json_print(const cJSON *json, bool lines);

/* ---- Objects of any size, member by member ---- */

typedef struct json_span {
    const char *at;
    size_t length;
} json_span;

typedef enum json_step { JSON_MEMBER, JSON_END, JSON_MALFORMED } json_step;

typedef struct json_members {
    json_span rest;
    bool begun;
} json_members;

/* Finds the next member of an object. Begin with `members` = {.rest = the object's text}. `key` and
 * `value` become the spans of the two JSON values, which are not checked: parse them with
 * weft__json_parse. After JSON_MALFORMED, rest.at is approximately where the error is. */
json_step weft__json_next(json_members *members, json_span *key, json_span *value);

#endif
