/* Calls of a kernel: how much work they are, what kernels ask of them, and running one node on the
 * calling thread, tile by tile. Passes that compute constants and the search for numbers that are
 * not finite use the latter; the executor shares tiles among threads (run/execute.c). */
#include "ir/call.h"

#include "base/float_env.h"
#include "base/openmp.h"
#include "base/platform.h"

/* ---- The work of a call ---- */

weft_cost weft__op_cost(const weft_op *op, const weft_call *call)
{
    weft_cost cost = {0, 0};
    if (op->cost) {
        op->cost(call, &cost);
        return cost;
    }
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const weft_tensor *t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        cost.bytes += (double)weft_tensor_bytes(t->dtype, t->shape);
    }
    cost.flops = (double)weft_shape_numel(call->out[0].shape);
    return cost;
}

/* ---- What a kernel asks of its call ---- */

static void record_fault(const weft_call *call, int64_t index, int64_t limit,
                         const weft_error *error)
{
    /* Of all runs. A critical section of clang's OpenMP fails before the first parallel region. */
    static os_mutex lock = OS_MUTEX;
    fault *f = call->run ? call->run->fault : NULL;
    if (!f) return;
    weft__os_lock(&lock);
    const unsigned step = atomic_load(&f->step);
    if (call->node < step || (call->node == step && index < f->index)) {
        f->index = index;
        f->limit = limit;
        if (error) f->error = *error;
        atomic_store(&f->step, call->node);
    }
    weft__os_unlock(&lock);
}

void weft_call_fail(const weft_call *call, int64_t index, int64_t limit)
{
    record_fault(call, index, limit, NULL);
}

void weft_call_not_finite(const weft_call *call, size_t input)
{
    record_fault(call, (int64_t)input, FAULT_NOT_FINITE, NULL);
}

void weft__call_fail_with(const weft_call *call, const weft_error *error)
{
    record_fault(call, 0, FAULT_ERROR, error);
}

static _Thread_local int pool_thread;

int weft__call_set_thread(int thread)
{
    const int before = pool_thread;
    pool_thread = thread;
    return before;
}

int64_t *weft_call_panel_tag(const weft_call *call)
{
    const weft_run_context *run = call->run;
    const int thread = omp_get_thread_num() + pool_thread;
    return (int64_t *)(run->workspace + (size_t)thread * run->workspace_bytes);
}

void *weft_call_workspace(const weft_call *call)
{
    return (char *)weft_call_panel_tag(call) + PANEL_TAG_BYTES;
}

/* ---- One node ---- */

void weft__call_run(const weft_op *op, weft_kernel kernel, const weft_call *call)
{
    weft_call own = *call;
    const int phases = op->phases ? op->phases : 1;
    for (own.phase = 0; own.phase < phases; own.phase++) {
        own.tiles = op_tiles(op, &own);
        if (op->workspace) *weft_call_panel_tag(&own) = 0;
        for (int64_t tile = 0; tile < own.tiles; tile++) kernel(&own, tile);
    }
}

weft_status weft__call_run_alone(const weft_op *op, weft_kernel kernel, const weft_call *call)
{
    weft_call own = *call;
    fault failed = {.step = NO_FAULT};
    const size_t workspace = op->workspace ? op->workspace(call) : 0;
    /* One workspace, whatever the thread's number: so workspace_bytes is 0. */
    weft_run_context run = {.fault = &failed, .workspace = weft_alloc(PANEL_TAG_BYTES + workspace)};
    own.run = &run;
    own.scratch = weft_alloc(op->scratch ? op->scratch(call) : 0);
    const bool good = own.scratch && run.workspace;
    const float_env env = float_env_set();
    if (good) weft__call_run(op, kernel, &own);
    float_env_restore(env);
    weft_free(own.scratch);
    weft_free(run.workspace);
    if (!good) return WEFT_NO_MEMORY;
    return atomic_load(&failed.step) == NO_FAULT ? WEFT_OK : WEFT_BAD_INDEX;
}
