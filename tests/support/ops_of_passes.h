/* Ops of which no model consists: passes, updates and caches add them. Rows {name, reason}, for tables of what a
 * transform does not have. */
#ifndef WEFT_TESTS_OPS_OF_PASSES_H
#define WEFT_TESTS_OPS_OF_PASSES_H

/* clang-format off */
#define OPS_OF_PASSES                                                        \
    {"panels", "the panels of a product, which passes make"},                \
    {"matmul_panels", "a product with panels, which passes make"},           \
    {"conv_rows", "a convolution that passes make"},                         \
    {"conv_rows_depthwise", "a convolution that passes make"},               \
    {"winograd_weights", "a part of a convolution that passes make"},        \
    {"conv_winograd", "a convolution that passes make"},                     \
    {"square_sums", "a part of the norm of gradients"},                      \
    {"root_of_sum", "a part of the norm of gradients"},                      \
    {"require_finite", "guards what updates read"},                          \
    {"assign", "writes a state"},                                            \
    {"blend", "writes a state"},                                             \
    {"cache_write", "writes a state"},                                       \
    {"cache_reorder", "writes a state"},                                     \
    {"sgd_update", "writes states"},                                         \
    {"momentum_update", "writes states"},                                    \
    {"adam_update", "writes states"}
/* clang-format on */

#endif
