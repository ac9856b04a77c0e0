/* References of weft's arithmetic: each op computed again by plain loops, with the same roundings
 * in the same order as its kernels, so that both have the same bits. A reference defines its op's
 * result; the naive ones of support/reference.h only say how accurate it is. */
#ifndef WEFT_TESTS_EXACT_H
#define WEFT_TESTS_EXACT_H

#include <weft/op.h>

/* Inputs have any layout that the op takes, and their own dtype. Outputs are contiguous; those of
 * an op that updates states hold the states. A tensor of bf16 has elements of f32, which are bf16 in
 * an input. */
typedef void exact_function(const void *attr, const weft_tensor *in, size_t n_in, weft_tensor *out);

/* As in ops/update/update.c. */
typedef struct sgd_attr {
    int64_t first;
    double momentum, dampening, weight_decay;
    bool nesterov, scaled;
} sgd_attr;
typedef struct adam_attr {
    int64_t first;
    double beta1, beta2, eps, weight_decay;
    bool decoupled, scaled;
} adam_attr;

/* The run of the tests, for random ops. */
#define EXACT_SEED UINT64_C(1)
#define EXACT_RUN  UINT64_C(0x300000002)

/* NULL if there is none for operands of the dtype by which kernels are chosen. */
exact_function *exact_find(const char *op, weft_dtype dtype);

/* A reference of an op; a table of them ends with a NULL op. */
typedef struct exact_reference {
    const char *op;
    exact_function *compute;
} exact_reference;

/* The tables of a dtype, one of each file. */
#define EXACT_TABLES(X, dtype)                                                                     \
    X(elementwise, dtype)                                                                          \
    X(reduce, dtype)                                                                               \
    X(rows, dtype)                                                                                 \
    X(matmul, dtype)                                                                               \
    X(norm, dtype)                                                                                 \
    X(batch_norm, dtype)                                                                           \
    X(loss, dtype)                                                                                 \
    X(update, dtype)                                                                               \
    X(attention, dtype)                                                                            \
    X(conv, dtype)                                                                                 \
    X(conv_weight, dtype)                                                                          \
    X(conv_rows, dtype) X(winograd, dtype) X(quantized, dtype) X(random, dtype) X(ctc, dtype)
#define EXACT_DECLARE(name, dtype) extern const exact_reference exact_##name##_##dtype[];
EXACT_TABLES(EXACT_DECLARE, f32)
EXACT_TABLES(EXACT_DECLARE, f64)
/* References for all dtypes. */
extern const exact_reference exact_move[], exact_bytes[];

#endif
