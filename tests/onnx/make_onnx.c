/* Writes a small ONNX model: make_onnx FILE [KIND], for onnx_test.sh and fit_test.sh.
 *
 * mlp (default): ids [N, 2] choose rows of a table, which are added to tanh(x W1 + b1), where x is
 * [N, 3]; logits = h W2 + b2 [N, 4], class = argmax. `other` has other weights. `length` has an
 * open dimension "T" in place of the 3 of x, over which x is summed. `reshape`: y = Reshape(x,
 * shape) with an input for the shape. `softmax`: mlp with the output p = softmax(logits) alone, and
 * `sigmoid` with its sigmoid; `quotient`: the softmax as exp and a quotient; `flat` with its signs. `integers`: y = a + a, without floats. `external LOCATION`:
 * mlp, whose table is in the file LOCATION, which is also written. */
#include <weft/weft.h>

#include "onnx_writer.h"

#include <stdio.h>
#include <string.h>

/* The last dimension of the last input is open, and has a name of its own. */
static void open_last(written_graph *g, arena *p, const char *name)
{
    WeftOnnx__TypeProto *type = g->inputs[g->proto.n_input - 1]->type;
    WeftOnnx__TensorShapeProto *shape = type->tensor_type->shape;
    shape->dim[shape->n_dim - 1]->has_dim_value = false;
    shape->dim[shape->n_dim - 1]->dim_param = weft__arena_text(p, name);
}

static void mlp(arena *p, written_graph *g, bool length, uint64_t seed)
{
    static const int64_t last = -1, middle = 1;
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(-1, 3));
    if (length) open_last(g, p, "T");
    write_input(p, g, "ids", ONNX_INT64, WEFT_SHAPE(-1, 2));
    write_random(p, g, "table", WEFT_SHAPE(5, 6), 1, seed);
    write_random(p, g, "W1", length ? WEFT_SHAPE(1, 6) : WEFT_SHAPE(3, 6), 1, seed + 1);
    write_random(p, g, "b1", WEFT_SHAPE(6), 1, seed + 2);
    write_random(p, g, "W2", WEFT_SHAPE(6, 4), 1, seed + 3);
    write_random(p, g, "b2", WEFT_SHAPE(4), 1, seed + 4);
    write_longs(p, g, "last", WEFT_SHAPE(1), &last);
    write_longs(p, g, "middle", WEFT_SHAPE(1), &middle);
    if (length) write_node(p, g, "ReduceSum", "x last", "sum");
    write_node(p, g, "Gemm", length ? "sum W1 b1" : "x W1 b1", "a");
    write_node(p, g, "Tanh", "a", "t");
    write_node(p, g, "Gather", "table ids", "rows");
    write_int(p, write_node(p, g, "ReduceSum", "rows middle", "bag"), "keepdims", 0);
    write_node(p, g, "Add", "t bag", "h");
    write_node(p, g, "Gemm", "h W2 b2", "logits");
    write_int(p, write_node(p, g, "ArgMax", "logits", "class"), "axis", 1);
    write_output(p, g, "class");
    write_output(p, g, "logits");
}

/* The mlp, whose only output is p, of its logits. */
static void probabilities(arena *p, written_graph *g, const char *kind)
{
    mlp(p, g, false, 1);
    g->proto.n_output = 0;
    const char *const op = !strcmp(kind, "softmax")   ? "Softmax"
                           : !strcmp(kind, "sigmoid") ? "Sigmoid"
                                                      : "Sign";
    if (!strcmp(kind, "quotient")) {
        write_node(p, g, "Exp", "logits", "e");
        write_node(p, g, "ReduceSum", "e middle", "total");
        write_node(p, g, "Div", "e total", "p");
    } else {
        write_node(p, g, op, "logits", "p");
    }
    write_output(p, g, "p");
}

/* Moves the contents of a tensor to a file. */
static bool move_outside(arena *p, WeftOnnx__TensorProto *t, const char *location)
{
    const bool good = write_file(location, t->raw_data.data, t->raw_data.len);
    t->has_raw_data = false;
    write_external(p, t, location, "0");
    return good;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 2 ? argv[2] : "mlp";
    arena memory = {.blocks = NULL};
    size_t bytes;
    bool good = true;
    if (argc < 2 || (!strcmp(kind, "external") && argc < 4))
        return fprintf(stderr, "make_onnx FILE "
                               "[mlp|other|length|reshape|softmax|sigmoid|quotient|flat|integers|"
                               "external LOCATION]\n"),
               2;
    written_graph *g = write_graph(&memory);
    if (!strcmp(kind, "reshape")) {
        write_input(&memory, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, 3));
        write_input(&memory, g, "shape", ONNX_INT64, WEFT_SHAPE(2));
        write_node(&memory, g, "Reshape", "x shape", "y");
        write_output(&memory, g, "y");
    } else if (!strcmp(kind, "integers")) {
        write_input(&memory, g, "a", ONNX_INT64, WEFT_SHAPE(2, 3));
        write_node(&memory, g, "Add", "a a", "y");
        write_output(&memory, g, "y");
    } else if (!strcmp(kind, "softmax") || !strcmp(kind, "sigmoid") || !strcmp(kind, "quotient") ||
               !strcmp(kind, "flat")) {
        probabilities(&memory, g, kind);
    } else {
        mlp(&memory, g, !strcmp(kind, "length"), strcmp(kind, "other") ? 1 : 11);
        if (!strcmp(kind, "external")) good = move_outside(&memory, g->initializers[0], argv[3]);
    }
    const uint8_t *data = write_model(&memory, g, 17, &bytes);
    good = good && write_file(argv[1], data, bytes);
    weft__arena_free(&memory);
    if (!good) fprintf(stderr, "%s: cannot be written\n", argv[1]);
    return !good;
}
