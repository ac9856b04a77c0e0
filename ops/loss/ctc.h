/* What the files of ctc share. */
#ifndef WEFT_OPS_CTC_H
#define WEFT_OPS_CTC_H

#include <stdint.h>

typedef struct ctc_attr {
    int32_t blank;
} ctc_attr;

struct weft_expand;
/* ctc_grad by simpler ops (ctc_expand.c). */
void weft__expand_ctc_grad(struct weft_expand *e);

#endif
