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
    T *c;
    int64_t c_row;
    T *workspace; /* a corner of C, a panel, and the packed rows */
    bool packed;  /* the rows are there */
} tiles_task;

/* One block of sums; at the edges through a corner, since kernels write whole vectors. */
static void write_block(const tiles_block *block, T *corner)
{
    if (tiles_fit(block)) {
        tiles_sums(block);
        return;
    }
    tiles_block o = *block;
    o.c = corner;
    o.c_row = GEMM_COLUMNS;
    const size_t bytes = (size_t)o.columns * sizeof(T);
    for (int64_t r = 0; o.add && r < o.rows; r++)
        memcpy(corner + r * GEMM_COLUMNS, block->c + r * block->c_row, bytes);
    tiles_sums(&o);
    for (int64_t r = 0; r < o.rows; r++)
        memcpy(block->c + r * block->c_row, corner + r * GEMM_COLUMNS, bytes);
}

/* Not inlined: see float_env_flush. */
static __attribute__((noinline)) void tiles_task_sums(const tiles_task *o)
{
    const bool kept = o->k <= TILES_KEPT;
    const int64_t row = tiles_row(o->k, PAIRS);
    T *corner = o->workspace, *panel = corner + TILES_HEIGHT * GEMM_COLUMNS;
    T *rows = panel + tiles_panel(o->k < TILES_DEPTH ? o->k : TILES_DEPTH);
    tiles_open();
    if (kept && !o->packed) tiles_pack_rows(o->a, o->m, o->k, rows, row);
    for (int64_t p = 0; p < o->k; p += TILES_DEPTH) {
        const int64_t depth = o->k - p < TILES_DEPTH ? o->k - p : TILES_DEPTH;
        if (!kept) tiles_pack_rows(bf16_at(o->a, 0, p), o->m, depth, rows, row);
        for (int64_t j = 0; j < o->n; j += GEMM_COLUMNS) {
            const int64_t width = o->n - j < GEMM_COLUMNS ? o->n - j : GEMM_COLUMNS;
            const T *columns = panel;
            if (o->panels)
                columns =
                    o->panels + j / GEMM_COLUMNS * tiles_panel(o->k) + p / BF16_EACH * GEMM_COLUMNS;
            else
                tiles_pack_panels(bf16_at(o->b, p, j), width, depth, panel);
            for (int64_t i = 0; i < o->m; i += TILES_HEIGHT)
                write_block(
                    &(tiles_block){.a = rows + i * row + (kept ? p / BF16_EACH : 0),
                                   .b = columns,
                                   .a_row = row,
                                   .k = depth,
                                   .rows = o->m - i < TILES_HEIGHT ? o->m - i : TILES_HEIGHT,
                                   .columns = width,
                                   .c = o->c + i * o->c_row + j,
                                   .c_row = o->c_row,
                                   .add = p > 0},
                    corner);
        }
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
    char *c = (char *)tc->data + ((batch * p.m + row) * p.n + column) * (wide ? 4 : 2);
    T *workspace = weft_call_workspace(call);
    tiles_task task = {.m = row + p.tile_m < p.m ? p.tile_m : p.m - row,
                       .n = column + p.tile_n < p.n ? p.tile_n : p.n - column,
                       .k = p.k,
                       .a = bf16_at(a, row, 0),
                       .b = bf16_at(b, 0, column),
                       .c = wide ? (T *)c : workspace,
                       .c_row = wide ? p.n : p.tile_n,
                       .workspace = workspace + (wide ? 0 : tiles_sums_of(&p))};
    if (p.shared)
        task.panels = (T *)call->scratch + batch * tiles_packed_columns(&p, PAIRS) +
                      column / GEMM_COLUMNS * tiles_panel(p.k);
    int64_t *tag = weft_call_panel_tag(call);
    const int64_t name = 1 + batch * p.tiles_m + row / p.tile_m;
    task.packed = *tag == name;
    *tag = p.k <= TILES_KEPT ? name : 0;
    if (p.k) {
        const float_env env = float_env_flush();
        tiles_task_sums(&task);
        float_env_restore(env);
    }
    for (int64_t i = 0; i < task.m; i++) {
        char *to = c + i * p.n * (wide ? 4 : 2);
        if (!p.k)
            memset(to, 0, (size_t)(task.n * (wide ? 4 : 2)));
        else if (!wide)
            half_narrow(task.c + i * task.c_row, (uint16_t *)to, task.n);
    }
}

#endif
