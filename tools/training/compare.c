/* Compares the options of all processes of a training, by hashes. Each names its own text files,
 * which may lie elsewhere on its machine, and has its own number of threads. */
#include "training.h"

#include "recipe_table.h"

#include "base/hash.h"
#include "json/tree.h"

#include <stdlib.h>
#include <string.h>

static bool no_memory(training *t)
{
    return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
}

/* Finds the first hash in which a rank differs from rank 0, of n; *differs is n if all are equal.
 */
static bool compare(training *t, const uint64_t *own, size_t n, int *rank, size_t *differs)
{
    weft_communicator *world = tool_world();
    const size_t ranks = (size_t)world->size;
    uint64_t *all = malloc(ranks * n * sizeof *all);
    *differs = n;
    bool good = training_agree(t, all || no_memory(t)) &&
                weft_communicator_gather(world, own, n * sizeof *own, all, &t->error) == WEFT_OK;
    for (size_t i = n; good && i < ranks * n && *differs == n; i++) {
        if (all[i] == all[i % n]) continue;
        *rank = (int)(i / n);
        *differs = i % n;
    }
    free(all);
    return good;
}

static bool hash_json(uint64_t *hash, cJSON *json)
{
    char *text = json ? weft__json_print(json, false) : NULL;
    if (text) *hash = hash_bytes(*hash, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(json);
    return text != NULL;
}

/* A file is only compared by whether there is one. */
static bool hash_row(const recipe *r, const recipe_row *row, uint64_t *hash)
{
    const void *value = tool_value(&row->option, r);
    *hash = HASH_START;
    switch (row->option.kind) {
    case TOOL_FILE:
        *hash = hash_number(*hash, **(char *const *)value != 0);
        return true;
    case TOOL_FILES:
        *hash = hash_number(*hash, ((const recipe_files *)value)->n);
        return true;
    default:
        return hash_json(hash, recipe_value_json(r, row));
    }
}

static bool may_differ(size_t row)
{
    return row == RECIPE_data_folder || row == RECIPE_run_threads;
}

/* The hashes: of choices that are not in a recipe, of the model, and of the rows of the table. */
enum { FLAGS, MODEL, ROWS };

static bool hash_options(const training *t, uint64_t *own)
{
    const recipe *r = &t->r;
    bool good = true;
    own[FLAGS] = hash_number(HASH_START, (uint64_t)(2 * t->resume + t->json));
    own[FLAGS] = hash_number(own[FLAGS], t->validate != NULL);
    own[MODEL] = HASH_START;
    if (r->model) own[MODEL] = hash_bytes(own[MODEL], r->model->name, strlen(r->model->name) + 1);
    for (size_t i = 0; i < r->n_model_options; i++)
        own[MODEL] = hash_bytes(own[MODEL], r->model_options[i], strlen(r->model_options[i]) + 1);
    for (size_t i = 0; i < n_recipe_rows && good; i++)
        good = may_differ(i) || hash_row(r, &recipe_rows[i], &own[ROWS + i]);
    return good;
}

static void name_option(size_t hash, char *text, size_t size)
{
    if (hash == FLAGS)
        snprintf(text, size, "choice of --resume, --validate or --json");
    else if (hash == MODEL)
        snprintf(text, size, "model or model option");
    else
        snprintf(text, size, "%s.%s", recipe_rows[hash - ROWS].section,
                 recipe_rows[hash - ROWS].key);
}

bool training_compare_recipes(training *t)
{
    const size_t n = ROWS + n_recipe_rows;
    char what[128];
    int rank = 0;
    size_t differs = n;
    if (!tool_world()) return true;
    uint64_t *own = calloc(n, sizeof *own);
    bool good = training_agree(t, (own && hash_options(t, own)) || no_memory(t)) &&
                compare(t, own, n, &rank, &differs);
    free(own);
    if (!good || differs == n) return good;
    name_option(differs, what, sizeof what);
    weft_error_set(&t->error, WEFT_PEER, "train", "rank %d has a different %s than rank 0", rank,
                   what);
    return false;
}

bool training_compare_validation(training *t, weft_data_hashes valid)
{
    const uint64_t own[] = {valid.source, valid.target, valid.batches};
    int rank = 0;
    size_t differs;
    if (!tool_world()) return true;
    if (!compare(t, own, 3, &rank, &differs)) return false;
    if (differs == 3) return true;
    weft_error_set(&t->error, WEFT_PEER, "train",
                   "rank %d has different validation data than rank 0", rank);
    return false;
}
