/* json/add.h - trees of cJSON whose failed allocations are noticed. Not installed. */
#ifndef WEFT_JSON_ADD_H
#define WEFT_JSON_ADD_H

#include <cjson/cJSON.h>

#include <stdbool.h>

/* What makes a tree. */
typedef struct json_maker {
    bool no_memory; /* an allocation has failed: the tree lacks members */
} json_maker;

/* Adds an item, which the tree owns then, as the member `name` of an object, or to the end of an
 * array if `name` is NULL. An item or object that is NULL was not allocated. Returns the item;
 * NULL, and sets no_memory, if it was not added. */
cJSON *weft__json_add(json_maker *m, cJSON *to, const char *name, cJSON *item);

/* The same for new items. */
static inline cJSON *json_add_object(json_maker *m, cJSON *to, const char *name)
{
    return weft__json_add(m, to, name, cJSON_CreateObject());
}

static inline cJSON *json_add_array(json_maker *m, cJSON *to, const char *name)
{
    return weft__json_add(m, to, name, cJSON_CreateArray());
}

static inline void json_add_number(json_maker *m, cJSON *to, const char *name, double value)
{
    weft__json_add(m, to, name, cJSON_CreateNumber(value));
}

static inline void json_add_text(json_maker *m, cJSON *to, const char *name, const char *value)
{
    weft__json_add(m, to, name, cJSON_CreateString(value));
}

static inline void json_add_bool(json_maker *m, cJSON *to, const char *name, bool value)
{
    weft__json_add(m, to, name, cJSON_CreateBool(value));
}

#endif
