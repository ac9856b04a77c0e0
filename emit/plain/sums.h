/* Sums in the orders of docs/arithmetic.md. Terms are `step` elements apart. */

/* Eight terms in pairs. */
static T sum_of_eight(const T *x, int step)
{
    const T a = x[0] + x[step], b = x[2 * step] + x[3 * step];
    const T c = x[4 * step] + x[5 * step], d = x[6 * step] + x[7 * step];
    return (a + b) + (c + d);
}

/* Lane i and lane i + 8, then i and i + 4, and so on. */
static T sum_of_lanes(T *lane)
{
    int half, c;
    for (half = 8; half; half /= 2)
        for (c = 0; c < half; c++) lane[c] += lane[c + half];
    return lane[0];
}

/* Eight lanes in pairs. */
static double sum_of_eight_lanes(const double *lane)
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* The sum of a row: eight of each of 16 lanes in T, those sums in double; the last terms, fewer than
 * 128, in 16 lanes of T. */
static double row_sum(const T *x, int n, int step)
{
    const int whole = n / 128 * 128;
    double lane[16] = {0}, total = 0;
    T rest[16] = {0};
    int i, c;
    for (i = 0; i < whole; i += 128)
        for (c = 0; c < 16; c++) lane[c] += (double)sum_of_eight(x + (i + c) * step, 16 * step);
    if (whole) {
        total += sum_of_eight_lanes(lane);
        total += sum_of_eight_lanes(lane + 8);
    }
    for (i = whole; i < n; i++) rest[i % 16] += x[i * step];
    return total + (double)sum_of_lanes(rest);
}

/* The sum of a column: eight at a time in T, then one by one. With ints as indices gcc warns of overflow at
 * some steps. */
static double column_sum(const T *x, int n, int step)
{
    double total = 0;
    int i = 0;
    for (; i + 8 <= n; i += 8) total += (double)sum_of_eight(x + (ptrdiff_t)i * step, step);
    for (; i < n; i++) total += (double)x[(ptrdiff_t)i * step];
    return total;
}

/* The sum of ranges of 512 terms, each in 16 lanes of T. */
static double range_sum(const T *x, int n)
{
    double total = 0;
    int from, i;
    for (from = 0; from < n; from += 512) {
        T lane[16] = {0};
        for (i = from; i < n && i < from + 512; i++) lane[i % 16] += x[i];
        total += (double)sum_of_lanes(lane);
    }
    return total;
}

/* The sum of blocks of 32 rows of a column, each added up in T. */
static double blocked_sum(const T *x, int n, int step)
{
    double total = 0;
    int from, i;
    for (from = 0; from < n; from += 32) {
        T some = 0;
        for (i = from; i < n && i < from + 32; i++) some += x[i * step];
        total += (double)some;
    }
    return total;
}
