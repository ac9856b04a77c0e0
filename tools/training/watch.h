/* The page of a running training, served on this machine. */
#ifndef WEFT_TOOLS_WATCH_H
#define WEFT_TOOLS_WATCH_H

#include "tool.h"

typedef struct watch_args {
    bool wanted;
    long port;           /* 0: any that is free */
    const char *address; /* numeric; NULL: 127.0.0.1 */
} watch_args;
/* The options --watch and --watch-address of a watch_args. */
extern const tool_command watch_options;

/* A server of GET / (the page of `weft report RUN`) and GET /data.json (its data). It reads the
 * files of the run's folder, in a thread of its own, and shares nothing with the training. */
typedef struct watch watch;
/* Opens the socket: from here on the port is taken. NULL after an error. */
watch *watch_open(const watch_args *args, weft_error *error);
/* Begins to answer, with what is in `folder`, which is copied. False after an error. */
bool watch_begin(watch *w, const char *folder, weft_error *error);
/* "http://127.0.0.1:PORT/", in the server's memory. */
const char *watch_url(const watch *w);
/* Ends the thread and closes the socket; NULL is allowed. */
void watch_close(watch *w);

#endif
