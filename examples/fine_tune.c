/* Fine-tuning in little memory, as on a device: loads a classifier of images that was trained
 * before, freezes all but its last layer, and trains this on new data. Frozen layers need no
 * gradients, so their intermediate values are not retained, and the optimiser has no states for
 * them.
 *
 * The new data are the images of X.npy, mirrored, as from a camera that faces its user. Three
 * quarters of them are for training, the others measure the accuracy.
 *
 *     cc fine_tune.c $(pkg-config --cflags --libs weft-formats) -lm -o fine_tune
 *     ./fine_tune MODEL.onnx MODEL.safetensors X.npy Y.npy OUT.safetensors
 *
 * MODEL.onnx and MODEL.safetensors are in the folder of a run of `weft fit`; OUT.safetensors gets
 * the new weights. Prints the memory of training all layers and of training the last one, and the
 * accuracy before and after. The exit status is 1 unless the arena is a quarter smaller and half of
 * the errors disappear. */
#include <weft/fit.h>
#include <weft/numpy.h>
#include <weft/onnx.h>

#include <stdio.h>

enum { ROWS = 32, STEPS = 200 };

/* The last layer is trained, nothing else; the first group that matches a name applies. */
static const weft_param_group last_layer[] = {{"classifier.*", 0, 0, false}, {"*", 0, 0, true}};

/* Reverses each row of pixels. */
static void mirror(weft_tensor *images)
{
    const int64_t width = images->shape.dim[images->shape.rank - 1];
    const int64_t rows = weft_shape_numel(images->shape) / width;
    int32_t *pixels = (int32_t *)images->data;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t left = r * width, right = left + width - 1; left < right; left++, right--) {
            const int32_t pixel = pixels[left];
            pixels[left] = pixels[right];
            pixels[right] = pixel;
        }
}

/* Rows [first, end) of images and labels as batches. */
static weft_arrays *rows_of(const weft_fit *fit, const weft_tensor data[2], int64_t first,
                            int64_t end, weft_error *error)
{
    weft_array arrays[2] = {{NULL, data[0]}, {NULL, data[1]}};
    for (int i = 0; i < 2; i++) {
        weft_tensor *t = &arrays[i].tensor;
        t->data = (char *)t->data + (size_t)(first * t->stride[0]) * weft_dtype_bytes(t->dtype);
        t->shape.dim[0] = end - first;
    }
    weft_array_options options = WEFT_DEFAULTS(weft_array_options);
    options.rows = ROWS;
    options.in_order = first > 0;
    return weft_arrays_new(fit, arrays, 2, &options, error);
}

/* Loads images and labels, data[0] and data[1], as i32. */
static bool load_data(weft_params *store, char **paths, weft_tensor data[2], weft_error *error)
{
    for (int i = 0; i < 2; i++) {
        if (weft_npy_load(store, paths[i], paths[i], error) != WEFT_OK) return false;
        weft_params_find(store, paths[i], &data[i]);
        if (data[i].dtype != WEFT_I32 || data[i].shape.rank < 1 ||
            data[i].shape.dim[0] < 4 * ROWS || weft_shape_numel(data[i].shape) == 0)
            return weft_error_set(error, WEFT_BAD_DTYPE, paths[i],
                                  "expected at least %d rows of whole numbers", 4 * ROWS),
                   false;
    }
    mirror(&data[0]);
    return true;
}

static bool print_memory(const char *what, const weft_trainer_options *options, size_t *bytes,
                         weft_error *error)
{
    const weft_batch_shape shape = {ROWS, 0, 0};
    weft_trainer_estimate e;
    if (weft_trainer_estimate_of(options, shape, &e, error) != WEFT_OK) return false;
    *bytes = e.arena_bytes;
    printf("%s: arena %7zu bytes, states %6zu bytes\n", what, e.arena_bytes, e.state_bytes);
    return true;
}

static double accuracy(weft_trainer *trainer, weft_arrays *valid)
{
    const weft_batch_source source = weft_arrays_source(valid);
    double loss;
    if (weft_trainer_evaluate(trainer, &source, 0, &loss, NULL, NULL) != WEFT_OK) return 0;
    return weft_trainer_accuracy(trainer);
}

static bool tune(const weft_fit *fit, weft_arrays *train, weft_arrays *valid, weft_params *params,
                 const char *out, weft_error *error)
{
    weft_trainer_options options = WEFT_DEFAULTS(weft_trainer_options);
    options.builder = weft_fit_builder(fit);
    options.optimizer = WEFT_ADAM_DEFAULT;
    options.schedule.peak = 1e-2;
    size_t all = 0, last = 0;
    if (!print_memory("training all layers    ", &options, &all, error)) return false;
    options.optimizer.groups = last_layer;
    options.optimizer.n_groups = 2;
    if (!print_memory("training the last layer", &options, &last, error)) return false;

    const weft_batch_source batches = weft_arrays_source(train);
    weft_trainer *trainer = weft_trainer_new(&options, &batches, params, error);
    if (!trainer) return false;
    const double before = accuracy(trainer, valid);
    weft_status status = WEFT_OK;
    for (int i = 0; i < STEPS && status == WEFT_OK; i++)
        status = weft_trainer_update(trainer, 0, NULL, error);
    const double after = accuracy(trainer, valid);
    if (status == WEFT_OK) status = weft_trainer_save_model(trainer, out, error);
    weft_trainer_free(trainer);
    if (status != WEFT_OK) return false;
    printf("accuracy on mirrored images: %.3f, after %d steps %.3f\n", before, STEPS, after);
    return last < all * 3 / 4 && 1 - after < (1 - before) / 2;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("usage: fine_tune MODEL.onnx MODEL.safetensors X.npy Y.npy OUT.safetensors\n",
              stderr);
        return 2;
    }
    weft_error error = WEFT_NO_ERROR;
    weft_params *data = weft_params_new(), *trained = weft_params_new();
    weft_params *params = weft_params_new(); /* the tensors of `trained`, not its metadata */
    weft_arrays *train = NULL, *valid = NULL;
    weft_tensor xy[2];
    weft_fit fit = WEFT_DEFAULTS(weft_fit);
    weft_onnx *model = weft_onnx_load(argv[1], NULL, &error);
    if (model && weft_params_load_some(trained, argv[2], &weft_model_states, &error) == WEFT_OK &&
        weft_params_share(params, trained, &error) == WEFT_OK &&
        load_data(data, argv + 3, xy, &error)) {
        fit.model = weft_onnx_builder(model);
        fit.loss = WEFT_LOSS_CROSS_ENTROPY;
        const int64_t rows = xy[0].shape.dim[0];
        train = rows_of(&fit, xy, 0, rows * 3 / 4, &error);
        if (train) valid = rows_of(&fit, xy, rows * 3 / 4, rows, &error);
    }
    const bool good = valid && tune(&fit, train, valid, params, argv[5], &error);
    if (error.status != WEFT_OK) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_arrays_free(train), weft_arrays_free(valid), weft_onnx_free(model);
    weft_params_free(data), weft_params_free(params), weft_params_free(trained);
    return good ? 0 : 1;
}
