/* Values of options: choices, numbers and names of models. */
#include "tool.h"

#include "base/guess.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int tool_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int i = 0; choices; i++) {
        if (strcspn(choices, "|") == length && !strncmp(choices, text, length)) return i;
        choices = strchr(choices, '|');
        if (choices) choices++;
    }
    return -1;
}

const char *tool_choice_at(const char *choices, int index, int *length)
{
    for (; index > 0; index--) choices = strchr(choices, '|') + 1;
    *length = (int)strcspn(choices, "|");
    return choices;
}

const char *tool_guess_model(const char *name, char text[TOOL_GUESS_BYTES])
{
    guess g = weft__guess_of(name, strlen(name));
    for (size_t i = 0; i < weft_model_count(); i++) weft__guess_try(&g, weft_model_at(i)->name);
    return weft__guess_text(&g, text);
}

bool tool_read_bytes(const char *text, size_t *bytes)
{
    static const char units[] = "KMGT";
    char *end;
    double x = strtod(text, &end), factor = 1;
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++) factor *= 1000;
    if (end == text || (*end && (!unit || end[1])) || !(x * factor >= 1 && x * factor < 1e18))
        return false;
    *bytes = (size_t)(x * factor);
    return true;
}

/* ---- Fields ---- */

void *tool_field(const tool_option *o, void *into)
{
    return (char *)into + o->offset;
}

const void *tool_value(const tool_option *o, const void *into)
{
    return (const char *)into + o->offset;
}

static void set_whole(const tool_option *o, void *into, int64_t x)
{
    if (o->size == sizeof(int32_t))
        *(int32_t *)tool_field(o, into) = (int32_t)x;
    else
        *(int64_t *)tool_field(o, into) = x;
}

bool tool_set_number(const tool_option *o, void *into, double x)
{
    if (!(x >= o->min && x <= o->max) || (o->kind == TOOL_WHOLE && floor(x) != x)) return false;
    if (o->kind == TOOL_WHOLE)
        set_whole(o, into, (int64_t)x);
    else
        *(double *)tool_field(o, into) = x;
    return true;
}

bool tool_set_choice(const tool_option *o, void *into, const char *text)
{
    const int choice = tool_choice(o->argument, text);
    if (choice >= 0) set_whole(o, into, choice);
    return choice >= 0;
}

double tool_get_number(const tool_option *o, const void *into)
{
    const void *field = tool_value(o, into);
    switch (o->kind) {
    case TOOL_FLAG:
        return *(const bool *)field;
    case TOOL_WHOLE:
    case TOOL_CHOICE:
        return o->size == sizeof(int32_t) ? *(const int32_t *)field
                                          : (double)*(const int64_t *)field;
    case TOOL_REAL:
        return *(const double *)field;
    default:
        return 0;
    }
}

/* ---- Texts ---- */

double tool_real(const char *text, const char *what, double min, double max,
                 const tool_parser *parser)
{
    double x = 0;
    if (!weft__text_to_double(text, &x) || !(x >= min && x <= max))
        tool_usage_error(parser, "%s must be a number from %.10g to %.10g, not \"%s\"", what, min,
                         max, text);
    return x;
}

/* The bound as an integer; 2^63 is INT64_MAX. */
static long long bound(double x)
{
    return x >= 0x1p63 ? INT64_MAX : (long long)x;
}

static void take_whole(const tool_option *o, void *into, const char *what, const char *text,
                       const tool_parser *parser)
{
    const long long min = bound(o->min), max = bound(o->max);
    char *end;
    double x;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && number >= min && number <= max)
        set_whole(o, into, number);
    else if (!weft__text_to_double(text, &x) || fabs(x) > 0x1p53 || !tool_set_number(o, into, x))
        tool_usage_error(parser, "%s must be a whole number from %lld to %lld, not \"%s\"", what,
                         min, max, text);
}

/* The index of the choice. */
static int read_choice(const char *choices, const char *what, const char *text,
                       const tool_parser *parser)
{
    const int choice = tool_choice(choices, text);
    if (choice < 0)
        tool_usage_error(parser, "%s must be one of %s, not \"%s\"", what, choices, text);
    return choice;
}

static void take_plain(const tool_option *o, void *into, const char *what, char *text,
                       const tool_parser *parser)
{
    void *field = tool_field(o, into);
    switch (o->kind) {
    case TOOL_TEXT:
        *(const char **)field = text;
        break;
    case TOOL_WHOLE:
        take_whole(o, into, what, text, parser);
        break;
    case TOOL_REAL:
        *(double *)field = tool_real(text, what, o->min, o->max, parser);
        break;
    case TOOL_CHOICE:
        set_whole(o, into, read_choice(o->argument, what, text, parser));
        break;
    case TOOL_BYTES:
        if (!tool_read_bytes(text, field))
            tool_usage_error(parser, "%s must be a number of bytes, such as 500M or 2G, not \"%s\"",
                             what, text);
        break;
    case TOOL_FLAG:
        *(bool *)field = read_choice(o->argument, what, text, parser) == 0;
        break;
    default:
        break;
    }
}

void tool_take_option(const tool_option *o, void *into, char *text, const tool_parser *parser)
{
    const char letter[] = {'-', o->letter, 0};
    char what[64];
    snprintf(what, sizeof what, "%s%s", o->name ? "--" : letter, o->name ? o->name : "");
    if (o->also) ((bool *)into)[o->also - 1] = true;
    if (text)
        take_plain(o, into, what, text, parser);
    else if (o->kind == TOOL_FLAG)
        *(bool *)tool_field(o, into) = true;
    if (o->take) o->take(o, into, text, parser);
}
