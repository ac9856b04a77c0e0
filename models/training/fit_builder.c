/* A builder that adds targets, a loss and an accuracy to a model that has none: see weft/fit.h. */
#include <weft/fit.h>

#include "base/text.h"
#include "run/built.h"

#include <stdio.h>
#include <string.h>

const char *weft_loss_kind_name(weft_loss_kind kind)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        WEFT_LOSS_MAP(NAME)
#undef NAME
    };
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

/* While a graph is built. */
typedef struct fitting {
    const weft_fit *fit;
    weft_graph *g;
    weft_built *built;
    weft_value x, target;
} fitting;

static bool fail(const fitting *f, weft_status status, const char *message)
{
    weft_graph_fail_in(f->g, f->fit->model.name, status, "%s", message);
    return false;
}

/* Declares the targets, the last input. */
static void add_target(fitting *f, weft_dtype dtype, weft_shape shape)
{
    f->target =
        weft__built_add_input(f->built, "fit.target", weft_input(f->g, "target", dtype, shape));
}

/* The fraction of true elements. */
static weft_value fraction_of(const fitting *f, weft_value right)
{
    const weft_value numbers = weft_cast(f->g, right, weft_dtype_of(f->g, f->x));
    return weft_mean(f->g, numbers, WEFT_ALL_AXES, false);
}

/* Moves the classes to the last dimension; false if the output has no such dimension. */
static bool move_classes(fitting *f)
{
    const int rank = weft_rank_of(f->g, f->x);
    const int axis = f->fit->class_axis ? f->fit->class_axis : rank - 1;
    weft_axes order = {.count = 0};
    if (axis < 1 || axis >= rank)
        return fail(f, WEFT_BAD_SHAPE, "a cross entropy needs an output [rows, ..., classes]");
    for (int i = 0; i < rank; i++)
        if (i != axis) order.axis[order.count++] = i;
    order.axis[order.count++] = axis;
    if (axis < rank - 1) f->x = weft_permute(f->g, f->x, order);
    return true;
}

static void add_cross_entropy(fitting *f)
{
    const weft_cross_entropy_loss_options options = {.label_smoothing = f->fit->label_smoothing};
    if (!move_classes(f)) return;
    weft_shape shape = weft_shape_of(f->g, f->x);
    shape.rank--;
    shape.dim[shape.rank] = 0;
    add_target(f, WEFT_I32, shape);
    f->built->loss = weft_cross_entropy_loss(f->g, f->x, f->target, &options);
    const weft_value found = weft_argmax(f->g, f->x, -1, false);
    f->built->accuracy = fraction_of(f, weft_equal(f->g, found, f->target));
}

static void add_bce(fitting *f)
{
    const weft_dtype dtype = weft_dtype_of(f->g, f->x);
    f->built->loss = weft_bce_with_logits_loss(f->g, f->x, f->target, WEFT_REDUCE_MEAN);
    const weft_value found = weft_greater(f->g, f->x, weft_scalar(f->g, dtype, 0));
    const weft_value wanted = weft_greater(f->g, f->target, weft_scalar(f->g, dtype, 0.5));
    f->built->accuracy = fraction_of(f, weft_equal(f->g, found, wanted));
}

/* d^2 / 2 up to d = 1, then the tangent: q^2 / 2 + d - q with q = min(d, 1). */
static weft_value huber(const fitting *f, weft_value d)
{
    const weft_value one = weft_scalar(f->g, weft_dtype_of(f->g, d), 1);
    const weft_value q = weft_minimum(f->g, d, one);
    const weft_value near = weft_mul_scalar(f->g, weft_square(f->g, q), 0.5);
    return weft_add(f->g, near, weft_sub(f->g, d, q));
}

/* A loss of outputs and targets of one shape. */
static void add_elementwise(fitting *f)
{
    weft_graph *g = f->g;
    add_target(f, weft_dtype_of(g, f->x), weft_shape_of(g, f->x));
    if (f->fit->loss == WEFT_LOSS_BCE) {
        add_bce(f);
    } else if (f->fit->loss == WEFT_LOSS_MSE) {
        f->built->loss = weft_mse_loss(g, f->x, f->target, WEFT_REDUCE_MEAN);
    } else {
        weft_value d = weft_abs(g, weft_sub(g, f->x, f->target));
        if (f->fit->loss == WEFT_LOSS_HUBER) d = huber(f, d);
        f->built->loss = weft_mean(g, d, WEFT_ALL_AXES, false);
    }
}

/* Whether a loss of the output can be added. */
static bool check_output(const fitting *f)
{
    const weft_built *b = f->built;
    char message[128];
    if (!weft_loss_kind_name(f->fit->loss)) return fail(f, WEFT_BAD_ARGUMENT, "no such loss");
    if (b->n_inputs >= WEFT_BUILT_VALUES) {
        snprintf(message, sizeof message, "has %zu inputs, with a loss %d are possible",
                 b->n_inputs, WEFT_BUILT_VALUES - 1);
        return fail(f, WEFT_TOO_LARGE, message);
    }
    if (f->fit->output >= b->n_outputs) {
        snprintf(message, sizeof message, "has no output %zu, only %zu of them", f->fit->output,
                 b->n_outputs);
        return fail(f, WEFT_BAD_ARGUMENT, message);
    }
    if (!weft_dtype_is_float(weft_dtype_of(f->g, f->x)))
        return fail(f, WEFT_BAD_DTYPE, "the output of the loss must be f32 or f64");
    return true;
}

static weft_status build(void *context, weft_graph *graph, const weft_build_options *options,
                         weft_built *built)
{
    const weft_fit *fit = context;
    if (fit->model.build(fit->model.context, graph, options, built) != WEFT_OK)
        return weft_graph_status(graph);
    fitting f = {.fit = fit, .g = graph, .built = built};
    if (fit->loss == WEFT_LOSS_MODEL) return weft_graph_status(graph);
    f.x = fit->output < built->n_outputs ? built->outputs[fit->output] : WEFT_NO_VALUE;
    built->loss = built->metric = built->accuracy = WEFT_NO_VALUE;
    if (!check_output(&f)) return weft_graph_status(graph);
    weft_graph_push_scope(graph, "fit");
    if (fit->loss == WEFT_LOSS_CROSS_ENTROPY)
        add_cross_entropy(&f);
    else
        add_elementwise(&f);
    weft_graph_pop_scope(graph);
    return weft_graph_status(graph);
}

/* The model's options, and the loss unless it is the model's own. */
static bool describe(void *context, char *text, size_t capacity)
{
    const weft_fit *fit = context;
    const weft_builder *m = &fit->model;
    size_t used = 0;
    if (capacity) text[0] = 0;
    if (m->describe && !m->describe(m->context, text, capacity)) return false;
    if (fit->loss == WEFT_LOSS_MODEL) return true;
    used = strlen(text);
    const int n = weft__text_format(text + used, capacity - used,
                                    "%sloss=%s output=%zu class_axis=%d label_smoothing=%g",
                                    used ? " " : "", weft_loss_kind_name(fit->loss), fit->output,
                                    fit->class_axis, fit->label_smoothing);
    return n > 0 && (size_t)n < capacity - used;
}

weft_builder weft_fit_builder(const weft_fit *fit)
{
    if (!fit || !fit->model.build) return (weft_builder){.name = NULL};
    return (weft_builder){.name = fit->model.name,
                          .build = build,
                          .describe = describe,
                          .context = (void *)(uintptr_t)fit};
}
