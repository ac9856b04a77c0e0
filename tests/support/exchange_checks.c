/* What every communicator must do. All ranks compute every byte that any of them sends, so each
 * checks what it receives by itself. */
#include "exchange_checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 16
#define MAX_BYTES (1 << 16)

typedef struct check {
    weft_communicator *c;
    int failures;
} check;

static void expect(check *k, bool good, const char *what)
{
    if (good) return;
    k->failures++;
    fprintf(stderr, "rank %d of %d: %s\n", k->c->rank, k->c->size, what);
}

static void expect_ok(check *k, weft_status status, const weft_error *error, const char *what)
{
    expect(k, status == WEFT_OK, what);
    if (status != WEFT_OK) fprintf(stderr, "    %s: %s\n", error->where, error->message);
}

static void expect_error(check *k, weft_status wanted, const char *message, weft_status status,
                         const weft_error *error, const char *what)
{
    const bool good = status == wanted && error->status == wanted && error->where[0] &&
                      strstr(error->message, message);
    expect(k, good, what);
    if (!good)
        fprintf(stderr, "    not \"%s\" but %s: %s: %s\n", message, weft_status_text(status),
                error->where, error->message);
}

/* ---- One exchange with its data ---- */

typedef struct trial {
    weft_exchange x;
    size_t send_bytes[MAX_RANKS], receive_bytes[MAX_RANKS];
    int salt;
    unsigned char *send, *receive, *expected;
    size_t sent, received;
    void *request;
} trial;

/* Bytes that rank `from` sends to rank `to`; for about one pair in four none. */
static size_t piece_bytes(int from, int to, int salt, size_t scale)
{
    return (size_t)((from * 7 + to * 5 + salt * 3) % 4) * scale + (size_t)(from % 2 && scale > 1);
}

static void fill(unsigned char *data, size_t bytes, int from, int to, int salt)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 251 + (size_t)(from * 31 + to * 17 + salt * 5));
}

static void append(unsigned char *data, size_t *used, size_t bytes, int from, int to, int salt)
{
    fill(data + *used, bytes, from, to, salt);
    *used += bytes;
}

static trial *trial_new(check *k, weft_exchange_kind kind, size_t scale, int salt)
{
    trial *t = calloc(1, sizeof *t);
    /* The largest piece has 3 * scale + 1 bytes, or MAX_BYTES if it is a message. */
    const size_t bytes = (size_t)k->c->size * (3 * scale + 1) + MAX_BYTES;
    if (t) {
        t->send = calloc(1, bytes);
        t->receive = calloc(1, bytes);
        t->expected = calloc(1, bytes);
    }
    if (!t || !t->send || !t->receive || !t->expected) abort();
    t->salt = salt;
    t->x = (weft_exchange){.kind = kind,
                           .send = t->send,
                           .receive = t->receive,
                           .send_bytes = t->send_bytes,
                           .receive_bytes = t->receive_bytes};
    return t;
}

static void trial_start(check *k, trial *t)
{
    weft_error error = {0};
    expect_ok(k, weft_communicator_start(k->c, &t->x, &t->request, &error), &error, "start");
    /* The arrays of sizes are read at once. */
    memset(t->send_bytes, 255, sizeof t->send_bytes);
    memset(t->receive_bytes, 255, sizeof t->receive_bytes);
}

static void trial_free(trial *t)
{
    free(t->send);
    free(t->receive);
    free(t->expected);
    free(t);
}

static void trial_finish(check *k, trial *t, const char *what)
{
    weft_error error = {0};
    expect_ok(k, weft_communicator_wait(k->c, t->request, &error), &error, what);
    expect(k, !memcmp(t->receive, t->expected, t->received), what);
    trial_free(t);
}

static trial *start_all_to_all(check *k, size_t scale, int salt)
{
    trial *t = trial_new(k, WEFT_ALL_TO_ALL, scale, salt);
    const int own = k->c->rank;
    for (int r = 0; r < k->c->size; r++) {
        t->send_bytes[r] = piece_bytes(own, r, salt, scale);
        t->receive_bytes[r] = piece_bytes(r, own, salt, scale);
        append(t->send, &t->sent, t->send_bytes[r], own, r, salt);
        append(t->expected, &t->received, t->receive_bytes[r], r, own, salt);
    }
    trial_start(k, t);
    return t;
}

static trial *start_all_gather(check *k, size_t scale, int salt)
{
    trial *t = trial_new(k, WEFT_ALL_GATHER, scale, salt);
    for (int r = 0; r < k->c->size; r++) {
        t->receive_bytes[r] = piece_bytes(r, 0, salt, scale);
        append(t->expected, &t->received, t->receive_bytes[r], r, 0, salt);
    }
    append(t->send, &t->sent, t->receive_bytes[k->c->rank], k->c->rank, 0, salt);
    trial_start(k, t);
    return t;
}

static trial *start_broadcast(check *k, size_t scale, int root)
{
    trial *t = trial_new(k, WEFT_BROADCAST, scale, root);
    t->x.peer = root;
    t->x.bytes = piece_bytes(root, 0, root, scale);
    if (root == k->c->rank) append(t->send, &t->sent, t->x.bytes, root, 0, root);
    append(t->expected, &t->received, t->x.bytes, root, 0, root);
    trial_start(k, t);
    return t;
}

/* A message; the n-th of its tag. */
static trial *start_send(check *k, int to, int tag, int n, size_t bytes)
{
    trial *t = trial_new(k, WEFT_SEND, 0, tag + n);
    t->x.peer = to;
    t->x.tag = tag;
    t->x.bytes = bytes;
    append(t->send, &t->sent, bytes, k->c->rank, to, tag + n);
    trial_start(k, t);
    return t;
}

static trial *start_receive(check *k, int from, int tag, int n, size_t bytes)
{
    trial *t = trial_new(k, WEFT_RECEIVE, 0, tag + n);
    t->x.peer = from;
    t->x.tag = tag;
    t->x.bytes = bytes;
    append(t->expected, &t->received, bytes, from, k->c->rank, tag + n);
    trial_start(k, t);
    return t;
}

/* ---- Checks ---- */

static void check_collectives(check *k)
{
    static const size_t scales[] = {0, 1, 13, 5000, 400000};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        trial_finish(k, start_all_to_all(k, scales[i], (int)i), "all-to-all");
        trial_finish(k, start_all_gather(k, scales[i], (int)i), "all-gather");
        for (int root = 0; root < k->c->size; root++)
            trial_finish(k, start_broadcast(k, scales[i], root), "broadcast");
    }
}

/* Many exchanges at once, finished in a different order. */
static void check_in_flight(check *k)
{
    enum { ROUNDS = 8 };
    trial *all[3 * ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        all[3 * i] = start_all_to_all(k, 100, i);
        all[3 * i + 1] = start_broadcast(k, 20000, i % k->c->size);
        all[3 * i + 2] = start_all_gather(k, 3000, i);
    }
    for (int i = 0; i < 3 * ROUNDS; i++) {
        /* 7 has no factor in common with the number of exchanges. */
        const int at = (i * 7 + 5 * k->c->rank) % (3 * ROUNDS);
        if (k->c->progress) k->c->progress(k->c->context);
        trial_finish(k, all[at], "in flight");
    }
}

/* Each rank sends to every other one, with three tags and two messages of each; the receives begin
 * after the sends, or before them if `early`, in another order of tags. */
static void check_messages(check *k, bool early)
{
    enum { TAGS = 3, EACH = 2 };
    static const size_t bytes[TAGS][EACH] = {{1, 1}, {70, MAX_BYTES}, {0, 3000}};
    static const int tags[TAGS] = {0, 7, 32767};
    trial *sends[MAX_RANKS][TAGS][EACH], *receives[MAX_RANKS][TAGS][EACH];
    for (int phase = 0; phase < 2; phase++)
        for (int r = 0; r < k->c->size; r++)
            for (int i = 0; i < TAGS && r != k->c->rank; i++)
                for (int n = 0; n < EACH; n++) {
                    const int j = TAGS - 1 - i;
                    if ((phase == 0) == early)
                        receives[r][j][n] = start_receive(k, r, tags[j], n, bytes[j][n]);
                    else
                        sends[r][i][n] = start_send(k, r, tags[i], n, bytes[i][n]);
                }
    for (int r = 0; r < k->c->size; r++)
        for (int i = 0; i < TAGS && r != k->c->rank; i++)
            for (int n = 0; n < EACH; n++) {
                trial_finish(k, receives[r][i][n], "receive");
                trial_finish(k, sends[r][i][n], "send");
            }
}

static void check_gather_all(check *k)
{
    int all[MAX_RANKS], own = 1000 + k->c->rank;
    weft_error error = {0};
    expect_ok(k, weft_communicator_gather(k->c, &own, sizeof own, all, &error), &error,
              "weft_communicator_gather");
    for (int r = 0; r < k->c->size; r++) expect(k, all[r] == 1000 + r, "weft_communicator_gather");
}

/* Errors on no rank, on each one alone, of which the others may know already, and on all. */
static void check_agree(check *k)
{
    for (int bad = -1; bad <= k->c->size; bad++) {
        weft_error own = {0}, error = {0};
        const bool mine = bad == k->c->rank || bad == k->c->size;
        if (mine) weft_error_set(&own, WEFT_BAD_FILE, "file", "of rank %d", k->c->rank);
        if (!mine && bad % 2 == 1) weft_error_set(&own, WEFT_PEER, "another process", "known");
        const weft_status status = weft_communicator_agree(k->c, &own, &error);
        char text[64];
        const int lowest = bad == k->c->size ? 0 : bad;
        snprintf(text, sizeof text, "rank %d: file: of rank %d", lowest, lowest);
        if (bad < 0)
            expect_ok(k, status, &error, "weft_communicator_agree without errors");
        else if (lowest == k->c->rank)
            expect_error(k, WEFT_BAD_FILE, "of rank", status, &error,
                         "weft_communicator_agree, own error");
        else
            expect_error(k, WEFT_PEER, text, status == WEFT_BAD_FILE ? WEFT_PEER : status, &error,
                         "weft_communicator_agree, error of another rank");
    }
}

static void check_everything(check *k, int depth);

/* Parts of even and odd ranks, one part with all ranks, and parts of one rank. */
static void check_split(check *k, int depth)
{
    for (int way = 0; way < 3; way++) {
        const int parts = way == 0 ? 2 : way == 1 ? 1 : k->c->size;
        const int part = k->c->rank % parts;
        weft_error error = {0};
        weft_communicator *c = NULL;
        expect_ok(k, k->c->split(k->c->context, part - 1, &c, &error), &error, "split");
        if (!c) return;
        check inner = {.c = c};
        expect(k, c->rank == k->c->rank / parts, "rank in a part");
        expect(k, c->size == (k->c->size - part + parts - 1) / parts, "size of a part");
        /* Exchanges of both are in flight at once. */
        trial *outside = start_all_to_all(k, 700, 1), *inside = start_all_to_all(&inner, 500, 2);
        check_everything(&inner, way == 0 ? depth - 1 : 0);
        trial_finish(&inner, inside, "in a part");
        trial_finish(k, outside, "outside of a part");
        k->failures += inner.failures;
        weft_communicator_free(c);
    }
}

static void check_everything(check *k, int depth)
{
    check_collectives(k);
    check_in_flight(k);
    check_messages(k, false);
    check_messages(k, true);
    check_gather_all(k);
    check_agree(k);
    if (depth > 0) check_split(k, depth);
}

int exchange_checks(weft_communicator *communicator)
{
    check k = {.c = communicator};
    expect(&k, communicator->size <= MAX_RANKS, "too many ranks for these checks");
    if (k.failures) return k.failures;
    check_everything(&k, 2);
    /* Every rank has done its checks. */
    check_gather_all(&k);
    return k.failures;
}

int exchange_checks_of_failure(weft_communicator *communicator)
{
    check k = {.c = communicator};
    const int last = communicator->size - 1;
    weft_error error = {0};
    if (communicator->rank == last) {
        weft_error_set(&error, WEFT_BAD_FILE, "file", "cannot be read");
        communicator->fail(communicator->context, &error);
        return 0;
    }
    char said[64];
    snprintf(said, sizeof said, "rank %d: file: cannot be read", last);
    trial *open = start_all_gather(&k, 10, 3);
    expect_error(&k, WEFT_PEER, said, weft_communicator_wait(communicator, open->request, &error),
                 &error, "an exchange with a rank that failed");
    trial_free(open);
    int own = 0, all[MAX_RANKS];
    error = WEFT_NO_ERROR;
    expect_error(&k, WEFT_PEER, said,
                 weft_communicator_gather(communicator, &own, sizeof own, all, &error), &error,
                 "an exchange after a rank failed");
    return k.failures;
}

int exchange_checks_of_silence(weft_communicator *communicator)
{
    check k = {.c = communicator};
    const int last = communicator->size - 1;
    const bool silent = communicator->rank == last;
    char said[64];
    weft_error error = {0};
    snprintf(said, sizeof said, "no answer from rank %d for 1 s", last);
    weft_communicator *others = NULL;
    expect_ok(&k, communicator->split(communicator->context, silent, &others, &error), &error,
              "split");
    if (!others) return k.failures;
    if (silent) {
        /* It waits for a message that nobody sends, until the others have given up. */
        char byte;
        const weft_exchange x = {.kind = WEFT_RECEIVE, .receive = &byte, .bytes = 1};
        expect_error(&k, WEFT_PEER, said, weft_communicator_run(communicator, &x, &error), &error,
                     "the rank that did not answer");
    } else {
        trial *open = start_all_gather(&k, 10, 3);
        /* The time begins when all others have started, so that none of them is late as well. */
        check inner = {.c = others};
        check_gather_all(&inner);
        k.failures += inner.failures;
        communicator->seconds = 1;
        expect_error(&k, WEFT_PEER, said,
                     weft_communicator_wait(communicator, open->request, &error), &error,
                     "a rank that does not answer");
        trial_free(open);
    }
    weft_communicator_free(others);
    return k.failures;
}
