/* Random numbers: word w of a node in a run is word w % 4 of Philox4x32-10 (Salmon et al. 2011), with
 * the counter (w / 4, number of the run), under the key of the node and the seed. */

/* Four words from word w on, a multiple of 4. */
static void random_words(uint64_t key, uint64_t seed, uint64_t number, uint64_t w, uint32_t *words)
{
    const uint64_t stream = key ^ seed * UINT64_C(0xD1342543DE82EF95);
    uint32_t c0 = (uint32_t)(w / 4), c1 = (uint32_t)(w / 4 >> 32);
    uint32_t c2 = (uint32_t)number, c3 = (uint32_t)(number >> 32);
    uint32_t k0 = (uint32_t)stream, k1 = (uint32_t)(stream >> 32);
    int round;
    for (round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* 53 bits of two words, in [0, 1). */
static double random_53(const uint32_t *words)
{
    return (double)(((uint64_t)words[0] << 21) ^ (words[1] >> 11)) * 1.1102230246251565e-16;
}

/* Elements whose words are below `limit` become 0. */
static void dropout(const T *x, T *y, int n, uint64_t key, uint64_t seed, uint64_t number,
                    uint64_t limit, T scale)
{
    uint32_t words[4] = {0};
    int i;
    for (i = 0; i < n; i++) {
        if (i % 4 == 0) random_words(key, seed, number, (uint64_t)i, words);
        y[i] = words[i % 4] >= limit ? x[i] * scale : 0;
    }
}

/* In [low, high); `below` is the largest number below `high`. */
static void random_uniform(T *y, int n, uint64_t key, uint64_t seed, uint64_t number, double low,
                           double width, T high, T below)
{
    const int each = (int)sizeof(T) / 4;
    uint32_t words[4] = {0};
    int i;
    for (i = 0; i < n; i++) {
        const uint64_t w = (uint64_t)i * (uint64_t)each;
        double u;
        if (w % 4 == 0) random_words(key, seed, number, w, words);
        u = each == 1 ? (double)(words[w % 4] >> 8) * 5.9604644775390625e-08
                      : random_53(words + w % 4);
        y[i] = (T)(low + width * u);
        if (!(y[i] < high)) y[i] = below;
    }
}

/* Box & Muller (1958): the cosine and the sine of a pair. */
static void random_normal(T *y, int n, uint64_t key, uint64_t seed, uint64_t number, double mean,
                          double deviation)
{
    const int each = 2 * (int)sizeof(T) / 4; /* words of a pair */
    const double unit = 2.3283064365386963e-10;
    uint32_t words[4] = {0};
    int i;
    for (i = 0; i < n; i += 2) {
        const uint64_t w = (uint64_t)(i / 2) * (uint64_t)each;
        const uint32_t *own = words + w % 4;
        double v, u, radius, angle;
        if (w % 4 == 0) random_words(key, seed, number, w, words);
        v = each == 2 ? ((double)own[0] + 1) * unit : 1 - random_53(own);
        u = each == 2 ? (double)own[1] * unit : random_53(words + 2);
        radius = deviation * sqrt(-2 * vm_log_f64(v));
        angle = 6.283185307179586 * u;
        y[i] = (T)(mean + radius * vm_sin_quarters_f64(angle, 1));
        if (i + 1 < n) y[i + 1] = (T)(mean + radius * vm_sin_quarters_f64(angle, 0));
    }
}

static void bernoulli(const T *p, T *y, int n, uint64_t key, uint64_t seed, uint64_t number)
{
    uint32_t words[4] = {0};
    int i;
    for (i = 0; i < n; i++) {
        const T x = p[i];
        if (i % 4 == 0) random_words(key, seed, number, (uint64_t)i, words);
        y[i] = x != x ? x : (T)((double)words[i % 4] * 2.3283064365386963e-10 < (double)x);
    }
}
