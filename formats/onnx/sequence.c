/* Sequences and optional values. Both are known during the import: a sequence is a list of values,
 * and an optional value is a value or absent. So positions and lengths must not depend on data. */
#include "onnx/sequence.h"
#include "onnx/import.h"
#include "onnx/ops.h"

#include <string.h>

/* ---- Sequences ---- */

/* Input i, which must be a sequence; NULL after a failure. */
static const onnx_sequence *sequence_of(onnx_node *n, size_t i)
{
    if (has_in(n, i) && n->in[i]->sequence) return n->in[i]->sequence;
    weft__node_fail(n, WEFT_BAD_DTYPE, "input %zu is not a sequence", i);
    return NULL;
}

/* Makes output i a new sequence, which is empty; NULL if out of memory. */
static onnx_sequence *new_sequence(onnx_node *n, size_t i)
{
    onnx_sequence *s = weft__arena_alloc(&n->import->memory, sizeof *s);
    if (!s) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a sequence");
        return NULL;
    }
    *s = (onnx_sequence){.values = NULL};
    if (i < n->n_out) n->out[i].sequence = s;
    return s;
}

static onnx_value *new_value(onnx_node *n)
{
    onnx_value *v = weft__arena_alloc(&n->import->memory, sizeof *v);
    if (!v) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a value");
    if (v) *v = (onnx_value){.name = ""};
    return v;
}

/* A position of input i from 0 to `last`, the default without it; -1 after a failure. Negative ones
 * count from `size`. */
static int64_t position(onnx_node *n, size_t i, int64_t size, int64_t last, int64_t default_value)
{
    int64_t given = default_value;
    if (weft__in_ints(n, i, "position", &given, 1) < 0) return -1;
    const int64_t at = given < 0 ? given + size : given;
    if (at >= 0 && at <= last) return at;
    weft__node_fail(n, WEFT_BAD_INDEX, "position %lld is outside of a sequence of %lld values",
                    (long long)given, (long long)size);
    return -1;
}

void weft__map_SequenceEmpty(onnx_node *n)
{
    new_sequence(n, 0);
}

void weft__map_SequenceConstruct(onnx_node *n)
{
    onnx_sequence *s = new_sequence(n, 0);
    for (size_t i = 0; s && i < n->n_in; i++) {
        if (!has_in(n, i)) {
            weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", i);
            return;
        }
        if (!weft__sequence_push(n, s, n->in[i])) return;
    }
}

/* Input 0 with input 1 before position 2, or at the end. */
void weft__map_SequenceInsert(onnx_node *n)
{
    const onnx_sequence *from = sequence_of(n, 0);
    onnx_sequence *s = from ? new_sequence(n, 0) : NULL;
    const int64_t count = from ? (int64_t)from->count : 0;
    const int64_t at = s ? position(n, 2, count, count, count) : -1;
    for (int64_t i = 0; at >= 0 && i <= count; i++)
        if ((i == at && !weft__sequence_push(n, s, n->in[1])) ||
            (i < count && !weft__sequence_push(n, s, from->values[i])))
            return;
}

/* Input 0 without position 1, or the last one. */
void weft__map_SequenceErase(onnx_node *n)
{
    const onnx_sequence *from = sequence_of(n, 0);
    onnx_sequence *s = from ? new_sequence(n, 0) : NULL;
    const int64_t count = from ? (int64_t)from->count : 0;
    const int64_t at = s ? position(n, 1, count, count - 1, count - 1) : -1;
    for (int64_t i = 0; at >= 0 && i < count; i++)
        if (i != at && !weft__sequence_push(n, s, from->values[i])) return;
}

void weft__map_SequenceAt(onnx_node *n)
{
    const onnx_sequence *s = sequence_of(n, 0);
    const int64_t count = s ? (int64_t)s->count : 0;
    const int64_t at = s ? position(n, 1, count, count - 1, 0) : -1;
    if (at >= 0) weft__copy_value(&n->out[0], s->values[at]);
}

void weft__map_SequenceLength(onnx_node *n)
{
    const onnx_sequence *s = sequence_of(n, 0);
    if (!s) return;
    const int32_t count = (int32_t)s->count;
    weft__set_known(n, 0, ONNX_INT64, WEFT_SCALAR, &count);
}

/* x[begin : end] along an axis, or the element `begin` without the axis. */
static onnx_value *part_of(onnx_node *n, int axis, bool keep, int64_t begin, int64_t end)
{
    WeftOnnx__NodeProto slice = WEFT_ONNX__NODE_PROTO__INIT;
    onnx_value numbers[] = {weft__known_number(n, WEFT_I32, begin),
                            weft__known_number(n, WEFT_I32, end),
                            weft__known_number(n, WEFT_I32, axis)};
    onnx_value *in[] = {n->in[0], &numbers[0], &numbers[1], &numbers[2]}, *out = new_value(n);
    if (weft__node_failed(n)) return NULL;
    if (!keep) return weft__apply_axis(n, "", "Gather", axis, in, 2, out) ? out : NULL;
    for (int i = 0; i < 3; i++) numbers[i].tensor.shape = WEFT_SHAPE(1);
    slice.op_type = (char *)(uintptr_t) "Slice";
    slice.name = n->proto->name;
    return weft__import_node(n->import, n->scope, &slice, in, 4, out, 1) ? out : NULL;
}

/* Parts of input 0 along an axis: of the sizes of input 1, of its one number each, or of one
 * element, whose axis goes with keepdims = 0. */
void weft__map_SplitToSequence(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    if (weft__node_failed(n)) return;
    const int axis = weft__attr_axis(n, "axis", 0, s.rank);
    const bool keep = has_in(n, 1) || weft__attr_int(n, "keepdims", 1) != 0;
    const onnx_tensor *sizes = has_in(n, 1) ? weft__in_tensor(n, 1, "split") : NULL;
    onnx_sequence *out = new_sequence(n, 0);
    if (sizes && sizes->dtype != WEFT_I32)
        weft__node_fail(n, WEFT_BAD_DTYPE, "split must be integers");
    if (weft__node_failed(n) || !out) return;
    const int64_t size = s.dim[axis], count = sizes ? weft_shape_numel(sizes->shape) : 0;
    const bool listed = sizes && sizes->shape.rank > 0;
    int64_t begin = 0;
    for (int64_t i = 0; listed ? i < count : begin < size; i++) {
        const int64_t wanted = listed  ? (int64_t)onnx_tensor_element(sizes, i)
                               : sizes ? (int64_t)onnx_tensor_element(sizes, 0)
                                       : 1;
        if (wanted < (listed ? 0 : 1) || (listed && wanted > size - begin)) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "parts of %lld do not fit %lld elements",
                            (long long)wanted, (long long)size);
            return;
        }
        const int64_t end = wanted < size - begin ? begin + wanted : size;
        onnx_value *part = part_of(n, axis, keep, begin, end);
        if (!part || !weft__sequence_push(n, out, part)) return;
        begin = end;
    }
    if (listed && begin != size)
        weft__node_fail(n, WEFT_BAD_SHAPE, "parts of %lld elements do not fit %lld",
                        (long long)begin, (long long)size);
}

void weft__map_ConcatFromSequence(onnx_node *n)
{
    const onnx_sequence *s = sequence_of(n, 0);
    const int64_t axis = weft__attr_int(n, "axis", 0);
    if (!s) return;
    if (!s->count)
        weft__node_fail(n, WEFT_BAD_SHAPE, "joins a sequence without values");
    else if (weft__attr_int(n, "new_axis", 0))
        weft__sequence_join(n, s, axis, false, &n->out[0]);
    else
        weft__apply_axis(n, "", "Concat", axis, s->values, s->count, &n->out[0]);
}

/* The body on each value of input 0; other inputs are sequences as long, or stay the same. */
void weft__map_SequenceMap(onnx_node *n)
{
    const WeftOnnx__GraphProto *body = weft__body_of(n, "body");
    const onnx_sequence *s = body ? sequence_of(n, 0) : NULL;
    onnx_value *in = weft__arena_alloc(&n->import->memory, (n->n_in + 1) * sizeof *in);
    if (!in) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for inputs of a body");
    if (!s || !in) return;
    for (size_t k = 0; k < n->n_out; k++)
        if (!new_sequence(n, k)) return;
    for (size_t i = 0; i < s->count; i++) {
        for (size_t k = 0; k < n->n_in; k++) {
            const onnx_sequence *other = has_in(n, k) ? n->in[k]->sequence : NULL;
            if (!has_in(n, k) || (other && other->count != s->count)) {
                weft__node_fail(n, WEFT_BAD_SHAPE, "input %zu is not a sequence of %zu values", k,
                                s->count);
                return;
            }
            in[k] = other ? *other->values[i] : *n->in[k];
        }
        onnx_scope *scope = weft__run_body(n, body, in, n->n_in);
        for (size_t k = 0; scope && k < n->n_out; k++) {
            onnx_value *v = weft__body_output(n, scope, body, k);
            if (!v || !weft__sequence_push(n, (onnx_sequence *)(uintptr_t)n->out[k].sequence, v))
                return;
        }
        if (!scope) return;
    }
}

/* ---- Optional values ---- */

void weft__map_Optional(onnx_node *n)
{
    if (has_in(n, 0))
        weft__copy_value(&n->out[0], n->in[0]);
    else
        n->out[0].absent = true;
}

void weft__map_OptionalGetElement(onnx_node *n)
{
    if (has_in(n, 0))
        weft__copy_value(&n->out[0], n->in[0]);
    else
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "its optional input has no element");
}

void weft__map_OptionalHasElement(onnx_node *n)
{
    const uint8_t present = has_in(n, 0);
    weft__set_known(n, 0, ONNX_BOOL, WEFT_SCALAR, &present);
}
