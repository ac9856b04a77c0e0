/* weft/scan.h - loops: a graph that runs n times as one node. The size of a plan, and the time that
 * planning takes, do not depend on n. */
#ifndef WEFT_SCAN_H
#define WEFT_SCAN_H

#include <weft/pass.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What each step computes: a graph of its own, whose inputs (weft_input) are what the step reads. In
 * step t, carry_in[i] is the initial carry or, after the first step, what carry_out[i] was in the
 * step before; each[i] is slice t of a sequence; shared[i] is the same in all steps, such as a
 * weight. All are different. A body declares no parameters or states, draws no random numbers and
 * exchanges nothing with other processes; its constants may be any. It may contain scans. */
typedef struct weft_scan_body {
    weft_graph *graph; /* weft_scan copies it. Its error becomes that of the graph around it, also
                        if it is NULL because there was no memory for it */
    size_t n_carry;
    const weft_value *carry_in;  /* [n_carry] */
    const weft_value *carry_out; /* [n_carry], with the types of carry_in; any values of the body */
    size_t n_each;
    const weft_value *each; /* [n_each] */
    size_t n_shared;
    const weft_value *shared; /* [n_shared] */
    size_t n_out;
    const weft_value *out; /* [n_out]: any values of the body */
    bool reverse;          /* the steps run from t = n - 1 down to 0 */
    int64_t segment;       /* more than 0: a gradient stores only the carries that come into every
                        segment-th step, and computes all else again. See weft_scan */
    weft_value when; /* one of carry_in or each, a bool scalar: a step for which it is false does
                              not run. The carries go on as they are, and the step's rows of the
                              stacks are zeros. WEFT_NO_VALUE: all steps run */
} weft_scan_body;

/* What a scan reads: values of the graph that it is added to. */
typedef struct weft_scan_inputs {
    const weft_value *carry;  /* [n_carry]: the carries of the first step */
    const weft_value *each;   /* [n_each]: sequences, [n, the shape of each[i] in the body] */
    const weft_value *shared; /* [n_shared], of the same shapes as in the body */
} weft_scan_inputs;

/* Runs the body n times, 1 to 2^31 - 1. last[i] becomes carry_out[i] of the last step, and
 * stacked[k] the values of out[k] in all steps, [n, ...]: its row t is that of step t, also in
 * reverse. Both may be NULL. n_carry and n_out add up to 1 to WEFT_MAX_OUTPUTS. The bits are those
 * of the body applied n times by hand, whatever the number of threads. Several threads share each
 * step if the body has work for them; a scan in another one's body runs on one thread.
 *
 * The gradient is a scan in the other direction. A plan with gradients stores for all steps the
 * carries that came into them and the values that the gradient reads, if more than elementwise ops
 * are needed to compute them. If these are more than WEFT_MAX_OUTPUTS together with n_carry and
 * n_out, it stores the results of the other ops, or else none, and the gradient computes the rest
 * again. Products and sums over rows that the gradients of shared inputs consist of are computed
 * after the loop, from stacks of their operands, if these are not much larger than the gradient. With
 * `segment` = 1, a plan stores only the carries, and the loop adds up all gradients of shared inputs.
 * With more, it stores only the carries that come into every segment-th step, and what the gradient
 * of one segment needs: the square root of n takes the least memory, for one more forward pass.
 * A gradient needs 2 n_carry + n_out <= WEFT_MAX_OUTPUTS.
 *
 * A plan with weft_plan_options.precision computes a body in bf16 as it does the same steps as nodes,
 * with the same bits, with two exceptions. A carry has one storage in all steps: if the body computes
 * it as bf16, the first one is rounded, and so is the last one if it is a target. A body is planned
 * without the program's own passes.
 *
 * Errors are the graph's, and leave WEFT_NO_VALUE in all results: WEFT_BAD_ARGUMENT names the
 * node that cannot be in a body; WEFT_BAD_SHAPE and WEFT_BAD_DTYPE say which input or carry does
 * not fit. If a step of a run fails, the error names the scan, and its message the step and the
 * node of the body. */
WEFT_API void weft_scan(weft_graph *graph, const weft_scan_body *body, int64_t n,
                        const weft_scan_inputs *inputs, weft_value *last, weft_value *stacked);

/* How long weft_while goes on. */
typedef struct weft_while_steps {
    int64_t most; /* the maximum, 1 to 2^31 - 1 */
    weft_value
        first; /* a bool scalar of the graph: whether the first step runs; WEFT_NO_VALUE: yes */
    weft_value go_on; /* a bool scalar of the body: whether another step follows */
} weft_while_steps;

/* Runs the body while a condition holds: a scan whose `when` is a carry that this call adds. (It adds
 * up to two inputs to body->graph; body->when must be WEFT_NO_VALUE.) `count`, which may be NULL,
 * becomes the number of steps that have run, an i32 scalar. The time of a run depends on that
 * number, apart from the rows of stacks that become zeros; the memory of stacks, also of those that
 * a gradient needs, on steps->most. Errors as for weft_scan. */
WEFT_API void weft_while(weft_graph *graph, const weft_scan_body *body,
                         const weft_while_steps *steps, const weft_scan_inputs *inputs,
                         weft_value *last, weft_value *stacked, weft_value *count);

/* A graph of its own that is run, or not, within another one. It may contain what the body of a scan
 * may. */
typedef struct weft_branch {
    weft_graph *graph; /* weft_cond adds inputs to it, and copies it */
    size_t n_in;
    const weft_value *in;   /* [n_in]: its inputs (weft_input), all different */
    const weft_value *from; /* [n_in]: what they read, values of the other graph of these types */
    const weft_value *out;  /* [n_out]: any of its values */
} weft_branch;

/* out[0..n_out-1] become those of `yes` if the condition, a bool scalar, is true, and otherwise those
 * of `no`, which must have the same types. Only the chosen branch runs; in a gradient, only its
 * derivative. n_out is 1 to WEFT_MAX_OUTPUTS. Consists of two scans of one step. Errors as for
 * weft_scan. */
WEFT_API void weft_cond(weft_graph *graph, weft_value condition, const weft_branch *yes,
                        const weft_branch *no, size_t n_out, weft_value *out);

/* A pass (weft_plan_options.passes) that replaces every scan, also within others, by n copies of its
 * body, where steps that do not run are computed as well, and left out by weft_where. For a plan that
 * programs read as steps without loops, and for tests. */
extern WEFT_API const weft_pass weft_pass_unroll;

#ifdef __cplusplus
}
#endif
#endif
