/* Graphs written as ONNX files: every op that has a form in ONNX and every model of the list is
 * written, read again and run, and has the same bits as before, at 1 and 2 threads. Files whose
 * notes lie, errors, names, external data and equal bytes. tests/onnx_runtime.py compares the files
 * with ONNX Runtime. */
#include "onnx_writer.h"
#include "tests.h"

#include <weft/export.h>
#include <weft/measure.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_VALUES 16

/* ---- Running a graph ---- */

typedef struct fixture {
    char folder[64], path[96], data[104];
    weft_error error;
} fixture;

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/weft-export-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/model.onnx", f->folder);
    snprintf(f->data, sizeof f->data, "%s.data", f->path);
}

static void end(fixture *f)
{
    unlink(f->path);
    unlink(f->data);
    CU_ASSERT_EQUAL(rmdir(f->folder), 0);
}

/* Contents of inputs by name, and of outputs in their order, all in a store. */
static void fill_inputs(weft_params *inputs, const weft_graph *g, const weft_sample *sample,
                        weft_dtype dtype, int64_t vocab)
{
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node_info node = weft_graph_node(g, i);
        const weft_value v = weft_value_from_id(g, node.first_out);
        weft_tensor t;
        if (node.op != &weft_op_input) continue;
        const weft_dtype d = weft_dtype_of(g, v);
        weft_sample_input like = {d, weft_shape_of(g, v), -1, 1, false};
        if (d == WEFT_I32) like = (weft_sample_input){d, like.shape, 1, (double)vocab, false};
        if (d == WEFT_BOOL) like.high = 0.5;
        if (sample) like = sample->in[atoi(weft_name_of(g, v) + 1)];
        weft_params_add(inputs, weft_name_of(g, v), d, like.shape, &t, NULL);
        weft_sample_fill(&like, like.dtype == WEFT_FLOAT ? dtype : d, 17 + i, t.data);
    }
}

/* Runs a graph; output i becomes the tensor "i" of `results`. */
static weft_status run_graph(const weft_graph *g, const weft_value *out, size_t n,
                             weft_params *params, const weft_params *inputs, int threads,
                             weft_params *results, weft_error *error)
{
    const weft_session_options o = {.threads = threads};
    weft_plan *plan = weft_plan_new(g, out, n, NULL, error);
    weft_session *s = plan ? weft_session_new(plan, params, &o, error) : NULL;
    for (size_t i = 0; s && i < weft_params_count(inputs); i++) {
        weft_tensor t;
        const char *name = weft_params_name(inputs, i);
        weft_params_get(inputs, name, &t);
        const weft_value in = weft_find(g, name);
        if (weft_is_value(in)) weft_feed(s, in, t.data, weft_tensor_bytes(t.dtype, t.shape));
    }
    if (s && weft_run(s) != WEFT_OK) weft_error_copy(error, weft_session_error(s));
    for (size_t i = 0; s && error->status == WEFT_OK && i < n; i++) {
        weft_tensor t, copy;
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        if (!weft_session_tensor(s, out[i], &t)) return WEFT_INTERNAL;
        if (weft_params_add(results, name, t.dtype, t.shape, &copy, error) == WEFT_OK)
            memcpy(copy.data, t.data, weft_tensor_bytes(t.dtype, t.shape));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    return error->status;
}

static bool same_results(const weft_params *a, const weft_params *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weft_tensor x, y;
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        if (!weft_params_get(a, name, &x) || !weft_params_get(b, name, &y) || x.dtype != y.dtype ||
            !weft_shape_equal(x.shape, y.shape))
            return false;
        const size_t bytes = weft_tensor_bytes(x.dtype, x.shape);
        if (bytes && memcmp(x.data, y.data, bytes) != 0) return false;
    }
    return true;
}

/* Reads the file and runs it on the same inputs. Sets *nodes to the nodes of its graph. */
static bool run_file(fixture *f, const weft_params *inputs, size_t n, int threads,
                     weft_params *results, size_t *nodes)
{
    weft_value in[64], out[MAX_VALUES];
    weft_onnx *m = weft_onnx_load(f->path, NULL, &f->error);
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    if (m && weft_onnx_build(m, g, 0, in, out) == WEFT_OK &&
        weft_onnx_weights(m, params, &f->error) == WEFT_OK)
        run_graph(g, out, n, params, inputs, threads, results, &f->error);
    *nodes = weft_graph_node_count(g);
    weft_params_free(params);
    weft_graph_free(g);
    weft_onnx_free(m);
    return f->error.status == WEFT_OK;
}

/* Whether values of a graph, written and read, have the same bits. */
static bool round_trip(fixture *f, const weft_graph *g, const weft_value *out, size_t n,
                       weft_params *params, const weft_params *inputs, int opset)
{
    const weft_onnx_save_options options = {.opset = opset};
    weft_params *results = weft_params_new();
    size_t nodes;
    bool good = weft_onnx_save(f->path, g, out, n, params, &options, &f->error) == WEFT_OK &&
                run_graph(g, out, n, params, inputs, 1, results, &f->error) == WEFT_OK;
    for (int threads = 1; good && threads <= 2; threads++) {
        weft_params *again = weft_params_new();
        good = run_file(f, inputs, n, threads, again, &nodes) && same_results(results, again, n);
        weft_params_free(again);
    }
    weft_params_free(results);
    return good;
}

/* ---- Ops ---- */

/* Ops without a form in ONNX, and those whose first output only has one. */
static const char without_form[] =
    " input state constant group panels matmul_panels conv_grad_weight slice_scatter "
    "embedding_grad global_norm square_sums root_of_sum require_finite assign blend cache_write "
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

/* Whether a sample drops elements, which a file does not. */
static bool drops(const weft_op *op, const weft_sample *sample)
{
    for (const weft_attr_field *a = op->attrs; a && a->name; a++)
        if ((!strcmp(a->name, "p") || !strcmp(a->name, "dropout")) && op->random)
            return *(const double *)(const void *)((const char *)sample->attr + a->offset) != 0;
    return false;
}

static bool try_sample(fixture *f, const weft_op *op, const weft_sample *sample, weft_dtype dtype,
                       int opset)
{
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS];
    char name[16];
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
    const bool good = round_trip(f, g, out, named(first_only, op->name) ? 1 : op->n_out, params,
                                 inputs, opset);
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
    begin(&f);
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (named(without_form, op->name)) {
            CU_ASSERT_PTR_NULL(op->onnx);
            continue;
        }
        for (size_t k = 0; k < op->n_samples; k++)
            for (int o = 0; o < 6; o++) {
                const weft_dtype dtype = o < 3 ? WEFT_F32 : WEFT_F64;
                if (drops(op, &op->samples[k])) continue;
                const bool good = try_sample(&f, op, &op->samples[k], dtype, opsets[o % 3]);
                if (!good)
                    printf("\n    %s, sample %zu, %s, opset %d: %s: %s", op->name, k,
                           weft_dtype_name(dtype), opsets[o % 3], f.error.where, f.error.message);
                CU_ASSERT_TRUE(good);
                tried++;
            }
    }
    CU_ASSERT_TRUE(tried > 500);
    end(&f);
}

/* An op of the list without a form is refused with its name. */
static void test_ops_without_form(void)
{
    fixture f;
    begin(&f);
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (!named(without_form, op->name) || !op->n_samples || op->updates) continue;
        CU_ASSERT_FALSE(try_sample(&f, op, &op->samples[0], WEFT_F64, 17));
        CU_ASSERT_EQUAL(f.error.status, WEFT_NO_KERNEL);
        CU_ASSERT_PTR_NOT_NULL(strstr(f.error.where, op->name));
    }
    end(&f);
}

/* ---- Models ---- */

static bool try_model(fixture *f, const weft_model *model, const char *more, bool loss)
{
    char text[512];
    weft_model_io io;
    weft_graph *g = weft_graph_new();
    weft_params *inputs = weft_params_new(), *params = weft_params_new();
    snprintf(text, sizeof text, "%s %s %s", model->name, model->small, more);
    test_build_model(g, text, false, &io);
    fill_inputs(inputs, g, NULL, WEFT_F32, io.vocab);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 5, &f->error), WEFT_OK);
    weft_value out[2] = {io.output, io.loss};
    const bool good = round_trip(f, g, out, loss && weft_is_value(io.loss) ? 2 : 1, params, inputs,
                                 17);
    if (!good) printf("\n    %s: %s: %s", text, f->error.where, f->error.message);
    weft_params_free(inputs);
    weft_params_free(params);
    weft_graph_free(g);
    return good;
}

static void test_models(void)
{
    fixture f;
    begin(&f);
    for (size_t i = 0; i < weft_model_count(); i++) {
        CU_ASSERT_TRUE(try_model(&f, weft_model_at(i), "", false));
        CU_ASSERT_TRUE(try_model(&f, weft_model_at(i), "", true));
    }
    end(&f);
}


void onnx_export_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_export", NULL, NULL);
    CU_add_test(suite, "every op with a form has the same bits after a round", test_ops);
    CU_add_test(suite, "an op without a form is refused", test_ops_without_form);
    CU_add_test(suite, "every model has the same bits after a round", test_models);
}
