/* Compares the arithmetic of examples/emit/doubles.c with that of this processor, bit for bit: numbers of all
 * exponents, some close to each other, subnormal ones, zeros, infinities and NaN. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

uint64_t __aeabi_dadd(uint64_t a, uint64_t b), __aeabi_dsub(uint64_t a, uint64_t b);
uint64_t __aeabi_drsub(uint64_t a, uint64_t b), __aeabi_dmul(uint64_t a, uint64_t b);
uint64_t __aeabi_ddiv(uint64_t a, uint64_t b), __aeabi_f2d(uint32_t x), __aeabi_l2d(int64_t x);
uint64_t __aeabi_ul2d(uint64_t x), __aeabi_ui2d(uint32_t x), __aeabi_i2d(int32_t x);
uint32_t __aeabi_d2f(uint64_t x);
int __aeabi_dcmpeq(uint64_t a, uint64_t b), __aeabi_dcmplt(uint64_t a, uint64_t b);
int __aeabi_dcmple(uint64_t a, uint64_t b), __aeabi_dcmpgt(uint64_t a, uint64_t b);
int __aeabi_dcmpge(uint64_t a, uint64_t b), __aeabi_dcmpun(uint64_t a, uint64_t b);

static int failed;

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void expect(const char *what, uint64_t a, uint64_t b, uint64_t got, double expected)
{
    if (got == bits_of(expected) || (double_of(got) != double_of(got) && expected != expected))
        return;
    if (failed++ < 20)
        printf("%s of %016" PRIx64 " and %016" PRIx64 " is %016" PRIx64 ", expected %016" PRIx64
               "\n",
               what, a, b, got, bits_of(expected));
}

static void check_pair(uint64_t a, uint64_t b)
{
    const double x = double_of(a), y = double_of(b);
    expect("the sum", a, b, __aeabi_dadd(a, b), x + y);
    expect("the difference", a, b, __aeabi_dsub(a, b), x - y);
    expect("the reversed difference", a, b, __aeabi_drsub(a, b), y - x);
    expect("the product", a, b, __aeabi_dmul(a, b), x * y);
    expect("the quotient", a, b, __aeabi_ddiv(a, b), x / y);
    expect("the order", a, b,
           bits_of(__aeabi_dcmpeq(a, b) + 2 * __aeabi_dcmplt(a, b) + 4 * __aeabi_dcmple(a, b) +
                   8 * __aeabi_dcmpgt(a, b) + 16 * __aeabi_dcmpge(a, b) +
                   32 * __aeabi_dcmpun(a, b)),
           (x == y) + 2 * (x < y) + 4 * (x <= y) + 8 * (x > y) + 16 * (x >= y) +
               32 * (x != x || y != y));
}

static void check_conversions(uint64_t a)
{
    const uint32_t word = (uint32_t)(a >> 32);
    float x, narrow = (float)double_of(a), got;
    memcpy(&x, &word, sizeof x);
    expect("the double", word, 0, __aeabi_f2d(word), (double)x);
    const uint32_t rounded = __aeabi_d2f(a);
    memcpy(&got, &rounded, sizeof got);
    expect("the float", a, 0, bits_of((double)got), (double)narrow);
    expect("the number", a, 0, __aeabi_ul2d(a), (double)a);
    expect("the signed number", a, 0, __aeabi_l2d((int64_t)a), (double)(int64_t)a);
    expect("the short number", word, 0, __aeabi_ui2d(word), (double)word);
    expect("the short signed number", word, 0, __aeabi_i2d((int32_t)word), (double)(int32_t)word);
}

/* The generator splitmix64. */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int main(void)
{
    static const uint64_t special[] = {0,
                                       1,
                                       2,
                                       0x000fffffffffffff,
                                       0x0010000000000000,
                                       0x0010000000000001,
                                       0x3ff0000000000000,
                                       0x3ff0000000000001,
                                       0x3fefffffffffffff,
                                       0x36a0000000000000,
                                       0x3690000000000000,
                                       0x3690000000000001,
                                       0x380fffffe0000000,
                                       0x380ffffff0000000,
                                       0x47efffffefffffff,
                                       0x47effffff0000000,
                                       0x7fefffffffffffff,
                                       0x7ff0000000000000,
                                       0x7ff8000000000000};
    enum { SPECIAL = 2 * sizeof special / sizeof *special };
    uint64_t state = 1;
    int i, j;
    for (i = 0; i < SPECIAL; i++)
        for (j = 0; j < SPECIAL; j++) {
            const uint64_t a = special[i / 2] | (uint64_t)(i % 2) << 63;
            check_pair(a, special[j / 2] | (uint64_t)(j % 2) << 63);
            check_conversions(a);
        }
    for (i = 0; i < 2000000; i++) {
        const uint64_t kind = draw(&state),
                       a = draw(&state) & (kind & 8 ? ~(uint64_t)0 : ~(uint64_t)0 << 29);
        uint64_t b = draw(&state);
        /* An exponent close to that of a, or a number close to -a; else any. */
        if (kind & 1)
            b = (b & ~((uint64_t)2047 << 52)) | ((a >> 52 & 2047) + (kind >> 8) % 64) % 2048 << 52;
        if ((kind & 6) == 6) b = (a ^ (uint64_t)1 << 63) + (kind >> 16) % 8;
        check_pair(a, b);
        check_conversions(a);
        /* The exponents of floats. */
        check_conversions((a & ~((uint64_t)2047 << 52)) | (860 + (kind >> 24) % 300) << 52);
    }
    printf("%d differ\n", failed);
    return failed != 0;
}
