/* Connections and requests, for http.c and http_checks.c. */
#ifndef WEFT_TOOLS_HTTP_H
#define WEFT_TOOLS_HTTP_H

#include "server.h"

#include <microhttpd.h>

typedef struct route {
    const char *path, *method;
    int kind; /* a job_kind; -1: a page */
} route;

/* A connection. */
typedef struct client {
    http *h;
    int socket;
    double since; /* when it began to wait for a request; 0: it has one */
    char name[64];
    struct client *next, **at;
} client;

struct http {
    server *s;
    int socket; /* -1: the daemon has it */
    struct MHD_Daemon *daemon;
    bool local; /* only names of the loopback address are served */
    char url[128];
    pthread_mutex_t lock;
    client *clients;
};

/* A request. */
typedef struct request {
    client *client;
    const route *route;
    char *body, path[128];
    size_t bytes, room, dropped;
    answer_error error;
    bool whole;  /* the body has arrived */
    bool logged; /* refused, failed or aborted, with its line */
    job *job;
    char *events; /* of a stream: what is to be sent, from `sent` on */
    size_t sent;
    bool ended;
} request;

/* Checks what the headers of a request say: finds r->route, or sets r->error. */
void request_check(request *r, struct MHD_Connection *connection, const char *path,
                   const char *method);
/* Adds a piece of the body. What is refused is read and dropped, so that the client can read why;
 * false if that is too much. */
bool request_add_body(request *r, const char *data, size_t n);

#endif
