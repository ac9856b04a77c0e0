/* Comparing bits, with a line that says where they differ. */
#include "tests.h"

#include <inttypes.h>
#include <string.h>

/* Element i as a number, and its bits. */
static double element(weft_dtype dtype, const char *data, int64_t i, uint64_t *bits)
{
    const size_t bytes = weft_dtype_bytes(dtype);
    const weft_tensor t =
        weft_tensor_dense((void *)(uintptr_t)data, dtype, (weft_shape){1, {i + 1}});
    *bits = 0;
    memcpy(bits, data + (size_t)i * bytes, bytes);
    return weft_tensor_element(&t, i);
}

bool test_same_bits(const char *what, weft_dtype dtype, const void *got, const void *wanted,
                    int64_t n)
{
    const size_t bytes = weft_dtype_bytes(dtype);
    int64_t first = -1, wrong = 0;
    if (!n || !memcmp(got, wanted, (size_t)n * bytes)) return true;
    for (int64_t i = 0; i < n; i++) {
        if (!memcmp((const char *)got + (size_t)i * bytes, (const char *)wanted + (size_t)i * bytes,
                    bytes))
            continue;
        if (first < 0) first = i;
        wrong++;
    }
    uint64_t a, b;
    const double x = element(dtype, got, first, &a), y = element(dtype, wanted, first, &b);
    const int digits = (int)(2 * bytes);
    printf("\n    %s: %s element %" PRId64 " is %.17g (0x%0*" PRIx64
           "), expected %.17g (0x%0*" PRIx64 "); %" PRId64 " of %" PRId64 " differ\n",
           what, weft_dtype_name(dtype), first, x, digits, a, y, digits, b, wrong, n);
    return false;
}

bool test_same_tensors(const char *what, const weft_tensor *got, const weft_tensor *wanted)
{
    char a[128], b[128];
    if (got->dtype == wanted->dtype && weft_shape_equal(got->shape, wanted->shape))
        return test_same_bits(what, got->dtype, got->data, wanted->data,
                              weft_shape_numel(got->shape));
    printf("\n    %s: is %s %s, expected %s %s\n", what, weft_dtype_name(got->dtype),
           weft_shape_text(got->shape, a, sizeof a), weft_dtype_name(wanted->dtype),
           weft_shape_text(wanted->shape, b, sizeof b));
    return false;
}
