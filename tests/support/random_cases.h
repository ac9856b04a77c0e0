/* Cases that are drawn at random, each from a number of its own, its seed. One that fails is made
 * smaller, and its report names a command that runs it alone. */
#ifndef WEFT_TESTS_RANDOM_CASES_H
#define WEFT_TESTS_RANDOM_CASES_H

#include "tests.h"

typedef struct random_case {
    uint64_t seed;
    size_t size; /* of a graph: the most values that are drawn */
    bool show;   /* print what was drawn */
    void *data;
} random_case;

/* Whether `holds` is true of the cases of seeds 1 to n, of any size. The first case that fails is
 * tried again with sizes from 1 up, and the report names the first of these that fails.
 * WEFT_TEST_SEED=S runs the case of seed S alone, of WEFT_TEST_SIZE=N if that is set, and shows it.
 * `test` names the test as `-k` takes it. */
bool test_random_cases(const char *test, uint64_t n, bool (*holds)(const random_case *),
                       void *data);

/* Prints the values of a graph on standard error, a line each: id, name, shape, op and the ids of
 * its inputs. */
void test_show_graph(const weft_graph *graph);

#endif
