/* Updates: elements side by side. */

/* The instruction for square roots of a vector, each rounded once. Of a float it is that of the double,
 * rounded. */
#if defined(__AVX2__)
#define SIMD_SQRT                    1
#define simd_sqrt_instruction_f32(x) __builtin_ia32_sqrtps256(x)
#define simd_sqrt_instruction_f64(x) __builtin_ia32_sqrtpd256(x)
#elif defined(__SSE2__)
#define SIMD_SQRT                    1
#define simd_sqrt_instruction_f32(x) __builtin_ia32_sqrtps(x)
#define simd_sqrt_instruction_f64(x) __builtin_ia32_sqrtpd(x)
#else
#define SIMD_SQRT 0
#endif

static inline simd_vector simd_sqrt(simd_vector x)
{
#if SIMD_SQRT
    return simd_sqrt_instruction(x);
#else
    int l;
    for (l = 0; l < simd_lanes; l++) x[l] = (T)sqrt((double)x[l]);
    return x;
#endif
}

static void adam_elements(T *param, T *m, T *v, const T *grad, adam_factors f, int n)
{
    int i, l;
    for (i = 0; i < n; i += simd_lanes) {
        const int some = n - i < simd_lanes ? n - i : simd_lanes;
        simd_vector x = {0}, g = {0}, mean = {0}, square = {0};
        if (some == simd_lanes) {
            x = *(const simd_vector *)(const void *)(param + i);
            g = *(const simd_vector *)(const void *)(grad + i);
            mean = *(const simd_vector *)(const void *)(m + i);
            square = *(const simd_vector *)(const void *)(v + i);
        }
        for (l = 0; some < simd_lanes && l < some; l++) {
            x[l] = param[i + l], g[l] = grad[i + l];
            mean[l] = m[i + l], square[l] = v[i + l];
        }
        g = f.s * g + f.decay * x;
        mean = f.b1 * mean + f.a1 * g;
        square = f.b2 * square + f.a2 * g * g;
        x = f.shrink * x - f.rate * (mean * f.correct_m) / (simd_sqrt(square * f.correct_v) + f.e);
        if (some == simd_lanes) {
            *(simd_vector *)(void *)(param + i) = x;
            *(simd_vector *)(void *)(m + i) = mean;
            *(simd_vector *)(void *)(v + i) = square;
        }
        for (l = 0; some < simd_lanes && l < some; l++)
            param[i + l] = x[l], m[i + l] = mean[l], v[i + l] = square[l];
    }
}

static void square_sum(const T *x, int n, double *sum, int first)
{
    int from, i, c, half;
    if (first) *sum = 0;
    for (from = 0; from < n; from += 16384) {
        const int end = n - from < 16384 ? n : from + 16384;
        double lane[16] = {0};
        for (i = from; i + 16 <= end; i += 16)
            for (c = 0; c < 16; c++) lane[c] += (double)x[i + c] * (double)x[i + c];
        for (c = 0; i + c < end; c++) lane[c] += (double)x[i + c] * (double)x[i + c];
        for (half = 8; half; half /= 2)
            for (c = 0; c < half; c++) lane[c] += lane[c + half];
        *sum += lane[0];
    }
}
