/* What every communicator must do. */
#ifndef WEFT_TESTS_EXCHANGE_CHECKS_H
#define WEFT_TESTS_EXCHANGE_CHECKS_H

#include <weft/communicator.h>

/* Runs the checks that leave the communicator usable; every rank must call it. Prints what failed
 * to standard error and returns how much. */
int exchange_checks(weft_communicator *communicator);
/* The same for a last rank that fails, and for one that does not answer: no exchange works
 * afterwards. Two ranks or more. */
int exchange_checks_of_failure(weft_communicator *communicator);
int exchange_checks_of_silence(weft_communicator *communicator);

#endif
