/* Values of JSON texts, at most 100 levels deep. cJSON does not keep whether a number was written
 * with a point: whole ones become integers. Of equal keys the last one counts, at the place of the
 * first. */
#include "chat/value.h"

#include "json/tree.h"

#include <math.h>
#include <string.h>

#define MAX_LEVELS    100
#define LARGEST_WHOLE 0x1p53 /* up to here a double has every whole number */

static ct_value value_of(ct_render *r, const cJSON *json, const char *what, int level);

static ct_value text_of(ct_render *r, const char *text)
{
    ct_buffer b = weft__ct_buffer();
    weft__ct_put(&b, text, strlen(text));
    return weft__ct_take(r, &b);
}

/* The pairs of an object are a list of keys and values. */
static ct_value items_of(ct_render *r, const cJSON *json, const char *what, int level)
{
    ct_items list = {NULL, 0, 0};
    for (const cJSON *item = json->child; item && r->status == WEFT_OK; item = item->next) {
        if (cJSON_IsObject(json)) weft__ct_add(r, &list, text_of(r, item->string));
        const ct_value value = value_of(r, item, what, level + 1);
        if (r->status == WEFT_OK) weft__ct_add(r, &list, value);
    }
    if (r->status != WEFT_OK) return ct_none();
    return cJSON_IsObject(json) ? weft__ct_dict(r, &list)
                                : ct_sequence(CT_LIST, list.items, list.n);
}

static ct_value value_of(ct_render *r, const cJSON *json, const char *what, int level)
{
    if (level > MAX_LEVELS)
        return weft__ct_fail(r, WEFT_TOO_LARGE, "%s are nested too deeply", what);
    if (!weft__ct_work(r, 0) || cJSON_IsNull(json)) return ct_none();
    if (cJSON_IsBool(json)) return ct_bool(cJSON_IsTrue(json));
    if (cJSON_IsString(json)) return text_of(r, json->valuestring);
    if (!cJSON_IsNumber(json)) return items_of(r, json, what, level);
    const double x = json->valuedouble;
    return x == floor(x) && fabs(x) <= LARGEST_WHOLE ? ct_int((int64_t)x) : ct_float(x);
}

ct_value weft__ct_parse_json(ct_render *r, const char *text, const char *what)
{
    json_failure why = {false, 0};
    cJSON *json = weft__json_parse(text, strlen(text), &why);
    if (!json && why.no_memory) return weft__ct_fail(r, WEFT_NO_MEMORY, "out of memory");
    if (!json)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%s are not JSON at byte %zu", what,
                             why.position);
    const ct_value value = value_of(r, json, what, 0);
    cJSON_Delete(json);
    return value;
}
