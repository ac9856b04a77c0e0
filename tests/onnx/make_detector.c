/* Writes a small detector, untrained, as an ONNX file: make_detector FILE [BATCH]. docs/detectors.md
 * trains it. With BATCH the file accepts no other batch.
 *
 * image [N, 3, 64, 64] passes five convolutions, which become cells [N, 8 x 8, 8]: one cell for each
 * 8 x 8 pixels, with the logit of an object, of its centre's place in the cell (x, y), the
 * logarithms of its width and height in units of 16 pixels, and the logits of three classes. The
 * rest of the file decodes the cells and suppresses all but the best of boxes that overlap: boxes
 * [n, 4] in pixels, scores [n] and labels [n], where the image decides n. */
#include <weft/weft.h>

#include "onnx_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 64, GRID = 8, CELLS = GRID * GRID, CLASSES = 3, FEATURES = 5 + CLASSES };

/* Random in [-limit, limit). */
static void random_weight(arena *p, written_graph *g, const char *name, weft_shape shape,
                          double limit)
{
    write_random(p, g, name, shape, limit, g->proto.n_initializer);
}

/* The last initializer becomes a node. */
static void make_constant(arena *p, written_graph *g)
{
    WeftOnnx__TensorProto *t = g->initializers[--g->proto.n_initializer];
    write_attribute(p, write_node(p, g, "Constant", "", t->name), "value")->t = t;
}

static void constant_floats(arena *p, written_graph *g, const char *name, weft_shape shape,
                            const float *data)
{
    write_floats(p, g, name, shape, data);
    make_constant(p, g);
}

static void constant_longs(arena *p, written_graph *g, const char *name, weft_shape shape,
                           const int64_t *data)
{
    write_longs(p, g, name, shape, data);
    make_constant(p, g);
}

/* A square convolution that keeps the size for stride 1 and halves it for stride 2. The weights are
 * as He et al. 2015 draw them. */
static void conv(arena *p, written_graph *g, int number, int in, int out, int kernel, int stride)
{
    char weight[32], bias[32], from[32], words[128], output[32];
    snprintf(weight, sizeof weight, "conv%d.weight", number);
    snprintf(bias, sizeof bias, "conv%d.bias", number);
    random_weight(p, g, weight, WEFT_SHAPE(out, in, kernel, kernel),
                  sqrt(6.0 / (in * kernel * kernel)));
    random_weight(p, g, bias, WEFT_SHAPE(out), 0);
    snprintf(from, sizeof from, number == 1 ? "image" : "x%d", number - 1);
    snprintf(words, sizeof words, "%s %s %s", from, weight, bias);
    snprintf(output, sizeof output, "c%d", number);
    WeftOnnx__NodeProto *node = write_node(p, g, "Conv", words, output);
    const int64_t pad = kernel / 2, pads[] = {pad, pad, pad, pad}, strides[] = {stride, stride};
    write_ints(p, node, "pads", pads, 4);
    write_ints(p, node, "strides", strides, 2);
    snprintf(words, sizeof words, "x%d", number);
    write_node(p, g, "Relu", output, words);
}

static void network(arena *p, written_graph *g, int64_t batch)
{
    static const int64_t shape[] = {0, FEATURES, CELLS}, perm[] = {0, 2, 1};
    write_input(p, g, "image", ONNX_FLOAT, WEFT_SHAPE(batch, 3, SIDE, SIDE));
    conv(p, g, 1, 3, 16, 3, 2);
    conv(p, g, 2, 16, 24, 3, 2);
    conv(p, g, 3, 24, 32, 3, 2);
    conv(p, g, 4, 32, 32, 3, 1);
    random_weight(p, g, "head.weight", WEFT_SHAPE(FEATURES, 32, 1, 1), 0.1);
    random_weight(p, g, "head.bias", WEFT_SHAPE(FEATURES), 0);
    write_node(p, g, "Conv", "x4 head.weight head.bias", "head");
    constant_longs(p, g, "rows", WEFT_SHAPE(3), shape);
    write_node(p, g, "Reshape", "head rows", "features");
    write_ints(p, write_node(p, g, "Transpose", "features", "cells"), "perm", perm, 3);
}

/* Corners and scores of all cells. */
static void decode(arena *p, written_graph *g)
{
    static const int64_t parts[] = {1, 2, 2, CLASSES}, perm[] = {0, 2, 1};
    static const float cell = SIDE / GRID, half_unit = 8;
    float corner[2 * CELLS];
    for (int i = 0; i < CELLS; i++)
        corner[2 * i] = (float)(i % GRID), corner[2 * i + 1] = (float)(i / GRID);
    constant_longs(p, g, "parts", WEFT_SHAPE(4), parts);
    constant_floats(p, g, "corners", WEFT_SHAPE(CELLS, 2), corner);
    constant_floats(p, g, "cell_side", WEFT_SCALAR, &cell);
    constant_floats(p, g, "half_unit", WEFT_SCALAR, &half_unit);
    write_int(p, write_node(p, g, "Split", "cells parts", "object place size kind"), "axis", 2);
    write_node(p, g, "Sigmoid", "place", "inside");
    write_node(p, g, "Add", "inside corners", "cell_centres");
    write_node(p, g, "Mul", "cell_centres cell_side", "centres");
    write_node(p, g, "Exp", "size", "units");
    write_node(p, g, "Mul", "units half_unit", "halves");
    write_node(p, g, "Sub", "centres halves", "low");
    write_node(p, g, "Add", "centres halves", "high");
    write_int(p, write_node(p, g, "Concat", "low high", "all_boxes"), "axis", 2);
    write_node(p, g, "Sigmoid", "object", "objectness");
    write_int(p, write_node(p, g, "Softmax", "kind", "kinds"), "axis", 2);
    write_node(p, g, "Mul", "objectness kinds", "cell_scores");
    write_ints(p, write_node(p, g, "Transpose", "cell_scores", "all_scores"), "perm", perm, 3);
}

/* [batch, class, cell] of the boxes that stay; their corners, scores and classes. */
static void choose(arena *p, written_graph *g)
{
    static const int64_t most = 16, batch_and_cell[] = {0, 2}, kind = 1;
    static const float overlap = 0.45f, least = 0.25f;
    constant_longs(p, g, "most", WEFT_SHAPE(1), &most);
    constant_floats(p, g, "overlap", WEFT_SHAPE(1), &overlap);
    constant_floats(p, g, "least", WEFT_SHAPE(1), &least);
    constant_longs(p, g, "batch_and_cell", WEFT_SHAPE(2), batch_and_cell);
    constant_longs(p, g, "kind_column", WEFT_SCALAR, &kind);
    write_node(p, g, "NonMaxSuppression", "all_boxes all_scores most overlap least", "chosen");
    write_int(p, write_node(p, g, "Gather", "chosen batch_and_cell", "where"), "axis", 1);
    write_node(p, g, "GatherND", "all_boxes where", "boxes");
    write_node(p, g, "GatherND", "all_scores chosen", "scores");
    write_int(p, write_node(p, g, "Gather", "chosen kind_column", "labels"), "axis", 1);
    write_output(p, g, "boxes");
    write_output(p, g, "scores");
    write_output(p, g, "labels");
}

int main(int argc, char **argv)
{
    arena memory = {.blocks = NULL};
    size_t bytes;
    if (argc != 2 && argc != 3) return fputs("usage: make_detector FILE [BATCH]\n", stderr), 2;
    written_graph *g = write_graph(&memory);
    network(&memory, g, argc > 2 ? strtoll(argv[2], NULL, 10) : -1);
    decode(&memory, g);
    choose(&memory, g);
    const uint8_t *data = write_model(&memory, g, 17, &bytes);
    const bool good = write_file(argv[1], data, bytes);
    weft__arena_free(&memory);
    if (!good) fprintf(stderr, "%s: cannot be written\n", argv[1]);
    return !good;
}
