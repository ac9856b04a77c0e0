/* The HTTP of `weft serve`, by libmicrohttpd, with a thread for each connection.
 *
 * A request is refused as early as possible: by its key and path when its headers are there, by its
 * size while its body arrives. http_tend ends connections that send no whole request in time. A
 * thread that waits for its job looks every 0.1 s whether its client is still there. A request that
 * is refused, fails or is aborted costs one line on standard error. */
#include "http.h"
#include "http_socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER_SECONDS    60  /* for a request to arrive */
#define SPARE_CONNECTIONS 64U /* beyond those whose answers may be in progress */

/* ---- The log and the counts ---- */

typedef enum outcome { ANSWERED, REFUSED, FAILED, ABORTED } outcome;

static void count(server *s, outcome what)
{
    pthread_mutex_lock(&s->lock);
    uint64_t *const counts[] = {&s->counts.answered, &s->counts.refused, &s->counts.failed,
                                &s->counts.aborted};
    ++*counts[what];
    pthread_mutex_unlock(&s->lock);
}

/* One line for a request without a whole answer. */
static void log_request(request *r, unsigned status, const char *why)
{
    if (r->logged) return;
    r->logged = true;
    count(r->client->h->s, status == 499 ? ABORTED : status >= 500 ? FAILED : REFUSED);
    tool_print_line(stderr, "weft: %s %s: %u %s", r->client->name, r->path, status, why);
}

/* ---- Answers ---- */

static enum MHD_Result queue(struct MHD_Connection *connection, unsigned status, const char *type,
                             struct MHD_Response *response)
{
    static const char *const headers[][2] = {{"Cache-Control", "no-store"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Referrer-Policy", "no-referrer"}};
    if (!response) return MHD_NO;
    bool good = MHD_add_response_header(response, "Content-Type", type) == MHD_YES;
    for (size_t i = 0; good && i < sizeof headers / sizeof *headers; i++)
        good = MHD_add_response_header(response, headers[i][0], headers[i][1]) == MHD_YES;
    if (good && status == 401)
        good = MHD_add_response_header(response, "WWW-Authenticate", "Bearer") == MHD_YES;
    if (good && status == 405)
        good = MHD_add_response_header(response, "Allow", "GET, POST") == MHD_YES;
    if (good && (status == 429 || status == 503))
        good = MHD_add_response_header(response, "Retry-After", "1") == MHD_YES;
    const enum MHD_Result result = good ? MHD_queue_response(connection, status, response) : MHD_NO;
    MHD_destroy_response(response);
    return result;
}

/* Sends a text of cJSON's allocator, which is freed; NULL: memory is out. */
static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status,
                                 const char *type, char *text)
{
    if (!text) return MHD_NO;
    return queue(connection, status, type,
                 MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result send_json(struct MHD_Connection *connection, unsigned status, char *text)
{
    return send_text(connection, status, "application/json", text);
}

static enum MHD_Result send_error(request *r, struct MHD_Connection *connection,
                                  const answer_error *e)
{
    log_request(r, e->status, e->message);
    return send_json(connection, e->status, answer_error_json(e));
}

/* ---- Jobs ---- */

/* Whether the client has closed the connection. */
static bool is_gone(const request *r)
{
    struct pollfd p = {.fd = r->client->socket, .events = POLLIN | POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

/* Waits until a job is over or its client gone; false: gone. */
static bool wait_for(const request *r)
{
    server *s = r->client->h->s;
    job *j = r->job;
    bool gone = false;
    pthread_mutex_lock(&s->lock);
    while (!j->released && !gone) {
        engine_wait(s, j);
        gone = is_gone(r);
    }
    pthread_mutex_unlock(&s->lock);
    return !gone;
}

/* The next bytes of a stream. Waits for some. */
static ssize_t read_events(void *context, uint64_t at, char *buffer, size_t most)
{
    request *r = context;
    server *s = r->client->h->s;
    (void)at;
    while (!r->events || !r->events[r->sent]) {
        free(r->events);
        r->events = NULL;
        if (r->ended) {
            if (r->job->error.status)
                log_request(r, r->job->error.status, r->job->error.message);
            else if (!r->logged)
                count(s, ANSWERED);
            r->logged = true;
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        r->sent = 0;
        pthread_mutex_lock(&s->lock);
        r->events = answer_events(s, r->job, &r->ended);
        if (r->events && !*r->events) engine_wait(s, r->job);
        pthread_mutex_unlock(&s->lock);
        if (!r->events || (!*r->events && is_gone(r))) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = strlen(r->events + r->sent);
    if (n > most) n = most;
    memcpy(buffer, r->events + r->sent, n);
    r->sent += n;
    return (ssize_t)n;
}

static enum MHD_Result answer_job(request *r, struct MHD_Connection *connection)
{
    server *s = r->client->h->s;
    job *j = r->job = request_read(s, (job_kind)r->route->kind, r->body, r->bytes);
    const answer_error none = {.status = 500, .message = "out of memory"};
    if (!j) return send_error(r, connection, &none);
    if (!j->error.status) {
        /* From now on the client may be silent for as long as the answer takes. */
        MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                  (unsigned)s->a->timeout + HEADER_SECONDS);
        engine_submit(s, j);
    }
    if (j->error.status) {
        j->released = true; /* the engine never had it */
        return send_error(r, connection, &j->error);
    }
    if (j->stream)
        return queue(
            connection, MHD_HTTP_OK, "text/event-stream",
            MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_events, r, NULL));
    if (!wait_for(r)) return MHD_NO;
    if (j->error.status) return send_error(r, connection, &j->error);
    char *text = answer_json(s, j);
    if (!text) return send_error(r, connection, &none);
    count(s, ANSWERED);
    r->logged = true;
    return send_json(connection, MHD_HTTP_OK, text);
}

/* ---- Pages ---- */

static enum MHD_Result answer_page(request *r, struct MHD_Connection *connection)
{
    server *s = r->client->h->s;
    pthread_mutex_lock(&s->lock);
    const bool stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    count(s, ANSWERED);
    r->logged = true;
    if (!strcmp(r->route->path, "/metrics"))
        return send_text(connection, MHD_HTTP_OK, "text/plain; version=0.0.4", answer_metrics(s));
    if (!strcmp(r->route->path, "/health")) {
        const char *text = stopping ? "{\"status\":\"stopping\"}" : "{\"status\":\"ok\"}";
        return send_json(connection, stopping ? 503 : MHD_HTTP_OK, strdup(text));
    }
    const bool one = strlen(r->path) > strlen(r->route->path);
    return send_json(connection, MHD_HTTP_OK, answer_models(s, one ? s->name : NULL));
}

/* ---- Requests ---- */

/* When the client's request must be whole; false: it has one. */
static void set_waiting(client *c, bool waits)
{
    pthread_mutex_lock(&c->h->lock);
    c->since = waits ? tool_seconds() : 0;
    pthread_mutex_unlock(&c->h->lock);
}

static client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static enum MHD_Result take_request(void *context, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    const char *upload, size_t *upload_bytes, void **state)
{
    request *r = *state;
    (void)context;
    (void)version;
    if (!r) { /* first only the headers are there */
        client *c = client_of(connection);
        r = c ? calloc(1, sizeof *r) : NULL;
        if (!r) return MHD_NO;
        *state = r;
        r->client = c;
        snprintf(r->path, sizeof r->path, "%s", path);
        request_check(r, connection, path, method);
        /* What is certainly too large is not even read. */
        return r->error.status == 413 ? send_error(r, connection, &r->error) : MHD_YES;
    }
    if (*upload_bytes) {
        const bool goes_on = request_add_body(r, upload, *upload_bytes);
        *upload_bytes = 0;
        return goes_on ? MHD_YES : MHD_NO;
    }
    r->whole = true;
    set_waiting(r->client, false);
    if (r->error.status) return send_error(r, connection, &r->error);
    return r->route->kind >= 0 ? answer_job(r, connection) : answer_page(r, connection);
}

static void end_request(void *context, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode why)
{
    request *r = *state;
    (void)context;
    (void)connection;
    (void)why;
    if (!r) return;
    if (r->job) engine_cancel(r->client->h->s, r->job);
    if (!r->logged)
        log_request(r, r->error.status ? r->error.status : 499,
                    r->error.status ? r->error.message
                    : r->whole      ? "the client went away"
                                    : "the request did not arrive whole");
    job_free(r->job);
    free(r->events);
    free(r->body);
    set_waiting(r->client, true);
    free(r);
    *state = NULL;
}

/* ---- Connections ---- */

static void on_connection(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_ConnectionNotificationCode what)
{
    http *h = context;
    client *c = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *address =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        c = fd && address ? calloc(1, sizeof *c) : NULL;
        if (!c) return;
        *state = c;
        c->h = h;
        c->socket = fd->connect_fd;
        c->since = tool_seconds();
        socket_name(address->client_addr, c->name, sizeof c->name);
        pthread_mutex_lock(&h->lock);
        c->next = h->clients;
        c->at = &h->clients;
        if (c->next) c->next->at = &c->next;
        h->clients = c;
        pthread_mutex_unlock(&h->lock);
    } else if (c) {
        pthread_mutex_lock(&h->lock);
        *c->at = c->next;
        if (c->next) c->next->at = c->at;
        pthread_mutex_unlock(&h->lock);
        free(c);
        *state = NULL;
    }
}

void http_tend(http *h)
{
    const double now = tool_seconds();
    pthread_mutex_lock(&h->lock);
    for (client *c = h->clients; c; c = c->next)
        if (c->since > 0 && now - c->since > HEADER_SECONDS) shutdown(c->socket, SHUT_RDWR);
    pthread_mutex_unlock(&h->lock);
}

bool http_busy(http *h)
{
    bool busy = false;
    pthread_mutex_lock(&h->lock);
    for (client *c = h->clients; c; c = c->next) busy |= c->since == 0;
    pthread_mutex_unlock(&h->lock);
    return busy;
}

http *http_open(server *s, weft_error *error)
{
    sigset_t all, before;
    http *h = calloc(1, sizeof *h);
    if (!h) {
        weft_error_set(error, WEFT_NO_MEMORY, "serve", "out of memory");
        return NULL;
    }
    h->s = s;
    h->local = !s->a->host;
    h->socket = -1;
    pthread_mutex_init(&h->lock, NULL);
    if (!socket_open(&h->socket, s->a->host, s->a->port, h->url, "--host", error)) {
        http_close(h);
        return NULL;
    }
    /* Signals stay with the main thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL,
        NULL, take_request, h, MHD_OPTION_LISTEN_SOCKET, h->socket, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(s->a->slots + s->a->queue) + SPARE_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)HEADER_SECONDS, MHD_OPTION_NOTIFY_COMPLETED, end_request, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (h->daemon) {
        h->socket = -1; /* the daemon closes it */
        return h;
    }
    weft_error_set(error, WEFT_NO_MEMORY, h->url, "the server cannot be started");
    http_close(h);
    return NULL;
}

const char *http_url(const http *h)
{
    return h->url;
}

void http_close(http *h)
{
    if (!h) return;
    if (h->daemon) MHD_stop_daemon(h->daemon);
    if (h->socket >= 0) close(h->socket);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
