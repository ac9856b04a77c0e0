/* Pooling: windows as in conv.h. */

/* The largest element of each window, the first of equals or the first NaN, and its place in the
 * channel. */
static void max_pool(const T *x, T *y, int32_t *places, const int *shape)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    int n, i, t, tap[3] = {0, 0, 0};
    for (n = 0; n < s->images; n++, x += s->source_size) {
        int at[3] = {0, 0, 0};
        for (i = 0; i < s->result_size; i++, conv_next(s->result, at)) {
            T best = (T)-INFINITY;
            int found = -1;
            for (t = 0; t < s->taps; t++, conv_next(s->kernel, tap)) {
                const int place = conv_place(s, at, tap);
                if (place < 0) continue;
                if (found >= 0 && !(x[place] > best) && (x[place] == x[place] || best != best))
                    continue;
                best = x[place];
                found = place;
            }
            *y++ = best;
            *places++ = found;
        }
    }
}
