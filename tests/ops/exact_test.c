/* Kernels against the references of their arithmetic (exact/exact.h), bit for bit, on random
 * shapes, layouts and values. WEFT_EXACT_CASES multiplies the number of cases, and prints how many
 * there were. */
#include "exact_case.h"

#include <stdio.h>
#include <stdlib.h>

/* The cases of a group of ops, each op about equally often. */
static void check(const char *test, uint64_t n, const exact_op *ops)
{
    const char *times = getenv("WEFT_EXACT_CASES");
    if (times) n *= strtoull(times, NULL, 10);
    if (TEST_SANITIZED) n /= 10;
    CU_ASSERT_TRUE(test_random_cases(test, n, exact_holds, (void *)(uintptr_t)ops));
    if (times) /* so far */
        printf(" %llu cases, %llu elements: ", (unsigned long long)exact_cases,
               (unsigned long long)exact_elements);
}

#define TESTS(X)                                                                                   \
    X(elementwise, "elementwise bits", 3000)                                                       \
    X(reduction, "bits of reductions", 2000)                                                       \
    X(row, "bits along an axis", 2000)                                                             \
    X(matmul, "bits of matrix products", 600)                                                      \
    X(norm, "bits of normalisations", 1500)                                                        \
    X(loss, "bits of losses", 800)                                                                 \
    X(update, "bits of updates", 1000)                                                             \
    X(attention, "bits of attention", 300) X(conv, "bits of convolutions", 1500)

#define DEFINE(group, name, n)                                                                     \
    static void test_##group(void)                                                                 \
    {                                                                                              \
        check(name, n, exact_##group##_ops);                                                       \
    }
TESTS(DEFINE)

void exact_tests(void)
{
    CU_pSuite suite = CU_add_suite("exact", NULL, NULL);
#define ADD(group, name, n) CU_add_test(suite, name, test_##group);
    TESTS(ADD)
}
