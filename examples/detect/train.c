/* Trains a small detector from an ONNX file further, on pictures with known boxes, and measures it on
 * others before and after.
 *
 *     cc train.c detector.c picture.c $(pkg-config --cflags --libs weft-formats libturbojpeg libpng) -lm -o train_detector
 *     ./train_detector FILE.onnx [--weights=FILE] TRAIN.txt TEST.txt STEPS OUT.safetensors
 *
 * --weights=FILE: begins with the weights of this safetensors file instead of those of FILE.onnx.
 *
 * A line of a list is a box: the name of a PNG or JPEG file in the list's folder, left, top, right
 * and bottom in pixels, and the label.
 *
 * The file has a value "cells" [batch, rows x columns, 5 + classes] before its boxes are decoded. A
 * cell of 8 x 8 pixels finds at most one object, whose centre lies in it: the logit of an object;
 * of the centre's place in the cell, x and y; the logarithms of width and height, in units of 16
 * pixels; and the logits of the classes. The loss of a cell is a binary cross-entropy for the
 * object, and where there is one, squares for the box and a cross-entropy for the class. Adam, with
 * a learning rate that falls to zero. The status is 1 after an error, or if the detector gets worse. */
#include "detector.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, CELL = 8, UNIT = 16, MAX_PICTURES = 512, MAX_BOXES = 8 };
static const float rate = 3e-3f;

typedef struct example {
    char path[512];
    picture picture;
    int n;
    found_box boxes[MAX_BOXES];
} example;

typedef struct example_list {
    int n;
    example *examples; /* [MAX_PICTURES] */
} example_list;

/* ---- Lists ---- */

static bool is_size(float x)
{
    return x > 0 && isfinite(x);
}

static bool add_line(example_list *l, const char *path, const char *line, weft_error *error)
{
    char name[256], full[512];
    found_box b = {.score = 1};
    const char *slash = strrchr(path, '/');
    if (sscanf(line, "%255s %f %f %f %f %d", name, &b.corners[0], &b.corners[1], &b.corners[2],
               &b.corners[3], &b.label) != 6 ||
        !is_size(b.corners[2] - b.corners[0]) || !is_size(b.corners[3] - b.corners[1]) ||
        b.label < 0)
        return weft_error_set(error, WEFT_BAD_FILE, path,
                              "expected lines \"NAME LEFT TOP RIGHT BOTTOM LABEL\""),
               false;
    snprintf(full, sizeof full, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
    example *e = l->n ? &l->examples[l->n - 1] : NULL;
    if (!e || strcmp(e->path, full) != 0) {
        if (l->n == MAX_PICTURES)
            return weft_error_set(error, WEFT_BAD_FILE, path, "more than %d pictures",
                                  MAX_PICTURES),
                   false;
        e = &l->examples[l->n++];
        memcpy(e->path, full, sizeof full);
        if (picture_read(&e->picture, full, error) != WEFT_OK) return false;
    }
    if (e->n == MAX_BOXES)
        return weft_error_set(error, WEFT_BAD_FILE, full, "more than %d boxes", MAX_BOXES), false;
    return e->boxes[e->n++] = b, true;
}

static bool read_list(example_list *l, const char *path, weft_error *error)
{
    char line[1024];
    bool good = true;
    l->examples = (example *)calloc(MAX_PICTURES, sizeof *l->examples);
    FILE *file = l->examples ? fopen(path, "r") : NULL;
    if (!file) return weft_error_set(error, WEFT_IO, path, "cannot be opened"), false;
    while (good && fgets(line, sizeof line, file))
        good = strlen(line) + 1 < sizeof line
                   ? add_line(l, path, line, error)
                   : (weft_error_set(error, WEFT_BAD_FILE, path, "a line is too long"), false);
    fclose(file);
    if (good && !l->n) good = (weft_error_set(error, WEFT_BAD_FILE, path, "has no boxes"), false);
    return good;
}

static void free_list(example_list *l)
{
    for (int i = 0; l->examples && i < l->n; i++) free(l->examples[i].picture.pixels);
    free(l->examples);
}

/* ---- Training ---- */

typedef struct network {
    weft_onnx *model;
    weft_params *params;
    weft_session *session;
    weft_plan *plan;
    weft_value image, wanted, lr, loss;
    int height, width, features; /* of a cell */
} network;

/* cells and wanted [batch, cells, features]; the first feature of `wanted` is 1 where an object is. */
static weft_value loss_of(weft_graph *g, weft_value cells, weft_value wanted)
{
    const int64_t features = weft_dim_of(g, cells, 2), sizes[] = {1, 2, 2, features - 5};
    weft_value got[4], want[4];
    weft_split(g, cells, 2, sizes, 4, got), weft_split(g, wanted, 2, sizes, 4, want);
    weft_value object = weft_bce_with_logits_loss(g, got[0], want[0], WEFT_REDUCE_SUM);
    weft_value place = weft_square(g, weft_sub(g, weft_sigmoid(g, got[1]), want[1]));
    weft_value size = weft_square(g, weft_sub(g, got[2], want[2]));
    weft_value box =
        weft_sum(g, weft_mul(g, weft_add(g, place, size), want[0]), WEFT_ALL_AXES, false);
    weft_value kind =
        weft_mul(g, weft_log_softmax(g, got[3], 2), want[3]); /* 0 without an object */
    weft_value parts[] = {object, box, WEFT_NO_VALUE};
    parts[2] = weft_neg(g, weft_sum(g, kind, WEFT_ALL_AXES, false));
    return weft_mul_scalar(g, weft_add_n(g, parts, 3), 1.0 / BATCH);
}

/* Adds the file to a graph; its value "cells" becomes *cells. */
static weft_status add_file(network *n, weft_graph *g, const char *file, weft_value *cells,
                            weft_error *error)
{
    weft_value in[WEFT_BUILT_VALUES], out[WEFT_BUILT_VALUES];
    size_t n_in, n_out;
    const weft_onnx_value *inputs = weft_onnx_inputs(n->model, &n_in);
    const weft_onnx_value *outputs = weft_onnx_outputs(n->model, &n_out);
    const weft_shape s = n_in == 1 ? inputs->shape : WEFT_SCALAR;
    if (s.rank != 4 || s.dim[0] != BATCH || s.dim[1] != 3 || weft_shape_numel(s) < 1 ||
        weft_shape_numel(s) > INT32_MAX || inputs->dtype != WEFT_F32 || n_out > WEFT_BUILT_VALUES)
        return weft_error_set(
            error, WEFT_BAD_SHAPE, file,
            "expected one input of f32, [batch, 3, height, width], whose batch is "
            "open or %d",
            BATCH);
    n->height = (int)s.dim[2], n->width = (int)s.dim[3];
    if (weft_onnx_build(g, n->model, 0, in, out) != WEFT_OK)
        return weft_error_copy(error, weft_graph_error(g));
    for (size_t i = 0; i < n_out; i++)
        if (!strcmp(outputs[i].name, "cells")) *cells = out[i];
    const weft_shape c = weft_shape_of(g, *cells);
    if (c.rank != 3 || c.dim[0] != BATCH || c.dim[2] < 6 ||
        c.dim[1] != s.dim[2] / CELL * (s.dim[3] / CELL))
        return weft_error_set(error, WEFT_BAD_SHAPE, file,
                              "expected cells [%d, %lld of 8 x 8 pixels, 5 + classes]", BATCH,
                              (long long)(s.dim[2] / CELL * (s.dim[3] / CELL)));
    n->features = (int)c.dim[2], n->image = in[0];
    return WEFT_OK;
}

static weft_status build(network *n, const char *file, weft_error *error)
{
    weft_value cells = WEFT_NO_VALUE;
    weft_graph *g = weft_graph_new();
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, file, "out of memory");
    if (add_file(n, g, file, &cells, error) != WEFT_OK) return weft_graph_free(g), error->status;
    n->wanted = weft_input(g, "wanted", WEFT_F32, weft_shape_of(g, cells));
    n->lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    n->loss = loss_of(g, cells, n->wanted);
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    const weft_value targets[] = {n->loss,
                                  weft_train_update(g, n->loss, NULL, 0, n->lr, &adam, NULL)};
    if (weft_params_init(n->params, g, 1, error) == WEFT_OK)
        n->plan = weft_plan_new(g, targets, 2, NULL, error);
    if (n->plan) n->session = weft_session_new(n->plan, n->params, NULL, error);
    weft_graph_free(g);
    return error->status;
}

/* What the cells of a picture should say. An object whose centre is outside the picture, and a
 * second one in a cell, are left out. */
static void write_wanted(const network *n, const example *e, float across, float down,
                         float *wanted)
{
    const int columns = n->width / CELL, rows = n->height / CELL;
    memset(wanted, 0, (size_t)(rows * columns * n->features) * sizeof *wanted);
    for (int i = 0; i < e->n; i++) {
        const float *c = e->boxes[i].corners;
        const float x = (c[0] + c[2]) / 2 * across / CELL, y = (c[1] + c[3]) / 2 * down / CELL;
        const int label = e->boxes[i].label;
        if (!(x >= 0 && x < (float)columns && y >= 0 && y < (float)rows)) continue;
        if (label >= n->features - 5) continue;
        const int column = (int)x, row = (int)y;
        float *cell = wanted + (row * columns + column) * n->features;
        if (cell[0] > 0) continue;
        cell[0] = 1, cell[1] = x - (float)column, cell[2] = y - (float)row;
        cell[3] = logf((c[2] - c[0]) * across / UNIT), cell[4] = logf((c[3] - c[1]) * down / UNIT);
        cell[5 + label] = 1;
    }
}

static void swap(float *a, float *b, int n)
{
    for (int i = 0; i < n; i++) {
        const float moved = a[i];
        a[i] = b[i], b[i] = moved;
    }
}

/* Mirrors an image [3, height, width] left to right, and the boxes of its cells. */
static void mirror(const network *n, float *image, float *wanted)
{
    const int columns = n->width / CELL, rows = n->height / CELL;
    for (int row = 0; row < 3 * n->height; row++)
        for (int x = 0; x < n->width / 2; x++)
            swap(image + row * n->width + x, image + (row + 1) * n->width - 1 - x, 1);
    for (int row = 0; row < rows; row++)
        for (int x = 0; x < columns / 2; x++)
            swap(wanted + (row * columns + x) * n->features,
                 wanted + ((row + 1) * columns - 1 - x) * n->features, n->features);
    for (int i = 0; i < rows * columns; i++) {
        float *cell = wanted + i * n->features;
        if (cell[0] > 0) cell[1] = 1 - cell[1];
    }
}

/* One update on pictures at random, half of which are mirrored. */
static weft_status update(network *n, const example_list *l, uint32_t *random, float lr,
                          float *loss, weft_error *error)
{
    static const picture_scaling plain = {{0, 0, 0}, {1, 1, 1}, false};
    weft_tensor image, wanted;
    weft_status status = weft_session_tensor(n->session, n->image, &image, error);
    if (status == WEFT_OK) status = weft_session_tensor(n->session, n->wanted, &wanted, error);
    if (status == WEFT_OK) status = weft_session_feed(n->session, n->lr, &lr, sizeof lr, error);
    for (int i = 0; i < BATCH && status == WEFT_OK; i++) {
        *random = *random * 1664525u + 1013904223u; /* Numerical Recipes, 7.1 */
        const example *e = &l->examples[(*random >> 8) % (uint32_t)l->n];
        float across, down;
        float *pixels = (float *)image.data + i * 3 * n->width * n->height;
        float *cells =
            (float *)wanted.data + i * (n->width / CELL) * (n->height / CELL) * n->features;
        picture_scale(&e->picture, &plain, n->width, n->height, pixels, &across, &down);
        write_wanted(n, e, across, down, cells);
        if (*random >> 31) mirror(n, pixels, cells);
    }
    if (status == WEFT_OK) status = weft_session_run(n->session, error);
    if (status == WEFT_OK)
        status = weft_session_fetch(n->session, n->loss, loss, sizeof *loss, error);
    return status;
}

static weft_status train(network *n, const example_list *l, int steps, weft_error *error)
{
    uint32_t random = 1;
    float loss = 0, sum = 0;
    weft_status status = WEFT_OK;
    const int shown = steps < 4 ? 1 : steps / 4;
    for (int step = 0; step < steps && status == WEFT_OK; step++) {
        status = update(n, l, &random, rate * (float)(steps - step) / (float)steps, &loss, error);
        sum += loss;
        if ((step + 1) % shown) continue;
        printf("step %d: loss %.3f\n", step + 1, (double)(sum / (float)shown)), fflush(stdout);
        sum = 0;
    }
    return status;
}

/* ---- What it finds ---- */

typedef struct result {
    int objects, found, wrong;
} result;

/* A box is right if it has the label of an object that no better box has found, and overlaps it by
 * half. */
static void compare(const example *e, const found_box *boxes, size_t n, result *r)
{
    bool found[MAX_BOXES] = {false};
    r->objects += e->n;
    for (size_t i = 0; i < n; i++) {
        int best = -1;
        for (int k = 0; k < e->n; k++)
            if (!found[k] && e->boxes[k].label == boxes[i].label &&
                overlap_of(e->boxes[k].corners, boxes[i].corners) >= 0.5f)
                best = k;
        if (best < 0)
            r->wrong++;
        else
            found[best] = true, r->found++;
    }
}

static weft_status measure(const char *file, const char *weights, const example_list *l,
                           const char *when, result *r, weft_error *error)
{
    const detector_options options = {
        .file = file, .weights = weights, .threshold = 0.5f, .scaling = {.deviation = {1, 1, 1}}};
    memset(r, 0, sizeof *r);
    detector *d = detector_open(&options, error);
    weft_status status = d ? WEFT_OK : error->status;
    for (int i = 0; i < l->n && status == WEFT_OK; i++) {
        found_box *boxes;
        size_t n;
        status = detector_find(d, &l->examples[i].picture, &boxes, &n, error);
        if (status == WEFT_OK) compare(&l->examples[i], boxes, n, r);
        free(boxes);
    }
    detector_close(d);
    if (status == WEFT_OK)
        printf("%s: %d of %d objects found in %d pictures, and %d wrong boxes\n", when, r->found,
               r->objects, l->n, r->wrong),
            fflush(stdout);
    return status;
}

/* From `weights`, or from the file's. */
static weft_status train_file(const char *file, const char *weights, const example_list *l,
                              int steps, const char *out, weft_error *error)
{
    static const char *const cells[] = {"cells"};
    weft_onnx_options options = WEFT_DEFAULTS(weft_onnx_options);
    options.batch = BATCH, options.outputs = cells, options.n_outputs = 1;
    /* The weights, and a store that shares them and has the states of Adam as well. */
    weft_params *saved = weft_params_new();
    network n = {.params = weft_params_new()};
    n.model = weft_onnx_load(file, &options, error);
    weft_status status = n.model ? weft_onnx_copy_weights(n.model, saved, error) : error->status;
    if (status == WEFT_OK && weights) status = weft_params_load(saved, weights, error);
    if (status == WEFT_OK) status = weft_params_share(n.params, saved, error);
    if (status == WEFT_OK) status = build(&n, file, error);
    if (status == WEFT_OK) status = train(&n, l, steps, error);
    if (status == WEFT_OK) status = weft_params_save(saved, out, NULL, error);
    weft_session_free(n.session), weft_plan_free(n.plan);
    weft_params_free(n.params), weft_params_free(saved), weft_onnx_free(n.model);
    return status;
}

int main(int argc, char **argv)
{
    static const char option[] = "--weights=";
    const char *weights = NULL;
    if (argc > 2 && !strncmp(argv[2], option, sizeof option - 1)) {
        weights = argv[2] + sizeof option - 1;
        argv[2] = argv[1], argv++, argc--;
    }
    char end;
    int steps = 0;
    if (argc != 6 || sscanf(argv[4], "%d%c", &steps, &end) != 1 || steps < 1)
        return fputs("usage: train_detector FILE.onnx [--weights=FILE] TRAIN.txt TEST.txt STEPS "
                     "OUT.safetensors\n",
                     stderr),
               2;
    const char *const file = argv[1], *const out = argv[5];
    weft_error error = WEFT_NO_ERROR;
    example_list learned = {.n = 0}, test = {.n = 0};
    result before, after;
    const bool good = read_list(&learned, argv[2], &error) && read_list(&test, argv[3], &error) &&
                      measure(file, weights, &test, "before", &before, &error) == WEFT_OK &&
                      train_file(file, weights, &learned, steps, out, &error) == WEFT_OK &&
                      measure(file, out, &test, "after", &after, &error) == WEFT_OK &&
                      after.found - after.wrong >= before.found - before.wrong;
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    free_list(&learned), free_list(&test);
    return good ? 0 : 1;
}
