/* Kernels of convolutions of planes, which the kernels of conv and of its gradients call where
 * conv_is_direct. */
#ifndef WEFT_OPS_CONV_PLANES_H
#define WEFT_OPS_CONV_PLANES_H

#include "conv.h"

#ifdef WEFT_KERNEL_ISA

/* A tile of conv or conv_grad_input: conv_planes.each blocks. */
void KERNEL_NAME(conv_planes)(const weft_call *call, int64_t tile);
/* A tile of conv_grad_weight: one channel of dy. */
void KERNEL_NAME(conv_planes_weight)(const weft_call *call, int64_t tile);

#endif
#endif
