/* Embeddings of token ids. Each row is padded to a length that depends on the row only, and rows of
 * a batch are independent in every op, so its embedding is bit-identical whatever the other rows
 * are. The plans have hidden states as their only target, so no logits are computed. */
#include <weft/embed.h>

#include "run/built.h"
#include "zoo/text.h"

#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

#define MIN_LENGTH    8
#define MAX_POSITIONS 4096 /* rows * length of a pass; a pass has at least one row */
#define DEFAULT_ROWS  32

struct weft_embedder {
    weft_model_config config;
    weft_model_traits traits;
    weft_embedder_options o;
    weft_forward *forward;
    int32_t *ids; /* of a pass */
    size_t id_capacity;
};

/* ---- Graphs ---- */

/* Input: ids [rows, length]. Output: embeddings [rows, width], f32. */
static weft_status build_embeddings(void *context, weft_graph *g, const weft_build_options *options,
                                    weft_built *built)
{
    const weft_embedder *e = context;
    weft_model_config config = e->config;
    config.build = *options;
    *built = (weft_built){.n_inputs = 0};
    const weft_built model = weft_model_build(g, &config);
    if (weft_graph_status(g) != WEFT_OK) return weft_graph_status(g);
    const weft_value ids = weft_built_input(&model, "target_in");
    const weft_value hidden = weft_built_output(&model, "hidden");
    const weft_value padding = weft_equal(g, ids, weft__text_int(g, e->traits.pad_id));
    weft_value x = weft_pool_tokens(g, hidden, padding, e->o.pooling);
    if (e->o.normalize) x = weft_unit_norm(g, x);
    if (weft_dtype_of(g, x) != WEFT_F32) x = weft_cast(g, x, WEFT_F32);
    weft__built_add_input(built, "target_in", ids);
    weft__built_add_output(built, "embedding", x);
    return weft_graph_status(g);
}

/* ---- The embedder ---- */

static weft_status check_options(const weft_model *m, const weft_model_traits *traits,
                                 const weft_embedder_options *o, weft_error *error)
{
    if (!traits->vocab || traits->source_vocab || traits->causal)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "has no embeddings of texts: expected an encoder such as bert");
    if (o->rows < 0 || o->max_len < 0 || (unsigned)o->pooling > WEFT_POOL_ROOT)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "embedder",
                              "rows or max_len is negative, or the pooling is unknown");
    if (o->max_len > traits->max_positions)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "has %lld learned positions, fewer than %lld",
                              (long long)traits->max_positions, (long long)o->max_len);
    return WEFT_OK;
}

weft_embedder *weft_embedder_new(const weft_model_config *config, const weft_params *params,
                                 const weft_embedder_options *options, weft_error *error)
{
    weft_error_clear(error);
    static const weft_embedder_options none = {.rows = 0};
    const weft_embedder_options *o = options ? options : &none;
    if (!config || !config->model || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "embedder",
                       "the model's configuration or the parameters are NULL");
        return NULL;
    }
    const weft_model_traits traits = weft_model_traits_of(config);
    if (check_options(config->model, &traits, o, error) != WEFT_OK) return NULL;
    weft_embedder *e = calloc(1, sizeof *e);
    if (!e) {
        weft_error_set(error, WEFT_NO_MEMORY, "embedder", "out of memory");
        return NULL;
    }
    e->config = *config;
    e->traits = traits;
    e->o = *o;
    if (!e->o.rows) e->o.rows = DEFAULT_ROWS;
    if (!e->o.max_len) e->o.max_len = traits.max_positions;
    const weft_builder builder = {
        .name = config->model->name, .build = build_embeddings, .context = e};
    e->forward = weft_forward_new(&builder, params, &o->session, error);
    if (e->forward) return e;
    weft_embedder_free(e);
    return NULL;
}

void weft_embedder_free(weft_embedder *embedder)
{
    if (!embedder) return;
    weft_forward_free(embedder->forward);
    free(embedder->ids);
    free(embedder);
}

int64_t weft_embedder_width(const weft_embedder *embedder)
{
    return embedder ? embedder->traits.d_model : 0;
}

int64_t weft_embedder_max_len(const weft_embedder *embedder)
{
    return embedder ? embedder->o.max_len : 0;
}

/* ---- Running ---- */

/* A row, and the length that it is padded to. */
typedef struct padded_row {
    const weft_embedder_row *row;
    int64_t length;
} padded_row;

static int by_length(const void *a, const void *b)
{
    const padded_row *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static weft_status check_row(const weft_embedder *e, const weft_embedder_row *row, size_t i,
                             weft_error *error)
{
    bool any = false;
    if (!row->tokens || !row->length || !row->embedding)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "embedder",
                              "row %zu lacks tokens or room for the embedding", i);
    if (row->length > (size_t)e->o.max_len || row->length > INT32_MAX)
        return weft_error_set(error, WEFT_TOO_LARGE, "embedder",
                              "row %zu has %zu tokens, more than %lld", i, row->length,
                              (long long)e->o.max_len);
    for (size_t k = 0; k < row->length; k++) any |= row->tokens[k] != e->traits.pad_id;
    return any ? WEFT_OK
               : weft_error_set(error, WEFT_BAD_ARGUMENT, "embedder", "row %zu is all padding", i);
}

/* Fills e->ids with n rows, and the remaining rows with copies of the first. */
static weft_status fill_ids(weft_embedder *e, const padded_row *rows, size_t n,
                            const weft_batch_shape *shape, weft_error *error)
{
    const size_t length = (size_t)shape->target_len, wanted = (size_t)shape->rows * length;
    if (wanted > e->id_capacity) {
        free(e->ids);
        e->ids = malloc(wanted * sizeof *e->ids);
        e->id_capacity = e->ids ? wanted : 0;
        if (!e->ids) return weft_error_set(error, WEFT_NO_MEMORY, "embedder", "out of memory");
    }
    for (size_t i = 0; i < (size_t)shape->rows; i++) {
        const weft_embedder_row *row = rows[i < n ? i : 0].row;
        int32_t *to = e->ids + i * length;
        memcpy(to, row->tokens, row->length * sizeof *to);
        for (size_t k = row->length; k < length; k++) to[k] = e->traits.pad_id;
    }
    return WEFT_OK;
}

static weft_status run_pass(weft_embedder *e, const padded_row *rows, size_t n, int64_t limit,
                            weft_error *error)
{
    weft_build_options options = {
        .shape = {.rows = weft__text_rows((int64_t)n), .target_len = rows->length}};
    weft_tensor t;
    if (options.shape.rows > limit) options.shape.rows = limit;
    weft_status status = fill_ids(e, rows, n, &options.shape, error);
    const void *inputs[] = {e->ids};
    if (status == WEFT_OK) status = weft_forward_run(e->forward, &options, inputs, error);
    if (status != WEFT_OK) return status;
    if (!weft_forward_output(e->forward, 0, &t) || t.shape.dim[1] != e->traits.d_model)
        return weft_error_set(error, WEFT_INTERNAL, "embedder", "a pass has no result");
    for (size_t i = 0; i < n; i++)
        memcpy(rows[i].row->embedding, (const float *)t.data + (int64_t)i * t.stride[0],
               (size_t)t.shape.dim[1] * sizeof(float));
    return WEFT_OK;
}

/* Runs sorted rows in batches of one length. */
static weft_status run_rows(weft_embedder *e, const padded_row *rows, size_t n, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0, end; status == WEFT_OK && i < n; i = end) {
        int64_t limit = MAX_POSITIONS / rows[i].length;
        if (limit > e->o.rows) limit = e->o.rows;
        if (limit < 1) limit = 1;
        for (end = i + 1; end < n && end - i < (size_t)limit; end++)
            if (rows[end].length != rows[i].length) break;
        status = run_pass(e, rows + i, end - i, limit, error);
    }
    return status;
}

weft_status weft_embedder_run(weft_embedder *embedder, const weft_embedder_row *rows, size_t n,
                              weft_error *error)
{
    weft_embedder *e = embedder;
    weft_error own;
    if (!error) error = &own;
    weft_error_clear(error);
    if (!e || (n && !rows))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "embedder",
                              "the embedder or the rows are NULL");
    padded_row *sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted) return weft_error_set(error, WEFT_NO_MEMORY, "embedder", "out of memory");
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        status = check_row(e, &rows[i], i, error);
        if (status == WEFT_OK)
            sorted[i] = (padded_row){
                &rows[i], weft__text_bucket(MIN_LENGTH, (int64_t)rows[i].length, e->o.max_len)};
    }
    if (status == WEFT_OK) qsort(sorted, n, sizeof *sorted, by_length);
    if (status == WEFT_OK) status = run_rows(e, sorted, n, error);
    free(sorted);
    return status;
}
