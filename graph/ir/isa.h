/* The instruction sets of kernels (weft_isa), and the choice of a kernel (isa.c). */
#ifndef WEFT_IR_ISA_H
#define WEFT_IR_ISA_H

#include <weft/op.h>

#include "base/private.h"

/* The instruction set that kernels are chosen for: the processor's best, or another one that it has
 * if the environment variable WEFT_ISA (base, v3, v4, v4_bf16, v4_amx) names it. Without it, v4 where
 * v4_bf16 would be slower. */
WEFT_PRIVATE_API weft_isa weft__isa_best(void);
/* WEFT_BAD_ARGUMENT if WEFT_ISA has another value, as weft_plan_new does. */
weft_status weft__isa_check(weft_error *error);
WEFT_PRIVATE_API const char *weft__isa_name(weft_isa isa);
/* The kernel for a dtype on an instruction set or the ones below it; NULL if there is none. */
weft_kernel weft__op_kernel(const weft_op *op, weft_isa isa, weft_dtype dtype);

#endif
