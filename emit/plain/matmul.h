/* Matrix products: C[i, j] is the sum of A[i, k] B[k, j]. Rows of A are `ai` elements apart, its columns
 * `ak`; likewise for B, and for C, whose columns lie side by side. */

/* Chains of fused multiply-adds over each 128 steps of k, which are added in order. */
static void matmul_chain(const T *a, int ai, int ak, const T *b, int bk, int bj, T *c, int ci,
                         int m, int n, int k)
{
    int i, j, from, l;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            T total = 0;
            for (from = 0; from < k; from += 128) {
                T sum = 0;
                for (l = from; l < k && l < from + 128; l++)
                    sum = fma(a[i * ai + l * ak], b[l * bk + j * bj], sum);
                total = from ? total + sum : sum;
            }
            c[i * ci + j] = total;
        }
}

/* A matrix product whose operands have no gaps between rows. */
static void matmul_dense(const T *a, const T *b, T *c, int m, int n, int k)
{
    matmul_chain(a, k, 1, b, n, 1, c, n, m, n, k);
}

/* Lanes of a dot product. */
enum { dot_lanes = 64 / sizeof(T) };

/* A dot product, whose terms lie side by side: lanes over pieces of 768 terms. */
static T dot_product(const T *a, const T *b, int k)
{
    const int whole = k / dot_lanes * dot_lanes;
    T total[dot_lanes] = {0}, result;
    int from, i, c, half;
    for (from = 0; from < whole; from += 768) {
        T sum[dot_lanes] = {0};
        for (i = from; i < whole && i < from + 768; i++)
            sum[i % dot_lanes] = fma(a[i], b[i], sum[i % dot_lanes]);
        for (c = 0; c < dot_lanes; c++) total[c] += sum[c];
    }
    for (half = dot_lanes / 2; half; half /= 2)
        for (c = 0; c < half; c++) total[c] += total[c + half];
    result = total[0];
    for (i = whole; i < k; i++) result = fma(a[i], b[i], result);
    return result;
}

/* A product by dots: elements of rows of A and of columns of B lie side by side. */
static void matmul_dots(const T *a, int ai, const T *b, int bj, T *c, int ci, int m, int n, int k)
{
    int i, j;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) c[i * ci + j] = dot_product(a + i * ai, b + j * bj, k);
}

/* Products of a batch, whose sizes, and strides in A and B, are arrays of `rank`. C's are c_step
 * elements apart. */
static void matmul_batch(const T *a, int ai, int ak, const T *b, int bk, int bj, T *c, int c_step,
                         int m, int n, int k, int rank, const int *size, const int *a_stride,
                         const int *b_stride)
{
    int d, batches = 1, i;
    for (d = 0; d < rank; d++) batches *= size[d];
    for (i = 0; i < batches; i++)
        matmul_chain(a + offset_of(size, a_stride, rank, i), ai, ak,
                     b + offset_of(size, b_stride, rank, i), bk, bj, c + i * c_step, n, m, n, k);
}

/* The same by dots. */
static void matmul_batch_dots(const T *a, int ai, const T *b, int bj, T *c, int c_step, int m,
                              int n, int k, int rank, const int *size, const int *a_stride,
                              const int *b_stride)
{
    int d, batches = 1, i;
    for (d = 0; d < rank; d++) batches *= size[d];
    for (i = 0; i < batches; i++)
        matmul_dots(a + offset_of(size, a_stride, rank, i), ai,
                    b + offset_of(size, b_stride, rank, i), bj, c + i * c_step, n, m, n, k);
}

/* The columns of w [k, n] in panels of 32, with zeros beyond the last. */
static void panels(const T *w, int row, int column, T *y, int k, int n)
{
    int p, i, j;
    for (p = 0; p < n; p += 32)
        for (i = 0; i < k; i++)
            for (j = p; j < p + 32; j++) *y++ = j < n ? w[i * row + j * column] : 0;
}

/* A matrix [m, k] times one in panels, whose product has n columns. */
static void matmul_panels(const T *a, const T *b, T *c, int m, int n, int k)
{
    int j;
    for (j = 0; j < n; j += 32, b += 32 * k)
        matmul_chain(a, k, 1, b, 32, 1, c + j, n, m, n - j < 32 ? n - j : 32, k);
}
