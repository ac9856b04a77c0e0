/* What an op computes from its samples, as one number that is the same on every processor. */
#include "check.h"
#include "specified_bits.h"

#include "base/hash.h"
#include "store/params.h"

#include <weft/plan.h>
#include <weft/session.h>

#include <string.h>

/* The sample's inputs as states of the graph, with their contents. */
static void add_inputs(weft_graph *g, weft_params *params, const weft_sample *sample,
                       weft_dtype dtype, weft_value *in)
{
    for (size_t i = 0; i < sample->n_in; i++) {
        const weft_sample_input *input = &sample->in[i];
        const weft_dtype d = input->dtype == WEFT_FLOAT ? dtype : input->dtype;
        char name[32];
        weft_tensor t;
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = weft_state(g, name, d, input->shape, WEFT_INIT_ZEROS);
        if (weft_params_add(params, name, d, input->shape, &t, NULL) == WEFT_OK)
            weft_sample_input_fill(input, dtype, 1 + 100 * i, t.data);
    }
}

/* Continues *hash with the outputs for a sample, or with the status of one that fails: some name an
 * index out of range, and some ops have kernels of f32 only. */
static weft_status hash_sample(const weft_op *op, const weft_sample *sample, weft_dtype dtype,
                               uint64_t *hash, weft_error *error)
{
    const weft_session_options one_thread = {.threads = 1};
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS];
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_session *session = NULL;
    weft_error_clear(error);
    if (params) add_inputs(g, params, sample, dtype, in);
    weft_apply(g, op, sample->attr, in, sample->n_in, out);
    weft_plan *plan = params ? weft_plan_new(g, out, op->n_out, NULL, error) : NULL;
    if (plan) session = weft_session_new(plan, params, &one_thread, error);
    if (session) weft_session_run(session, error);
    for (size_t i = 0; session && error->status == WEFT_OK && i < op->n_out; i++) {
        weft_tensor t;
        if (weft_session_tensor(session, out[i], &t, error) == WEFT_OK)
            *hash = weft__tensor_hash(*hash, &t);
    }
    const bool starved = !params || error->status == WEFT_NO_MEMORY;
    *hash = hash_number(*hash, (uint64_t)error->status);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return starved ? weft_error_set(error, WEFT_NO_MEMORY, op->name, "no memory") : WEFT_OK;
}

weft_status weft_op_bits(const weft_op *op, uint64_t *hash, weft_error *error)
{
    weft_error own, of_sample;
    weft_status status = WEFT_OK;
    if (!error) error = &own;
    weft_error_clear(error);
    if (!op || !hash) return weft_error_set(error, WEFT_BAD_ARGUMENT, "op", "op or hash is NULL");
    *hash = HASH_START;
    for (int f64 = 0; f64 < 2; f64++)
        for (size_t i = 0; i < op->n_samples && status == WEFT_OK; i++)
            status = hash_sample(op, &op->samples[i], f64 ? WEFT_F64 : WEFT_F32, hash, &of_sample);
    return status == WEFT_OK ? WEFT_OK : weft_error_copy(error, &of_sample);
}

uint64_t weft_op_specified_bits(const weft_op *op)
{
    for (size_t i = 0; op && i < sizeof specified / sizeof *specified; i++)
        if (!strcmp(specified[i].op, op->name)) return specified[i].hash;
    return 0;
}
