/* The list of all ops: `weft ops`, `weft check` and the tests go through it. To add an op, copy an
 * op's file, add the file to ops/meson.build, the op's name here and its builder to weft/ops.h. The
 * suite `complete` names what an op lacks. */
/* clang-format off */
#define WEFT_OP_LIST(X) \
    X(input) X(state) X(constant) X(group) X(track) X(contiguous) \
    X(neg) X(abs) X(sign) X(floor) X(ceil) X(round) X(atan) X(exp) X(log) X(expm1) X(log1p) X(sqrt) X(rsqrt) X(square) \
    X(reciprocal) X(sin) X(cos) \
    X(tanh) X(sigmoid) X(relu) X(leaky_relu) X(gelu) X(gelu_tanh) X(silu) X(softplus) X(erf) \
    X(clamp) X(fake_quantize) X(cast) X(bitcast) X(narrow_rows) X(widen_rows) X(quantize_bytes) X(dequantize_bytes) X(add_bytes) \
    X(add) X(sub) X(mul) X(div) X(pow) X(maximum) X(minimum) X(relu_grad) X(add_n) \
    X(equal) X(not_equal) X(less) X(less_equal) X(greater) X(greater_equal) X(logical_and) X(logical_or) X(logical_not) X(where) X(masked_fill) \
    X(sum) X(mean) X(prod) X(prod_grad) X(max) X(min) X(variance) X(logsumexp) X(argmax) X(argmin) X(cumsum) X(top_k) X(suppress) \
    X(matmul) X(matmul_tiles) X(matmul_shared) X(panels) X(matmul_panels) X(matmul_quantized) X(matmul_quantized_grad) X(embedding_quantized) X(einsum) X(sdpa) X(sdpa_grad) \
    X(conv) X(conv_grad_input) X(conv_grad_weight) X(conv_rows) X(conv_rows_depthwise) X(winograd_weights) X(conv_winograd) X(conv_bytes) X(conv_bytes_depthwise) X(max_pool_bytes) \
    X(max_pool) X(average_pool) \
    X(softmax) X(log_softmax) X(softmax_grad) X(log_softmax_grad) \
    X(layer_norm) X(rms_norm) X(layer_norm_grad) X(rms_norm_grad) X(batch_norm) X(batch_norm_grad) \
    X(reshape) X(permute) X(broadcast_to) X(slice) X(slice_scatter) X(concat) X(pad) \
    X(embedding) X(embedding_bag) X(embedding_grad) X(gather) X(scatter_add) X(one_hot) \
    X(fill) X(arange) X(tril_mask) X(random_uniform) X(random_normal) X(bernoulli) \
    X(custom_gradient) X(dropout) X(cross_entropy) X(cross_entropy_grad) X(mse) X(bce_with_logits) X(ctc) X(ctc_grad) X(global_norm) X(square_sums) X(root_of_sum) \
    X(require_finite) X(assign) X(blend) X(cache_write) X(cache_reorder) X(sgd_update) \
    X(momentum_update) X(adam_update) \
    X(exchange_start) X(exchange_wait) X(sum_over_ranks) X(copy_to_ranks) X(reduce_scatter) \
    X(all_gather) X(broadcast_ranks) X(sum_to_rank) X(send) X(receive)
/* clang-format on */
