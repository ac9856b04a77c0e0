/* See samples.h. */
#include "samples.h"

#include <weft/autograd.h>
#include <weft/session.h>

#include <stdlib.h>
#include <string.h>

void free_outputs(outputs *o)
{
    for (size_t i = 0; i < o->n; i++) free(o->tensor[i].data);
    o->n = 0;
}

weft_dtype input_dtype(const weft_sample *sample, size_t i, weft_dtype dtype)
{
    return sample->in[i].dtype == WEFT_FLOAT ? dtype : sample->in[i].dtype;
}

weft_tensor input_data(const weft_sample *sample, size_t i, weft_dtype dtype)
{
    weft_dtype d = input_dtype(sample, i, dtype);
    int64_t n = weft_shape_numel(sample->in[i].shape);
    void *data = calloc((size_t)n + 1, 8);
    weft_sample_input_fill(&sample->in[i], d, 1 + 100 * i, data);
    return weft_tensor_dense(data, d, sample->in[i].shape);
}

static weft_value strided_input(weft_graph *g, const char *name, const weft_tensor *t)
{
    weft_shape wide = t->shape;
    if (wide.rank == WEFT_MAX_RANK) return weft_input(g, name, t->dtype, t->shape);
    wide.dim[wide.rank++] = 2;
    weft_value x = weft_slice(g, weft_input(g, name, t->dtype, wide), -1, 0, 1, 1);
    return weft_reshape(g, x, t->shape);
}

static bool feed_input(weft_session *s, weft_value x, const weft_tensor *t, bool strided)
{
    size_t size = weft_dtype_bytes(t->dtype), n = (size_t)weft_shape_numel(t->shape);
    if (!strided) return weft_session_feed(s, x, t->data, n * size, NULL) == WEFT_OK;
    char *wide = calloc(2 * n + 1, size);
    for (size_t i = 0; i < n; i++) memcpy(wide + 2 * i * size, (char *)t->data + i * size, size);
    bool good = weft_session_feed(s, x, wide, 2 * n * size, NULL) == WEFT_OK;
    free(wide);
    return good;
}

bool run_sample(const weft_op *op, const weft_sample *sample, variant v, outputs *out,
                weft_error *error)
{
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_value in[WEFT_SAMPLE_INPUTS], results[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_tensor data[WEFT_SAMPLE_INPUTS];
    memset(out, 0, sizeof *out);
    memset(error, 0, sizeof *error);
    for (size_t i = 0; i < sample->n_in; i++) {
        char name[32];
        weft_tensor t;
        snprintf(name, sizeof name, "x%zu", i);
        data[i] = input_data(sample, i, v.dtype);
        if (i < op->updates) {
            in[i] = weft_state(g, name, data[i].dtype, data[i].shape, WEFT_INIT_ZEROS);
            weft_params_add(params, name, data[i].dtype, data[i].shape, &t, NULL);
            memcpy(t.data, data[i].data,
                   (size_t)weft_shape_numel(t.shape) * weft_dtype_bytes(t.dtype));
        } else {
            in[i] = v.strided ? strided_input(g, name, &data[i])
                              : weft_input(g, name, data[i].dtype, data[i].shape);
        }
    }
    if (v.expanded) {
        weft_expand e = {g, sample->attr, sample->n_in, op->n_out, in, results};
        op->expand(&e);
    } else {
        weft_apply(g, op, sample->attr, in, sample->n_in, results);
    }
    weft_plan *plan =
        weft_plan_new(g, results, op->n_out, &(weft_plan_options){.verify = true}, error);
    weft_session *s = NULL;
    if (plan)
        s = weft_session_new(plan, params,
                             &(weft_session_options){.threads = v.threads, .poison = true}, error);
    bool good = s != NULL;
    for (size_t i = op->updates; i < sample->n_in && good; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        good = feed_input(s, weft_graph_find(g, name), &data[i], v.strided);
    }
    good = good && weft_session_run(s, error) == WEFT_OK;
    for (size_t i = 0; i < op->n_out && good; i++) {
        weft_tensor t;
        good = weft_session_tensor(s, results[i], &t, NULL) == WEFT_OK;
        if (!good) break;
        size_t bytes = (size_t)weft_shape_numel(t.shape) * weft_dtype_bytes(t.dtype);
        void *copy = malloc(bytes + 1);
        memcpy(copy, t.data, bytes);
        out->tensor[out->n++] = weft_tensor_dense(copy, t.dtype, t.shape);
    }
    for (size_t i = 0; i < sample->n_in; i++) free(data[i].data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return good;
}
