/* weft/emit.h - a plan as one C99 file: forward pass, gradients and updates, without allocation,
 * libm, threads or an operating system, and with the bits of the library.
 *
 * The header NAME.h declares the sizes of the arena and of the states, a struct of inputs and
 * outputs, and the functions; NAME.c defines them. Both need <stdint.h>, <stddef.h>, <stdbool.h>
 * and <string.h> only. The caller owns all memory. No function calls itself, and shapes bound the
 * iterations of every loop. The same plan writes the same files. A scan (<weft/scan.h>) is a loop,
 * whose steps call one function, so a file is as large for 100,000 steps as for 10.
 */
#ifndef WEFT_EMIT_H
#define WEFT_EMIT_H

#include <weft/plan.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A value of the plan's graph under the name that the file gives it; both are read during the call. */
typedef struct weft_emit_value {
    weft_value value; /* a target */
    const char *name; /* NULL: the value's, or "output" */
} weft_emit_value;

/* Receives the files in pieces, in order, the header first; returns false if it cannot store one,
 * which ends weft_emit with WEFT_IO. */
typedef bool (*weft_emit_write)(void *context, bool header, const char *text, size_t n);

/* How functions are written. Both compute the same bits. */
typedef enum weft_emit_kernels {
    WEFT_EMIT_PLAIN, /* small: loops over one element at a time */
    WEFT_EMIT_SIMD /* fast on application processors: several elements side by side in the vectors of
                        gcc and clang; up to 48 KB of stack, 72 KB with bf16. Needs fused
                        multiply-adds (x86-64: -march=haswell or -march=native; AArch64) to be faster
                        than plain */
} weft_emit_kernels;

/* The memory of one model: NAME_ARENA_BYTES and NAME_STATE_BYTES. */
typedef struct weft_emit_sizes {
    size_t arena_bytes, state_bytes;
} weft_emit_sizes;

typedef struct weft_emit_options {
    const char *name; /* the prefix of all that the files declare: a C identifier, such as "mlp" */
    const char *header; /* the name under which the source includes its header; NULL: NAME.h */
    const weft_emit_value *outputs; /* [n_outputs] of the struct of inputs and outputs */
    size_t n_outputs;
    /* An input that becomes the parameter `rate` of NAME_step; WEFT_NO_VALUE: the function is called
     * NAME_run. */
    weft_value rate;
    /* First contents of states, which NAME.c then has as constants: states that the plan updates are
     * copied by NAME_init, the others are read in place. NULL: the program fills all states. */
    const weft_params *params;
    weft_emit_kernels kernels;
    weft_emit_write write;
    void *context;
    weft_emit_sizes *sizes; /* filled in; NULL: not wanted */
} weft_emit_options;

/* Writes the plan, which must not have fixed states or nodes that exchange data. Errors: WEFT_BAD_ARGUMENT; WEFT_NO_KERNEL with the name of a node that cannot be written, and
 * why; WEFT_NOT_FOUND for a state that `params` lack; WEFT_TOO_LARGE; WEFT_IO; WEFT_NO_MEMORY. */
WEFT_API weft_status weft_emit(const weft_plan *plan, const weft_emit_options *options,
                               weft_error *error);

/* Whether an op can be written: it has weft_op.source, or no kernels, so that a plan has none of it. */
WEFT_API bool weft_emit_has_op(const weft_op *op);

#ifdef __cplusplus
}
#endif
#endif
