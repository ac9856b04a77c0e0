#include "tests.h"
void seeds_tests(void)
{
    CU_add_suite("seeds", NULL, NULL);
}
