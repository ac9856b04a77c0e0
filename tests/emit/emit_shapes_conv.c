/* Shapes of convolutions, pooling, panels and sums of squares. See emit_shapes.h. */
#include "emit_shapes.h"

/* Attributes, as in ops/conv. */
typedef struct conv_attr {
    weft_shape stride, dilation, pad_begin, pad_end, size;
    int64_t groups;
} conv_attr;

typedef struct pool_attr {
    conv_attr window;
    weft_shape kernel;
    bool ceil_mode, count_pad;
} pool_attr;

typedef struct conv_rows_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end;
    int64_t columns;
    bool bounded;
    double low, high;
} conv_rows_attr;

#define PAIR(a, b)                                                                                 \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            a, b                                                                                   \
        }                                                                                          \
    }
#define SQUARE(a) PAIR(a, a)
#define WINDOW(stride, pad, size, groups)                                                          \
    {                                                                                              \
        SQUARE(stride), SQUARE(1), SQUARE(pad), SQUARE(pad), size, groups                          \
    }
#define NO_SIZE                                                                                    \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define UNIT(...)                                                                                  \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -1, 1, false                                                      \
    }
#define LINE(n)           UNIT({1, {n}})
#define IMAGE(a, b, c, d) UNIT({4, {a, b, c, d}})
#define COUNT(x)          (sizeof(x) / sizeof *(x))

static const conv_attr padded = WINDOW(1, 1, NO_SIZE, 1), two_groups = WINDOW(1, 1, NO_SIZE, 2);
static const weft_sample conv[] = {
    {&padded, 3, {IMAGE(2, 40, 9, 9), IMAGE(24, 40, 3, 3), LINE(24)}}, /* 360 terms */
    {&two_groups, 3, {IMAGE(1, 2, 3, 1100), IMAGE(2, 1, 3, 3), LINE(2)}},
    {&two_groups, 2, {IMAGE(2, 30, 7, 5), IMAGE(8, 15, 3, 3)}},
};

static const conv_attr halves = WINDOW(2, 1, SQUARE(9), 1), quarters = WINDOW(4, 0, SQUARE(36), 1),
                       slabs = WINDOW(4, 0, SQUARE(160), 1), thirds = WINDOW(3, 1, SQUARE(12), 1),
                       same = WINDOW(1, 1, SQUARE(12), 2), plane = WINDOW(2, 1, PAIR(15, 1201), 3);
static const conv_attr image_point = WINDOW(1, 0, SQUARE(12), 1),
                       image = WINDOW(1, 1, SQUARE(12), 1), fours = WINDOW(2, 1, SQUARE(13), 1);
static const weft_sample conv_grad_input[] = {
    {&halves, 2, {IMAGE(2, 40, 5, 5), IMAGE(40, 6, 3, 3)}},
    {&quarters, 2, {IMAGE(2, 16, 8, 8), IMAGE(16, 3, 8, 8)}},
    {&slabs, 2, {IMAGE(1, 8, 40, 40), IMAGE(8, 2, 4, 4)}},
    {&thirds, 2, {IMAGE(1, 150, 4, 4), IMAGE(150, 2, 5, 5)}}, /* 150 terms */
    {&same, 2, {IMAGE(1, 40, 12, 12), IMAGE(40, 8, 3, 3)}},
    {&plane, 2, {IMAGE(1, 3, 8, 601), IMAGE(3, 1, 3, 3)}},
    {&image_point, 2, {IMAGE(1, 150, 12, 12), IMAGE(150, 20, 1, 1)}},
    {&image, 2, {IMAGE(1, 20, 12, 12), IMAGE(20, 40, 3, 3)}},
    {&fours, 2, {IMAGE(2, 24, 6, 6), IMAGE(24, 40, 5, 5)}}, /* four classes */
};

static const conv_attr nine = WINDOW(1, 1, SQUARE(3), 1), point = WINDOW(1, 0, SQUARE(1), 1),
                       planes = WINDOW(1, 1, SQUARE(3), 3), strided = WINDOW(2, 1, SQUARE(3), 2);
static const weft_sample conv_grad_weight[] = {
    {&nine, 2, {IMAGE(3, 10, 20, 20), IMAGE(3, 12, 20, 20)}}, /* chunks of pieces */
    {&nine, 2, {IMAGE(3, 20, 20, 20), IMAGE(3, 24, 20, 20)}},
    {&point, 2, {IMAGE(4, 8, 12, 12), IMAGE(4, 150, 12, 12)}},
    {&point, 2, {IMAGE(4, 40, 12, 13), IMAGE(4, 8, 12, 13)}},
    {&nine, 2, {IMAGE(1, 20, 3, 150), IMAGE(1, 20, 3, 150)}}, /* long rows */
    {&planes, 2, {IMAGE(2, 3, 40, 100), IMAGE(2, 3, 40, 100)}},
    {&planes, 2, {IMAGE(1, 3, 3, 1100), IMAGE(1, 3, 3, 1100)}},
    {&strided, 2, {IMAGE(2, 2, 41, 60), IMAGE(2, 4, 21, 30)}},
};

static const pool_attr pool = {WINDOW(2, 1, NO_SIZE, 1), SQUARE(3), false, false};
static const weft_sample pools[] = {{&pool, 1, {IMAGE(2, 2, 7, 600)}}};

static const conv_rows_attr rows = {SQUARE(3), SQUARE(1), SQUARE(1), SQUARE(1), SQUARE(1),
                                    35,        false,     0,         0},
                            bounded = {SQUARE(3), SQUARE(2), SQUARE(1), SQUARE(1), SQUARE(1),
                                       40,        true,      -0.5,      0.75};
static const weft_sample conv_rows[] = {
    {&rows, 3, {IMAGE(2, 6, 6, 40), UNIT({3, {2, 360, 32}}), LINE(35)}},
    {&bounded, 2, {IMAGE(1, 6, 7, 130), UNIT({3, {2, 1170, 32}})}},
};
static const weft_sample depthwise[] = {
    {&bounded, 3, {IMAGE(2, 9, 70, 40), UNIT({3, {3, 3, 40}}), LINE(40)}},
};

static const int64_t columns = 40;
static const weft_sample matmul_panels[] = {
    {&columns, 2, {UNIT({2, {5, 300}}), UNIT({3, {2, 300, 32}})}},
};
static const weft_sample squares[] = {{NULL, 2, {LINE(40000), LINE(16384)}}};

const emit_shapes emit_shapes_conv[] = {
    {"conv", conv, COUNT(conv)},
    {"conv_grad_input", conv_grad_input, COUNT(conv_grad_input)},
    {"conv_grad_weight", conv_grad_weight, COUNT(conv_grad_weight)},
    {"max_pool", pools, COUNT(pools)},
    {"average_pool", pools, COUNT(pools)},
    {"conv_rows", conv_rows, COUNT(conv_rows)},
    {"conv_rows_depthwise", depthwise, COUNT(depthwise)},
    {"matmul_panels", matmul_panels, COUNT(matmul_panels)},
    {"square_sums", squares, COUNT(squares)},
    {NULL, NULL, 0},
};
