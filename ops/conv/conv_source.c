/* Convolutions and pooling as C (emit/plain/conv.h and pool.h): the sizes, and the cuts of sums that
 * shapes choose, become arrays of the file. */
#include "conv_bytes.h"
#include "conv_path.h"
#include "conv_rows.h"
#include "conv_source.h"

#include <limits.h>
#include <math.h>

/* A list of integers under way. */
typedef struct int_list {
    int64_t at[64];
    size_t n;
} int_list;

static void add(int_list *l, int64_t x)
{
    l->at[l->n++] = x;
}

static void add_all(int_list *l, const int64_t *x, int n)
{
    for (int i = 0; i < n; i++) add(l, x[i]);
}

/* Whether all places that windows reach fit an int; refuses the op if not. */
static bool fits(weft_source *s, const int64_t *out, const int64_t *stride, const int64_t *kernel,
                 const int64_t *dilation, const int64_t *begin, int n)
{
    for (int d = 0; d < n; d++) {
        const double reach = (double)out[d] * (double)stride[d] +
                             (double)kernel[d] * (double)dilation[d] + (double)begin[d];
        if (reach < INT_MAX && stride[d] < INT_MAX) continue;
        s->receiver->fail(s, "its windows reach over 2^31 - 1 elements");
        return false;
    }
    return true;
}

/* A conv_shape of emit/plain/conv.h. */
static int_list shape_of(const conv_sizes *z, bool transposed, bool planes, bool finite)
{
    int_list l = {.n = 0};
    const int64_t group = z->out_channels * z->in_channels * z->taps;
    const int64_t out_step = z->in_channels * z->taps;
    int64_t first[PATCH_DIMS] = {0}, used[PATCH_DIMS];
    for (int d = 0; d < PATCH_DIMS; d++) {
        used[d] = z->kernel[d];
        if (!planes) conv_used_taps(z, d, &first[d], &used[d]);
    }
    const int64_t sizes[] = {z->images,
                             z->groups,
                             transposed ? z->out_channels : z->in_channels,
                             transposed ? z->in_channels : z->out_channels,
                             transposed,
                             planes,
                             finite,
                             transposed ? z->out_volume : z->in_volume,
                             transposed ? z->in_volume : z->out_volume,
                             z->taps,
                             group,
                             transposed ? out_step : z->taps,
                             transposed ? z->taps : out_step};
    add_all(&l, sizes, sizeof sizes / sizeof *sizes);
    add_all(&l, transposed ? z->out : z->in, PATCH_DIMS);
    add_all(&l, transposed ? z->in : z->out, PATCH_DIMS);
    add_all(&l, z->kernel, PATCH_DIMS);
    add_all(&l, z->stride, PATCH_DIMS);
    add_all(&l, z->dilation, PATCH_DIMS);
    add_all(&l, z->begin, PATCH_DIMS);
    add_all(&l, first, PATCH_DIMS);
    add_all(&l, used, PATCH_DIMS);
    return l;
}

static bool sizes_fit(weft_source *s, const conv_sizes *z)
{
    return fits(s, z->out, z->stride, z->kernel, z->dilation, z->begin, PATCH_DIMS);
}

/* Whether a tensor is a constant without infinities and NaN. */
static bool is_finite(const weft_tensor *t)
{
    const int64_t n = weft_shape_numel(t->shape);
    const float *f32 = t->data;
    const double *f64 = t->data;
    if (!t->data || (t->dtype != WEFT_F32 && t->dtype != WEFT_F64)) return false;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(t->dtype == WEFT_F32 ? (double)f32[i] : f64[i])) return false;
    return true;
}

static void gather(weft_source *s, const conv_sizes *z, bool transposed)
{
    const bool planes = weft__conv_path_of(z, transposed) == CONV_BY_PLANES;
    const int_list shape = shape_of(z, transposed, planes, is_finite(&s->in[1]));
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1),
                                    s->n_in > 2 ? WEFT_ARG_IN(2) : WEFT_ARG_NONE, WEFT_ARG_OUT(0),
                                    WEFT_ARG_INTS(shape.at, shape.n)};
    weft_source_call_of(s, transposed ? "conv_gather_back" : "conv_gather", args, 5);
}

void weft__conv_source(weft_source *s)
{
    const conv_sizes z = conv_sizes_of(s->attr, &s->in[0].shape, &s->in[1].shape, &s->out[0].shape);
    if (sizes_fit(s, &z)) gather(s, &z, false);
}

void weft__conv_source_input(weft_source *s)
{
    const conv_sizes z = conv_sizes_of(s->attr, &s->out[0].shape, &s->in[1].shape, &s->in[0].shape);
    if (!sizes_fit(s, &z)) return;
    if (weft__conv_path_of(&z, true) != CONV_BY_COLUMNS) {
        gather(s, &z, true);
        return;
    }
    const conv_columns c = conv_columns_of(&z);
    const int_list shape = shape_of(&z, false, false, false);
    const weft_source_arg args[] = {WEFT_ARG_IN(0),      WEFT_ARG_IN(1),
                                    WEFT_ARG_OUT(0),     WEFT_ARG_INTS(shape.at, shape.n),
                                    WEFT_ARG_INT(c.cut), WEFT_ARG_INT(c.slab)};
    weft_source_call_of(s, "conv_scatter", args, 6);
}

void weft__conv_source_weight(weft_source *s)
{
    const conv_sizes z = conv_sizes_of(s->attr, &s->in[0].shape, &s->out[0].shape, &s->in[1].shape);
    const bool planes = weft__conv_weight_is_direct(&z);
    const int_list shape = shape_of(&z, false, planes, false);
    int64_t cut[2];
    if (!sizes_fit(s, &z)) return;
    if (planes) {
        const conv_planes p = conv_planes_of(&z, false);
        cut[0] = p.rows;
        cut[1] = p.columns;
    } else {
        const conv_reduction r = conv_reduction_of(z);
        cut[0] = r.chunk;
        cut[1] = r.piece;
    }
    const weft_source_arg args[] = {WEFT_ARG_IN(0),       WEFT_ARG_IN(1),
                                    WEFT_ARG_OUT(0),      WEFT_ARG_INTS(shape.at, shape.n),
                                    WEFT_ARG_INT(cut[0]), WEFT_ARG_INT(cut[1])};
    weft_source_call_of(s, planes ? "conv_plane_weights" : "conv_weights", args, 6);
}

/* A pool_shape of emit/plain/pool.h. Each channel is an image. */
void weft__conv_source_max_pool(weft_source *s)
{
    const pool_attr *a = s->attr;
    const weft_shape *x = &s->in[0].shape;
    weft_shape w = {2, {1, 1}};
    for (int d = 0; d < a->kernel.rank; d++) w.dim[w.rank++] = a->kernel.dim[d];
    const conv_sizes z = conv_sizes_of(&a->window, x, &w, &s->out[0].shape);
    int_list shape = {.n = 0};
    add(&shape, x->dim[0] * x->dim[1]);
    const int64_t *const sizes[] = {z.in, z.out, z.kernel, z.stride, z.dilation, z.begin};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) add_all(&shape, sizes[i], PATCH_DIMS);
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0), WEFT_ARG_OUT_READ(1),
                                    WEFT_ARG_INTS(shape.at, shape.n)};
    if (sizes_fit(s, &z)) weft_source_call_of(s, "max_pool", args, 4);
}

/* The sizes with which structs of images with innermost channels begin. */
static int_list list_of(const conv_rows_sizes *z)
{
    int_list l = {.n = 0};
    add(&l, z->images);
    add_all(&l, z->in, 2);
    add_all(&l, z->out, 2);
    add(&l, z->channels);
    add(&l, z->columns);
    add_all(&l, z->kernel, 2);
    add_all(&l, z->stride, 2);
    add_all(&l, z->dilation, 2);
    add_all(&l, z->begin, 2);
    return l;
}

/* A conv_rows_shape of emit/plain/conv.h. */
void weft__conv_source_rows(weft_source *s, const char *function)
{
    const conv_rows_attr *a = s->attr;
    const weft_call call = {
        .attr = s->attr, .in = s->in, .out = s->out, .n_in = s->n_in, .n_out = s->n_out};
    const conv_rows_sizes z = conv_rows_sizes_of(&call);
    int_list l = list_of(&z);
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    s->n_in > 2 ? WEFT_ARG_IN(2) : WEFT_ARG_NONE,
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INTS(l.at, l.n),
                                    WEFT_ARG_INT(a->bounded),
                                    WEFT_ARG_NUMBER(a->bounded ? a->low : 0),
                                    WEFT_ARG_NUMBER(a->bounded ? a->high : 0)};
    if (fits(s, z.out, z.stride, z.kernel, z.dilation, z.begin, 2))
        weft_source_call_of(s, function, args, 8);
}

/* A conv_bytes_shape of emit/plain/bytes.h. */
void weft__conv_bytes_source(weft_source *s, const char *function)
{
    const conv_bytes_attr *a = s->attr;
    const weft_call call = {
        .attr = s->attr, .in = s->in, .out = s->out, .n_in = s->n_in, .n_out = s->n_out};
    const conv_rows_sizes z = conv_rows_sizes_of(&call);
    int_list l = list_of(&z);
    add(&l, a->dtype == WEFT_U8 ? 1 : a->dtype == WEFT_F32 ? 4 : 0);
    add(&l, a->x_zero);
    add(&l, a->y_zero);
    add(&l, a->rows.bounded || a->dtype == WEFT_U8);
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    WEFT_ARG_IN(2),
                                    s->n_in > 3 ? WEFT_ARG_IN(3) : WEFT_ARG_NONE,
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INTS(l.at, l.n),
                                    WEFT_ARG_DOUBLE(a->rows.bounded ? a->rows.low : 0),
                                    WEFT_ARG_DOUBLE(a->rows.bounded ? a->rows.high : 255)};
    if (fits(s, z.out, z.stride, z.kernel, z.dilation, z.begin, 2))
        weft_source_call_of(s, function, args, 8);
}

/* A conv_bytes_shape, without what becomes of sums. */
void weft__max_pool_bytes_source(weft_source *s)
{
    const weft_call call = {
        .attr = s->attr, .in = s->in, .out = s->out, .n_in = s->n_in, .n_out = s->n_out};
    const conv_rows_sizes z = conv_rows_sizes_of(&call);
    int_list l = list_of(&z);
    add_all(&l, (int64_t[]){1, 0, 0, 0}, 4);
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0), WEFT_ARG_INTS(l.at, l.n)};
    if (fits(s, z.out, z.stride, z.kernel, z.dilation, z.begin, 2))
        weft_source_call_of(s, "max_pool_bytes", args, 3);
}

/* A winograd_shape of emit/plain/winograd.h. */
void weft__conv_source_winograd(weft_source *s)
{
    const conv_rows_attr *a = s->attr;
    const weft_shape *x = &s->in[0].shape, *y = &s->out[0].shape;
    const int64_t sizes[] = {x->dim[0],           x->dim[1],
                             x->dim[2],           y->dim[1],
                             y->dim[2],           x->dim[3],
                             a->columns,          a->pad_begin.dim[0],
                             a->pad_begin.dim[1], s->in[1].shape.dim[1] == 16 ? 2 : 4};
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_IN(1),
                                    s->n_in > 2 ? WEFT_ARG_IN(2) : WEFT_ARG_NONE,
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INTS(sizes, sizeof sizes / sizeof *sizes),
                                    WEFT_ARG_INT(a->bounded),
                                    WEFT_ARG_NUMBER(a->bounded ? a->low : 0),
                                    WEFT_ARG_NUMBER(a->bounded ? a->high : 0)};
    if (fits(s, y->dim + 1, a->stride.dim, a->kernel.dim, a->dilation.dim, a->pad_begin.dim, 2))
        weft_source_call_of(s, "conv_winograd", args, 8);
}
