/* Files of parameters that cross processors (platforms_test.sh).
 *
 *     files write FOLDER   trains a model for three steps, and saves it, the states of its optimiser
 *                          and a tensor of each dtype as exact.safetensors, bf16 and f16
 *     files read FOLDER    does the same training, and compares its numbers with the files' */
#include <weft/graph.h>
#include <weft/store.h>
#include <weft/weft.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 5, COLUMNS = 7, STEPS = 3 };

static weft_status train(weft_params *store, weft_error *error)
{
    float data[ROWS][COLUMNS];
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, COLUMNS));
    weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(COLUMNS, COLUMNS), WEFT_INIT_ONES);
    weft_value loss = weft_mse_loss(g, weft_matmul(g, x, w), x, WEFT_REDUCE_MEAN);
    weft_optimizer adamw = WEFT_ADAMW_DEFAULT;
    weft_value update =
        weft_train_update(g, loss, NULL, 0, weft_scalar(g, WEFT_F32, 0.01), &adamw, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(loss, update), NULL, error);
    if (plan) weft_params_init(store, g, 1, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i / COLUMNS][i % COLUMNS] = (float)(i * i % 17 - 8) / 8;
    weft_session_feed(s, x, data, sizeof data, NULL);
    for (int i = 0; s && i < STEPS && error->status == WEFT_OK; i++) weft_session_run(s, error);
    weft_session_free(s), weft_plan_free(plan), weft_graph_free(g);
    return error->status;
}

/* A tensor of each dtype, with numbers whose bytes all differ. */
static weft_status add_dtypes(weft_params *store, weft_error *error)
{
    static const double f64[] = {-0.0, 0x1.23456789abcdep+77, INFINITY, 0x1p-1074};
    static const int32_t i32[] = {INT32_MIN, -2, 0x12345678};
    static const uint16_t bf16[] = {0x3f81, 0x8000, 0x1234};
    static const uint8_t u8[] = {0, 1, 0xfe}, truths[] = {1, 0, 1};
    const struct {
        const char *name;
        weft_dtype dtype;
        int64_t n;
        const void *data;
    } all[] = {{"f64", WEFT_F64, 4, f64},
               {"i32", WEFT_I32, 3, i32},
               {"bf16", WEFT_BF16, 3, bf16},
               {"u8", WEFT_U8, 3, u8},
               {"bool", WEFT_BOOL, 3, truths}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        weft_tensor t;
        if (weft_params_add(store, all[i].name, all[i].dtype, WEFT_SHAPE(all[i].n), &t, error) !=
            WEFT_OK)
            return error->status;
        memcpy(t.data, all[i].data, weft_tensor_bytes(t.dtype, t.shape));
    }
    return weft_params_set_meta(store, "text", "caf\xc3\xa9", error);
}

/* 11 bits of a float of moderate size, as f16 has, or 8 as bf16. */
static float rounded(float x, int bits)
{
    int exponent;
    const float half = frexpf(x, &exponent);
    return ldexpf(rintf(ldexpf(half, bits)), exponent - bits);
}

/* Whether a file has the numbers of the store, to that many bits where it has floats of 16. */
static bool agrees(const weft_params *store, const char *path, int bits, weft_error *error)
{
    weft_params *file = weft_params_new();
    bool good = weft_params_load(file, path, error) == WEFT_OK &&
                weft_params_count(file) == weft_params_count(store);
    for (size_t i = 0; good && i < weft_params_count(store); i++) {
        const char *name = weft_params_name(store, i);
        weft_tensor a, b;
        good = weft_params_find(store, name, &a) && weft_params_find(file, name, &b);
        const size_t bytes = good ? weft_tensor_bytes(a.dtype, a.shape) : 0;
        if (good && !strcmp(name, "w") && bits)
            for (int k = 0; k < COLUMNS * COLUMNS; k++)
                good = good && rounded(((float *)a.data)[k], bits) == ((float *)b.data)[k];
        else if (good && a.dtype == b.dtype && !(bits && a.dtype == WEFT_F32))
            good = !memcmp(a.data, b.data, bytes);
        if (!good) fprintf(stderr, "%s: %s differs\n", path, name);
    }
    const char *text = weft_params_meta(file, "text");
    good = good && text && !strcmp(text, "caf\xc3\xa9");
    weft_params_free(file);
    return good;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        weft_save_format format;
        int bits;
    } files[] = {
        {"exact", WEFT_SAVE_EXACT, 0}, {"bf16", WEFT_SAVE_BF16, 8}, {"f16", WEFT_SAVE_F16, 11}};
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    if (count != 3) return fprintf(stderr, "Usage: files write|read FOLDER\n"), 2;
    bool good = train(store, &error) == WEFT_OK && add_dtypes(store, &error) == WEFT_OK;
    for (size_t i = 0; good && i < sizeof files / sizeof *files; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s.safetensors", words[2], files[i].name);
        if (!strcmp(words[1], "write"))
            good = weft_params_save_as(store, path, NULL, files[i].format, &error) == WEFT_OK;
        else
            good = agrees(store, path, files[i].bits, &error);
    }
    if (!good) fprintf(stderr, "%s: %s\n", error.where, error.message);
    weft_params_free(store);
    return !good;
}
