/* Random numbers: 16 counters side by side. See plain/random.h. */

/* 64 words from word w on, a multiple of 4. */
static void simd_words(uint64_t key, uint64_t seed, uint64_t number, uint64_t w, uint32_t *words)
{
    const uint64_t stream = key ^ seed * UINT64_C(0xD1342543DE82EF95);
    uint32_t c0[16], c1[16], c2[16], c3[16], k0 = (uint32_t)stream, k1 = (uint32_t)(stream >> 32);
    int round, i;
    for (i = 0; i < 16; i++) {
        c0[i] = (uint32_t)(w / 4 + (uint64_t)i);
        c1[i] = (uint32_t)((w / 4 + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)number;
        c3[i] = (uint32_t)(number >> 32);
    }
    for (round = 0; round < 10; round++) {
        for (i = 0; i < 16; i++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (i = 0; i < 16; i++) {
        words[4 * i] = c0[i];
        words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i];
        words[4 * i + 3] = c3[i];
    }
}

static void dropout(const T *x, T *y, int n, uint64_t key, uint64_t seed, uint64_t number,
                    uint64_t limit, T scale)
{
    const uint32_t lowest = (uint32_t)limit;
    uint32_t words[64];
    int from, i;
    for (from = 0; from < n; from += 64) {
        const int some = n - from < 64 ? n - from : 64;
        simd_words(key, seed, number, (uint64_t)from, words);
        for (i = 0; i < some; i++) y[from + i] = words[i] >= lowest ? x[from + i] * scale : 0;
    }
}

/* Whether dropout keeps the weights of a query at n keys, at most 64; they are `step` apart. */
static void simd_kept(const attention_sizes *z, const attention_block *b,
                      const attention_dropout *d, int i, int key, int n, uint8_t *kept, int step)
{
    const uint64_t row = (uint64_t)((b->batch * z->heads + b->head) * z->queries + b->first + i);
    const uint64_t w = row * (uint64_t)z->keys + (uint64_t)key;
    uint32_t words[68];
    int j;
    simd_words(d->key, d->seed, d->number, w / 4 * 4, words);
    if (w % 4) random_words(d->key, d->seed, d->number, w / 4 * 4 + 64, words + 64);
    for (j = 0; j < n; j++) kept[j * step] = words[w % 4 + (uint64_t)j] >= d->limit;
}
