/* The kernel of matmul where an operand or the product is stored as bf16: the others may be f32.
 * Tiles and phases are those of matmul.c. */
#define GEMM_BF16
#include "product.h"

#ifdef WEFT_KERNEL_ISA

/* The operand as bf16, which a library asks for: rounded into `space` if it is f32. Returns what
 * follows in `space`. */
static uint16_t *narrowed(bf16_matrix x, int64_t rows, int64_t columns, uint16_t *space,
                          gemm_matrix *out)
{
    *out = (gemm_matrix){x.data, x.row, x.column};
    if (!x.wide) return space;
    const bool plain = x.column == 1;
    const int64_t count = plain ? rows : columns, n = plain ? columns : rows;
    for (int64_t i = 0; i < count; i++)
        half_narrow((const float *)x.data + i * (plain ? x.row : x.column), space + i * n, n);
    *out = plain ? (gemm_matrix){(const T *)space, n, 1} : (gemm_matrix){(const T *)space, 1, n};
    return space + count * n;
}

/* A library's sums are f32: those of a product of bf16 are rounded afterwards. */
static void call_library(const bf16_task *o)
{
    float *sums = o->wide ? o->c : o->workspace;
    uint16_t *space = (uint16_t *)((float *)o->workspace + (o->wide ? 0 : o->m * o->n));
    gemm_matrix a, b;
    space = narrowed(o->a, o->m, o->k, space, &a);
    narrowed(o->b, o->k, o->n, space, &b);
    gemm_call call = library_call(o->m, o->n, o->k, &a, &b);
    call.c = sums;
    call.ldc = o->wide ? o->c_row : o->n;
    weft__gemm_bf16(&call);
    for (int64_t i = 0; !o->wide && i < o->m; i++)
        half_narrow(sums + i * o->n, (uint16_t *)o->c + i * o->c_row, o->n);
}

/* Not inlined: see float_env_flush. */
static __attribute__((noinline)) void own_tile(const bf16_task *o)
{
    bf16_tile(o);
}

KERNEL(matmul_bf16)
{
    const weft_tensor *tc = &call->out[0];
    const product p = product_of(call);
    const int64_t steps = bf16_steps(p.k, BF16_EACH == 2);
    const int64_t tiles = p.tiles_m * p.tiles_n, batch = call->phase == 0 ? 0 : tile / tiles;
    bf16_matrix a, b;
    bf16_operands(call, &p, batch, &a, &b);
    if (call->phase == 0 && p.shared == SHARED_A) {
        const int64_t row = tile * SHARED_ROWS, left = p.m - row;
        bf16_pack_blocks(a, p.m, row, left < SHARED_ROWS ? left : SHARED_ROWS, p.k, call->scratch);
        return;
    }
    if (call->phase == 0) {
        const int64_t first = tile * SHARED_WIDTH;
        const int64_t end = first + SHARED_WIDTH < p.n ? first + SHARED_WIDTH : p.n;
        bf16_pack_panels(b, first, end, p.k, (T *)call->scratch + first * steps);
        return;
    }
    int64_t row, column;
    tile_at(&p, tile % tiles, &row, &column);
    const bool wide = tc->dtype == WEFT_F32;
    bf16_task task = {.m = row + p.tile_m < p.m ? p.tile_m : p.m - row,
                      .n = column + p.tile_n < p.n ? p.tile_n : p.n - column,
                      .k = p.k,
                      .panels = p.shared == SHARED_B ? (T *)call->scratch + column * steps : NULL,
                      .blocks = p.shared == SHARED_A ? call->scratch : NULL,
                      .all_rows = p.m,
                      .row = row,
                      .wide = wide,
                      .c_row = p.n,
                      .workspace = weft_call_workspace(call),
                      .name = 1 + batch * p.tiles_m + row / p.tile_m,
                      .panel_tag = weft_call_panel_tag(call)};
    task.a = bf16_at(a, row, 0);
    task.b = bf16_at(b, 0, column);
    task.c = (char *)tc->data + ((batch * p.m + row) * p.n + column) * (wide ? 4 : 2);
    if (p.k && product_is_own(call)) {
        const float_env env = float_env_flush();
        own_tile(&task);
        float_env_restore(env);
    } else if (p.k) {
        call_library(&task);
    } else {
        for (int64_t i = 0; i < task.m; i++)
            memset((char *)task.c + i * p.n * (wide ? 4 : 2), 0, (size_t)(task.n * (wide ? 4 : 2)));
    }
}

#endif
