/* Whole Jacobians and Hessians: a gradient for each row, or a JVP for each column. What rows or
 * columns have in common, such as the forward pass, is one set of nodes or becomes one (`cse`). */
#include "transform.h"

#include <stdlib.h>

typedef struct jacobian {
    weft_graph *graph;
    const char *function; /* for messages */
    const weft_value *outputs, *wrt;
    size_t n_outputs, n;
    weft_value *jacobians;
    weft_value *parts; /* room for the rows or the columns of one value */
} jacobian;

static bool failed(const jacobian *j)
{
    return weft_graph_status(j->graph) != WEFT_OK;
}

static int64_t numel_of(const jacobian *j, weft_value value)
{
    return weft_shape_numel(weft_shape_of(j->graph, value));
}

/* The shape of an output followed by that of a wanted value. */
static weft_shape joint_shape(const jacobian *j, size_t k, size_t i)
{
    const weft_shape y = weft_shape_of(j->graph, j->outputs[k]);
    const weft_shape x = weft_shape_of(j->graph, j->wrt[i]);
    weft_shape s = {y.rank + x.rank, {0}};
    for (int d = 0; d < s.rank; d++) s.dim[d] = d < y.rank ? y.dim[d] : x.dim[d - y.rank];
    return s;
}

/* [numel, numel] with ones on the diagonal: in row r, the unit vector r of a value. None if it has
 * no element. */
static weft_value units_of(const jacobian *j, weft_value value)
{
    const int64_t numel = numel_of(j, value);
    if (!numel) return WEFT_NO_VALUE;
    const weft_value indices = weft_arange(j->graph, WEFT_I32, numel, 0, 1);
    return weft_one_hot(j->graph, indices, numel, weft_dtype_of(j->graph, value));
}

static weft_value unit(const jacobian *j, weft_value units, weft_value value, int64_t r)
{
    const weft_value row = weft_slice(j->graph, units, 0, r, r + 1, 1);
    return weft_reshape(j->graph, row, weft_shape_of(j->graph, value));
}

/* Joins the `count` rows or columns of jacobian (k, i), which are every `step`-th of parts. */
static void join(const jacobian *j, size_t k, size_t i, int64_t count, bool rows)
{
    const weft_shape shape = joint_shape(j, k, i);
    weft_value *result = &j->jacobians[k * j->n + i];
    if (!weft_shape_numel(shape)) {
        *result = weft_fill(j->graph, weft_dtype_of(j->graph, j->wrt[i]), shape, 0.0);
        return;
    }
    const size_t step = rows ? j->n : j->n_outputs, first = rows ? i : k;
    weft_value *list = malloc((size_t)count * sizeof *list);
    if (!list) {
        weft_graph_fail_in(j->graph, j->function, WEFT_NO_MEMORY, "no memory");
        return;
    }
    /* Flat, since a stack has one dimension more, and a shape at most WEFT_MAX_RANK. */
    const weft_shape flat = {1, {weft_shape_numel(shape) / count}};
    for (int64_t r = 0; r < count; r++)
        list[r] = weft_reshape(j->graph, j->parts[(size_t)r * step + first], flat);
    const weft_value stack = weft_stack(j->graph, list, (size_t)count, rows ? 0 : 1);
    *result = weft_reshape(j->graph, stack, shape);
    free(list);
}

static void by_rows(const jacobian *j)
{
    for (size_t k = 0; k < j->n_outputs && !failed(j); k++) {
        const weft_value y = j->outputs[k], units = units_of(j, y);
        const int64_t rows = numel_of(j, y);
        for (int64_t r = 0; r < rows && !failed(j); r++) {
            const weft_value cotangent = unit(j, units, y, r);
            weft__grad_walk(j->graph, &(weft_grad_values){&y, &cotangent, 1, j->wrt, j->n},
                            &j->parts[(size_t)r * j->n], &GRAD_REVERSE(j->function));
        }
        for (size_t i = 0; i < j->n && !failed(j); i++) join(j, k, i, rows, true);
    }
}

static void by_columns(const jacobian *j)
{
    for (size_t i = 0; i < j->n && !failed(j); i++) {
        const weft_value x = j->wrt[i], units = units_of(j, x);
        const int64_t columns = numel_of(j, x);
        linear_map map;
        if (weft__linear_map_open(&map, j->graph, j->function,
                                  &(weft_grad_values){j->outputs, NULL, j->n_outputs, &x, 1}))
            for (int64_t c = 0; c < columns && !failed(j); c++) {
                const weft_value tangent = unit(j, units, x, c);
                weft__linear_map_transpose(&map, &tangent, &j->parts[(size_t)c * j->n_outputs]);
            }
        weft__linear_map_close(&map);
        for (size_t k = 0; k < j->n_outputs && !failed(j); k++) join(j, k, i, columns, false);
    }
}

/* ---- Arguments ---- */

static bool check_pairs(const jacobian *j)
{
    char y[128], x[128];
    for (size_t k = 0; k < j->n_outputs * j->n; k++) {
        const weft_value output = j->outputs[k / j->n], wrt = j->wrt[k % j->n];
        const weft_shape a = weft_shape_of(j->graph, output), b = weft_shape_of(j->graph, wrt);
        const weft_dtype dtype = weft_dtype_of(j->graph, output);
        if (dtype != weft_dtype_of(j->graph, wrt)) {
            weft_graph_fail_in(j->graph, j->function, WEFT_BAD_DTYPE,
                               "output %zu is %s, but wrt %zu is %s: expected one dtype", k / j->n,
                               weft_dtype_name(dtype), k % j->n,
                               weft_dtype_name(weft_dtype_of(j->graph, wrt)));
            return false;
        }
        const bool ranks = a.rank + b.rank <= WEFT_MAX_RANK;
        if (ranks && weft_shape_numel(joint_shape(j, k / j->n, k % j->n)) >= 0) continue;
        weft_graph_fail_in(j->graph, j->function, ranks ? WEFT_TOO_LARGE : WEFT_BAD_SHAPE,
                           "output %zu is %s and wrt %zu is %s: their %s", k / j->n,
                           weft_shape_text(a, y, sizeof y), k % j->n,
                           weft_shape_text(b, x, sizeof x),
                           ranks ? "Jacobian is too large" : "ranks add up to more than 8");
        return false;
    }
    return true;
}

/* The elements of all values, at most one more than the limit. */
static int64_t count_elements(const jacobian *j, const weft_value *values, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n && sum <= WEFT_MAX_JACOBIAN; i++) {
        const int64_t numel = numel_of(j, values[i]);
        sum += numel > WEFT_MAX_JACOBIAN ? WEFT_MAX_JACOBIAN + 1 : numel;
    }
    return sum > WEFT_MAX_JACOBIAN ? WEFT_MAX_JACOBIAN + 1 : sum;
}

static void build(jacobian *j)
{
    const int64_t rows = count_elements(j, j->outputs, j->n_outputs);
    const int64_t columns = count_elements(j, j->wrt, j->n),
                  fewer = rows < columns ? rows : columns;
    if (fewer > WEFT_MAX_JACOBIAN) {
        weft_graph_fail_in(j->graph, j->function, WEFT_TOO_LARGE,
                           "outputs and wrt have more than %d elements each: expected at most that "
                           "many of one of them",
                           WEFT_MAX_JACOBIAN);
        return;
    }
    const size_t others = rows <= columns ? j->n : j->n_outputs;
    j->parts = calloc((size_t)fewer * others + 1, sizeof *j->parts);
    if (!j->parts)
        weft_graph_fail_in(j->graph, j->function, WEFT_NO_MEMORY, "no memory");
    else if (rows <= columns)
        by_rows(j);
    else
        by_columns(j);
    free(j->parts);
}

static void check_and_build(jacobian *j)
{
    const size_t count = j->n_outputs * j->n;
    if (failed(j)) return;
    if ((j->n_outputs && !j->outputs) || (j->n && !j->wrt) || (count && !j->jacobians)) {
        weft_graph_fail_in(j->graph, j->function, WEFT_BAD_ARGUMENT,
                           "the list of outputs, wrt or results is NULL");
        return;
    }
    if (weft__grad_check_floats(j->graph, j->function, "output", j->outputs, j->n_outputs) &&
        weft__grad_check_floats(j->graph, j->function, "wrt", j->wrt, j->n) && check_pairs(j))
        build(j);
    if (failed(j)) clear_values(j->jacobians, count);
}

void weft_jacobian(weft_graph *graph, const weft_value *outputs, size_t n_outputs,
                   const weft_value *wrt, size_t n, weft_value *jacobians)
{
    jacobian j = {graph, "weft_jacobian", outputs, wrt, n_outputs, n, jacobians, NULL};
    clear_values(jacobians, n_outputs * n);
    check_and_build(&j);
}

void weft_hessian(weft_graph *graph, weft_value loss, const weft_value *wrt, size_t n,
                  weft_value *hessians)
{
    clear_values(hessians, n * n);
    if (weft_graph_status(graph) != WEFT_OK) return;
    weft_value *grads = calloc(n + 1, sizeof *grads);
    if (!grads) {
        weft_graph_fail_in(graph, "weft_hessian", WEFT_NO_MEMORY, "no memory");
        return;
    }
    weft__grad_of_loss(graph, "weft_hessian", loss, wrt, n, grads);
    jacobian j = {graph, "weft_hessian", grads, wrt, n, n, hessians, NULL};
    check_and_build(&j);
    free(grads);
}
