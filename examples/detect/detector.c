/* See detector.h. */
#include "detector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BOXES, SCORES, LABELS, N_LISTS };
static const char *const lists[N_LISTS] = {"boxes", "scores", "labels"};

struct detector {
    detector_options options;
    weft_onnx *model;
    weft_params *params;
    weft_plan *plan;
    weft_session *session;
    weft_value in[WEFT_BUILT_VALUES], out[WEFT_BUILT_VALUES];
    size_t list[N_LISTS]; /* the outputs of boxes, scores and labels; or all the same one */
    int height, width;
};

/* Finds the outputs, and the sizes of the input. */
static weft_status understand(detector *d, weft_error *error)
{
    size_t n_in, n_out;
    const weft_onnx_value *in = weft_onnx_inputs(d->model, &n_in);
    const weft_onnx_value *out = weft_onnx_outputs(d->model, &n_out);
    const weft_shape s = n_in == 1 ? in->shape : WEFT_SCALAR;
    if (s.rank < 3 || s.rank > 4 || s.dim[s.rank - 3] != 3 || weft_shape_numel(s) > INT32_MAX ||
        weft_shape_numel(s) < 1 || (s.rank == 4 && s.dim[0] != 1) || in->dtype != WEFT_F32)
        return weft_error_set(error, WEFT_BAD_SHAPE, d->options.file,
                              "expected one input of f32, [3, height, width]");
    d->height = (int)s.dim[s.rank - 2], d->width = (int)s.dim[s.rank - 1];
    int found = 0;
    for (size_t i = 0; i < n_out; i++)
        for (int k = 0; k < N_LISTS; k++)
            if (!strcmp(out[i].name, lists[k])) d->list[k] = i, found++;
    const weft_onnx_value *boxes = &out[d->list[BOXES]], *scores = &out[d->list[SCORES]];
    if (found == N_LISTS && boxes->shape.rank == 2 && boxes->shape.dim[1] == 4 &&
        scores->shape.rank == 1 && out[d->list[LABELS]].shape.rank == 1 &&
        boxes->dtype == WEFT_F32 && scores->dtype == WEFT_F32 &&
        out[d->list[LABELS]].dtype == WEFT_I32)
        return WEFT_OK;
    memset(d->list, 0, sizeof d->list);
    if (n_out == 1 && out->shape.rank == 3 && out->shape.dim[0] == 1 && out->shape.dim[1] > 4 &&
        out->dtype == WEFT_F32)
        return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_SHAPE, d->options.file,
                          "expected outputs boxes [n, 4], scores [n] and labels [n], or one "
                          "[1, 4 + classes, n]");
}

/* The file's weights, or those of another file in their place. */
static weft_status load_weights(detector *d, weft_error *error)
{
    weft_status status = weft_onnx_copy_weights(d->model, d->params, error);
    if (status == WEFT_OK && d->options.weights)
        status = weft_params_load(d->params, d->options.weights, error);
    return status;
}

static weft_status prepare(detector *d, weft_error *error)
{
    size_t n_in, n_out;
    weft_onnx_inputs(d->model, &n_in), weft_onnx_outputs(d->model, &n_out);
    if (n_in > WEFT_BUILT_VALUES || n_out > WEFT_BUILT_VALUES)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, d->options.file,
                              "too many inputs or outputs");
    weft_status status = understand(d, error);
    if (status == WEFT_OK) status = load_weights(d, error);
    if (status != WEFT_OK) return status;
    /* Weights never change here, so they are packed once. */
    weft_plan_options options = WEFT_DEFAULTS(weft_plan_options);
    options.fixed_states = true;
    weft_session_options session = WEFT_DEFAULTS(weft_session_options);
    session.release_states = true;
    weft_graph *g = weft_graph_new();
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, d->options.file, "out of memory");
    status = weft_onnx_build(g, d->model, 0, d->in, d->out);
    if (status != WEFT_OK && error) *error = *weft_graph_error(g);
    if (status == WEFT_OK) d->plan = weft_plan_new(g, d->out, n_out, &options, error);
    if (d->plan) d->session = weft_session_new(d->plan, d->params, &session, error);
    weft_graph_free(g);
    return d->session ? WEFT_OK : error->status;
}

detector *detector_open(const detector_options *options, weft_error *error)
{
    detector *d = (detector *)calloc(1, sizeof *d);
    if (!d) {
        weft_error_set(error, WEFT_NO_MEMORY, options->file, "out of memory");
        return NULL;
    }
    weft_onnx_options open = WEFT_DEFAULTS(weft_onnx_options);
    open.dims = options->dims, open.n_dims = options->n_dims;
    d->options = *options;
    d->params = weft_params_new();
    d->model = weft_onnx_load(options->file, &open, error);
    if (d->model && prepare(d, error) == WEFT_OK) return d;
    detector_close(d);
    return NULL;
}

void detector_close(detector *d)
{
    if (!d) return;
    weft_session_free(d->session), weft_plan_free(d->plan);
    weft_params_free(d->params), weft_onnx_free(d->model);
    free(d);
}

float overlap_of(const float a[4], const float b[4])
{
    const float width = fminf(a[2], b[2]) - fmaxf(a[0], b[0]);
    const float height = fminf(a[3], b[3]) - fmaxf(a[1], b[1]);
    const float both = fmaxf(width, 0) * fmaxf(height, 0);
    const float all = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
    return all > 0 ? both / all : 0;
}

static int by_score(const void *a, const void *b)
{
    const float x = ((const found_box *)a)->score, y = ((const found_box *)b)->score;
    return (x < y) - (x > y);
}

/* Removes boxes that overlap a better one; the boxes are sorted. Returns how many stay. */
static size_t suppress(found_box *boxes, size_t n, float overlap)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool stays = true;
        for (size_t k = 0; k < kept && stays; k++)
            stays = overlap_of(boxes[k].corners, boxes[i].corners) <= overlap;
        if (stays) boxes[kept++] = boxes[i];
    }
    return kept;
}

/* Element [i, k] of the last dimensions, [k] of one alone. A tensor whose size the data decide lies
 * in a larger one, so its strides count. */
static float element(const weft_tensor *t, int64_t i, int64_t k)
{
    const int last = t->shape.rank - 1;
    return ((const float *)t->data)[(last ? i * t->stride[last - 1] : 0) + k * t->stride[last]];
}

/* Box i of an output of YOLOv8. */
static found_box decode(const weft_tensor *t, int64_t i)
{
    const int64_t rows = t->shape.dim[1];
    const float x = element(t, 0, i), y = element(t, 1, i);
    const float w = element(t, 2, i) / 2, h = element(t, 3, i) / 2;
    found_box box = {{x - w, y - h, x + w, y + h}, -INFINITY, 0};
    for (int64_t c = 4; c < rows; c++) {
        const float score = element(t, c, i);
        if (score > box.score) box.score = score, box.label = (int)(c - 4);
    }
    return box;
}

static found_box listed(const weft_tensor t[N_LISTS], int64_t i)
{
    found_box box = {.score = element(&t[SCORES], 0, i),
                     .label = ((const int32_t *)t[LABELS].data)[i * t[LABELS].stride[0]]};
    for (int k = 0; k < 4; k++) box.corners[k] = element(&t[BOXES], i, k);
    return box;
}

/* Runs the network on a picture; *across and *down as picture_scale sets them. */
static weft_status run(detector *d, const picture *p, float *across, float *down, weft_error *error)
{
    weft_tensor input; /* marks the input as fed: the pixels are written there */
    const weft_status status = weft_session_tensor(d->session, d->in[0], &input, error);
    if (status != WEFT_OK) return status;
    picture_scale(p, &d->options.scaling, d->width, d->height, (float *)input.data, across, down);
    return weft_session_run(d->session, error);
}

/* The outputs of a run, and how many boxes they have. */
static weft_status fetch(detector *d, weft_tensor t[N_LISTS], int64_t *count, weft_error *error)
{
    const bool yolo = d->list[BOXES] == d->list[SCORES];
    for (int i = 0; i < N_LISTS; i++)
        if (weft_onnx_output(d->model, d->session, d->out, d->list[i], &t[i], error) != WEFT_OK)
            return error->status;
    *count = t[BOXES].shape.dim[yolo ? 2 : 0];
    if (yolo ? t[BOXES].shape.dim[1] > 4
             : t[SCORES].shape.dim[0] == *count && t[LABELS].shape.dim[0] == *count)
        return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_SHAPE, d->options.file,
                          yolo ? "an output without rows of scores"
                               : "other numbers of scores or labels than of boxes");
}

weft_status detector_find(detector *d, const picture *p, found_box **boxes, size_t *n,
                          weft_error *error)
{
    const bool yolo = d->list[BOXES] == d->list[SCORES];
    float across, down;
    int64_t count = 0;
    weft_tensor t[N_LISTS];
    *boxes = NULL, *n = 0;
    weft_status status = run(d, p, &across, &down, error);
    if (status == WEFT_OK) status = fetch(d, t, &count, error);
    if (status != WEFT_OK) return status;
    *boxes = (found_box *)malloc(((size_t)count + 1) * sizeof **boxes);
    if (!*boxes) return weft_error_set(error, WEFT_NO_MEMORY, d->options.file, "out of memory");
    for (int64_t i = 0; i < count; i++) {
        found_box box = yolo ? decode(&t[0], i) : listed(t, i);
        for (int k = 0; k < 4; k++) box.corners[k] /= k % 2 ? down : across;
        if (box.score >= d->options.threshold) (*boxes)[(*n)++] = box;
    }
    qsort(*boxes, *n, sizeof **boxes, by_score);
    if (yolo) *n = suppress(*boxes, *n, d->options.overlap);
    return WEFT_OK;
}
