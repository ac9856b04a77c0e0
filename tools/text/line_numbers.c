/* See line_numbers.h. */
#include "line_numbers.h"

#include "tool.h"

const char *line_numbers_text(const weft_text_lines *lines, char text[LINE_NUMBERS_TEXT])
{
    bool all = lines->n <= WEFT_TEXT_LISTED;
    text[0] = 0;
    if (!all) tool_append(text, LINE_NUMBERS_TEXT, "%zu lines: ", lines->n);
    if (all) tool_append(text, LINE_NUMBERS_TEXT, "line%s ", lines->n == 1 ? "" : "s");
    for (size_t i = 0; i < lines->n && i < WEFT_TEXT_LISTED; i++)
        tool_append(text, LINE_NUMBERS_TEXT, "%s%zu", i ? ", " : "", lines->first[i]);
    if (!all) tool_append(text, LINE_NUMBERS_TEXT, ", ...");
    return text;
}
