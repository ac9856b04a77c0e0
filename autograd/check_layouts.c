/* Checks that an op computes the same whatever the layout of its operands: an op that declares
 * layouts that its kernel does not read computes wrong results without any error. Each variant of
 * the sample's inputs is a view of a parameter; the expected outputs are those of dense copies, in
 * a plan without optional passes. In the last two a node computes the inputs, so that the op runs
 * in place if it may; the last is large, so that an elementwise op also runs block by block.
 * O(elements) a variant. */
#include "check.h"

#include <weft/ops.h>
#include <weft/session.h>

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum variety {
    TRANSPOSED, /* the axes of the storage are reversed */
    STEPPED,    /* every second element from the second on, along each axis */
    REVERSED,   /* the last axis runs backwards */
    REPEATED,   /* the first axis that has elements to repeat is broadcast */
    COMPUTED,   /* by a node before the op, which may overwrite it */
    BLOCKS,     /* the same, enlarged to several tiles */
    LAYOUTS
} variety;

static const char *const names[LAYOUTS] = {"transposed", "stepped",  "reversed",
                                           "broadcast",  "computed", "large"};

enum { PAIR = 2 };

/* The graph that computes the op twice for each layout from `first` to before `end`: from views and
 * from dense copies of them. One plan of several layouts takes less time than several plans. */
typedef struct variant {
    const weft_op *op;
    const weft_sample *sample;
    variety first, end;
    weft_graph *graph;
    weft_params *params;
    weft_value out[LAYOUTS][PAIR][WEFT_MAX_OUTPUTS];
    weft_value in[LAYOUTS][WEFT_SAMPLE_INPUTS];
} variant;

static weft_dtype dtype_of(const weft_sample_input *input)
{
    return input->dtype == WEFT_FLOAT ? WEFT_F64 : input->dtype;
}

static int max_rank(const weft_sample *sample)
{
    int rank = 0;
    for (size_t i = 0; i < sample->n_in; i++)
        if (rank < sample->in[i].shape.rank) rank = sample->in[i].shape.rank;
    return rank;
}

/* Copies of a sample that have more than two tiles of elements in its largest input. */
static int64_t block_rows(const weft_sample *sample)
{
    int64_t largest = 1;
    for (size_t i = 0; i < sample->n_in; i++) {
        const int64_t n = weft_shape_numel(sample->in[i].shape);
        if (largest < n) largest = n;
    }
    return 2 * WEFT_TILE / largest + 1;
}

/* The shape of the storage whose view has the shape of the input. */
static weft_shape storage_shape(const weft_sample *sample, weft_shape shape, variety layout)
{
    const int rank = max_rank(sample);
    weft_shape s = shape;
    switch (layout) {
    case TRANSPOSED:
        for (int d = 0; d < s.rank; d++) s.dim[d] = shape.dim[s.rank - 1 - d];
        break;
    case STEPPED:
        for (int d = 0; d < s.rank; d++) s.dim[d] = 2 * shape.dim[d] + 1;
        break;
    case REPEATED:
        for (int d = 0; d < s.rank; d++)
            if (s.dim[d] > 1) {
                s.dim[d] = 1;
                break;
            }
        break;
    case BLOCKS: /* [rows, 1, ..., shape]: all inputs of one rank, so that they broadcast */
        s.rank = rank + 1;
        s.dim[0] = block_rows(sample);
        for (int d = 1; d <= rank; d++) {
            const int from = d - 1 - (rank - shape.rank);
            s.dim[d] = from < 0 ? 1 : shape.dim[from];
        }
        break;
    default:
        break;
    }
    return s;
}

static weft_value view_of(weft_graph *g, weft_value x, weft_shape shape, variety layout)
{
    weft_axes axes = {.count = shape.rank};
    switch (layout) {
    case TRANSPOSED:
        for (int d = 0; d < shape.rank; d++) axes.axis[d] = shape.rank - 1 - d;
        return shape.rank > 1 ? weft_permute(g, x, axes) : x;
    case STEPPED:
        for (int d = 0; d < shape.rank; d++) x = weft_slice(g, x, d, 1, WEFT_END, 2);
        return x;
    case REVERSED:
        return shape.rank ? weft_flip(g, x, -1) : x;
    case REPEATED:
        return weft_broadcast_to(g, x, shape);
    default: /* computed, so that the op may run on its blocks, and in place */
        return weft_dtype_is_float(weft_dtype_of(g, x))
                   ? weft_neg(g, weft_neg(g, x))
                   : weft_apply(g, &weft_op_contiguous, NULL, &x, 1, NULL);
    }
}

/* Declares input i, and returns the view of it. */
static weft_value declare(variant *v, size_t i, variety layout, uint64_t seed, weft_error *error)
{
    char name[32];
    weft_tensor t;
    weft_sample_input input = v->sample->in[i];
    const weft_shape shape = input.shape;
    const weft_dtype dtype = dtype_of(&input);
    input.shape = storage_shape(v->sample, shape, layout);
    weft__text_format(name, sizeof name, "x%zu.%d", i, (int)layout);
    if (weft_params_add(v->params, name, dtype, input.shape, &t, error) != WEFT_OK)
        return WEFT_NO_VALUE;
    weft_sample_input_fill(&input, WEFT_F64, seed + 100 * i, t.data);
    const weft_value x = weft_state(v->graph, name, dtype, input.shape, WEFT_INIT_ZEROS);
    return view_of(v->graph, x, shape, layout);
}

/* False if the op does not take these inputs. */
static bool build(variant *v, uint64_t seed, weft_error *error)
{
    for (variety layout = v->first; layout < v->end; layout++) {
        weft_value views[WEFT_SAMPLE_INPUTS], *dense = v->in[layout];
        for (size_t i = 0; i < v->sample->n_in; i++) {
            views[i] = declare(v, i, layout, seed, error);
            dense[i] = weft_apply(v->graph, &weft_op_contiguous, NULL, &views[i], 1, NULL);
        }
        const size_t n = v->sample->n_in;
        weft_apply(v->graph, v->op, v->sample->attr, views, n, v->out[layout][0]);
        weft_apply(v->graph, v->op, v->sample->attr, dense, n, v->out[layout][1]);
    }
    return weft_graph_status(v->graph) == WEFT_OK;
}

static bool equal(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= 1e-12 * fmax(1, fabs(b));
}

/* Compares one output of both ways. The sums of an op may have another order in another layout:
 * 1e-12 is 4,500 roundings of f64. */
static void compare(size_t k, variety layout, const weft_tensor *got, const weft_tensor *wanted,
                    weft_check_result *result)
{
    const int64_t n = weft_shape_numel(wanted->shape);
    for (int64_t i = 0; i < n; i++) {
        const double a = weft_tensor_element(got, i), b = weft_tensor_element(wanted, i);
        if (equal(a, b)) continue;
        result->worst_error = INFINITY;
        weft__text_format(result->where, sizeof result->where,
                          "output %zu[%lld] of %s inputs: %.10g, of dense inputs %.10g", k,
                          (long long)i, names[layout], a, b);
        return;
    }
}

/* Runs one way; the session's outputs are those of the views or of the dense copies. */
static weft_session *run(const variant *v, int way, weft_plan **plan, weft_error *error)
{
    weft_value targets[LAYOUTS * (WEFT_MAX_OUTPUTS + WEFT_SAMPLE_INPUTS)];
    size_t n = 0;
    for (variety layout = v->first; layout < v->end; layout++) {
        for (size_t k = 0; k < v->op->n_out; k++) targets[n++] = v->out[layout][way][k];
        /* A target is not overwritten, so the expected outputs are not computed in place. */
        for (size_t i = 0; way && i < v->sample->n_in; i++) targets[n++] = v->in[layout][i];
    }
    const weft_plan_options options = {.skip = way ? "all" : NULL};
    const weft_session_options one_thread = {.threads = 1};
    *plan = weft_plan_new(v->graph, targets, n, &options, error);
    weft_session *s = *plan ? weft_session_new(*plan, v->params, &one_thread, error) : NULL;
    if (s && weft_session_run(s, error) == WEFT_OK) return s;
    weft_session_free(s);
    return NULL;
}

static void compare_layout(const variant *v, variety layout, weft_session *const *s,
                           weft_check_result *result)
{
    for (size_t k = 0; result->worst_error == 0 && k < v->op->n_out; k++) {
        weft_tensor got, wanted;
        if (weft_session_tensor(s[0], v->out[layout][0][k], &got, NULL) == WEFT_OK &&
            weft_session_tensor(s[1], v->out[layout][1][k], &wanted, NULL) == WEFT_OK)
            compare(k, layout, &got, &wanted, result);
    }
}

static weft_status compare_ways(const variant *v, weft_check_result *result, weft_error *error)
{
    weft_plan *plans[PAIR] = {NULL, NULL};
    weft_session *s[PAIR] = {NULL, NULL};
    weft_error own = {WEFT_OK, "", ""};
    for (int way = 0; way < PAIR && own.status == WEFT_OK; way++)
        s[way] = run(v, way, &plans[way], &own);
    for (variety layout = v->first; own.status == WEFT_OK && layout < v->end; layout++)
        compare_layout(v, layout, s, result);
    for (int way = 0; way < PAIR; way++) {
        weft_session_free(s[way]);
        weft_plan_free(plans[way]);
    }
    return weft_error_copy(error, &own);
}

/* Checks the layouts from `first` to before `end`, if the op takes inputs of their shapes: it may
 * refuse larger ones. */
static weft_status check_some(const weft_op *op, const weft_sample *sample, variety first,
                              variety end, uint64_t seed, weft_check_result *result,
                              weft_error *error)
{
    variant v = {.op = op, .sample = sample, .first = first, .end = end};
    v.graph = weft_graph_new();
    v.params = weft_params_new();
    weft_status status = v.params && v.graph ? WEFT_OK : WEFT_NO_MEMORY;
    if (status != WEFT_OK)
        weft_error_set(error, status, "weft_check_op", "no memory");
    else if (build(&v, seed, error))
        status = compare_ways(&v, result, error);
    weft_params_free(v.params);
    weft_graph_free(v.graph);
    return status;
}

weft_status weft__check_layouts(const weft_op *op, const weft_sample *sample, uint64_t seed,
                                weft_check_result *result, weft_error *error)
{
    if (op->updates || op->exchanges || !sample->n_in) return WEFT_OK;
    const weft_status status = check_some(op, sample, TRANSPOSED, BLOCKS, seed, result, error);
    if (status != WEFT_OK || result->worst_error > 0 || !op->elementwise ||
        max_rank(sample) == WEFT_MAX_RANK)
        return status;
    return check_some(op, sample, BLOCKS, LAYOUTS, seed, result, error);
}
