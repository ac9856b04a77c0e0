/* What the suites share. Each suite is one function that registers its tests with CUnit. */
#ifndef WEFT_TESTS_TESTS_H
#define WEFT_TESTS_TESTS_H

#include <weft/weft.h>

#include "suites.h"

#include <CUnit/CUnit.h>

#include <math.h>

/* Suites; each is a function NAME_tests. */
#define TEST_DECLARE(name) void name##_tests(void);
TEST_SUITES(TEST_DECLARE)
#undef TEST_DECLARE

/* Says that a test, or a part of it, cannot run here and why; counted and listed at the end. */
void test_skip(const char *what, const char *reason);

/* Whether n elements have the same bits. If not, prints a line with the first that differs (its
 * index, and both values in decimal and hexadecimal) and how many differ. */
bool test_same_bits(const char *what, weft_dtype dtype, const void *got, const void *wanted,
                    int64_t n);
/* The same for dense tensors, which must have one dtype and one shape. */
bool test_same_tensors(const char *what, const weft_tensor *got, const weft_tensor *wanted);
#define EXPECT_SAME_BITS(dtype, got, wanted, n)                                                    \
    CU_ASSERT_TRUE(test_same_bits(#got, dtype, got, wanted, (int64_t)(n)))

/* Whether the sanitizers watch: then the tests that take long do less. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Makes every allocation of `work`, which gets the path of a file to use, fail once: each time it
 * must return WEFT_NO_MEMORY and leave nothing allocated. */
void test_fail_all(weft_status (*work)(const char *path));

/* Calls run(data) in a thread with a stack of `bytes` (some times as much under the sanitizers,
 * whose frames are larger); false if there is no such thread. */
bool test_with_stack(size_t bytes, void (*run)(void *data), void *data);

/* Makes the calling thread's n-th allocation in the library, counted from now on, fail; 0: none. */
void test_fail_allocation(long n);
/* Whether it is still to come. */
bool test_allocation_pending(void);

/* Builds the model of the list that "MODEL key=value key=value" names; fails the test fatally. */
void test_build_model(weft_graph *graph, const char *text, bool training, weft_model_io *io);

/* A small generator for tests, of 64 bits from a state (splitmix64). */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static inline double test_uniform(uint64_t *state, double low, double high)
{
    return low + (high - low) * (double)(test_random(state) >> 11) * 0x1p-53;
}

/* Whether a equals the expected b but for rounding: relative 1e-12, absolute 1e-15. */
static inline bool test_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(b), 1e-3);
}

/* A builder for a model of the list; 16 of them can be in use at a time. */
weft_builder test_builder(const char *model, const char *const *texts, size_t n);
/* The trainer's functions, on batches of tokens. */
weft_trainer *test_new_trainer(const weft_trainer_options *options, weft_batches *batches,
                               weft_params *params, weft_error *error);
weft_status test_evaluate(weft_trainer *trainer, weft_batches *batches, size_t limit, double *nll,
                          size_t *tokens);

#endif
