/* The kernels of conv and conv_grad_input: matrix products whose panels are packed straight from
 * the image (kernels/patches.h). O(result x taps x channels of a group). Tiles follow from shapes,
 * and each sum runs over pieces of its terms in order, so that the bits do not depend on threads.
 */
#include "conv_path.h"

/* ---- conv and conv_grad_input ---- */

typedef struct operands {
    const weft_tensor *source, *w, *bias, *result;
} operands;

/* The block of rows of tile `index` of either phase: a group of a class. */
typedef struct row_block {
    conv_class class;
    int64_t group, row, rows;
    int64_t depth;
    int64_t blocks, height; /* of rows that the micro-kernel takes at once */
    T *packed;
} row_block;

static row_block row_block_at(const weft_call *call, const conv_product *p, int64_t index)
{
    const int64_t in_class = index % (p->z.groups * p->tiles_m);
    row_block b = {.class = conv_class_at(p, index / (p->z.groups * p->tiles_m)),
                   .group = in_class / p->tiles_m,
                   .row = in_class % p->tiles_m * p->tile_m,
                   .packed = (T *)call->scratch + index * p->area};
    b.rows = b.row + p->tile_m < p->rows ? p->tile_m : p->rows - b.row;
    b.depth = p->channels * patch_volume(b.class.grid.taps);
    b.height = gemm_even_height(b.rows);
    b.blocks = ceil_div(b.rows, b.height);
    return b;
}

/* Row r of tap t of channel c is w[r down + c across + t each]. */
typedef struct weight_block {
    const T *w;
    int64_t down, across, each, rows;
} weight_block;

/* Packs a tap of n channels of block i, as steps [first, first + n) of the depth. The weights are
 * those of the tap, and begin with the first of the channels. */
static void pack_tap(const row_block *b, const weight_block *x, const T *from, int64_t i,
                     int64_t first, int64_t n)
{
    for (int64_t k = first; k < first + n; k++, from += x->across) {
        const int64_t piece = k - k % GEMM_DEPTH;
        const int64_t depth = b->depth - piece < GEMM_DEPTH ? b->depth - piece : GEMM_DEPTH;
        T *out = b->packed + (piece * b->blocks + i * depth + k - piece) * GEMM_STEP;
        if (x->down == 1)
            memcpy(out, from, GEMM_STEP * sizeof *out);
        else
            for (int64_t r = 0; r < x->rows; r++) out[r] = from[r * x->down];
    }
}

/* Channels [c, c + n) of the block, transposed, so that the rows of a step lie side by side. */
static weight_block transposed(const weight_block *x, int64_t taps, int64_t c, int64_t n, T *out)
{
    const bool dense = x->across == taps; /* channels are contiguous */
    const int64_t at_once = dense ? n : 1;
    for (int64_t q = 0; q < n; q += at_once)
        gemm_transpose(x->w + (c + q) * x->across, x->down, x->rows, at_once * taps,
                       out + q * taps * GEMM_STEP, GEMM_STEP);
    return (weight_block){out, 1, taps * GEMM_STEP, GEMM_STEP, x->rows};
}

/* Of a kernel of one tap, or of one channel, the weights are a matrix, which is packed like any
 * other. Its steps are `outer` apart. */
static void pack_matrix(const row_block *b, const weight_block *x, int64_t outer, int64_t i)
{
    for (int64_t k = 0; k < b->depth; k += GEMM_DEPTH) {
        const int64_t depth = b->depth - k < GEMM_DEPTH ? b->depth - k : GEMM_DEPTH;
        gemm_pack(&(gemm_packing){.x = x->w + k * outer,
                                  .inner = x->down,
                                  .outer = outer,
                                  .rows = x->rows,
                                  .height = x->rows,
                                  .k = depth,
                                  .out = b->packed + (k * b->blocks + i * depth) * GEMM_STEP,
                                  .step = GEMM_STEP});
    }
}

/* Packs the weights of block i of rows: of element w[r, c, tap], or w[c, r, tap] in
 * conv_grad_input. `space` is for the steps of conv_pack_channels. */
static void pack_weights(const conv_product *p, const row_block *b, const T *w, int64_t i, T *space)
{
    const int64_t taps = p->z.taps, volume = patch_volume(b->class.grid.taps);
    const int64_t wide = p->z.in_channels * taps, first = b->row + i * b->height;
    const int64_t left = b->row + b->rows - first;
    weight_block x = {.down = p->transposed ? taps : wide,
                      .across = p->transposed ? wide : taps,
                      .each = 1,
                      .rows = left < b->height ? left : b->height};
    x.w = w + b->group * p->z.out_channels * wide + first * x.down;
    if (taps == 1 || (p->channels == 1 && volume == taps)) {
        pack_matrix(b, &x, taps == 1 ? x.across : 1, i);
        return;
    }
    const int64_t at_once = conv_pack_channels(p);
    for (int64_t c = 0, n; c < p->channels; c += n) {
        n = p->channels - c < at_once ? p->channels - c : at_once;
        weight_block y = x;
        y.w += c * x.across;
        if (taps <= CONV_PACK_STEPS && conv_packs_dense(taps, volume))
            y = transposed(&x, taps, c, n, space);
        for (int64_t t = 0; t < volume; t++) {
            int64_t at[PATCH_DIMS], tap = 0;
            patch_coordinates(t, b->class.grid.taps, at);
            for (int d = 0; d < PATCH_DIMS; d++)
                tap = tap * p->z.kernel[d] + b->class.first[d] + at[d] * p->every[d];
            pack_tap(b, &y, y.w + tap * y.each, i, t * p->channels + c, n);
        }
    }
}

/* Columns of a tile: n from `first` on, of a group of a class. */
typedef struct column_block {
    int64_t first, n;
    patch_source source;
} column_block;

static column_block column_block_at(const conv_product *p, const operands *o, const conv_class *c,
                                    int64_t group, int64_t index)
{
    const int64_t columns = p->z.images * patch_volume(c->grid.grid);
    const T *x = o->source->data;
    column_block b = {
        .first = index * p->tile_n,
        .source = {&c->grid, x + group * p->channels * p->source, x + numel_of(&o->source->shape)}};
    b.n = b.first + p->tile_n < columns ? p->tile_n : columns - b.first;
    return b;
}

/* Rows [k, k + depth) of the columns as panels. */
static void pack_columns(const column_block *b, int64_t k, int64_t depth, T *panels)
{
    for (int64_t j = 0; j < b->n; j += GEMM_COLUMNS)
        patch_pack(&b->source, b->first + j, b->n - j < GEMM_COLUMNS ? b->n - j : GEMM_COLUMNS, k,
                   depth, panels + j * depth, GEMM_COLUMNS);
}

/* Where phase 0 packs piece 0 of the patches of a tile of columns. */
static T *shared_panels(const weft_call *call, const conv_product *p, int64_t index)
{
    return (T *)call->scratch + conv_weight_area(p) + index * p->pieces * p->patch;
}

static void pack_shared(const weft_call *call, const conv_product *p, const operands *o,
                        int64_t index)
{
    const int64_t tile = index / p->pieces, k = index % p->pieces * GEMM_DEPTH;
    const int64_t group = tile / p->tiles_n % p->z.groups;
    const conv_class class = conv_class_at(p, tile / p->tiles_n / p->z.groups);
    const column_block b = column_block_at(p, o, &class, group, tile % p->tiles_n);
    const int64_t left = p->channels * patch_volume(class.grid.taps) - k;
    if (b.n > 0 && left > 0)
        pack_columns(&b, k, left < GEMM_DEPTH ? left : GEMM_DEPTH,
                     shared_panels(call, p, tile) + index % p->pieces * p->patch);
}

/* Where phase 0 writes what its tiles have found: 1 for a weight that is not finite, or 0. */
static T *findings(const weft_call *call, const conv_product *p)
{
    return (T *)call->scratch + conv_weight_area(p) + conv_shared_patches(p) * p->patch;
}

/* Part `index` of the search for weights that are not finite. */
static void search_weights(const weft_call *call, const conv_product *p, const weft_tensor *w,
                           int64_t index)
{
    const int64_t n = numel_of(&w->shape), each = ceil_div(n, conv_findings(p));
    const int64_t begin = index * each < n ? index * each : n;
    const int64_t left = n - begin < each ? n - begin : each;
    findings(call, p)[index] = !conv_all_finite((const T *)w->data + begin, left);
}

/* Whether the weights of a block are known to be finite. */
static bool weights_are_finite(const weft_call *call, const conv_product *p, const row_block *b)
{
    if (!p->few_weights) return false;
    T found = 0;
    const T *each = findings(call, p);
    for (int64_t i = 0; i < conv_findings(p); i++) found += each[i];
    if (!p->own_weights) return found == 0;
    const int64_t wide = p->channels * p->z.taps;
    const T *w = (const T *)call->in[1].data + (b->group * p->rows + b->row) * wide;
    return conv_all_finite(w, b->rows * wide);
}

/* A part of the packing and, where some pixels are in no class, of the zeros for them. */
static void prepare(const weft_call *call, const conv_product *p, const operands *o, int64_t tile)
{
    const int64_t shared = conv_shared_patches(p);
    if (tile < shared) {
        pack_shared(call, p, o, tile);
    } else {
        const row_block b = row_block_at(call, p, (tile - shared) / p->packs);
        const int64_t part = (tile - shared) % p->packs;
        for (int64_t i = part * b.blocks / p->packs; i < (part + 1) * b.blocks / p->packs; i++)
            pack_weights(p, &b, o->w->data, i, weft_call_workspace(call));
        if (conv_findings(p)) search_weights(call, p, o->w, tile - shared);
    }
    bool covered = true;
    for (int d = 0; d < PATCH_DIMS; d++)
        covered &= !p->transposed || p->classes[d] == p->z.stride[d];
    if (covered) return;
    const int64_t n = numel_of(&o->result->shape);
    const int64_t each = ceil_div(n, call->tiles), begin = tile * each;
    const int64_t end = begin + each < n ? begin + each : n;
    if (begin < end) memset((T *)o->result->data + begin, 0, (size_t)(end - begin) * sizeof(T));
}

/* offset[i]: of column first + i of a class in the first row of a group of the result. */
static void column_offsets(const conv_product *p, const conv_class *c, int64_t first, int64_t n,
                           int64_t *offset)
{
    const int64_t points = patch_volume(c->grid.grid);
    const int64_t *size = p->transposed ? p->z.in : p->z.out;
    int64_t image = first / points, at[PATCH_DIMS];
    patch_coordinates(first % points, c->grid.grid, at);
    for (int64_t i = 0; i < n;) {
        int64_t pixel = 0, count = c->grid.grid[PATCH_DIMS - 1] - at[PATCH_DIMS - 1];
        for (int d = 0; d < PATCH_DIMS; d++)
            pixel = pixel * size[d] + c->origin[d] + at[d] * c->spacing[d];
        pixel += image * p->z.groups * p->rows * p->result;
        if (count > n - i) count = n - i;
        for (int64_t q = 0; q < count; q++) offset[i + q] = pixel + q * c->spacing[PATCH_DIMS - 1];
        i += count;
        image += patch_next_row(c->grid.grid, at);
    }
}

/* A block of sums, of which `columns` are in the result, at these offsets. Contiguous columns are
 * written by the micro-kernel itself, others through `corner`. */
static void write_block(gemm_kernels sums, gemm_block o, int64_t rows, int64_t columns,
                        const int64_t *offset, T *corner)
{
    if (offset[columns - 1] - offset[0] == columns - 1) {
        o.c += offset[0];
        gemm_write_block(sums, o, rows, columns, corner);
        return;
    }
    for (int64_t r = 0; o.add && r < rows; r++)
        for (int64_t q = 0; q < columns; q++)
            corner[r * GEMM_COLUMNS + q] = o.c[r * o.c_row + offset[q]];
    (columns <= SIMD_LANES ? sums.narrow : sums.whole)(o.k, o.a, o.b, o.b_step, corner,
                                                       GEMM_COLUMNS, o.add, o.first);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t q = 0; q < columns; q++)
            o.c[r * o.c_row + offset[q]] = corner[r * GEMM_COLUMNS + q];
}

/* Does the window of a column reach outside of the source? */
static bool reads_padding(const patches *g, int64_t column)
{
    int64_t at[PATCH_DIMS];
    bool out = false;
    patch_coordinates(column % patch_volume(g->grid), g->grid, at);
    for (int d = 0; d < PATCH_DIMS; d++)
        out |= conv_reaches_out(g->start[d] + at[d] * g->grid_step[d], g->tap_step[d], g->taps[d],
                                g->source[d]);
    return out;
}

/* An element of a row of the block, without the padding. */
static T sum_inside(const conv_product *p, const operands *o, const row_block *b, int64_t row,
                    int64_t column)
{
    const patches *g = &b->class.grid;
    const int64_t wide = p->z.in_channels * p->z.taps, points = patch_volume(g->grid);
    const int64_t down = p->transposed ? p->z.taps : wide;
    const int64_t across = p->transposed ? wide : p->z.taps;
    const T *w = (const T *)o->w->data + b->group * p->z.out_channels * wide + row * down;
    const T *x = (const T *)o->source->data + b->group * p->channels * p->source +
                 column / points * g->image_step;
    T sum = o->bias ? ((const T *)o->bias->data)[b->group * p->rows + row] : 0;
    int64_t at[PATCH_DIMS], tap[PATCH_DIMS];
    patch_coordinates(column % points, g->grid, at);
    for (int64_t t = 0; t < patch_volume(g->taps); t++) {
        int64_t pixel = 0, place = 0;
        bool inside = true;
        patch_coordinates(t, g->taps, tap);
        for (int d = 0; d < PATCH_DIMS; d++) {
            const int64_t i = g->start[d] + at[d] * g->grid_step[d] + tap[d] * g->tap_step[d];
            inside &= i >= 0 && i < g->source[d];
            pixel = pixel * g->source[d] + i;
            place = place * p->z.kernel[d] + b->class.first[d] + tap[d] * p->every[d];
        }
        for (int64_t c = 0; inside && c < p->channels; c++)
            sum = FMA(w[c * across + place], x[c * p->source + pixel], sum);
    }
    return sum;
}

/* Whether all weights of a row of the result are finite. */
static bool row_is_finite(const conv_product *p, const operands *o, const row_block *b, int64_t row)
{
    const int64_t taps = p->z.taps, wide = p->z.in_channels * taps;
    const T *w = (const T *)o->w->data + b->group * p->z.out_channels * wide +
                 row * (p->transposed ? taps : wide);
    bool finite = true;
    for (int64_t c = 0; finite && c < p->channels; c++)
        finite = conv_all_finite(w + c * (p->transposed ? wide : taps), taps);
    return finite;
}

static bool has_nan_at(const T *c, const int64_t *offset, int64_t n)
{
    bool found = false;
    for (int64_t j = 0; j < n; j++) found |= c[offset[j]] != c[offset[j]];
    return found;
}

/* Computes the NaN of a product again (conv.h). offset[j] is that of column j in a row of c. */
static void mend(const conv_product *p, const operands *o, const row_block *b,
                 const column_block *columns, const int64_t *offset, T *c)
{
    const int64_t n = columns->n;
    const bool dense = offset[n - 1] - offset[0] == n - 1;
    for (int64_t r = 0; r < b->rows; r++, c += p->result) {
        const bool bad = dense ? conv_has_nan(c + offset[0], n) : has_nan_at(c, offset, n);
        if (!bad || row_is_finite(p, o, b, b->row + r)) continue;
        for (int64_t j = 0; j < n; j++)
            if (c[offset[j]] != c[offset[j]] && reads_padding(&b->class.grid, columns->first + j))
                c[offset[j]] = sum_inside(p, o, b, b->row + r, columns->first + j);
    }
}

/* The product of a block of rows and a block of columns. If no padding is multiplied, or only by
 * weights that are `finite`, sums are right as they are. */
static void multiply(const weft_call *call, const conv_product *p, const operands *o,
                     const row_block *b, const column_block *columns, T *shared, bool finite)
{
    const int64_t n = columns->n, channel = b->group * p->rows + b->row;
    int64_t offset[CONV_COLUMNS];
    column_offsets(p, &b->class, columns->first, n, offset);
    T *c = (T *)o->result->data + channel * p->result;
    T *corner = weft_call_workspace(call), *panels = corner + GEMM_ROWS * GEMM_COLUMNS;
    const gemm_kernels whole = gemm_of_height(b->height),
                       last = gemm_of_height(b->rows - (b->blocks - 1) * b->height);
    const T *bias = o->bias ? (const T *)o->bias->data + channel : NULL;
    int64_t k = 0;
    do { /* also once for a depth of 0 */
        const int64_t depth = b->depth - k < GEMM_DEPTH ? b->depth - k : GEMM_DEPTH;
        if (shared)
            panels = shared + k / GEMM_DEPTH * p->patch;
        else
            pack_columns(columns, k, depth, panels);
        for (int64_t i = 0; i < b->blocks; i++) {
            const int64_t left = b->rows - i * b->height,
                          rows = left < b->height ? left : b->height;
            T first[GEMM_ROWS] = {0};
            if (bias) memcpy(first, bias + i * b->height, (size_t)rows * sizeof *first);
            for (int64_t j = 0; j < n; j += GEMM_COLUMNS) {
                const gemm_block block = {.k = depth,
                                          .a = b->packed + (k * b->blocks + i * depth) * GEMM_STEP,
                                          .b = panels + j * depth,
                                          .b_step = GEMM_COLUMNS,
                                          .c = c + i * b->height * p->result,
                                          .c_row = p->result,
                                          .add = k > 0,
                                          .first = bias && k == 0 ? first : NULL};
                write_block(i < b->blocks - 1 ? whole : last, block, rows,
                            n - j < GEMM_COLUMNS ? n - j : GEMM_COLUMNS, offset + j, corner);
            }
        }
        k += GEMM_DEPTH;
    } while (k < b->depth);
    if (!finite) mend(p, o, b, columns, offset, c);
}

static void compute(const weft_call *call, const conv_product *p, const operands *o, int64_t tile)
{
    const int64_t tm = tile % p->tiles_m, rest = tile / p->tiles_m;
    const row_block b = row_block_at(call, p, rest / p->tiles_n * p->tiles_m + tm);
    column_block c = column_block_at(p, o, &b.class, b.group, p->whole ? 0 : rest % p->tiles_n);
    for (int64_t i = 0; p->own_weights && i < b.blocks; i++)
        pack_weights(p, &b, o->w->data, i, weft_call_workspace(call));
    const bool finite = !p->padded || weights_are_finite(call, p, &b);
    if (!p->whole) {
        if (c.n > 0)
            multiply(call, p, o, &b, &c, p->shared ? shared_panels(call, p, rest) : NULL, finite);
        return;
    }
    const int64_t first = rest % p->tiles_n * p->result;
    for (int64_t j = 0; j < p->result; j += p->tile_n) {
        c.first = first + j;
        c.n = p->result - j < p->tile_n ? p->result - j : p->tile_n;
        multiply(call, p, o, &b, &c, NULL, finite);
    }
}

static void run_product(const weft_call *call, conv_sizes z, bool transposed, int64_t tile)
{
    const conv_path path = weft__conv_path_of(&z, transposed);
    if (path == CONV_BY_PLANES) {
        KERNEL_NAME(conv_planes)(call, tile);
        return;
    }
    if (path == CONV_BY_COLUMNS) {
        KERNEL_NAME(conv_columns)(call, tile);
        return;
    }
    const conv_product p = conv_product_of(z, transposed);
    const operands o = {&call->in[0], &call->in[1], call->n_in > 2 ? &call->in[2] : NULL,
                        &call->out[0]};
    if (call->phase == 0)
        prepare(call, &p, &o, tile);
    else
        compute(call, &p, &o, tile);
}

KERNEL(conv)
{
    const weft_tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    run_product(call, conv_sizes_of(call->attr, &x->shape, &w->shape, &y->shape), false, tile);
}

KERNEL(conv_grad_input)
{
    const weft_tensor *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    run_product(call, conv_sizes_of(call->attr, &dx->shape, &w->shape, &dy->shape), true, tile);
}
