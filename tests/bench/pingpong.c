/* Latency and bandwidth between MPI processes: mpirun -n P pingpong [--json]
 *
 * Ranks 0 and 1 exchange messages of each size; one-way time is half a round trip. Then all ranks
 * exchange pieces, each a different one with each other rank (MPI_Alltoall); its time is that of
 * the slowest rank. Two numbers sum a network up: latency, the least one-way time of 8 bytes, and
 * bandwidth, the additional bytes of the largest message over the next smaller one, divided by the
 * additional time. --json prints one object, in seconds and bytes. Not a test: nothing here fails
 * because it is slow. */
#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES (16 << 20) /* of a message, and of all pieces that a rank sends */
#define MAX_PIECE (1 << 20)
#define MAX_SIZES 16
#define MIN_RUNS  5
#define MAX_RUNS  200
#define SECONDS   1.0 /* for a size */

typedef struct result {
    int bytes;
    double min_s, median_s;
} result;

typedef struct results {
    int n;
    result at[MAX_SIZES];
} results;

typedef struct bench {
    int rank, n_ranks;
    char *sent, *received;
} bench;

static void ping_pong(const bench *b, int bytes)
{
    if (b->rank == 0) {
        MPI_Send(b->sent, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(b->received, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (b->rank == 1) {
        MPI_Recv(b->received, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(b->sent, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
}

static void all_to_all(const bench *b, int bytes)
{
    MPI_Alltoall(b->sent, bytes, MPI_BYTE, b->received, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of the slowest rank, on every rank. */
static double time_once(const bench *b, void (*exchange)(const bench *, int), int bytes)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime();
    exchange(b, bytes);
    seconds = MPI_Wtime() - seconds;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* Runs until SECONDS are over; all ranks see the same times, so all stop after the same run. */
static void measure(const bench *b, void (*exchange)(const bench *, int), int bytes, results *out)
{
    double seconds[MAX_RUNS], sum = 0;
    int n = 0;
    time_once(b, exchange, bytes); /* connects, and fills the caches */
    while (n < MAX_RUNS && (n < MIN_RUNS || sum < SECONDS)) {
        seconds[n] = time_once(b, exchange, bytes);
        sum += seconds[n++];
    }
    qsort(seconds, (size_t)n, sizeof *seconds, compare);
    double share = exchange == ping_pong ? 0.5 : 1;
    out->at[out->n++] = (result){bytes, seconds[0] * share, seconds[n / 2] * share};
}

static void print_text(const bench *b, const results *messages, const results *pieces,
                       double bandwidth)
{
    printf("latency %.1f us, bandwidth %.3f Gbit/s\n\n", messages->at[0].min_s * 1e6,
           bandwidth * 8e-9);
    printf("message, bytes   least, us  median, us  Gbit/s\n");
    for (int i = 0; i < messages->n; i++) {
        const result *r = &messages->at[i];
        printf("%14d %11.1f %11.1f %7.3f\n", r->bytes, r->min_s * 1e6, r->median_s * 1e6,
               8e-9 * r->bytes / r->min_s);
    }
    printf("\nall-to-all of %d ranks; Gbit/s that each sends\n", b->n_ranks);
    printf("  piece, bytes   least, us  median, us  Gbit/s\n");
    for (int i = 0; i < pieces->n; i++) {
        const result *r = &pieces->at[i];
        printf("%14d %11.1f %11.1f %7.3f\n", r->bytes, r->min_s * 1e6, r->median_s * 1e6,
               8e-9 * r->bytes * (b->n_ranks - 1) / r->min_s);
    }
}

static void print_list(const char *name, const results *list)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < list->n; i++)
        printf("%s{\"bytes\": %d, \"min_s\": %.9f, \"median_s\": %.9f}", i ? ", " : "",
               list->at[i].bytes, list->at[i].min_s, list->at[i].median_s);
    printf("]");
}

static void print_json(const bench *b, const results *messages, const results *pieces,
                       double bandwidth)
{
    printf("{\"ranks\": %d, \"latency_s\": %.9f, \"bytes_per_s\": %.0f", b->n_ranks,
           messages->at[0].min_s, bandwidth);
    print_list("messages", messages);
    print_list("all_to_all", pieces);
    printf("}\n");
}

static void run(const bench *b, bool json)
{
    results messages = {0}, pieces = {0};
    measure(b, ping_pong, 8, &messages);
    for (int bytes = 1024; bytes <= MAX_BYTES; bytes *= 4) measure(b, ping_pong, bytes, &messages);
    for (int bytes = 1024; bytes <= MAX_PIECE && bytes <= MAX_BYTES / b->n_ranks; bytes *= 4)
        measure(b, all_to_all, bytes, &pieces);
    const result *last = &messages.at[messages.n - 1];
    double bandwidth = (last[0].bytes - last[-1].bytes) / (last[0].min_s - last[-1].min_s);
    if (b->rank == 0) (json ? print_json : print_text)(b, &messages, &pieces, bandwidth);
}

int main(int argc, char **argv)
{
    bench b;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.n_ranks);
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if ((argc > 1 && !json) || b.n_ranks < 2) {
        if (b.rank == 0) fprintf(stderr, "usage: mpirun -n P pingpong [--json], P at least 2\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    b.sent = calloc(1, MAX_BYTES);
    b.received = calloc(1, MAX_BYTES);
    if (!b.sent || !b.received) MPI_Abort(MPI_COMM_WORLD, 1);
    run(&b, json);
    free(b.sent);
    free(b.received);
    return MPI_Finalize();
}
