/* See http_socket.h. */
#include "http_socket.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static bool fail(weft_error *error, const char *where, const char *what, int why)
{
    weft_error_set(error, WEFT_IO, where, "cannot be %s: %s", what, strerror(why));
    return false;
}

/* Sets the url to the address that the socket got. */
static bool name_socket(int s, char url[128], const char *option, weft_error *error)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getsockname(s, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return fail(error, option, "named", errno);
    const bool six = address.ss_family == AF_INET6;
    snprintf(url, 128, "http://%s%.64s%s:%s/", six ? "[" : "", host, six ? "]" : "", port);
    return true;
}

bool socket_open(int *s, const char *host, long port, char url[128], const char *option,
                 weft_error *error)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *at = NULL;
    char number[24], where[128];
    const int yes = 1;
    if (!host) host = "127.0.0.1";
    snprintf(number, sizeof number, "%ld", port);
    snprintf(where, sizeof where, "%.64s port %s", host, number);
    if (getaddrinfo(host, number, &hints, &at) != 0) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, option,
                       "\"%s\" is not a numeric address, such as 0.0.0.0 or ::", host);
        return false;
    }
    *s = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool good = *s >= 0 && setsockopt(*s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                      bind(*s, at->ai_addr, at->ai_addrlen) == 0 && listen(*s, 128) == 0;
    const int why = errno;
    freeaddrinfo(at);
    return good ? name_socket(*s, url, option, error) : fail(error, where, "served", why);
}

void socket_name(const struct sockaddr *address, char *name, size_t bytes)
{
    const socklen_t size =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_storage) : sizeof(struct sockaddr);
    if (getnameinfo(address, size, name, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(name, bytes, "client");
}

bool socket_is_loopback(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i]);
        if (strncasecmp(host, names[i], length) != 0) continue;
        const char *port = host + length;
        if (!*port || (*port == ':' && !port[1 + strspn(port + 1, "0123456789")])) return true;
    }
    return false;
}
