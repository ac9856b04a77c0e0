/* The arguments of `weft serve`, and what it does. */
#ifndef WEFT_TOOLS_SERVE_H
#define WEFT_TOOLS_SERVE_H

#include "tool.h"

typedef struct serve_args {
    const char *folder, *checkpoint, *host, *key, *key_file, *name, *template_file;
    long port, slots, context, queue, max_tokens;
    size_t body, prefixes; /* bytes */
    double timeout, grace; /* seconds */
    unsigned cache;        /* 0 f32, 1 bf16, 2 u8 */
    int threads;
    bool check; /* end at once */
} serve_args;

/* Serves until a signal asks to stop. False after an error. */
bool serve_run(const serve_args *args, weft_error *error);

#endif
