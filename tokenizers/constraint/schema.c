/* Compiles a JSON Schema to a regular expression. Every part that is referred to, and the items of
 * each array, are groups of their own, which the pattern calls by name, so the pattern is about as
 * long as the schema and may be recursive. An object's members are written in the order of
 * `properties`; a comma precedes all but the first, which follows a brace. */
#include "schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GROUPS 5000
#define MAX_FOLLOW 1000

/* Space, and what JSON is made of: separators, strings, numbers, any value. \u0000 and halves of
 * surrogate pairs are left out, because many readers refuse them. */
#define HEX "[0-9A-Fa-f]"
#define ESCAPE                                                                                     \
    "\\\\(?:[\"\\\\/bfnrt]|u(?!0000)(?:[0-9A-CEFa-cef]" HEX "{3}|[Dd][0-7]" HEX "{2}"              \
    "|[Dd][89ABab]" HEX "{2}\\\\u[Dd][C-Fc-f]" HEX "{2}))"
#define PLAIN "[^\"\\\\\\x00-\\x1f]"
static const char basics[] = "(?<e>(?<=\\{)|(?<!\\{),\\x20?)"
                             "(?<c>" PLAIN "|" ESCAPE ")"
                             "(?<s>\"(?:" PLAIN "++|" ESCAPE ")*+\")"
                             "(?<i>-?(?:0|[1-9][0-9]{0,15}))"
                             "(?<n>(?&i)(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?)"
                             "(?<v>(?&s)|(?&n)|true|false|null|(?&o)|(?&a))"
                             "(?<o>\\{(?:(?&s):\\x20?(?&v)(?:,\\x20?(?&s):\\x20?(?&v))*+)?\\})"
                             "(?<a>\\[(?:(?&v)(?:,\\x20?(?&v))*+)?\\])";

/* ---- Groups ---- */

/* Writes a call of the group of a schema. */
static void call_group(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    size_t i = 0;
    while (i < w->n_groups && w->groups[i].schema != schema) i++;
    if (i == MAX_GROUPS) {
        weft__schema_refuse(w, at, "the schema has more than %d parts", MAX_GROUPS);
        return;
    }
    if (i == w->n_groups) {
        char place[sizeof w->groups->place + 2];
        schema_group *g = &w->groups[w->n_groups++];
        *g = (schema_group){.schema = schema};
        if (weft__schema_place(at, place, sizeof place) > 2)
            memcpy(g->place, place + 2, strlen(place + 2) + 1);
    }
    weft__schema_put(w, "(?&r%zu)", i);
}

/* Reads a part of a JSON pointer, in which ~1 is a slash and ~0 a tilde; false if it is too long. */
static bool pointer_part(const char **at, char part[256])
{
    size_t n = 0;
    for (; **at && **at != '/'; ++*at) {
        if (n == 255) return false;
        const bool escaped = (*at)[0] == '~' && ((*at)[1] == '0' || (*at)[1] == '1');
        part[n++] = escaped ? ((*at)[1] == '1' ? '/' : '~') : **at;
        *at += escaped;
    }
    part[n] = 0;
    return true;
}

/* The part of the schema that "#/a/b" names; NULL if there is none. */
static const cJSON *find_reference(const schema_writer *w, const cJSON *reference)
{
    const char *at = cJSON_IsString(reference) ? reference->valuestring : "";
    const cJSON *found = w->root;
    char part[256];
    if (*at++ != '#') return NULL;
    while (*at++ == '/' && found) {
        if (!pointer_part(&at, part)) return NULL;
        if (!cJSON_IsArray(found))
            found = cJSON_GetObjectItemCaseSensitive(found, part);
        else
            found = strspn(part, "0123456789") == strlen(part) && *part && strlen(part) < 6
                        ? cJSON_GetArrayItem(found, (int)strtol(part, NULL, 10))
                        : NULL;
    }
    return at[-1] ? NULL : found;
}

static const cJSON *reference_of(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *reference = weft__schema_keyword(schema, "$ref");
    const cJSON *found = find_reference(w, reference);
    if (!found)
        weft__schema_refuse(w, at, "$ref \"%s\" is not a place in this schema",
                            cJSON_IsString(reference) ? reference->valuestring : "");
    return found;
}

/* Fails for a schema that is reached again before a byte of JSON: it would have no end. */
static void check_loops(schema_writer *w, const cJSON *schema, const schema_place *at, int depth)
{
    static const char *const choices[] = {"anyOf", "oneOf", "allOf"};
    if (depth > MAX_FOLLOW) weft__schema_refuse(w, at, "too many references follow each other");
    for (size_t i = 0; i < w->n_groups; i++) {
        if (w->groups[i].schema != schema || w->status != WEFT_OK) continue;
        if (w->groups[i].check == 1) weft__schema_refuse(w, at, "the schema refers to itself");
        if (w->groups[i].check) return;
        w->groups[i].check = 1;
    }
    if (w->status == WEFT_OK && weft__schema_keyword(schema, "$ref")) {
        const cJSON *next = reference_of(w, schema, at);
        if (next) check_loops(w, next, at, depth + 1);
    }
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
        const cJSON *item, *list = weft__schema_keyword(schema, choices[k]);
        cJSON_ArrayForEach(item, list) if (w->status == WEFT_OK)
            check_loops(w, item, at, depth + 1);
    }
    for (size_t i = 0; i < w->n_groups; i++)
        if (w->groups[i].schema == schema) w->groups[i].check = 2;
}

/* ---- Keywords ---- */

static bool is_one_of(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

static const char *const annotations[] = {"title",      "description", "default",   "examples",
                                          "example",    "$schema",     "$id",       "$comment",
                                          "$anchor",    "readOnly",    "writeOnly", "$defs",
                                          "deprecated", "definitions", "strict",    NULL};
static const char *const structures[] = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const", NULL};
static const char *const of_types[] = {
    "type",      "properties",       "required",         "additionalProperties",
    "items",     "minItems",         "maxItems",         "minLength",
    "maxLength", "pattern",          "format",           "minimum",
    "maximum",   "exclusiveMinimum", "exclusiveMaximum", NULL};

/* Fails for an unsupported keyword, and for one next to another that decides alone. Returns that
 * one, or NULL. */
static const char *check_keywords(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const char *alone = NULL, *other = NULL;
    const cJSON *item;
    cJSON_ArrayForEach(item, schema)
    {
        if (is_one_of(item->string, annotations)) continue;
        if (is_one_of(item->string, structures)) {
            if (alone)
                weft__schema_refuse(w, at, "%s next to %s is unsupported", alone, item->string);
            alone = item->string;
        } else if (is_one_of(item->string, of_types)) {
            if (strcmp(item->string, "type") != 0) other = item->string;
        } else {
            weft__schema_refuse(w, at, "the keyword \"%s\" is unsupported", item->string);
        }
    }
    if (alone && other) weft__schema_refuse(w, at, "%s next to %s is unsupported", other, alone);
    return alone;
}

/* ---- Types ---- */

static void write_schema(schema_writer *w, const cJSON *schema, const schema_place *at);

static bool is_required(const cJSON *required, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, required) if (cJSON_IsString(item) &&
                                           !strcmp(item->valuestring, name)) return true;
    return false;
}

static void write_name(schema_writer *w, const char *name)
{
    cJSON *text = cJSON_CreateStringReference(name);
    if (!text) weft__schema_no_memory(w);
    if (text) weft__schema_literal(w, text);
    cJSON_Delete(text);
}

/* Members with other names. */
static void write_others(schema_writer *w, const cJSON *properties, const cJSON *others,
                         const schema_place *at)
{
    const schema_place place = {at, "additionalProperties", 0};
    const cJSON *item;
    weft__schema_put(w, "(?:(?&e)");
    if (properties && properties->child) {
        weft__schema_put(w, "(?!(?:");
        cJSON_ArrayForEach(item, properties)
        {
            if (item != properties->child) weft__schema_put(w, "|");
            write_name(w, item->string);
        }
        weft__schema_put(w, "):)");
    }
    weft__schema_put(w, "(?&s):\\x20?");
    if (cJSON_IsObject(others))
        call_group(w, others, &place);
    else
        weft__schema_put(w, "(?&v)");
    weft__schema_put(w, ")*");
}

static void write_object(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *properties = weft__schema_keyword(schema, "properties"), *item;
    const cJSON *required = weft__schema_keyword(schema, "required");
    const cJSON *others = weft__schema_keyword(schema, "additionalProperties");
    const schema_place in = {at, "properties", 0};
    if (properties && !cJSON_IsObject(properties))
        weft__schema_refuse(w, at, "properties must be an object");
    if (required && !cJSON_IsArray(required)) weft__schema_refuse(w, at, "required must be a list");
    cJSON_ArrayForEach(
        item, required) if (!cJSON_IsString(item) ||
                            !cJSON_GetObjectItemCaseSensitive(properties, item->valuestring))
        weft__schema_refuse(w, at, "required names \"%s\", which is not one of the properties",
                            cJSON_IsString(item) ? item->valuestring : "");
    weft__schema_put(w, "\\{");
    cJSON_ArrayForEach(item, properties)
    {
        const schema_place place = {&in, item->string, 0};
        const bool wanted = is_required(required, item->string);
        if (!wanted) weft__schema_put(w, "(?:");
        weft__schema_put(w, "(?&e)");
        write_name(w, item->string);
        weft__schema_put(w, ":\\x20?");
        write_schema(w, item, &place);
        if (!wanted) weft__schema_put(w, ")?");
    }
    if (cJSON_IsObject(others) || cJSON_IsTrue(others) || (!others && !properties))
        write_others(w, properties, others, at);
    weft__schema_put(w, "\\}");
}

static void write_array(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *items = weft__schema_keyword(schema, "items");
    const schema_place place = {at, "items", 0};
    const long least = weft__schema_count(w, schema, "minItems", 0, at);
    const long most = weft__schema_count(w, schema, "maxItems", -1, at);
    if (items && !cJSON_IsObject(items) && !cJSON_IsTrue(items))
        weft__schema_refuse(w, &place, "items must be a schema");
    if (most >= 0 && most < least) weft__schema_refuse(w, at, "maxItems is below minItems");
    weft__schema_put(w, "\\[");
    for (int i = 0; i < 2 && most != 0; i++) {
        weft__schema_put(w, i ? "(?:,\\x20?" : "(?:");
        if (cJSON_IsObject(items))
            call_group(w, items, &place);
        else
            weft__schema_put(w, "(?&v)");
        if (!i) continue;
        weft__schema_put(w, "){%ld,", least > 1 ? least - 1 : 0);
        if (most > 0) weft__schema_put(w, "%ld", most - 1);
        weft__schema_put(w, "})%s", least > 0 ? "" : "?");
    }
    weft__schema_put(w, "\\]");
}

static void write_type(schema_writer *w, const cJSON *schema, const char *type,
                       const schema_place *at)
{
    if (!strcmp(type, "object"))
        write_object(w, schema, at);
    else if (!strcmp(type, "array"))
        write_array(w, schema, at);
    else if (!strcmp(type, "string"))
        weft__schema_string(w, schema, at);
    else if (!strcmp(type, "integer") || !strcmp(type, "number"))
        weft__schema_number(w, schema, *type == 'i', at);
    else if (!strcmp(type, "boolean"))
        weft__schema_put(w, "(?:true|false)");
    else if (!strcmp(type, "null"))
        weft__schema_put(w, "null");
    else
        weft__schema_refuse(w, at, "the type \"%s\" is unknown", type);
}

/* The type that a schema without one has by its keywords; NULL: any. */
static const char *implied_type(const cJSON *schema)
{
    static const char *const keywords[][2] = {
        {"properties", "object"},       {"additionalProperties", "object"},
        {"required", "object"},         {"items", "array"},
        {"minItems", "array"},          {"maxItems", "array"},
        {"pattern", "string"},          {"minLength", "string"},
        {"maxLength", "string"},        {"format", "string"},
        {"minimum", "number"},          {"maximum", "number"},
        {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"}};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (weft__schema_keyword(schema, keywords[i][0])) return keywords[i][1];
    return NULL;
}

static void write_types(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *type = weft__schema_keyword(schema, "type"), *item;
    const char *implied = type ? NULL : implied_type(schema);
    if (!type && !implied) {
        weft__schema_put(w, "(?&v)");
    } else if (implied || cJSON_IsString(type)) {
        write_type(w, schema, implied ? implied : type->valuestring, at);
    } else if (!cJSON_IsArray(type) || !type->child) {
        weft__schema_refuse(w, at, "type must be a name or a list of names");
    } else {
        cJSON_ArrayForEach(item, type)
        {
            weft__schema_put(w, item == type->child ? "(?:" : "|");
            write_type(w, schema, cJSON_IsString(item) ? item->valuestring : "", at);
        }
        weft__schema_put(w, ")");
    }
}

/* ---- Schemas ---- */

/* Alternatives: schemas, or with `values` JSON values. */
static void write_any(schema_writer *w, const cJSON *list, bool values, const schema_place *at)
{
    const cJSON *item;
    schema_place place = {at, NULL, 0};
    if (!cJSON_IsArray(list) || !list->child)
        weft__schema_refuse(w, at, "expected a list that is not empty");
    cJSON_ArrayForEach(item, list)
    {
        weft__schema_put(w, item == list->child ? "(?:" : "|");
        if (values)
            weft__schema_literal(w, item);
        else
            write_schema(w, item, &place);
        place.index++;
    }
    weft__schema_put(w, ")");
}

static void write_schema(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    if (w->status != WEFT_OK) return;
    if (cJSON_IsTrue(schema)) {
        weft__schema_put(w, "(?&v)");
        return;
    }
    if (!cJSON_IsObject(schema)) {
        weft__schema_refuse(w, at,
                            cJSON_IsFalse(schema) ? "the schema false allows nothing"
                                                  : "a schema must be an object");
        return;
    }
    const char *alone = check_keywords(w, schema, at);
    const schema_place place = {at, alone, 0};
    const cJSON *item = alone ? weft__schema_keyword(schema, alone) : NULL;
    if (w->status != WEFT_OK) return;
    if (!alone) {
        write_types(w, schema, at);
    } else if (!strcmp(alone, "$ref")) {
        const cJSON *to = reference_of(w, schema, at);
        const char *name = to ? item->valuestring + strspn(item->valuestring, "#/") : "";
        const schema_place target = {NULL, name, 0};
        if (to) call_group(w, to, *name ? &target : NULL);
    } else if (!strcmp(alone, "const")) {
        weft__schema_literal(w, item);
    } else if (!strcmp(alone, "allOf")) {
        if (cJSON_GetArraySize(item) != 1)
            weft__schema_refuse(w, at, "allOf of other than one schema is unsupported");
        write_schema(w, item->child, &place);
    } else {
        write_any(w, item, !strcmp(alone, "enum"), &place);
    }
}

static void write_groups(schema_writer *w)
{
    weft__schema_put(w, "(?(DEFINE)%s", basics);
    for (size_t i = 0; i < w->n_groups && w->status == WEFT_OK; i++) {
        const schema_group *g = &w->groups[i];
        const schema_place place = {NULL, g->place, 0};
        const schema_place *at = *g->place ? &place : NULL;
        weft__schema_put(w, "(?<r%zu>", i);
        write_schema(w, g->schema, at);
        weft__schema_put(w, ")");
    }
    for (size_t i = 0; i < w->n_groups && w->status == WEFT_OK; i++)
        check_loops(w, w->groups[i].schema, NULL, 0);
    weft__schema_put(w, ")(?&r0)");
}

char *weft__schema_pattern(const char *schema, weft_error *error)
{
    static const char object[] = "{\"type\":\"object\"}";
    schema_writer w = {.error = error};
    json_failure why = {false, 0};
    const char *text = schema ? schema : object;
    cJSON *root = weft__json_parse(text, strlen(text), &why);
    w.groups = calloc(MAX_GROUPS, sizeof *w.groups);
    if (!root && !why.no_memory)
        w.status = weft_error_set(error, WEFT_BAD_ARGUMENT, "schema",
                                  "is not JSON, near byte %zu, or nested too deeply", why.position);
    else if (!root || !w.groups)
        weft__schema_no_memory(&w);
    w.root = root;
    if (w.status == WEFT_OK) {
        w.groups[w.n_groups++].schema = root;
        write_groups(&w);
    }
    cJSON_Delete(root);
    free(w.groups);
    if (w.status == WEFT_OK) return w.text;
    free(w.text);
    return NULL;
}
