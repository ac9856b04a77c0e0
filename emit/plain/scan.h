/* Along lines of n elements, which are xs and ys apart. The lines lie where dimensions `size` have these
 * strides. */

/* Whether an element beats the best so far. A NaN beats all numbers. */
static int beats(T x, T best, int largest)
{
    return (largest ? x > best : x < best) || (x != x && best == best);
}

/* The index of the first largest, or smallest, element. */
static void arg_extreme(const T *x, int32_t *y, int lines, int n, int xs, int largest, int rank,
                        const int *size, const int *x_stride)
{
    int l, i;
    for (l = 0; l < lines; l++) {
        const T *line = x + offset_of(size, x_stride, rank, l);
        int best = 0;
        for (i = 1; i < n; i++)
            if (beats(line[i * xs], line[best * xs], largest)) best = i;
        y[l] = best;
    }
}

static void cumsum(const T *x, T *y, int lines, int n, int xs, int ys, int reverse, int rank,
                   const int *size, const int *x_stride, const int *y_stride)
{
    int l, i;
    for (l = 0; l < lines; l++) {
        const T *from = x + offset_of(size, x_stride, rank, l);
        T *to = y + offset_of(size, y_stride, rank, l);
        double total = 0;
        for (i = 0; i < n; i++) {
            const int at = reverse ? n - 1 - i : i;
            total += (double)from[at * xs];
            to[at * ys] = (T)total;
        }
    }
}

/* A heap of the best elements so far, in the outputs: the worst of them on top. */
typedef struct top_heap {
    T *value;
    int32_t *index;
    int step, largest;
} top_heap;

/* Whether element i of the heap comes before an element. A NaN is larger than all numbers; of equal
 * elements the first one comes first. */
static int comes_before(const top_heap *h, int i, T x, int32_t index)
{
    const T own = h->value[i * h->step];
    if (beats(own, x, h->largest) && (own == own || h->largest)) return 1;
    if (own == x || (own != own && x != x)) return h->index[i * h->step] < index;
    return own == own && x != x && !h->largest;
}

static void heap_put(top_heap *h, int at, T x, int32_t index)
{
    h->value[at * h->step] = x;
    h->index[at * h->step] = index;
}

/* Puts an element into the heap of n elements, whose root is empty. */
static void heap_sift(top_heap *h, int n, T x, int32_t index)
{
    const int s = h->step;
    int at = 0, child;
    while ((child = 2 * at + 1) < n) {
        if (child + 1 < n &&
            comes_before(h, child, h->value[(child + 1) * s], h->index[(child + 1) * s]))
            child++;
        if (comes_before(h, child, x, index)) break;
        heap_put(h, at, h->value[child * s], h->index[child * s]);
        at = child;
    }
    heap_put(h, at, x, index);
}

/* Puts an element at the end of the heap of n elements. */
static void heap_rise(top_heap *h, int n, T x, int32_t index)
{
    const int s = h->step;
    int at = n;
    while (at && comes_before(h, (at - 1) / 2, x, index)) {
        const int parent = (at - 1) / 2;
        heap_put(h, at, h->value[parent * s], h->index[parent * s]);
        at = parent;
    }
    heap_put(h, at, x, index);
}

/* The k largest, or smallest, elements of each line in their order, and their indices. */
static void top_k(const T *x, T *y, int32_t *indices, int lines, int n, int k, int xs, int ys,
                  int largest, int rank, const int *size, const int *x_stride, const int *y_stride)
{
    int l, i;
    for (l = 0; l < lines; l++) {
        const T *line = x + offset_of(size, x_stride, rank, l);
        const int to = offset_of(size, y_stride, rank, l);
        top_heap h;
        h.value = y + to;
        h.index = indices + to;
        h.step = ys;
        h.largest = largest;
        for (i = 0; i < n && k; i++) {
            if (i < k)
                heap_rise(&h, i, line[i * xs], i);
            else if (!comes_before(&h, 0, line[i * xs], i))
                heap_sift(&h, k, line[i * xs], i);
        }
        for (i = k - 1; i > 0; i--) {
            const T worst = h.value[0];
            const int32_t index = h.index[0];
            heap_sift(&h, i, h.value[i * ys], h.index[i * ys]);
            heap_put(&h, i, worst, index);
        }
    }
}

/* Of each element, dy times the product of the elements before it, times that of the elements after: by
 * blocks of 512, which begin with the product of all elements after them. */
static void prod_grad(const T *x, const T *dy, T *dx, int rows, int n)
{
    int r, first, i, b, part;
    for (r = 0; r < rows; r++, x += n, dx += n) {
        double before = (double)dy[r];
        for (first = 0; first < n; first += 512) {
            const int end = n - first < 512 ? n : first + 512;
            double after = 1;
            for (b = (n - 1) / 512 * 512; b > first; b -= 512)
                for (i = b; i < n && i < b + 512; i++) after *= (double)x[i];
            for (part = first; part < end; part += 32) {
                const int last = end - part < 32 ? end : part + 32;
                double later[32], product = after;
                for (i = end - 1; i >= part; i--) {
                    if (i < last) later[i - part] = product;
                    product *= (double)x[i];
                }
                for (i = part; i < last; i++) {
                    dx[i] = (T)(before * later[i - part]);
                    before *= (double)x[i];
                }
            }
        }
    }
}
