/* What formulas of elementwise ops use (ops/elementwise). */

#define T_(x) ((T)(x))

/* 0 for x < 0. Compared with the largest number below 0, since compilers make 0 of -0 of the plain
 * form. */
#define RELU_f32(x) ((x) <= -1.40129846e-45f ? 0 : (x))
#define RELU_f64(x) ((x) <= -4.9406564584124654e-324 ? 0 : (x))

/* Copies, and numbers that are the same for all elements. */
static T copy_of(T x)
{
    return x;
}

static T where_of(uint8_t condition, T x, T y)
{
    return condition ? x : y;
}

static T masked_fill_of(T x, uint8_t mask, T value)
{
    return mask ? value : x;
}

static T full_of(T value)
{
    return value;
}

static float to_float(T x)
{
    return (float)x;
}

static double to_double(T x)
{
    return (double)x;
}

/* Rounds towards zero and saturates; NaN becomes 0. */
static int32_t to_int(T number)
{
    const double x = (double)number;
    if (x != x) return 0;
    if (x >= 2147483647.0) return 2147483647;
    return x <= -2147483648.0 ? -2147483647 - 1 : (int32_t)x;
}

static uint8_t to_bool(T x)
{
    return x != 0;
}

static float bits_to_float(T x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}

static int32_t bits_to_int(T x)
{
    int32_t y;
    memcpy(&y, &x, sizeof y);
    return y;
}

/* The sum of inputs of n elements: the first 32 one after the other, then sums of 32 more each. */
static void add_n(T *y, const T *const *x, int inputs, int n)
{
    int i, j, from;
    for (i = 0; i < n; i++) {
        T sum = x[0][i];
        for (j = 1; j < inputs && j < 32; j++) sum += x[j][i];
        for (from = 32; from < inputs; from += 32) {
            T block = x[from][i];
            for (j = from + 1; j < inputs && j < from + 32; j++) block += x[j][i];
            sum += block;
        }
        y[i] = sum;
    }
}

/* As memcpy, which takes more code than the loop where nothing else calls it. */
static void copy(T *y, const T *x, int n)
{
    int i;
    for (i = 0; i < n; i++) y[i] = x[i];
}

static void fill(T *y, T value, int n)
{
    int i;
    for (i = 0; i < n; i++) y[i] = value;
}

static void arange(T *y, double start, double step, int n)
{
    int i;
    for (i = 0; i < n; i++) y[i] = (T)(start + (double)i * step);
}

/* True on and below a diagonal. */
static void tril_mask(uint8_t *y, int start, int rows, int columns)
{
    int i, j;
    for (i = 0; i < rows; i++)
        for (j = 0; j < columns; j++) y[i * columns + j] = j <= i + start;
}
