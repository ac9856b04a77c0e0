/* Convolution and pooling against their naive references at random shapes, and at shapes of several
 * tiles, in f32 and f64, on every instruction set, with the same bits on one and two threads. */
#include "reference.h"
#include "tests.h"

#include "base/platform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A convolution or a pooling of one image shape. */
typedef struct layer {
    weft_shape x, w; /* of pooling: w is the window alone, [1, 1, kernel...] */
    weft_conv_options options;
    bool ceil_mode, count_pad;
    int infinite; /* 1 + the input of which some elements are infinite; 0: none */
} layer;

typedef enum kind { CONV, MAX_POOL, AVERAGE_POOL } kind;

#define MAX_TARGETS 4
/* A graph, its inputs x, w, bias and dy (as far as there are any), and what is compared. */
typedef struct built {
    weft_graph *g;
    weft_value in[4], target[MAX_TARGETS];
    size_t n_targets;
    const char *skip; /* passes that its plan skips */
} built;

static weft_pool_options pool_options(const layer *l)
{
    weft_pool_options o = {.ceil_mode = l->ceil_mode, .count_pad = l->count_pad};
    for (int d = 0; d < l->x.rank - 2; d++) {
        o.kernel[d] = l->w.dim[d + 2];
        o.stride[d] = l->options.stride[d];
        o.dilation[d] = l->options.dilation[d];
        o.pad_begin[d] = l->options.pad_begin[d];
        o.pad_end[d] = l->options.pad_end[d];
    }
    return o;
}

static built build(kind k, const layer *l, weft_dtype dtype)
{
    built b = {.g = weft_graph_new()};
    const weft_pool_options pool = pool_options(l);
    b.in[0] = weft_input(b.g, "x", dtype, l->x);
    if (k == MAX_POOL) {
        b.target[0] = weft_max_pool(b.g, b.in[0], &pool, &b.target[1]);
        b.n_targets = 2;
        return b;
    }
    b.n_targets = 1;
    if (k == AVERAGE_POOL) {
        b.target[0] = weft_average_pool(b.g, b.in[0], &pool);
        return b;
    }
    b.in[1] = weft_input(b.g, "w", dtype, l->w);
    b.in[2] = weft_input(b.g, "bias", dtype, WEFT_SHAPE(l->w.dim[0]));
    b.target[0] = weft_conv(b.g, b.in[0], b.in[1], b.in[2], &l->options);
    if (!weft_is_value(b.target[0])) return b;
    b.in[3] = weft_input(b.g, "dy", dtype, weft_shape_of(b.g, b.target[0]));
    weft_grad_of(b.g, b.target, &b.in[3], 1, b.in, 2, b.target + 1);
    b.n_targets = 3;
    return b;
}

/* Numbers in [-1, 1) that f32 represents, the same for both dtypes. */
static double *numbers(int64_t n, uint64_t seed)
{
    double *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; x && i < n; i++) x[i] = (double)(float)test_uniform(&seed, -1, 1);
    return x;
}

static int64_t numel_of(const built *b, weft_value v)
{
    return weft_shape_numel(weft_shape_of(b->g, v));
}

static bool feed(weft_session *s, const built *b, weft_value v, const double *x)
{
    const size_t n = (size_t)numel_of(b, v);
    if (weft_dtype_of(b->g, v) == WEFT_F64)
        return weft_session_feed(s, v, x, n * sizeof *x, NULL) == WEFT_OK;
    float *narrow = malloc((n + 1) * sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = (float)x[i];
    const bool good = weft_session_feed(s, v, narrow, n * sizeof *narrow, NULL) == WEFT_OK;
    free(narrow);
    return good;
}

/* Runs a graph; out[t] is a copy of target t, which the caller frees. */
static bool run(const built *b, double *const in[4], int threads, weft_tensor out[MAX_TARGETS])
{
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(b->g, b->target, b->n_targets,
                                    &(weft_plan_options){.verify = true, .skip = b->skip}, &error);
    weft_session *s = NULL;
    if (plan)
        s = weft_session_new(plan, NULL,
                             &(weft_session_options){.threads = threads, .poison = true}, &error);
    bool good = s != NULL;
    for (int i = 0; good && i < 4; i++)
        if (weft_is_value(b->in[i])) good = feed(s, b, b->in[i], in[i]);
    good = good && weft_session_run(s, NULL) == WEFT_OK;
    for (size_t t = 0; good && t < b->n_targets; t++) {
        good = weft_session_tensor(s, b->target[t], &out[t], NULL) == WEFT_OK;
        const size_t bytes = weft_tensor_bytes(out[t].dtype, out[t].shape);
        void *copy = malloc(bytes + 1);
        memcpy(copy, out[t].data, bytes);
        out[t].data = copy;
    }
    if (!good) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    weft_session_free(s);
    weft_plan_free(plan);
    return good;
}

static double element(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F32   ? (double)((const float *)t->data)[i]
           : t->dtype == WEFT_F64 ? ((const double *)t->data)[i]
                                  : (double)((const int32_t *)t->data)[i];
}

/* Target t by its reference, in f64. The inputs of targets 0, 1, 2 of CONV are x w bias, dy w and
 * x dy. */
static weft_tensor expected(kind k, const built *b, double *const in[4], size_t t,
                            weft_tensor *second)
{
    static const int operand[3][3] = {{0, 1, 2}, {3, 1, 0}, {0, 3, 0}};
    const weft_node_info node = weft_graph_node(b->g, weft_producer_of(b->g, b->target[t]));
    weft_tensor x[3], out[2];
    for (size_t i = 0; i < node.n_in; i++) {
        const weft_value v = b->in[k == CONV ? operand[t][i] : 0];
        x[i] =
            weft_tensor_dense(in[k == CONV ? operand[t][i] : 0], WEFT_F64, weft_shape_of(b->g, v));
    }
    for (size_t i = 0; i < node.n_out; i++) {
        const weft_value v = weft_value_from_id(b->g, node.first_out + (uint32_t)i);
        const weft_shape shape = weft_shape_of(b->g, v);
        out[i] = weft_tensor_dense(calloc((size_t)weft_shape_numel(shape) + 1, 8),
                                   i ? WEFT_I32 : WEFT_F64, shape);
    }
    reference_find(node.op->name)(node.attr, x, node.n_in, out);
    if (node.n_out > 1) *second = out[1];
    return out[0];
}

/* The number of terms of each sum of target t. */
static double terms_of(kind k, const layer *l, const built *b, size_t t)
{
    double taps = 1;
    for (int d = 2; d < l->w.rank; d++) taps *= (double)l->w.dim[d];
    if (k != CONV) return taps;
    const double out = (double)numel_of(b, b->target[0]) / (double)(l->w.dim[0] ? l->w.dim[0] : 1);
    return t == 0 ? taps * (double)l->w.dim[1] + 1 : t == 1 ? taps * (double)l->w.dim[0] : out;
}

static void describe(const layer *l, const char *what, size_t target, double off)
{
    char x[128], w[128];
    const weft_conv_options *o = &l->options;
    fprintf(stderr, "\n    %s, target %zu, x %s, w %s, groups %d: off by %g", what, target,
            weft_shape_text(l->x, x, sizeof x), weft_shape_text(l->w, w, sizeof w), (int)o->groups,
            off);
    for (int d = 0; d < l->x.rank - 2; d++)
        fprintf(stderr, "; stride %d dilation %d pads %d %d", (int)o->stride[d],
                (int)o->dilation[d], (int)o->pad_begin[d], (int)o->pad_end[d]);
    fprintf(stderr, "\n");
    CU_FAIL("a convolution or pooling differs");
}

/* Infinity where one is infinite or NaN, and the other not so. */
static double worst_of(const weft_tensor *got, const weft_tensor *want)
{
    double worst = 0;
    for (int64_t i = 0; i < weft_shape_numel(want->shape); i++) {
        const double a = element(got, i), b = element(want, i);
        const double off = a == b || (isnan(a) && isnan(b)) ? 0 : fabs(a - b);
        if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
    }
    return worst;
}

/* want[t] is what the references compute, the same for each call: the first one fills it. */
static void check(kind k, const layer *l, weft_dtype dtype, const char *what,
                  weft_tensor want[MAX_TARGETS])
{
    built b = build(k, l, dtype);
    weft_tensor one[MAX_TARGETS] = {{0}}, two[MAX_TARGETS] = {{0}};
    double *in[4] = {NULL};
    if (weft_graph_status(b.g) != WEFT_OK) {
        describe(l, weft_graph_error(b.g)->message, 0, 0);
        weft_graph_free(b.g);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (weft_is_value(b.in[i])) in[i] = numbers(numel_of(&b, b.in[i]), 17 + (uint64_t)i);
    const int64_t every = 1 + (l->infinite ? numel_of(&b, b.in[l->infinite - 1]) / 3 : 0);
    for (int64_t i = 0; l->infinite && i < numel_of(&b, b.in[l->infinite - 1]); i += every)
        in[l->infinite - 1][i] = i % 2 ? INFINITY : -INFINITY;
    if (!run(&b, in, 1, one) || !run(&b, in, 2, two)) {
        describe(l, "does not run", 0, 0);
    } else {
        for (size_t t = 0; t < b.n_targets; t++) {
            if (memcmp(one[t].data, two[t].data, weft_tensor_bytes(one[t].dtype, one[t].shape)))
                describe(l, "other bits with two threads", t, 0);
            if (!want[t].data) want[t] = expected(k, &b, in, t, &want[t + 1]);
            /* Each term of a sum is below 1 and rounds a few times; in f32 4e-7 is seven roundings
             * of 2^-24, in f64 1e-15 is nine of 2^-53. */
            const double limit = (dtype == WEFT_F32 ? 4e-7 : 1e-15) * (4 + terms_of(k, l, &b, t));
            const double off = worst_of(&one[t], &want[t]);
            if (!(off <= limit)) describe(l, what, t, off);
        }
        CU_PASS("compared");
    }
    for (size_t t = 0; t < b.n_targets; t++) {
        free(one[t].data);
        free(two[t].data);
    }
    for (int i = 0; i < 4; i++) free(in[i]);
    weft_graph_free(b.g);
}

/* Checks kernels [first, end): two for each instruction set, in f32 and f64. */
static void check_kernels(kind k, const layer *l, int first, int end)
{
    static const char *const isas[] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
    const char *old = getenv("WEFT_ISA");
    char *before = old ? strdup(old) : NULL;
    weft_tensor want[MAX_TARGETS] = {{0}};
    for (int i = first; i < end; i++) {
        weft__os_set_variable("WEFT_ISA", isas[i / 2]);
        check(k, l, i % 2 ? WEFT_F64 : WEFT_F32, isas[i / 2], want);
    }
    for (int t = 0; t < MAX_TARGETS; t++) free(want[t].data);
    weft__os_set_variable("WEFT_ISA", NULL);
    if (before) weft__os_set_variable("WEFT_ISA", before);
    free(before);
}

static void check_all(kind k, const layer *l)
{
    check_kernels(k, l, 0, 2 * WEFT_ISAS);
}

/* ---- Random shapes ---- */

static int64_t draw(uint64_t *state, int64_t low, int64_t high)
{
    return (int64_t)test_uniform(state, (double)low, (double)high + 1);
}

/* 1 to `most`, and often 1: then strides and dilations have no effect, and paths are shorter. */
static int64_t extent(uint64_t *state, int64_t most)
{
    return draw(state, 0, 2) ? draw(state, 1, most) : 1;
}

/* A layer whose kernel fits the padded image; false if the numbers drawn do not. */
static bool random_layer(uint64_t *state, layer *l)
{
    const int rank = (int)draw(state, 1, 3);
    const bool planes = draw(state, 0, 1) == 0;
    memset(l, 0, sizeof *l);
    const int64_t groups = planes ? draw(state, 1, 5) : draw(state, 1, 3);
    const int64_t channels = planes ? 1 : draw(state, 1, 9), images = draw(state, 0, 3);
    l->options.groups = groups;
    l->x = WEFT_SHAPE(images, groups * channels);
    l->w = WEFT_SHAPE(groups * (planes ? draw(state, 1, 2) : draw(state, 1, 20)), channels);
    for (int d = 0; d < rank; d++) {
        weft_conv_options *o = &l->options;
        const int64_t in = extent(state, rank == 3 ? 7 : rank == 2 ? 14 : 60);
        /* Every fourth line has windows as long as those of a spectrum. */
        const bool windows = rank == 1 && draw(state, 0, 3) == 0;
        const int64_t kernel = windows ? draw(state, 5, 40) : extent(state, rank == 3 ? 3 : 4);
        o->stride[d] = windows ? draw(state, 1, kernel) : draw(state, 0, 4);
        o->dilation[d] = draw(state, 0, 2);
        o->pad_begin[d] = extent(state, 4) - 1;
        o->pad_end[d] = extent(state, 4) - 1;
        l->x.dim[l->x.rank++] = in;
        l->w.dim[l->w.rank++] = kernel;
        const int64_t reach = (kernel - 1) * (o->dilation[d] ? o->dilation[d] : 1) + 1;
        if (in + o->pad_begin[d] + o->pad_end[d] < reach) return false;
    }
    return true;
}

/* On all kernels, or on one of them. */
static void check_random(uint64_t *state, kind k, const layer *l, bool all)
{
    const int kernel = (int)draw(state, 0, 2 * WEFT_ISAS - 1);
    check_kernels(k, l, all ? 0 : kernel, all ? 2 * WEFT_ISAS : kernel + 1);
}

static void test_random_convolutions(void)
{
    uint64_t state = 7;
    for (int done = 0; done < 1000;) {
        layer l;
        if (!random_layer(&state, &l)) continue;
        check_random(&state, CONV, &l, done < 60);
        done++;
    }
}

/* What lies in the padding adds nothing to a sum, even where an operand is infinite. */
static void test_infinite(void)
{
    uint64_t state = 8;
    for (int done = 0; done < 600;) {
        layer l;
        if (!random_layer(&state, &l)) continue;
        l.infinite = (int[]){1, 2, 4}[draw(&state, 0, 2)];
        check_random(&state, CONV, &l, done < 20);
        done++;
    }
}

static void test_random_pools(void)
{
    uint64_t state = 6;
    for (int done = 0; done < 400;) {
        layer l;
        if (!random_layer(&state, &l)) continue;
        l.ceil_mode = draw(&state, 0, 1);
        l.count_pad = draw(&state, 0, 1);
        /* Only windows that see a pixel are allowed. */
        built b = build(MAX_POOL, &l, WEFT_F32);
        const weft_status status = weft_graph_status(b.g);
        weft_graph_free(b.g);
        if (status == WEFT_BAD_SHAPE) continue;
        check_random(&state, MAX_POOL, &l, done < 60);
        check_random(&state, AVERAGE_POOL, &l, done < 60);
        done++;
    }
}

/* Several tiles of rows and columns, more than one piece of a sum, rows of images in one panel,
 * and all paths of kernels, with strides that leave pixels unread. */
static void test_tiles(void)
{
    static const layer layers[] = {
        {.x = {4, {2, 70, 9, 9}},
         .w = {4, {33, 70, 3, 4}},
         .options = {.pad_begin = {1, 2}, .pad_end = {1, 1}}},
        {.x = {4, {17, 20, 15, 17}},
         .w = {4, {30, 20, 3, 3}},
         .options = {.pad_begin = {1, 1}, .pad_end = {1, 1}}},
        {.x = {4, {5, 100, 7, 7}}, .w = {4, {300, 100, 1, 1}}},
        {.x = {4, {1, 40, 30, 31}},
         .w = {4, {24, 20, 3, 3}},
         .options = {.stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}, .groups = 2}},
        {.x = {4, {2, 24, 28, 28}}, .w = {4, {40, 24, 1, 1}}, .options = {.stride = {2, 2}}},
        {.x = {4, {1, 3, 64, 64}}, .w = {4, {8, 3, 16, 16}}, .options = {.stride = {16, 16}}},
        {.x = {4, {1, 3, 40, 44}},
         .w = {4, {16, 3, 7, 7}},
         .options = {.stride = {2, 2}, .pad_begin = {3, 3}, .pad_end = {3, 3}}},
        {.x = {4, {2, 6, 50, 90}},
         .w = {4, {12, 1, 3, 3}},
         .options = {.pad_begin = {1, 1}, .pad_end = {1, 1}, .groups = 6}},
        {.x = {4, {1, 2, 90, 50}},
         .w = {4, {2, 1, 5, 3}},
         .options = {.stride = {2, 3}, .pad_begin = {2, 1}, .pad_end = {2, 1}, .groups = 2}},
        {.x = {3, {2, 3, 3000}}, .w = {3, {3, 1, 9}}, .options = {.dilation = {4}, .groups = 3}},
        {.x = {3, {1, 3, 600}}, .w = {3, {40, 3, 400}}},
        /* Taps that lie in the padding in all windows. */
        {.x = {4, {1, 20, 7, 7}},
         .w = {4, {30, 20, 3, 3}},
         .options = {.dilation = {8, 4}, .pad_begin = {8, 4}, .pad_end = {8, 4}}},
        {.x = {4, {1, 4, 5, 6}},
         .w = {4, {40, 4, 4, 5}},
         .options =
             {.stride = {2, 3}, .dilation = {7, 5}, .pad_begin = {15, 11}, .pad_end = {9, 9}}},
        /* Gradients of the image by one product: several slabs of a line and of images, pieces of
         * which no window reads, and channels of dy beyond GEMM_DEPTH. */
        {.x = {3, {1, 1, 9000}},
         .w = {3, {66, 1, 256}},
         .options = {.stride = {128}, .pad_begin = {64}, .pad_end = {64}}},
        {.x = {4, {1, 6, 60, 44}},
         .w = {4, {64, 3, 4, 4}},
         .options = {.stride = {2, 3}, .dilation = {1, 2}, .pad_begin = {1, 2}, .groups = 2}},
        {.x = {5, {2, 2, 9, 6, 6}}, .w = {5, {40, 2, 3, 3, 2}}, .options = {.stride = {2, 2, 1}}},
        {.x = {3, {1, 1, 90}}, .w = {3, {800, 1, 6}}, .options = {.stride = {7}}},
        {.x = {3, {1, 2, 2500}}, .w = {3, {20, 2, 5}}, .options = {.stride = {2}, .dilation = {2}}},
        {.x = {4, {1, 4, 6, 6}},
         .w = {4, {4, 4, 2, 2}},
         .options = {.stride = {5, 4}, .dilation = {3, 2}}},
        /* One plane, which lies in the padding in depth. */
        {.x = {5, {1, 2, 1, 1, 8}},
         .w = {5, {2, 1, 1, 1, 1}},
         .options = {.stride = {2, 1, 1}, .pad_begin = {1}, .groups = 2}},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) check_all(CONV, &layers[i]);
    static const layer pools[] = {
        {.x = {4, {2, 5, 40, 600}}, .w = {4, {1, 1, 3, 3}}, .options = {.stride = {2, 1}}},
        {.x = {4, {1, 3, 30, 30}},
         .w = {4, {1, 1, 3, 3}},
         .options = {.stride = {2, 2}, .pad_begin = {1, 1}, .pad_end = {1, 1}},
         .ceil_mode = true},
    };
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        check_all(MAX_POOL, &pools[i]);
        check_all(AVERAGE_POOL, &pools[i]);
    }
}

/* ---- Fusion ---- */

/* Elementwise nodes run on the tiles of a convolution of many images, or of planes, with the same
 * bits. `fused` counts them; it is 1 where they run on each other's tiles only. */
static void check_fused(const layer *l, size_t fused)
{
    weft_tensor out[2][MAX_TARGETS] = {{{0}}};
    double *in[4] = {NULL};
    built b = build(CONV, l, WEFT_F32);
    b.in[3] = weft_input(b.g, "residual", WEFT_F32, weft_shape_of(b.g, b.target[0]));
    b.target[0] = weft_relu(b.g, weft_add(b.g, b.target[0], b.in[3]));
    b.n_targets = 1;
    for (int i = 0; i < 4; i++) in[i] = numbers(numel_of(&b, b.in[i]), 3 + (uint64_t)i);
    for (int k = 0; k < 2; k++) {
        weft_error error;
        b.skip = k ? NULL : "fuse";
        weft_plan *plan =
            weft_plan_new(b.g, b.target, 1, &(weft_plan_options){.skip = b.skip}, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        CU_ASSERT_EQUAL(weft_plan_stats_of(plan).fused, k ? fused : 0);
        weft_plan_free(plan);
        CU_ASSERT_TRUE(run(&b, in, 1 + k, out[k]));
    }
    CU_ASSERT_EQUAL(
        memcmp(out[0][0].data, out[1][0].data, weft_tensor_bytes(out[0][0].dtype, out[0][0].shape)),
        0);
    for (int i = 0; i < 4; i++) free(in[i]);
    free(out[0][0].data);
    free(out[1][0].data);
    weft_graph_free(b.g);
}

static void test_fusion(void)
{
    static const struct {
        layer l;
        size_t fused;
    } cases[] = {
        {{.x = {4, {17, 5, 16, 20}},
          .w = {4, {9, 5, 3, 3}},
          .options = {.pad_begin = {1, 1}, .pad_end = {1, 1}}},
         2},
        {{.x = {4, {9, 6, 16, 20}}, .w = {4, {16, 3, 1, 1}}, .options = {.groups = 2}}, 2},
        {{.x = {4, {3, 5, 70, 60}},
          .w = {4, {10, 1, 3, 3}},
          .options = {.pad_begin = {1, 1}, .pad_end = {1, 1}, .groups = 5}},
         2},
        {{.x = {4, {2, 40, 20, 21}},
          .w = {4, {40, 1, 3, 2}},
          .options = {.stride = {2, 2}, .groups = 40}},
         2},
        {{.x = {3, {2, 3, 700}}, .w = {3, {3, 1, 5}}, .options = {.groups = 3}}, 2},
        {{.x = {4, {1, 5, 16, 20}}, .w = {4, {9, 5, 3, 3}}}, 1},
        {{.x = {4, {20, 5, 7, 7}}, .w = {4, {9, 5, 1, 1}}}, 1},
        {{.x = {4, {20, 3, 7, 9}}, .w = {4, {3, 1, 1, 1}}, .options = {.groups = 3}}, 1},
        {{.x = {3, {2, 3, 2500}}, .w = {3, {3, 1, 5}}, .options = {.groups = 3}}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_fused(&cases[i].l, cases[i].fused);
}

void conv_tests(void)
{
    CU_pSuite suite = CU_add_suite("conv", NULL, NULL);
    CU_add_test(suite, "convolutions of random shapes equal naive references",
                test_random_convolutions);
    CU_add_test(suite, "the padding adds nothing to infinite sums", test_infinite);
    CU_add_test(suite, "pooling of random shapes equals naive references", test_random_pools);
    CU_add_test(suite, "several tiles", test_tiles);
    CU_add_test(suite, "fusion", test_fusion);
}
