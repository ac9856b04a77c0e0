/* See onnx_round.h. */
#include "onnx_round.h"

#include <weft/numpy.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Running a graph ---- */

void round_open(fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/weft-export-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/model.onnx", f->folder);
    snprintf(f->data, sizeof f->data, "%s.data", f->path);
}

void round_close(fixture *f)
{
    unlink(f->path);
    unlink(f->data);
    CU_ASSERT_EQUAL(rmdir(f->folder), 0);
}

void fill_inputs(weft_params *inputs, const weft_graph *g, const weft_sample *sample,
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
        weft_sample_input_fill(&like, like.dtype == WEFT_FLOAT ? dtype : d, 17 + i, t.data);
    }
}

weft_status run_graph(const example *x, int threads, weft_params *results, weft_error *error)
{
    const weft_session_options o = {.threads = threads};
    weft_plan *plan = weft_plan_new(x->g, x->out, x->n, NULL, error);
    weft_session *s = plan ? weft_session_new(plan, x->params, &o, error) : NULL;
    for (size_t i = 0; s && i < weft_params_count(x->inputs); i++) {
        weft_tensor t;
        const char *name = weft_params_name(x->inputs, i);
        weft_params_find(x->inputs, name, &t);
        const weft_value in = weft_graph_find(x->g, name);
        if (weft_is_value(in))
            weft_session_feed(s, in, t.data, weft_tensor_bytes(t.dtype, t.shape), NULL);
    }
    if (s) weft_session_run(s, error);
    for (size_t i = 0; s && error->status == WEFT_OK && i < x->n; i++) {
        weft_tensor t, copy;
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        if (weft_session_tensor(s, x->out[i], &t, NULL) != WEFT_OK) return WEFT_INTERNAL;
        if (weft_params_add(results, name, t.dtype, t.shape, &copy, error) == WEFT_OK)
            memcpy(copy.data, t.data, weft_tensor_bytes(t.dtype, t.shape));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    return error->status;
}

bool same_results(const weft_params *a, const weft_params *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weft_tensor x, y;
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        if (!weft_params_find(a, name, &x) || !weft_params_find(b, name, &y) ||
            x.dtype != y.dtype || !weft_shape_equal(x.shape, y.shape))
            return false;
        const size_t bytes = weft_tensor_bytes(x.dtype, x.shape);
        if (bytes && memcmp(x.data, y.data, bytes) != 0) return false;
    }
    return true;
}

bool run_file(fixture *f, const weft_params *inputs, size_t n, int threads, weft_params *results,
              size_t *nodes)
{
    weft_value in[64], out[MAX_VALUES];
    weft_onnx *m = weft_onnx_load(f->path, NULL, &f->error);
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    if (m && weft_onnx_build(g, m, 0, in, out) == WEFT_OK &&
        weft_onnx_copy_weights(m, params, &f->error) == WEFT_OK)
        run_graph(&(example){g, out, n, params, inputs}, threads, results, &f->error);
    *nodes = weft_graph_node_count(g);
    weft_params_free(params);
    weft_graph_free(g);
    weft_onnx_free(m);
    return f->error.status == WEFT_OK;
}

/* ---- Changed files ---- */

void edit_file(const fixture *f, edit *change)
{
    struct stat info;
    CU_ASSERT_EQUAL_FATAL(stat(f->path, &info), 0);
    const size_t bytes = (size_t)info.st_size;
    uint8_t *data = malloc(bytes);
    FILE *file = fopen(f->path, "rb");
    CU_ASSERT_EQUAL_FATAL(fread(data, 1, bytes, file), bytes);
    fclose(file);
    WeftOnnx__ModelProto *model = weft_onnx__model_proto__unpack(NULL, bytes, data);
    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    change(model);
    const size_t packed = weft_onnx__model_proto__get_packed_size(model);
    uint8_t *changed = malloc(packed);
    weft_onnx__model_proto__pack(model, changed);
    CU_ASSERT_TRUE_FATAL(write_file(f->path, changed, packed));
    weft_onnx__model_proto__free_unpacked(model, NULL);
    free(changed);
    free(data);
}

static void remove_notes_of(WeftOnnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_node; i++) {
        WeftOnnx__NodeProto *node = graph->node[i];
        free(node->doc_string);
        node->doc_string = NULL;
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g) remove_notes_of(node->attribute[k]->g);
    }
}

static void remove_notes(WeftOnnx__ModelProto *model)
{
    remove_notes_of(model->graph);
}

/* ---- Rounds ---- */

bool near_results(const weft_params *a, const weft_params *b, size_t n)
{
    double square = 0, difference = 0;
    for (size_t i = 0; i < n; i++) {
        weft_tensor x, y;
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        if (!weft_params_find(a, name, &x) || !weft_params_find(b, name, &y) ||
            x.dtype != y.dtype || !weft_shape_equal(x.shape, y.shape))
            return false;
        for (int64_t k = 0; k < weft_shape_numel(x.shape); k++) {
            const double u = weft_tensor_element(&x, k), v = weft_tensor_element(&y, k);
            if (isfinite(u)) square += u * u;
            if (u != v) difference += (u - v) * (u - v);
        }
    }
    return sqrt(difference) <= 2e-6 * sqrt(square);
}

/* Keeps the file, the inputs and the results for another program. */
static void keep(fixture *f, const char *label, const weft_params *inputs,
                 const weft_params *results)
{
    char path[512], command[768];
    const char *folder = getenv("WEFT_KEEP_EXPORTS");
    if (!folder || !label) return;
    snprintf(command, sizeof command, "cp '%s' '%s/%s.onnx'", f->path, folder, label);
    CU_ASSERT_EQUAL(system(command), 0);
    snprintf(path, sizeof path, "%s/%s.in.npz", folder, label);
    if (weft_params_count(inputs)) /* an archive has at least one array */
        CU_ASSERT_EQUAL(weft_npz_save(inputs, path, NULL, &f->error), WEFT_OK);
    snprintf(path, sizeof path, "%s/%s.out.npz", folder, label);
    CU_ASSERT_EQUAL(weft_npz_save(results, path, NULL, &f->error), WEFT_OK);
}

bool round_trip(fixture *f, const example *x, int opset, const char *label)
{
    const size_t n = x->n;
    const weft_onnx_save_options options = {.opset = opset};
    weft_params *results = weft_params_new();
    size_t nodes;
    bool good =
        weft_onnx_save(x->g, x->out, n, x->params, f->path, &options, &f->error) == WEFT_OK &&
        run_graph(x, 1, results, &f->error) == WEFT_OK;
    for (int threads = 1; good && threads <= 2; threads++) {
        weft_params *again = weft_params_new();
        good = run_file(f, x->inputs, n, threads, again, &nodes) && same_results(results, again, n);
        if (!good) printf("\n    %d threads: bits differ", threads);
        weft_params_free(again);
    }
    if (good) {
        weft_params *plain = weft_params_new();
        keep(f, label, x->inputs, results);
        edit_file(f, remove_notes);
        good = run_file(f, x->inputs, n, 1, plain, &nodes) && near_results(results, plain, n);
        if (!good) printf("\n    without notes: values differ");
        weft_params_free(plain);
    }
    weft_params_free(results);
    return good;
}

/* ---- A small graph ---- */

small small_open(void)
{
    small s = {weft_graph_new(), WEFT_NO_VALUE, weft_params_new(), weft_params_new()};
    weft_value x = weft_input(s.g, "x", WEFT_F32, WEFT_SHAPE(3, 5));
    weft_graph_push_scope(s.g, "norm");
    weft_value gamma = weft_param(s.g, "gamma", WEFT_F32, WEFT_SHAPE(5), WEFT_INIT_ONES);
    s.y = weft_name(s.g, weft_rms_norm(s.g, x, gamma, 1e-6), "y");
    weft_graph_pop_scope(s.g);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(s.params, s.g, 3, NULL), WEFT_OK);
    fill_inputs(s.inputs, s.g, NULL, WEFT_F32, 2);
    return s;
}

void small_close(small *s)
{
    weft_params_free(s->inputs);
    weft_params_free(s->params);
    weft_graph_free(s->g);
}

int count_op(fixture *f, const char *name)
{
    weft_value in[MAX_VALUES], out[MAX_VALUES];
    int count = -1;
    weft_onnx *m = weft_onnx_load(f->path, NULL, &f->error);
    weft_graph *g = weft_graph_new();
    if (m && weft_onnx_build(g, m, 0, in, out) == WEFT_OK) {
        count = 0;
        for (size_t i = 0; i < weft_graph_node_count(g); i++)
            count += !strcmp(weft_graph_node(g, i).op->name, name);
    }
    weft_graph_free(g);
    weft_onnx_free(m);
    return count;
}

weft_forward *test_run_onnx(const weft_onnx *model, weft_params *params, int64_t rows,
                            const void *x, weft_tensor *output)
{
    weft_error error = {0};
    const weft_builder builder = weft_onnx_builder(model);
    const void *inputs[] = {x};
    const weft_build_options o = {.shape.rows = rows};
    CU_ASSERT_EQUAL_FATAL(weft_onnx_copy_weights(model, params, &error), WEFT_OK);
    weft_forward *forward =
        weft_forward_new(&builder, params, &(weft_session_options){.threads = 1}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(forward);
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(forward, &o, inputs, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(forward, 0, output));
    return forward;
}

void expect_equal(arena *p, written_graph *g, int64_t opset, size_t count)
{
    weft_error error = {0};
    weft_value in[1], out[2];
    float x[2][MAX_EQUAL];
    CU_ASSERT_TRUE_FATAL(count <= MAX_EQUAL);
    write_output(p, g, "first");
    write_output(p, g, "second");
    weft_onnx *m = must_load_written(p, g, opset, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *graph = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(graph, m, 0, in, out), WEFT_OK);
    weft_plan *plan = weft_plan_new(graph, out, 2, NULL, &error);
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_onnx_copy_weights(m, params, &error), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_TRUE_FATAL(s && weft_session_run(s, NULL) == WEFT_OK);
    for (int k = 0; k < 2; k++)
        CU_ASSERT_EQUAL_FATAL(weft_session_fetch(s, out[k], x[k], count * sizeof **x, NULL),
                              WEFT_OK);
    for (size_t i = 0; i < count; i++) CU_ASSERT_DOUBLE_EQUAL(x[0][i], x[1][i], ROUNDING_F32);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(graph);
    weft_onnx_free(m);
}
