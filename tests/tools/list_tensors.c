/* Prints "NAME HASH" for every tensor of a safetensors file, in order of names. For tests that hold
 * two checkpoints against each other. */
#include <weft/safetensors.h>
#include <weft/weft.h>

#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int main(int argc, char **argv)
{
    weft_error error = {0};
    weft_params *params = weft_params_new();
    if (argc != 2 || weft_params_load(params, argv[1], &error) != WEFT_OK)
        return fprintf(stderr, "list_tensors FILE: %s\n", error.message), 1;
    size_t n = weft_params_count(params);
    const char **names = calloc(n, sizeof *names);
    for (size_t i = 0; i < n; i++) names[i] = weft_params_name(params, i);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        weft_params_find(params, names[i], &t);
        size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        printf("%s %016" PRIx64 "\n", names[i], hash_bytes(HASH_START, t.data, bytes));
    }
    free(names);
    weft_params_free(params);
    return 0;
}
