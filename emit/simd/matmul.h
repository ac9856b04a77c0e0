/* Matrix products: simd_rows rows of A times two vectors of B at a time. Each element is the sum that plain C
 * computes, in its order. */

/* sum [simd_rows, simd_width] += A [rows, depth] B [depth, simd_width]: element (r, l) of A is a[r ai + at[l]],
 * rows of B are `bk` apart. Up to simd_rows rows. */
#if SIMD_ROWS == 8
static void simd_block(const T *a, int ai, const int *at, const T *b, int bk, int rows, int depth,
                       T *sum)
{
    const T *row0 = a, *row1 = rows > 1 ? a + ai : a;
    const T *row2 = rows > 2 ? row1 + ai : a, *row3 = rows > 3 ? row2 + ai : a;
    const T *row4 = rows > 4 ? row3 + ai : a, *row5 = rows > 5 ? row4 + ai : a;
    const T *row6 = rows > 6 ? row5 + ai : a, *row7 = rows > 7 ? row6 + ai : a;
    const simd_register zero = {0};
    simd_register *s = (simd_register *)(void *)sum;
    simd_register s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3];
    simd_register s4 = s[4], s5 = s[5], s6 = s[6], s7 = s[7];
    int l;
    for (l = 0; l < depth; l++, b += bk) {
        const simd_register y = simd_at(b);
        const int k = at[l];
        s0 = simd_register_fma(row0[k] - zero, y, s0);
        s1 = simd_register_fma(row1[k] - zero, y, s1);
        s2 = simd_register_fma(row2[k] - zero, y, s2);
        s3 = simd_register_fma(row3[k] - zero, y, s3);
        s4 = simd_register_fma(row4[k] - zero, y, s4);
        s5 = simd_register_fma(row5[k] - zero, y, s5);
        s6 = simd_register_fma(row6[k] - zero, y, s6);
        s7 = simd_register_fma(row7[k] - zero, y, s7);
    }
    s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3;
    s[4] = s4, s[5] = s5, s[6] = s6, s[7] = s7;
}
#else
static void simd_block(const T *a, int ai, const int *at, const T *b, int bk, int rows, int depth,
                       T *sum)
{
    const T *row0 = a, *row1 = rows > 1 ? a + ai : a;
    const T *row2 = rows > 2 ? row1 + ai : a, *row3 = rows > 3 ? row2 + ai : a;
    const simd_vector zero = {0};
    simd_vector *s = (simd_vector *)(void *)sum;
    simd_vector s00 = s[0], s01 = s[1], s10 = s[2], s11 = s[3];
    simd_vector s20 = s[4], s21 = s[5], s30 = s[6], s31 = s[7];
    int l;
    for (l = 0; l < depth; l++, b += bk) {
        const simd_vector *two = (const simd_vector *)(const void *)b;
        const simd_vector b0 = two[0], b1 = two[1];
        const int k = at[l];
        const simd_vector x0 = row0[k] - zero, x1 = row1[k] - zero;
        const simd_vector x2 = row2[k] - zero, x3 = row3[k] - zero;
        s00 = simd_fma(x0, b0, s00);
        s01 = simd_fma(x0, b1, s01);
        s10 = simd_fma(x1, b0, s10);
        s11 = simd_fma(x1, b1, s11);
        s20 = simd_fma(x2, b0, s20);
        s21 = simd_fma(x2, b1, s21);
        s30 = simd_fma(x3, b0, s30);
        s31 = simd_fma(x3, b1, s31);
    }
    s[0] = s00, s[1] = s01, s[2] = s10, s[3] = s11;
    s[4] = s20, s[5] = s21, s[6] = s30, s[7] = s31;
}
#endif

/* C [rows, n] = sum, or sum is added to it: up to simd_rows rows and simd_width columns. */
static inline void simd_store(const T *sum, T *c, int ci, int cj, int rows, int n, int adds)
{
    int r, j;
    for (r = 0; r < rows; r++)
        for (j = 0; j < n; j++) {
            const T x = sum[r * simd_width + j];
            c[r * ci + j * cj] = adds ? c[r * ci + j * cj] + x : x;
        }
}

/* y [depth, simd_width] = n columns of B times a factor, then zeros. */
static void simd_pack(const T *b, int bk, int bj, T factor, T *y, int depth, int n)
{
    int l, j;
    for (l = 0; l < depth; l++)
        for (j = 0; j < simd_width; j++)
            y[l * simd_width + j] = j < n ? b[l * bk + j * bj] * factor : 0;
}

/* See matmul_chain. Columns of C are `cj` apart, elements of B are multiplied by a factor first, and the
 * product is added to C if `adds` is set. Where C is much larger than what is read of B, it is written row by row. */
static void simd_chain(const T *a, int ai, int ak, const T *b, int bk, int bj, T factor, T *c,
                       int ci, int cj, int m, int n, int k, int adds)
{
    T panel[128 * simd_width];
    int at[128], from = 0, p, q, l;
    do {
        const int depth = k - from < 128 ? k - from : 128;
        const int by_rows = bj == 1 && factor == 1 && n >= 8 * simd_width && depth * n <= 4096;
        for (l = 0; l < depth; l++) at[l] = l * ak;
        for (p = 0; p < (by_rows ? m : n); p += by_rows ? simd_rows : simd_width)
            for (q = 0; q < (by_rows ? n : m); q += by_rows ? simd_width : simd_rows) {
                const int i = by_rows ? p : q, j = by_rows ? q : p;
                const int rows = m - i < simd_rows ? m - i : simd_rows;
                const int columns = n - j < simd_width ? n - j : simd_width;
                const int packs = bj != 1 || columns < simd_width || factor != 1;
                const T *first = b + from * bk + j * bj;
                T sum[simd_rows * simd_width] = {0};
                if (packs && (by_rows || i == 0))
                    simd_pack(first, bk, bj, factor, panel, depth, columns);
                simd_block(a + i * ai + from * ak, ai, at, packs ? panel : first,
                           packs ? simd_width : bk, rows, depth, sum);
                simd_store(sum, c + i * ci + j * cj, ci, cj, rows, columns, adds || from);
            }
        from += 128;
    } while (from < k);
}

/* A row of A times four registers of columns of B, from column j on, or as many as are left of n: two chains of up to 128
 * terms side by side. Registers overlap where columns are fewer. */
static void simd_two_chains(const T *a, int ak, const T *b, int bk, int j, T *c, int n, int k)
{
    const int last = n - simd_register_lanes, end = last - j;
    const int at0 = end > 0 ? j : last;
    const int at1 = end > simd_register_lanes ? j + simd_register_lanes : last;
    const int at2 = end > 2 * simd_register_lanes ? j + 2 * simd_register_lanes : last;
    const int at3 = end > 3 * simd_register_lanes ? j + 3 * simd_register_lanes : last;
    const simd_register zero = {0};
    simd_register y0 = {0}, y1 = {0}, y2 = {0}, y3 = {0};
    int from = 0, l;
    do {
        const int left = k - from, terms = left < 128 ? left : 128;
        const int more = left < 256 ? left - terms : 128; /* of the second chain */
        const T *x = a + from * ak, *row = b + from * bk;
        simd_register s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        simd_register t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
        for (l = 0; l < more; l++, x += ak, row += bk) {
            const simd_register first = x[0] - zero, second = x[128 * ak] - zero;
            const T *other = row + 128 * bk;
            s0 = simd_register_fma(first, simd_at(row + at0), s0);
            s1 = simd_register_fma(first, simd_at(row + at1), s1);
            s2 = simd_register_fma(first, simd_at(row + at2), s2);
            s3 = simd_register_fma(first, simd_at(row + at3), s3);
            t0 = simd_register_fma(second, simd_at(other + at0), t0);
            t1 = simd_register_fma(second, simd_at(other + at1), t1);
            t2 = simd_register_fma(second, simd_at(other + at2), t2);
            t3 = simd_register_fma(second, simd_at(other + at3), t3);
        }
        for (; l < terms; l++, x += ak, row += bk) {
            const simd_register first = x[0] - zero;
            s0 = simd_register_fma(first, simd_at(row + at0), s0);
            s1 = simd_register_fma(first, simd_at(row + at1), s1);
            s2 = simd_register_fma(first, simd_at(row + at2), s2);
            s3 = simd_register_fma(first, simd_at(row + at3), s3);
        }
        if (from) s0 += y0, s1 += y1, s2 += y2, s3 += y3;
        y0 = s0, y1 = s1, y2 = s2, y3 = s3;
        if (more) y0 += t0, y1 += t1, y2 += t2, y3 += t3;
        from += 256;
    } while (from < k);
    *(simd_register *)(void *)(c + at0) = y0;
    *(simd_register *)(void *)(c + at1) = y1;
    *(simd_register *)(void *)(c + at2) = y2;
    *(simd_register *)(void *)(c + at3) = y3;
}

/* A row of A times at least simd_register_lanes columns of B, which lie side by side: each chain of 8 vectors, then two
 * chains of up to 4 registers. */
static void simd_row_chain(const T *a, int ak, const T *b, int bk, T *c, int n, int k)
{
    const simd_vector zero = {0};
    int j, from, l;
    for (j = 0; j + 4 * simd_width <= n; j += 4 * simd_width) {
        simd_vector *y = (simd_vector *)(void *)(c + j);
        from = 0;
        do {
            simd_vector s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
            simd_vector s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0};
            for (l = from; l < k && l < from + 128; l++) {
                const simd_vector *row = (const simd_vector *)(const void *)(b + l * bk + j);
                const simd_vector x = a[l * ak] - zero;
                s0 = simd_fma(x, row[0], s0);
                s1 = simd_fma(x, row[1], s1);
                s2 = simd_fma(x, row[2], s2);
                s3 = simd_fma(x, row[3], s3);
                s4 = simd_fma(x, row[4], s4);
                s5 = simd_fma(x, row[5], s5);
                s6 = simd_fma(x, row[6], s6);
                s7 = simd_fma(x, row[7], s7);
            }
            if (from) {
                s0 += y[0], s1 += y[1], s2 += y[2], s3 += y[3];
                s4 += y[4], s5 += y[5], s6 += y[6], s7 += y[7];
            }
            y[0] = s0, y[1] = s1, y[2] = s2, y[3] = s3;
            y[4] = s4, y[5] = s5, y[6] = s6, y[7] = s7;
            from += 128;
        } while (from < k);
    }
    for (; j < n; j += 4 * simd_register_lanes) simd_two_chains(a, ak, b, bk, j, c, n, k);
}

static void matmul_chain(const T *a, int ai, int ak, const T *b, int bk, int bj, T *c, int ci,
                         int m, int n, int k)
{
    if (m == 1 && bj == 1 && n >= simd_register_lanes)
        simd_row_chain(a, ak, b, bk, c, n, k);
    else if (n < 4 && m > n) /* lanes are rows */
        simd_chain(b, bj, bk, a, ak, ai, 1, c, 1, ci, n, m, k, 0);
    else
        simd_chain(a, ai, ak, b, bk, bj, 1, c, ci, 1, m, n, k, 0);
}

/* Up to four dot products of a with rows of b, which are `bj` apart: as dot_product. */
static void simd_dots(const T *a, const T *b, int bj, T *c, int n, int k)
{
    const T *row0 = b, *row1 = n > 1 ? b + bj : b;
    const T *row2 = n > 2 ? row1 + bj : b, *row3 = n > 3 ? row2 + bj : b;
    const int whole = k / dot_lanes * dot_lanes;
    T total[4 * dot_lanes] = {0}, sum[4 * dot_lanes];
    int from, i, r, l, half;
    for (from = 0; from < whole; from += 768) {
        const int end = whole - from < 768 ? whole : from + 768;
        for (l = 0; l < dot_lanes; l += simd_width) {
            const simd_vector zero = {0};
            simd_vector s00 = zero, s01 = zero, s10 = zero, s11 = zero;
            simd_vector s20 = zero, s21 = zero, s30 = zero, s31 = zero;
            simd_vector *s = (simd_vector *)(void *)(sum + l);
            for (i = from + l; i < end; i += dot_lanes) {
                const simd_vector *x = (const simd_vector *)(const void *)(a + i);
                const simd_vector x0 = x[0], x1 = x[1];
                const simd_vector *b0 = (const simd_vector *)(const void *)(row0 + i);
                const simd_vector *b1 = (const simd_vector *)(const void *)(row1 + i);
                const simd_vector *b2 = (const simd_vector *)(const void *)(row2 + i);
                const simd_vector *b3 = (const simd_vector *)(const void *)(row3 + i);
                s00 = simd_fma(x0, b0[0], s00);
                s01 = simd_fma(x1, b0[1], s01);
                s10 = simd_fma(x0, b1[0], s10);
                s11 = simd_fma(x1, b1[1], s11);
                s20 = simd_fma(x0, b2[0], s20);
                s21 = simd_fma(x1, b2[1], s21);
                s30 = simd_fma(x0, b3[0], s30);
                s31 = simd_fma(x1, b3[1], s31);
            }
            s[0] = s00, s[1] = s01;
            s = (simd_vector *)(void *)(sum + l + dot_lanes);
            s[0] = s10, s[1] = s11;
            s = (simd_vector *)(void *)(sum + l + 2 * dot_lanes);
            s[0] = s20, s[1] = s21;
            s = (simd_vector *)(void *)(sum + l + 3 * dot_lanes);
            s[0] = s30, s[1] = s31;
        }
        for (i = 0; i < 4 * dot_lanes; i++) total[i] += sum[i];
    }
    for (r = 0; r < n; r++) {
        const T *row = b + r * bj;
        T *lane = total + r * dot_lanes, result;
        for (half = dot_lanes / 2; half; half /= 2)
            for (l = 0; l < half; l++) lane[l] += lane[l + half];
        result = lane[0];
        for (i = whole; i < k; i++) result = fma(a[i], row[i], result);
        c[r] = result;
    }
}

static void matmul_dots(const T *a, int ai, const T *b, int bj, T *c, int ci, int m, int n, int k)
{
    int i, j;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j += 4)
            simd_dots(a + i * ai, b + j * bj, bj, c + i * ci + j, n - j < 4 ? n - j : 4, k);
}
