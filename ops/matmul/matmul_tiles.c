/* matmul_tiles: matrix products of bf16 by parts of k, as matrix units compute them (tiles.h,
 * kernels/tiles.h). */
#define GEMM_BF16
#include "tiles.h"

#ifdef WEFT_KERNEL_ISA

#define PAIRS (BF16_EACH == 2)

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
    const int64_t groups = ceil_div(p->n, TILES_GROUP), batch = tile / groups;
    const int64_t first = tile % groups * TILES_GROUP, left = p->n - first;
    bf16_matrix a, b;
    bf16_operands(call, p, batch, &a, &b);
    T *out = (T *)call->scratch + batch * tiles_packed_columns(p, PAIRS) +
             first / GEMM_COLUMNS * tiles_panel(p->k);
    tiles_pack_panels(bf16_at(b, 0, first), left < TILES_GROUP ? left : TILES_GROUP, p->k, out);
}

KERNEL(matmul_tiles)
{
    const weft_tensor *tc = &call->out[0];
    const product p = tiles_product(call);
    if (call->phase == 0) {
        pack_group(call, &p, tile);
        return;
    }
    const int64_t tiles = p.tiles_m * p.tiles_n, batch = tile / tiles;
    const int64_t row = tile % tiles / p.tiles_n * p.tile_m, column = tile % p.tiles_n * p.tile_n;
    bf16_matrix a, b;
    bf16_operands(call, &p, batch, &a, &b);
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

#else

#include "ir/isa.h"
#include "samples.h"

#include <weft/ops.h>

/* Whether the kernel packs pairs: see kernels/tiles.h. */
static bool tiles_pairs(void)
{
#ifdef WEFT_KERNEL_AMX
    return weft__isa_best() >= WEFT_ISA_V4_AMX;
#else
    return false;
#endif
}

static int64_t tiles_matmul_tiles(const weft_call *call)
{
    const product p = tiles_product(call);
    if (call->phase == 0) return p.shared ? p.batches * ceil_div(p.n, TILES_GROUP) : 0;
    return p.batches * p.tiles_m * p.tiles_n;
}

static void block_matmul_tiles(const weft_call *call, int64_t tile, weft_block *block)
{
    const product p = tiles_product(call);
    *block = (weft_block){0, 0, 0, 0};
    if (!p.tiles_m) return;
    const int64_t at = tile % (p.tiles_m * p.tiles_n);
    *block = product_block(&p, tile, at / p.tiles_n * p.tile_m, at % p.tiles_n * p.tile_n);
}

static size_t scratch_matmul_tiles(const weft_call *call)
{
    const product p = tiles_product(call);
    if (!p.shared) return 0;
    return (size_t)(p.batches * tiles_packed_columns(&p, tiles_pairs())) * sizeof(float);
}

static size_t workspace_matmul_tiles(const weft_call *call)
{
    const product p = tiles_product(call);
    if (!p.tiles_m) return 0;
    return (size_t)tiles_workspace(&p, tiles_pairs()) * sizeof(float);
}

static bool infer_matmul_tiles(weft_infer *infer)
{
    if (!weft__product_infer(infer)) return false;
    return infer->in[0].dtype == WEFT_F32 ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE, "input 0 is %s, expected f32",
                           weft_dtype_name(infer->in[0].dtype));
}

static void vjp_matmul_tiles(weft_vjp *v)
{
    weft__product_vjp(v, weft_matmul_tiles);
}

static void batch_matmul_tiles(weft_batch *b)
{
    weft__product_batch(b, weft_matmul_tiles);
}

static void source_matmul_tiles(weft_source *s)
{
    const weft_call call = {.in = s->in, .out = s->out, .n_in = 2, .n_out = 1};
    const product p = tiles_product(&call);
    weft__product_source(s, &p, 0, p.tiles_m ? p.m : 0, PRODUCT_TILES);
}

#define F32(...)                                                                                   \
    {                                                                                              \
        WEFT_F32, __VA_ARGS__, -1, 1, false                                                        \
    }
static const weft_sample samples_tiles[] = {
    {NULL, 2, {F32({2, {3, 4}}), F32({2, {4, 5}})}},
    {NULL, 2, {F32({3, {2, 3, 35}}), F32({2, {35, 2}})}},
    {NULL, 2, {F32({4, {2, 1, 3, 2}}), F32({3, {3, 2, 4}})}},
    {NULL, 2, {F32({2, {1, 67}}), F32({2, {67, 1}})}},
    {NULL, 2, {F32({2, {3, 0}}), F32({2, {0, 2}})}},
    {NULL, 2, {F32({3, {0, 2, 3}}), F32({2, {3, 2}})}},
};
#undef F32

DECLARE_KERNEL_(matmul_tiles, f32);
#define TILES_ROW(isa)                                                                             \
    {                                                                                              \
        [WEFT_F32] = WEFT_JOIN(matmul_tiles, f32, isa), [WEFT_BF16] =                              \
                                                            WEFT_JOIN(matmul_tiles, f32, isa)      \
    }
#ifdef WEFT_KERNEL_AMX
void WEFT_JOIN(matmul_tiles, f32, v4_amx)(const weft_call *, int64_t);
#define TILES_AMX_ROW , [WEFT_ISA_V4_AMX] = TILES_ROW(v4_amx)
#else
#define TILES_AMX_ROW
#endif
#ifdef WEFT_KERNEL_X86
#define TILES_ROWS_X86 , TILES_ROW(v3), TILES_ROW(v4)
#else
#define TILES_ROWS_X86
#endif
extern const weft_op weft_op_matmul_tiles;
const weft_op weft_op_matmul_tiles = {
    .name = "matmul_tiles",
    .doc = "y [..., m, n] = bf16(a) [..., m, k] bf16(b) [..., k, n] in f32; leading dimensions "
           "broadcast. Each 32 products of k are summed as matrix units do it, and added to y.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = infer_matmul_tiles,
    .kernel = {TILES_ROW(base) TILES_ROWS_X86 TILES_AMX_ROW},
    .takes = WEFT_TAKES_MATRIX,
    .narrow_in = 3,
    .narrow_out = 1,
    .phases = 2,
    .tiles = tiles_matmul_tiles,
    .scratch = scratch_matmul_tiles,
    .block = block_matmul_tiles,
    .workspace = workspace_matmul_tiles,
    .cost = weft__product_cost,
    .broadcasts = true,
    .source = source_matmul_tiles,
    .batch = batch_matmul_tiles,
    .gradient = WEFT_GRADIENT_STRAIGHT,
    .vjp = vjp_matmul_tiles,
    .samples = samples_tiles,
    .n_samples = sizeof samples_tiles / sizeof *samples_tiles,
};

weft_value weft_matmul_tiles(weft_graph *graph, weft_value a, weft_value b)
{
    return weft_apply(graph, &weft_op_matmul_tiles, NULL, (weft_value[]){a, b}, 2, NULL);
}

#endif
