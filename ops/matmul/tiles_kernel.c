/* The kernel of matmul_tiles: see tiles.h and kernels/tiles.h. */
#define GEMM_BF16
#include "tiles.h"

#ifdef WEFT_KERNEL_ISA

#define PAIRS (BF16_EACH == 2)

static bf16_matrix matrix_of_tiles(const weft_tensor *t)
{
    const gemm_matrix m = matrix_of(t);
    return (bf16_matrix){t->data, t->dtype == WEFT_F32, m.row, m.column};
}

/* A block of C, of all k. */
typedef struct tiles_task {
    int64_t m, n, k;
    bf16_matrix a, b;
    const T *panels; /* all columns of this batch packed, or NULL */
    void *c;
    bool wide; /* C is f32 */
    int64_t c_row;
    T *workspace; /* a panel, the packed rows, and strips of sums */
    bool packed;  /* the rows are there */
} tiles_task;

/* Adds the products of numbers [p, p + depth) of k to a strip, the sums [m, GEMM_COLUMNS] of the panel
 * from column j on. `rows` are packed from p on. */
static void add_strip(const tiles_task *o, int64_t j, int64_t p, int64_t depth, const T *rows,
                      T *panel, T *sums)
{
    const int64_t width = o->n - j < GEMM_COLUMNS ? o->n - j : GEMM_COLUMNS;
    const T *columns = panel;
    if (o->panels)
        columns = o->panels + j / GEMM_COLUMNS * tiles_panel(o->k) + p / BF16_EACH * GEMM_COLUMNS;
    else
        tiles_pack_panels(bf16_at(o->b, p, j), width, depth, panel);
    for (int64_t i = 0; i < o->m; i += TILES_HEIGHT)
        tiles_sums(&(tiles_block){.a = rows + i * tiles_row(o->k, PAIRS),
                                  .b = columns,
                                  .a_row = tiles_row(o->k, PAIRS),
                                  .k = depth,
                                  .rows = o->m - i < TILES_HEIGHT ? o->m - i : TILES_HEIGHT,
                                  .columns = width,
                                  .c = sums + i * GEMM_COLUMNS,
                                  .add = p > 0});
}

/* Writes columns [first, last) of C from their strips, `strip` elements each. */
static void write_strips(const tiles_task *o, int64_t first, int64_t last, const T *sums,
                         int64_t strip)
{
    for (int64_t i = 0; i < o->m; i++)
        for (int64_t j = first; j < last; j += GEMM_COLUMNS) {
            const int64_t width = last - j < GEMM_COLUMNS ? last - j : GEMM_COLUMNS;
            const T *from = sums + (j - first) / GEMM_COLUMNS * strip + i * GEMM_COLUMNS;
            if (o->wide)
                memcpy((T *)o->c + i * o->c_row + j, from, (size_t)width * sizeof(T));
            else
                half_narrow(from, (uint16_t *)o->c + i * o->c_row + j, width);
        }
}

/* Not inlined: see float_env_flush. */
static __attribute__((noinline)) void tiles_task_sums(const tiles_task *o)
{
    const bool kept = o->k <= TILES_KEPT;
    const int64_t strip = ceil_div(o->m, TILES_EVEN) * TILES_EVEN * GEMM_COLUMNS;
    const int64_t columns = tiles_columns(o->n, o->k), row = tiles_row(o->k, PAIRS);
    /* The rows lie at the same place for each task that has them. */
    T *panel = o->workspace;
    T *rows = panel + tiles_panel(o->k < TILES_DEPTH ? o->k : TILES_DEPTH);
    T *sums = rows + (PAIRS ? strip / GEMM_COLUMNS : o->m) * row;
    tiles_open();
    if (kept && !o->packed) tiles_pack_rows(o->a, o->m, o->k, rows, row);
    for (int64_t first = 0; first < o->n; first += columns) {
        const int64_t last = first + columns < o->n ? first + columns : o->n;
        for (int64_t p = 0; p < o->k; p += TILES_DEPTH) {
            const int64_t depth = o->k - p < TILES_DEPTH ? o->k - p : TILES_DEPTH;
            if (!kept) tiles_pack_rows(bf16_at(o->a, 0, p), o->m, depth, rows, row);
            for (int64_t j = first; j < last; j += GEMM_COLUMNS)
                add_strip(o, j, p, depth, rows + (kept ? p / BF16_EACH : 0), panel,
                          sums + (j - first) / GEMM_COLUMNS * strip);
        }
        write_strips(o, first, last, sums, strip);
    }
    tiles_close();
}

/* Packs a group of columns of B, of one batch. */
static void pack_group(const weft_call *call, const product *p, int64_t tile)
{
    const weft_tensor *tb = &call->in[1];
    const int64_t groups = ceil_div(p->n, TILES_GROUP), batch = tile / groups;
    const int64_t first = tile % groups * TILES_GROUP, left = p->n - first;
    bf16_matrix b = matrix_of_tiles(tb);
    if (!p->rows_joined)
        b.data = (const char *)b.data + batch_offset(tb, &call->out[0], batch) * (b.wide ? 4 : 2);
    T *out = (T *)call->scratch + batch * tiles_packed_columns(p, PAIRS) +
             first / GEMM_COLUMNS * tiles_panel(p->k);
    tiles_pack_panels(bf16_at(b, 0, first), left < TILES_GROUP ? left : TILES_GROUP, p->k, out);
}

KERNEL(matmul_tiles)
{
    const weft_tensor *ta = &call->in[0], *tb = &call->in[1], *tc = &call->out[0];
    const product p = tiles_product(call);
    if (call->phase == 0) {
        pack_group(call, &p, tile);
        return;
    }
    const int64_t tiles = p.tiles_m * p.tiles_n, batch = tile / tiles;
    const int64_t row = tile % tiles / p.tiles_n * p.tile_m, column = tile % p.tiles_n * p.tile_n;
    bf16_matrix a = matrix_of_tiles(ta), b = matrix_of_tiles(tb);
    if (p.rows_joined) {
        a.row = joined_stride(ta, p.k);
        a.column = 1;
    } else {
        a.data = (const char *)a.data + batch_offset(ta, tc, batch) * (a.wide ? 4 : 2);
        b.data = (const char *)b.data + batch_offset(tb, tc, batch) * (b.wide ? 4 : 2);
    }
    const bool wide = tc->dtype == WEFT_F32;
    const int64_t bytes = wide ? 4 : 2;
    int64_t *tag = weft_call_panel_tag(call);
    const int64_t name = 1 + batch * p.tiles_m + row / p.tile_m;
    tiles_task task = {.m = row + p.tile_m < p.m ? p.tile_m : p.m - row,
                       .n = column + p.tile_n < p.n ? p.tile_n : p.n - column,
                       .k = p.k,
                       .a = bf16_at(a, row, 0),
                       .b = bf16_at(b, 0, column),
                       .c = (char *)tc->data + ((batch * p.m + row) * p.n + column) * bytes,
                       .wide = wide,
                       .c_row = p.n,
                       .workspace = weft_call_workspace(call),
                       .packed = *tag == name};
    if (p.shared)
        task.panels = (T *)call->scratch + batch * tiles_packed_columns(&p, PAIRS) +
                      column / GEMM_COLUMNS * tiles_panel(p.k);
    *tag = p.k <= TILES_KEPT ? name : 0;
    for (int64_t i = 0; !p.k && i < task.m; i++)
        memset((char *)task.c + i * p.n * bytes, 0, (size_t)(task.n * bytes));
    if (!p.k) return;
    const float_env env = float_env_flush();
    tiles_task_sums(&task);
    float_env_restore(env);
}

#endif
