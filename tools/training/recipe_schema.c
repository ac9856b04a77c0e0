/* The JSON schema of recipes, from the rows of their options and those of the models. A failed
 * allocation leaves out members; tool_print_json then prints nothing. */
#include "recipe_table.h"

#include <string.h>

/* Adds the schema of an object that has the members of *properties, which are added later, and no
 * others. */
static cJSON *put_object(cJSON *schema, cJSON **properties)
{
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON_AddBoolToObject(schema, "additionalProperties", false);
    *properties = cJSON_AddObjectToObject(schema, "properties");
    return schema;
}

static void put_choices(cJSON *to, const char *choices)
{
    cJSON *list = cJSON_AddArrayToObject(to, "enum");
    for (const char *at = choices; at; at = strchr(at, '|'), at += at != NULL) {
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(at, "|"), at);
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
    }
}

static void put_number(cJSON *to, bool whole, double min, double max)
{
    cJSON_AddStringToObject(to, "type", whole ? "integer" : "number");
    cJSON_AddNumberToObject(to, "minimum", min);
    cJSON_AddNumberToObject(to, "maximum", max);
}

/* The values that set_from_json of recipe_json.c accepts. */
static void put_kind(cJSON *to, const tool_option *o)
{
    cJSON *items;
    switch (o->kind) {
    case TOOL_FILES:
        cJSON_AddItemToObject(to, "type",
                              cJSON_CreateStringArray((const char *[]){"string", "array"}, 2));
        items = cJSON_AddObjectToObject(to, "items");
        cJSON_AddStringToObject(items, "type", "string");
        cJSON_AddNumberToObject(items, "minLength", 1);
        break;
    case TOOL_WHOLE:
    case TOOL_REAL:
        put_number(to, o->kind == TOOL_WHOLE, o->min, o->max);
        break;
    case TOOL_FLAG:
        cJSON_AddStringToObject(to, "type", "boolean");
        break;
    case TOOL_CHOICE:
        put_choices(to, o->argument);
        break;
    case TOOL_LENGTHS:
        cJSON_AddStringToObject(to, "type", "array");
        cJSON_AddNumberToObject(to, "maxItems", WEFT_MAX_LENGTHS);
        put_number(cJSON_AddObjectToObject(to, "items"), true, RECIPE_MIN_LENGTH,
                   RECIPE_MAX_LENGTH);
        break;
    default:
        cJSON_AddStringToObject(to, "type", "string");
    }
}

static void put_rows(cJSON *properties, const recipe *defaults)
{
    cJSON *members = NULL;
    const char *section = "";
    for (size_t i = 0; i < n_recipe_rows; i++) {
        const recipe_row *row = &recipe_rows[i];
        if (!recipe_has(defaults->fits, row)) continue;
        if (strcmp(row->section, section) != 0)
            put_object(cJSON_AddObjectToObject(properties, row->section), &members);
        section = row->section;
        cJSON *to = cJSON_AddObjectToObject(members, row->key);
        cJSON_AddStringToObject(to, "description", row->option.doc);
        put_kind(to, &row->option);
        cJSON_AddItemToObject(to, "default", recipe_value_json(defaults, row));
    }
}

/* ---- Models ---- */

#define MAX_MODEL_OPTION 1e9 /* of weft_model_parse */

static void put_model_option(cJSON *members, const weft_model_option *o)
{
    cJSON *to = cJSON_AddObjectToObject(members, o->name);
    cJSON_AddStringToObject(to, "description", o->doc);
    if (o->choices)
        put_choices(to, o->choices);
    else if (o->list)
        cJSON_AddItemToObject(to, "type",
                              cJSON_CreateStringArray((const char *[]){"number", "string"}, 2));
    else
        put_number(to, !o->real, 0, o->flag ? 1 : MAX_MODEL_OPTION);
}

/* If the recipe names the model, model_options has its options and sizes, and no others. */
static void put_model(cJSON *all, const weft_model *model)
{
    cJSON *rule = cJSON_CreateObject(), *members;
    cJSON_AddItemToArray(all, rule);
    cJSON *condition = cJSON_AddObjectToObject(rule, "if");
    cJSON *named =
        cJSON_AddObjectToObject(cJSON_AddObjectToObject(condition, "properties"), "model");
    cJSON_AddStringToObject(named, "const", model->name);
    cJSON_AddItemToObject(condition, "required",
                          cJSON_CreateStringArray((const char *[]){"model"}, 1));
    cJSON *then = cJSON_AddObjectToObject(cJSON_AddObjectToObject(rule, "then"), "properties");
    put_object(cJSON_AddObjectToObject(then, "model_options"), &members);
    for (size_t i = 0; i < model->n_options; i++) put_model_option(members, &model->options[i]);
    for (int i = 0; i < WEFT_MODEL_SIZES && model->sizes[i].name; i++)
        put_model_option(members, &model->sizes[i]);
}

static void put_models(cJSON *schema, cJSON *properties)
{
    cJSON *names = cJSON_AddArrayToObject(cJSON_AddObjectToObject(properties, "model"), "enum");
    cJSON *all = cJSON_AddArrayToObject(schema, "allOf");
    cJSON *options = cJSON_AddObjectToObject(properties, "model_options");
    cJSON_AddStringToObject(options, "type", "object");
    for (size_t i = 0; i < weft_model_count(); i++) {
        cJSON_AddItemToArray(names, cJSON_CreateString(weft_model_at(i)->name));
        put_model(all, weft_model_at(i));
    }
}

int recipe_print_schema(bool fits)
{
    recipe defaults;
    cJSON *schema = cJSON_CreateObject(), *properties;
    const bool good = recipe_init(&defaults);
    defaults.fits = fits;
    cJSON_AddStringToObject(schema, "$schema", "http://json-schema.org/draft-07/schema#");
    cJSON_AddStringToObject(schema, "title", fits ? "recipe of weft fit" : "recipe of weft train");
    put_object(schema, &properties);
    for (int i = 0; i < RECIPE_IGNORED; i++)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(properties, recipe_ignored[i]), "type",
                                "string");
    put_models(schema, properties);
    if (good) put_rows(properties, &defaults);
    recipe_free(&defaults);
    return good ? tool_print_json(schema) : tool_fail_text("recipe", "out of memory");
}
