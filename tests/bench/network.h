/* A network of hosts in user space: see network.c. */
#ifndef WEFT_BENCH_NETWORK_H
#define WEFT_BENCH_NETWORK_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#define NETWORK_MAX_HOSTS 64
#define NETWORK_ADDRESS   "10.77.0." /* and the number of the host, from 1 */

typedef struct network_packet network_packet;

/* One direction of a host's link. */
typedef struct network_line {
    network_packet *first, *last;
    int64_t free_ns; /* when the line has sent everything that it accepted */
} network_line;

typedef struct network {
    int n_hosts;
    int devices[NETWORK_MAX_HOSTS]; /* TUN devices, opened with IFF_VNET_HDR, not blocking */
    double ns_per_byte;             /* 0: no limit */
    int64_t latency_ns;             /* one way */
    network_line up[NETWORK_MAX_HOSTS], down[NETWORK_MAX_HOSTS];
    network_packet *spare;
} network;

int64_t network_clock_ns(void);

/* Carries packets until `wake_fd` is readable (true) or the clock reaches until_ns (false). */
bool network_run(network *net, int wake_fd, int64_t until_ns);

void network_free(network *net);

#endif
