/* Recipes: the table of options, and the command line. recipe_json.c reads and writes JSON. */
#include "recipe_table.h"

#include "json/tree.h"
#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIND_TEXT   TEXT
#define KIND_FILE   FILE_NAME
#define KIND_FILES  FILE_LIST
#define KIND_WHOLE  WHOLE
#define KIND_REAL   REAL
#define KIND_FLAG   FLAG
#define KIND_CHOICE CHOICE
#define KIND_LIST   LIST

const recipe_row recipe_rows[] = {
#define ROW(section, key, kind, value, min, max, choices, option, doc)                             \
    {#section, #key,   KIND_##kind, offsetof(recipe, section##_##key), min, max,                   \
     choices,  option, doc},
    RECIPE_MAP(ROW)
#undef ROW
};
const size_t n_recipe_rows = sizeof recipe_rows / sizeof *recipe_rows;

bool recipe_has(bool fits, const recipe_row *row)
{
    static const char *const texts[] = {"mode",       "tokens",     "lengths",      "truncate",
                                        "mask_share", "valid_bleu", "valid_samples"};
    if (!strcmp(row->section, "fit")) return fits;
    if (!fits) return true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(row->key, texts[i])) return false;
    return strcmp(row->section, "data") != 0 && strcmp(row->section, "vocabulary") != 0;
}

size_t recipe_input_prefix(const recipe_row *row, const char *name)
{
    const size_t n = strcspn(name, "=/");
    return strcmp(row->section, "fit") == 0 && row->kind == FILE_LIST && name[n] == '=' ? n + 1 : 0;
}

bool recipe_set_text(char **to, const char *text)
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
#define SET_TEXT(f, v)                      good = good && recipe_set_text(&r->f, v);
#define SET_FILE(f, v)                      SET_TEXT(f, v)
#define SET_FILES(f, v)                     r->f.n = v;
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
    for (size_t i = 0; i < n_recipe_rows; i++) {
        const recipe_row *row = &recipe_rows[i];
        if (row->kind == TEXT || row->kind == FILE_NAME) free(*(char **)recipe_field(r, row));
        if (row->kind == FILE_LIST) recipe_add_file(recipe_field(r, row), "");
    }
    memset(r, 0, sizeof *r);
}

bool recipe_take_model_option(recipe *r, const char *text)
{
    size_t key = strcspn(text, "=") + 1, i = 0;
    while (i < r->n_model_options && strncmp(r->model_options[i], text, key) != 0) i++;
    if (i == sizeof r->model_options / sizeof *r->model_options) return false;
    char *copy = strdup(text);
    if (!copy) return false;
    if (i < r->n_model_options) free(r->model_options[i]);
    r->model_options[i] = copy;
    r->n_model_options += i == r->n_model_options;
    return true;
}

/* ---- Values ---- */

const char *recipe_wanted(const recipe_row *o, char *text, size_t size)
{
    switch (o->kind) {
    case WHOLE:
    case REAL:
        weft__text_format(text, size, "a %snumber from %.10g to %.10g",
                          o->kind == WHOLE ? "whole " : "", o->min, o->max);
        break;
    case FLAG:
        snprintf(text, size, "true or false");
        break;
    case CHOICE:
        snprintf(text, size, "one of %s", o->choices);
        break;
    case LIST:
        snprintf(text, size, "1 to %d ascending lengths from 3 to 1048576", WEFT_MAX_LENGTHS);
        break;
    case FILE_LIST:
        snprintf(text, size, "a text, or a list of texts");
        break;
    default:
        snprintf(text, size, "a text");
    }
    return text;
}

bool recipe_set_number(recipe *r, const recipe_row *o, double x)
{
    if (!(x >= o->min && x <= o->max) || (o->kind == WHOLE && floor(x) != x)) return false;
    if (o->kind == WHOLE)
        *(int64_t *)recipe_field(r, o) = (int64_t)x;
    else
        *(double *)recipe_field(r, o) = x;
    return true;
}

bool recipe_set_choice(recipe *r, const recipe_row *o, const char *text)
{
    int choice = tool_choice(o->choices, text);
    if (choice >= 0) *(int *)recipe_field(r, o) = choice;
    return choice >= 0;
}

bool recipe_add_file(recipe_files *list, const char *name)
{
    if (!name[0]) {
        while (list->n) free(list->at[--list->n]);
        free(list->at);
        list->at = NULL;
        return true;
    }
    char **grown = realloc(list->at, (list->n + 1) * sizeof *grown);
    if (!grown) return false;
    list->at = grown;
    grown[list->n] = strdup(name);
    if (!grown[list->n]) return false;
    list->n++;
    return true;
}

bool recipe_add_length(recipe_list *list, double x)
{
    if (list->n == WEFT_MAX_LENGTHS || !(x >= 3 && x <= 1 << 20) || floor(x) != x) return false;
    if (list->n && x <= list->at[list->n - 1]) return false;
    list->at[list->n++] = (int32_t)x;
    return true;
}

/* Takes a value in the form of the command line; false if the row does not allow it. */
static bool set_from_text(recipe *r, const recipe_row *o, const char *text)
{
    const char *end;
    recipe_list list = {{0}, 0};
    switch (o->kind) {
    case TEXT:
    case FILE_NAME:
        return recipe_set_text(recipe_field(r, o), text);
    case FILE_LIST: {
        /* The first file on the command line replaces those of a recipe. */
        recipe_files *files = recipe_field(r, o);
        if (!files->chosen) recipe_add_file(files, "");
        files->chosen = true;
        return recipe_add_file(files, text);
    }
    case WHOLE:
    case REAL: {
        double x;
        return weft__text_to_double(text, &x) && recipe_set_number(r, o, x);
    }
    case FLAG:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) return false;
        *(bool *)recipe_field(r, o) = *text == 't';
        return true;
    case CHOICE:
        return recipe_set_choice(r, o, text);
    case LIST:
        for (;; text = end + 1) {
            double x;
            end = weft__text_read_double(text, &x);
            if (!end || (*end && *end != ',') || !recipe_add_length(&list, x)) return false;
            if (!*end) break;
        }
        *(recipe_list *)recipe_field(r, o) = list;
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
                                              {"run", "Run:"},
                                              {"fit", "Model and data:"}};
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        if (!strcmp(headings[i][0], section)) return headings[i][1];
    return section;
}

/* Whether the choices are too long for the argument in --help: argp of glibc writes beyond its
 * buffer if an option and its argument are wider than a line. They follow the documentation then.
 */
static bool is_wide(const recipe_row *row)
{
    return row->kind == CHOICE && strlen(row->choices) > 48;
}

size_t recipe_argp(struct argp_option *options, size_t capacity, bool fits)
{
    size_t n = 0;
    int group = 0;
    const char *section = "";
    for (size_t i = 0; i < n_recipe_rows && n + 1 < capacity; i++) {
        const recipe_row *o = &recipe_rows[i];
        if (!recipe_has(fits, o)) continue;
        if (strcmp(o->section, section) != 0)
            options[n++] = (struct argp_option){.doc = heading(o->section), .group = ++group};
        section = o->section;
        options[n++] = (struct argp_option){
            .name = fits && i == RECIPE_optimizer_frozen ? "freeze" : o->option,
            .key = RECIPE_FIRST_KEY + (int)i,
            .arg = o->kind == FLAG     ? "true|false"
                   : o->kind == CHOICE ? (is_wide(o) ? "KIND" : o->choices)
                   : o->kind == FILE_NAME || o->kind == FILE_LIST ? "FILE"
                   : o->kind == TEXT || o->kind == LIST           ? "TEXT"
                                                                  : "N",
            .flags = o->kind == FLAG ? OPTION_ARG_OPTIONAL : TOOL_MAY_BE_EMPTY,
            .doc = o->doc,
            .group = group};
    }
    return n;
}

/* "TEXT: ONE, OTHER (default VALUE)"; NULL when memory is out. */
static char *help_text(const recipe_row *row, const char *text, const char *value)
{
    char *whole = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&whole, &size);
    if (!f) return NULL;
    fputs(text, f);
    if (is_wide(row)) fputs(": ", f);
    for (const char *c = is_wide(row) ? row->choices : ""; *c; c++)
        fputs(*c == '|' ? ", " : (char[]){*c, 0}, f);
    if (value[0] && strcmp(value, "[]") != 0) fprintf(f, " (default %s)", value);
    if (fclose(f) == 0) return whole;
    free(whole);
    return NULL;
}

char *recipe_help(int key, const char *text, void *input)
{
    (void)input;
    recipe defaults;
    const bool argument = key >= TOOL_HELP_ARGUMENT;
    const int row = key - RECIPE_FIRST_KEY - (argument ? TOOL_HELP_ARGUMENT : 0);
    char *whole = NULL;
    if (row < 0 || row >= (int)n_recipe_rows) return (char *)(uintptr_t)text;
    const recipe_row *o = &recipe_rows[row];
    if (argument) return is_wide(o) ? strdup(o->choices) : (char *)(uintptr_t)text;
    if (!recipe_init(&defaults)) return (char *)(uintptr_t)text;
    cJSON *json = recipe_value_json(&defaults, o);
    char *value = cJSON_IsString(json) ? strdup(json->valuestring) : cJSON_PrintUnformatted(json);
    if (value) whole = help_text(o, text, value);
    free(value);
    cJSON_Delete(json);
    recipe_free(&defaults);
    return whole ? whole : (char *)(uintptr_t)text;
}

bool recipe_take(recipe *r, int key, const char *text, struct argp_state *state)
{
    char what[256];
    if (key < RECIPE_FIRST_KEY || key >= RECIPE_FIRST_KEY + (int)n_recipe_rows) return false;
    const recipe_row *o = &recipe_rows[key - RECIPE_FIRST_KEY];
    if (o->kind == FLAG && !text) text = "true";
    if (!set_from_text(r, o, text))
        tool_usage_error(state, "--%s: \"%s\" is not %s", o->option, text,
                         recipe_wanted(o, what, sizeof what));
    r->minutes_chosen |= key == RECIPE_FIRST_KEY + RECIPE_schedule_minutes;
    r->max_minutes_chosen |= key == RECIPE_FIRST_KEY + RECIPE_schedule_max_minutes;
    if (r->minutes_chosen && r->max_minutes_chosen)
        tool_usage_error(state, "--minutes and --max-minutes exclude each other: --minutes is the "
                                "whole length, --max-minutes limits --steps");
    if (key == RECIPE_FIRST_KEY + RECIPE_schedule_minutes && r->schedule_minutes > 0)
        r->schedule_steps = 0, r->schedule_max_minutes = 0;
    return true;
}

bool recipe_is_set(const recipe *r, recipe_key key)
{
    recipe defaults;
    const recipe_row *o = &recipe_rows[key];
    bool set = false;
    if (recipe_init(&defaults)) {
        const void *is = recipe_value(r, o), *was = recipe_value(&defaults, o);
        switch (o->kind) {
        case TEXT:
        case FILE_NAME:
            set = strcmp(*(char *const *)is, *(char *const *)was) != 0;
            break;
        case FILE_LIST:
            set = ((const recipe_files *)is)->n != 0;
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
    return recipe_rows[key].option;
}

/* ---- Files ---- */

char *recipe_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (!path) return NULL;
    bool alone = name[0] == '/' || !strcmp(name, "-") || !folder[0];
    snprintf(path, size, "%s%s%s", alone ? "" : folder, alone ? "" : "/", name);
    return path;
}

/* Finds the file names of a row; returns how many. */
static size_t file_names(recipe *r, const recipe_row *o, char ***names)
{
    recipe_files *list = recipe_field(r, o);
    *names = o->kind == FILE_LIST ? list->at : recipe_field(r, o);
    if (o->kind == FILE_LIST) return list->n;
    return o->kind == FILE_NAME && (**names)[0] ? 1 : 0;
}

/* Replaces the part after the prefix of a name by `made`, which it takes. */
static bool replace_name(char **name, size_t prefix, char *made)
{
    char *whole = malloc(prefix + strlen(made) + 1);
    if (whole) {
        memcpy(whole, *name, prefix);
        memcpy(whole + prefix, made, strlen(made) + 1);
        free(*name);
        *name = whole;
    }
    free(made);
    return whole != NULL;
}

/* Replaces every file name by the result of `make`, unless that is NULL. */
static bool change_files(recipe *r, bool (*make)(const char *name, const char *folder, char **made),
                         const char *folder)
{
    for (size_t i = 0; i < n_recipe_rows; i++) {
        char **names, *made = NULL;
        size_t n = file_names(r, &recipe_rows[i], &names);
        for (size_t k = 0; k < n; k++) {
            const size_t prefix = recipe_input_prefix(&recipe_rows[i], names[k]);
            if (!make(names[k] + prefix, folder, &made)) return false;
            if (!made) continue;
            if (!replace_name(&names[k], prefix, made)) return false;
        }
    }
    return true;
}

static bool make_placed(const char *name, const char *folder, char **made)
{
    *made = recipe_join(folder, name);
    return *made != NULL;
}

bool recipe_place_files(recipe *r, const char *folder)
{
    return change_files(r, make_placed, folder);
}

bool recipe_has_relative_file(recipe *r)
{
    for (size_t i = 0; i < n_recipe_rows; i++) {
        char **names;
        size_t n = file_names(r, &recipe_rows[i], &names);
        for (size_t k = 0; k < n; k++) {
            const char *name = names[k] + recipe_input_prefix(&recipe_rows[i], names[k]);
            if (name[0] != '/' && strcmp(name, "-") != 0) return true;
        }
    }
    return false;
}

/* The real path of a file or folder. A missing file keeps its name, for the message; so does a
 * pipe, whose real path cannot be opened. */
static bool make_real(const char *name, const char *folder, char **made)
{
    struct stat info;
    (void)folder;
    bool lasts = stat(name, &info) == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode));
    *made = lasts ? realpath(name, NULL) : NULL;
    return true;
}

bool recipe_resolve(recipe *r, weft_error *error)
{
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) {
        weft_error_set(error, WEFT_IO, "train", "the current folder cannot be determined: %s",
                       strerror(errno));
        return false;
    }
    bool good = recipe_place_files(r, here) && recipe_set_text(&r->data_folder, "") &&
                change_files(r, make_real, NULL);
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, "train", "out of memory");
    return good;
}
