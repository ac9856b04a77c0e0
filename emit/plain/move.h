/* Copies of elements, and sums at indices. */

/* Rows of n elements; those of y are `row` apart. */
static void copy_rows(const T *x, T *y, int rows, int n, int row)
{
    int r, i;
    for (r = 0; r < rows; r++)
        for (i = 0; i < n; i++) y[r * row + i] = x[r * n + i];
}

/* x [x_size] with `value` around it, in y [size]: x begins at `before`. */
static void pad_elements(const T *x, T *y, double value, int n, int rank, const int *size,
                         const int *x_size, const int *x_stride, const int *before)
{
    int i, d;
    for (i = 0; i < n; i++) {
        int rest = i, from = 0, inside = 1;
        for (d = rank - 1; d >= 0; d--) {
            const int at = rest % size[d] - before[d];
            inside = inside && at >= 0 && at < x_size[d];
            if (inside) from += at * x_stride[d];
            rest /= size[d];
        }
        y[i] = inside ? x[from] : (T)value;
    }
}

/* dx [rows, size, inner]: zeros, and dy [rows, count, inner] from `begin` on, `step` apart. */
static void slice_scatter(const T *dy, T *dx, int rows, int size, int inner, int begin, int step,
                          int count)
{
    int r, k, i;
    for (i = 0; i < rows * size * inner; i++) dx[i] = 0;
    for (r = 0; r < rows; r++)
        for (k = 0; k < count; k++)
            for (i = 0; i < inner; i++)
                dx[(r * size + begin + k * step) * inner + i] = dy[(r * count + k) * inner + i];
}

/* Rows of a table at n indices; zeros for one out of range, of which it returns 1. */
static int embedding(const T *table, const int32_t *index, T *y, int n, int rows, int features)
{
    int i, c, bad = 0;
    for (i = 0; i < n; i++) {
        const int inside = index[i] >= 0 && index[i] < rows;
        for (c = 0; c < features; c++)
            y[i * features + c] = inside ? table[index[i] * features + c] : 0;
        bad |= !inside;
    }
    return bad;
}

/* n sums of `terms` rows of a table, with weights. */
static int embedding_bag(const T *table, const int32_t *index, const T *weight, T *y, int n,
                         int terms, int rows, int features)
{
    int i, k, c, bad = 0;
    for (i = 0; i < n * features; i++) y[i] = 0;
    for (i = 0; i < n; i++)
        for (k = i * terms; k < (i + 1) * terms; k++) {
            const int inside = index[k] >= 0 && index[k] < rows;
            bad |= !inside;
            for (c = 0; inside && c < features; c++) {
                const T term = weight[k] * table[index[k] * features + c];
                y[i * features + c] = k == i * terms ? term : y[i * features + c] + term;
            }
        }
    return bad;
}

/* The gradient of the table. `lists` has room for rows + n integers: the first position of each index, then
 * the next one of each position; -1 ends a list. */
static int embedding_grad(const int32_t *index, const T *dy, T *dtable, double *lists, int n,
                          int rows, int features, double skipped)
{
    int32_t *head = (int32_t *)(void *)lists, *next = head + rows;
    int r, c, i, left, bad = 0;
    for (r = 0; r < rows; r++) head[r] = -1;
    for (i = n - 1; i >= 0; i--) {
        if ((double)index[i] == skipped) continue;
        if (index[i] < 0 || index[i] >= rows) {
            bad = 1;
            continue;
        }
        next[i] = head[index[i]];
        head[index[i]] = i;
    }
    for (r = 0; r < rows; r++)
        for (c = 0; c < features; c++) {
            T sum = 0;
            i = head[r];
            for (left = 32; i >= 0 && left; i = next[i], left--) sum += dy[i * features + c];
            while (i >= 0) {
                T block = 0;
                for (left = 32; i >= 0 && left; i = next[i], left--) block += dy[i * features + c];
                sum += block;
            }
            dtable[r * features + c] = sum;
        }
    return bad;
}

/* y [outer, count, inner] from x [outer, size, inner]. */
static int gather_elements(const T *x, const int32_t *index, T *y, int outer, int size, int count,
                           int inner)
{
    int o, k, i, bad = 0;
    for (o = 0; o < outer; o++)
        for (k = 0; k < count; k++)
            for (i = 0; i < inner; i++) {
                const int at = (o * count + k) * inner + i, from = index[at];
                const int inside = from >= 0 && from < size;
                y[at] = inside ? x[(o * size + from) * inner + i] : 0;
                bad |= !inside;
            }
    return bad;
}

static int is_outside(const int32_t *index, int n, int size)
{
    int i, bad = 0;
    for (i = 0; i < n; i++) bad |= index[i] < 0 || index[i] >= size;
    return bad;
}

/* y [outer, size, inner] = x, and then the updates [outer, count, inner] are added, in order: at most 32 one
 * by one. */
static int scatter_add(const T *x, const int32_t *index, const T *updates, T *y, int outer,
                       int size, int count, int inner)
{
    int o, k, i;
    for (i = 0; i < outer * size * inner; i++) y[i] = x[i];
    for (o = 0; o < outer; o++)
        for (k = 0; k < count; k++)
            for (i = 0; i < inner; i++) {
                const int at = (o * count + k) * inner + i, to = index[at];
                if (to >= 0 && to < size) y[(o * size + to) * inner + i] += updates[at];
            }
    return is_outside(index, outer * count * inner, size);
}

/* The same where there are more: for each element blocks of 32 terms. All indices are read for each
 * element, which takes no memory. */
static int scatter_add_blocks(const T *x, const int32_t *index, const T *updates, T *y, int outer,
                              int size, int count, int inner)
{
    int o, s, k, i;
    for (o = 0; o < outer; o++)
        for (s = 0; s < size; s++)
            for (i = 0; i < inner; i++) {
                T sum = x[(o * size + s) * inner + i], block = 0;
                int terms = 0;
                for (k = 0; k < count; k++) {
                    const int at = (o * count + k) * inner + i;
                    if (index[at] != s) continue;
                    block = terms ? block + updates[at] : updates[at];
                    if (++terms < 32) continue;
                    sum += block;
                    terms = 0;
                }
                y[(o * size + s) * inner + i] = terms ? sum + block : sum;
            }
    return is_outside(index, outer * count * inner, size);
}

static void one_hot(const int32_t *index, T *y, int n, int classes)
{
    int i, c;
    for (i = 0; i < n; i++)
        for (c = 0; c < classes; c++) y[i * classes + c] = index[i] == c;
}
