/* Ten steps of a listed model, by which a machine shows that it computes the specified bits. */
#include "bits.h"
#include "registry.h"
#include "specified_bits.h"

#include <weft/autograd.h>
#include <weft/models.h>
#include <weft/ops.h>
#include <weft/session.h>

#include <stdlib.h>
#include <string.h>

void weft__synthetic_input(weft_type type, int64_t vocab, uint64_t seed, void *data)
{
    const int64_t n = weft_shape_numel(type.shape);
    weft_sample_input like = {type.dtype, type.shape, -1, 1, false};
    if (type.dtype == WEFT_I32) {
        like.low = vocab > 1;
        like.high = vocab > 1 ? (double)vocab : 1;
    } else if (type.dtype == WEFT_BOOL) {
        like.high = 0.125;
    } else if (n == 1) {
        like.low = like.high = 1e-4;
    }
    weft_sample_input_fill(&like, type.dtype, seed, data);
    if (type.dtype == WEFT_I32 && n > 0) ((int32_t *)data)[n - 1] = 0;
}

/* Loss and Adam step of the model at its small size, with more options; graph and *vocab are set. */
static weft_status build(weft_graph *g, const weft_model *model, const char *const *options,
                         size_t n_options, weft_value targets[2], int64_t *vocab, weft_error *error)
{
    const char *all[2 * WEFT_MODEL_OPTIONS];
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_built built;
    const size_t bytes = strlen(model->small) + 1;
    char *small = malloc(bytes);
    if (!small) return weft_error_set(error, WEFT_NO_MEMORY, model->name, "no memory");
    size_t n = weft__options_split(memcpy(small, model->small, bytes), all, WEFT_MODEL_OPTIONS);
    for (size_t i = 0; i < n_options; i++) all[n++] = options[i];
    weft_status status = weft_model_build_text(g, model, all, n, true, &built, error);
    free(small);
    if (status != WEFT_OK) return status;
    const weft_value lr = weft_input(g, "lr", weft_dtype_of(g, built.loss), WEFT_SCALAR);
    targets[0] = built.loss;
    targets[1] = weft_train_update(g, built.loss, NULL, 0, lr, &adam, NULL);
    *vocab = built.vocab;
    return weft_error_copy(error, weft_graph_error(g));
}

static weft_status feed(weft_session *session, const weft_graph *g, int64_t vocab,
                        weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < weft_graph_node_count(g) && status == WEFT_OK; i++) {
        const weft_node_info node = weft_graph_node(g, i);
        if (node.op != &weft_op_input) continue;
        const weft_value input = weft_value_from_id(g, node.first_out);
        const weft_type type = {weft_dtype_of(g, input), weft_shape_of(g, input)};
        const size_t bytes = weft_tensor_bytes(type.dtype, type.shape);
        void *data = malloc(bytes + 1);
        if (!data) return weft_error_set(error, WEFT_NO_MEMORY, "inputs", "no memory");
        weft__synthetic_input(type, vocab, i + 1, data);
        status = weft_session_feed(session, input, data, bytes, error);
        free(data);
    }
    return status;
}

weft_status weft__ten_steps(weft_session *session, const weft_params *params, uint64_t *hash,
                            weft_error *error)
{
    weft_status status = WEFT_OK;
    for (uint64_t step = 0; step < 10 && status == WEFT_OK; step++) {
        weft_session_set_run_number(session, step);
        status = weft_session_run(session, error);
    }
    if (status == WEFT_OK) *hash = weft_params_hash(params);
    return status;
}

weft_status weft_model_bits(const weft_model *model, const char *const *options, size_t n,
                            int threads, uint64_t *hash, weft_error *error)
{
    weft_error own;
    weft_value targets[2];
    int64_t vocab = 0;
    if (!error) error = &own;
    weft_error_clear(error);
    if (!model || !hash || (n && !options) || n > WEFT_MODEL_OPTIONS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "model",
                              "model, hash and at most %d options are needed", WEFT_MODEL_OPTIONS);
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_plan *plan = NULL;
    weft_session *session = NULL;
    weft_status status = build(g, model, options, n, targets, &vocab, error);
    if (status == WEFT_OK && !(plan = weft_plan_new(g, targets, 2, NULL, error)))
        status = error->status;
    if (status == WEFT_OK) status = weft_params_init(params, g, 1, error);
    const weft_session_options run = {.threads = threads, .seed = 1};
    if (status == WEFT_OK && !(session = weft_session_new(plan, params, &run, error)))
        status = error->status;
    if (status == WEFT_OK) status = feed(session, g, vocab, error);
    if (status == WEFT_OK) status = weft__ten_steps(session, params, hash, error);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return status;
}

uint64_t weft_model_specified_bits(const weft_model *model)
{
    for (size_t i = 0; model && i < sizeof specified / sizeof *specified; i++)
        if (!strcmp(specified[i].model, model->name)) return specified[i].hash;
    return 0;
}
