/* Recipes: the table of options, read from JSON and from the command line, written as JSON. */
#include "recipe.h"

#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum kind { TEXT, FILE_NAME, WHOLE, REAL, FLAG, CHOICE, LIST } kind;

typedef struct row {
    const char *section, *key;
    kind kind;
    size_t at; /* offset in a recipe */
    double least, most;
    const char *choices, *option, *doc;
} row;

#define KIND_TEXT   TEXT
#define KIND_FILE   FILE_NAME
#define KIND_WHOLE  WHOLE
#define KIND_REAL   REAL
#define KIND_FLAG   FLAG
#define KIND_CHOICE CHOICE
#define KIND_LIST   LIST

static const row rows[] = {
#define ROW(section, key, kind, value, least, most, choices, option, doc)                          \
    {#section, #key,   KIND_##kind, offsetof(recipe, section##_##key), least, most,                \
     choices,  option, doc},
    RECIPE_MAP(ROW)
#undef ROW
};
#define N_ROWS (sizeof rows / sizeof *rows)

static void *field(recipe *r, const row *o)
{
    return (char *)r + o->at;
}

static const void *read_field(const recipe *r, const row *o)
{
    return (const char *)r + o->at;
}

static bool set_text(char **to, const char *text)
{
    char *copy = strdup(text);
    if (!copy) return false;
    free(*to);
    *to = copy;
    return true;
}

bool recipe_init(recipe *r)
{
    memset(r, 0, sizeof *r);
#define SET_TEXT(f, v)                      good = good && set_text(&r->f, v);
#define SET_FILE(f, v)                      SET_TEXT(f, v)
#define SET_WHOLE(f, v)                     r->f = v;
#define SET_REAL(f, v)                      r->f = v;
#define SET_FLAG(f, v)                      r->f = v;
#define SET_CHOICE(f, v)                    r->f = v;
#define SET_LIST(f, v)                      r->f.n = v;
#define SET(section, key, kind, value, ...) SET_##kind(section##_##key, value)
    bool good = true;
    RECIPE_MAP(SET)
    return good;
}

void recipe_free(recipe *r)
{
    for (size_t i = 0; i < r->n_model_options; i++) free(r->model_options[i]);
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].kind == TEXT || rows[i].kind == FILE_NAME) free(*(char **)field(r, &rows[i]));
    memset(r, 0, sizeof *r);
}

bool recipe_take_model_option(recipe *r, const char *text)
{
    if (r->n_model_options == sizeof r->model_options / sizeof *r->model_options) return false;
    char *copy = strdup(text);
    if (copy) r->model_options[r->n_model_options++] = copy;
    return copy != NULL;
}

static cJSON *value_json(const recipe *r, const row *o);

/* ---- Values ---- */

/* What a value should have been, for messages. */
static const char *wanted(const row *o, char *text, size_t size)
{
    switch (o->kind) {
    case WHOLE:
    case REAL:
        text_format(text, size, "a %snumber from %.10g to %.10g", o->kind == WHOLE ? "whole " : "",
                    o->least, o->most);
        break;
    case FLAG:
        snprintf(text, size, "true or false");
        break;
    case CHOICE:
        snprintf(text, size, "one of %s", o->choices);
        break;
    case LIST:
        snprintf(text, size, "1 to %d ascending lengths from 3 to 1048576", WEFT_MOST_LENGTHS);
        break;
    default:
        snprintf(text, size, "a text");
    }
    return text;
}

static bool set_number(recipe *r, const row *o, double x)
{
    if (!(x >= o->least && x <= o->most) || (o->kind == WHOLE && floor(x) != x)) return false;
    if (o->kind == WHOLE)
        *(int64_t *)field(r, o) = (int64_t)x;
    else
        *(double *)field(r, o) = x;
    return true;
}

static bool set_choice(recipe *r, const row *o, const char *text)
{
    int choice = tool_choice(o->choices, text);
    if (choice >= 0) *(int *)field(r, o) = choice;
    return choice >= 0;
}

static bool add_length(recipe_list *list, double x)
{
    if (list->n == WEFT_MOST_LENGTHS || !(x >= 3 && x <= 1 << 20) || floor(x) != x) return false;
    if (list->n && x <= list->at[list->n - 1]) return false;
    list->at[list->n++] = (int32_t)x;
    return true;
}

/* Takes a value as the command line writes it; false if it is none. */
static bool set_from_text(recipe *r, const row *o, const char *text)
{
    const char *end;
    recipe_list list = {{0}, 0};
    switch (o->kind) {
    case TEXT:
    case FILE_NAME:
        return set_text(field(r, o), text);
    case WHOLE:
    case REAL: {
        double x;
        return text_to_double(text, &x) && set_number(r, o, x);
    }
    case FLAG:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return false;
        *(bool *)field(r, o) = *text == 't';
        return true;
    case CHOICE:
        return set_choice(r, o, text);
    case LIST:
        for (;; text = end + 1) {
            double x;
            end = text_read_double(text, &x);
            if (!end || (*end && *end != ',') || !add_length(&list, x)) return false;
            if (!*end) break;
        }
        *(recipe_list *)field(r, o) = list;
        return true;
    }
    return false;
}

static bool set_from_json(recipe *r, const row *o, const cJSON *json)
{
    recipe_list list = {{0}, 0};
    const cJSON *item;
    switch (o->kind) {
    case TEXT:
    case FILE_NAME:
        return cJSON_IsString(json) && set_text(field(r, o), json->valuestring);
    case WHOLE:
    case REAL:
        return cJSON_IsNumber(json) && set_number(r, o, json->valuedouble);
    case FLAG:
        if (!cJSON_IsBool(json)) return false;
        *(bool *)field(r, o) = cJSON_IsTrue(json);
        return true;
    case CHOICE:
        return cJSON_IsString(json) && set_choice(r, o, json->valuestring);
    case LIST:
        if (!cJSON_IsArray(json)) return false;
        cJSON_ArrayForEach(item, json)
        {
            if (!cJSON_IsNumber(item) || !add_length(&list, item->valuedouble)) return false;
        }
        *(recipe_list *)field(r, o) = list;
        return true;
    }
    return false;
}

/* ---- The command line ---- */

/* A heading of --help for each section of the table. */
static const char *heading(const char *section)
{
    static const char *const headings[][2] = {{"data", "Texts:"},
                                              {"vocabulary", "Vocabulary:"},
                                              {"batches", "Batches:"},
                                              {"optimizer", "Optimizer:"},
                                              {"schedule", "Learning rate and length:"},
                                              {"run", "Run:"}};
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        if (!strcmp(headings[i][0], section)) return headings[i][1];
    return section;
}

size_t recipe_argp(struct argp_option *options, size_t capacity)
{
    size_t n = 0;
    int group = 0;
    for (size_t i = 0; i < N_ROWS && n + 1 < capacity; i++) {
        const row *o = &rows[i];
        if (!i || strcmp(o->section, rows[i - 1].section) != 0)
            options[n++] = (struct argp_option){.doc = heading(o->section), .group = ++group};
        options[n++] = (struct argp_option){.name = o->option,
                                            .key = RECIPE_FIRST_KEY + (int)i,
                                            .arg = o->kind == FLAG        ? "true|false"
                                                   : o->kind == CHOICE    ? o->choices
                                                   : o->kind == FILE_NAME ? "FILE"
                                                   : o->kind == TEXT || o->kind == LIST ? "TEXT"
                                                                                        : "N",
                                            .flags = o->kind == FLAG ? OPTION_ARG_OPTIONAL : 0,
                                            .doc = o->doc,
                                            .group = group};
    }
    return n;
}

char *recipe_help(int key, const char *text, void *input)
{
    (void)input;
    recipe defaults;
    char *whole = NULL;
    if (key < RECIPE_FIRST_KEY || key >= RECIPE_FIRST_KEY + (int)N_ROWS || !recipe_init(&defaults))
        return (char *)(uintptr_t)text;
    cJSON *json = value_json(&defaults, &rows[key - RECIPE_FIRST_KEY]);
    char *value = cJSON_IsString(json) ? strdup(json->valuestring) : cJSON_PrintUnformatted(json);
    bool none = !value || !value[0] || !strcmp(value, "[]");
    size_t size = strlen(text) + (value ? strlen(value) : 0) + 16;
    if (!none && (whole = malloc(size))) snprintf(whole, size, "%s (default %s)", text, value);
    free(value);
    cJSON_Delete(json);
    recipe_free(&defaults);
    return whole ? whole : (char *)(uintptr_t)text;
}

bool recipe_take(recipe *r, int key, const char *text, struct argp_state *state)
{
    char what[256];
    if (key < RECIPE_FIRST_KEY || key >= RECIPE_FIRST_KEY + (int)N_ROWS) return false;
    const row *o = &rows[key - RECIPE_FIRST_KEY];
    if (o->kind == FLAG && !text) text = "true";
    if (!set_from_text(r, o, text))
        tool_usage_error(state, "--%s: \"%s\" is not %s", o->option, text,
                         wanted(o, what, sizeof what));
    if (!strcmp(o->option, "minutes") && r->schedule_minutes > 0) r->schedule_steps = 0;
    return true;
}

bool recipe_is_set(const recipe *r, recipe_key key)
{
    recipe defaults;
    const row *o = &rows[key];
    bool set = false;
    if (recipe_init(&defaults)) {
        const void *is = read_field(r, o), *was = read_field(&defaults, o);
        switch (o->kind) {
        case TEXT:
        case FILE_NAME:
            set = strcmp(*(char *const *)is, *(char *const *)was) != 0;
            break;
        case WHOLE:
            set = *(const int64_t *)is != *(const int64_t *)was;
            break;
        case REAL:
            set = *(const double *)is != *(const double *)was;
            break;
        case FLAG:
            set = *(const bool *)is != *(const bool *)was;
            break;
        case CHOICE:
            set = *(const int *)is != *(const int *)was;
            break;
        case LIST:
            set = ((const recipe_list *)is)->n != 0;
            break;
        }
    }
    recipe_free(&defaults);
    return set;
}

const char *recipe_option(recipe_key key)
{
    return rows[key].option;
}

/* ---- Files ---- */

/* FOLDER/NAME, or NAME alone if it is absolute or the folder is "". NULL when memory is out. */
static char *join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (!path) return NULL;
    bool alone = name[0] == '/' || !folder[0];
    snprintf(path, size, "%s%s%s", alone ? "" : folder, alone ? "" : "/", name);
    return path;
}

/* The folder that a file lies in. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* Puts every file name behind a folder. */
static bool place_files(recipe *r, const char *folder)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        char **name = field(r, &rows[i]);
        if (rows[i].kind != FILE_NAME || !(*name)[0]) continue;
        char *path = join(folder, *name);
        if (!path) return false;
        free(*name);
        *name = path;
    }
    return true;
}

bool recipe_resolve(recipe *r, weft_error *error)
{
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) {
        weft_error_set(error, WEFT_IO, "train", "the current folder is unknown: %s",
                       strerror(errno));
        return false;
    }
    /* Where a file is there, its shortest path; where not, the message will show what was tried. */
    bool good = place_files(r, here) && set_text(&r->data_folder, "");
    for (size_t i = 0; i < N_ROWS && good; i++) {
        char **name = field(r, &rows[i]), *real;
        if (rows[i].kind != FILE_NAME || !(*name)[0]) continue;
        real = realpath(*name, NULL);
        if (!real) continue;
        free(*name);
        *name = real;
    }
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, "train", "out of memory");
    return good;
}

/* ---- JSON ---- */

static bool refuse(weft_error *error, const char *path, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    weft_error_set(error, WEFT_BAD_FILE, path, "%s", text);
    return false;
}

static cJSON *read_json(const char *path, weft_error *error)
{
    size_t bytes;
    char *text = tool_read_file(path, &bytes, error);
    if (!text) return NULL;
    json_failure why;
    cJSON *json = json_parse(text, bytes, &why);
    if (!json && why.no_memory) {
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    } else if (!json) {
        int line = 1;
        for (size_t i = 0; i < why.position; i++) line += text[i] == '\n';
        refuse(error, path, "is not JSON, near line %d", line);
    }
    free(text);
    return json;
}

/* The first key that an object has twice; NULL if it has none. */
static const char *repeated_key(const cJSON *object)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        for (const cJSON *other = item->next; other; other = other->next)
            if (!strcmp(item->string, other->string)) return item->string;
    }
    return NULL;
}

static bool load_model_options(recipe *r, const cJSON *json, const char *path, weft_error *error)
{
    const cJSON *item;
    if (!cJSON_IsObject(json)) return refuse(error, path, "model_options is not an object");
    if (repeated_key(json))
        return refuse(error, path, "model_options has \"%s\" twice", repeated_key(json));
    cJSON_ArrayForEach(item, json)
    {
        char text[256], number[TEXT_NUMBER_BYTES];
        if (cJSON_IsNumber(item))
            snprintf(text, sizeof text, "%s=%s", item->string,
                     text_from_double(item->valuedouble, number));
        else if (cJSON_IsString(item))
            snprintf(text, sizeof text, "%s=%s", item->string, item->valuestring);
        else
            return refuse(error, path, "model_options.%s is neither a number nor a text",
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
    for (size_t i = 0; i < N_ROWS; i++) known |= !strcmp(rows[i].section, section->string);
    if (!known) return refuse(error, path, "\"%s\" is no key of a recipe", section->string);
    if (!cJSON_IsObject(section))
        return refuse(error, path, "%s is not an object", section->string);
    if (repeated_key(section))
        return refuse(error, path, "%s has \"%s\" twice", section->string, repeated_key(section));
    cJSON_ArrayForEach(item, section)
    {
        const row *o = NULL;
        for (size_t i = 0; i < N_ROWS && !o; i++)
            if (!strcmp(rows[i].section, section->string) && !strcmp(rows[i].key, item->string))
                o = &rows[i];
        if (!o) return refuse(error, path, "%s has no key \"%s\"", section->string, item->string);
        if (!set_from_json(r, o, item))
            return refuse(error, path, "%s.%s is not %s", section->string, item->string,
                          wanted(o, what, sizeof what));
    }
    return true;
}

static bool load_all(recipe *r, const cJSON *json, const char *path, weft_error *error)
{
    const cJSON *item;
    if (!cJSON_IsObject(json)) return refuse(error, path, "is not a JSON object");
    if (repeated_key(json)) return refuse(error, path, "has \"%s\" twice", repeated_key(json));
    cJSON_ArrayForEach(item, json)
    {
        bool good = true;
        if (!strcmp(item->string, "about")) {
            good = cJSON_IsString(item) || refuse(error, path, "about is not a text");
        } else if (!strcmp(item->string, "model")) {
            if (!cJSON_IsString(item)) return refuse(error, path, "model is not a text");
            r->model = weft_model_find(item->valuestring);
            good = r->model || refuse(error, path, "there is no model \"%s\"", item->valuestring);
        } else if (!strcmp(item->string, "model_options")) {
            good = load_model_options(r, item, path, error);
        } else {
            good = load_section(r, item, path, error);
        }
        if (!good) return false;
    }
    return true;
}

static bool has_relative_file(const recipe *r)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *const *name = read_field(r, &rows[i]);
        if (rows[i].kind == FILE_NAME && (*name)[0] && (*name)[0] != '/') return true;
    }
    return false;
}

bool recipe_load(recipe *r, const char *path, const char *data, weft_error *error)
{
    cJSON *json = read_json(path, error);
    if (!json) return false;
    bool good = load_all(r, json, path, error);
    cJSON_Delete(json);
    if (!good) return false;
    if (data && !has_relative_file(r))
        return refuse(error, path, "names its files with their folders: --data cannot place them");
    char *own = folder_of(path), *folder = NULL;
    if (data)
        folder = strdup(data);
    else if (own)
        folder = r->data_folder[0] ? join(own, r->data_folder) : strdup(own);
    good = folder && place_files(r, folder) && recipe_resolve(r, error);
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    free(own);
    free(folder);
    return good;
}

static cJSON *choice_json(const row *o, int choice)
{
    const char *at = o->choices;
    char text[64];
    for (; choice > 0; choice--) at = strchr(at, '|') + 1;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at, "|"), at);
    return cJSON_CreateString(text);
}

static cJSON *value_json(const recipe *r, const row *o)
{
    const void *at = read_field(r, o);
    switch (o->kind) {
    case TEXT:
    case FILE_NAME:
        return cJSON_CreateString(*(char *const *)at);
    case WHOLE:
        return cJSON_CreateNumber((double)*(const int64_t *)at);
    case REAL:
        return cJSON_CreateNumber(*(const double *)at);
    case FLAG:
        return cJSON_CreateBool(*(const bool *)at);
    case CHOICE:
        return choice_json(o, *(const int *)at);
    case LIST:
        return cJSON_CreateIntArray(((const recipe_list *)at)->at,
                                    (int)((const recipe_list *)at)->n);
    }
    return NULL;
}

static bool add_model(const recipe *r, cJSON *json)
{
    double values[WEFT_MODEL_OPTIONS];
    if (!r->model) return true;
    if (weft_model_parse(r->model, (const char *const *)r->model_options, r->n_model_options,
                         values, NULL) != WEFT_OK)
        return false;
    cJSON *options = cJSON_AddStringToObject(json, "model", r->model->name)
                         ? cJSON_AddObjectToObject(json, "model_options")
                         : NULL;
    for (size_t i = 0; options && i < r->model->n_options; i++) {
        const weft_model_option *o = &r->model->options[i];
        char text[64];
        if (o->choices ? !cJSON_AddStringToObject(
                             options, o->name,
                             weft_model_value_text(r->model, i, values[i], text, sizeof text))
                       : !cJSON_AddNumberToObject(options, o->name, values[i]))
            return false;
    }
    return options != NULL;
}

static bool about_place(const row *o)
{
    return !strcmp(o->section, "run") && (!strcmp(o->key, "out") || !strcmp(o->key, "threads"));
}

cJSON *recipe_json(const recipe *r, bool place)
{
    cJSON *json = cJSON_CreateObject(), *section = NULL;
    bool good = json && add_model(r, json);
    for (size_t i = 0; i < N_ROWS && good; i++) {
        if (!i || strcmp(rows[i].section, rows[i - 1].section) != 0)
            section = cJSON_AddObjectToObject(json, rows[i].section);
        if (!place && about_place(&rows[i])) continue;
        good = section && cJSON_AddItemToObject(section, rows[i].key, value_json(r, &rows[i]));
    }
    if (good) return json;
    cJSON_Delete(json);
    return NULL;
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
            char *text = json_print(member, false);
            fprintf(file, " %s=%s", member->string,
                    cJSON_IsString(member) ? tool_printable(member->valuestring, shown)
                    : text                 ? text
                                           : "?");
            cJSON_free(text);
        }
        fputc('\n', file);
    }
    cJSON_Delete(json);
}
