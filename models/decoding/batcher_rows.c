/* Rows of the states of a batcher: keys and values [slots, max_len, ...]. The first positions of a
 * row are contiguous, so moving a request costs what it has read. */
#include "batcher.h"

#include <string.h>

typedef struct row_bytes {
    char *data;
    size_t row, position;
} row_bytes;

static row_bytes bytes_of(const weft_batcher *b, size_t state)
{
    weft_tensor t;
    if (!weft_params_find(b->d->store, b->d->states[state].name, &t))
        return (row_bytes){.data = NULL};
    size_t all = weft_dtype_bytes(t.dtype);
    for (int k = 1; k < t.shape.rank; k++) all *= (size_t)t.shape.dim[k];
    return (row_bytes){t.data, all, all / (size_t)t.shape.dim[1]};
}

size_t weft__batch_position_bytes(const weft_batcher *b)
{
    size_t bytes = 0;
    for (size_t k = 0; k < b->d->n_states; k++) bytes += bytes_of(b, k).position;
    return bytes;
}

void weft__batch_copy_row(weft_batcher *b, size_t from, size_t to, size_t n)
{
    for (size_t k = 0; k < b->d->n_states; k++) {
        const row_bytes s = bytes_of(b, k);
        if (s.data) memcpy(s.data + to * s.row, s.data + from * s.row, n * s.position);
    }
}

void weft__batch_clear_row(weft_batcher *b, size_t row, size_t n)
{
    for (size_t k = 0; k < b->d->n_states; k++) {
        const row_bytes s = bytes_of(b, k);
        if (s.data) memset(s.data + row * s.row, 0, n * s.position);
    }
}

void weft__batch_save_row(weft_batcher *b, size_t row, size_t n, char *to)
{
    for (size_t k = 0; k < b->d->n_states; k++) {
        const row_bytes s = bytes_of(b, k);
        if (!s.data) continue;
        memcpy(to, s.data + row * s.row, n * s.position);
        to += n * s.position;
    }
}

void weft__batch_load_row(weft_batcher *b, size_t row, size_t n, const char *from, size_t room)
{
    for (size_t k = 0; k < b->d->n_states; k++) {
        const row_bytes s = bytes_of(b, k);
        if (!s.data) continue;
        memcpy(s.data + row * s.row, from, n * s.position);
        from += room * s.position;
    }
}
