/* weft/ops.h - the list of ops, and the operations beyond the core of <weft/weft.h>: of few bits,
 * of images, sorting, random numbers, norms of gradients, updates. What follows holds for those of
 * the core as well.
 *
 * Unless a comment says otherwise, x is f32 or f64 of any layout and rank, and the result has its
 * dtype. A negative `axis` counts from the end. Two operands broadcast as in NumPy.
 *
 * A number passed as a double must fit the dtype in which it is used, or the node is refused with
 * WEFT_BAD_ARGUMENT. Bool takes 0 and 1; i32 takes whole numbers from -2^31 to 2^31 - 1; f32 and
 * f64 take any number, NaN and infinities. f32 refuses a finite number that would round to an
 * infinity, as PyTorch does; pass INFINITY instead.
 *
 * The result is NaN where an operand is NaN, unless the op's comment says otherwise; gradients at
 * NaN are PyTorch's. The bits of a NaN are not specified. All other results have the same bits with
 * and without fusion, at any number of threads, with every compiler and instruction set: those that
 * docs/arithmetic.md specifies. It also has the exceptions, bf16 on processors with AVX512_BF16 and
 * libraries of matrix products (WEFT_GEMM).
 *
 * WEFT_TOO_LARGE refuses sizes that overflow and work that would take decades; broadcasting makes
 * both from almost no memory. The builder returns it where the shapes show it, else weft_plan_new.
 *
 * Accuracy in f32, with u = 2^-24. Reductions, softmax, norms, losses, global_norm, cumsum and
 * their gradients add few terms in f32 and the rest in f64. So whatever the number of terms, the
 * axes and the strides, the error of their sums is at most 150 u times the sum of the terms'
 * magnitudes. Matrix products and einsum sum over k in pieces; their error is at most
 * (768 + k / 768) u times the sum of |a| |b|. A library's products (WEFT_GEMM) have bounds of their
 * own. Convolutions and their gradients have those of matrix products; but the gradient of the
 * weights adds sums over at most 512 pixels, and with n such sums its error is at most (768 + n) u.
 * Attention sums over n keys or queries within (320 + n / 64) u; add_n of n inputs, embedding's
 * gradient and scatter_add of n terms at one index within (32 + n / 32) u. In f64, the error of n
 * terms is within n 2^-53.
 */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include <weft/graph.h>
#include <weft/losses.h>
#include <weft/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The list of ops ------------------------------------------------------------------------ */

WEFT_API size_t weft_op_count(void);
WEFT_API const weft_op *weft_op_at(size_t index);       /* NULL beyond the end */
WEFT_API const weft_op *weft_op_find(const char *name); /* NULL if there is none */

/* ---- Gradients of ops, as ops ------------------------------------------------------------------
 */

/* y <= 0 ? 0 : dy, the gradient of relu, where y is relu's output. */
WEFT_API weft_value weft_relu_grad(weft_graph *graph, weft_value y, weft_value dy);
/* Sums x to `shape`, which must broadcast to the shape of x: the gradient of broadcasting. */
WEFT_API weft_value weft_sum_to(weft_graph *graph, weft_value x, weft_shape shape);

/* ---- Sorting ----------------------------------------------------------------------------------
 */

/* The k largest elements along an axis, largest first, or with `largest` false the k smallest,
 * smallest first. x [..., n, ...] becomes [..., k, ...], k from 0 to n. Sets *indices (i32, the
 * same shape), unless it is NULL, to their indices along the axis. Of equal elements, such as 0 and
 * -0, the lower index comes first. A NaN is larger than all numbers, here also where the smallest
 * elements are wanted (as in PyTorch). Each gradient goes to the element that was taken. O(n log k)
 * for a small k, else O(n). */
WEFT_API weft_value weft_top_k(weft_graph *graph, weft_value x, int64_t k, int axis, bool largest,
                               weft_value *indices);
/* All elements along an axis in ascending or descending order, and their indices: weft_top_k with
 * k = n. So the sort is stable both ways, and NaNs are last in ascending order. */
WEFT_API weft_value weft_sort(weft_graph *graph, weft_value x, int axis, bool descending,
                              weft_value *indices);
/* The indices of weft_sort. */
WEFT_API weft_value weft_argsort(weft_graph *graph, weft_value x, int axis, bool descending);

/* Non-maximum suppression. boxes [..., n, 4] of f32 or f64 are two opposite corners each, (x0, y0,
 * x1, y1) or any other order of the axes, best box first. Bool [..., n]: true for each box that
 * stays. A box stays unless, with a box before it that stays, the area of their intersection is more
 * than `threshold` of that of their union. In f64. No gradient. O(n x boxes that stay). */
WEFT_API weft_value weft_suppress(weft_graph *graph, weft_value boxes, double threshold);

/* ---- Matrix products ------------------------------------------------------------------------- */

/* a [m, k] times w [k, n]: [m, n], for a w that many products of few rows share, as the steps of a
 * recurrent layer do. w is packed once a run, not once a product. */
WEFT_API weft_value weft_matmul_shared(weft_graph *graph, weft_value a, weft_value w);
/* weft_matmul of operands in f32 that are rounded to bf16 first. Sums are in f32, of each 32 products
 * of k as matrix units add them (docs/arithmetic.md, "Products by tiles"), with the same bits on
 * every processor. It takes a fraction of the time of weft_matmul on a processor that has AMX, and
 * about that time on others. The gradient is that of weft_matmul, with such products. With
 * WEFT_PRECISION_BF16_TILES (weft/plan.h) a plan makes it of weft_matmul. WEFT_BAD_DTYPE for f64. */
WEFT_API weft_value weft_matmul_tiles(weft_graph *graph, weft_value a, weft_value b);
/* x [..., k] times the transpose of a quantised matrix: [..., n]. `weight` (u8) is [n, k] of 8
 * bits, or [n, k / 2] of 4 bits, where the even element of a pair has the low half of the byte.
 * Groups of `group` elements of a row, a multiple of 32 that divides k, have a scale and a zero
 * point: `scale` [n, k / group], of x's dtype, and `zero` (u8) of the same shape; an element is
 * scale (q - zero). If `zero` has x's dtype, it has minima: an element is scale q + zero. x is also
 * rounded: to whole numbers in [-127, 127] times the largest of 32
 * elements / 127. Sums of 32 products are exact, and results have the same bits on every
 * instruction set and for any number of rows. The result is NaN for a row of x that has an infinity
 * or a NaN. The gradient with regard to x is dy times the matrix, as if x were not rounded; the
 * matrix has no gradient. WEFT_BAD_ARGUMENT for other bits or groups. weft/quantize.h makes such
 * matrices. */
WEFT_API weft_value weft_matmul_quantized(weft_graph *graph, weft_value x, weft_value weight,
                                          weft_value scale, weft_value zero, int bits, int group);
/* x [..., k] times the transpose of weight - zero: [..., n], for whole numbers x in [-128, 127].
 * Others are rounded to the nearest of these. weight (u8) is [n, k], with a k that 32 divides, and
 * zero (u8) [n, 1]. In f64 the result is exact; in f32 while its sums are below 2^24. */
WEFT_API weft_value weft_matmul_whole(weft_graph *graph, weft_value x, weft_value weight,
                                      weft_value zero);
/* x rounded to a multiple of `scale` as if it were stored in few bits: with r = x / scale, y = scale
 * round(min(max(r, low), high)), ties to even (Jacob et al. 2018). x is f32 or f64; scale > 0; low
 * and high are whole numbers, such as -128 and 127, or 0 - zero and 255 - zero for unsigned numbers
 * with a zero point. NaN stays. The gradient passes unchanged where low - 1/2 <= r <= high + 1/2,
 * and is 0 elsewhere, so that a model learns to compute well with rounded numbers. */
WEFT_API weft_value weft_fake_quantize(weft_graph *graph, weft_value x, double scale, double low,
                                       double high);
/* Rows of a quantised table, which is stored as `weight` of weft_matmul_quantized is, at indices
 * i32 [...]: [..., features] of the dtype of `scale`. For inference: there is no gradient. An index
 * out of range is an error, as of weft_embedding. */
WEFT_API weft_value weft_embedding_quantized(weft_graph *graph, weft_value table, weft_value scale,
                                             weft_value zero, weft_value indices, int bits,
                                             int group);
/* Weighted sums of rows of a table [rows, features]: y[..., :] = the sum over k, in order, of
 * weights[..., k] table[indices[..., k], :]. indices are i32, weights have the dtype of the table. An
 * index out of range is an error, as of weft_embedding. */
WEFT_API weft_value weft_embedding_bag(weft_graph *graph, weft_value table, weft_value indices,
                                       weft_value weights);
/* The bits of x as another dtype: those of f32 as WEFT_I32, or of i32 as WEFT_F32; WEFT_BAD_DTYPE
 * for others. Its gradient is zero, as of all integers. */
WEFT_API weft_value weft_bitcast(weft_graph *graph, weft_value x, weft_dtype dtype);
#define WEFT_NARROW_SCALE 4 /* bytes of the scale of a row of u8 */
/* x [..., n] in fewer bits, to store it: WEFT_BF16, rounded to the nearest; or WEFT_U8, where a row
 * takes n + WEFT_NARROW_SCALE bytes: its scale max |x| / 127, an f32, then 128 + x / scale rounded
 * to the nearest whole number. In u8, a row with an infinity or a NaN becomes all NaN. weft_sdpa
 * reads keys and values of either form. For inference: there is no gradient. WEFT_BAD_DTYPE for
 * other dtypes. */
WEFT_API weft_value weft_narrow_rows(weft_graph *graph, weft_value x, weft_dtype dtype);
/* Back to floats of `dtype`: [..., n]. */
WEFT_API weft_value weft_widen_rows(weft_graph *graph, weft_value x, weft_dtype dtype);

/* ---- Convolution, pooling, resizing ----------------------------------------------------------
 *
 * Images are [images, channels, spatial...] with 1 to 3 spatial dimensions (NCHW), as in PyTorch
 * and ONNX. The arrays of the options have one number for each spatial dimension, in their order;
 * the rest are ignored. Numbers out of range are WEFT_BAD_ARGUMENT; shapes that do not fit, or a
 * kernel that reaches over more than the padded image, WEFT_BAD_SHAPE. The sums are weft's own,
 * whatever WEFT_GEMM names. Padding adds nothing to a sum, in results and gradients: an infinite
 * weight times the padding is not NaN. (So do ONNX Runtime's convolutions and PyTorch's transposed
 * and grouped ones; others of PyTorch multiply zeros.) */

typedef struct weft_conv_options {
    int64_t stride[3];                /* 0: 1 */
    int64_t dilation[3];              /* distance of neighbouring taps; 0: 1 */
    int64_t pad_begin[3], pad_end[3]; /* zeros around the image */
    int64_t groups;                   /* 0: 1 */
    int64_t output_pad[3];            /* weft_conv_transpose only; below the stride */
} weft_conv_options;
/* x [images, channels, in...], w [out_channels, channels / groups, kernel...], bias [out_channels]
 * or WEFT_NO_VALUE: y [images, out_channels, out...], where
 *
 *     out = floor((in + pad_begin + pad_end - (kernel - 1) dilation - 1) / stride) + 1
 *     y[n, o, i] = bias[o] + sum over c, t of w[o, c, t] x[n, c, i stride + t dilation - pad_begin]
 *
 * with c in the group of o (Dumoulin & Visin 2016; groups: Krizhevsky et al. 2012). A
 * cross-correlation, as everywhere: the kernel is not flipped. `options` may be NULL. */
WEFT_API weft_value weft_conv(weft_graph *graph, weft_value x, weft_value w, weft_value bias,
                              const weft_conv_options *options);
/* The gradient of weft_conv with respect to its image, as a layer (Zeiler et al. 2010):
 * x [images, channels, in...], w [channels, out_channels / groups, kernel...], bias [out_channels]
 * or WEFT_NO_VALUE: [images, out_channels, out...], where
 *
 *     out = (in - 1) stride + (kernel - 1) dilation + 1 + output_pad - pad_begin - pad_end */
WEFT_API weft_value weft_conv_transpose(weft_graph *graph, weft_value x, weft_value w,
                                        weft_value bias, const weft_conv_options *options);

typedef struct weft_pool_options {
    int64_t kernel[3];                /* of a window; 0: 1 */
    int64_t stride[3];                /* 0: the window's size */
    int64_t dilation[3];              /* 0: 1 */
    int64_t pad_begin[3], pad_end[3]; /* around the image */
    bool ceil_mode;                   /* a last window may reach beyond the padding */
    bool count_pad;                   /* weft_average_pool only: the mean counts the padding */
} weft_pool_options;
/* x [images, channels, in...]: the maximum of each window, without the padding. A NaN is larger
 * than all numbers. Fills *indices, which may be NULL, with the places (i32) of the maxima among
 * the elements of a channel of x. Of equal elements the first one counts, and gets the gradient. A
 * window that lies in the padding alone is WEFT_BAD_SHAPE. Sizes as weft_conv's; with ceil_mode
 * rounded up, without windows that begin after the image (as in PyTorch). */
WEFT_API weft_value weft_max_pool(weft_graph *graph, weft_value x, const weft_pool_options *options,
                                  weft_value *indices);
/* The mean of each window: a sum of products with 1 / elements. */
WEFT_API weft_value weft_average_pool(weft_graph *graph, weft_value x,
                                      const weft_pool_options *options);

typedef enum weft_resize_mode {
    WEFT_RESIZE_NEAREST, /* the element that is nearest */
    WEFT_RESIZE_LINEAR,  /* k(t) = max(0, 1 - |t|); over two axes bilinear, over three trilinear */
    WEFT_RESIZE_CUBIC    /* Keys 1981: k(t) = (a+2)|t|^3 - (a+3)|t|^2 + 1 for |t| <= 1,
                            a|t|^3 - 5a|t|^2 + 8a|t| - 4a for |t| < 2, else 0 */
} weft_resize_mode;
/* Where output i of an axis lies among the inputs 0 .. in-1, under ONNX's names. */
typedef enum weft_resize_coordinates {
    WEFT_RESIZE_HALF_PIXEL,           /* (i + 1/2) / scale - 1/2 */
    WEFT_RESIZE_ALIGN_CORNERS,        /* i (in - 1) / (in scale - 1); 0 if in scale = 1 */
    WEFT_RESIZE_ASYMMETRIC,           /* i / scale */
    WEFT_RESIZE_PYTORCH_HALF_PIXEL,   /* half_pixel; 0 if the size is 1 */
    WEFT_RESIZE_HALF_PIXEL_SYMMETRIC, /* in/2 (1 - size / (in scale)) + (i + 1/2) / scale - 1/2 */
    WEFT_RESIZE_TF_HALF_PIXEL,        /* (i + 1/2) / scale */
    WEFT_RESIZE_CROP /* from begin (in - 1) to end (in - 1), in size - 1 steps; the middle of the
                        two if the size is 1. ONNX's tf_crop_and_resize */
} weft_resize_coordinates;
/* Of a coordinate, to the nearest element. */
typedef enum weft_resize_rounding {
    WEFT_RESIZE_PREFER_FLOOR, /* to the nearest integer, halves down */
    WEFT_RESIZE_PREFER_CEIL,  /* to the nearest integer, halves up */
    WEFT_RESIZE_FLOOR,
    WEFT_RESIZE_CEIL
} weft_resize_rounding;
typedef struct weft_resize_options {
    weft_resize_mode mode;               /* 0: nearest */
    weft_resize_coordinates coordinates; /* 0: half_pixel */
    weft_resize_rounding rounding;       /* 0: prefer floor; nearest mode only */
    weft_axes axes;                      /* count 0: the spatial ones, from 2 on */
    /* Of each of the axes, in their order: its size, its scale, or both. Size 0: floor(scale in);
     * scale 0: size / in. With both, coordinates follow from the scale, and the size must be
     * floor(scale in) or floor(scale in + 1/2). */
    int64_t size[WEFT_MAX_RANK];
    double scale[WEFT_MAX_RANK];
    bool antialias;            /* an axis of a scale below 1 has weights k(scale t), divided by
                                  their sum; linear and cubic */
    bool exclude_outside;      /* elements beyond the edges have no weight, and the other weights
                                  are divided by their sum; false: they equal those at the edges */
    const double *cubic_coeff; /* a of the cubic kernel; NULL: -0.75, as in PyTorch and ONNX */
    const double *crop;        /* WEFT_RESIZE_CROP only: begin of each of the axes, then end of
                                  each, in [0, 1] as fractions of in - 1 */
    double outside;            /* the value where such a coordinate lies outside of the input */
} weft_resize_options;
/* x with other sizes along some axes, as PyTorch's interpolate and ONNX's Resize compute it. Along
 * an axis,
 *
 *     y[i] = sum over t of k(t - c) x[t]
 *     y[i] = x[c rounded and moved into 0 .. in-1]  in the nearest mode
 *
 * where c is the coordinate of output i and t runs over the whole numbers around it.
 * An axis of scale 1 that is not cropped stays as it is, whatever the coordinates.
 * The zero of the options is ONNX's default, and a size or a scale is required for each axis.
 * PyTorch's modes: "nearest" is asymmetric with floor, "nearest-exact" half_pixel with prefer_ceil
 * (for scales that are whole numbers, the default is equal to both); "bilinear" and "bicubic" are
 * linear and cubic, with align_corners or half_pixel.
 *
 * x is f32 or f64; in the nearest mode of any dtype. O(taps) operations an output and axis, and at
 * most 2^26 weights an axis, else WEFT_TOO_LARGE. WEFT_BAD_ARGUMENT for sizes that are not positive
 * or do not fit the scale, and axes out of range or named twice; WEFT_BAD_SHAPE without `axes` for
 * x of rank below 3. It is built from other ops, so gradients of any order exist. */
WEFT_API weft_value weft_resize(weft_graph *graph, weft_value x,
                                const weft_resize_options *options);

/* ---- Normalisation -------------------------------------------------------------------------- */

/* (x - mean) / sqrt(variance + eps) * gamma + beta for each channel of x [images, channels, ...]
 * (Ioffe & Szegedy 2015), with the mean and population variance of the channel over images and
 * positions, as in training; gamma and beta are [channels]. Sets *mean and *variance, [channels],
 * which are differentiable, unless they are NULL. Over no elements both are NaN. */
WEFT_API weft_value weft_batch_norm(weft_graph *graph, weft_value x, weft_value gamma,
                                    weft_value beta, double eps, weft_value *mean,
                                    weft_value *variance);

/* ---- Shape ------------------------------------------------------------------------------------
 */

/* A dense copy of x, or x itself if it is dense; of any dtype. */
WEFT_API weft_value weft_contiguous(weft_graph *graph, weft_value x);

/* x with zeros above the diagonal of its last two dimensions. */
WEFT_API weft_value weft_tril(weft_graph *graph, weft_value x, int64_t diagonal);

/* ---- Random values --------------------------------------------------------------------------- */

/* Numbers that are new in each run. They depend only on the seed and number of the run, the node
 * (each call of a builder makes a node with a key of its own) and the element's index. So they have
 * the same bits on every processor and for any number of threads. dtype is f32 or f64. Nothing is
 * differentiable here: a sample of N(m, s^2) whose gradient reaches m and s is m + s times
 * weft_random_normal(graph, dtype, shape, 0, 1).
 *
 * Word w of a node is word w % 4 of weft_philox with the counter (w / 4, number of the run), 64
 * bits each, and the key (the node's key) ^ seed 0xD1342543DE82EF95. Element i takes word i in f32,
 * and words 2i and 2i + 1 in f64. */

/* low + (high - low) u for u in [0, 1): the upper 24 bits of the word (f32), or weft_uniform of
 * both words (f64). low <= high, both finite; a result that rounds to `high` is the number below
 * it. */
WEFT_API weft_value weft_random_uniform(weft_graph *graph, weft_dtype dtype, weft_shape shape,
                                        double low, double high);
/* Normal numbers of a mean and a standard deviation >= 0 (Box & Muller 1958, in f64): elements 2p
 * and 2p + 1 are mean + deviation sqrt(-2 ln u) times cos(2 pi v) and sin(2 pi v), where u in (0,
 * 1] and v in [0, 1) come from the first and the second half of their words. */
WEFT_API weft_value weft_random_normal(weft_graph *graph, weft_dtype dtype, weft_shape shape,
                                       double mean, double deviation);
/* 1 where word i is less than 2^32 p[i], else 0: so 1 with probability p, always for p >= 1 and
 * never for p <= 0. The result has the shape and dtype of p; its gradient is zero. */
WEFT_API weft_value weft_bernoulli(weft_graph *graph, weft_value p);

/* ---- Gradients of a program's choice ---------------------------------------------------------- */

/* x, of any dtype, through which no gradient passes. */
WEFT_API weft_value weft_stop_gradient(weft_graph *graph, weft_value x);
/* `value`, whose gradient is that of `surrogate`, of the same shape and dtype: a derivative of the
 * result is a derivative of the surrogate. weft_custom_gradient(graph, weft_round(graph, x), x) is
 * a straight-through estimator (Bengio et al. 2013). Neither call costs anything, and a plan without
 * gradients does not compute the surrogate. An op of a program's own (weft/op.h) can also change
 * the gradient that it passes on, such as clip it. */
WEFT_API weft_value weft_custom_gradient(weft_graph *graph, weft_value value, weft_value surrogate);

/* ---- Norms of gradients ------------------------------------------------------------------------
 */

/* The square root of the sum of squares of all elements of all values: one pass, in a fixed order.
 */
WEFT_API weft_value weft_global_norm(weft_graph *graph, const weft_value *x, size_t n);
/* The norm in two parts, for values in pieces: f64 sums of squares [tiles], one of each block of
 * WEFT_TILE elements of each value; and the square root of their sum, added in the order of the i32
 * indices `order` [n]. weft_global_norm adds them in the order of its values and blocks. */
WEFT_API weft_value weft_square_sums(weft_graph *graph, const weft_value *x, size_t n);
WEFT_API weft_value weft_root_of_sum(weft_graph *graph, weft_value sums, weft_value order,
                                     weft_dtype dtype);
/* Returns x, and requires each of the scalars to be finite: otherwise the run ends with
 * WEFT_NOT_FINITE and the scalar's name, before any update that depends on the result. All are
 * floating; the scalars may have another dtype than x. It guards values that updates read, and has
 * no gradient. */
WEFT_API weft_value weft_require_finite(weft_graph *graph, weft_value x, const weft_value *scalars,
                                        size_t n);

/* ---- Update nodes: they write states, after every reader of the old contents ---------------- */

/* state becomes `value` (same dtype and shape). Returns the new state. */
WEFT_API weft_value weft_assign(weft_graph *graph, weft_value state, weft_value value);
/* state = decay state + weight value, element by element; decay and weight are scalars of its
 * dtype. With decay 0 the old contents are not read, so they may be anything. decay 1 sums over
 * several runs; weight 1 - decay makes a moving average. Returns the new state. */
WEFT_API weft_value weft_blend(weft_graph *graph, weft_value state, weft_value value,
                               weft_value decay, weft_value weight);
/* Writes value [n <= rows, count, ...] into state [rows, max_len, ...], at positions position ..
 * position + count - 1 of its first n rows. position is an i32 scalar, or i32 [n] with one for each
 * row; outside of [0, max_len - count] it ends the run with WEFT_BAD_INDEX. Returns the new state.
 * The cost depends on the value only, not on the size of the state. */
WEFT_API weft_value weft_cache_write(weft_graph *graph, weft_value state, weft_value value,
                                     weft_value position);
/* Copies row parents[i] (i32 [n <= rows]) of state [rows, max_len, ...] to row i, at the first
 * `length` (i32 scalar) positions; all rows are read before any is written. Returns the new state.
 * Rows that are their own parents cost nothing. */
WEFT_API weft_value weft_cache_reorder(weft_graph *graph, weft_value state, weft_value parents,
                                       weft_value length);
/* SGD, as weft_sgd_options has it. lr and scale are scalars of the parameter's dtype; buf may be
 * WEFT_NO_VALUE if momentum is 0, scale may be WEFT_NO_VALUE (1). If buf and grad have one
 * dimension and fewer elements than param, they belong to the piece of it that begins at element
 * options->first; the rest of param does not change. The same for Adam. Returns the new param. */
WEFT_API weft_value weft_sgd_update(weft_graph *graph, weft_value param, weft_value buf,
                                    weft_value grad, weft_value lr, weft_value scale,
                                    const weft_sgd_options *options);
/* lr, t and scale are scalars of the parameter's dtype; t counts from 1. */
typedef struct weft_adam_values {
    weft_value param, m, v, grad, lr, t;
    weft_value scale; /* WEFT_NO_VALUE: 1 */
} weft_adam_values;
/* Adam, or AdamW if options->decoupled, as weft_adam_options has them. */
WEFT_API weft_value weft_adam_update(weft_graph *graph, const weft_adam_values *values,
                                     const weft_adam_options *options);

#ifdef __cplusplus
}
#endif
#endif
