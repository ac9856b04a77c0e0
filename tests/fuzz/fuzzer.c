/* A fuzzer of clang's libFuzzer for the kind FUZZ_KIND. tests/fuzz.sh runs it. */
#include "kinds.h"

#include <stdio.h>
#include <stdlib.h>

static char folder[64];

static void remove_folder(void)
{
    fuzz_remove_folder(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (fuzz_make_folder(folder, sizeof folder) != 0) return 1;
    return atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *broken = fuzz_kind_find(FUZZ_KIND)->check(folder, data, bytes);
    if (!broken) return 0;
    fprintf(stderr, "%s: %s\n", FUZZ_KIND, broken);
    abort();
}
