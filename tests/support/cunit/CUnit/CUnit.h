/* What the suites use of CUnit, for systems that have no package of it: the same macros, functions
 * and closing summary, in one program of one file that includes CUnit/Basic.h (tests/main.c). */
#ifndef WEFT_TESTS_CUNIT_H
#define WEFT_TESTS_CUNIT_H

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CU_Test {
    const char *pName;
    void (*run)(void);
    struct CU_Test *pNext;
    int fActive;
} CU_Test, *CU_pTest;

typedef struct CU_Suite {
    const char *pName;
    int (*begin)(void), (*end)(void);
    CU_pTest pTest;
    struct CU_Suite *pNext;
    int fActive;
} CU_Suite, *CU_pSuite;

CU_pSuite CU_add_suite(const char *name, int (*begin)(void), int (*end)(void));
CU_pTest CU_add_test(CU_pSuite suite, const char *name, void (*run)(void));
unsigned CU_get_number_of_failures(void);
/* Counts an assertion, reports it if it failed, and then ends the test if it is fatal. */
void cunit_assert(bool good, bool fatal, const char *text, const char *file, int line);

#define CU_CHECK(condition, fatal, text)                                                           \
    cunit_assert((condition) != 0, fatal, text, __FILE__, __LINE__)
#define CU_ASSERT(x)                     CU_CHECK(x, false, #x)
#define CU_ASSERT_FATAL(x)               CU_CHECK(x, true, #x)
#define CU_ASSERT_TRUE(x)                CU_CHECK(x, false, #x)
#define CU_ASSERT_TRUE_FATAL(x)          CU_CHECK(x, true, #x)
#define CU_ASSERT_FALSE(x)               CU_CHECK(!(x), false, "not " #x)
#define CU_ASSERT_EQUAL(a, b)            CU_CHECK((a) == (b), false, #a " == " #b)
#define CU_ASSERT_EQUAL_FATAL(a, b)      CU_CHECK((a) == (b), true, #a " == " #b)
#define CU_ASSERT_NOT_EQUAL(a, b)        CU_CHECK((a) != (b), false, #a " != " #b)
#define CU_ASSERT_PTR_EQUAL              CU_ASSERT_EQUAL
#define CU_ASSERT_PTR_NOT_EQUAL          CU_ASSERT_NOT_EQUAL
#define CU_ASSERT_PTR_NULL(p)            CU_CHECK(!(p), false, #p " is NULL")
#define CU_ASSERT_PTR_NOT_NULL(p)        CU_CHECK((p) != NULL, false, #p " is not NULL")
#define CU_ASSERT_PTR_NOT_NULL_FATAL(p)  CU_CHECK((p) != NULL, true, #p " is not NULL")
#define CU_ASSERT_STRING_EQUAL(a, b)     CU_CHECK(!strcmp(a, b), false, #a " is " #b)
#define CU_ASSERT_STRING_NOT_EQUAL(a, b) CU_CHECK(strcmp(a, b), false, #a " is not " #b)
#define CU_ASSERT_DOUBLE_EQUAL(a, b, most)                                                         \
    CU_CHECK(fabs((double)(a) - (double)(b)) <= fabs((double)(most)), false, #a " is about " #b)
#define CU_FAIL(text)       CU_CHECK(false, false, text)
#define CU_FAIL_FATAL(text) CU_CHECK(false, true, text)
#define CU_PASS(text)       CU_CHECK(true, false, text)

#endif
