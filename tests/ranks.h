/* Ranks that are threads of the test. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H

#include <weft/communicator.h>

enum { MOST_RANKS = 8 };

typedef struct rank {
    weft_communicator *communicator;
    void (*run)(struct rank *rank);
    void *shared;
    weft_error error;
} rank;

/* Runs a function on `size` ranks, which have the errors that it leaves. Only the calling thread
 * may use CUnit. */
void run_ranks(int size, void (*run)(rank *rank), void *shared, rank *ranks);
/* Fails the test, and prints why, if a rank has an error. */
void expect_good(const rank *ranks, int size);

#endif
