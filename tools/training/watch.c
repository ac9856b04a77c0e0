/* weft train --watch: serves the page of the running run, by libmicrohttpd.
 *
 * The server only reads: GET and HEAD of two names, no paths. Unless another address was asked for,
 * it listens on the loopback address and refuses requests whose Host is another name: a page from
 * elsewhere, whose name was made to resolve to 127.0.0.1, cannot read the run. A document is made
 * at most once a second, however many ask for it, by a thread of low priority. */
#include "watch.h"

#include "report/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_HAVE_MICROHTTPD
#include "http_socket.h"

#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

#define FIELD(field) TOOL_FIELD(watch_args, field)
static const tool_option options[] = {
    {"watch", "PORT", FIELD(port),
     "serve the page of the running run at http://127.0.0.1:PORT/ (default: any free port; the "
     "address is printed)",
     0, 65535, .optional = true, TOOL_ALSO(watch_args, wanted)},
    {"watch-address", "ADDR", FIELD(address),
     "serve it at this numeric address instead, such as 0.0.0.0, to anyone who can reach it; "
     "implies --watch",
     TOOL_ALSO(watch_args, wanted)},
    {0}};

const tool_command watch_options = {.options = options};

#ifdef WEFT_HAVE_MICROHTTPD

/* An answer that is made again if it is older than a second. */
typedef struct answer {
    char *text;
    size_t length;
    unsigned status;
    double made; /* seconds of the monotonic clock */
} answer;

struct watch {
    int socket; /* -1: the server has it */
    struct MHD_Daemon *server;
    bool local; /* only names of the loopback address are served */
    char *folder;
    answer page, data; /* only the server's thread uses them */
    bool polite;       /* its priority is lowered */
    char url[128];
};

watch *watch_open(const watch_args *args, weft_error *error)
{
    watch *w = calloc(1, sizeof *w);
    if (!w) {
        weft_error_set(error, WEFT_NO_MEMORY, "--watch", "out of memory");
        return NULL;
    }
    w->socket = -1;
    w->local = !args->address;
    if (socket_open(&w->socket, args->address, args->port, w->url, "--watch-address", error))
        return w;
    watch_close(w);
    return NULL;
}

/* ---- What is served ---- */

/* Replaces an answer by a text that it takes; NULL: out of memory. */
static void set_answer(answer *a, unsigned status, char *text, size_t length)
{
    free(a->text);
    *a = (answer){text, length, text ? status : MHD_HTTP_SERVICE_UNAVAILABLE, tool_seconds()};
    if (!text) a->length = 0;
}

static void set_error(answer *a, const weft_error *error)
{
    char text[sizeof error->where + sizeof error->message + 8];
    snprintf(text, sizeof text, "%s: %s\n", error->where, error->message);
    set_answer(a, MHD_HTTP_INTERNAL_SERVER_ERROR, strdup(text), strlen(text));
}

/* Makes the data of the run, or their page. */
static void make_answer(const watch *w, bool page, answer *a)
{
    weft_error error = WEFT_NO_ERROR;
    char *text = NULL;
    size_t length = 0;
    weft_report *report = weft_report_new(w->folder, NULL, &error);
    weft_status status = report ? report_add_run(report, w->folder, true, &error) : error.status;
    FILE *file = status == WEFT_OK ? open_memstream(&text, &length) : NULL;
    if (file)
        status = page ? weft_report_write_page(report, file, &error)
                      : weft_report_write_json(report, file, &error);
    const bool closed = file && fclose(file) == 0;
    if (status == WEFT_OK && !closed) status = WEFT_NO_MEMORY;
    weft_report_free(report);
    if (status == WEFT_OK || status == WEFT_NO_MEMORY)
        set_answer(a, MHD_HTTP_OK, status == WEFT_OK ? text : NULL, length);
    else
        set_error(a, &error);
    if (status != WEFT_OK) free(text);
}

static void make_data(const watch *w, answer *a)
{
    make_answer(w, false, a);
}

static void make_page(const watch *w, answer *a)
{
    make_answer(w, true, a);
}

static const struct {
    const char *path, *type;
    size_t offset; /* of the answer in a watch */
    void (*make)(const watch *w, answer *a);
} served[] = {
    {"/", "text/html; charset=utf-8", offsetof(watch, page), make_page},
    {"/data.json", "application/json", offsetof(watch, data), make_data},
};
#define N_SERVED (sizeof served / sizeof *served)

/* ---- Requests ---- */

/* Sends a copy of the text. `header` (may be NULL) is one more, with its value. */
static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status,
                                 const char *type, const char *text, size_t length,
                                 const char *header, const char *value)
{
    static const char *const headers[][2] = {{"Cache-Control", "no-store"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"},
                                             {"Content-Security-Policy", "frame-ancestors 'none'"},
                                             {"Referrer-Policy", "no-referrer"}};
    union {
        const char *from;
        void *to;
    } body = {text}; /* the library only reads it */
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, body.to, MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    bool good = MHD_add_response_header(response, "Content-Type", type) == MHD_YES;
    for (size_t i = 0; good && i < sizeof headers / sizeof *headers; i++)
        good = MHD_add_response_header(response, headers[i][0], headers[i][1]) == MHD_YES;
    if (good && header) good = MHD_add_response_header(response, header, value) == MHD_YES;
    const enum MHD_Result result = good ? MHD_queue_response(connection, status, response) : MHD_NO;
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status, const char *text,
                              const char *header, const char *value)
{
    return send_text(connection, status, "text/plain; charset=utf-8", text, strlen(text), header,
                     value);
}

static enum MHD_Result send_served(watch *w, struct MHD_Connection *connection, size_t i)
{
    answer *a = (answer *)(void *)((char *)w + served[i].offset);
    /* On Linux this is the priority of the calling thread alone. */
    if (!w->polite) setpriority(PRIO_PROCESS, 0, 10);
    w->polite = true;
    if (!a->text || tool_seconds() - a->made >= 1) served[i].make(w, a);
    if (!a->text)
        return refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory\n", NULL, NULL);
    if (a->status != MHD_HTTP_OK) return refuse(connection, a->status, a->text, NULL, NULL);
    return send_text(connection, MHD_HTTP_OK, served[i].type, a->text, a->length, NULL, NULL);
}

static enum MHD_Result take_request(void *context, struct MHD_Connection *connection,
                                    const char *path, const char *method, const char *version,
                                    const char *upload, size_t *upload_bytes, void **state)
{
    static char seen;
    watch *w = context;
    (void)version;
    (void)upload;
    if (!*state) { /* first only the headers are there */
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_bytes) { /* the bytes of a POST are dropped */
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (w->local &&
        !socket_is_loopback(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return refuse(connection, MHD_HTTP_FORBIDDEN,
                      "only 127.0.0.1 and localhost are served (see --watch-address)\n", NULL,
                      NULL);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n", "Allow",
                      "GET, HEAD");
    if (!strcmp(path, "/") && !weft_report_has_page())
        return refuse(connection, MHD_HTTP_FOUND,
                      "weft was built without the page: its data are at /data.json\n", "Location",
                      "/data.json");
    for (size_t i = 0; i < N_SERVED; i++)
        if (!strcmp(path, served[i].path)) return send_served(w, connection, i);
    return refuse(connection, MHD_HTTP_NOT_FOUND, "there are / and /data.json\n", NULL, NULL);
}

/* ---- The server ---- */

bool watch_begin(watch *w, const char *folder, weft_error *error)
{
    sigset_t all, before;
    w->folder = strdup(folder);
    /* Signals stay with the training's thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (w->folder)
        w->server =
            MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, take_request, w,
                             MHD_OPTION_LISTEN_SOCKET, w->socket, MHD_OPTION_CONNECTION_LIMIT, 16U,
                             MHD_OPTION_CONNECTION_TIMEOUT, 30U, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!w->server)
        weft_error_set(error, WEFT_NO_MEMORY, w->url, "the server cannot be started");
    else
        w->socket = -1; /* the server closes it */
    return w->server != NULL;
}

const char *watch_url(const watch *w)
{
    return w->url;
}

void watch_close(watch *w)
{
    if (!w) return;
    if (w->server) MHD_stop_daemon(w->server);
    if (w->socket >= 0) close(w->socket);
    free(w->folder);
    free(w->page.text);
    free(w->data.text);
    free(w);
}

#else

struct watch {
    char unused;
};

watch *watch_open(const watch_args *args, weft_error *error)
{
    (void)args;
    weft_error_set(error, WEFT_NOT_FOUND, "--watch",
                   "weft was built without libmicrohttpd (meson option watch)");
    return NULL;
}

bool watch_begin(watch *w, const char *folder, weft_error *error)
{
    (void)w;
    (void)folder;
    (void)error;
    return false;
}

const char *watch_url(const watch *w)
{
    (void)w;
    return "";
}

void watch_close(watch *w)
{
    (void)w;
}

#endif
