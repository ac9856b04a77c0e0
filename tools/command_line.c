/* The command line of a command, from its table of options (options.h). Options and arguments may
 * be mixed; all options are taken first. Words are read as getopt_long does: --name=value,
 * --name value, the beginning of a name that no other option has, -xyz, -ovalue, -o value; "--" ends
 * the options. Each command also has the options of `own_options`. */
#include "command_line.h"

#include "base/guess.h"

#include <stdlib.h>
#include <string.h>

/* ---- Rows ---- */

static void add(command_line *line, entry e)
{
    size_t at = line->n;
    if (at == MAX_ENTRIES) return;
    e.initial = tool_get_number(e.option, e.into);
    for (; at > 0 && line->at[at - 1].group > e.group; at--) line->at[at] = line->at[at - 1];
    line->at[at] = e;
    line->n++;
}

/* Adds the rows of a table and of those that it includes, which are checked first. */
static void collect(command_line *line, const tool_command *command, void *into, int group)
{
    for (const tool_option *o = command->options; o && o->kind != TOOL_END; o++) {
        const entry e = {o, into, group + o->group, 0};
        if (o->kind == TOOL_ARGUMENT)
            line->argument = e;
        else if (o->kind != TOOL_INCLUDE || o->doc)
            add(line, e);
        if (o->kind == TOOL_INCLUDE) collect(line, o->include, (char *)into + o->offset, e.group);
    }
    if (line->n_parts < MAX_PARTS) line->parts[line->n_parts++] = (part){command, into};
}

static void take_help(const tool_option *option, void *into, char *text, const tool_parser *parser)
{
    (void)option, (void)text, (void)parser;
    tool_print_help(into);
    exit(EXIT_GOOD);
}

static void take_usage(const tool_option *option, void *into, char *text, const tool_parser *parser)
{
    (void)option, (void)text, (void)parser;
    tool_print_usage(into);
    exit(EXIT_GOOD);
}

static void take_version(const tool_option *option, void *into, char *text,
                         const tool_parser *parser)
{
    (void)option, (void)into, (void)text, (void)parser;
    printf("weft %s\n", WEFT_VERSION);
    exit(EXIT_GOOD);
}

/* Of every command; into a command_line. */
static const tool_option own_options[] = {
    {"help", NULL, TOOL_BY(take_help), "Give this help list", .letter = '?'},
    {NULL, NULL, TOOL_BY(take_help), "The same as --help", .letter = 'h'},
    {"usage", NULL, TOOL_BY(take_usage), "Give a short usage message"},
    {"version", NULL, TOOL_BY(take_version), "Print program version", .letter = 'V'},
    {0}};

static void add_own_options(command_line *line)
{
    enum { LAST_GROUP = 1000 };
    for (const tool_option *o = own_options; o->kind != TOOL_END; o++)
        add(line, (entry){o, line, LAST_GROUP, 0});
}

/* ---- Options ---- */

/* Ends the program; suggests a name that is near. */
static void refuse_name(const command_line *line, const char *text, size_t length)
{
    guess g = weft__guess_of(text, length);
    for (size_t i = 0; i < line->n; i++)
        if (line->at[i].option->name) weft__guess_try(&g, line->at[i].option->name);
    if (g.name)
        tool_usage_error(&line->parser, "unrecognized option '--%.*s'; did you mean '--%s'?",
                         (int)length, text, g.name);
    tool_usage_error(&line->parser, "unrecognized option '--%s'", text);
}

static bool begins(const entry *e, const char *text, size_t length)
{
    return e->option->name && !strncmp(e->option->name, text, length);
}

/* Ends the program, since several names begin like this. */
static void refuse_beginning(const command_line *line, const char *text, size_t length)
{
    char names[4096] = "";
    for (size_t i = 0; i < line->n; i++)
        if (begins(&line->at[i], text, length))
            tool_append(names, sizeof names, " '--%s'", line->at[i].option->name);
    tool_usage_error(&line->parser, "option '--%s' is ambiguous; possibilities:%s", text, names);
}

/* The option of this name, or the only one whose name begins like this. */
static const entry *find_name(const command_line *line, const char *text, size_t length)
{
    const entry *found = NULL;
    bool ambiguous = false;
    for (size_t i = 0; i < line->n; i++) {
        const entry *e = &line->at[i];
        if (!begins(e, text, length)) continue;
        if (!e->option->name[length]) return e;
        ambiguous |= found != NULL;
        found = e;
    }
    if (ambiguous) refuse_beginning(line, text, length);
    if (!found) refuse_name(line, text, length);
    return found;
}

static const entry *find_letter(const command_line *line, char letter)
{
    for (size_t i = 0; i < line->n; i++)
        if (line->at[i].option->letter == letter) return &line->at[i];
    tool_usage_error(&line->parser, "invalid option -- '%c'", letter);
}

/* Ends the program if the argument of an option must be a name, but is empty. */
static void check_value(const command_line *line, const tool_option *o, const char *value)
{
    static const char *const files[] = {"FILE", "FOLDER", "DIR", "OUT", "NAME"};
    if (!value || value[0] || o->may_be_empty) return;
    const char letter[] = {o->letter, 0};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strstr(o->argument, files[i]))
            tool_usage_error(&line->parser, "%s%s expects %s, not an empty text",
                             o->name ? "--" : "-", o->name ? o->name : letter, o->argument);
}

/* `value` is NULL if the option has none. */
static void take(const command_line *line, const entry *e, char *value)
{
    check_value(line, e->option, value);
    tool_take_option(e->option, e->into, value, &line->parser);
}

static bool needs_argument(const tool_option *o)
{
    return o->argument && !o->optional;
}

/* Takes the option of the word "--TEXT". Returns how many words its argument is: 1 if it is `next`,
 * which is NULL after the last word. */
static int take_name(const command_line *line, char *text, char *next)
{
    const size_t length = strcspn(text, "=");
    const entry *e = find_name(line, text, length);
    const tool_option *o = e->option;
    char *value = text[length] ? text + length + 1 : NULL;
    const bool takes_next = !value && needs_argument(o);
    if (value && !o->argument)
        tool_usage_error(&line->parser, "option '--%s' doesn't allow an argument", o->name);
    if (takes_next && !next)
        tool_usage_error(&line->parser, "option '--%s' requires an argument", o->name);
    take(line, e, takes_next ? next : value);
    return takes_next;
}

/* The same for the options of the word "-LETTERS". */
static int take_letters(const command_line *line, char *letters, char *next)
{
    for (char *at = letters; *at; at++) {
        const entry *e = find_letter(line, *at);
        char *value = at[1] ? at + 1 : NULL;
        if (!e->option->argument) {
            take(line, e, NULL);
            continue;
        }
        const bool takes_next = !value && needs_argument(e->option);
        if (takes_next && !next)
            tool_usage_error(&line->parser, "option requires an argument -- '%c'", *at);
        take(line, e, takes_next ? next : value);
        return takes_next;
    }
    return 0;
}

/* Takes the options, and returns the number of arguments that are left in `arguments`. */
static int take_options(const command_line *line, int argc, char **argv, char **arguments)
{
    int n = 0, i = 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char *word = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (word[0] != '-' || !word[1])
            arguments[n++] = word;
        else if (word[1] == '-')
            i += take_name(line, word + 2, next);
        else
            i += take_letters(line, word + 1, next);
    }
    while (++i < argc) arguments[n++] = argv[i];
    return n;
}

/* ---- Arguments ---- */

/* The text of a row that has one. */
static const char **text_of(const entry *e)
{
    return tool_field(e->option, e->into);
}

/* Ends the program if a row is required and has no text. */
static void check_given(const command_line *line, const entry *e)
{
    const tool_option *o = e->option;
    if (!o || !o->required || *text_of(e)) return;
    if (o->letter) tool_usage_error(&line->parser, "-%c %s is missing", o->letter, o->argument);
    tool_usage_error(&line->parser, "%s is missing", o->argument);
}

static void take_argument(const command_line *line, char *text)
{
    for (size_t i = line->n_parts; i-- > 0;) {
        if (!line->parts[i].command->argument) continue;
        line->parts[i].command->argument(line->parts[i].into, text, &line->parser);
        return;
    }
    if (!line->argument.option) tool_usage_error(&line->parser, "Too many arguments");
    const char **to = text_of(&line->argument);
    if (*to)
        tool_usage_error(&line->parser, "only one %s can be given",
                         line->argument.option->argument);
    *to = text;
}

/* After the last argument: what is missing, then the rules between options. */
static void check(const command_line *line)
{
    check_given(line, &line->argument);
    for (size_t i = 0; i < line->n_parts; i++) {
        const part *p = &line->parts[i];
        if (p->command->check) p->command->check(p->into, &line->parser);
    }
    for (size_t i = 0; i < line->n; i++) check_given(line, &line->at[i]);
}

void tool_parse(const tool_command *command, int argc, char **argv, void *into)
{
    command_line line = {.parser = {argv[0]}, .command = command};
    collect(&line, command, into, 0);
    if (argc == 2 && !strcmp(argv[1], TOOL_HELP_JSON)) exit(tool_print_description(&line));
    add_own_options(&line);
    char **arguments = malloc((size_t)argc * sizeof *arguments);
    if (!arguments) exit(tool_fail_text("command line", "out of memory"));
    const int n = take_options(&line, argc, argv, arguments);
    for (int i = 0; i < n; i++) take_argument(&line, arguments[i]);
    free(arguments);
    check(&line);
}
