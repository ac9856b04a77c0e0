/* Numbers of lines for messages. */
#ifndef WEFT_TOOLS_LINE_NUMBERS_H
#define WEFT_TOOLS_LINE_NUMBERS_H

#include <weft/text.h>

/* "line 3", "lines 3, 7", or "12 lines: 1, 2, 3, ..."; returns `text`. */
#define LINE_NUMBERS_TEXT 256
const char *line_numbers_text(const weft_text_lines *lines, char text[LINE_NUMBERS_TEXT]);

#endif
