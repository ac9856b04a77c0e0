/* Recipes: the table of options, and the command line. recipe_json.c reads and writes JSON. */
#include "recipe_table.h"

#include "json/tree.h"
#include "base/text.h"
#include "base/platform.h"
#include "base/file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static tool_take take_text, take_file, take_lengths;

#define OPTION_TEXT(choices)   .argument = "TEXT", .kind = TOOL_STRING, .take = take_text
#define OPTION_FILE(choices)   .argument = "FILE", .kind = TOOL_FILE, .take = take_text
#define OPTION_FILES(choices)  .argument = "FILE", .kind = TOOL_FILES, .take = take_file
#define OPTION_LIST(choices)   .argument = "TEXT", .kind = TOOL_LENGTHS, .take = take_lengths
#define OPTION_WHOLE(choices)  .argument = "N", .kind = TOOL_WHOLE, .shows_zero = true
#define OPTION_REAL(choices)   .argument = "N", .kind = TOOL_REAL, .shows_zero = true
#define OPTION_CHOICE(choices) .argument = (choices), .kind = TOOL_CHOICE
#define OPTION_FLAG(choices)                                                                       \
    .argument = "true|false", .kind = TOOL_FLAG, .optional = true, .shows_zero = true

const recipe_row recipe_rows[] = {
#define ROW(section, key, where, type, value, low, high, choices, called, text)                    \
    {#section,                                                                                     \
     #key,                                                                                         \
     RECIPE_OF_##where,                                                                            \
     {.name = (called),                                                                            \
      OPTION_##type(choices),                                                                      \
      TOOL_PLACE(recipe, section##_##key),                                                         \
      .doc = (text),                                                                               \
      .min = (low),                                                                                \
      .max = (high),                                                                               \
      .may_be_empty = true}},
    RECIPE_MAP(ROW)
#undef ROW
};
const char *const recipe_ignored[RECIPE_IGNORED] = {"about", "$schema"};
const size_t n_recipe_rows = sizeof recipe_rows / sizeof *recipe_rows;
/* With a heading for each of eight sections, and the end. */
_Static_assert(sizeof recipe_rows / sizeof *recipe_rows + 9 <= RECIPE_ROWS, "RECIPE_ROWS");

size_t recipe_input_prefix(const recipe_row *row, const char *name)
{
    const size_t n = strcspn(name, "=/");
    return row->of == RECIPE_OF_FIT && row->option.kind == TOOL_FILES && name[n] == '=' ? n + 1 : 0;
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
#define SET_TEXT(f, v)                          good = good && recipe_set_text(&r->f, v);
#define SET_FILE(f, v)                          SET_TEXT(f, v)
#define SET_FILES(f, v)                         r->f.n = v;
#define SET_WHOLE(f, v)                         r->f = v;
#define SET_REAL(f, v)                          r->f = v;
#define SET_FLAG(f, v)                          r->f = v;
#define SET_CHOICE(f, v)                        r->f = v;
#define SET_LIST(f, v)                          r->f.n = v;
#define SET(section, key, of, kind, value, ...) SET_##kind(section##_##key, value)
    bool good = true;
    RECIPE_MAP(SET)
    return good;
}

void recipe_free(recipe *r)
{
    for (size_t i = 0; i < r->n_model_options; i++) free(r->model_options[i]);
    for (size_t i = 0; i < n_recipe_rows; i++) {
        const tool_option *o = &recipe_rows[i].option;
        if (o->kind == TOOL_STRING || o->kind == TOOL_FILE) free(*(char **)tool_field(o, r));
        if (o->kind == TOOL_FILES) recipe_add_file(tool_field(o, r), "");
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

#define LENGTHS_WANTED "1 to %d ascending lengths from %d to %d"

const char *recipe_wanted(const recipe_row *row, char *text, size_t size)
{
    const tool_option *o = &row->option;
    switch (o->kind) {
    case TOOL_WHOLE:
    case TOOL_REAL:
        weft__text_format(text, size, "a %snumber from %.10g to %.10g",
                          o->kind == TOOL_WHOLE ? "whole " : "", o->min, o->max);
        break;
    case TOOL_FLAG:
        snprintf(text, size, "true or false");
        break;
    case TOOL_CHOICE:
        snprintf(text, size, "one of %s", o->argument);
        break;
    case TOOL_LENGTHS:
        snprintf(text, size, LENGTHS_WANTED, WEFT_MAX_LENGTHS, RECIPE_MIN_LENGTH,
                 RECIPE_MAX_LENGTH);
        break;
    case TOOL_FILES:
        snprintf(text, size, "a text, or a list of texts");
        break;
    default:
        snprintf(text, size, "a text");
    }
    return text;
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
    if (list->n == WEFT_MAX_LENGTHS || !(x >= RECIPE_MIN_LENGTH && x <= RECIPE_MAX_LENGTH) ||
        floor(x) != x)
        return false;
    if (list->n && x <= list->at[list->n - 1]) return false;
    list->at[list->n++] = (int32_t)x;
    return true;
}

/* ---- The command line ---- */

static void out_of_memory(void)
{
    exit(tool_fail_text("command line", "out of memory"));
}

static void take_text(const tool_option *o, void *into, char *text, const tool_parser *parser)
{
    (void)parser;
    if (!recipe_set_text(tool_field(o, into), text)) out_of_memory();
}

/* The first file on the command line replaces those of a recipe. */
static void take_file(const tool_option *o, void *into, char *text, const tool_parser *parser)
{
    recipe_files *files = tool_field(o, into);
    (void)parser;
    if (!files->chosen) recipe_add_file(files, "");
    files->chosen = true;
    if (!recipe_add_file(files, text)) out_of_memory();
}

static void take_lengths(const tool_option *o, void *into, char *text, const tool_parser *parser)
{
    recipe_list list = {{0}, 0};
    const char *at = text, *end;
    double x;
    bool good = true;
    for (; good; at = end + 1) {
        end = weft__text_read_double(at, &x);
        good = end && (!*end || *end == ',') && recipe_add_length(&list, x);
        if (!good || !*end) break;
    }
    if (!good)
        tool_usage_error(parser, "--%s must be " LENGTHS_WANTED ", not \"%s\"", o->name,
                         WEFT_MAX_LENGTHS, RECIPE_MIN_LENGTH, RECIPE_MAX_LENGTH, text);
    *(recipe_list *)tool_field(o, into) = list;
}

/* After --minutes: it overrides the steps of a recipe. */
static void end_by_minutes(const tool_option *o, void *into, char *text, const tool_parser *parser)
{
    recipe *r = into;
    (void)o;
    (void)text;
    (void)parser;
    if (r->schedule_minutes > 0) r->schedule_steps = 0, r->schedule_max_minutes = 0;
}

void recipe_check(void *into, const tool_parser *parser)
{
    const recipe *r = into;
    if (r->minutes_chosen && r->max_minutes_chosen)
        tool_usage_error(parser,
                         "--minutes and --max-minutes exclude each other: --minutes is the whole "
                         "length, --max-minutes limits --steps");
}

/* A heading of --help for each section of the table. */
static const char *heading(const char *section)
{
    static const char *const headings[][2] = {{"data", "Texts:"},
                                              {"vocabulary", "Vocabulary:"},
                                              {"batches", "Batches:"},
                                              {"optimizer", "Optimizer:"},
                                              {"schedule", "Learning rate and length:"},
                                              {"lora", "Adapters:"},
                                              {"run", "Run:"},
                                              {"fit", "Model and data:"}};
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        if (!strcmp(headings[i][0], section)) return headings[i][1];
    return section;
}

void recipe_options(tool_option *rows, bool fits)
{
    int group = 0;
    const char *section = "";
    for (size_t i = 0; i < n_recipe_rows; i++) {
        const recipe_row *row = &recipe_rows[i];
        if (!recipe_has(fits, row)) continue;
        if (strcmp(row->section, section) != 0)
            *rows++ =
                (tool_option){.kind = TOOL_HEADING, .doc = heading(row->section), .group = ++group};
        section = row->section;
        *rows = row->option;
        rows->group = group;
        if (fits && i == RECIPE_optimizer_frozen) rows->name = "freeze";
        if (i == RECIPE_schedule_minutes) rows->take = end_by_minutes;
        if (i == RECIPE_schedule_minutes) rows->also = 1 + offsetof(recipe, minutes_chosen);
        if (i == RECIPE_schedule_max_minutes) rows->also = 1 + offsetof(recipe, max_minutes_chosen);
        rows++;
    }
    *rows = (tool_option){.kind = TOOL_END};
}

static bool differs(const tool_option *o, const recipe *r, const recipe *defaults)
{
    const void *value = tool_value(o, r), *other = tool_value(o, defaults);
    switch (o->kind) {
    case TOOL_STRING:
    case TOOL_FILE:
        return strcmp(*(char *const *)value, *(char *const *)other) != 0;
    case TOOL_FILES:
        return ((const recipe_files *)value)->n != 0;
    case TOOL_LENGTHS:
        return ((const recipe_list *)value)->n != 0;
    default:
        return tool_get_number(o, r) != tool_get_number(o, defaults);
    }
}

bool recipe_is_set(const recipe *r, recipe_key key)
{
    recipe defaults;
    const bool set = recipe_init(&defaults) && differs(&recipe_rows[key].option, r, &defaults);
    recipe_free(&defaults);
    return set;
}

const char *recipe_option(recipe_key key)
{
    return recipe_rows[key].option.name;
}

/* ---- Files ---- */

char *recipe_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (!path) return NULL;
    bool alone = weft__os_is_absolute(name) || !strcmp(name, "-") || !folder[0];
    snprintf(path, size, "%s%s%s", alone ? "" : folder, alone ? "" : "/", name);
    return path;
}

/* Finds the file names of a row; returns how many. */
static size_t file_names(recipe *r, const recipe_row *row, char ***names)
{
    const tool_option *o = &row->option;
    recipe_files *list = tool_field(o, r);
    *names = o->kind == TOOL_FILES ? list->at : tool_field(o, r);
    if (o->kind == TOOL_FILES) return list->n;
    return o->kind == TOOL_FILE && (**names)[0] ? 1 : 0;
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
            if (!weft__os_is_absolute(name) && strcmp(name, "-") != 0) return true;
        }
    }
    return false;
}

/* The real path of a file or folder. A missing file keeps its name, for the message; so does a
 * pipe, whose real path cannot be opened. */
static bool make_real(const char *name, const char *folder, char **made)
{
    os_facts facts;
    char real[FILE_PATH_BYTES];
    (void)folder;
    const bool lasts = weft__os_facts(name, &facts) && facts.kind != OS_DEVICE;
    *made = lasts && weft__os_real_path(name, real, sizeof real) ? strdup(real) : NULL;
    return true;
}

bool recipe_resolve(recipe *r, weft_error *error)
{
    char here[FILE_PATH_BYTES];
    if (!weft__os_current_folder(here, sizeof here)) {
        weft_error_set(error, WEFT_IO, "train", "the current folder cannot be determined: %s",
                       strerror(errno));
        return false;
    }
    bool good = recipe_place_files(r, here) && recipe_set_text(&r->data_folder, "") &&
                change_files(r, make_real, NULL);
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, "train", "out of memory");
    return good;
}
