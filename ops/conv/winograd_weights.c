/* The weights of a convolution by Winograd's method, G g Gt for the 3 x 3 taps g of each pair of
 * channels. They are computed in f64 and rounded once. O(weights). */
#include "winograd.h"

#include "kernels/panel.h"

#define ROOT 0.70710678118654752 /* sqrt(1/2) */

#ifdef WEFT_KERNEL_ISA

static const double rows_2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
static const double rows_4[6][3] = {{1, 0, 0},
                                    {-2 / 3.0, ROOT * -2 / 3.0, -1 / 3.0},
                                    {-2 / 3.0, ROOT * 2 / 3.0, -1 / 3.0},
                                    {1 / 6.0, ROOT * 2 / 6.0, 1 / 3.0},
                                    {1 / 6.0, ROOT * -2 / 6.0, 1 / 3.0},
                                    {0, 0, 1}};

/* The panel `to`, at position [i, j] of the tile `step` elements from one to the next, of 32 kernels
 * whose tap t lies in g[t]. */
static void transform_weights(int64_t m, const double (*g)[PANEL], T *to, int64_t step)
{
    const double(*rows)[3] = m == 2 ? rows_2 : rows_4;
    for (int64_t i = 0; i < m + 2; i++) {
        const double *a = rows[i];
        double line[3][PANEL];
        for (int q = 0; q < 3; q++)
            SIMD_FOR (k, PANEL)
                line[q][k] = (a[0] * g[q][k] + a[1] * g[3 + q][k]) + a[2] * g[6 + q][k];
        for (int64_t j = 0; j < m + 2; j++, to += step) {
            const double *b = rows[j];
            SIMD_FOR (k, PANEL)
                to[k] = (T)((b[0] * line[0][k] + b[1] * line[1][k]) + b[2] * line[2][k]);
        }
    }
}

KERNEL(winograd_weights)
{
    const winograd_weights_attr *a = call->attr;
    const weft_shape *shape = &call->in[0].shape;
    const int64_t channels = shape->dim[1], first = tile * PANEL, left = shape->dim[0] - first;
    const int64_t columns = left < PANEL ? left : PANEL, n = a->tile + 2;
    const T *w = (const T *)call->in[0].data + first * channels * 9;
    T *to = (T *)call->out[0].data + first * n * n * channels;
    double g[9][PANEL] = {{0}};
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t k = 0; k < columns; k++)
            for (int t = 0; t < 9; t++) g[t][k] = w[(k * channels + c) * 9 + t];
        transform_weights(a->tile, (const double(*)[PANEL])g, to + c * PANEL, channels * PANEL);
    }
}

#else

#include "samples.h"

#include <weft/source.h>

static bool infer_winograd_weights(weft_infer *infer)
{
    char text[128];
    const winograd_weights_attr *a = infer->attr;
    const weft_shape w = infer->in[0].shape;
    if (!weft_infer_float(infer, 0)) return false;
    if (w.rank != 4 || w.dim[2] != 3 || w.dim[3] != 3 || (a->tile != 2 && a->tile != 4))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "weights %s, tile %lld: expected [results, channels, 3, 3] and a "
                               "tile of 2 or 4",
                               weft_shape_text(w, text, sizeof text), (long long)a->tile);
    const int64_t n = a->tile + 2;
    infer->out[0] =
        (weft_type){infer->in[0].dtype, WEFT_SHAPE(panel_count(w.dim[0]), n * n, w.dim[1], PANEL)};
    return true;
}

static int64_t tiles_winograd_weights(const weft_call *call)
{
    return panel_count(call->in[0].shape.dim[0]);
}

static void source_winograd_weights(weft_source *s)
{
    const winograd_weights_attr *a = s->attr;
    const weft_shape *w = &s->in[0].shape;
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0), WEFT_ARG_INT(w->dim[0]),
                                    WEFT_ARG_INT(w->dim[1]), WEFT_ARG_INT(a->tile)};
    weft_source_call_of(s, "winograd_weights", args, 5);
}

static const winograd_weights_attr two = {2}, four = {4};
static const weft_sample samples_winograd_weights[] = {
    {&two, 1, {UNIT_FLOATS({4, {35, 2, 3, 3}})}},
    {&four, 1, {UNIT_FLOATS({4, {5, 3, 3, 3}})}},
    {&four, 1, {UNIT_FLOATS({4, {0, 3, 3, 3}})}},
};
static const weft_attr_field winograd_weights_fields[] = {
    {"tile", WEFT_ATTR_INT64, offsetof(winograd_weights_attr, tile)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(winograd_weights);
const weft_op weft_op_winograd_weights = {
    .name = "winograd_weights",
    .doc = "u [panels, positions, c, 32] from w [o, c, 3, 3]: G g Gt for tiles of 2 x 2 or 4 x 4 "
           "pixels, 32 columns side by side, zeros beyond the last. Read by conv_winograd.",
    .inputs = "w",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(winograd_weights_attr),
    .attrs = winograd_weights_fields,
    .infer = infer_winograd_weights,
    .kernel = FLOAT_KERNELS(winograd_weights),
    .tiles = tiles_winograd_weights,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_winograd_weights,
    .samples = samples_winograd_weights,
    .n_samples = sizeof samples_winograd_weights / sizeof *samples_winograd_weights,
};

#endif
