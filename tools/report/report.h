/* What `weft report` adds to the report of a run. */
#ifndef WEFT_TOOLS_REPORT_H
#define WEFT_TOOLS_REPORT_H

#include "tool.h"

#include <weft/report.h>

/* Adds a run as a subject, from the files of its folder alone. */
weft_status report_add_run(weft_report *report, const char *folder, bool train, weft_error *error);

/* Adds attention weights of some sentences of the validation text to the run of the last subject,
 * if its model has them. `recipe` is its recipe.json; NULL if there is none. */
weft_status report_add_attention(weft_report *report, const char *folder, const cJSON *recipe,
                                 int threads, weft_error *error);

#endif
