/* json/lines.h - files of JSON lines, such as the metrics of a run. Not installed. */
#ifndef WEFT_JSON_LINES_H
#define WEFT_JSON_LINES_H

#include <weft/graph.h>

#include <cjson/cJSON.h>

/* Takes a line, which it owns; false if out of memory. */
typedef bool json_line_taker(void *context, cJSON *line);

/* Calls `take` with each line of a file. The last line may be incomplete, because a program is
 * writing it; it is left out then. WEFT_BAD_FILE for a line that is not JSON. */
weft_status weft__json_read_lines(const char *path, json_line_taker *take, void *context,
                                  weft_error *error);

#endif
