/* The ops without kernels that every graph knows: inputs, states and constants, and the group. */
#include "ir/ir.h"

static bool infer_input(weft_infer *infer)
{
    const weft_input_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return true;
}

static bool part_fits(const weft_part *part, weft_shape shape)
{
    if (part->axis < 0 || part->axis >= shape.rank || part->first < 0) return false;
    const int64_t n = shape.dim[part->axis];
    shape.dim[part->axis] = part->whole;
    return part->first <= part->whole - n && weft_shape_numel(shape) >= 0;
}

/* Whether the shape has the dimensions that the kind's fans are taken from. */
static bool init_fits(weft_init_kind kind, weft_shape shape)
{
    if (kind < WEFT_INIT_XAVIER_UNIFORM) return true;
    return kind < WEFT_INIT_CONV_XAVIER_UNIFORM ? shape.rank <= 2 : shape.rank >= 2;
}

static bool infer_state(weft_infer *infer)
{
    const weft_state_attr *attr = infer->attr;
    const weft_part *part = &attr->part;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    if (part->whole && !part_fits(part, attr->shape))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "%lld elements from %lld on lie outside axis %d with %lld elements",
                               part->axis >= 0 && part->axis < attr->shape.rank
                                   ? (long long)attr->shape.dim[part->axis]
                                   : 0,
                               (long long)part->first, part->axis, (long long)part->whole);
    if ((unsigned)attr->init.kind > WEFT_INIT_CONV_KAIMING_NORMAL)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%d is not a weft_init_kind",
                               (int)attr->init.kind);
    if (!init_fits(attr->init.kind, attr->shape))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "the fans of an initialisation need %s, the rank is %d",
                               attr->init.kind < WEFT_INIT_CONV_XAVIER_UNIFORM
                                   ? "[in, out], or a CONV_ kind for [out, in, kernel...]"
                                   : "[out, in, kernel...]",
                               attr->shape.rank);
    return attr->init.kind != WEFT_INIT_CONSTANT ||
           weft_infer_scalar(infer, "init", attr->init.a, attr->dtype);
}

static bool infer_constant(weft_infer *infer)
{
    const weft_constant_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return true;
}

static bool infer_group(weft_infer *infer)
{
    infer->out[0] = (weft_type){WEFT_BOOL, {1, {0}}};
    return true;
}

static const weft_attr_field input_attrs[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(weft_input_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(weft_input_attr, shape)},
    {NULL, WEFT_ATTR_INT, 0},
};
static const weft_attr_field state_attrs[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(weft_state_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(weft_state_attr, shape)},
    {"trainable", WEFT_ATTR_BOOL, offsetof(weft_state_attr, trainable)},
    {NULL, WEFT_ATTR_INT, 0},
};
static const weft_attr_field constant_attrs[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(weft_constant_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(weft_constant_attr, shape)},
    {NULL, WEFT_ATTR_INT, 0},
};

const weft_op weft_op_input = {
    .name = "input",
    .doc = "A tensor that the program feeds before a run.",
    .n_out = 1,
    .attr_size = sizeof(weft_input_attr),
    .attrs = input_attrs,
    .infer = infer_input,
    .gradient = WEFT_GRADIENT_ZERO,
};

const weft_op weft_op_state = {
    .name = "state",
    .doc = "A tensor of the parameter store: a trainable parameter or other state.",
    .n_out = 1,
    .attr_size = sizeof(weft_state_attr),
    .attrs = state_attrs,
    .infer = infer_state,
    .gradient = WEFT_GRADIENT_ZERO,
};

const weft_op weft_op_constant = {
    .name = "constant",
    .doc = "A tensor whose contents belong to the graph.",
    .n_out = 1,
    .attr_size = sizeof(weft_constant_attr),
    .attrs = constant_attrs,
    .infer = infer_constant,
    .gradient = WEFT_GRADIENT_ZERO,
};

const weft_op weft_op_group = {
    .name = "group",
    .doc = "An empty value that depends on all its inputs: one target for many.",
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .infer = infer_group,
    .takes = WEFT_TAKES_ANY,
    .gradient = WEFT_GRADIENT_NONE,
};
