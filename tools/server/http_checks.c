/* Checks of requests: key, path, method, Host and size. */
#include "http.h"
#include "http_socket.h"

#include <stdlib.h>
#include <string.h>

static const route routes[] = {
    {"/v1/completions", "POST", JOB_COMPLETION},
    {"/v1/chat/completions", "POST", JOB_CHAT},
    {"/v1/embeddings", "POST", JOB_EMBEDDING},
    {"/v1/models", "GET", -1},
    {"/health", "GET", -1},
    {"/metrics", "GET", -1},
};

/* Compares in a time that depends on the given text alone. */
static bool same_key(const char *given, const char *key)
{
    const size_t n = strlen(given), length = strlen(key);
    unsigned char differ = n != length;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned char)(given[i] ^ key[length ? i % length : 0]);
    return !differ;
}

static bool has_key(const server *s, struct MHD_Connection *connection)
{
    static const char bearer[] = "Bearer ";
    const char *given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    if (!s->key) return true;
    return given && !strncasecmp(given, bearer, sizeof bearer - 1) &&
           same_key(given + sizeof bearer - 1, s->key);
}

/* Finds the route of a request. False with r->error. */
static bool find_route(request *r, const char *path, const char *method)
{
    static const char models[] = "/v1/models/";
    const server *s = r->client->h->s;
    if (!strncmp(path, models, sizeof models - 1)) {
        if (!strcmp(path + sizeof models - 1, s->name))
            path = "/v1/models";
        else
            return answer_fail(&r->error, 404, "model", "unknown model; this server has %s",
                               s->name);
    }
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        r->route = &routes[i];
        if (strcmp(method, routes[i].method) != 0)
            return answer_fail(&r->error, 405, NULL, "expected %s", routes[i].method);
        if (routes[i].kind >= 0 && (routes[i].kind == JOB_EMBEDDING) != (s->embedder != NULL))
            return answer_fail(&r->error, 404, NULL, "the model %s",
                               s->embedder ? "makes embeddings only" : "makes no embeddings");
        return true;
    }
    char paths[256] = "";
    for (size_t i = 0, n = 0; i < sizeof routes / sizeof *routes && n < sizeof paths; i++)
        n += (size_t)snprintf(paths + n, sizeof paths - n, "%s%s", i ? ", " : "", routes[i].path);
    return answer_fail(&r->error, 404, NULL, "unknown path; expected one of %s", paths);
}

void request_check(request *r, struct MHD_Connection *connection, const char *path,
                   const char *method)
{
    const http *h = r->client->h;
    const server *s = h->s;
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (h->local && !s->key && !socket_is_loopback(host))
        answer_fail(&r->error, 403, NULL,
                    "only 127.0.0.1 and localhost are served (see --host and --api-key)");
    else if (!find_route(r, path, method))
        return;
    else if (strcmp(r->route->path, "/health") != 0 && !has_key(s, connection))
        answer_fail(&r->error, 401, NULL, "the API key is missing or wrong");
    else if (length && strtoull(length, NULL, 10) > s->a->body)
        answer_fail(&r->error, 413, NULL, "the body is over %zu bytes (see --max-body)",
                    s->a->body);
}

bool request_add_body(request *r, const char *data, size_t n)
{
    const size_t max = r->client->h->s->a->body;
    r->dropped += r->error.status ? n : 0;
    if (r->error.status) return r->dropped <= 4 * max;
    if (r->bytes + n > max) {
        answer_fail(&r->error, 413, NULL, "the body is over %zu bytes (see --max-body)", max);
        return true;
    }
    if (r->bytes + n > r->room) {
        const size_t room = 2 * (r->bytes + n);
        char *grown = realloc(r->body, room);
        if (!grown) {
            answer_fail(&r->error, 500, NULL, "out of memory");
            return true;
        }
        r->body = grown;
        r->room = room;
    }
    memcpy(r->body + r->bytes, data, n);
    r->bytes += n;
    return true;
}
