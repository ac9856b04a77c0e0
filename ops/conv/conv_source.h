/* How convolutions and pooling write themselves as C (weft_op.source). */
#ifndef WEFT_OPS_CONV_SOURCE_H
#define WEFT_OPS_CONV_SOURCE_H

#include <weft/source.h>

void weft__conv_source(weft_source *s);
/* Of conv_grad_input, conv_grad_weight and max_pool. */
void weft__conv_source_input(weft_source *s);
void weft__conv_source_weight(weft_source *s);
void weft__conv_source_max_pool(weft_source *s);
/* Of conv_rows and conv_rows_depthwise, whose functions have the ops' names. */
void weft__conv_source_rows(weft_source *s, const char *function);
void weft__conv_source_winograd(weft_source *s);

#endif
