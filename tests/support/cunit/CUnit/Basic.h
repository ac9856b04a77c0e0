/* The other half of this CUnit, for tests/main.c: the registry and the runs. */
#ifndef WEFT_TESTS_CUNIT_BASIC_H
#define WEFT_TESTS_CUNIT_BASIC_H

#include "CUnit.h"

#include <time.h>

typedef struct CU_TestRegistry {
    CU_pSuite pSuite;
} CU_TestRegistry;

enum { CUE_SUCCESS, CU_FALSE = 0, CU_BRM_VERBOSE };

static CU_TestRegistry registry;
static unsigned suites_run, tests, tests_run, tests_failed, asserts, failures;
static jmp_buf fatal_exit;

#define CU_initialize_registry()     CUE_SUCCESS
#define CU_set_fail_on_inactive(x)   (void)(x)
#define CU_basic_set_mode(x)         (void)(x)
#define CU_get_registry()            (&registry)
#define CU_get_number_of_tests_run() tests_run

unsigned CU_get_number_of_failures(void)
{
    return failures;
}

CU_pSuite CU_add_suite(const char *name, int (*begin)(void), int (*end)(void))
{
    CU_pSuite suite = calloc(1, sizeof *suite), *at = &registry.pSuite;
    *suite = (CU_Suite){.pName = name, .begin = begin, .end = end};
    while (*at) at = &(*at)->pNext;
    return *at = suite;
}

CU_pTest CU_add_test(CU_pSuite suite, const char *name, void (*run)(void))
{
    CU_pTest test = calloc(1, sizeof *test), *at = &suite->pTest;
    *test = (CU_Test){.pName = name, .run = run};
    while (*at) at = &(*at)->pNext;
    return *at = test;
}

void cunit_assert(bool good, bool fatal, const char *text, const char *file, int line)
{
    asserts++;
    if (good) return;
    failures++;
    printf("\n    %s:%d: %s", file, line, text);
    if (fatal) longjmp(fatal_exit, 1);
}

static void cunit_run(CU_pTest test)
{
    const unsigned before = failures;
    printf("  Test: %s ...", test->pName);
    if (!setjmp(fatal_exit)) test->run();
    tests_run++;
    tests_failed += failures > before;
    printf("%s\n", failures > before ? "FAILED" : "passed");
    fflush(stdout);
}

static void CU_basic_run_tests(void)
{
    const clock_t start = clock();
    for (CU_pSuite s = registry.pSuite; s; s = s->pNext) {
        for (CU_pTest t = s->pTest; t; t = t->pNext) tests++;
        if (!s->fActive) continue;
        printf("\nSuite: %s\n", s->pName);
        suites_run++;
        if (s->begin && s->begin() != 0)
            cunit_assert(false, false, "the suite begins", s->pName, 0);
        for (CU_pTest t = s->pTest; t; t = t->pNext)
            if (t->fActive) cunit_run(t);
        if (s->end && s->end() != 0) cunit_assert(false, false, "the suite ends", s->pName, 0);
    }
    printf("\nRun Summary:    Type  Total    Ran Passed Failed Inactive\n"
           "              suites %6u %6u    n/a %6u %8u\n"
           "               tests %6u %6u %6u %6u %8u\n"
           "             asserts %6u %6u %6u %6u      n/a\n\n"
           "Elapsed time = %8.3f seconds\n",
           suites_run, suites_run, 0u, 0u, tests, tests_run, tests_run - tests_failed, tests_failed,
           tests - tests_run, asserts, asserts, asserts - failures, failures,
           (double)(clock() - start) / CLOCKS_PER_SEC);
}

static void CU_cleanup_registry(void)
{
    while (registry.pSuite) {
        CU_pSuite suite = registry.pSuite;
        registry.pSuite = suite->pNext;
        while (suite->pTest) {
            CU_pTest test = suite->pTest;
            suite->pTest = test->pNext;
            free(test);
        }
        free(suite);
    }
}

#endif
