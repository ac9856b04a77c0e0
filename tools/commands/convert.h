/* What the files of weft convert share. */
#ifndef WEFT_TOOLS_CONVERT_H
#define WEFT_TOOLS_CONVERT_H

#include "tool.h"

typedef struct convert_args {
    const char *from, *out, *architecture, *base;
    bool list, f32, merge;
    unsigned to, type;
    long context;
} convert_args;

/* convert_adapters.c. They return the exit status. */

/* A run of adapters as a folder of PEFT. */
int convert_to_peft(const convert_args *a);
/* A folder of PEFT as a run of adapters for the run of --base. */
int convert_from_peft(const convert_args *a);
/* A run of adapters as a run of the whole model. */
int convert_merge(const convert_args *a);

#endif
