/* A matrix in panels: what its products with rows read (panels.c). */
#ifndef WEFT_OPS_PANELS_H
#define WEFT_OPS_PANELS_H

#include <weft/op.h>

typedef struct panels_attr {
    int64_t columns; /* of the product */
} panels_attr;

extern const weft_op weft_op_panels, weft_op_matmul_panels;

/* a [m, k] w [k, n], with w in panels, as two nodes. */
weft_value weft__panels_matmul(weft_graph *graph, weft_value a, weft_value w);

#endif
