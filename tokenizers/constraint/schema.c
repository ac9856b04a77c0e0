/* Compiles a JSON Schema to a regular expression. Every part that is referred to, and the items of
 * each array, are groups of their own, which the pattern calls by name, so the pattern is about as
 * long as the schema and may be recursive. An object's members are written in the order of
 * `properties`; a comma precedes all but the first, which follows a brace. */
#include "schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = {"object", "array",   "string", "integer",
                                    "number", "boolean", "null"};
#define TYPES (sizeof types / sizeof *types)

/* Space, and what JSON is made of: separators, strings, numbers, any value. \u0000 and halves of
 * surrogate pairs are left out, because many readers refuse them. */
#define HEX "[0-9A-Fa-f]"
#define ESCAPE                                                                                     \
    "\\\\(?:[\"\\\\/bfnrt]|u(?!0000)(?:[0-9A-CEFa-cef]" HEX "{3}|[Dd][0-7]" HEX "{2}"              \
    "|[Dd][89ABab]" HEX "{2}\\\\u[Dd][C-Fc-f]" HEX "{2}))"
static const char basics[] = "(?<e>(?<=\\{)|(?<!\\{),\\x20?)"
                             "(?<c>" SCHEMA_PLAIN "|" ESCAPE ")"
                             "(?<s>\"(?:" SCHEMA_PLAIN "++|" ESCAPE ")*+\")"
                             "(?<i>-?(?:0|[1-9][0-9]{0,15}))"
                             "(?<n>(?&i)(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?)"
                             "(?<v>(?&s)|(?&n)|true|false|null|(?&o)|(?&a))"
                             "(?<o>\\{(?:(?&s):\\x20?(?&v)(?:,\\x20?(?&s):\\x20?(?&v))*+)?\\})"
                             "(?<a>\\[(?:(?&v)(?:,\\x20?(?&v))*+)?\\])";

static size_t size_of(const cJSON *list)
{
    return (size_t)cJSON_GetArraySize(list);
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

/* Fails for an unsupported keyword, and for one next to another that decides alone, other than the
 * type of given values. Returns that one, or NULL. */
static const char *check_keywords(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const char *alone = NULL, *other = NULL;
    const cJSON *item, *type = weft__schema_keyword(schema, "type");
    if (!weft__schema_work(w, size_of(schema), at)) return NULL;
    cJSON_ArrayForEach(item, schema)
    {
        if (w->status != WEFT_OK) return NULL;
        if (is_one_of(item->string, annotations)) continue;
        if (is_one_of(item->string, structures)) {
            if (alone)
                weft__schema_refuse(w, at, "%s next to %s is unsupported", alone, item->string);
            alone = item->string;
        } else if (is_one_of(item->string, of_types)) {
            if (item != type) other = item->string;
        } else {
            weft__schema_refuse(w, at, "the keyword \"%s\" is unsupported", item->string);
        }
    }
    if (alone && type && strcmp(alone, "enum") != 0 && strcmp(alone, "const") != 0)
        other = type->string;
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

/* Members with other names. Where there are names, the others have no escapes: "\u0061" is "a". */
static void write_others(schema_writer *w, const cJSON *properties, const cJSON *others,
                         const schema_place *at)
{
    const schema_place place = {at, "additionalProperties", 0};
    const cJSON *item;
    const bool named = properties && properties->child;
    weft__schema_put(w, "(?:(?&e)");
    if (named) {
        weft__schema_put(w, "(?!");
        cJSON_ArrayForEach(item, properties)
        {
            if (item != properties->child) weft__schema_put(w, "|");
            weft__schema_text(w, item->string);
        }
        weft__schema_put(w, ")");
    }
    weft__schema_put(w, "%s:\\x20?", named ? "\"" SCHEMA_PLAIN "*+\"" : "(?&s)");
    if (cJSON_IsObject(others))
        weft__schema_call(w, others, &place);
    else
        weft__schema_put(w, "(?&v)");
    weft__schema_put(w, ")*");
}

/* Checks the properties of an object and the list of those that are required. */
static void check_members(schema_writer *w, const cJSON *properties, const cJSON *required,
                          const schema_place *at)
{
    const cJSON *item;
    if (properties && !cJSON_IsObject(properties))
        weft__schema_refuse(w, at, "properties must be an object");
    if (required && !cJSON_IsArray(required)) weft__schema_refuse(w, at, "required must be a list");
    const size_t n = size_of(required), most = size_of(properties);
    /* Each required name is looked for among the properties, and each property among them. */
    if (!weft__schema_work(w, 2 * n * most, at)) return;
    cJSON_ArrayForEach(item, required)
    {
        if (w->status != WEFT_OK) return;
        if (!cJSON_IsString(item) ||
            !cJSON_GetObjectItemCaseSensitive(properties, item->valuestring))
            weft__schema_refuse(w, at, "required names \"%s\", which is not one of the properties",
                                cJSON_IsString(item) ? item->valuestring : "");
    }
    if (n > most) weft__schema_refuse(w, at, "required has a name twice");
}

static void write_object(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *properties = weft__schema_keyword(schema, "properties"), *item;
    const cJSON *required = weft__schema_keyword(schema, "required");
    const cJSON *others = weft__schema_keyword(schema, "additionalProperties");
    const schema_place in = {at, "properties", 0};
    check_members(w, properties, required, at);
    weft__schema_put(w, "\\{");
    cJSON_ArrayForEach(item, properties)
    {
        if (w->status != WEFT_OK) return;
        const schema_place place = {&in, item->string, 0};
        const bool wanted = is_required(required, item->string);
        if (!wanted) weft__schema_put(w, "(?:");
        weft__schema_put(w, "(?&e)");
        weft__schema_text(w, item->string);
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
            weft__schema_call(w, items, &place);
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
    if (w->status != WEFT_OK) return;
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
    else
        weft__schema_put(w, "null");
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

static void check_type(schema_writer *w, const char *type, const schema_place *at)
{
    for (size_t i = 0; i < TYPES; i++)
        if (!strcmp(types[i], type)) return;
    weft__schema_refuse(w, at, "the type \"%s\" is unknown", type);
}

/* Fails unless `type` (NULL: none) is a type or a list of types. */
static void check_types(schema_writer *w, const cJSON *type, const schema_place *at)
{
    const cJSON *item;
    if (cJSON_IsString(type)) check_type(w, type->valuestring, at);
    if (!type || cJSON_IsString(type)) return;
    if (!cJSON_IsArray(type) || !type->child || size_of(type) > TYPES) {
        weft__schema_refuse(w, at, "type must be a name or a list of at most %zu names", TYPES);
        return;
    }
    cJSON_ArrayForEach(item, type) check_type(w, cJSON_IsString(item) ? item->valuestring : "", at);
}

static void write_types(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *type = weft__schema_keyword(schema, "type"), *item;
    const char *implied = type ? NULL : implied_type(schema);
    check_types(w, type, at);
    if (w->status != WEFT_OK) return;
    if (!type && !implied) {
        weft__schema_put(w, "(?&v)");
    } else if (implied || cJSON_IsString(type)) {
        write_type(w, schema, implied ? implied : type->valuestring, at);
    } else {
        cJSON_ArrayForEach(item, type)
        {
            weft__schema_put(w, item == type->child ? "(?:" : "|");
            write_type(w, schema, item->valuestring, at);
        }
        weft__schema_put(w, ")");
    }
}

/* ---- Schemas ---- */

/* Alternatives. */
static void write_any(schema_writer *w, const cJSON *list, const schema_place *at)
{
    const cJSON *item;
    schema_place place = {at, NULL, 0};
    if (!cJSON_IsArray(list) || !list->child)
        weft__schema_refuse(w, at, "expected a list that is not empty");
    cJSON_ArrayForEach(item, list)
    {
        if (w->status != WEFT_OK) return;
        weft__schema_put(w, item == list->child ? "(?:" : "|");
        write_schema(w, item, &place);
        place.index++;
    }
    weft__schema_put(w, ")");
}

static bool has_type(const cJSON *value, const char *type)
{
    const double x = value->valuedouble;
    switch (*type) {
    case 'o':
        return cJSON_IsObject(value);
    case 'a':
        return cJSON_IsArray(value);
    case 's':
        return cJSON_IsString(value);
    case 'b':
        return cJSON_IsBool(value);
    case 'i':
        return cJSON_IsNumber(value) && x == floor(x);
    default:
        return type[2] == 'm' ? cJSON_IsNumber(value) : cJSON_IsNull(value);
    }
}

/* Whether a value has the type, or one of the types, of a schema. */
static bool is_of_types(const cJSON *value, const cJSON *type)
{
    const cJSON *item;
    if (!type) return true;
    if (cJSON_IsString(type)) return has_type(value, type->valuestring);
    cJSON_ArrayForEach(item, type) if (has_type(value, item->valuestring)) return true;
    return false;
}

/* The values that have the schema's type: of a list, or one. */
static void write_values(schema_writer *w, const cJSON *schema, bool list, const schema_place *at)
{
    const cJSON *type = weft__schema_keyword(schema, "type");
    const cJSON *value = weft__schema_keyword(schema, list ? "enum" : "const");
    size_t n = 0;
    check_types(w, type, at);
    if (list && (!cJSON_IsArray(value) || !value->child))
        weft__schema_refuse(w, at, "enum must be a list that is not empty");
    for (value = list && w->status == WEFT_OK ? value->child : value; value && w->status == WEFT_OK;
         value = list ? value->next : NULL) {
        if (!is_of_types(value, type)) continue;
        weft__schema_put(w, n++ ? "|" : "(?:");
        weft__schema_literal(w, value);
    }
    if (!n) weft__schema_refuse(w, at, "no value has the type");
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
        const cJSON *to = weft__schema_reference(w, schema, at);
        const char *name = to ? item->valuestring + strspn(item->valuestring, "#/") : "";
        const schema_place target = {NULL, name, 0};
        if (to) weft__schema_call(w, to, *name ? &target : NULL);
    } else if (!strcmp(alone, "const") || !strcmp(alone, "enum")) {
        write_values(w, schema, *alone == 'e', at);
    } else if (!strcmp(alone, "allOf")) {
        if (cJSON_GetArraySize(item) != 1)
            weft__schema_refuse(w, at, "allOf of other than one schema is unsupported");
        write_schema(w, item->child, &place);
    } else {
        write_any(w, item, &place);
    }
}

static void write_groups(schema_writer *w)
{
    weft__schema_put(w, "(?(DEFINE)%s", basics);
    for (size_t i = 0; i < w->n_groups && w->status == WEFT_OK; i++) {
        const schema_place place = {NULL, w->groups[i].place, 0};
        weft__schema_put(w, "(?<r%zu>", i);
        write_schema(w, w->groups[i].schema, *place.name ? &place : NULL);
        weft__schema_put(w, ")");
    }
    for (size_t i = 0; i < w->n_groups && w->status == WEFT_OK; i++) {
        const schema_place place = {NULL, w->groups[i].place, 0};
        weft__schema_check_loops(w, w->groups[i].schema, *place.name ? &place : NULL, 0);
    }
    weft__schema_put(w, ")(?&r0)");
}

/* The pattern of a schema (NULL: of any object); free() frees it. NULL on failure. */
static char *pattern_of(const char *schema, weft_error *error)
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

weft_constraint *weft_constraint_new_json(const char *schema, weft_error *error)
{
    weft_error_clear(error);
    if (schema && !weft_text_is_utf8(schema, strlen(schema))) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "schema", "is not UTF-8");
        return NULL;
    }
    char *pattern = pattern_of(schema, error);
    return pattern ? weft__constraint_make(pattern, true, error) : NULL;
}
