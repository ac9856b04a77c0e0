/* A step on one block of its outputs, as fused groups and steps with operands in bf16 run: the
 * operands become views of the block, those in bf16 are widened to f32 before the kernel, and what
 * is stored as bf16 is rounded after it. O(elements of the block). */
#include "execute.h"

/* Runs a step on one block of its outputs, its operands being in f32. */
static void run_plain_block(const executor *e, const plan_step *step, const weft_block *b)
{
    const weft_plan *plan = e->plan;
    const node_record *node = &plan->graph->nodes[step->node];
    const weft_op *op = node->op;
    const unsigned by_row = op->elementwise ? ~0u : node_rows(node);
    const operand_matrix *m = plan->matrices + step->first_operand;
    weft_call call = e->calls[2 * (step - plan->steps)];
    weft_tensor t[MAX_FUSED_OPERANDS];
    for (size_t i = 0; i < call.n_in + call.n_out; i++) {
        const weft_tensor *whole = &call.in[i];
        if (i < call.n_in && !(by_row >> i & 1)) {
            t[i] = *whole;
            continue;
        }
        int64_t at = b->row * m[i].row + b->column * m[i].column;
        t[i] = (weft_tensor){.data =
                                 (char *)whole->data + at * (int64_t)weft_dtype_bytes(whole->dtype),
                             .dtype = whole->dtype,
                             .shape = {2, {b->rows, b->columns}},
                             .stride = {m[i].row, m[i].column}};
    }
    call.in = t;
    call.out = t + call.n_in;
    call.first = b->row * m[call.n_in].row + b->column;
    call.tiles = op_tiles(op, &call);
    for (int64_t tile = 0; tile < call.tiles; tile++) step->kernel(&call, tile);
}

/* The operand of a step on a block: where it lies, or, if it is stored as bf16, in f32 at *wide,
 * which is advanced past it. An operand that repeats rows or columns is widened once. */
static weft_tensor wide_operand(const executor *e, const weft_tensor *whole, operand_matrix m,
                                const weft_block *b, bool read, float **wide)
{
    const int64_t at = b->row * m.row + b->column * m.column;
    weft_tensor t = {.data = (char *)whole->data + at * (int64_t)weft_dtype_bytes(whole->dtype),
                     .dtype = whole->dtype,
                     .shape = {2, {b->rows, b->columns}},
                     .stride = {m.row, m.column}};
    if (whole->dtype != WEFT_BF16) return t;
    const int64_t rows = m.row ? b->rows : 1, columns = m.column ? b->columns : 1;
    if (read) e->convert.widen(&(convert_block){rows, columns, m.row, m.column}, t.data, *wide);
    t.data = *wide;
    t.dtype = WEFT_F32;
    t.stride[0] = m.row ? columns : 0;
    t.stride[1] = m.column ? 1 : 0;
    *wide += (rows * columns + 15) / 16 * 16;
    return t;
}

/* Runs a step on a block that fits the memory for blocks in f32, and rounds what is stored as bf16.
 */
static void run_wide_block(const executor *e, const plan_step *step, const weft_block *b)
{
    const node_record *node = &e->plan->graph->nodes[step->node];
    const unsigned by_row = node->op->elementwise ? ~0u : node_rows(node);
    const operand_matrix *m = e->plan->matrices + step->first_operand;
    weft_call call = e->calls[2 * (step - e->plan->steps)];
    weft_tensor t[MAX_FUSED_OPERANDS];
    float *wide = (float *)(void *)((char *)weft_call_panel_tag(&call) + e->plan->op_workspace);
    for (size_t i = 0; i < call.n_in + call.n_out; i++) {
        const bool input = i < call.n_in;
        t[i] = input && !(by_row >> i & 1) ? call.in[i]
                                           : wide_operand(e, &call.in[i], m[i], b, input, &wide);
    }
    const weft_tensor *out = call.out;
    call.in = t;
    call.out = t + call.n_in;
    call.first = b->row * m[call.n_in].row + b->column;
    call.tiles = op_tiles(node->op, &call);
    for (int64_t tile = 0; tile < call.tiles; tile++) step->kernel(&call, tile);
    for (size_t k = 0; k < call.n_out; k++) {
        if (out[k].dtype != WEFT_BF16) continue;
        const operand_matrix to = m[call.n_in + k];
        const int64_t at = b->row * to.row + b->column * to.column;
        e->convert.narrow(&(convert_block){b->rows, to.column ? b->columns : 1, to.row, to.column},
                          call.out[k].data, (uint16_t *)out[k].data + at);
    }
}

void weft__run_block(const executor *e, const plan_step *step, const weft_block *b)
{
    if (!step->widens) {
        run_plain_block(e, step, b);
        return;
    }
    const node_record *node = &e->plan->graph->nodes[step->node];
    const weft_tensor *whole = &e->calls[2 * (step - e->plan->steps)].out[0];
    const bool row_wise = !node->op->elementwise;
    const int64_t last = whole->shape.rank ? whole->shape.dim[whole->shape.rank - 1] : 1;
    int64_t columns = row_wise || b->columns < NARROW_BLOCK ? b->columns : NARROW_BLOCK;
    int64_t rows = columns < NARROW_BLOCK ? NARROW_BLOCK / columns : 1;
    /* Rows in f32 lie closer together than those of the whole tensor. A random op numbers its
     * elements by their distance there, and an op of dense tensors expects all operands alike. */
    if ((node->op->random || node->op->takes != WEFT_TAKES_ANY) && b->columns != last) rows = 1;
    for (int64_t r = 0; r < b->rows; r += rows)
        for (int64_t c = 0; c < b->columns; c += columns) {
            const weft_block inner = {b->row + r, b->rows - r < rows ? b->rows - r : rows,
                                      b->column + c,
                                      b->columns - c < columns ? b->columns - c : columns};
            run_wide_block(e, step, &inner);
        }
}
