/* The socket that a server listens on. */
#ifndef WEFT_TOOLS_HTTP_SOCKET_H
#define WEFT_TOOLS_HTTP_SOCKET_H

#include <weft/graph.h>

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* Listens at a numeric address (NULL: 127.0.0.1) and a port (0: any free one). `url` becomes that
 * of the socket. Messages call the address `option`. */
bool socket_open(int *socket, const char *host, long port, char url[128], const char *option,
                 weft_error *error);
/* The numeric address of a client. */
void socket_name(const struct sockaddr *address, char *name, size_t bytes);
/* Whether the Host of a request, with or without a port, is a name of the loopback address. */
bool socket_is_loopback(const char *host);

#endif
