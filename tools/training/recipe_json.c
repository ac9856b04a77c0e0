/* Reading and writing recipes as JSON. */
#include "recipe_table.h"

#include "base/file.h"
#include "json/tree.h"
#include "base/text.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

static bool set_files(recipe_files *files, const cJSON *json)
{
    const cJSON *item;
    recipe_add_file(files, "");
    if (cJSON_IsString(json)) return recipe_add_file(files, json->valuestring);
    if (!cJSON_IsArray(json)) return false;
    cJSON_ArrayForEach(item, json)
    {
        if (!cJSON_IsString(item) || !item->valuestring[0] ||
            !recipe_add_file(files, item->valuestring))
            return false;
    }
    return true;
}

static bool set_lengths(recipe_list *to, const cJSON *json)
{
    recipe_list list = {{0}, 0};
    const cJSON *item;
    if (!cJSON_IsArray(json)) return false;
    cJSON_ArrayForEach(item, json)
    {
        if (!cJSON_IsNumber(item) || !recipe_add_length(&list, item->valuedouble)) return false;
    }
    *to = list;
    return true;
}

static bool set_from_json(recipe *r, const tool_option *o, const cJSON *json)
{
    void *field = tool_field(o, r);
    switch (o->kind) {
    case TOOL_FILES:
        return set_files(field, json);
    case TOOL_WHOLE:
    case TOOL_REAL:
        return cJSON_IsNumber(json) && tool_set_number(o, r, json->valuedouble);
    case TOOL_FLAG:
        if (cJSON_IsBool(json)) *(bool *)field = cJSON_IsTrue(json);
        return cJSON_IsBool(json);
    case TOOL_CHOICE:
        return cJSON_IsString(json) && tool_set_choice(o, r, json->valuestring);
    case TOOL_LENGTHS:
        return set_lengths(field, json);
    default:
        return cJSON_IsString(json) && recipe_set_text(field, json->valuestring);
    }
}

static bool refuse(weft_error *error, const char *path, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    weft_error_set(error, WEFT_BAD_FILE, path, "%s", text);
    return false;
}

static cJSON *read_json(const char *path, weft_error *error)
{
    size_t bytes;
    char *text = weft__file_read(path, &bytes, error);
    if (!text) return NULL;
    json_failure why;
    cJSON *json = weft__json_parse(text, bytes, &why);
    if (!json && why.no_memory) {
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    } else if (!json) {
        size_t line = 1, column = 1;
        for (size_t i = 0; i < why.position; i++, column++)
            if (text[i] == '\n') line++, column = 0;
        refuse(error, path, "is not JSON, near line %zu, column %zu", line, column);
    }
    free(text);
    return json;
}

/* More keys than any object of a recipe may have; comparing them all stays cheap. */
#define MAX_KEYS 256

/* Whether an object's keys are distinct and not too many. `what` names the object, "" the whole
 * file. */
static bool check_keys(const cJSON *object, const char *what, const char *path, weft_error *error)
{
    const char *space = what[0] ? " " : "";
    const cJSON *item;
    if (cJSON_GetArraySize(object) > MAX_KEYS)
        return refuse(error, path, "%s%shas more than %d keys", what, space, MAX_KEYS);
    cJSON_ArrayForEach(item, object)
    {
        for (const cJSON *other = item->next; other; other = other->next)
            if (!strcmp(item->string, other->string))
                return refuse(error, path, "%s%shas \"%s\" twice", what, space, item->string);
    }
    return true;
}

void recipe_take_json(recipe *r, recipe_key key, const cJSON *recipe_json)
{
    const recipe_row *row = &recipe_rows[key];
    const cJSON *section = cJSON_GetObjectItemCaseSensitive(recipe_json, row->section);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(section, row->key);
    if (item) set_from_json(r, &row->option, item);
}

static bool load_model_options(recipe *r, const cJSON *json, const char *path, weft_error *error)
{
    const cJSON *item;
    if (!cJSON_IsObject(json)) return refuse(error, path, "model_options is not an object");
    if (!check_keys(json, "model_options", path, error)) return false;
    cJSON_ArrayForEach(item, json)
    {
        char text[WEFT_OPTIONS_TEXT], number[TEXT_NUMBER_BYTES];
        if (cJSON_IsNumber(item))
            snprintf(text, sizeof text, "%s=%s", item->string,
                     weft__text_from_double(item->valuedouble, number));
        else if (cJSON_IsString(item))
            snprintf(text, sizeof text, "%s=%s", item->string, item->valuestring);
        else
            return refuse(error, path, "invalid model_options.%s; expected a number or a text",
                          item->string);
        if (!recipe_take_model_option(r, text))
            return refuse(error, path, "model_options has too many members");
    }
    return true;
}

static bool load_section(recipe *r, const cJSON *section, const char *path, weft_error *error)
{
    char what[256];
    const cJSON *item;
    bool known = false;
    for (size_t i = 0; i < n_recipe_rows; i++)
        known |= !strcmp(recipe_rows[i].section, section->string);
    if (!known) return refuse(error, path, "\"%s\" is not a key of a recipe", section->string);
    if (!cJSON_IsObject(section))
        return refuse(error, path, "%s is not an object", section->string);
    if (!check_keys(section, section->string, path, error)) return false;
    cJSON_ArrayForEach(item, section)
    {
        const recipe_row *o = NULL;
        for (size_t i = 0; i < n_recipe_rows && !o; i++)
            if (!strcmp(recipe_rows[i].section, section->string) &&
                !strcmp(recipe_rows[i].key, item->string))
                o = &recipe_rows[i];
        if (!o || !recipe_has(r->fits, o))
            return refuse(error, path, "%s has no key \"%s\"%s", section->string, item->string,
                          !o        ? ""
                          : r->fits ? " in a recipe of weft fit"
                                    : " in a recipe of weft train");
        if (!set_from_json(r, &o->option, item))
            return refuse(error, path, "invalid %s.%s; expected %s", section->string, item->string,
                          recipe_wanted(o, what, sizeof what));
    }
    return true;
}

static bool is_ignored(const char *key)
{
    for (int i = 0; i < RECIPE_IGNORED; i++)
        if (!strcmp(recipe_ignored[i], key)) return true;
    return false;
}

static bool load_all(recipe *r, const cJSON *json, const char *path, weft_error *error)
{
    char meant[TOOL_GUESS_BYTES];
    const cJSON *item;
    if (!cJSON_IsObject(json)) return refuse(error, path, "is not a JSON object");
    if (!check_keys(json, "", path, error)) return false;
    cJSON_ArrayForEach(item, json)
    {
        bool good = true;
        if (is_ignored(item->string)) {
            good = cJSON_IsString(item) || refuse(error, path, "%s is not a text", item->string);
        } else if (!strcmp(item->string, "model")) {
            if (!cJSON_IsString(item)) return refuse(error, path, "model is not a text");
            r->model = weft_model_find(item->valuestring);
            good =
                r->model || refuse(error, path, "no model \"%s\" (see `weft models`)%s",
                                   item->valuestring, tool_guess_model(item->valuestring, meant));
        } else if (!strcmp(item->string, "model_options")) {
            good = load_model_options(r, item, path, error);
        } else {
            good = load_section(r, item, path, error);
        }
        if (!good) return false;
    }
    return true;
}

/* The folder that a file lies in. */
static char *folder_of(const char *path)
{
    const char *name = weft__os_name(path);
    char *folder = strdup(name > path ? path : ".");
    if (!folder || name == path) return folder;
    const size_t length = (size_t)(name - path);
    folder[length > 1 && weft__os_is_separator(path[length - 1]) ? length - 1 : length] = 0;
    return folder;
}

bool recipe_load(recipe *r, const char *path, const char *data, weft_error *error)
{
    cJSON *json = read_json(path, error);
    if (!json) return false;
    bool good = load_all(r, json, path, error);
    cJSON_Delete(json);
    if (!good) return false;
    if (data && !recipe_has_relative_file(r))
        return refuse(error, path, "names its files by absolute paths: --data cannot change them");
    char *own = folder_of(path), *folder = NULL;
    if (data)
        folder = strdup(data);
    else if (own)
        folder = r->data_folder[0] ? recipe_join(own, r->data_folder) : strdup(own);
    good = folder && recipe_place_files(r, folder) && recipe_resolve(r, error);
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    free(own);
    free(folder);
    return good;
}

/* ---- Writing ---- */

static cJSON *choice_json(const tool_option *o, int choice)
{
    char text[64];
    int length;
    const char *at = tool_choice_at(o->argument, choice, &length);
    snprintf(text, sizeof text, "%.*s", length, at);
    return cJSON_CreateString(text);
}

/* One file becomes a string, several become a list. */
static cJSON *files_json(const recipe_files *files)
{
    if (files->n > 1) return cJSON_CreateStringArray((const char *const *)files->at, (int)files->n);
    return cJSON_CreateString(files->n ? files->at[0] : "");
}

cJSON *recipe_value_json(const recipe *r, const recipe_row *row)
{
    const tool_option *o = &row->option;
    const void *value = tool_value(o, r);
    switch (o->kind) {
    case TOOL_FILES:
        return files_json(value);
    case TOOL_WHOLE:
    case TOOL_REAL:
        return cJSON_CreateNumber(tool_get_number(o, r));
    case TOOL_FLAG:
        return cJSON_CreateBool(*(const bool *)value);
    case TOOL_CHOICE:
        return choice_json(o, (int)tool_get_number(o, r));
    case TOOL_LENGTHS:
        return cJSON_CreateIntArray(((const recipe_list *)value)->at,
                                    (int)((const recipe_list *)value)->n);
    default:
        return cJSON_CreateString(*(char *const *)value);
    }
}

static bool add_model(const recipe *r, cJSON *json)
{
    weft_model_config config;
    if (!r->model) return true;
    if (weft_model_parse(r->model, (const char *const *)r->model_options, r->n_model_options,
                         &config, NULL) != WEFT_OK)
        return false;
    cJSON *options = cJSON_AddStringToObject(json, "model", r->model->name)
                         ? cJSON_AddObjectToObject(json, "model_options")
                         : NULL;
    for (size_t i = 0; options && i < r->model->n_options; i++) {
        const weft_model_option *o = &r->model->options[i];
        const double value = weft_model_value(&config, i);
        char text[WEFT_OPTIONS_TEXT];
        if (o->choices || (o->list && value != 0)
                ? !cJSON_AddStringToObject(
                      options, o->name,
                      weft_model_config_option_text(&config, i, text, sizeof text))
                : !cJSON_AddNumberToObject(options, o->name, value))
            return false;
    }
    return options != NULL;
}

cJSON *recipe_json(const recipe *r, bool place)
{
    cJSON *json = cJSON_CreateObject(), *section = NULL;
    bool good = json && add_model(r, json);
    for (size_t i = 0; i < n_recipe_rows && good; i++) {
        if (!recipe_has(r->fits, &recipe_rows[i])) continue;
        section = cJSON_GetObjectItemCaseSensitive(json, recipe_rows[i].section);
        if (!section) section = cJSON_AddObjectToObject(json, recipe_rows[i].section);
        if (!place && recipe_rows[i].of == RECIPE_OF_PLACE) continue;
        good = section && cJSON_AddItemToObject(section, recipe_rows[i].key,
                                                recipe_value_json(r, &recipe_rows[i]));
    }
    if (good) return json;
    cJSON_Delete(json);
    return NULL;
}

/* An empty text or list. */
static bool is_unset(const cJSON *item)
{
    return cJSON_IsString(item) ? !item->valuestring[0] : cJSON_IsArray(item) && !item->child;
}

void recipe_print(const recipe *r, FILE *file)
{
    cJSON *json = recipe_json(r, true);
    const cJSON *item, *member;
    char shown[TOOL_NAME_BYTES];
    cJSON_ArrayForEach(item, json)
    {
        fprintf(file, "%s:", item->string);
        if (cJSON_IsString(item)) fprintf(file, " %s", tool_printable(item->valuestring, shown));
        cJSON_ArrayForEach(member, item)
        {
            if (is_unset(member)) continue;
            char *text = weft__json_print(member, false);
            fprintf(file, " %s=%s", member->string,
                    cJSON_IsString(member) ? tool_printable(member->valuestring, shown)
                    : text                 ? tool_printable(text, shown)
                                           : "?");
            cJSON_free(text);
        }
        fputc('\n', file);
    }
    cJSON_Delete(json);
}
