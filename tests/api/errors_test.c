/* Failures of public calls, as many as can be provoked. Each has a status, names the place in the
 * program's own words, and says in one line what was expected. */
#include "tests.h"

#include <weft/decode.h>
#include <weft/measure.h>
#include "pipeline.h"
#include <weft/train.h>
#include <weft/transform.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Checks that a record has this status, a place and a one-line message. `where` and `message`, a
 * part of the message, may be NULL. */
static void expect(const char *call, const weft_error *e, weft_status status, const char *where,
                   const char *message)
{
    const bool line = e->where[0] && e->message[0] && !strpbrk(e->where, "\n\r") &&
                      !strpbrk(e->message, "\n\r") && strcmp(e->where, "weft") != 0;
    if (e->status == status && status != WEFT_OK && line && (!where || !strcmp(e->where, where)) &&
        (!message || strstr(e->message, message)))
        return;
    fprintf(stderr, "\n    %s\n    got %s: \"%s: %s\"\n    not %s: \"%s: %s\"\n", call,
            weft_status_text(e->status), e->where, e->message, weft_status_text(status),
            where ? where : "...", message ? message : "...");
    CU_FAIL("unexpected error");
}

/* ---- Calls that build a graph ---- */

/* The values that the calls below use. */
typedef struct values {
    weft_value x, y, flat, ids, flag, scalar, whole, w, other, none;
} values;

static values make_values(weft_graph *g, weft_graph *other)
{
    return (values){.x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3)),
                    .y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(4, 5)),
                    .flat = weft_input(g, "flat", WEFT_F64, WEFT_SHAPE(4)),
                    .ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(2)),
                    .flag = weft_input(g, "flag", WEFT_BOOL, WEFT_SHAPE(2)),
                    .scalar = weft_input(g, "scalar", WEFT_F32, WEFT_SCALAR),
                    .whole = weft_input(g, "lr", WEFT_I32, WEFT_SCALAR),
                    .w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_ONES),
                    .other = weft_input(other, "other", WEFT_F32, WEFT_SHAPE(2, 3)),
                    .none = WEFT_NO_VALUE};
}

static const weft_optimizer adam = {.kind = WEFT_ADAM, .adam = {0.9, 0.98, 1e-9, 0, false, 0}};
static const weft_optimizer guarded = {
    .kind = WEFT_ADAM, .adam = {0.9, 0.98, 1e-9, 0, false, 0}, .guard = true};
static const weft_optimizer sgd = {.kind = WEFT_SGD};
static weft_value got[4];

/* call, status, where, part of the message; all in the scope "at" */
#define BUILDERS(X)                                                                                \
    X(weft_add(g, v.x, v.none), BAD_ARGUMENT, "at/add", "input 1 is WEFT_NO_VALUE")                \
    X(weft_add(g, v.x, v.other), BAD_ARGUMENT, "at/add", "another graph")                          \
    X(weft_add(g, v.x, ((weft_value){999, v.x.graph})), BAD_ARGUMENT, "at/add", "unknown value")   \
    X(weft_add(g, v.x, v.y), BAD_SHAPE, "at/add", "[2, 3]")                                        \
    X(weft_add(g, v.x, v.flat), BAD_DTYPE, "at/add", "\"flat\" must be f32 like input 0 \"x\"")    \
    X(weft_relu(g, v.ids), BAD_DTYPE, "at/relu", "\"ids\" must be f32 or f64, got i32")            \
    X(weft_matmul(g, v.x, v.x), BAD_SHAPE, "at/matmul", "[2, 3]")                                  \
    X(weft_where(g, v.x, v.x, v.x), BAD_DTYPE, "at/where", "condition \"x\" must be bool")         \
    X(weft_masked_fill(g, v.x, v.ids, 0), BAD_DTYPE, "at/masked_fill", "mask \"ids\"")             \
    X(weft_softmax(g, v.x, 2), BAD_ARGUMENT, "at/softmax", "[-2, 2)")                              \
    X(weft_reshape(g, v.x, WEFT_SHAPE(5)), BAD_SHAPE, "at/reshape", "[2, 3]")                      \
    X(weft_permute(g, v.x, WEFT_AXES(0, 0)), BAD_ARGUMENT, "at/permute", NULL)                     \
    X(weft_transpose(g, v.x, 0, 5), BAD_ARGUMENT, "at/transpose", "rank 2")                        \
    X(weft_expand_dims(g, v.x, 7), BAD_ARGUMENT, "at/expand_dims", "axis 7")                       \
    X(weft_squeeze(g, v.x, 0), BAD_SHAPE, "at/squeeze", "[2, 3]")                                  \
    X(weft_broadcast_to(g, v.x, WEFT_SHAPE(2, 4)), BAD_SHAPE, "at/broadcast_to", "[2, 4]")         \
    X(weft_slice(g, v.x, 0, 0, 2, 0), BAD_ARGUMENT, "at/slice", "step is 0")                       \
    X(weft_split(g, v.x, 0, NULL, 1, got), BAD_ARGUMENT, "at/split", "NULL")                       \
    X(weft_split(g, v.x, 1, ((int64_t[]){1, 1}), 2, got), BAD_SHAPE, "at/split", "sum to 3")       \
    X(weft_chunk(g, v.x, 1, 2, got), BAD_SHAPE, "at/chunk", "3 elements")                          \
    X(weft_concat(g, NULL, 0, 0), BAD_ARGUMENT, "at/concat", "at least 1")                         \
    X(weft_stack(g, NULL, 0, 0), BAD_ARGUMENT, "at/stack", "no values")                            \
    X(weft_pad(g, v.x, NULL, NULL, 0), BAD_ARGUMENT, "at/pad", "NULL")                             \
    X(weft_pad(g, v.x, (int64_t[]){-1, 0}, (int64_t[]){0, 0}, 0), BAD_ARGUMENT, "at/pad",          \
      "out of range")                                                                              \
    X(weft_sum(g, v.x, WEFT_AXES(0, 0), false), BAD_ARGUMENT, "at/sum", "named twice")             \
    X(weft_tril(g, v.flat, 0), BAD_SHAPE, "at/tril", "rank 2 or more")                             \
    X(weft_embedding(g, v.x, v.flat, -1), BAD_DTYPE, "at/embedding", "indices \"flat\"")           \
    X(weft_embedding(g, v.flat, v.ids, -1), BAD_SHAPE, "at/embedding", "[rows, features]")         \
    X(weft_gather(g, v.x, v.x, 0), BAD_DTYPE, "at/gather", "indices \"x\" must be i32")            \
    X(weft_one_hot(g, v.x, 3, WEFT_F32), BAD_DTYPE, "at/one_hot", "indices \"x\"")                 \
    X(weft_cast(g, v.x, (weft_dtype)9), BAD_DTYPE, "at/cast", "dtype 9")                           \
    X(weft_einsum(g, NULL, v.x, v.x), BAD_ARGUMENT, "at/einsum", "NULL")                           \
    X(weft_einsum(g, "ij,jk->ik", v.x, v.x), BAD_SHAPE, "at/einsum", NULL)                         \
    X(weft_einsum(g, "ii,jk->ik", v.x, v.x), BAD_ARGUMENT, "at/einsum", "'i'")                     \
    X(weft_einsum(g, "i?,jk->ik", v.x, v.x), BAD_ARGUMENT, "at/einsum", "expected ','")            \
    X(weft_einsum(g, "ij,jjk->ik", v.x, v.x), BAD_ARGUMENT, "at/einsum", "'j'")                    \
    X(weft_einsum(g, "ij,jk-ik", v.x, v.x), BAD_ARGUMENT, "at/einsum", "expected '->'")            \
    X(weft_einsum(g, "ij,jk+>ik", v.x, v.x), BAD_ARGUMENT, "at/einsum", "expected '->'")           \
    X(weft_einsum(g, "ij,jk->ikk", v.x, v.x), BAD_ARGUMENT, "at/einsum", "'k'")                    \
    X(weft_einsum(g, "ij,jk->ik.", v.x, v.x), BAD_ARGUMENT, "at/einsum", "unexpected '.'")         \
    X(weft_einsum(g, "abcdefghi,jk->ik", v.x, v.x), BAD_ARGUMENT, "at/einsum", "more than 8")      \
    X(weft_einsum(g, "ij,ik->jz", v.x, v.x), BAD_ARGUMENT, "at/einsum", "z")                       \
    X(weft_sdpa(g, v.x, v.x, v.x, NULL), BAD_SHAPE, "at/sdpa", NULL)                               \
    X(weft_layer_norm(g, v.x, v.flat, v.none, 1e-5), BAD_DTYPE, "at/layer_norm",                   \
      "gamma \"flat\" must be f32 like x \"x\"")                                                   \
    X(weft_require_finite(g, v.x, NULL, 1), BAD_ARGUMENT, "at/require_finite", "NULL")             \
    X(weft_require_finite(g, v.x, &v.x, 1), BAD_SHAPE, "at/require_finite",                        \
      "\"x\" must be a scal")                                                                      \
    X(weft_assign(g, v.x, v.x), BAD_ARGUMENT, "at/assign", "state is updated")                     \
    X(weft_assign(g, v.w, v.y), BAD_SHAPE, "at/assign", "value \"y\" must be [2, 3]")              \
    X(weft_cache_write(g, v.w, v.x, v.x), BAD_DTYPE, "at/cache_write", "position \"x\"")           \
    X(weft_cache_reorder(g, weft_state(g, "line", WEFT_F32, WEFT_SHAPE(4), WEFT_INIT_ZEROS),       \
                         v.ids, v.ids),                                                            \
      BAD_SHAPE, "at/cache_reorder", "rank 2 or more, got [4]")                                    \
    X(weft_group(g, NULL, 3), BAD_ARGUMENT, "at/group", "got 3 at NULL")                           \
    X(weft_fill(g, WEFT_F32, WEFT_SHAPE(-1), 0), BAD_SHAPE, NULL, "[-1]")                          \
    X(weft_input(g, "big", WEFT_F32, WEFT_SHAPE(INT64_MAX, 2)), TOO_LARGE, "at/input", "overflow") \
    X(weft_input(g, "", WEFT_F32, WEFT_SCALAR), BAD_ARGUMENT, "at/weft_input", "NULL or empty")    \
    X(weft_state(g, NULL, WEFT_F32, WEFT_SCALAR, WEFT_INIT_ZEROS), BAD_ARGUMENT, "at/weft_state",  \
      "NULL or empty")                                                                             \
    X(weft_param(g, "taken", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ZEROS), BAD_ARGUMENT,              \
      "at/weft_param", "again as a parameter, f32 [2]")                                            \
    X(weft_input(g, "taken", WEFT_F32, WEFT_SCALAR), BAD_ARGUMENT, "at/weft_input", "is taken")    \
    X(weft_name(g, v.none, "n"), BAD_ARGUMENT, "at/weft_name", "not a value")                      \
    X(weft_name(g, v.x, "n"), BAD_ARGUMENT, "at/weft_name", "\"x\" has a name already")            \
    X(weft_input_default(g, v.w, 0), BAD_ARGUMENT, "at/weft_input_default", "not an input")        \
    X(weft_input_default(g, v.ids, 0.5), BAD_ARGUMENT, "at/weft_input_default",                    \
      "default of \"ids\" is 0.5, but i32 takes")                                                  \
    X(weft_input_default(g, v.ids, 3e9), BAD_ARGUMENT, NULL, "but i32 takes")                      \
    X(weft_input_default(g, v.ids, NAN), BAD_ARGUMENT, NULL, "is nan, but i32 takes")              \
    X(weft_input_default(g, v.flag, 2), BAD_ARGUMENT, NULL, "is 2, but bool takes")                \
    X(weft_constant(g, WEFT_F32, WEFT_SHAPE(2), NULL), BAD_ARGUMENT, "at/weft_constant", "NULL")   \
    X(weft_constant(g, WEFT_F32, WEFT_SHAPE(-2), "12345678"), TOO_LARGE, NULL, "negative")         \
    X(weft_apply(g, NULL, NULL, NULL, 0, NULL), BAD_ARGUMENT, "at/weft_apply", "NULL")             \
    X(weft_graph_fail(g, WEFT_BAD_SHAPE, "width %d", 3), BAD_SHAPE, "at", "width 3")               \
    X(weft_graph_fail_in(g, "mine", WEFT_OK, "bad"), INTERNAL, "at/mine", "bad")                   \
    X(weft_graph_push_scope(g, "%0300d", 1), BAD_ARGUMENT, "at/weft_graph_push_scope",             \
      "254 bytes")                                                                                 \
    X(weft_grad(g, v.x, &v.w, 1, got), BAD_SHAPE, "at/weft_grad", "must be a scalar, got [2, 3]")  \
    X(weft_grad(g, v.none, &v.w, 1, got), BAD_ARGUMENT, "at/weft_grad", "output 0")                \
    X(weft_grad(g, v.scalar, &v.ids, 1, got), BAD_ARGUMENT, "at/weft_grad", "wrt 0")               \
    X(weft_grad(g, v.scalar, NULL, 1, got), BAD_ARGUMENT, "at/weft_grad", "NULL")                  \
    X(weft_grad_of(g, &v.x, &v.y, 1, &v.w, 1, got), BAD_SHAPE, "at/weft_grad",                     \
      "cotangent 0 is f32 [4, 5], its output f32 [2, 3]")                                          \
    X(weft_grad(g, weft_sum(g, weft_assign(g, v.w, v.x), WEFT_ALL_AXES, false), &v.w, 1, got),     \
      NO_GRADIENT, NULL, "by design")                                                              \
    X(weft_jvp(g, &v.x, 1, &v.w, &v.y, 1, got), BAD_SHAPE, "at/weft_jvp",                          \
      "tangent 0 is f32 [4, 5], its wrt f32 [2, 3]")                                               \
    X(weft_jvp(g, &v.x, 1, &v.w, &v.ids, 1, got), BAD_SHAPE, "at/weft_jvp", "tangent 0 is i32")    \
    X(weft_jvp(g, &v.x, 1, &v.ids, &v.ids, 1, got), BAD_ARGUMENT, "at/weft_jvp",                   \
      "wrt 0 must be an f32 or f64 value of this graph")                                           \
    X(weft_jvp(g, &v.ids, 1, &v.w, &v.w, 1, got), BAD_ARGUMENT, "at/weft_jvp", "output 0 must")    \
    X(weft_jvp(g, &v.other, 1, &v.w, &v.w, 1, got), BAD_ARGUMENT, "at/weft_jvp", "output 0 must")  \
    X(weft_jvp(g, &v.x, 1, &v.w, NULL, 1, got), BAD_ARGUMENT, "at/weft_jvp", "NULL")               \
    X(weft_jvp(g, &v.x, 1, &v.w, &v.w, 1, NULL), BAD_ARGUMENT, "at/weft_jvp", "NULL")              \
    X(weft_jvp(g, NULL, 1, &v.w, &v.w, 1, got), BAD_ARGUMENT, "at/weft_jvp", "NULL")               \
    X(weft_jvp(g, &(weft_value){weft_assign(g, v.w, v.x).id, v.w.graph}, 1, &v.w, &v.w, 1, got),   \
      NO_GRADIENT, NULL, "by design")                                                              \
    X(weft_custom_gradient(g, v.x, v.y), BAD_SHAPE, "at/custom_gradient",                          \
      "the value is [2, 3], its surrogate [4, 5]")                                                 \
    X(weft_custom_gradient(g, v.x, v.flat), BAD_DTYPE, "at/custom_gradient",                       \
      "surrogate \"flat\" must be f32 like value \"x\"")                                           \
    X(weft_custom_gradient(g, v.ids, v.ids), BAD_DTYPE, "at/custom_gradient",                      \
      "value \"ids\" must be f32 or f64")                                                          \
    X(weft_stop_gradient(g, v.none), BAD_ARGUMENT, "at/custom_gradient", "WEFT_NO_VALUE")          \
    X(weft_hvp(g, v.x, &v.w, &v.w, 1, got), BAD_SHAPE, "at/weft_hvp", "must be a scalar, got [2")  \
    X(weft_hvp(g, v.scalar, &v.w, &v.y, 1, got), BAD_SHAPE, "at/weft_hvp", "vector 0 is f32 [4")   \
    X(weft_hvp(g, v.scalar, &v.ids, &v.ids, 1, got), BAD_ARGUMENT, "at/weft_hvp", "wrt 0 must")    \
    X(weft_hvp(g, v.scalar, &v.w, NULL, 1, got), BAD_ARGUMENT, "at/weft_hvp", "NULL")              \
    X(weft_vmap(g, &v.x, 1, &v.w, &v.y, 1, got), BAD_SHAPE, "at/weft_vmap",                        \
      "batch 0 is f32 [4, 5], input 0 f32 [2, 3]: expected that shape with the examples")          \
    X(weft_vmap(g, &v.x, 1, &v.none, &v.y, 1, got), BAD_ARGUMENT, "at/weft_vmap",                  \
      "input 0 is not a value of this graph")                                                      \
    X(weft_vmap(g, &v.other, 1, &v.w, &v.w, 1, got), BAD_ARGUMENT, "at/weft_vmap", "output 0")     \
    X(weft_vmap(g, &v.x, 1, &v.w, &v.other, 1, got), BAD_ARGUMENT, "at/weft_vmap", "batch 0")      \
    X(weft_vmap(g, &v.x, 1, &v.w, NULL, 1, got), BAD_ARGUMENT, "at/weft_vmap", "NULL")             \
    X(weft_vmap(g, &v.x, 1, NULL, NULL, 0, got), BAD_ARGUMENT, "at/weft_vmap", "at least one")     \
    X(weft_vmap(g, NULL, 1, &v.w, &v.y, 1, got), BAD_ARGUMENT, "at/weft_vmap", "NULL")             \
    X(weft_vmap(g, &(weft_value){weft_assign(g, v.w, v.x).id, v.w.graph}, 1, &v.w,                 \
                &(weft_value){weft_stack(g, &v.w, 1, 0).id, v.w.graph}, 1, got),                   \
      BAD_ARGUMENT, NULL, "writes a state, which all examples share")                              \
    X(weft_jacobian(g, &v.x, 1, &v.flat, 1, got), BAD_DTYPE, "at/weft_jacobian",                   \
      "output 0 is f32, but wrt 0 is f64")                                                         \
    X(weft_jacobian(g, &v.x, 1, &v.ids, 1, got), BAD_ARGUMENT, "at/weft_jacobian", "wrt 0 must")   \
    X(weft_jacobian(g, &v.x, 1, NULL, 1, got), BAD_ARGUMENT, "at/weft_jacobian", "NULL")           \
    X(weft_hessian(g, v.x, &v.w, 1, got), BAD_SHAPE, "at/weft_hessian", "must be a scalar")        \
    X(weft_hessian(g, v.scalar, NULL, 1, got), BAD_ARGUMENT, "at/weft_hessian", "NULL")            \
    X(weft_train_update(g, v.scalar, &v.w, 1, v.whole, &adam, NULL), BAD_DTYPE,                    \
      "at/weft_train_update", "the learning rate \"lr\" is i32 [], expected f32 []")               \
    X(weft_train_update(g, v.scalar, &v.w, 1, v.whole, &guarded, NULL), BAD_DTYPE,                 \
      "at/weft_train_update", "\"lr\" is i32 []")                                                  \
    X(weft_train_update(g, v.scalar, &v.w, 1, v.x, &sgd, NULL), BAD_SHAPE, "at/weft_train_update", \
      "\"x\" is f32 [2, 3], expected f32 []")                                                      \
    X(weft_train_update(g, v.scalar, &v.w, 1, v.none, &sgd, NULL), BAD_ARGUMENT,                   \
      "at/weft_train_update", "the learning rate does not belong")                                 \
    X(weft_adam_update(g, &(weft_adam_values){v.w, v.w, v.w, v.x, v.whole, v.scalar, v.none},      \
                       &adam.adam),                                                                \
      BAD_DTYPE, "at/adam_update", "lr \"lr\" must be f32 like param \"w\", got i32")              \
    X(weft_sgd_update(g, v.w, v.none, v.x, v.x, v.none, &sgd.sgd), BAD_SHAPE, "at/sgd_update",     \
      "lr \"x\" must be [], got [2, 3]")                                                           \
    X(weft_nn_linear(g, "l", v.scalar, 3, true), BAD_SHAPE, NULL, NULL)                            \
    X(weft_nn_feed_forward(                                                                        \
          g, "f", v.x,                                                                             \
          (&(weft_nn_feed_forward_options){.d_ff = 4, .activation = (weft_activation)77})),        \
      BAD_ARGUMENT, NULL, "77")                                                                    \
    X(weft_nn_sinusoidal_positions(g, WEFT_F32, 4, 3), BAD_ARGUMENT,                               \
      "at/weft_nn_sinusoidal_positions", "got 3")                                                  \
    X(weft_nn_sinusoidal_positions(g, WEFT_F32, -4, 2), BAD_ARGUMENT,                              \
      "at/weft_nn_sinusoidal_positions", "-4")                                                     \
    X(weft_nn_positions(g, "p", WEFT_F32, 9, 8, 4), BAD_SHAPE, "at/weft_nn_positions",             \
      "length of 9")                                                                               \
    X(weft_nn_rotary(g, v.x, 1e4), BAD_SHAPE, "at/weft_nn_rotary", "even width")                   \
    X(weft_nn_attention(g, "a", v.x, v.x, (&(weft_nn_attention_options){.heads = 1}), NULL),       \
      BAD_ARGUMENT, "at/weft_nn_attention", "[batch, length, d_model]")                            \
    X(weft_nn_recurrent(g, "r", WEFT_RNN, v.x, 4, NULL, NULL), BAD_SHAPE, "at/weft_nn_recurrent",  \
      "[batch, len, in]")                                                                          \
    X(weft_nn_recurrent_declare(g, "r", (weft_recurrent_kind)9, WEFT_F32, 2, 3), BAD_ARGUMENT,     \
      "at/weft_nn_recurrent_declare", "kind 9")                                                    \
    X(weft_transformer_build(g, NULL, NULL), BAD_ARGUMENT, "at/weft_transformer_build", "NULL")    \
    X(weft_transformer_prepare(g, NULL, NULL), BAD_ARGUMENT, "at/weft_transformer_prepare",        \
      "NULL")                                                                                      \
    X(weft_transformer_encode(g, NULL, NULL), BAD_ARGUMENT, "at/weft_transformer_encode", "NULL")  \
    X(weft_transformer_step(g, NULL, NULL), BAD_ARGUMENT, "at/weft_transformer_step", "NULL")      \
    X(weft_language_build(g, NULL, NULL), BAD_ARGUMENT, "at/weft_language_build", "NULL")          \
    X(weft_language_prepare(g, NULL, NULL), BAD_ARGUMENT, "at/weft_language_prepare", "NULL")      \
    X(weft_language_step(g, NULL, NULL), BAD_ARGUMENT, "at/weft_language_step", "NULL")            \
    X(weft_recurrent_language_build(g, NULL, NULL), BAD_ARGUMENT,                                  \
      "at/weft_recurrent_language_build", "NULL")                                                  \
    X(weft_recurrent_language_prepare(g, NULL, NULL), BAD_ARGUMENT,                                \
      "at/weft_recurrent_language_prepare", "NULL")                                                \
    X(weft_recurrent_language_step(g, NULL, NULL), BAD_ARGUMENT,                                   \
      "at/weft_recurrent_language_step", "NULL")                                                   \
    X(weft_seq2seq_build(g, NULL, NULL), BAD_ARGUMENT, "at/weft_seq2seq_build", "NULL")            \
    X(weft_seq2seq_prepare(g, NULL, NULL), BAD_ARGUMENT, "at/weft_seq2seq_prepare", "NULL")        \
    X(weft_seq2seq_encode(g, NULL, NULL), BAD_ARGUMENT, "at/weft_seq2seq_encode", "NULL")          \
    X(weft_seq2seq_step(g, NULL, NULL), BAD_ARGUMENT, "at/weft_seq2seq_step", "NULL")

static weft_graph *begin(weft_graph *theirs, bool scoped, values *v)
{
    weft_graph *g = weft_graph_new();
    *v = make_values(g, theirs);
    weft_graph_push_scope(g, scoped ? "at" : "");
    weft_input(g, "taken", WEFT_F32, WEFT_SCALAR);
    return g;
}

static void end(weft_graph *g, const char *call, bool scoped, weft_status status, const char *where,
                const char *message)
{
    char outside[128] = "graph";
    if (where && strchr(where, '/'))
        snprintf(outside, sizeof outside, "%s", strchr(where, '/') + 1);
    const char *place = scoped || !where ? where : outside;
    expect(call, weft_graph_error(g), status, place, message);
    weft_graph_free(g);
}

/* Calls each builder in a scope and outside of all, where the place is just the function's name. */
static void test_builders(void)
{
    weft_graph *theirs = weft_graph_new(), *g;
    values v;
#define TRY(call, wanted, place, part)                                                             \
    for (int scoped = 1; scoped >= 0; scoped--) {                                                  \
        g = begin(theirs, scoped, &v);                                                             \
        call;                                                                                      \
        end(g, #call, scoped, WEFT_##wanted, place, part);                                         \
        weft_graph_free(theirs);                                                                   \
        theirs = weft_graph_new();                                                                 \
    }
    BUILDERS(TRY)
#undef TRY
    weft_graph_free(theirs);
}

/* Calls every op with inputs whose number, dtype or rank differs from its samples'. If that fails,
 * the message comes from the op. */
static void vary(const weft_op *op, const weft_sample *sample, int change, size_t at)
{
    weft_graph *g = weft_graph_new();
    weft_value in[WEFT_SAMPLE_INPUTS + 1], out[WEFT_MAX_OUTPUTS];
    size_t n = sample->n_in;
    for (size_t i = 0; i < n; i++) {
        weft_shape shape = sample->in[i].shape;
        weft_dtype dtype = sample->in[i].dtype == WEFT_FLOAT ? WEFT_F32 : sample->in[i].dtype;
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        if (i == at && change < WEFT_DTYPES) dtype = (weft_dtype)change;
        if (i == at && change == WEFT_DTYPES) shape.dim[shape.rank++] = 3;
        if (i == at && change == WEFT_DTYPES + 1 && shape.rank) shape.rank--;
        in[i] = weft_state(g, name, dtype, shape, WEFT_INIT_ZEROS);
    }
    if (change == WEFT_DTYPES + 2) in[n++] = in[0];
    if (change == WEFT_DTYPES + 3) n--;
    weft_apply(g, op, sample->attr, in, n, out);
    const weft_error *e = weft_graph_error(g);
    if (e->status != WEFT_OK) expect(op->name, e, e->status, op->name, NULL);
    weft_graph_free(g);
}

static void test_ops(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        for (size_t s = 0; s < op->n_samples; s++)
            for (size_t at = 0; at < op->samples[s].n_in; at++)
                for (int change = 0; change < WEFT_DTYPES + 4; change++)
                    vary(op, &op->samples[s], change, at);
    }
    CU_PASS("no message is empty");
}

/* ---- Calls that fill an error ---- */

static weft_status step_never(void *context, const int32_t *tokens, const int32_t *parents,
                              weft_tensor *log_probs, weft_error *error)
{
    (void)context, (void)tokens, (void)parents, (void)log_probs;
    return weft_error_set(error, WEFT_INTERNAL, "made up", "no step");
}

/* A gradient check of one value. */
#define CHECK_OF(what, of)                                                                         \
    &(weft_gradient_check)                                                                         \
    {                                                                                              \
        .loss = what, .wrt = of, .n = 1, .params = params                                          \
    }

#define CALLS(X)                                                                                   \
    X(weft_plan_new(NULL, &v.x, 1, NULL, e), BAD_ARGUMENT, "graph", "NULL")                        \
    X(weft_plan_new(g, NULL, 0, NULL, e), BAD_ARGUMENT, "weft_plan_new", "at least one")           \
    X(weft_plan_new(g, &v.other, 1, NULL, e), BAD_ARGUMENT, "weft_plan_new", "target 0")           \
    X(weft_plan_new(g, &v.x, 1, (&(weft_plan_options){.skip = "x"}), e), BAD_ARGUMENT,             \
      "weft_plan_options.skip", "expected join_slices")                                            \
    X(weft_plan_check(NULL, e), BAD_ARGUMENT, NULL, "NULL")                                        \
    X(weft_graph_verify(NULL, e), BAD_ARGUMENT, "graph", "NULL")                                   \
    X(weft_session_new(NULL, NULL, NULL, e), BAD_ARGUMENT, "weft_session_new", "NULL")             \
    X(weft_session_new(plan, params, (&(weft_session_options){.threads = -1}), e), BAD_ARGUMENT,   \
      "weft_session_new", "-1 threads")                                                            \
    X(weft_session_new(plan, NULL, NULL, e), NOT_FOUND, "w", "parameter store")                    \
    X(weft_session_new(plan, wrong, NULL, e), BAD_SHAPE, "w", "[7]")                               \
    X(weft_session_new(plan, params, (&(weft_session_options){.arena = got}), e), BAD_ARGUMENT,    \
      "weft_session_new", "arena")                                                                 \
    X(weft_params_init(NULL, g, 1, e), BAD_ARGUMENT, NULL, "NULL")                                 \
    X(weft_params_init(params, NULL, 1, e), BAD_ARGUMENT, "graph", "NULL")                         \
    X(weft_params_init(wrong, g, 1, e), BAD_SHAPE, "w", "[7]")                                     \
    X(weft_params_add(params, "", WEFT_F32, WEFT_SCALAR, NULL, e), BAD_ARGUMENT, NULL, "name")     \
    X(weft_params_add(params, NULL, WEFT_F32, WEFT_SCALAR, NULL, e), BAD_ARGUMENT, NULL, "name")   \
    X(weft_params_add(params, "w", WEFT_F32, WEFT_SCALAR, NULL, e), BAD_SHAPE, "w", "[2, 3]")      \
    X(weft_params_share(params, NULL, e), BAD_ARGUMENT, NULL, "store")                             \
    X(weft_params_share(params, wrong, e), BAD_ARGUMENT, "w", "both")                              \
    X(weft_params_save(NULL, "x", NULL, e), BAD_ARGUMENT, NULL, "store")                           \
    X(weft_params_save(params, NULL, NULL, e), BAD_ARGUMENT, NULL, "path")                         \
    X(weft_params_save(params, "/nowhere/at/all", NULL, e), IO, "/nowhere/at/all", NULL)           \
    X(weft_params_load(params, NULL, e), BAD_ARGUMENT, NULL, "path")                               \
    X(weft_params_load(params, "/nowhere", e), NOT_FOUND, "/nowhere", NULL)                        \
    X(weft_params_load(params, "/", e), IO, "/", NULL)                                             \
    X(weft_params_average(params, NULL, 0, e), BAD_ARGUMENT, NULL, "file")                         \
    X(weft_pack(NULL, 1, NULL, NULL, e), BAD_ARGUMENT, NULL, "NULL")                               \
    X(weft_pack((&(weft_pack_item){5, 5, 1, 0}), 1, NULL, &packed, e), BAD_ARGUMENT, NULL, "5")    \
    X(weft_graph_write_dot(g, NULL, NULL, e), BAD_ARGUMENT, NULL, "NULL")                          \
    X(weft_communicator_wait(NULL, NULL, e), BAD_ARGUMENT, "weft_communicator_wait", "NULL")       \
    X(weft_communicator_gather(NULL, &n, sizeof n, &n, e), BAD_ARGUMENT,                           \
      "weft_communicator_gather", "NULL")                                                          \
    X(weft__stage_new(g, NULL, 0, false, (weft_ranks){.size = 2}, e), BAD_ARGUMENT,                \
      "weft__stage_new", "no targets")                                                             \
    X(weft__stage_new_like(g, &v.x, 1, false, NULL, e), BAD_ARGUMENT, "weft__stage_new_like",      \
      "NULL")                                                                                      \
    X(weft_profile_table_new(NULL, WEFT_PROFILE_BY_OP, 0, NULL, e), BAD_ARGUMENT, NULL, "NULL")    \
    X(weft_profile_events_new(NULL, e), BAD_ARGUMENT, NULL, "NULL")                                \
    X(weft_profile_write_trace(NULL, stderr, e), BAD_ARGUMENT, NULL, "NULL")                       \
    X(weft_profile_write_dot(NULL, stderr, e), BAD_ARGUMENT, NULL, "NULL")                         \
    X(weft_measure_gemm(WEFT_I32, 0, &number, e), BAD_ARGUMENT, NULL, "f32 or f64")                \
    X(weft_measure_peaks(WEFT_F32, 0, NULL, e), BAD_ARGUMENT, NULL, "NULL")                        \
    X(weft_check_gradient(g, CHECK_OF(v.scalar, NULL), &check, e), BAD_ARGUMENT, NULL, "NULL")     \
    X(weft_check_gradient(g, CHECK_OF(v.scalar, &v.w), &check, e), BAD_DTYPE, "w", "f64")          \
    X(weft_check_gradient(g, CHECK_OF(v.scalar, &unnamed), &check, e), BAD_DTYPE,                  \
      "weft_check_gradient", "f64")                                                                \
    X(weft_check_gradient(NULL, CHECK_OF(v.scalar, &v.w), &check, e), BAD_ARGUMENT, "graph",       \
      "NULL")                                                                                      \
    X(weft_check_gradient(g, CHECK_OF(weft_sum(g, v.flat, WEFT_ALL_AXES, false), &v.flat), &check, \
                          e),                                                                      \
      NOT_FOUND, "flat", "never fed")                                                              \
    X(weft_check_op(NULL, 0, 1, -1, 1, &check, e), BAD_ARGUMENT, NULL, "op")                       \
    X(weft_model_parse(NULL, NULL, 0, &config, e), BAD_ARGUMENT, NULL, "NULL")                     \
    X(weft_model_parse(gpt, texts, 1, &config, e), BAD_ARGUMENT, "gpt", "option=value")            \
    X(weft_model_parse(gpt, texts + 1, 1, &config, e), NOT_FOUND, "gpt", "nothing")                \
    X(weft_model_parse(gpt, texts + 2, 1, &config, e), BAD_ARGUMENT, "gpt", "whole number")        \
    X(weft_model_build_text(g, gpt, texts + 3, 1, false, &built, e), BAD_ARGUMENT, NULL, "heads")  \
    X(weft_batches_new(NULL, NULL, e), BAD_ARGUMENT, NULL, "corpus")                               \
    X(weft_trainer_new(NULL, NULL, NULL, e), BAD_ARGUMENT, NULL, "model")                          \
    X(weft_decoder_new(NULL, NULL, NULL, e), BAD_ARGUMENT, NULL, "NULL")                           \
    X(weft_decoder_new(&config, params, (&(weft_decoder_options){.beams = -1}), e), BAD_ARGUMENT,  \
      NULL, "1 or more")                                                                           \
    X(weft_search_beam(NULL, NULL, 0, &search, e), BAD_ARGUMENT, NULL, "NULL")                     \
    X(weft_search_greedy(&model, NULL, 0, &search, e), BAD_ARGUMENT, NULL, "eos is outside")       \
    X(weft_search_sample(&model, (&(weft_search_input){0}), 1,                                     \
                         (&(weft_search_options){.temperature = 1, .top_p = 1}), e),               \
      BAD_ARGUMENT, NULL, "token")

static void test_calls(void)
{
    const weft_model *gpt = weft_model_find("gpt");
    static const char *const texts[] = {"heads", "nothing=1", "heads=x", "heads=7"};
    weft_error error = {0}, *e = &error;
    weft_graph *theirs = weft_graph_new(), *g = weft_graph_new();
    values v = make_values(g, theirs);
    weft_value y = weft_add(g, v.w, v.x), unnamed = weft_neg(g, v.x);
    weft_params *params = weft_params_new(), *wrong = weft_params_new();
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_params_init(params, g, 1, NULL);
    weft_params_add(wrong, "w", WEFT_F32, WEFT_SHAPE(7), &(weft_tensor){0}, NULL);
    weft_pack_result packed;
    weft_check_result check;
    weft_built built;
    size_t n;
    double number;
    weft_model_config config;
    weft_model_parse(gpt, NULL, 0, &config, NULL);
    const weft_search_options search = {.eos = 99, .has_eos = true};
    const weft_search_model model = {
        .step = step_never, .sentences = 1, .beams = 1, .vocab = 9, .max_len = 4};
#define TRY(call, wanted, place, part)                                                             \
    memset(e, 0, sizeof *e);                                                                       \
    (void)call;                                                                                    \
    expect(#call, e, WEFT_##wanted, place, part);
    CALLS(TRY)
#undef TRY
    weft_plan_free(plan);
    weft_params_free(params);
    weft_params_free(wrong);
    weft_graph_free(g);
    weft_graph_free(theirs);
}

/* ---- Calls on a session ---- */

#define SESSION_CALLS(X)                                                                           \
    X(weft_session_run(s, &error), NOT_FOUND, "x", "expected f32 [2, 3]")                          \
    X(weft_session_feed(s, v.x, data, 3, &error), BAD_ARGUMENT, "weft_session_feed",               \
      "\"x\" is f32 [2, 3], 24 bytes; got 3")                                                      \
    X(weft_session_feed(s, v.x, NULL, 24, &error), BAD_ARGUMENT, "weft_session_feed",              \
      "24 bytes at NULL")                                                                          \
    X(weft_session_feed(s, v.w, data, 24, &error), BAD_ARGUMENT, "weft_session_feed",              \
      "\"w\" is not an input")                                                                     \
    X(weft_session_feed(s, y, data, 24, &error), BAD_ARGUMENT, "weft_session_feed",                \
      "not an input")                                                                              \
    X(weft_session_feed(s, unused, data, 24, &error), BAD_ARGUMENT, "weft_session_feed",           \
      "not an input")                                                                              \
    X(weft_session_feed(s, v.other, data, 24, &error), BAD_ARGUMENT, "weft_session_feed",          \
      "planned graph")                                                                             \
    X(weft_session_feed(s, v.none, data, 24, &error), BAD_ARGUMENT, "weft_session_feed",           \
      "planned graph")                                                                             \
    X(weft_session_fetch(s, v.none, data, 24, &error), NOT_FOUND, "weft_session_fetch",            \
      "planned graph")                                                                             \
    X(weft_session_fetch(s, v.other, data, 24, &error), NOT_FOUND, "weft_session_fetch",           \
      "planned graph")                                                                             \
    X(weft_session_fetch(s, unused, data, 24, &error), NOT_FOUND, "weft_session_fetch",            \
      "expected a target")                                                                         \
    X(weft_session_fetch(s, inner, data, 24, &error), NOT_FOUND, "weft_session_fetch",             \
      "expected a target")                                                                         \
    X(weft_session_fetch(s, y, data, 20, &error), BAD_ARGUMENT, "weft_session_fetch",              \
      "f32 [2, 3], 24 bytes; got 20")                                                              \
    X(weft_session_fetch(s, v.w, data, 20, &error), BAD_ARGUMENT, "weft_session_fetch",            \
      "\"w\" is f32 [2, 3]")                                                                       \
    X(weft_session_fetch(s, y, NULL, 24, &error), BAD_ARGUMENT, "weft_session_fetch", "at NULL")   \
    X(weft_session_tensor(s, inner, &t, &error), NOT_FOUND, "weft_session_tensor",                 \
      "expected a target")

static void test_session_calls(void)
{
    weft_error error;
    weft_graph *theirs = weft_graph_new(), *g = weft_graph_new();
    values v = make_values(g, theirs);
    weft_value inner = weft_exp(g, v.x), y = weft_add(g, v.w, inner), unused = weft_neg(g, v.x);
    weft_params *params = weft_params_new();
    weft_params_init(params, g, 1, NULL);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float data[6] = {0};
    weft_tensor t;
#define TRY(call, wanted, place, part)                                                             \
    CU_ASSERT_EQUAL(call, WEFT_##wanted);                                                          \
    expect(#call, &error, WEFT_##wanted, place, part);
    SESSION_CALLS(TRY)
#undef TRY
    CU_ASSERT_EQUAL(weft_session_fetch(NULL, y, data, 24, &error), WEFT_BAD_ARGUMENT);
    expect("NULL", &error, WEFT_BAD_ARGUMENT, "weft_session_fetch", "NULL");
    CU_ASSERT_EQUAL(weft_session_tensor(NULL, y, &t, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_trainer_update(NULL, 0, NULL, &error), WEFT_BAD_ARGUMENT);
    expect("NULL", &error, WEFT_BAD_ARGUMENT, "trainer", "NULL");
    CU_ASSERT_EQUAL(weft_decoder_step(NULL, NULL, NULL, &error), WEFT_BAD_ARGUMENT);
    expect("NULL", &error, WEFT_BAD_ARGUMENT, "decoder", "NULL");
    /* A call that succeeds clears the error. */
    CU_ASSERT_EQUAL(weft_session_feed(s, v.x, data, sizeof data, &error), WEFT_OK);
    CU_ASSERT_EQUAL(error.status, WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    weft_graph_free(theirs);
}

/* Each status has a text of its own; a number that is none has one as well. */
static void test_texts(void)
{
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < i; k++) {
            const char *a = weft_status_text((weft_status)i), *b = weft_status_text((weft_status)k);
            const bool known = strcmp(a, "unknown status") != 0;
            CU_ASSERT_TRUE(a[0] && (strcmp(a, b) != 0 || !known));
        }
    CU_ASSERT_STRING_EQUAL(weft_status_text(WEFT_NO_MEMORY), "out of memory");
    CU_ASSERT_STRING_EQUAL(weft_status_text((weft_status)-1), "unknown status");
}

/* A record holds the first error, and always has a place. */
static void test_record(void)
{
    weft_error e = {0};
    CU_ASSERT_EQUAL(weft_error_set(&e, WEFT_IO, NULL, "no %s", "disk"), WEFT_IO);
    CU_ASSERT_STRING_EQUAL(e.where, "weft");
    CU_ASSERT_STRING_EQUAL(e.message, "no disk");
    CU_ASSERT_EQUAL(weft_error_set(&e, WEFT_BAD_FILE, "later", "x"), WEFT_BAD_FILE);
    CU_ASSERT_EQUAL(e.status, WEFT_IO);
    CU_ASSERT_EQUAL(weft_error_set(NULL, WEFT_IO, NULL, "x"), WEFT_IO);
    weft_error copy = {0};
    CU_ASSERT_EQUAL(weft_error_copy(&copy, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_error_copy(&copy, &copy), WEFT_OK);
    CU_ASSERT_EQUAL(weft_error_copy(&copy, &e), WEFT_IO);
    CU_ASSERT_EQUAL(memcmp(&copy, &e, sizeof e), 0);
    weft_error later = {WEFT_BAD_SHAPE, "later", "x"};
    CU_ASSERT_EQUAL(weft_error_copy(&copy, &later), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(copy.status, WEFT_IO);
    CU_ASSERT_EQUAL(weft_error_copy(NULL, &e), WEFT_IO);
    weft_graph *g = weft_graph_new();
    weft_graph_fail(g, WEFT_BAD_SHAPE, "mine");
    expect("weft_graph_fail", weft_graph_error(g), WEFT_BAD_SHAPE, "graph", "mine");
    weft_graph_free(g);
}

void errors_tests(void)
{
    CU_pSuite suite = CU_add_suite("errors", NULL, NULL);
    CU_add_test(suite, "records", test_record);
    CU_add_test(suite, "texts of statuses", test_texts);
    CU_add_test(suite, "builders", test_builders);
    CU_add_test(suite, "ops on what they do not take", test_ops);
    CU_add_test(suite, "calls with an error to fill", test_calls);
    CU_add_test(suite, "calls on a session", test_session_calls);
}
