/* What the suites share. Each suite is one function that registers its tests with CUnit. */
#ifndef WEFT_TESTS_TESTS_H
#define WEFT_TESTS_TESTS_H

#include <weft/decode.h>
#include <weft/distributed.h>
#include <weft/emit.h>
#include <weft/fit.h>
#include <weft/formats.h>
#include <weft/inspect.h>
#include <weft/kernel.h>
#include <weft/log.h>
#include <weft/measure.h>
#include <weft/quantize.h>
#include <weft/safetensors.h>

#include "suites.h"

#include <CUnit/CUnit.h>

#include <math.h>

/* Suites; each is a function NAME_tests. */
#define TEST_DECLARE(name) void name##_tests(void);
TEST_SUITES(TEST_DECLARE)
#undef TEST_DECLARE

/* Says that a test, or a part of it, cannot run here and why; counted and listed at the end. */
void test_skip(const char *what, const char *reason);

/* Ends a child process of a test, which reports the lines that it ran where they are counted. */
_Noreturn void test_exit(int status);

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
 * whose frames are larger; at least the system's minimum); false if the thread cannot be made. */
bool test_with_stack(size_t bytes, void (*run)(void *data), void *data);

/* Makes the calling thread's n-th allocation in the library, counted from now on, fail; 0: none. */
void test_fail_allocation(long n);
/* Whether it is still to come. */
bool test_allocation_pending(void);
/* Calls `run` again and again, while every allocation that it makes fails once, in turn: each call
 * must be WEFT_NO_MEMORY but the last, in which none fails. It makes more than `least`. */
void test_every_allocation_fails(weft_status (*run)(weft_error *error), long least);

/* Builds the model of the list that "MODEL key=value key=value" names; fails the test fatally. */
void test_build_model(weft_graph *graph, const char *text, bool training, weft_built *built);

/* Copies the parameters of a graph to an array that may be changed; fails the test fatally if there
 * are more than `capacity`. Returns their number. */
size_t test_params(const weft_graph *graph, weft_value *params, size_t capacity);
/* The lengths of the graph's lists. */
size_t test_count_params(const weft_graph *graph);
size_t test_count_states(const weft_graph *graph);
size_t test_count_tracked(const weft_graph *graph);

/* What weft reports (weft/log.h), as lines "info: WHERE: TEXT" or "warning: WHERE: TEXT". */
typedef struct test_log {
    char text[4096];
    size_t n; /* lines */
} test_log;
/* Starts to collect in an empty log; NULL: ends it. */
void test_log_to(test_log *log);

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

/* Tolerances that several suites share. An operation rounds its result by at most 2^-53 = 1.1e-16
 * of it in f64, and by 2^-24 = 6.0e-8 of it in f32.
 *
 * ROUNDING_F64: 900 roundings of numbers near 1. The small cases that use it have sums of at most
 * some hundred terms.
 * ROUNDING_F32: 16 roundings of numbers near 1, for a few operations one after another. */
#define ROUNDING_F64 1e-13
#define ROUNDING_F32 1e-6

/* Errors of weft_check_gradient for a correct gradient. A step is h >= 2.5e-4. Its difference is
 * off by h^4 / 30 <= 3e-14 of the fifth derivative, for values up to 1, and by 1.5 * 2^-53 / h =
 * 7e-13 of the loss for each rounding of the loss.
 *
 * SMOOTH_DIFFERENCES: 1500 such roundings of a loss near 1.
 * DIFFERENCES: with kinks, where the check accepts an error of 1e-7, or else tries steps down to
 * h / 256, which round by 2e-10 of the loss. 1e-6 is ten times the one, and 6000 of the other. */
#define SMOOTH_DIFFERENCES 1e-9
#define DIFFERENCES        1e-6

/* Whether a equals the expected b but for rounding: relative to b, or to 0.01 where b is smaller.
 */
static inline bool test_near(double a, double b)
{
    return fabs(a - b) <= ROUNDING_F64 * fmax(fabs(b), 0.01);
}

/* How many nodes of an op a plan has. */
size_t test_count_nodes(const weft_plan *plan, const char *op);
/* Whether the environment skips a pass. */
bool test_skips_pass(const char *name);

/* A builder for a model of the list; 16 of them can be in use at a time. */
weft_builder test_builder(const char *model, const char *const *texts, size_t n);
/* The trainer's functions, on batches of tokens. */
weft_trainer *test_new_trainer(const weft_trainer_options *options, weft_batches *batches,
                               weft_params *params, weft_error *error);
weft_status test_evaluate(weft_trainer *trainer, weft_batches *batches, size_t limit, double *nll,
                          size_t *tokens);

/* Runs a model on one input, with its weights in `params`, and returns its first output's
 * tensor in *output, of a runner that the caller frees. */
weft_forward *test_run_onnx(const weft_onnx *model, weft_params *params, int64_t rows,
                            const void *x, weft_tensor *output);

/* Computes n numbers of f64, a value of a graph, with parameters of the store or new ones. */
void test_numbers_of(weft_graph *g, weft_value value, weft_params *store, double *out, size_t n);

#endif
