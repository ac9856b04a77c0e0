/* weft/source.h - how an op writes itself as C, for authors of ops.
 *
 * An op's function weft_op.source receives a weft_source: its attribute, and the types and strides
 * of its operands. It names a C function and the arguments of a call; <weft/emit.h> puts the
 * function, once, and the call into the file that it writes. The function is one of weft's library
 * of plain C (emit/plain in the sources), or the op's own text:
 *
 *     static void source_hypot(weft_source *s)
 *     {
 *         weft_source_each(s, "static T hypot(T x, T y)\n"
 *                             "{\n"
 *                             "    return root(x * x + y * y);\n"
 *                             "}\n", "hypot", NULL, 0);
 *     }
 *
 * Text is C99 without libm. T is the type of the elements: the functions that mention it, or that
 * call one that does, are written once for each dtype that needs them. They must compute the bits
 * of the op's kernels (docs/arithmetic.md). An op that calls nothing cannot be written.
 *
 * Where a plan stores values of f32 as bf16 (weft_plan_options.precision), loops over elements and
 * rows of row-wise ops are written with conversions around the call. Any other call becomes one of
 * the function with _halves after its name: operands that may be bf16 are void pointers to it, and
 * its last parameter is an int, of which bit i says that operand i of the call is.
 */
#ifndef WEFT_SOURCE_H
#define WEFT_SOURCE_H

#include <weft/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_source_kind {
    WEFT_SOURCE_IN,  /* the address of input `integer`, const, `offset` elements from its first */
    WEFT_SOURCE_OUT, /* of output `integer` */
    WEFT_SOURCE_SCRATCH, /* of the scratch memory that the kernel would have, double * */
    WEFT_SOURCE_INT,     /* `integer`, which must fit an int */
    WEFT_SOURCE_NUMBER,  /* (T)number */
    WEFT_SOURCE_DOUBLE,  /* `number`, a double */
    WEFT_SOURCE_KEY,     /* `integer` as an uint64_t */
    WEFT_SOURCE_SEED,    /* the seed and the number of the run: two arguments, uint64_t */
    WEFT_SOURCE_INTS,    /* `integers`, an array of ints: const int * */
    WEFT_SOURCE_TERMS,   /* the addresses of all inputs, const T *const * */
    WEFT_SOURCE_NONE,    /* a null pointer, for an operand that the node lacks */
    WEFT_SOURCE_SPACE,   /* memory for `integer` floats during the call, float * */
    WEFT_SOURCE_OUT_READ /* of output `integer`; a null pointer if nothing reads it */
} weft_source_kind;

/* An argument of a call. */
typedef struct weft_source_arg {
    weft_source_kind kind;
    int64_t integer, offset;
    double number;
    const int64_t *integers; /* [n_integers], copied */
    size_t n_integers;
} weft_source_arg;

#define WEFT_ARG_(kind, i, at, x, list, n)                                                         \
    (WEFT_LITERAL(weft_source_arg){kind, (int64_t)(i), (int64_t)(at), x, list, n})
#define WEFT_ARG_IN(i)         WEFT_ARG_(WEFT_SOURCE_IN, i, 0, 0, NULL, 0)
#define WEFT_ARG_IN_AT(i, at)  WEFT_ARG_(WEFT_SOURCE_IN, i, at, 0, NULL, 0)
#define WEFT_ARG_OUT(i)        WEFT_ARG_(WEFT_SOURCE_OUT, i, 0, 0, NULL, 0)
#define WEFT_ARG_OUT_AT(i, at) WEFT_ARG_(WEFT_SOURCE_OUT, i, at, 0, NULL, 0)
#define WEFT_ARG_OUT_READ(i)   WEFT_ARG_(WEFT_SOURCE_OUT_READ, i, 0, 0, NULL, 0)
#define WEFT_ARG_INT(x)        WEFT_ARG_(WEFT_SOURCE_INT, x, 0, 0, NULL, 0)
#define WEFT_ARG_NUMBER(x)     WEFT_ARG_(WEFT_SOURCE_NUMBER, 0, 0, x, NULL, 0)
#define WEFT_ARG_DOUBLE(x)     WEFT_ARG_(WEFT_SOURCE_DOUBLE, 0, 0, x, NULL, 0)
#define WEFT_ARG_KEY(x)        WEFT_ARG_(WEFT_SOURCE_KEY, x, 0, 0, NULL, 0)
#define WEFT_ARG_INTS(list, n) WEFT_ARG_(WEFT_SOURCE_INTS, 0, 0, 0, list, n)
#define WEFT_ARG_SEED          WEFT_ARG_(WEFT_SOURCE_SEED, 0, 0, 0, NULL, 0)
#define WEFT_ARG_SCRATCH       WEFT_ARG_(WEFT_SOURCE_SCRATCH, 0, 0, 0, NULL, 0)
#define WEFT_ARG_TERMS         WEFT_ARG_(WEFT_SOURCE_TERMS, 0, 0, 0, NULL, 0)
#define WEFT_ARG_NONE          WEFT_ARG_(WEFT_SOURCE_NONE, 0, 0, 0, NULL, 0)
#define WEFT_ARG_SPACE(floats) WEFT_ARG_(WEFT_SOURCE_SPACE, floats, 0, 0, NULL, 0)

typedef struct weft_source_call {
    const char *text;     /* C functions of the op's own, copied; NULL: only those of the library */
    const char *function; /* to call */
    weft_dtype dtype;     /* T */
    const weft_source_arg *args; /* [n_args]; of an elementwise op, those after the elements */
    size_t n_args;
    bool each;  /* call it for each element of output 0, which it returns, with the elements of all
                   inputs, which broadcast, as its first arguments */
    bool fails; /* it returns an int: 0, or 1 if data are out of range, which ends the run */
} weft_source_call;

/* Who receives the calls. */
typedef struct weft_source_receiver {
    void (*call)(weft_source *s, const weft_source_call *call);
    /* Refuses the op, for this reason: "its rows are longer than its scratch memory". */
    void (*fail)(weft_source *s, const char *reason);
} weft_source_receiver;

struct weft_source {
    const weft_source_receiver *receiver;
    void *context; /* the receiver's */
    const void *attr;
    /* [n_in], [n_out]; data are NULL, but of inputs that are constants. An op with kernels of bf16 sees
     * which operands of f32 are stored so, as the kernels do: their dtype is WEFT_BF16. */
    const weft_tensor *in, *out;
    size_t n_in, n_out;
    weft_dtype dtype; /* by which the node's kernel is chosen */
};

/* Writes a call of `function` of the library, for s->dtype. */
static inline void weft_source_call_of(weft_source *s, const char *function,
                                       const weft_source_arg *args, size_t n_args)
{
    const weft_source_call call =
        WEFT_LITERAL(weft_source_call){NULL, function, s->dtype, args, n_args, false, false};
    s->receiver->call(s, &call);
}

/* The same, where the function returns an int that is not 0 if data are out of range. */
static inline void weft_source_try(weft_source *s, const char *function,
                                   const weft_source_arg *args, size_t n_args)
{
    const weft_source_call call =
        WEFT_LITERAL(weft_source_call){NULL, function, s->dtype, args, n_args, false, true};
    s->receiver->call(s, &call);
}

/* Writes a loop that calls `function` for each element; `text` may be NULL. */
static inline void weft_source_each(weft_source *s, const char *text, const char *function,
                                    const weft_source_arg *args, size_t n_args)
{
    const weft_source_call call =
        WEFT_LITERAL(weft_source_call){text, function, s->dtype, args, n_args, true, false};
    s->receiver->call(s, &call);
}

/* The text of an element function of an expression in x, or in x and y. */
#define WEFT_SOURCE_UNARY(name, expression)                                                        \
    "static T " name "(T x)\n{\n    return " expression ";\n}\n"
#define WEFT_SOURCE_BINARY(name, expression)                                                       \
    "static T " name "(T x, T y)\n{\n    return " expression ";\n}\n"

#ifdef __cplusplus
}
#endif
#endif
