/* What the ONNX import needs of resize.c besides weft_resize. */
#ifndef WEFT_OPS_RESIZE_H
#define WEFT_OPS_RESIZE_H

#include <weft/ops.h>

#include "base/private.h"

/* The bytes of the constants that weft_resize adds for these options; 0 after a failure, which the
 * graph records. */
WEFT_PRIVATE_API size_t weft__resize_constant_bytes(weft_graph *graph, weft_value x,
                                                    const weft_resize_options *options);

#endif
