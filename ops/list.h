/* The one list of ops: everything that needs all of them walks it. To add an op, copy an op's file,
 * add it to ops/meson.build and its name here. */
#define WEFT_OP_LIST(X)                                                                            \
    X(input) X(state) X(constant) X(group) X(contiguous)                                           \
    X(neg) X(abs) X(sign) X(exp) X(log) X(sqrt) X(rsqrt) X(square) X(reciprocal) X(sin) X(cos)     \
    X(tanh) X(sigmoid) X(relu) X(leaky_relu) X(gelu) X(gelu_tanh) X(silu) X(softplus) X(erf)       \
    X(clamp) X(cast)                                                                               \
    X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum) X(add_n)                              \
    X(equal) X(less) X(greater) X(logical_and) X(logical_or) X(logical_not) X(where)               \
    X(masked_fill)                                                                                 \
    X(sum) X(mean) X(max) X(min) X(variance) X(logsumexp) X(argmax) X(cumsum)                      \
    X(matmul) X(einsum)                                                                            \
    X(softmax) X(log_softmax) X(softmax_grad) X(log_softmax_grad)                                  \
    X(layer_norm) X(rms_norm) X(layer_norm_grad) X(rms_norm_grad)                                  \
    X(reshape) X(permute) X(broadcast_to) X(slice) X(slice_scatter) X(concat) X(pad)               \
    X(embedding) X(embedding_grad) X(gather) X(scatter_add) X(one_hot)                             \
    X(fill) X(arange) X(tril_mask) X(dropout)               \
    X(cross_entropy) X(cross_entropy_grad) X(mse) X(bce_with_logits) X(global_norm)                \
    X(assign) X(sgd_update) X(momentum_update) X(adam_update)
/* !!! NOTE FROM THE LEAD TO HELPERS (06:17): you were started 35 minutes late by an outage, so I have written most op files
 * myself in the meantime: unary binary compare select cast (vmath.h), reduce scan softmax norm, gemm matmul einsum view slice
 * join, index generate dropout, and graph (core: session.c exists). DO NOT rewrite or overwrite any existing file.
 * Ops helpers: write ONLY what is missing of your task: 
 *  - elementwise helper: tests/reference_elementwise.c and tests/vmath_test.c (suite must pass; adjust vmath.h only for a real bug)
 *  - reductions helper: tests/reference_reduce.c (names: sum mean max min variance logsumexp argmax cumsum softmax log_softmax
 *    softmax_grad log_softmax_grad layer_norm rms_norm layer_norm_grad rms_norm_grad; attr structs as in the op files)
 *  - products helper: tests/reference_product.c (matmul einsum reshape permute broadcast_to slice slice_scatter concat pad)
 *  - index helper: ops/cross_entropy.c, ops/loss.c, ops/global_norm.c, ops/update.c are STILL YOURS, and tests/reference_index.c
 *    (embedding embedding_grad gather scatter_add one_hot fill arange tril_mask dropout cross_entropy.. update ops); list.c is the lead's.
 *  - params/dot, autograd+ops_test, models+golden, tools helpers: your tasks stand as given (tests.h and main.c exist in tests/).
 * Redeclare attr structs in the reference files. You have 20 minutes in all, then stop and report. !!! */
