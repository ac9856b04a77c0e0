/* Sums in the orders of docs/arithmetic.md. Terms are `step` elements apart. */

/* Eight terms in pairs. */
static T sum_of_eight(const T *x, int step)
{
    T pair[4]; /* a loop takes less code */
    int i;
    for (i = 0; i < 4; i++, x += 2 * step) pair[i] = x[0] + x[step];
    return (pair[0] + pair[1]) + (pair[2] + pair[3]);
}

/* Lane i and lane i + 8, then i and i + 4, and so on. */
static T sum_of_lanes(T *lane)
{
    int half, c;
    for (half = 8; half; half >>= 1)
        for (c = 0; c < half; c++) lane[c] += lane[c + half];
    return lane[0];
}

/* The first of eight lanes becomes their sum, in pairs. The others are written over. */
static void sum_of_eight_lanes(wide_float *lane)
{
    int half, i;
    for (half = 1; half < 8; half *= 2)
        for (i = 0; i < 8; i += 2 * half) wide_add_wide(&lane[i], &lane[i + half]);
}

/* The sum of a row: eight of each of 16 lanes in T, those sums in double; the last terms, fewer than
 * 128, in 16 lanes of T. */
static wide_float row_sum(const T *x, int n, int step)
{
    const int whole = n / 128 * 128;
    wide_float total = WIDE_ZERO;
    T rest[16] = {0};
    int i, c;
    if (whole) {
        wide_float lane[16] = {WIDE_ZERO};
        for (i = 0; i < whole; i += 128)
            for (c = 0; c < 16; c++)
                wide_add(&lane[c], sum_of_eight(x + (i + c) * step, 16 * step));
        sum_of_eight_lanes(lane);
        sum_of_eight_lanes(lane + 8);
        wide_add_wide(&lane[0], &lane[8]);
        total = lane[0];
    }
    for (i = whole; i < n; i++) rest[i % 16] += x[i * step];
    wide_add(&total, sum_of_lanes(rest));
    return total;
}

/* The sum of a column: eight at a time in T, then one by one. With ints as indices gcc warns of overflow at
 * some steps. */
static wide_float column_sum(const T *x, int n, int step)
{
    wide_float total = WIDE_ZERO;
    int i = 0;
    for (; i + 8 <= n; i += 8) wide_add(&total, sum_of_eight(x + (ptrdiff_t)i * step, step));
    for (; i < n; i++) wide_add(&total, x[(ptrdiff_t)i * step]);
    return total;
}

/* The sum of ranges of 512 terms, each in 16 lanes of T. */
static wide_float range_sum(const T *x, int n)
{
    wide_float total = WIDE_ZERO;
    int from, i;
    for (from = 0; from < n; from += 512) {
        T lane[16] = {0};
        for (i = from; i < n && i < from + 512; i++) lane[i % 16] += x[i];
        wide_add(&total, sum_of_lanes(lane));
    }
    return total;
}

/* The sum of blocks of 32 rows of a column, each added up in T. */
static wide_float blocked_sum(const T *x, int n, int step)
{
    wide_float total = WIDE_ZERO;
    int from, i;
    for (from = 0; from < n; from += 32) {
        T some = 0;
        for (i = from; i < n && i < from + 32; i++) some += x[i * step];
        wide_add(&total, some);
    }
    return total;
}
