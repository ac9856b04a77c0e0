/* States that grow by one position a run, of elements of any type: [rows, max_len] positions of
 * `each` bytes. */

/* 1 if a position is out of range: then nothing is written. `own`: each row has its position. */
static int cache_write(void *state, const void *value, const int32_t *position, int own, int rows,
                       int count, int max_len, int each)
{
    const size_t n = (size_t)count * (size_t)each;
    int i;
    for (i = 0; i < rows; i++)
        if (position[own ? i : 0] < 0 || position[own ? i : 0] > max_len - count) return 1;
    for (i = 0; i < rows; i++)
        memcpy((char *)state +
                   ((size_t)i * (size_t)max_len + (size_t)position[own ? i : 0]) * (size_t)each,
               (const char *)value + (size_t)i * n, n);
    return 0;
}

/* Whether the parents of row i lead back to it. */
static int cache_is_cyclic(const int32_t *parent, int n, int i)
{
    int at = i, step;
    for (step = 0; step < n && at < n; step++) {
        at = parent[at];
        if (at == i) return 1;
    }
    return 0;
}

/* The steps from row i to one on a cycle, or to one that stays. */
static int cache_depth(const int32_t *parent, int n, int i)
{
    int depth = 0;
    for (; i < n && !cache_is_cyclic(parent, n, i); depth++) i = parent[i];
    return depth;
}

/* Row i = old row parent[i], of the first `length` positions, without memory for old rows: a row that
 * is farther from a cycle comes earlier, and then the rows of a cycle move in turn. 1 if a number is
 * out of range: then nothing is written. */
static int cache_reorder(void *state, const int32_t *parent, const int32_t *length, int rows, int n,
                         int max_len, int each)
{
    const size_t row = (size_t)max_len * (size_t)each;
    char *data = (char *)state;
    size_t bytes, from;
    int i, depth, deepest = 0;
    if (!max_len) return 0; /* nothing is read */
    if (*length < 0 || *length > max_len) return 1;
    for (i = 0; i < n; i++)
        if (parent[i] < 0 || parent[i] >= rows) return 1;
    bytes = (size_t)*length * (size_t)each;
    for (i = 0; i < n; i++) {
        depth = cache_depth(parent, n, i);
        deepest = depth > deepest ? depth : deepest;
    }
    for (depth = deepest; depth > 0; depth--)
        for (i = 0; i < n; i++)
            if (cache_depth(parent, n, i) == depth)
                memcpy(data + (size_t)i * row, data + (size_t)parent[i] * row, bytes);
    for (i = 0; i < n; i++) {
        int at = parent[i];
        if (at == i || !cache_is_cyclic(parent, n, i)) continue;
        while (at > i) at = parent[at];
        if (at != i) continue; /* a cycle moves with its first row */
        for (from = 0; from < bytes; from += 256) {
            const size_t some = bytes - from < 256 ? bytes - from : 256;
            char first[256];
            memcpy(first, data + (size_t)i * row + from, some);
            for (at = i; parent[at] != i; at = parent[at])
                memcpy(data + (size_t)at * row + from, data + (size_t)parent[at] * row + from,
                       some);
            memcpy(data + (size_t)at * row + from, first, some);
        }
    }
    return 0;
}
