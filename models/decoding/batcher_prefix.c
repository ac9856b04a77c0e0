/* The prefix cache of a batcher: keys and values of requests that have ended, as a list with the
 * most recently used first. They depend on their position and the tokens up to it alone, so a copy
 * has the bits that reading the tokens again would compute. A look-up compares the prompt with each
 * entry: O(entries prompt). */
#include "batcher.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

static size_t common(const int32_t *a, size_t n, const int32_t *b, size_t m)
{
    size_t i = 0;
    while (i < n && i < m && a[i] == b[i]) i++;
    return i;
}

/* Makes the entry *at the most recently used. */
static void touch(weft_batcher *b, batch_prefix **at)
{
    batch_prefix *p = *at;
    *at = p->next;
    p->next = b->prefixes;
    b->prefixes = p;
}

static void drop(weft_batcher *b, batch_prefix **at)
{
    batch_prefix *p = *at;
    *at = p->next;
    b->prefix_bytes -= p->bytes;
    b->n_prefixes--;
    free(p);
}

void weft__batch_reuse_prefix(weft_batcher *b, batch_request *r)
{
    const size_t most = r->prefix_len - 1;
    size_t best = 0, row = 0;
    batch_prefix **found = NULL;
    for (batch_prefix **p = &b->prefixes; *p; p = &(*p)->next) {
        const size_t n = common((*p)->tokens, (*p)->n, r->tokens, most);
        if (n <= best) continue;
        best = n;
        found = p;
    }
    for (size_t i = 1; i < b->live; i++) {
        const size_t n = common(b->rows[i]->tokens, b->rows[i]->read, r->tokens, most);
        if (n <= best) continue;
        best = n;
        row = i;
    }
    if (row) {
        weft__batch_copy_row(b, row, 0, best);
    } else if (found) {
        weft__batch_load_row(b, 0, best, (*found)->states, (*found)->n);
        touch(b, found);
    }
    r->read = best;
    b->reused_tokens += best;
}

/* Removes the least recently used entries until `bytes` more fit. */
static void make_room(weft_batcher *b, size_t bytes)
{
    while (b->prefixes && b->prefix_bytes + bytes > b->prefix_limit) {
        batch_prefix **last = &b->prefixes;
        while ((*last)->next) last = &(*last)->next;
        drop(b, last);
    }
}

void weft__batch_retain_prefix(weft_batcher *b, size_t row)
{
    const batch_request *r = b->rows[row];
    const size_t ids = (r->read * sizeof *r->tokens + 63) / 64 * 64;
    const size_t bytes = sizeof(batch_prefix) + ids + r->read * weft__batch_position_bytes(b);
    if (!r->read || bytes > b->prefix_limit) return;
    for (batch_prefix **p = &b->prefixes; *p;) {
        const size_t n = common((*p)->tokens, (*p)->n, r->tokens, r->read);
        if (n == r->read) {
            touch(b, p);
            return;
        }
        if (n == (*p)->n)
            drop(b, p); /* it is a beginning of the new entry */
        else
            p = &(*p)->next;
    }
    make_room(b, bytes);
    batch_prefix *p = malloc(bytes);
    if (!p) {
        weft__log(WEFT_LOG_WARNING, "batcher",
                  "no memory to retain the keys and values of %zu tokens", r->read);
        return;
    }
    p->tokens = (int32_t *)(void *)(p + 1);
    p->states = (char *)p->tokens + ids;
    p->n = r->read;
    p->bytes = bytes;
    memcpy(p->tokens, r->tokens, r->read * sizeof *r->tokens);
    weft__batch_save_row(b, row, r->read, p->states);
    p->next = b->prefixes;
    b->prefixes = p;
    b->prefix_bytes += bytes;
    b->n_prefixes++;
}

void weft__batch_free_prefixes(weft_batcher *b)
{
    while (b->prefixes) drop(b, &b->prefixes);
}
