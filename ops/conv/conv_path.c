/* The choice of a kernel by work: see conv_path.h. */
#include "conv_path.h"

/* The work of both paths of conv and conv_grad_weight for one channel of the image and its group's
 * channels of the result, in multiplications of vectors. The constants are fitted to the times of
 * 220 random shapes on an AMD EPYC with AVX-512; with them, the path taken was at most 2.7 times
 * slower than the other. At steps above 2, vectors are loaded one element at a time. */
#define CONV_DIRECT_STEP(step) ((step) == 1 ? 1.0 : (step) == 2 ? 1.6 : 9.0)
#define CONV_DIRECT_SLAB       7.0  /* to copy a vector with its padding */
#define CONV_PACK_PANEL        60.0 /* to pack a tap of a panel of patches, */
#define CONV_PACK_ROW          5.0  /* and of each row of pixels in it */
#define CONV_PANEL_PRODUCT     1.4  /* of a panel and a channel */
#define CONV_RUN_PRODUCT       1.8  /* of a pixel and 16 channels in conv_grad_weight */
#define CONV_RUN_ROW           5.0  /* to find the runs of a row of pixels */

static double conv_direct_work(const conv_sizes *z, const conv_planes *p)
{
    const double blocks = (double)(p->down * p->across);
    return (double)z->out_channels *
           ((double)(p->height * ceil_div(p->width, 16) * z->taps) * CONV_DIRECT_STEP(p->step[1]) +
            blocks * (double)p->slab_rows * (double)p->slab_width / 16 * CONV_DIRECT_SLAB);
}

static double conv_panel_work(const conv_sizes *z)
{
    const double pixels = (double)z->out_volume, rows = (double)z->out[1];
    return (double)z->taps *
           (pixels / 32 *
                (CONV_PACK_PANEL + CONV_PACK_ROW + CONV_PANEL_PRODUCT * (double)z->out_channels) +
            rows * CONV_PACK_ROW);
}

/* Products with the padding are left out: estimated by the part of the windows' reach that lies
 * inside. */
static double conv_run_work(const conv_sizes *z)
{
    double inside = 1;
    for (int d = 1; d < PATCH_DIMS; d++) {
        const int64_t reach =
            (z->out[d] - 1) * z->stride[d] + (z->kernel[d] - 1) * z->dilation[d] + 1;
        if (z->in[d] < reach) inside *= (double)z->in[d] / (double)reach;
    }
    return (double)z->taps * ((double)z->out_volume * (double)ceil_div(z->out_channels, 16) *
                                  CONV_RUN_PRODUCT * inside +
                              (double)z->out[1] * CONV_RUN_ROW);
}

/* The work of conv_grad_input by a product with patches of dy for each class, and by one product
 * that is added to the image, in nanoseconds of one thread of an AMD EPYC with AVX-512. The
 * constants are fitted to the times of 770 random shapes there; with them, the path taken was at
 * most 1.8 times slower than the other. */
#define CONV_CLASS_TAP  24.0 /* to find where a panel of patches reads at a tap, */
#define CONV_CLASS_LINE 10.0 /* and for each line of pixels in it */
#define CONV_CLASS_STEP 4.6  /* to pack a channel and tap of a panel */
#define CONV_CLASS_PRODUCT                                                                         \
    0.23 /* of a vector and a row; a kernel of one row takes as long as two */
#define CONV_CLASS_WEIGHT    0.5  /* to pack one, where a class has few of the taps, */
#define CONV_CLASS_DENSE     0.18 /* and where it has many, for each weight of all classes */
#define CONV_CLASS_COLUMN    1.6  /* to find where a column is written, */
#define CONV_CLASS_SPREAD    1.2  /* and to write it there, if columns are not neighbours */
#define CONV_CLASS           400.0
#define CONV_COLUMNS_PANEL   15.0
#define CONV_COLUMNS_STEP    3.3  /* to pack a channel of a panel of dy */
#define CONV_COLUMNS_PRODUCT 0.31 /* of a vector and a row; few rows take as long as four */
#define CONV_COLUMNS_LINE    2.2  /* to find where a row is added, for a line of dy in a panel */
#define CONV_COLUMNS_ADD     0.55 /* to add an element to others than neighbours, */
#define CONV_COLUMNS_VECTOR  3.9  /* and a vector to neighbours */
#define CONV_COLUMNS_WEIGHT  0.12 /* to pack one */
#define CONV_COLUMNS_CLEAR   0.7  /* a vector of the image */
#define CONV_DIRECT_UNIT     0.55 /* of conv_direct_work */

static double conv_classes_work(const conv_sizes *z)
{
    const conv_product p = conv_product_of(*z, true);
    const int64_t width = ceil_div(z->in[PATCH_DIMS - 1], z->stride[PATCH_DIMS - 1]);
    const double rows = (double)(p.rows < 2 ? 2 : p.rows), columns = (double)p.columns;
    const double depth = (double)p.depth, taps = depth / (double)p.channels;
    const bool spread = z->stride[PATCH_DIMS - 1] > 1;
    double work = CONV_CLASS;
    work += (double)ceil_div(p.columns, 32) * (taps * CONV_CLASS_TAP + depth * CONV_CLASS_STEP);
    work += (double)ceil_div(p.columns, width) * taps * CONV_CLASS_LINE;
    work += (double)ceil_div(p.columns, 16) * depth * rows * CONV_CLASS_PRODUCT;
    work += columns * CONV_CLASS_COLUMN;
    if (spread) work += columns * (double)p.rows * CONV_CLASS_SPREAD;
    work += (double)p.rows * (conv_packs_dense(z->taps, p.depth / p.channels)
                                  ? (double)(p.channels * z->taps) * CONV_CLASS_DENSE
                                  : depth * CONV_CLASS_WEIGHT);
    return work * (double)(p.n_classes * z->groups);
}

static double conv_columns_work(const conv_sizes *z)
{
    const conv_columns c = conv_columns_of(z);
    const double panels = (double)ceil_div(z->out_volume, 32);
    const double vectors = (double)ceil_div(z->out_volume, 16), depth = (double)z->out_channels;
    const double runs = panels + (double)z->out_volume / (double)z->out[PATCH_DIMS - 1];
    const double add = z->stride[PATCH_DIMS - 1] > 1 ? (double)z->out_volume * CONV_COLUMNS_ADD
                                                     : vectors * CONV_COLUMNS_VECTOR;
    const double rows = (double)c.rows, few = (double)(c.rows < 4 ? 4 : c.rows);
    double work = panels * (CONV_COLUMNS_PANEL + depth * CONV_COLUMNS_STEP);
    work += vectors * depth * few * CONV_COLUMNS_PRODUCT;
    work += rows * (runs * CONV_COLUMNS_LINE + add);
    work += (double)(z->in_channels * z->in_volume) / 16 * CONV_COLUMNS_CLEAR;
    return (double)z->groups * (work * (double)z->images + rows * depth * CONV_COLUMNS_WEIGHT);
}

bool weft__conv_is_direct(const conv_sizes *z, bool transposed)
{
    conv_planes p;
    return conv_planes_fit(z, transposed, &p) &&
           (z->out_channels <= 1 || conv_direct_work(z, &p) <= conv_panel_work(z));
}

conv_path weft__conv_path_of(const conv_sizes *z, bool transposed)
{
    conv_planes p;
    const bool direct = weft__conv_is_direct(z, transposed);
    const conv_path path = direct ? CONV_BY_PLANES : CONV_BY_PRODUCT;
    if (!transposed || z->pointwise || z->images * z->groups == 0 || z->in_volume == 0 ||
        z->in_channels * z->out_channels == 0)
        return path;
    double other = 0;
    if (direct && conv_planes_fit(z, true, &p))
        other = (double)(z->images * z->groups) * conv_direct_work(z, &p) * CONV_DIRECT_UNIT;
    else
        other = conv_classes_work(z);
    return conv_columns_work(z) < other ? CONV_BY_COLUMNS : path;
}

bool weft__conv_weight_is_direct(const conv_sizes *z)
{
    conv_planes p;
    return conv_planes_fit(z, false, &p) &&
           (z->out_channels <= 1 || conv_direct_work(z, &p) <= conv_run_work(z));
}
