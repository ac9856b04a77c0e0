/* The description of a command's options: as --help and --usage print it, and as JSON
 * (--help-json), from which manual pages and completions are made (tools/man). */
#include "command_line.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>

enum { DOC_BYTES = 2048, WIDE = 48 };

/* ---- Texts of a row ---- */

/* Whether the choices are too long for the column of arguments; they follow the documentation then.
 */
static bool is_wide(const tool_option *o)
{
    return o->argument && strlen(o->argument) > WIDE;
}

static void append_default(const entry *e, char text[DOC_BYTES])
{
    const tool_option *o = e->option;
    char number[TEXT_NUMBER_BYTES];
    int length;
    const bool shown = e->initial != 0 || o->shows_zero;
    if (o->kind == TOOL_CHOICE) {
        const char *choice = tool_choice_at(o->argument, (int)e->initial, &length);
        tool_append(text, DOC_BYTES, " (default %.*s)", length, choice);
    } else if (o->kind == TOOL_FLAG && shown) {
        tool_append(text, DOC_BYTES, " (default %s)", e->initial != 0 ? "true" : "false");
    } else if ((o->kind == TOOL_WHOLE || o->kind == TOOL_REAL) && shown && e->initial >= o->min &&
               e->initial <= o->max) {
        tool_append(text, DOC_BYTES, " (default %s)", weft__text_from_double(e->initial, number));
    }
}

/* "DOC: ONE, OTHER (default ONE)" */
static void describe(const entry *e, char text[DOC_BYTES])
{
    text[0] = 0;
    tool_append(text, DOC_BYTES, "%s", e->option->doc);
    if (is_wide(e->option)) {
        tool_append(text, DOC_BYTES, ": ");
        for (const char *c = e->option->argument; *c; c++)
            tool_append(text, DOC_BYTES, "%s", *c == '|' ? ", " : (char[]){*c, 0});
    }
    append_default(e, text);
}

/* ---- As JSON ---- */

static void add_text(cJSON *json, const char *key, const char *text)
{
    if (text && text[0]) cJSON_AddStringToObject(json, key, text);
}

static cJSON *entry_json(const entry *e)
{
    cJSON *json = cJSON_CreateObject();
    const tool_option *o = e->option;
    const char letter[] = {o->letter, 0};
    if (is_heading(o)) {
        cJSON_AddStringToObject(json, "heading", o->doc);
        return json;
    }
    char doc[DOC_BYTES];
    describe(e, doc);
    add_text(json, "short", letter);
    add_text(json, "long", o->name);
    add_text(json, "argument", o->argument);
    if (o->optional) cJSON_AddTrueToObject(json, "optional");
    add_text(json, "doc", doc);
    return json;
}

/* Prints {"name", "usage": [text], "doc", "notes", "options": [...]}; the notes follow the options.
 * An option is {"short", "long", "argument", "optional", "doc"} or {"heading"}. Members that would
 * be empty are left out. */
int tool_print_description(const command_line *line)
{
    const tool_command *command = line->command;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", line->parser.command);
    cJSON *usage = cJSON_AddArrayToObject(json, "usage");
    for (const char *at = command->usage ? command->usage : ""; at;) {
        char text[256];
        const size_t length = strcspn(at, "\n");
        snprintf(text, sizeof text, "%.*s", (int)length, at);
        cJSON_AddItemToArray(usage, cJSON_CreateString(text));
        at = at[length] ? at + length + 1 : NULL;
    }
    add_text(json, "doc", command->doc);
    add_text(json, "notes", command->notes);
    cJSON *options = cJSON_AddArrayToObject(json, "options");
    for (size_t i = 0; i < line->n; i++) cJSON_AddItemToArray(options, entry_json(&line->at[i]));
    return tool_print_json(json);
}

/* ---- Lines ---- */

/* Where things begin, as GNU programs print them, and the width of a line: a line that ends with a
 * paragraph is shorter than this, the others are at most as long. */
enum { HEADING_AT = 1, LETTER_AT = 2, NAME_AT = 6, USAGE_AT = 12, DOC_AT = 29, WIDTH = 79 };

/* What has been printed of the current line, in bytes. */
typedef struct page {
    size_t column;
} page;

static void put(page *out, const char *text, size_t length)
{
    fwrite(text, 1, length, stdout);
    out->column += length;
}

static void put_word(page *out, const char *text)
{
    put(out, text, strlen(text));
}

static void end_line(page *out)
{
    putchar('\n');
    out->column = 0;
}

static void indent(page *out, size_t column)
{
    while (out->column < column) put(out, " ", 1);
}

/* Where to break a line that does not fit: at the last blank that fits, or, after a word that is
 * too long, at the next one. `length` if there is none. */
static size_t break_of(const char *line, size_t length, size_t column)
{
    const size_t end = column < WIDTH ? WIDTH - column : 0;
    size_t at = end;
    while (at > 0 && line[at] != ' ') at--;
    if (line[at] == ' ') return at;
    for (at = end; at < length && line[at] != ' ';) at++;
    return at;
}

/* Prints a text, from the current column on. Its lines are broken at blanks; the next ones begin at
 * `margin`. */
static void put_text(page *out, const char *text, size_t margin)
{
    size_t length = strcspn(text, "\n");
    for (;;) {
        const bool fits = out->column + length < WIDTH;
        const size_t end = fits ? length : break_of(text, length, out->column);
        size_t printed = end;
        while (end < length && printed > 0 && text[printed - 1] == ' ') printed--;
        put(out, text, printed);
        if (!text[end]) break;
        end_line(out);
        text += end + 1;
        if (end < length) text += strspn(text, " ");
        length = strcspn(text, "\n");
        if (length) indent(out, margin);
    }
}

/* Prints a part of the usage after a blank, or on the next line. `last` is 1 if nothing may follow
 * it on this line, otherwise 0. */
static void put_part(page *out, const char *text, size_t length, size_t last)
{
    if (out->column + length + last >= WIDTH) {
        end_line(out);
        indent(out, USAGE_AT);
    } else {
        put(out, " ", 1);
    }
    put(out, text, length);
}

/* ---- Options ---- */

/* Options are sorted by their letters, or the first ones of their names. Of those with the same one,
 * options without a letter are first, by name. A heading is before all. */
static int sort_key(const tool_option *o)
{
    const char first = o->letter ? o->letter : (char)(o->name && !is_heading(o) ? o->name[0] : 0);
    return tolower((unsigned char)first);
}

static bool is_after(const entry *a, const entry *b)
{
    const tool_option *x = a->option, *y = b->option;
    if (a->group != b->group) return a->group > b->group;
    if (sort_key(x) != sort_key(y)) return sort_key(x) > sort_key(y);
    if (x->letter || y->letter) return x->letter && !y->letter;
    return x->name && y->name && strcmp(x->name, y->name) > 0;
}

static void sort(command_line *line)
{
    for (size_t i = 1; i < line->n; i++) {
        const entry e = line->at[i];
        size_t at = i;
        for (; at > 0 && is_after(&line->at[at - 1], &e); at--) line->at[at] = line->at[at - 1];
        line->at[at] = e;
    }
}

static const char *argument_of(const tool_option *o)
{
    return is_wide(o) ? "KIND" : o->argument;
}

/* "-o" or, if it is asked for, "-o FILE" */
static void letter_text(const tool_option *o, bool argument, char *text, size_t size)
{
    snprintf(text, size, "-%c", o->letter);
    if (argument && o->argument)
        tool_append(text, size, o->optional ? "[%s]" : " %s", argument_of(o));
}

/* "--output=FILE" */
static void name_text(const tool_option *o, char *text, size_t size)
{
    snprintf(text, size, "--%s", o->name);
    if (o->argument) tool_append(text, size, o->optional ? "[=%s]" : "=%s", argument_of(o));
}

static void print_doc(page *out, const entry *e)
{
    char text[DOC_BYTES];
    describe(e, text);
    if (out->column > DOC_AT + 3)
        end_line(out);
    else if (out->column >= DOC_AT)
        put_word(out, "   ");
    indent(out, DOC_AT);
    put_text(out, text, DOC_AT);
    end_line(out);
}

static void print_option(page *out, const entry *e)
{
    char text[256];
    const tool_option *o = e->option;
    indent(out, LETTER_AT);
    if (o->letter) {
        letter_text(o, !o->name, text, sizeof text);
        put_word(out, text);
        if (o->name) put_word(out, ", ");
    }
    if (o->name) {
        name_text(o, text, sizeof text);
        indent(out, NAME_AT);
        put_word(out, text);
    }
    print_doc(out, e);
}

/* Prints headings and options. Empty lines separate the groups after the first heading. */
static void print_options(page *out, const command_line *line)
{
    bool headed = false, shared = false;
    for (size_t i = 0; i < line->n; i++) {
        const entry *e = &line->at[i];
        const tool_option *o = e->option;
        const bool heads = is_heading(o);
        if (i > 0 && (heads || (headed && e->group != line->at[i - 1].group))) end_line(out);
        headed |= heads;
        shared |= o->letter && o->name && o->argument;
        if (!heads) {
            print_option(out, e);
            continue;
        }
        indent(out, HEADING_AT);
        put_text(out, o->doc, HEADING_AT);
        end_line(out);
    }
    if (!shared) return;
    end_line(out);
    put_text(out,
             "Mandatory or optional arguments to long options are also mandatory or optional for "
             "any corresponding short options.\n",
             0);
}

/* ---- Usage ---- */

static void print_option_parts(page *out, const command_line *line)
{
    char text[256] = "[-", word[300];
    for (size_t i = 0; i < line->n; i++) {
        const tool_option *o = line->at[i].option;
        if (o->letter && !o->argument) tool_append(text, sizeof text, "%c", o->letter);
    }
    tool_append(text, sizeof text, "]");
    put_part(out, text, strlen(text), 1);
    for (int names = 0; names < 2; names++)
        for (size_t i = 0; i < line->n; i++) {
            const tool_option *o = line->at[i].option;
            if (is_heading(o) || (names ? !o->name : !o->letter || !o->argument)) continue;
            (names ? name_text(o, text, sizeof text) : letter_text(o, true, text, sizeof text));
            snprintf(word, sizeof word, "[%s]", text);
            put_part(out, word, strlen(word), !names);
        }
}

/* Prints the lines of the usage; the first one lists all options if `full`. */
static void print_usage(page *out, const command_line *line, bool full)
{
    const char *at = line->command->usage;
    const char *word = "Usage:";
    do {
        put_word(out, word);
        put_part(out, line->parser.command, strlen(line->parser.command), 1);
        if (full)
            print_option_parts(out, line);
        else
            put_word(out, " [OPTION...]");
        const size_t length = at ? strcspn(at, "\n") : 0;
        if (at) put_part(out, at, length, 1);
        end_line(out);
        at = at && at[length] ? at + length + 1 : NULL;
        word = "  or: ";
        full = false;
    } while (at);
}

void tool_print_usage(command_line *line)
{
    page out = {0};
    sort(line);
    print_usage(&out, line, true);
}

void tool_print_help(command_line *line)
{
    page out = {0};
    const char *notes = line->command->notes;
    sort(line);
    print_usage(&out, line, false);
    put_text(&out, line->command->doc, 0);
    if (out.column > 0) end_line(&out);
    end_line(&out);
    print_options(&out, line);
    if (!notes || !notes[0]) return;
    end_line(&out);
    put_text(&out, notes, 0);
    if (out.column > 0) end_line(&out);
}
