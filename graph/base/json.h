/* base/json.h - what cJSON leaves open: memory that runs out is told from text that is no JSON,
 * numbers do not depend on the locale, and large objects are walked over without a tree.
 *
 * Not installed.
 */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <cjson/cJSON.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct json_failure {
    bool no_memory;
    size_t position; /* if the text is no JSON: about the byte where it stops being so */
} json_failure;

/* The whole of a text, in which a zero is no JSON, escaped or not, nor more than 100 levels
 * of brackets, and which need not end with a
 * zero, as a tree; NULL, and *why, which may be NULL, on failure. A tree takes up to forty times
 * the memory of its text. */
cJSON *json_parse(const char *text, size_t length, json_failure *why);
/* The text of a tree, over several lines or on one; cJSON_free frees it. NULL: memory is out. */
char *json_print(const cJSON *json, bool lines);

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

/* Sets key and value to the next member of the object that `members`, {text}, began with. The spans
 * are those of JSON values that json_parse has still to check. After JSON_MALFORMED, rest.at is
 * about where. */
json_step json_next(json_members *members, json_span *key, json_span *value);

#endif
