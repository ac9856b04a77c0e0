/* The groups of a pattern, which are parts of the schema that others refer to: calls of them, places
 * that $ref names, and loops. */
#include "schema.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FOLLOW 1000
#define MAX_WORK   20000000 /* comparisons of names and places */

bool weft__schema_work(schema_writer *w, size_t n, const schema_place *at)
{
    w->work += n;
    if (w->work > MAX_WORK)
        weft__schema_refuse(w, at, "the schema has too many names and references");
    return w->status == WEFT_OK;
}

void weft__schema_call(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    size_t i = 0;
    if (!weft__schema_work(w, w->n_groups, at)) return;
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
static const cJSON *find_reference(schema_writer *w, const cJSON *reference,
                                   const schema_place *place)
{
    const char *at = cJSON_IsString(reference) ? reference->valuestring : "";
    const cJSON *found = w->root;
    char part[256];
    if (*at++ != '#') return NULL;
    while (*at++ == '/' && found) {
        if (!pointer_part(&at, part) ||
            !weft__schema_work(w, (size_t)cJSON_GetArraySize(found), place))
            return NULL;
        if (!cJSON_IsArray(found))
            found = cJSON_GetObjectItemCaseSensitive(found, part);
        else
            found = strspn(part, "0123456789") == strlen(part) && *part && strlen(part) < 6
                        ? cJSON_GetArrayItem(found, (int)strtol(part, NULL, 10))
                        : NULL;
    }
    return at[-1] ? NULL : found;
}

const cJSON *weft__schema_reference(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *reference = weft__schema_keyword(schema, "$ref");
    const cJSON *found = find_reference(w, reference, at);
    if (!found)
        weft__schema_refuse(w, at, "$ref \"%s\" is not a place in this schema",
                            cJSON_IsString(reference) ? reference->valuestring : "");
    return found;
}

void weft__schema_check_loops(schema_writer *w, const cJSON *schema, const schema_place *at,
                              int depth)
{
    static const char *const choices[] = {"anyOf", "oneOf", "allOf"};
    if (depth > MAX_FOLLOW) weft__schema_refuse(w, at, "too many references follow each other");
    if (!weft__schema_work(w, 2 * w->n_groups, at)) return;
    for (size_t i = 0; i < w->n_groups; i++) {
        if (w->groups[i].schema != schema || w->status != WEFT_OK) continue;
        const schema_place place = {NULL, w->groups[i].place, 0};
        if (w->groups[i].check == 1)
            weft__schema_refuse(w, *place.name ? &place : NULL, "the schema refers to itself");
        if (w->groups[i].check) return;
        w->groups[i].check = 1;
    }
    if (w->status == WEFT_OK && weft__schema_keyword(schema, "$ref")) {
        const cJSON *next = weft__schema_reference(w, schema, at);
        if (next) weft__schema_check_loops(w, next, at, depth + 1);
    }
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
        const cJSON *item, *list = weft__schema_keyword(schema, choices[k]);
        cJSON_ArrayForEach(item, list) if (w->status == WEFT_OK)
            weft__schema_check_loops(w, item, at, depth + 1);
    }
    for (size_t i = 0; i < w->n_groups; i++)
        if (w->groups[i].schema == schema) w->groups[i].check = 2;
}
