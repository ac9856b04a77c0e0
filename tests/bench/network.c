/* A network of hosts in user space: links of a given rate that meet in a switch, and a latency.
 *
 * Each host has a TUN device, whose other end this file reads and writes. A packet passes two
 * lines: the uplink of its sender and the downlink of its receiver. A line sends one packet after
 * the other at the given rate; waiting packets queue, and none is dropped. The switch cuts through:
 * the downlink starts with the first byte on the uplink, so an idle path costs bytes / rate once.
 * The packet arrives the one-way latency after its last byte.
 *
 * Linux hands over TCP data unsegmented, up to 64 KiB in one packet (IFF_VNET_HDR), and takes it
 * back the same way. The rate counts the bytes that the segments would have on an Ethernet. */
#include "network.h"

#include <errno.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_BYTES   (sizeof(struct virtio_net_hdr) + 65536)
#define MAX_READS   32 /* of one device, before packets that are due go out */
#define DESTINATION 16 /* offset of the destination in an IPv4 header */
#define HEADERS     52 /* bytes of IPv4 and TCP with timestamps, repeated in each segment */
#define FRAMING     38 /* bytes of an Ethernet frame around a packet: preamble to gap */
#define NEVER       INT64_MAX

struct network_packet {
    network_packet *next;
    int64_t due_ns; /* in an uplink: when its first byte is sent; in a downlink: when it arrives */
    int64_t wire_ns;
    size_t length;
    unsigned char data[MAX_BYTES]; /* struct virtio_net_hdr, IP packet */
};

int64_t network_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void append(network_line *line, network_packet *packet)
{
    packet->next = NULL;
    if (line->first)
        line->last->next = packet;
    else
        line->first = packet;
    line->last = packet;
}

static network_packet *take(network_line *line)
{
    network_packet *packet = line->first;
    line->first = packet->next;
    return packet;
}

static int64_t due_ns(const network_line *line)
{
    return line->first ? line->first->due_ns : NEVER;
}

static size_t bytes_on_wire(const network_packet *packet)
{
    struct virtio_net_hdr header;
    memcpy(&header, packet->data, sizeof header);
    size_t bytes = packet->length - sizeof header, segments = 1;
    if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE && header.gso_size > 0 && bytes > HEADERS)
        segments = (bytes - HEADERS + header.gso_size - 1) / header.gso_size;
    return bytes + (segments - 1) * HEADERS + segments * FRAMING;
}

/* The receiving host, or -1 if it is outside the network. */
static int receiver(const network *net, const network_packet *packet)
{
    const unsigned char *ip = packet->data + sizeof(struct virtio_net_hdr);
    if (packet->length < sizeof(struct virtio_net_hdr) + 20 || ip[0] >> 4 != 4) return -1;
    int host = ip[DESTINATION + 3] - 1;
    return host < net->n_hosts ? host : -1;
}

/* Reads a packet of a host into its uplink. False: there is none. */
static bool accept_packet(network *net, int host, int64_t now)
{
    network_packet *packet = net->spare ? net->spare : malloc(sizeof *packet);
    if (!packet) return false;
    if (net->spare) net->spare = packet->next;
    ssize_t length = read(net->devices[host], packet->data, sizeof packet->data);
    packet->length = length > 0 ? (size_t)length : 0;
    if (receiver(net, packet) >= 0) {
        network_line *up = &net->up[host];
        packet->wire_ns = (int64_t)((double)bytes_on_wire(packet) * net->ns_per_byte);
        packet->due_ns = later(now, up->free_ns);
        up->free_ns = packet->due_ns + packet->wire_ns;
        append(up, packet);
    } else {
        packet->next = net->spare;
        net->spare = packet;
    }
    return length > 0;
}

/* Moves the packets that started by now from uplinks to downlinks, in the order of their starts. */
static void switch_packets(network *net, int64_t now)
{
    for (;;) {
        int from = 0;
        for (int i = 1; i < net->n_hosts; i++)
            if (due_ns(&net->up[i]) < due_ns(&net->up[from])) from = i;
        if (due_ns(&net->up[from]) > now) return;
        network_packet *packet = take(&net->up[from]);
        network_line *down = &net->down[receiver(net, packet)];
        down->free_ns = later(packet->due_ns, down->free_ns) + packet->wire_ns;
        packet->due_ns = down->free_ns + net->latency_ns;
        append(down, packet);
    }
}

static void deliver(network *net, int host, int64_t now)
{
    while (due_ns(&net->down[host]) <= now) {
        network_packet *packet = take(&net->down[host]);
        /* A host without memory loses the packet, and TCP sends it again. */
        while (write(net->devices[host], packet->data, packet->length) < 0 && errno == EINTR) {
        }
        packet->next = net->spare;
        net->spare = packet;
    }
}

static int64_t next_due_ns(const network *net)
{
    int64_t next = NEVER;
    for (int i = 0; i < net->n_hosts; i++) {
        if (due_ns(&net->up[i]) < next) next = due_ns(&net->up[i]);
        if (due_ns(&net->down[i]) < next) next = due_ns(&net->down[i]);
    }
    return next;
}

bool network_run(network *net, int wake_fd, int64_t until_ns)
{
    struct pollfd fds[NETWORK_MAX_HOSTS + 1] = {{.fd = wake_fd, .events = POLLIN}};
    for (int i = 0; i < net->n_hosts; i++)
        fds[i + 1] = (struct pollfd){.fd = net->devices[i], .events = POLLIN};
    for (;;) {
        int64_t now = network_clock_ns(), next = next_due_ns(net);
        if (now >= until_ns) return false;
        int64_t wait = later((next < until_ns ? next : until_ns) - now, 0);
        struct timespec timeout = {wait / 1000000000, wait % 1000000000};
        if (ppoll(fds, (nfds_t)net->n_hosts + 1, &timeout, NULL) > 0 && fds[0].revents) return true;
        now = network_clock_ns();
        for (int i = 0; i < net->n_hosts; i++)
            for (int reads = 0; fds[i + 1].revents && reads < MAX_READS; reads++)
                if (!accept_packet(net, i, now)) break;
        switch_packets(net, now);
        for (int i = 0; i < net->n_hosts; i++) deliver(net, i, now);
    }
}

void network_free(network *net)
{
    for (int i = 0; i < net->n_hosts; i++) {
        while (net->up[i].first) free(take(&net->up[i]));
        while (net->down[i].first) free(take(&net->down[i]));
    }
    for (network_packet *next; net->spare; net->spare = next) {
        next = net->spare->next;
        free(net->spare);
    }
}
