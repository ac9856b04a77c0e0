/* Files of JSON lines, such as the metrics of a run. */
#ifndef WEFT_TOOLS_JSON_LINES_H
#define WEFT_TOOLS_JSON_LINES_H

#include <weft/graph.h>

#include <cjson/cJSON.h>
#include <stdbool.h>

/* Takes a line, which it owns; false if out of memory. */
typedef bool json_line_taker(void *context, cJSON *line);

/* Calls `take` with each line of a file. The last line may be incomplete, because a program is
 * writing it; it is left out then. False after an error, such as a line that is not JSON. */
bool json_lines_read(const char *path, json_line_taker *take, void *context, weft_error *error);

#endif
