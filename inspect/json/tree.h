/* json/tree.h - cJSON with two additions: it distinguishes out of memory from malformed text, and
 * its numbers do not depend on the locale. Not installed. */
#ifndef WEFT_JSON_TREE_H
#define WEFT_JSON_TREE_H

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
 * become U+FFFD, because readers of JSON refuse them. NULL if out of memory. */
char *weft__json_print(const cJSON *json, bool lines);

#endif
