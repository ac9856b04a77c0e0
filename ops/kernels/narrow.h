/* Rows of tensors that may be stored as bf16, for kernels that take any mixture of it and f32. */
#ifndef WEFT_OPS_KERNELS_NARROW_H
#define WEFT_OPS_KERNELS_NARROW_H

#include "kernel.h"

#include "base/half.h"

#ifdef WEFT_KERNEL_ISA

/* n elements of a tensor from element `first` on: where they lie, or widened into `space`. */
static inline const T *narrow_row(const weft_tensor *t, int64_t first, int64_t n, T *space)
{
#if KERNEL_IS(f32)
    if (t->dtype == WEFT_BF16) {
        half_widen((const uint16_t *)t->data + first, space, n);
        return space;
    }
#endif
    (void)n;
    (void)space;
    return (const T *)t->data + first;
}

/* Where a kernel writes elements of a tensor from `first` on: there, or into `space`, from which
 * narrow_store rounds them. */
static inline T *narrow_target(const weft_tensor *t, int64_t first, T *space)
{
    return t->dtype == WEFT_BF16 ? space : (T *)t->data + first;
}

static inline void narrow_store(const weft_tensor *t, int64_t first, int64_t n, const T *space)
{
#if KERNEL_IS(f32)
    if (t->dtype == WEFT_BF16) half_narrow(space, (uint16_t *)t->data + first, n);
#else
    (void)t;
    (void)first;
    (void)n;
    (void)space;
#endif
}

#endif
#endif
