/* base/byte_order.h - files of tensors have the lowest byte of a number first, as most processors
 * do. Not installed. */
#ifndef WEFT_BASE_BYTE_ORDER_H
#define WEFT_BASE_BYTE_ORDER_H

#include <stdbool.h>
#include <stddef.h>

/* Whether numbers of this processor begin with their highest byte. */
static inline bool byte_order_is_big(void)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

/* Turns round the bytes of each of n numbers of `size` bytes. */
static inline void byte_order_swap(void *numbers, size_t n, size_t size)
{
    unsigned char *at = numbers;
    for (size_t i = 0; i < n; i++, at += size)
        for (size_t low = 0, high = size; low + 1 < high; low++) {
            const unsigned char byte = at[low];
            at[low] = at[--high];
            at[high] = byte;
        }
}

#endif
