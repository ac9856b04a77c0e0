/* Graphs written as ONNX files: every op that has a form in ONNX and every model of the list is
 * written, read again and run, and has the same bits as before, at 1 and 2 threads; without the
 * notes it has the same values. Errors, names, external data and equal bytes. If WEFT_KEEP_EXPORTS
 * names a folder, the files of ops stay there with inputs and results, for
 * tests/onnx/onnx_runtime.py, which compares them with ONNX Runtime. */
#include "onnx_round.h"

#include <weft/export.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Ops ---- */

/* Ops without a form in ONNX, and those whose first output only has one. */
static const char without_form[] =
    " input state constant group matmul_tiles panels matmul_panels matmul_quantized "
    "quantize_bytes dequantize_bytes add_bytes conv_bytes conv_bytes_depthwise max_pool_bytes "
    "embedding_quantized "
    "narrow_rows widen_rows conv_grad_weight conv_rows conv_rows_depthwise winograd_weights "
    "conv_winograd "
    "embedding_bag embedding_grad matmul_quantized_grad suppress global_norm ctc "
    "bitcast square_sums root_of_sum require_finite assign blend cache_write "
    "cache_reorder sgd_update momentum_update adam_update exchange_start exchange_wait "
    "sum_over_ranks copy_to_ranks reduce_scatter all_gather broadcast_ranks sum_to_rank send "
    "receive ";
static const char first_only[] = " layer_norm rms_norm cross_entropy ";

static bool named(const char *list, const char *op)
{
    char word[80];
    snprintf(word, sizeof word, " %s ", op);
    return strstr(list, word) != NULL;
}

/* Whether results of a sample are random: a file does not drop elements, and draws other numbers.
 */
static bool is_random(const weft_op *op, const weft_sample *sample)
{
    if (!strncmp(op->name, "random_", 7) || !strcmp(op->name, "bernoulli")) return true;
    for (const weft_attr_field *a = op->attrs; a && a->name; a++)
        if ((!strcmp(a->name, "p") || !strcmp(a->name, "dropout")) && op->random)
            return *(const double *)(const void *)((const char *)sample->attr + a->offset) != 0;
    return false;
}

static bool try_sample(fixture *f, const weft_op *op, const weft_sample *sample, weft_dtype dtype,
                       int opset)
{
    char label[80];
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS];
    char name[24];
    weft_graph *g = weft_graph_new();
    weft_params *inputs = weft_params_new(), *params = weft_params_new();
    memset(&f->error, 0, sizeof f->error);
    for (size_t i = 0; i < sample->n_in; i++) {
        const weft_sample_input *like = &sample->in[i];
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = weft_input(g, name, like->dtype == WEFT_FLOAT ? dtype : like->dtype, like->shape);
    }
    weft_apply(g, op, sample->attr, in, sample->n_in, out);
    fill_inputs(inputs, g, sample, dtype, 0);
    snprintf(label, sizeof label, "%s-%zu-%s-%d", op->name, (size_t)(sample - op->samples),
             weft_dtype_name(dtype), opset);
    const bool good = round_trip(
        f, &(example){g, out, named(first_only, op->name) ? 1 : op->n_out, params, inputs}, opset,
        label);
    weft_params_free(inputs);
    weft_params_free(params);
    weft_graph_free(g);
    return good;
}

static void test_ops(void)
{
    static const int opsets[] = {17, 18, 23};
    fixture f;
    size_t tried = 0;
    round_open(&f);
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (named(without_form, op->name)) {
            CU_ASSERT_PTR_NULL(op->onnx);
            continue;
        }
        for (size_t k = 0; k < op->n_samples; k++)
            for (int o = 0; o < 6; o++) {
                const weft_dtype dtype = o < 3 ? WEFT_F32 : WEFT_F64;
                if (is_random(op, &op->samples[k])) continue;
                const bool good = try_sample(&f, op, &op->samples[k], dtype, opsets[o % 3]);
                if (!good)
                    printf("\n    %s, sample %zu, %s, opset %d: %s: %s", op->name, k,
                           weft_dtype_name(dtype), opsets[o % 3], f.error.where, f.error.message);
                CU_ASSERT_TRUE(good);
                tried++;
            }
    }
    CU_ASSERT_TRUE(tried > 500);
    round_close(&f);
}

/* An op of the list without a form is refused with its name. */
static void test_ops_without_form(void)
{
    fixture f;
    round_open(&f);
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (!named(without_form, op->name) || !op->n_samples || op->updates) continue;
        CU_ASSERT_FALSE(try_sample(&f, op, &op->samples[0], WEFT_F64, 17));
        CU_ASSERT_EQUAL(f.error.status, WEFT_NO_KERNEL);
        CU_ASSERT_PTR_NOT_NULL(strstr(f.error.where, op->name));
    }
    round_close(&f);
}

/* ---- Models ---- */

static bool try_model(fixture *f, const weft_model *model, const char *more, bool loss)
{
    char text[512];
    weft_built built;
    weft_graph *g = weft_graph_new();
    weft_params *inputs = weft_params_new(), *params = weft_params_new();
    snprintf(text, sizeof text, "%s %s %s", model->name, model->small, more);
    test_build_model(g, text, false, &built);
    fill_inputs(inputs, g, NULL, WEFT_F32, built.vocab);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 5, &f->error), WEFT_OK);
    weft_value out[2] = {built.outputs[0], built.loss};
    const bool good = round_trip(
        f, &(example){g, out, loss && weft_is_value(built.loss) ? 2 : 1, params, inputs}, 17, NULL);
    if (!good) printf("\n    %s: %s: %s", text, f->error.where, f->error.message);
    weft_params_free(inputs);
    weft_params_free(params);
    weft_graph_free(g);
    return good;
}

static void test_models(void)
{
    fixture f;
    round_open(&f);
    for (size_t i = 0; i < weft_model_count(); i++) {
        CU_ASSERT_TRUE(try_model(&f, weft_model_at(i), "", false));
        CU_ASSERT_TRUE(try_model(&f, weft_model_at(i), "", true));
    }
    /* Steps that are a loop. */
    CU_ASSERT_TRUE(try_model(&f, weft_model_find("lstm"), "length=20", true));
    CU_ASSERT_TRUE(try_model(&f, weft_model_find("gru"), "length=20", false));
    CU_ASSERT_TRUE(try_model(&f, weft_model_find("seq2seq"), "source_len=20", true));
    round_close(&f);
}

/* ---- Files ---- */

static char *bytes_of(const char *path, size_t *n)
{
    struct stat info;
    CU_ASSERT_EQUAL_FATAL(stat(path, &info), 0);
    *n = (size_t)info.st_size;
    char *data = malloc(*n + 1);
    FILE *file = fopen(path, "rb");
    CU_ASSERT_EQUAL_FATAL(fread(data, 1, *n, file), *n);
    fclose(file);
    return data;
}

/* Equal graphs make equal files, and a file that is read and written again has the same nodes. */
static void test_equal_files(void)
{
    fixture f;
    size_t a, b;
    round_open(&f);
    char *first = NULL;
    for (int i = 0; i < 2; i++) {
        small s = small_open();
        CU_ASSERT_EQUAL(weft_onnx_save(s.g, &s.y, 1, s.params, f.path, NULL, &f.error), WEFT_OK);
        small_close(&s);
        char *data = bytes_of(f.path, i ? &b : &a);
        if (i) CU_ASSERT_TRUE(a == b && !memcmp(first, data, a));
        free(first);
        first = data;
    }
    for (int i = 0; i < 2; i++) {
        weft_value in[MAX_VALUES], out[MAX_VALUES];
        weft_onnx *m = weft_onnx_load(f.path, NULL, &f.error);
        weft_graph *g = weft_graph_new();
        weft_params *params = weft_params_new();
        CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, m, 0, in, out), WEFT_OK);
        CU_ASSERT_EQUAL(weft_onnx_copy_weights(m, params, &f.error), WEFT_OK);
        weft_onnx_free(m);
        CU_ASSERT_EQUAL(weft_onnx_save(g, out, 1, params, f.path, NULL, &f.error), WEFT_OK);
        CU_ASSERT_EQUAL(count_op(&f, "rms_norm"), 1);
        char *again = bytes_of(f.path, &b);
        if (i) CU_ASSERT_TRUE(a == b && !memcmp(first, again, a));
        free(first);
        first = again;
        a = b;
        weft_params_free(params);
        weft_graph_free(g);
    }
    free(first);
    round_close(&f);
}

static void test_external(void)
{
    fixture f;
    small s = small_open();
    struct stat info;
    size_t nodes;
    round_open(&f);
    const weft_onnx_save_options o = {.external = true};
    weft_params *results = weft_params_new(), *got = weft_params_new();
    CU_ASSERT_EQUAL(run_graph(&(example){s.g, &s.y, 1, s.params, s.inputs}, 1, results, &f.error),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_save(s.g, &s.y, 1, s.params, f.path, &o, &f.error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(stat(f.data, &info), 0);
    CU_ASSERT_EQUAL(info.st_size, 64); /* gamma, and padding up to the next tensor */
    CU_ASSERT_TRUE(run_file(&f, s.inputs, 1, 1, got, &nodes));
    CU_ASSERT_TRUE(same_results(results, got, 1));
    weft_params_free(results);
    weft_params_free(got);
    small_close(&s);
    round_close(&f);
}

/* Outputs that are an input, a parameter, a constant or listed twice have nodes of their own. */
static void test_outputs(void)
{
    static const char *const names[5] = {"a", "b", "c", "d", NULL};
    fixture f;
    small s = small_open();
    size_t n, nodes;
    round_open(&f);
    weft_onnx_save_options o = {.output_names = names};
    weft_value constant = weft_scalar(s.g, WEFT_F32, 2.5);
    weft_value out[5] = {weft_graph_find(s.g, "x"), weft_graph_find(s.g, "norm.gamma"), constant,
                         s.y, s.y};
    weft_params *results = weft_params_new(), *got = weft_params_new();
    CU_ASSERT_EQUAL(run_graph(&(example){s.g, out, 4, s.params, s.inputs}, 1, results, &f.error),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_save(s.g, out, 5, s.params, f.path, &o, &f.error), WEFT_OK);
    CU_ASSERT_TRUE(run_file(&f, s.inputs, 4, 1, got, &nodes));
    CU_ASSERT_TRUE(same_results(results, got, 4));
    weft_onnx *m = weft_onnx_load(f.path, NULL, &f.error);
    const weft_onnx_value *listed = weft_onnx_outputs(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 5);
    CU_ASSERT_STRING_EQUAL(listed[0].name, "a");
    CU_ASSERT_STRING_EQUAL(listed[3].name, "d");
    CU_ASSERT_STRING_EQUAL(listed[4].name, "norm.y");
    listed = weft_onnx_params(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 1);
    CU_ASSERT_STRING_EQUAL(listed[0].name, "norm.gamma");
    weft_onnx_free(m);
    weft_params_free(results);
    weft_params_free(got);
    small_close(&s);
    round_close(&f);
}

static void refuse(fixture *f, weft_status status, const char *text)
{
    const bool good = f->error.status == status && f->error.where[0] &&
                      (strstr(f->error.message, text) || strstr(f->error.where, text));
    if (!good)
        printf("\n    expected \"%s\", got \"%s\": %s: %s", text, weft_status_text(f->error.status),
               f->error.where, f->error.message);
    CU_ASSERT_TRUE(good);
    CU_ASSERT_EQUAL(access(f->path, F_OK), -1);
}

static void test_refused(void)
{
    static const char *const taken[1] = {"x"};
    fixture f;
    small s = small_open();
    round_open(&f);
    weft_onnx_save_options o = {.opset = 16};
    weft_value lr = weft_scalar(s.g, WEFT_F32, 0.1);
    weft_value loss = weft_mean(s.g, s.y, WEFT_ALL_AXES, false);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_onnx_save(s.g, &s.y, 1, s.params, f.path, &o, &f.error);
    refuse(&f, WEFT_BAD_ARGUMENT, "opset is 16");
    o = (weft_onnx_save_options){.output_names = taken};
    weft_onnx_save(s.g, &s.y, 1, s.params, f.path, &o, &f.error);
    refuse(&f, WEFT_BAD_ARGUMENT, "is not a valid output name");
    weft_onnx_save(s.g, &s.y, 1, NULL, f.path, NULL, &f.error);
    refuse(&f, WEFT_NOT_FOUND, "norm.gamma");
    weft_onnx_save(s.g, &WEFT_NO_VALUE, 1, NULL, f.path, NULL, &f.error);
    refuse(&f, WEFT_BAD_ARGUMENT, "output 0 is not a value");
    weft_onnx_save(s.g, NULL, 0, NULL, f.path, NULL, &f.error);
    refuse(&f, WEFT_BAD_ARGUMENT, "no outputs");
    weft_params *other = weft_params_new();
    weft_params_add(other, "norm.gamma", WEFT_F32, WEFT_SHAPE(4), NULL, NULL);
    weft_onnx_save(s.g, &s.y, 1, other, f.path, NULL, &f.error);
    refuse(&f, WEFT_BAD_SHAPE, "norm.gamma");
    weft_params_free(other);
    weft_value step = weft_train_update(s.g, loss, NULL, 0, lr, &adam, NULL);
    weft_params_init(s.params, s.g, 3, NULL);
    weft_onnx_save(s.g, &step, 1, s.params, f.path, NULL, &f.error);
    refuse(&f, WEFT_NO_KERNEL, "cannot be exported to ONNX");
    weft_onnx_save(s.g, &loss, 1, s.params, f.path, NULL, &f.error);
    CU_ASSERT_EQUAL(f.error.status, WEFT_OK); /* the forward part of the training graph */
    unlink(f.path);
    CU_ASSERT_EQUAL(
        weft_onnx_save(s.g, &s.y, 1, s.params, "/tmp/weft-no-such-folder/x.onnx", NULL, &f.error),
        WEFT_IO);
    small_close(&s);
    round_close(&f);
}

/* ---- A program's own op ---- */

static bool infer_twice(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0);
}

static void expand_twice(weft_expand *e)
{
    e->out[0] = weft_add(e->graph, e->in[0], e->in[0]);
}

static void onnx_twice(weft_export *e)
{
    e->out[0] =
        weft_export_binary(e, "Mul", e->in[0], weft_export_scalar(e, e->in_type[0].dtype, 2));
}

static void test_own_op(void)
{
    static const weft_op twice = {.name = "twice",
                                  .doc = "y = 2 x",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .n_out = 1,
                                  .infer = infer_twice,
                                  .expand = expand_twice,
                                  .onnx = onnx_twice};
    fixture f;
    size_t nodes;
    round_open(&f);
    weft_graph *g = weft_graph_new();
    weft_params *inputs = weft_params_new(), *results = weft_params_new(), *got = weft_params_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(7));
    weft_value y = weft_apply(g, &twice, NULL, &x, 1, NULL);
    fill_inputs(inputs, g, NULL, WEFT_F32, 2);
    CU_ASSERT_EQUAL(run_graph(&(example){g, &y, 1, NULL, inputs}, 1, results, &f.error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_save(g, &y, 1, NULL, f.path, NULL, &f.error), WEFT_OK);
    CU_ASSERT_TRUE(run_file(&f, inputs, 1, 1, got, &nodes));
    CU_ASSERT_TRUE(same_results(results, got, 1));
    CU_ASSERT_EQUAL(count_op(&f, "mul"), 1);
    weft_params_free(inputs);
    weft_params_free(results);
    weft_params_free(got);
    weft_graph_free(g);
    round_close(&f);
}

static bool infer_scalar(weft_infer *infer)
{
    infer->out[0] = (weft_type){WEFT_F32, WEFT_SCALAR};
    return true;
}

static void kernel_never(const weft_call *call, int64_t tile)
{
    (void)tile;
    *(float *)call->out[0].data = 0;
    weft_call_fail(call, 7, 5);
}

/* An op without inputs is computed for the file. If its kernel fails, although the op does not
 * declare it, the error is the kernel's. */
static void test_undeclared_fault(void)
{
    static const weft_op never = {.name = "never",
                                  .n_out = 1,
                                  .infer = infer_scalar,
                                  .kernel = {{kernel_never}},
                                  .gradient = WEFT_GRADIENT_NONE};
    fixture f;
    round_open(&f);
    weft_graph *g = weft_graph_new();
    weft_value y = weft_apply(g, &never, NULL, NULL, 0, NULL);
    CU_ASSERT_EQUAL(weft_onnx_save(g, &y, 1, NULL, f.path, NULL, &f.error), WEFT_BAD_INDEX);
    refuse(&f, WEFT_BAD_INDEX, "index 7");
    weft_graph_free(g);
    round_close(&f);
}

/* ---- Memory ---- */

static weft_status save_and_load(const char *path)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    if (!g || !params) weft_error_set(&error, WEFT_NO_MEMORY, "test", "out of memory");
    if (error.status == WEFT_OK) {
        weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 3, 2, 4));
        weft_value gamma = weft_param(g, "gamma", WEFT_F32, WEFT_SHAPE(4), WEFT_INIT_ONES);
        weft_value y = weft_rms_norm(g, x, gamma, 1e-6);
        y = weft_sdpa(g, y, y, y, &(weft_sdpa_options){.causal = true});
        weft_error_copy(&error, weft_graph_error(g));
        if (error.status == WEFT_OK) weft_params_init(params, g, 1, &error);
        if (error.status == WEFT_OK) weft_onnx_save(g, &y, 1, params, path, NULL, &error);
    }
    weft_params_free(params);
    weft_graph_free(g);
    if (error.status == WEFT_OK) weft_onnx_free(weft_onnx_load(path, NULL, &error));
    return error.status;
}

/* Cut off, or with some changed bytes, a file with notes is refused or read, and nothing else. */
static void test_changed_bytes(void)
{
    fixture f;
    size_t n;
    uint64_t state = 3;
    round_open(&f);
    CU_ASSERT_EQUAL_FATAL(save_and_load(f.path), WEFT_OK);
    char *data = bytes_of(f.path, &n), *changed = malloc(n);
    const size_t rounds = TEST_SANITIZED ? 400 : 2000;
    for (size_t i = 0; i < rounds + n / 16; i++) {
        const size_t bytes = i < rounds ? n : 16 * (i - rounds);
        weft_error error = {0};
        memcpy(changed, data, n);
        for (size_t k = 0; i < rounds && k < 1 + i % 3; k++)
            changed[test_random(&state) % n] = (char)test_random(&state);
        CU_ASSERT_TRUE_FATAL(write_file(f.path, changed, bytes));
        weft_onnx *m = weft_onnx_load(f.path, NULL, &error);
        CU_ASSERT_EQUAL(m != NULL, error.status == WEFT_OK);
        weft_onnx_free(m);
    }
    free(changed);
    free(data);
    round_close(&f);
}

static void test_memory(void)
{
    test_fail_all(save_and_load);
}

void onnx_export_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_export", NULL, NULL);
    CU_add_test(suite, "every op with a form has the same bits after a round", test_ops);
    CU_add_test(suite, "an op without a form is refused", test_ops_without_form);
    CU_add_test(suite, "every model has the same bits after a round", test_models);
    CU_add_test(suite, "equal files", test_equal_files);
    CU_add_test(suite, "external data", test_external);
    CU_add_test(suite, "outputs of any kind, and names", test_outputs);
    CU_add_test(suite, "what is refused", test_refused);
    CU_add_test(suite, "a program's own op", test_own_op);
    CU_add_test(suite, "a fault that its op does not declare", test_undeclared_fault);
    CU_add_test(suite, "files that are cut off or changed", test_changed_bytes);
    CU_add_test(suite, "every allocation fails once", test_memory);
}
