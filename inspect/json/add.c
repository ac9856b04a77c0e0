/* See add.h. */
#include "add.h"

cJSON *weft__json_add(json_maker *m, cJSON *to, const char *name, cJSON *item)
{
    const bool added =
        item && to &&
        (name ? cJSON_AddItemToObject(to, name, item) : cJSON_AddItemToArray(to, item));
    if (added) return item;
    cJSON_Delete(item);
    m->no_memory = true;
    return NULL;
}
