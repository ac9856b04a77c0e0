/* base/exchange.h - what communicators share: the pieces of an exchange, and ranks as text. Not
 * installed. */
#ifndef WEFT_BASE_EXCHANGE_H
#define WEFT_BASE_EXCHANGE_H

#include <weft/communicator.h>

#include <stdio.h>
#include <string.h>

/* The part of `send` or `receive` that goes to one rank or comes from it. */
typedef struct exchange_piece {
    size_t offset, bytes;
} exchange_piece;

static inline exchange_piece exchange_nth(const size_t *bytes, int n)
{
    exchange_piece p = {0, bytes[n]};
    for (int r = 0; r < n; r++) p.offset += bytes[r];
    return p;
}

/* What the rank `own` sends to the rank `to`, itself included. */
static inline exchange_piece exchange_sent(const weft_exchange *x, int own, int to)
{
    switch (x->kind) {
    case WEFT_ALL_TO_ALL:
        return exchange_nth(x->send_bytes, to);
    case WEFT_ALL_GATHER:
        return (exchange_piece){0, x->receive_bytes[own]};
    case WEFT_BROADCAST:
        return (exchange_piece){0, x->peer == own ? x->bytes : 0};
    case WEFT_SEND:
        return (exchange_piece){0, x->peer == to ? x->bytes : 0};
    case WEFT_RECEIVE:
        break;
    }
    return (exchange_piece){0, 0};
}

/* What it receives from the rank `from`. */
static inline exchange_piece exchange_received(const weft_exchange *x, int from)
{
    switch (x->kind) {
    case WEFT_ALL_TO_ALL:
    case WEFT_ALL_GATHER:
        return exchange_nth(x->receive_bytes, from);
    case WEFT_BROADCAST:
    case WEFT_RECEIVE:
        return (exchange_piece){0, x->peer == from ? x->bytes : 0};
    case WEFT_SEND:
        break;
    }
    return (exchange_piece){0, 0};
}

/* Whether every rank takes part. */
static inline bool exchange_is_collective(const weft_exchange *x)
{
    return x->kind != WEFT_SEND && x->kind != WEFT_RECEIVE;
}

/* The error that the other ranks return after a rank failed. */
static inline weft_status exchange_peer_failed(weft_error *error, int rank, const weft_error *own)
{
    return weft_error_set(error, WEFT_PEER, "another process", "rank %d: %s: %s", rank,
                          own ? own->where : "weft", own ? own->message : "failed");
}

/* Appends a rank to a list in words: "rank 2", then "ranks 2, 5". A list too long for `text` ends
 * with dots. */
static inline void exchange_add_rank(char *text, size_t size, int rank)
{
    size_t length = strlen(text);
    if (size - length < 32) {
        if (length && size - length > 6 && text[length - 1] != '.')
            memcpy(text + length, ", ...", 6);
    } else if (!length) {
        snprintf(text, size, "rank %d", rank);
    } else {
        if (text[4] == ' ') {
            memmove(text + 5, text + 4, length++ - 3);
            text[4] = 's';
        }
        snprintf(text + length, size - length, ", %d", rank);
    }
}

#endif
