/* suppress: which boxes of a list stay, if each one that stays removes those after it that overlap
 * it too much. A tile is one list; O(boxes x boxes that stay). */
#include "kernels/kernel.h"

typedef struct suppress_attr {
    double threshold;
} suppress_attr;

#ifdef WEFT_KERNEL_ISA

/* A box that stays: its lower and higher corner, and its area. */
typedef struct kept_box {
    double low[2], high[2], area;
} kept_box;

static inline kept_box box_at(const T *x)
{
    kept_box b;
    for (int k = 0; k < 2; k++) {
        const double from = (double)x[k], to = (double)x[2 + k];
        b.low[k] = to < from ? to : from;
        b.high[k] = to > from ? to : from;
    }
    b.area = (b.high[0] - b.low[0]) * (b.high[1] - b.low[1]);
    return b;
}

static inline bool overlap(const kept_box *a, const kept_box *b, double threshold)
{
    double sides[2];
    for (int k = 0; k < 2; k++) {
        const double low = a->low[k] > b->low[k] ? a->low[k] : b->low[k];
        const double high = a->high[k] < b->high[k] ? a->high[k] : b->high[k];
        if (!(high > low)) return false;
        sides[k] = high - low;
    }
    const double shared = sides[0] * sides[1];
    return shared / (a->area + b->area - shared) > threshold;
}

KERNEL(suppress)
{
    const double threshold = ((const suppress_attr *)call->attr)->threshold;
    const weft_shape *s = &call->in[0].shape;
    const int64_t n = s->dim[s->rank - 2];
    const T *boxes = (const T *)call->in[0].data + tile * n * 4;
    uint8_t *stays = (uint8_t *)call->out[0].data + tile * n;
    kept_box *kept = weft_call_workspace(call);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        const kept_box box = box_at(boxes + 4 * i);
        bool free = true;
        stays[i] = true;
        /* A box without area overlaps none. */
        if (!(box.high[0] > box.low[0] && box.high[1] > box.low[1])) continue;
        for (int64_t k = 0; free && k < count; k++) free = !overlap(&kept[k], &box, threshold);
        if (free) kept[count++] = box;
        stays[i] = free;
    }
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_suppress;

static bool infer_suppress(weft_infer *infer)
{
    weft_shape shape = infer->in[0].shape;
    char text[128];
    if (!weft_infer_float(infer, 0)) return false;
    if (shape.rank < 2 || shape.dim[shape.rank - 1] != 4)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "boxes must be [..., n, 4], got %s",
                               weft_shape_text(shape, text, sizeof text));
    shape.rank--;
    infer->out[0] = (weft_type){WEFT_BOOL, shape};
    return true;
}

static int64_t boxes_of(const weft_call *call)
{
    const weft_shape *s = &call->in[0].shape;
    return s->dim[s->rank - 2];
}

static int64_t tiles_suppress(const weft_call *call)
{
    const int64_t n = boxes_of(call);
    return n ? numel_of(&call->in[0].shape) / 4 / n : 0;
}

static size_t workspace_suppress(const weft_call *call)
{
    return (size_t)boxes_of(call) * 5 * sizeof(double);
}

/* At most: every box stays. */
static void cost_suppress(const weft_call *call, weft_cost *cost)
{
    const double boxes = (double)numel_of(&call->out[0].shape);
    cost->flops = 6 * boxes * (double)boxes_of(call);
    cost->bytes = boxes * (4 * (double)weft_dtype_bytes(call->in[0].dtype) + 1);
}

static void source_suppress(weft_source *s)
{
    const int64_t n = s->in[0].shape.dim[s->in[0].shape.rank - 2];
    const weft_source_arg args[] = {WEFT_ARG_IN(0), WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(n ? weft_shape_numel(s->in[0].shape) / 4 / n : 0),
                                    WEFT_ARG_INT(n),
                                    WEFT_ARG_DOUBLE(((const suppress_attr *)s->attr)->threshold)};
    weft_source_call_of(s, "suppress", args, 5);
}

static const suppress_attr some = {0.3}, all = {0};
static const weft_sample samples_suppress[] = {
    {&some, 1, {{WEFT_FLOAT, {3, {2, 12, 4}}, -2, 2, false}}},
    {&all, 1, {{WEFT_FLOAT, {2, {40, 4}}, -2, 2, false}}},
    {&some, 1, {{WEFT_FLOAT, {2, {0, 4}}, -2, 2, false}}},
};
static const weft_attr_field suppress_fields[] = {
    {"threshold", WEFT_ATTR_DOUBLE, offsetof(suppress_attr, threshold)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_KERNELS(suppress);
const weft_op weft_op_suppress = {
    .name = "suppress",
    .doc = "true for each box that stays: those before it that stay share at most the threshold's "
           "fraction of the union with it.",
    .inputs = "boxes",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(suppress_attr),
    .attrs = suppress_fields,
    .infer = infer_suppress,
    .kernel = FLOAT_KERNELS(suppress),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_suppress,
    .workspace = workspace_suppress,
    .cost = cost_suppress,
    .gradient = WEFT_GRADIENT_ZERO,
    .batch = weft__batch_front,
    .source = source_suppress,
    .samples = samples_suppress,
    .n_samples = sizeof samples_suppress / sizeof *samples_suppress,
};

weft_value weft_suppress(weft_graph *graph, weft_value boxes, double threshold)
{
    suppress_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.threshold = threshold;
    return weft_apply(graph, &weft_op_suppress, &attr, &boxes, 1, NULL);
}

#endif
