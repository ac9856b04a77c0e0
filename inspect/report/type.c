/* The types of values as text. */
#include "parts.h"

const char *weft__report_type(const weft_graph *graph, weft_value value,
                              char text[REPORT_TYPE_BYTES])
{
    const int n =
        snprintf(text, REPORT_TYPE_BYTES, "%s ", weft_dtype_name(weft_dtype_of(graph, value)));
    weft_shape_text(weft_shape_of(graph, value), text + n, REPORT_TYPE_BYTES - (size_t)n);
    return text;
}
