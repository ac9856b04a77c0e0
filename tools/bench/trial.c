/* Runs models on synthetic inputs, for profiles and pictures with times. */
#include "tool.h"
#include "system.h"

#include <string.h>

static weft_status feed_all(trial *t, weft_error *error)
{
    sample_inputs e;
    weft_status status = tool_sample_inputs(&t->m, &e, error);
    if (status != WEFT_OK) return status;
    status = sample_inputs_feed(&e, t->session, error);
    sample_inputs_free(&e);
    return status;
}

weft_status trial_start(trial *t, const weft_value *targets, size_t n, int threads,
                        weft_error *error)
{
    const weft_plan_options options = t->m.plan;
    t->plan =
        targets ? weft_plan_new(t->m.graph, targets, n, &options, error) : tool_plan(&t->m, error);
    if (!t->plan) return error->status;
    t->params = weft_params_new();
    if (!t->params) return weft_error_set(error, WEFT_NO_MEMORY, "parameters", "no memory");
    weft_status status = t->m.file ? weft_onnx_share_weights(t->m.file, t->params, error) : WEFT_OK;
    if (status == WEFT_OK) status = weft_params_init(t->params, t->m.graph, 1, error);
    if (status != WEFT_OK) return status;
    const weft_session_options session = {
        .threads = threads, .seed = 1, .release_states = t->m.plan.fixed_states};
    t->session = weft_session_new(t->plan, t->params, &session, error);
    return t->session ? feed_all(t, error) : error->status;
}

weft_status trial_open(trial *t, const model_args *model, bool training, int threads,
                       weft_error *error)
{
    memset(t, 0, sizeof *t);
    weft_status status = tool_build_args(model, training, &t->m, error);
    if (status != WEFT_OK) return status;
    status = trial_start(t, NULL, 0, threads, error);
    if (status != WEFT_OK) trial_close(t);
    return status;
}

void trial_close(trial *t)
{
    weft_session_free(t->session);
    weft_plan_free(t->plan);
    weft_params_free(t->params);
    tool_free_model(&t->m);
    memset(t, 0, sizeof *t);
}

weft_status trial_peaks(const trial *t, int threads, weft_peaks *peaks, weft_error *error)
{
    const weft_dtype computed = weft_dtype_of(t->m.graph, t->m.built.outputs[0]);
    const weft_dtype dtype = weft_dtype_is_float(computed) ? computed : WEFT_F32;
    return weft_measure_peaks(dtype, threads, peaks, error);
}

weft_status trial_profile(trial *t, long runs, long trace_runs, double *seconds, weft_error *error)
{
    bool terminal = system_is_terminal(stderr), shown = false;
    weft_profile_options options = {.trace_runs = (size_t)trace_runs};
    *seconds = 0;
    /* The first run touches memory and starts threads. */
    if (weft_session_run(t->session, error) != WEFT_OK ||
        weft_session_profile(t->session, true, &options, error) != WEFT_OK)
        return error->status;
    double last = tool_seconds();
    for (long i = 0; i < runs; i++) {
        double begin = tool_seconds();
        if (begin - last > (terminal ? 0.5 : 10)) {
            fprintf(stderr, "%srun %ld of %ld%s", terminal ? "\r\033[K" : "", i + 1, runs,
                    terminal ? "" : "\n");
            last = begin;
            shown = terminal;
        }
        begin = tool_seconds();
        if (weft_session_run(t->session, error) != WEFT_OK) return error->status;
        *seconds += tool_seconds() - begin;
    }
    if (shown) fputs("\r\033[K", stderr);
    return WEFT_OK;
}
