/* Errors of a trainer, and how those of one process become errors of all. */
#include "trainer.h"

weft_status weft__trainer_fail(weft_trainer *t, weft_status status, const char *where,
                               const char *message)
{
    return weft_error_set(&t->error, status, where, "%s", message);
}

weft_status weft__trainer_no_memory(weft_trainer *t)
{
    return weft__trainer_fail(t, WEFT_NO_MEMORY, "trainer", "out of memory");
}

weft_params *weft__trainer_store(weft_trainer *t)
{
    return weft__plans_store(&t->plans, &t->error);
}

weft_params *weft__trainer_model_store(weft_trainer *t)
{
    weft_params *store = weft__trainer_store(t);
    if (!store || !t->o.base || weft_params_share(store, t->o.base, &t->error) == WEFT_OK)
        return store;
    weft_params_free(store);
    return NULL;
}

bool weft__trainer_begin(weft_trainer *t, weft_error *error)
{
    weft_error_clear(error);
    if (t)
        weft_error_clear(&t->error);
    else
        weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer", "the trainer is NULL");
    return t != NULL;
}

weft_status weft__trainer_end(const weft_trainer *t, weft_status status, weft_error *error)
{
    weft_error_copy(error, &t->error);
    return status;
}

weft_status weft__ranks_no_memory(weft_trainer *t)
{
    weft__trainer_no_memory(t);
    if (t->hooks) t->hooks->fail(t);
    return t->error.status;
}

weft_status weft__ranks_agree(weft_trainer *t, rank_report *report, double *numbers,
                              rank_batches dealt, size_t n)
{
    return t->hooks ? t->hooks->agree(t, report, numbers, dealt, n) : t->error.status;
}

weft_status weft__checkpoint_agree(weft_trainer *t)
{
    rank_report r = {.checks = t->progress.updates};
    return weft__ranks_agree(t, &r, NULL, (rank_batches){0}, 0);
}
