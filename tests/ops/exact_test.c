/* Kernels against the references of their arithmetic (exact/exact.h), bit for bit, on random
 * shapes, layouts and values. WEFT_EXACT_CASES multiplies the number of cases, and prints how many
 * there were. */
#include "exact_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    X(attention, "bits of attention", 400)                                                         \
    X(conv, "bits of convolutions", 1500)                                                          \
    X(move, "bits of moved elements", 2000)                                                        \
    X(drawn, "bits of random numbers", 400) X(packed, "bits of packed matrices", 1500)

#define DEFINE(group, name, n)                                                                     \
    static void test_##group(void)                                                                 \
    {                                                                                              \
        check(name, n, exact_##group##_ops);                                                       \
    }
TESTS(DEFINE)

/* ---- Completeness ---- */

/* Ops with kernels and without a reference, and why. */
static const struct {
    const char *reason, *ops;
} without[] = {
    {"what it computes is in other processes: the suites collectives and communicator",
     "exchange_start exchange_wait"},
};

static bool is_without(const char *op)
{
    const size_t n = strlen(op);
    for (size_t k = 0; k < sizeof without / sizeof *without; k++)
        for (const char *at = without[k].ops; (at = strstr(at, op)); at += n)
            if ((at == without[k].ops || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static bool is_drawn(const char *op)
{
#define LIST(group, name, n) exact_##group##_ops,
    static const exact_op *const lists[] = {TESTS(LIST)};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (const exact_op *o = lists[k]; o->name; o++)
            if (!strcmp(o->name, op)) return true;
    return false;
}

/* An op with kernels is drawn, and has a reference for each of their dtypes. Ops without kernels
 * are views, are expanded into others, or compute nothing. */
static void test_complete(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        bool wanted = false, found = true;
        for (int d = 0; d < WEFT_DTYPES; d++) {
            if (!exact_compares(op, (weft_dtype)d)) continue;
            wanted = true;
            found &= exact_find(op->name, (weft_dtype)d) != NULL;
        }
        found &= is_drawn(op->name);
        const bool good = wanted ? found != is_without(op->name) : !is_without(op->name);
        if (!good)
            fprintf(stderr, "\n    %s: %s\n", op->name,
                    found ? "has a reference, but is in the list of exceptions"
                          : "lacks a reference of its bits for some dtype (tests/exact)");
        CU_ASSERT_TRUE(good);
    }
}

void exact_tests(void)
{
    CU_pSuite suite = CU_add_suite("exact", NULL, NULL);
#define ADD(group, name, n) CU_add_test(suite, name, test_##group);
    TESTS(ADD)
    CU_add_test(suite, "every op has a reference of its bits", test_complete);
}
