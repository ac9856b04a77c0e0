/* The command line of a command: argp, with -h for --help, a description of the options as JSON
 * (--help-json), from which manual pages and completions are made (tools/man), and suggestions for
 * mistyped options. */
#include "tool.h"

#include "base/guess.h"

#include <stdlib.h>
#include <string.h>

/* An option or a heading, in the order of --help. */
typedef struct entry {
    const struct argp *argp; /* that has it */
    const struct argp_option *option;
    const char *heading; /* NULL: an option */
    int group, cluster;  /* a child with a heading follows its group as a cluster */
    size_t index;
} entry;

#define MAX_ENTRIES 192
typedef struct entries {
    entry at[MAX_ENTRIES];
    size_t n;
    int clusters;
} entries;

static void add(entries *list, entry e)
{
    if (list->n == MAX_ENTRIES) return;
    e.index = list->n;
    list->at[list->n++] = e;
}

/* Adds options and those of children. All are in the group of `inside` if that has a cluster. */
static void collect(entries *list, const struct argp *argp, entry inside)
{
    const struct argp_option *o = argp->options;
    int group = 0; /* 0 in an option: that of the one before it */
    for (; o && (o->name || o->key || o->doc || o->group); o++) {
        const bool heading = !o->name && !o->key;
        group = o->group ? o->group : group + heading;
        add(list, (entry){argp, o, heading ? o->doc : NULL, inside.cluster ? inside.group : group,
                          inside.cluster, 0});
    }
    for (const struct argp_child *c = argp->children; c && c->argp; c++) {
        entry e = inside;
        if (!inside.cluster && (c->header || c->group)) {
            e.cluster = ++list->clusters;
            e.group = c->group;
            if (c->header) add(list, (entry){argp, NULL, c->header, e.group, e.cluster, 0});
        }
        collect(list, c->argp, e);
    }
}

/* Groups in the order 0, 1, 2, ..., -2, -1. */
static int in_order(const void *first, const void *second)
{
    const entry *a = first, *b = second;
    if (a->group != b->group)
        return (a->group < 0) != (b->group < 0) ? (a->group < 0) - (b->group < 0)
                                                : (a->group > b->group) - (a->group < b->group);
    if (a->cluster != b->cluster) return a->cluster - b->cluster;
    return (a->index > b->index) - (a->index < b->index);
}

/* ---- As JSON ---- */

/* Adds a text as --help prints it: the argp's filter may replace it. */
static void add_text(cJSON *json, const char *key, const struct argp *argp, int filter_key,
                     const char *text)
{
    char *shown =
        argp->help_filter ? argp->help_filter(filter_key, text, NULL) : (char *)(uintptr_t)text;
    if (shown && shown[0]) cJSON_AddStringToObject(json, key, shown);
    if (shown != text) free(shown);
}

static cJSON *entry_json(const entry *e)
{
    cJSON *json = cJSON_CreateObject();
    const struct argp_option *o = e->option;
    if (e->heading) {
        cJSON_AddStringToObject(json, "heading", e->heading);
        return json;
    }
    if (o->key > 0 && o->key < 128) {
        const char name[] = {(char)o->key, 0};
        cJSON_AddStringToObject(json, "short", name);
    }
    if (o->name) cJSON_AddStringToObject(json, "long", o->name);
    if (o->arg) add_text(json, "argument", e->argp, o->key + TOOL_HELP_ARGUMENT, o->arg);
    if (o->flags & OPTION_ARG_OPTIONAL) cJSON_AddTrueToObject(json, "optional");
    add_text(json, "doc", e->argp, o->key, o->doc);
    return json;
}

/* Prints {"name", "usage": [text], "doc", "notes", "options": [...]}; the notes follow the options.
 * An option is {"short", "long", "argument", "optional", "doc"} or {"heading"}. Members that would
 * be empty are left out. */
static int print_description(const struct argp *argp, const char *name, const entries *list)
{
    const char *doc = argp->doc ? argp->doc : "", *notes = strchr(doc, '\v');
    char *before = notes ? strndup(doc, (size_t)(notes - doc)) : strdup(doc);
    if (!before) return tool_fail_text(name, "out of memory");
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", name);
    cJSON *usage = cJSON_AddArrayToObject(json, "usage");
    for (const char *line = argp->args_doc ? argp->args_doc : ""; line;) {
        char text[256];
        const size_t length = strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", (int)length, line);
        cJSON_AddItemToArray(usage, cJSON_CreateString(text));
        line = line[length] ? line + length + 1 : NULL;
    }
    add_text(json, "doc", argp, ARGP_KEY_HELP_PRE_DOC, before);
    if (notes) add_text(json, "notes", argp, ARGP_KEY_HELP_POST_DOC, notes + 1);
    cJSON *options = cJSON_AddArrayToObject(json, "options");
    for (size_t i = 0; i < list->n; i++) cJSON_AddItemToArray(options, entry_json(&list->at[i]));
    free(before);
    return tool_print_json(json);
}

/* ---- Mistyped options ---- */

/* Options that argp adds. */
static const char *const own_options[] = {"help", "usage", "version"};
#define N_OWN (sizeof own_options / sizeof *own_options)

/* Compares names as getopt does: a prefix is enough. */
static bool begins(const char *name, const char *text, size_t length)
{
    return name && !strncmp(name, text, length);
}

/* Whether an option is known; *found is the one, NULL if argp adds it. */
static bool knows(const entries *list, const char *text, size_t length,
                  const struct argp_option **found)
{
    bool known = false;
    *found = NULL;
    for (size_t i = 0; i < N_OWN; i++) known |= begins(own_options[i], text, length);
    for (size_t i = 0; i < list->n; i++) {
        const struct argp_option *o = list->at[i].option;
        if (!o || !begins(o->name, text, length)) continue;
        known = true;
        *found = o;
        if (!o->name[length]) break; /* the whole name */
    }
    return known;
}

/* Whether the argument of an option is the next word, unless it is in the same word. */
static bool takes_next(const struct argp_option *o)
{
    return o && o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
}

/* The option of "-xyz" whose argument is the next word, or NULL. */
static const struct argp_option *last_short(const entries *list, const char *word)
{
    for (const char *at = word + 1; *at; at++)
        for (size_t i = 0; i < list->n; i++) {
            const struct argp_option *o = list->at[i].option;
            if (o && o->key == *at && o->arg) return !at[1] && takes_next(o) ? o : NULL;
        }
    return NULL;
}

static void end_with_help(const char *command)
{
    tool_print_line(stderr, "Try `%s --help' for more information.", command);
    exit(EXIT_USAGE);
}

/* Ends the program if the argument of an option must be a name, but is empty. `value` may be
 * NULL. */
static void check_value(const char *command, const struct argp_option *o, const char *value)
{
    static const char *const files[] = {"FILE", "FOLDER", "DIR", "OUT", "NAME"};
    if (!o || !o->arg || !value || value[0] || (o->flags & TOOL_MAY_BE_EMPTY)) return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!strstr(o->arg, files[i])) continue;
        const char name[] = {(char)o->key, 0};
        tool_print_line(stderr, "%s: %s%s expects %s, not an empty text", command,
                        o->name ? "--" : "-", o->name ? o->name : name, o->arg);
        end_with_help(command);
    }
}

/* Ends the program with a suggestion for a mistyped option; argp refuses the others. */
static void suggest(const entries *list, const char *command, const char *text, size_t length)
{
    guess g = weft__guess_of(text, length);
    for (size_t k = 0; k < list->n; k++)
        if (list->at[k].option && list->at[k].option->name)
            weft__guess_try(&g, list->at[k].option->name);
    if (!g.name) return;
    tool_print_line(stderr, "%s: unrecognized option '--%.*s'; did you mean '--%s'?", command,
                    (int)length, text, g.name);
    end_with_help(command);
}

/* Ends the program if an option is not known and another one is near, or if the name of a file is
 * empty. */
static void check_options(const entries *list, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const struct argp_option *o = NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (argv[i][0] == '-') o = last_short(list, argv[i]);
            if (o) check_value(argv[0], o, argv[++i]);
            continue;
        }
        const char *text = argv[i] + 2;
        const size_t length = strcspn(text, "=");
        if (!knows(list, text, length, &o)) {
            suggest(list, argv[0], text, length);
            continue;
        }
        const bool next = takes_next(o) && !text[length];
        check_value(argv[0], o, next ? argv[i + 1] : text[length] ? text + length + 1 : NULL);
        i += next;
    }
}

/* ---- Parsing ---- */

static error_t parse_help(int key, char *text, struct argp_state *state)
{
    (void)text;
    if (key != 'h') return ARGP_ERR_UNKNOWN;
    argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
    return 0;
}

void tool_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    enum { MAX_CHILDREN = 4 };
    static const struct argp_option options[] = {{NULL, 'h', NULL, 0, "The same as --help", -1},
                                                 {0}};
    static const struct argp help = {options, parse_help, NULL, NULL, NULL, NULL, NULL};
    struct argp_child children[MAX_CHILDREN + 2] = {{0}};
    size_t n = 0;
    for (; argp->children && argp->children[n].argp && n < MAX_CHILDREN; n++)
        children[n] = argp->children[n];
    children[n] = (struct argp_child){&help, 0, NULL, 0};
    struct argp both = *argp;
    both.children = children;
    entries list = {.n = 0};
    collect(&list, argp, (entry){0});
    qsort(list.at, list.n, sizeof *list.at, in_order);
    if (argc == 2 && !strcmp(argv[1], TOOL_HELP_JSON))
        exit(print_description(argp, argv[0], &list));
    check_options(&list, argc, argv);
    error_t why = argp_parse(&both, argc, argv, 0, NULL, input);
    if (why) exit(tool_fail_text("command line", "cannot be read: %s", strerror(why)));
}
