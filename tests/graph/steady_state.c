/* After the first run, running a plan allocates nothing, with a profile or without: not the
 * library, not OpenMP's, not BLAS. The program's own malloc counts every allocation of the process.
 */
#include <weft/models.h>
#include <weft/weft.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long allocations;

/* Without this the shared libraries go on with the malloc of libc, uncounted. */
#pragma GCC visibility push(default)

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, bytes);
}
void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, bytes);
}

#pragma GCC visibility pop

int main(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    const weft_model *model = weft_model_find("transformer");
    weft_built built;
    const char *options[] = {"d_model=64", "d_ff=128",      "vocab=200",
                             "batch=4",    "source_len=12", "target_len=12"};
    if (!model || weft_model_build_text(g, model, options, 6, true, &built, &error) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", error.where, error.message);
        return 1;
    }
    weft_value lr = weft_scalar(g, WEFT_F32, 1e-3);
    for (size_t i = 0; i < built.n_inputs; i++) weft_input_default(g, built.inputs[i], 0);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value step = weft_train_update(g, built.loss, NULL, 0, lr, &adam, NULL);
    weft_params *store = weft_params_new();
    weft_value targets[2] = {built.loss, step};
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 1, &error) == WEFT_OK)
        s = weft_session_new(plan, store, NULL, &error);
    if (!s || weft_session_run(s, NULL) != WEFT_OK || weft_session_run(s, NULL) != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", error.where, error.message);
        return 1;
    }
    long before = atomic_load(&allocations);
    for (int i = 0; i < 10; i++) weft_session_run(s, NULL);
    long made = atomic_load(&allocations) - before;
    printf("allocations in 10 runs: %ld (and %ld before them)\n", made, before);
    if (weft_session_profile(s, true, &(weft_profile_options){.trace_runs = 3}, NULL) != WEFT_OK)
        return 1;
    long taken = atomic_load(&allocations) - before;
    for (int i = 0; i < 10; i++) weft_session_run(s, NULL);
    long profiled = atomic_load(&allocations) - before - taken;
    printf("allocations in 10 measured runs: %ld (and %ld to switch that on)\n", profiled, taken);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return made != 0 || profiled != 0 || before == 0 || taken == 0;
}
