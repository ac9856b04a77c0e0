/* Runs the suites, or those named on the command line, and closes with CUnit's summary. */
#include "tests.h"

#include <CUnit/Basic.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char usage[] =
    "usage: %s [--list] [-k PATTERN] [SUITE...]\n"
    "--list   prints the tests, each as SUITE: TEST, in place of running them\n"
    "-k       runs the tests whose line in that list contains PATTERN, in any case (default:\n"
    "         WEFT_TEST_PATTERN)\n";

static int skipped;

void test_skip(const char *what, const char *reason)
{
    skipped++;
    printf("\n    skipped: %s: %s\n", what, reason);
}

static const struct {
    const char *name;
    void (*add)(void);
} suites[] = {
#define ROW(name) {#name, name##_tests},
    TEST_SUITES(ROW)
#undef ROW
};

static bool add_suite(const char *name)
{
    const size_t n = sizeof suites / sizeof *suites;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(suites[i].name, name) != 0) continue;
        suites[i].add();
        return true;
    }
    fprintf(stderr, "there is no suite \"%s\"; suites:", name);
    for (size_t i = 0; i < n; i++) fprintf(stderr, " %s", suites[i].name);
    fprintf(stderr, "\n");
    return false;
}

/* In any case. */
static bool contains(const char *text, const char *pattern)
{
    while (*text && strncasecmp(text, pattern, strlen(pattern)) != 0) text++;
    return *text != 0;
}

/* Leaves the tests active whose lines contain the pattern, and lists them if that is asked for;
 * returns how many they are. */
static size_t choose(const char *pattern, bool list)
{
    size_t n = 0;
    char line[256];
    for (CU_pSuite s = CU_get_registry()->pSuite; s; s = s->pNext) {
        bool any = false;
        for (CU_pTest t = s->pTest; t; t = t->pNext) {
            snprintf(line, sizeof line, "%s: %s", s->pName, t->pName);
            t->fActive = contains(line, pattern);
            any |= t->fActive;
            n += t->fActive;
            if (list && t->fActive) puts(line);
        }
        s->fActive = any;
    }
    return n;
}

/* Status 0 if there were tests, and none failed. */
static int run(void)
{
    CU_set_fail_on_inactive(CU_FALSE);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    const bool failed = CU_get_number_of_failures() > 0 || CU_get_number_of_tests_run() == 0;
    printf("skipped: %d\n", skipped);
    return failed;
}

/* Adds what the arguments name; false after a message. */
static bool parse(int argc, char **argv, const char **pattern, bool *list)
{
    size_t named = 0;
    for (int a = 1; a < argc; a++) {
        if (!strcmp(argv[a], "--list")) {
            *list = true;
        } else if (!strcmp(argv[a], "-k") && a + 1 < argc) {
            *pattern = argv[++a];
        } else if (argv[a][0] == '-') {
            fprintf(stderr, usage, argv[0]);
            return false;
        } else if (!add_suite(argv[a])) {
            return false;
        } else {
            named++;
        }
    }
    for (size_t i = 0; !named && i < sizeof suites / sizeof *suites; i++) suites[i].add();
    return true;
}

int main(int argc, char **argv)
{
    const char *pattern = getenv("WEFT_TEST_PATTERN");
    bool list = false;
    if (!pattern) pattern = "";
    if (CU_initialize_registry() != CUE_SUCCESS) return 1;
    int status = 2;
    if (parse(argc, argv, &pattern, &list)) {
        const size_t n = choose(pattern, list);
        if (n == 0)
            fprintf(stderr, "no test contains \"%s\"\n", pattern);
        else
            status = list ? 0 : run();
    }
    CU_cleanup_registry();
    return status;
}
