/* Arguments of the command line: choices, numbers and names of models. */
#include "tool.h"

#include "base/guess.h"
#include "base/text.h"

#include <errno.h>
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

const char *tool_guess_model(const char *name, char text[TOOL_GUESS_BYTES])
{
    guess g = weft__guess_of(name, strlen(name));
    for (size_t i = 0; i < weft_model_count(); i++) weft__guess_try(&g, weft_model_at(i)->name);
    return weft__guess_text(&g, text);
}

long tool_number(const char *text, const char *what, long min, long max, struct argp_state *state)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < min || number > max)
        tool_usage_error(state, "%s must be a whole number from %ld to %ld, not \"%s\"", what, min,
                         max, text);
    return number;
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

size_t tool_bytes(const char *text, const char *what, struct argp_state *state)
{
    size_t bytes = 0;
    if (!tool_read_bytes(text, &bytes))
        tool_usage_error(state, "%s must be a number of bytes, such as 500M or 2G, not \"%s\"",
                         what, text);
    return bytes;
}

weft_precision tool_precision(const char *text, struct argp_state *state)
{
    const int precision = tool_choice(TOOL_PRECISIONS, text);
    if (precision < 0) tool_usage_error(state, "--precision must be f32 or bf16, not \"%s\"", text);
    return (weft_precision)precision;
}

double tool_real(const char *text, const char *what, double min, double max,
                 struct argp_state *state)
{
    double x = 0;
    if (!weft__text_to_double(text, &x) || !(x >= min && x <= max))
        tool_usage_error(state, "%s must be a number from %g to %g, not \"%s\"", what, min, max,
                         text);
    return x;
}
