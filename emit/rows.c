/* Loops over rows: a node of a row-wise op with operands that are stored as bf16 is called for one row
 * after another, whose operands are widened before the call and rounded after it. */
#include "nodes.h"

#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

/* Operand i as a matrix that broadcasts to [rows, columns]. The pass `precision` has found that it is
 * one (passes/fuse.h). */
static emit_row row_of(const emit_node *w, size_t i, int64_t rows, int64_t columns)
{
    const node_record node = {.op = w->node.op, .attr = w->node.attr};
    const weft_tensor *t = &w->tensors[i];
    const int last = t->shape.rank - 1;
    emit_row r = {.by_row = i >= w->node.n_in || node_rows(&node) >> i & 1,
                  .narrow = emit_is_narrow(w, i)};
    if (i >= w->node.n_in) {
        const bool whole = weft_shape_numel(t->shape) == rows * columns;
        r.row = whole ? columns : 1;
        r.column = whole;
        return r;
    }
    r.column = last >= 0 && t->shape.dim[last] != 1 ? t->stride[last] : 0;
    for (int d = last - 1; d >= 0 && !r.row; d--)
        if (t->shape.dim[d] != 1) r.row = t->stride[d];
    return r;
}

/* Writes the conversion of the row of operand i. */
static void convert_row(emit_node *w, size_t i, const emit_row *r, int64_t columns)
{
    emit_text *to = &w->text;
    const bool output = i >= w->node.n_in;
    const emit_row *rows = w->rows;
    w->rows = NULL;
    emit_need(w->f, output ? "bf16_round_row" : "bf16_widen_row");
    weft__emit_text_print(to, output ? "    bf16_round_row(" : "    bf16_widen_row(");
    if (output) {
        weft__emit_text_print(to, "(const float *)(void *)");
        weft__emit_after(w, r->wide, to);
        weft__emit_text_print(to, EMIT_COMMA);
    }
    weft__emit_operand(w, i, !output, to);
    weft__emit_text_print(to, " + r * %lld" EMIT_COMMA, (long long)r->row);
    if (!output) {
        weft__emit_text_print(to, "%lld" EMIT_COMMA "(float *)(void *)", (long long)r->column);
        weft__emit_after(w, r->wide, to);
        weft__emit_text_print(to, EMIT_COMMA);
    }
    weft__emit_text_print(to, "%lld);\n", (long long)columns);
    w->rows = rows;
}

/* The tensors of a call for one row. */
static void cut_to_row(emit_node *w, const emit_row *all, int64_t columns)
{
    for (size_t i = 0; i < emit_operands(w); i++) {
        if (!all[i].by_row) continue;
        w->tensors[i].shape = WEFT_SHAPE(1, columns);
        w->tensors[i].stride[0] = all[i].narrow ? columns : all[i].row;
        w->tensors[i].stride[1] = all[i].narrow ? 1 : all[i].column;
    }
}

void weft__emit_rows(emit_node *w, void (*calls)(emit_node *w))
{
    const weft_shape out = w->tensors[w->node.n_in].shape;
    const int64_t columns = out.rank ? out.dim[out.rank - 1] : 1;
    const int64_t rows = columns ? weft_shape_numel(out) / columns : 0;
    emit_row *all = calloc(emit_operands(w), sizeof *all);
    size_t n_narrow = 0;
    if (!all) {
        weft__emit_fail(w, WEFT_NO_MEMORY, "out of memory");
        return;
    }
    for (size_t i = 0; i < emit_operands(w); i++) {
        all[i] = row_of(w, i, rows, columns);
        n_narrow += all[i].narrow;
    }
    size_t wide = weft__emit_space(w->f, (int64_t)n_narrow * columns);
    for (size_t i = 0; i < emit_operands(w); i++)
        if (all[i].narrow) {
            all[i].wide = wide;
            wide += (size_t)columns * sizeof(float);
        }
    cut_to_row(w, all, columns);
    weft__emit_text_print(&w->text, "    {\n    int r;\n    for (r = 0; r < %lld; r++) {\n",
                          (long long)rows);
    for (size_t i = 0; i < w->node.n_in; i++)
        if (all[i].narrow) convert_row(w, i, &all[i], columns);
    w->rows = all;
    calls(w);
    for (size_t i = w->node.n_in; i < emit_operands(w); i++)
        if (all[i].narrow) convert_row(w, i, &all[i], columns);
    weft__emit_text_print(&w->text, "    }\n    }\n");
    w->rows = NULL;
    free(all);
}
