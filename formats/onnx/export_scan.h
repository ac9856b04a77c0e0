/* Scans in an export: what Loop, Scan and If share. */
#ifndef WEFT_ONNX_EXPORT_SCAN_H
#define WEFT_ONNX_EXPORT_SCAN_H

#include "onnx/export.h"

#include "ir/scan.h"

/* A branch of an If: a step of a scan, or what remains if it does not run. */
typedef struct export_arm {
    const scan_body *body;
    const weft_operand *in; /* of the scan: carries, sequences and shared values */
    const bool *wanted;     /* [n_carry + n_out] the stacks that are outputs; all carries are */
    export_frame *step;     /* NULL: it does not run */
    bool single;            /* sequences are [1, ...], and so are stacks; otherwise rows */
} export_arm;

static inline weft_onnx_type export_type_of(const scan_body *b, uint32_t value)
{
    return weft_export_type(weft_dtype_of(b->graph, weft_value_from_id(b->graph, value)));
}

static inline weft_shape export_shape_of(const scan_body *b, uint32_t value)
{
    return weft_shape_of(b->graph, weft_value_from_id(b->graph, value));
}

/* How many outputs a node of ONNX for the scan has: all carries, and the stacks that are wanted. */
static inline size_t export_count(const scan_body *b, const bool *wanted)
{
    size_t n = b->n_carry;
    for (uint32_t k = 0; k < b->n_out; k++) n += wanted[b->n_carry + k];
    return n;
}

/* Opens the body for what is wanted; shared values are operands of the scan. (export_scan.c) */
bool weft__export_open_step(export_record *r, export_frame *step, const scan_body *b,
                            const weft_operand *in, const bool *wanted);
/* An If of branches for true and false, with n_out outputs; the first one. (export_branch.c) */
weft_operand weft__export_if(export_record *r, weft_operand condition, const export_arm arms[2],
                             size_t n_out);

#endif
