/* Pooling. Images have one channel, and three dimensions as in conv.h. */

typedef struct pool_shape {
    int images, source[3], result[3], kernel[3], stride[3], dilation[3], begin[3];
} pool_shape;

/* The place in the image of the largest element of the window that begins at `at`: of the first of equals or the first
 * NaN; -1 if the window has none. */
static int max_of_window(const pool_shape *s, const T *x, const int *at)
{
    int i, j, k, found = -1;
    for (i = 0; i < s->kernel[0]; i++)
        for (j = 0; j < s->kernel[1]; j++)
            for (k = 0; k < s->kernel[2]; k++) {
                const int in0 = at[0] + i * s->dilation[0], in1 = at[1] + j * s->dilation[1];
                const int in2 = at[2] + k * s->dilation[2];
                const int place = (in0 * s->source[1] + in1) * s->source[2] + in2;
                if (in0 < 0 || in0 >= s->source[0] || in1 < 0 || in1 >= s->source[1] || in2 < 0 ||
                    in2 >= s->source[2])
                    continue;
                if (found < 0 || !(x[place] <= x[found] || x[found] != x[found])) found = place;
            }
    return found;
}

/* `places` may be NULL. */
static void max_pool(const T *x, T *y, int32_t *places, const void *shape)
{
    const pool_shape *s = (const pool_shape *)(const void *)shape;
    int n, i, j, k, at[3], found;
    for (n = 0; n < s->images; n++, x += s->source[0] * s->source[1] * s->source[2])
        for (i = 0; i < s->result[0]; i++)
            for (j = 0; j < s->result[1]; j++)
                for (k = 0; k < s->result[2]; k++) {
                    at[0] = i * s->stride[0] - s->begin[0];
                    at[1] = j * s->stride[1] - s->begin[1];
                    at[2] = k * s->stride[2] - s->begin[2];
                    found = max_of_window(s, x, at);
                    *y++ = found < 0 ? (T)-INFINITY : x[found];
                    if (places) *places++ = found;
                }
}
