/* A random call of one op: its attribute and inputs are drawn, its kernel and its reference compute
 * the outputs, and these are compared bit for bit. */
#ifndef WEFT_TESTS_EXACT_CASE_H
#define WEFT_TESTS_EXACT_CASE_H

#include "exact.h"
#include "random_cases.h"

enum { EXACT_INPUTS = 80, EXACT_OUTPUTS = WEFT_MAX_OUTPUTS };

typedef struct exact_case {
    uint64_t state;   /* of the generator */
    size_t size;      /* the largest dimension */
    weft_dtype dtype; /* by which the op's kernel is chosen */
    const weft_op *op;
    union {
        double align;
        char bytes[1024];
    } attr;
    size_t n_in, n_owned;
    weft_tensor in[EXACT_INPUTS];
    void *owned[EXACT_INPUTS + 3 * EXACT_OUTPUTS];
    unsigned narrow_in, narrow_out; /* bits of inputs and outputs that are stored as bf16 */
    bool specials;                  /* some values are infinite, NaN, subnormal or -0 */
    int kind;                       /* of the values */
    int shift;                      /* of the exponents of small ones */
    double density;                 /* of special values */
} exact_case;

/* Draws the attribute and the inputs of c->op. */
typedef void exact_draw(exact_case *c);

/* An op, or several with one draw. */
typedef struct exact_op {
    const char *name;
    exact_draw *draw;
} exact_op;

/* Lists that end with a NULL name. */
extern const exact_op exact_elementwise_ops[], exact_reduction_ops[], exact_row_ops[],
    exact_matmul_ops[], exact_norm_ops[], exact_loss_ops[], exact_update_ops[],
    exact_attention_ops[], exact_conv_ops[], exact_move_ops[], exact_drawn_ops[],
    exact_packed_ops[], exact_bf16_ops[];

/* ---- Drawing ---- */

/* A whole number of [low, high], or of [low, c->size] if that is less. */
int64_t exact_between(exact_case *c, int64_t low, int64_t high);
/* Whether one of n holds. */
bool exact_one_of(exact_case *c, int n);
/* A dimension, near the sizes of vectors and blocks more often; at most `most`. */
int64_t exact_dim(exact_case *c, int64_t most);
/* A shape of at most `most` elements. */
weft_shape exact_shape(exact_case *c, int rank, int64_t most);
double exact_number(exact_case *c, double low, double high);

/* Appends an input of the case's dtype, in a layout that the op takes. */
weft_tensor *exact_input(exact_case *c, weft_shape shape);
/* A contiguous input, and one of whole numbers or truth values of [low, high]. */
weft_tensor *exact_dense(exact_case *c, weft_shape shape);
weft_tensor *exact_numbers(exact_case *c, weft_dtype dtype, weft_shape shape, int64_t low,
                           int64_t high);
/* A contiguous input of numbers of [low, high]. */
weft_tensor *exact_positive(exact_case *c, weft_shape shape, double low, double high);
/* Appends a tensor that the case owns already. */
void exact_append(exact_case *c, weft_tensor t);
/* The outputs of `op` for the inputs that were drawn so far, as its reference computes them: for
 * the inputs of backward passes. False if it refuses the inputs. */
bool exact_forward(exact_case *c, const char *op, weft_tensor *out);

/* ---- Storage as bf16: for c->narrow_in and c->narrow_out ---- */

/* What references call bf16: the tensors keep their elements of f32. */
void exact_mark_narrow(exact_case *c, weft_tensor *out);
/* Moves the elements of marked inputs and outputs to storage of bf16. */
void exact_store_narrow(exact_case *c, weft_tensor *out);

/* Draws a case of an op, for a dtype that exact_compares; `c` is zeros but for `state` and `size`. */
void exact_draw_case(exact_case *c, const exact_op *drawn, weft_dtype dtype);
/* Frees the tensors of a case. */
void exact_free(exact_case *c);

/* ---- Comparing ---- */

/* Whether kernels of the op for this dtype are compared: those of bf16 are in bf16_test.c. */
bool exact_compares(const weft_op *op, weft_dtype dtype);
/* Draws and compares one case of the ops in `list`, a const exact_op *: for test_random_cases. */
bool exact_holds(const random_case *r);
/* Cases and elements that were compared so far. */
extern uint64_t exact_cases, exact_elements;

#endif
